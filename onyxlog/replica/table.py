"""An immutable mapping that iterates in the order of its keys, and knows the sum of its items' hashes.

Order: a plain hash map iterates by insertion or by hash seed, so that two peers with equal replicas could schedule
differently. Sum: the digest
of a replica costs only what an entry changed (AdHash, as the tree's own digest: zraft/tree/digest.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgpack
from immutables import Map

K = TypeVar("K")
V = TypeVar("V")
MODULUS: Final = 2**128

_pack = msgpack.Packer(use_bin_type=True).pack


def item_hash(key: Any, canonical_value: Any) -> int:
    """Of one item, 128 bits: BLAKE2b over the MessagePack form of [key, value]."""
    return int.from_bytes(blake2b(_pack([key, canonical_value]), digest_size=16).digest(), "big")


class Table(Mapping[K, V]):
    """Keys: strings, or tuples of strings. Values: anything whose `canonical` form is given by
    `onyxlog.replica.canonical`."""

    __slots__ = ("_items", "_keys", "_sum")

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._items: Map[K, V] = Map(items)
        self._keys: tuple[K, ...] | None = None
        self._sum: int | None = None

    @classmethod
    def _of(cls, items: Map[K, V], total: int | None) -> Table[K, V]:
        table = cls.__new__(cls)
        table._items, table._keys, table._sum = items, None, total
        return table

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        if self._keys is None:
            self._keys = tuple(sorted(self._items))  # type: ignore[type-var]
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __eq__(self, other: object) -> bool:
        return self._items == other._items if isinstance(other, Table) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return f"Table({dict(self.items())!r})"

    def set(self, key: K, value: V) -> Table[K, V]:
        """With `key` at `value`; the same table if it is so already."""
        return self.update({key: value})

    def update(self, items: Mapping[K, V]) -> Table[K, V]:
        changed = {
            key: value for key, value in items.items() if key not in self._items or self._items[key] != value
        }
        return self._of(self._items.update(changed), None) if changed else self

    def without(self, *keys: K) -> Table[K, V]:
        """Without these keys, which need not be there; the same table if none was."""
        return self.where_not(set(keys).__contains__) if len(keys) > 8 else self._drop(keys)

    def where_not(self, gone: Callable[[K], bool]) -> Table[K, V]:
        """Without the keys for which `gone` holds."""
        return self._drop(key for key in tuple(self._items) if gone(key))

    def _drop(self, keys: Iterable[K]) -> Table[K, V]:
        items = self._items
        for key in keys:
            if key in items:
                items = items.delete(key)
        return self if items is self._items else self._of(items, None)

    # The sum of item hashes, kept up to date by what differs, belongs here: the owner of `onyxlog.replica` completes it.
