"""Outcomes of a session's numbered commands, kept until the client says that it has received them."""

from __future__ import annotations

from typing import Any, Final

import msgpack

WINDOW: Final = 1_024
"""Numbers above the floor that a client may use: so many commands it may have under way."""

_INT64_MAX: Final = 2**63 - 1


class Kept:
    """Outcomes of one session: the floor, and packed Outcomes by their numbers, all of them above it."""

    __slots__ = ("floor", "outcomes", "size")

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self.outcomes: dict[int, bytes] = {}
        self.size = 0

    def keep(self, seq: int, packed: bytes) -> None:
        """Keep the outcome of a command."""
        self.outcomes[seq] = packed
        self.size += len(packed)

    def raise_floor(self, floor: int) -> None:
        """Drop everything up to `floor`, which was received; it costs no more than what is dropped."""
        outcomes = self.outcomes
        if floor - self.floor <= WINDOW:
            dropped = range(self.floor + 1, floor + 1)
            gone = [outcomes.pop(seq, b"") for seq in dropped] if outcomes else []
        else:
            gone = list(outcomes.values())
            outcomes.clear()
        self.size -= sum(map(len, gone))
        self.floor = floor

    def plain(self) -> tuple[int, tuple[tuple[int, bytes], ...]]:
        """Return this as plain values, sorted."""
        return self.floor, tuple(sorted(self.outcomes.items()))

    @staticmethod
    def read(plain: Any) -> Kept | None:
        """Return what `plain` made these values of; None if it made none such."""
        if plain.__class__ is not tuple or tuple(map(type, plain)) != (int, tuple):
            return None
        floor, items = plain
        if not 0 <= floor <= _INT64_MAX:
            return None
        kept = Kept(floor)
        for item in items:
            if item.__class__ is not tuple or tuple(map(type, item)) != (int, bytes):
                return None
            seq, packed = item
            if seq in kept.outcomes or not floor < seq <= floor + WINDOW or not _is_outcome(packed):
                return None
            kept.keep(seq, packed)
        return kept


def _is_outcome(packed: bytes) -> bool:
    try:
        outcome = msgpack.unpackb(packed, use_list=False)
    except (ValueError, TypeError):
        return False
    return (
        outcome.__class__ is tuple and len(outcome) == 4 and tuple(map(type, outcome[:3])) == (int, int, int)
    )
