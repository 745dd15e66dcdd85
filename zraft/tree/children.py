"""The names of a znode's children: a set while there are few, many small sets when there are many.

One set of a million names grows by copying itself, which would stall apply for 40 ms; and a list of them is
too long for a reply, which must be known without building it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

SPLIT_AT: Final = 16_384
"""Names beyond which a plain set is replaced by `ManyNames`, once: about 2 ms."""

_SHARDS: Final = 256
_SHIFT: Final = 20
"""Shards are chosen by bits of the hash that the sets inside do not use, or all their names would collide."""


class ManyNames(Collection[str]):
    """A set of names in shards. It never turns back into a plain set; the last name to go takes it along."""

    __slots__ = ("_count", "_shards", "name_bytes")

    def __init__(self, names: set[str]) -> None:
        self._shards: list[set[str]] = [set() for _ in range(_SHARDS)]
        self._count = 0
        self.name_bytes = 0
        """UTF-8 bytes of all names, so that the size of a listing is known beforehand."""
        for name in names:
            self.add(name)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: object) -> bool:
        return name in self._shards[hash(name) >> _SHIFT & _SHARDS - 1]

    def __iter__(self) -> Iterator[str]:
        for shard in self._shards:
            yield from shard

    def add(self, name: str) -> None:
        """A name that is not there yet."""
        self._shards[hash(name) >> _SHIFT & _SHARDS - 1].add(name)
        self._count += 1
        self.name_bytes += len(name.encode())

    def remove(self, name: str) -> None:
        """A name that is there."""
        self._shards[hash(name) >> _SHIFT & _SHARDS - 1].remove(name)
        self._count -= 1
        self.name_bytes -= len(name.encode())

    def parts(self) -> list[set[str]]:
        """The sets inside, for whoever takes it apart."""
        return self._shards


Names = set[str] | ManyNames
