"""The names of a znode's children: a set while there are few, many small sets when there are many, or once truncated.

One set of a million names grows by copying itself, which would stall apply for 40 ms; a list of them is too long for a
reply, which must be known without building it; and the oldest of them must be able to go at once (D-20).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final
from zlib import crc32

SPLIT_AT: Final = 8_192
"""Names beyond which a plain set is replaced by `ManyNames`, once: about 4 ms."""

NUMBER_DIGITS: Final = 10

_SHARDS: Final = 256
_RANGE_SHIFT: Final = 10
"""Numbered names are kept by 1,024 numbers, so that a million of them are hidden in a thousand steps of 0.1 us."""
_AFTER_ALL_NUMBERS: Final = 10**NUMBER_DIGITS


def number_of(name: str) -> int:
    """Return the sequence number at the end of a name, -1 if there is none."""
    digits = name[-NUMBER_DIGITS:]
    if len(digits) == NUMBER_DIGITS and digits.isdigit() and digits.isascii():
        return int(digits)
    return -1


def order_of(name: str) -> tuple[int, int, str]:
    """Return the order in which names are taken apart: by number, then, the same everywhere.

    It is one that `ManyNames` can follow soon.
    """
    number = number_of(name)
    return (number, 0, name) if number >= 0 else (_AFTER_ALL_NUMBERS, _shard_of(name), name)


def in_order(names: Names, limit: int) -> list[str]:
    """Return the first up to `limit` names, by `order_of`: the same whichever of the two they are kept in."""
    return names.first_names(limit) if isinstance(names, ManyNames) else sorted(names, key=order_of)[:limit]


def _shard_of(name: str) -> int:
    return crc32(name.encode()) % _SHARDS


class _Range(set[str]):
    """Names whose numbers differ in the last ten bits only; `size` is the UTF-8 bytes of all of them."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        super().__init__()
        self.size = 0


class _Ranges:
    """Numbered names by ranges of numbers. Most ranges of a log are full; where numbers are far apart, one name is cheap."""

    __slots__ = ("_shards", "count", "size")

    def __init__(self) -> None:
        # One dict of many ranges would stall when it grows.
        self._shards: list[dict[int, _Range | str]] = [{} for _ in range(_SHARDS)]
        self.count = 0
        self.size = 0

    def __iter__(self) -> Iterator[str]:
        for shard in self._shards:
            for names in shard.values():
                if isinstance(names, str):
                    yield names
                else:
                    yield from names

    def has(self, number: int, name: str) -> bool:
        key = number >> _RANGE_SHIFT
        names = self._shards[key % _SHARDS].get(key)
        return name == names if names is None or names.__class__ is str else name in names

    def add(self, number: int, name: str, size: int) -> None:
        key = number >> _RANGE_SHIFT
        shard = self._shards[key % _SHARDS]
        self.count += 1
        self.size += size
        names = shard.get(key)
        if names is None:
            shard[key] = name
            return
        if isinstance(names, str):
            shard[key] = names = _range_of(names)
        names.add(name)
        names.size += size

    def add_new(self, number: int, name: str, size: int) -> bool:
        """Add a name unless it is there, which returns False."""
        key = number >> _RANGE_SHIFT
        shard = self._shards[key % _SHARDS]
        if key not in shard:
            shard[key] = name
        else:
            names = shard[key]
            if names.__class__ is not _Range:
                assert isinstance(names, str)
                if names == name:
                    return False
                shard[key] = names = _range_of(names)
            if name in names:
                return False
            names.add(name)
            names.size += size
        self.count += 1
        self.size += size
        return True

    def remove(self, number: int, name: str, size: int) -> None:
        key = number >> _RANGE_SHIFT
        shard = self._shards[key % _SHARDS]
        self.count -= 1
        self.size -= size
        names = shard[key]
        if isinstance(names, str):
            assert names == name, f"{name} is not there"
            del shard[key]
            return
        names.remove(name)
        names.size -= size
        if not names:
            del shard[key]

    def move_below(self, begin: int, end: int, to: _Ranges) -> None:
        """Move names with numbers from `begin` to before `end`: a step per 1,024 numbers.

        There are none below `begin`.
        """
        last = end >> _RANGE_SHIFT
        for key in range(begin >> _RANGE_SHIFT, last):
            names = self._shards[key % _SHARDS].pop(key, None)
            if names is not None:
                self._moved(key, names, to)
        names = self._shards[last % _SHARDS].get(last)
        for name in [names] if isinstance(names, str) else list(names or ()):
            number = number_of(name)
            if number < end:
                size = len(name.encode())
                self.remove(number, name, size)
                to.add(number, name, size)

    def _moved(self, key: int, names: _Range | str, to: _Ranges) -> None:
        shard = to._shards[key % _SHARDS]
        if key in shard:  # the rest of a range whose beginning was moved before
            for name in [names] if isinstance(names, str) else names:
                size = len(name.encode())
                self.count -= 1
                self.size -= size
                to.add(number_of(name), name, size)
            return
        shard[key] = names
        count, size = (1, len(names.encode())) if isinstance(names, str) else (len(names), names.size)
        self.count -= count
        self.size -= size
        to.count += count
        to.size += size

    def first_names(self, limit: int) -> list[str]:
        """Return the names with the lowest numbers first."""
        found: list[str] = []
        if self.count:
            for key in sorted(key for shard in self._shards for key in shard):
                names = self._shards[key % _SHARDS][key]
                found += [names] if isinstance(names, str) else sorted(names, key=order_of)
                if len(found) >= limit:
                    break
        return found[:limit]

    def parts(self) -> list[set[str]]:
        return [names for shard in self._shards for names in shard.values() if isinstance(names, set)]


def _range_of(name: str) -> _Range:
    names = _Range()
    names.add(name)
    names.size = len(name.encode())
    return names


class ManyNames(Collection[str]):
    """A set of names, of which those with a number below `first` went, or never came: they are hidden.

    Hidden names are those of znodes that are yet to be taken out of memory. It never turns back into a plain set; the
    last name to go takes it along, unless it was truncated.
    """

    __slots__ = (
        "_asked",
        "_asked_number",
        "_hidden",
        "_others",
        "_others_count",
        "_visible",
        "first",
        "name_bytes",
    )

    def __init__(self, names: Iterable[str] = (), first: int = 0) -> None:
        self._visible = _Ranges()
        self._hidden: _Ranges | None = None
        # A name is looked for before it is added: its number is found once.
        self._asked: str | None = None
        self._asked_number = -1
        self._others: list[set[str]] = [set() for _ in range(_SHARDS)]
        """Names without a number."""
        self._others_count = 0
        self.first = first
        self.name_bytes = 0
        """UTF-8 bytes of all names that are to be seen, so that the size of a listing is known beforehand."""
        self.extend(names)

    def __len__(self) -> int:
        return self._visible.count + self._others_count

    def __contains__(self, name: object) -> bool:
        """Return whether no child can be created under this name: there is one, or there was (see `is_gone`)."""
        assert isinstance(name, str)
        self._asked, self._asked_number = name, (number := number_of(name))
        if number < 0:
            return name in self._others[_shard_of(name)]
        return number < self.first or self._visible.has(number, name)

    def __iter__(self) -> Iterator[str]:
        yield from self._visible
        for shard in self._others:
            yield from shard

    @property
    def hidden_count(self) -> int:
        """The number of names that are hidden and not removed yet."""
        return 0 if self._hidden is None else self._hidden.count

    def is_gone(self, name: str) -> bool:
        """Return whether the name is below `first`."""
        return 0 <= number_of(name) < self.first

    def add(self, name: str) -> None:
        """Add a name that is not there yet: hidden at once if it is below `first`."""
        number = self._asked_number if name is self._asked else number_of(name)
        size = len(name) if name.isascii() else len(name.encode())
        if number < 0:
            self._others[_shard_of(name)].add(name)
            self._others_count += 1
        elif number < self.first:
            if self._hidden is None:
                self._hidden = _Ranges()
            self._hidden.add(number, name, size)
            return
        else:
            self._visible.add(number, name, size)
        self.name_bytes += size

    def extend(self, names: Iterable[str]) -> None:
        """Add names that are not there yet."""
        others, count, size = self._others, 0, 0
        for name in names:
            if len(name) >= NUMBER_DIGITS and (number := number_of(name)) >= 0:
                self._asked, self._asked_number = name, number
                self.add(name)
            else:
                encoded = name.encode()
                others[crc32(encoded) % _SHARDS].add(name)
                count += 1
                size += len(encoded)
        self._others_count += count
        self.name_bytes += size

    def add_numbered(self, number: int, name: str) -> bool:
        """Add an ASCII name that ends in this number; return False if no child can be created under it.

        It is what `name in` and `add` do.
        """
        size = len(name)
        if number < self.first or not self._visible.add_new(number, name, size):
            return False
        self.name_bytes += size
        return True

    def remove(self, name: str) -> None:
        """Remove a name that is there, or hidden."""
        number = number_of(name)
        size = len(name) if name.isascii() else len(name.encode())
        if number < 0:
            self._others[_shard_of(name)].remove(name)
            self._others_count -= 1
        elif number < self.first:
            assert self._hidden is not None, f"{name} is not there"
            self._hidden.remove(number, name, size)
            return
        else:
            self._visible.remove(number, name, size)
        self.name_bytes -= size

    def truncate(self, first: int) -> int:
        """Hide all names with numbers below `first`, which does not sink; how many. A step per 1,024 numbers."""
        assert first >= self.first, f"truncated at {self.first}, now at {first}"
        if self._hidden is None:
            self._hidden = _Ranges()
        before = self._visible.count
        self.name_bytes -= self._visible.size
        self._visible.move_below(self.first, first, self._hidden)
        self.name_bytes += self._visible.size
        self.first = first
        return before - self._visible.count

    def hidden_names(self, limit: int) -> list[str]:
        """Return the first up to `limit` of those that are hidden, by `order_of`."""
        return [] if self._hidden is None else self._hidden.first_names(limit)

    def first_names(self, limit: int) -> list[str]:
        """Return the first up to `limit` of those that are to be seen, by `order_of`."""
        found = self._visible.first_names(limit)
        for shard in self._others:
            if len(found) >= limit:
                break
            found += sorted(shard)
        return found[:limit]

    def parts(self) -> list[set[str]]:
        """Return the sets inside, for whoever takes it apart."""
        hidden = [] if self._hidden is None else self._hidden.parts()
        return [*self._others, *self._visible.parts(), *hidden]


Names = set[str] | ManyNames
