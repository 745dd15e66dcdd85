"""The transfer of a file of known length in pieces, from the side that asks for them.

A few pieces are asked for ahead; those that come early wait, and those that are lost are asked for again.
Pure.
"""

from __future__ import annotations

from typing import Final

CHUNK_BYTES: Final = 256 * 1024
"""The length of a piece in bytes: it takes a few milliseconds of a busy network, and of its receiver."""
CHUNKS_AHEAD: Final = 3
"""How many pieces are asked for before they are here."""
ASK_AGAIN_MS: Final = 500
"""After so long without any piece, those that are missing are asked for again."""


class Pull:
    """One file that is being fetched.

    Attributes:
        id: names it.
        size: its length in bytes.
        have: how many of them, from the beginning on, `take` has returned.
    """

    __slots__ = ("_asked", "_asked_at", "_early", "_heard_at", "have", "id", "size")

    def __init__(self, id: bytes, size: int, have: int, now_ms: int) -> None:
        self.id = id
        self.size = size
        self.have = self._asked = have
        self._early: dict[int, bytes] = {}
        self._heard_at = self._asked_at = now_ms

    @property
    def complete(self) -> bool:
        """True if all of the file is here."""
        return self.have == self.size

    def take(self, offset: int, data: bytes, now_ms: int) -> list[tuple[int, bytes]]:
        """Take a piece that arrived; return the (offset, bytes) that continue what is here, in order."""
        self._heard_at = now_ms
        if not data or offset < self.have or offset + len(data) > self.size:
            return []
        self._early[offset] = data
        fitting: list[tuple[int, bytes]] = []
        while (next_data := self._early.pop(self.have, None)) is not None:
            fitting.append((self.have, next_data))
            self.have += len(next_data)
        if len(self._early) > 2 * CHUNKS_AHEAD:
            self._early.clear()
        return fitting

    def asks(self, now_ms: int) -> list[tuple[int, int]]:
        """Return (offset, length) of each piece to ask for now."""
        if now_ms - max(self._heard_at, self._asked_at) >= ASK_AGAIN_MS:
            self._asked = self.have
        self._asked = max(self._asked, self.have)
        asks: list[tuple[int, int]] = []
        while self._asked < self.size and self._asked - self.have < CHUNKS_AHEAD * CHUNK_BYTES:
            length = min(CHUNK_BYTES, self.size - self._asked)
            asks.append((self._asked, length))
            self._asked += length
            self._asked_at = now_ms
        return asks
