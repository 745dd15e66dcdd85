"""An immutable mapping that iterates in the order of its keys, and knows the sum of its items' hashes.

Order: a plain hash map iterates by insertion or by hash seed, so that two peers with equal replicas could
schedule differently. Sum: the digest of a replica costs only what an entry changed (AdHash, as the tree's own
digest: zraft/tree/digest.py).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Set, ValuesView
from hashlib import blake2b
from typing import Any, Final, TypeVar, overload

from immutables import Map

from onyxlog.replica.canonical import Ordered, pack

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
T = TypeVar("T")
MODULUS: Final = 2**128
MOVES_MAX: Final = 8
"""The number of keys that are put into, or taken out of, the sorted ones one by one; beyond, they are sorted
again when next wanted.
"""


_NOTHING: Final[Any] = object()


def item_hash(key: Any, value: Any) -> int:
    """Return the hash of one item, 128 bits: BLAKE2b over the canonical bytes of [key, value]."""
    return int.from_bytes(blake2b(pack((key, value)), digest_size=16).digest(), "big")


class _Items(ItemsView[K, V]):
    """Items in the order of the keys, without a Python call for each: schedulers go over all workers at every entry."""

    _mapping: Table[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return zip(self._mapping, self._mapping.values(), strict=True)


class _Values(ValuesView[V]):
    _mapping: Table[Any, V]

    def __iter__(self) -> Iterator[V]:
        return map(self._mapping._items.__getitem__, self._mapping)


class Table(Mapping[K, V], Ordered):
    """A mapping.

    Keys: strings, or tuples of strings. Values: anything that has a form in `onyxlog.replica.canonical`.

    Frozen: all methods return another table, or the same one if nothing would differ. What is remembered
    beside the items (sorted keys, sum) follows from them.
    """

    __slots__ = ("_items", "_keys", "_sum", "_views")

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._items: Map[K, V] = Map(items)
        self._keys: tuple[K, ...] | None = None
        self._sum: int | None = None if self._items else 0
        self._views: dict[Callable[[Any], Any], Any] | None = None

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        if self._keys is None:
            self._keys = tuple(sorted(self._items))  # type: ignore[type-var]
        return iter(self._keys)

    def items(self) -> ItemsView[K, V]:
        """Return a view of the items in the order of the keys."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return a view of the values in the order of the keys."""
        return _Values(self)

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...

    def get(self, key: K, /, default: V | D | None = None) -> V | D | None:
        """Return a key's value, or `default`."""
        return self._items.get(key, default)

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

    @property
    def sum(self) -> int:
        """The sum of the hashes of all items, modulo 2^128: equal for equal tables, however they came about."""
        if self._sum is None:
            self._sum = sum(item_hash(key, value) for key, value in self._items.items()) % MODULUS
        return self._sum

    def view(self, made: Callable[[Table[K, V]], T]) -> T:
        """Return `made(self)`, computed once for this table: for what is asked again at every entry, and changes rarely.

        `made` must be a function of a module, not one made for the call.
        """
        if self._views is None:
            self._views = {}
        if made not in self._views:
            self._views[made] = made(self)
        found: T = self._views[made]
        return found

    def set(self, key: K, value: V) -> Table[K, V]:
        """Return the table with `key` at `value`."""
        return self.update({key: value})

    def update(self, items: Mapping[K, V]) -> Table[K, V]:
        """Return the table with each of these items in place of its key's former value."""
        return self._changed(items, ())

    def without(self, *keys: K) -> Table[K, V]:
        """Return the table without these keys, which need not be there."""
        return self._changed({}, keys)

    def where_not(self, gone: Callable[[K], bool]) -> Table[K, V]:
        """Return the table without the keys for which `gone` holds."""
        return self._changed({}, [key for key in self._items if gone(key)])

    def replaced(self, items: Mapping[K, V]) -> Table[K, V]:
        """Return a table with these items and no others. It costs hashes only for those that differ."""
        return self._changed(items, [key for key in self._items if key not in items])

    def _changed(self, items: Mapping[K, V], gone: Iterable[K]) -> Table[K, V]:
        present = self._items
        get = present.get
        # most are the very objects that are there
        new = {k: v for k, v in items.items() if (was := get(k, _NOTHING)) is not v and was != v}
        leaving = {key for key in gone if key in present}
        if not new and not leaving:
            return self
        with present.mutate() as changing:
            for key in leaving:
                del changing[key]
            changing.update(new)
            result = changing.finish()
        table: Table[K, V] = type(self).__new__(type(self))
        table._items, table._views = result, None
        table._keys = self._keys_with([key for key in new if key not in present], leaving)
        table._sum = self._sum_with(new, leaving)
        return table

    def _keys_with(self, added: list[K], gone: Set[K]) -> tuple[K, ...] | None:
        if self._keys is None or len(added) + len(gone) > MOVES_MAX:
            return None
        if not added and not gone:
            return self._keys
        keys: list[Any] = list(self._keys)
        for key in gone:
            del keys[bisect_left(keys, key)]
        for key in added:
            insort(keys, key)
        return tuple(keys)

    def _sum_with(self, new: Mapping[K, V], gone: Set[K]) -> int | None:
        if self._sum is None:
            return None
        present, total = self._items, self._sum
        for key in gone:
            total -= item_hash(key, present[key])
        for key, value in new.items():
            total += item_hash(key, value)
            if key in present:
                total -= item_hash(key, present[key])
        return total % MODULUS
