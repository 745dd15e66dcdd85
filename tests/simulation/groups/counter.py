"""The state machine of simulated groups: it counts what it was given, and remembers the order in a digest."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Final

from tests.simulation.broken import BrokenPromiseError
from zraft.raft.messages import Entry, EntryKind
from zraft_core.errors import ProtocolError

_IMAGE: Final = struct.Struct(">QQ16s")


class AppendCounter:
    """How many commands were applied, and a chain over all of their bytes."""

    stopped = False

    def __init__(self) -> None:
        self.commands = 0
        self.last_index = 0
        self._chain = bytes(16)

    def apply(self, entry: Entry) -> bool:
        if entry.kind is not EntryKind.COMMANDS:
            return True
        if entry.index <= self.last_index or entry.position != self.commands + 1:
            raise BrokenPromiseError(
                "apply",
                f"entry {entry.index} at position {entry.position} after entry {self.last_index} and "
                f"{self.commands} commands",
            )
        self.last_index = entry.index
        self.commands += entry.count
        self._chain = blake2b(self._chain + entry.payload, digest_size=16).digest()
        return True

    def snapshot(self) -> bytes:
        return _IMAGE.pack(self.commands, self.last_index, self._chain)

    def prepare_restore(self, image: bytes) -> Callable[[], None]:
        if len(image) != _IMAGE.size:
            raise ProtocolError(f"counter: expected {_IMAGE.size} bytes, found {len(image)}")
        return partial(self._adopt, *_IMAGE.unpack(image))

    def _adopt(self, commands: int, last_index: int, chain: bytes) -> None:
        self.commands, self.last_index, self._chain = commands, last_index, chain

    def digest(self) -> int:
        return int.from_bytes(self._chain)
