"""The children of a znode, by their paths: in a dict while there are few, in many small ones when many, or once truncated.

The paths are the very strings by which `NodeTable` finds the znodes, so that a child costs no string of its own, and the
dicts have no values: a set of the same strings would take twice as much memory. Whoever lists them cuts the names off.

One dict of a million paths grows by copying itself, which would stall apply for 40 ms; a list of them is too long for a
reply, which must be known without building it; and the oldest of them must be able to go at once (D-20).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final
from zlib import crc32

SPLIT_AT: Final = 8_192
"""Children beyond which a plain dict is replaced by `ManyChildren`, once: about 4 ms."""

NUMBER_DIGITS: Final = 10

_SHARDS: Final = 256
_RANGE_SHIFT: Final = 10
"""Numbered children are kept by 1,024 numbers, so that a million of them are hidden in a thousand steps of 0.1 us."""
_AFTER_ALL_NUMBERS: Final = 10**NUMBER_DIGITS


def number_of(path: str) -> int:
    """Return the sequence number at the end of a path or name, -1 if there is none.

    A shorter name has none: with it, the last ten characters of its path have the slash.
    """
    digits = path[-NUMBER_DIGITS:]
    if len(digits) == NUMBER_DIGITS and digits.isdigit() and digits.isascii():
        return int(digits)
    return -1


def order_of(path: str) -> tuple[int, int, str]:
    """Return the order in which the children of a znode are taken apart: by number, then, the same everywhere.

    It is one that `ManyChildren` can follow soon.
    """
    number = number_of(path)
    return (number, 0, path) if number >= 0 else (_AFTER_ALL_NUMBERS, _shard_of(path), path)


def in_order(children: Children, limit: int) -> list[str]:
    """Return the first up to `limit` children, by `order_of`: the same whichever of the two they are kept in."""
    if isinstance(children, ManyChildren):
        return children.first_paths(limit)
    return sorted(children, key=order_of)[:limit]


def names_of(path: str, children: Children | None) -> list[str]:
    """Return the names of the children of the znode at `path`, in no order: 0.1 us each."""
    cut = len(path) + 1 if path != "/" else 1
    return [child[cut:] for child in children or ()]


def with_child(children: Children | None, path: str) -> Children:
    """Add a child; return what its parent has to keep from now on, the same object most of the time."""
    if children is None:
        return {path: None}
    if isinstance(children, ManyChildren):
        children.add(path)
        return children
    children[path] = None
    return children if len(children) != SPLIT_AT else ManyChildren(children)


def without_child(children: Children | None, path: str) -> Children | None:
    """Remove a child that is there; return what its parent has to keep: None without the last, unless it was truncated."""
    assert children is not None, f"the parent of {path} does not know it"
    if isinstance(children, ManyChildren):
        children.remove(path)
        return children if children or children.first else None
    del children[path]
    return children or None


def _shard_of(path: str) -> int:
    return crc32(path[path.rfind("/") + 1 :].encode()) % _SHARDS


def _size_of(path: str) -> int:
    return len(path) if path.isascii() else len(path.encode())


class _Range(dict[str, None]):
    """Paths whose numbers differ in the last ten bits only; `size` is the UTF-8 bytes of all of them."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        super().__init__()
        self.size = 0


class _Ranges:
    """Numbered paths by ranges of numbers. Most ranges of a log are full; where numbers are far apart, one path is cheap."""

    __slots__ = ("_shards", "count", "size")

    def __init__(self) -> None:
        # One dict of many ranges would stall when it grows.
        self._shards: list[dict[int, _Range | str]] = [{} for _ in range(_SHARDS)]
        self.count = 0
        self.size = 0

    def __iter__(self) -> Iterator[str]:
        for shard in self._shards:
            for paths in shard.values():
                if isinstance(paths, str):
                    yield paths
                else:
                    yield from paths

    def has(self, number: int, path: str) -> bool:
        key = number >> _RANGE_SHIFT
        paths = self._shards[key % _SHARDS].get(key)
        return path == paths if paths is None or paths.__class__ is str else path in paths

    def add(self, number: int, path: str, size: int) -> None:
        key = number >> _RANGE_SHIFT
        shard = self._shards[key % _SHARDS]
        self.count += 1
        self.size += size
        paths = shard.get(key)
        if paths is None:
            shard[key] = path
            return
        if isinstance(paths, str):
            shard[key] = paths = _range_of(paths)
        paths[path] = None
        paths.size += size

    def add_new(self, number: int, path: str, size: int) -> bool:
        """Add a path unless it is there, which returns False."""
        key = number >> _RANGE_SHIFT
        shard = self._shards[key % _SHARDS]
        if key not in shard:
            shard[key] = path
        else:
            paths = shard[key]
            if paths.__class__ is not _Range:
                assert isinstance(paths, str)
                if paths == path:
                    return False
                shard[key] = paths = _range_of(paths)
            if path in paths:
                return False
            paths[path] = None
            paths.size += size
        self.count += 1
        self.size += size
        return True

    def remove(self, number: int, path: str, size: int) -> None:
        key = number >> _RANGE_SHIFT
        shard = self._shards[key % _SHARDS]
        self.count -= 1
        self.size -= size
        paths = shard[key]
        if isinstance(paths, str):
            assert paths == path, f"{path} is not there"
            del shard[key]
            return
        del paths[path]
        paths.size -= size
        if not paths:
            del shard[key]

    def move_below(self, begin: int, end: int, to: _Ranges) -> None:
        """Move paths with numbers from `begin` to before `end`: a step per 1,024 numbers.

        There are none below `begin`.
        """
        last = end >> _RANGE_SHIFT
        for key in range(begin >> _RANGE_SHIFT, last):
            paths = self._shards[key % _SHARDS].pop(key, None)
            if paths is not None:
                self._moved(key, paths, to)
        paths = self._shards[last % _SHARDS].get(last)
        for path in [paths] if isinstance(paths, str) else list(paths or ()):
            number = number_of(path)
            if number < end:
                size = _size_of(path)
                self.remove(number, path, size)
                to.add(number, path, size)

    def _moved(self, key: int, paths: _Range | str, to: _Ranges) -> None:
        shard = to._shards[key % _SHARDS]
        if key in shard:  # the rest of a range whose beginning was moved before
            for path in [paths] if isinstance(paths, str) else paths:
                size = _size_of(path)
                self.count -= 1
                self.size -= size
                to.add(number_of(path), path, size)
            return
        shard[key] = paths
        count, size = (1, _size_of(paths)) if isinstance(paths, str) else (len(paths), paths.size)
        self.count -= count
        self.size -= size
        to.count += count
        to.size += size

    def first_paths(self, limit: int) -> list[str]:
        """Return the paths with the lowest numbers first."""
        found: list[str] = []
        if self.count:
            for key in sorted(key for shard in self._shards for key in shard):
                paths = self._shards[key % _SHARDS][key]
                found += [paths] if isinstance(paths, str) else sorted(paths, key=order_of)
                if len(found) >= limit:
                    break
        return found[:limit]

    def parts(self) -> list[dict[str, None]]:
        return [paths for shard in self._shards for paths in shard.values() if isinstance(paths, _Range)]


def _range_of(path: str) -> _Range:
    paths = _Range()
    paths[path] = None
    paths.size = _size_of(path)
    return paths


class ManyChildren(Collection[str]):
    """Many children, of which those with a number below `first` went, or never came: they are hidden.

    Hidden are znodes that are yet to be taken out of memory. It never turns back into a plain dict; the last child to go
    takes it along, unless it was truncated.
    """

    __slots__ = (
        "_asked",
        "_asked_number",
        "_hidden",
        "_others",
        "_others_count",
        "_visible",
        "first",
        "path_bytes",
    )

    def __init__(self, paths: Iterable[str] = (), first: int = 0) -> None:
        self._visible = _Ranges()
        self._hidden: _Ranges | None = None
        # A path is looked for before it is added: its number is found once.
        self._asked: str | None = None
        self._asked_number = -1
        self._others: list[dict[str, None]] = [{} for _ in range(_SHARDS)]
        """Children without a number."""
        self._others_count = 0
        self.first = first
        self.path_bytes = 0
        """UTF-8 bytes of all paths that are to be seen, so that the size of a listing is known beforehand."""
        self.extend(paths)

    def __len__(self) -> int:
        return self._visible.count + self._others_count

    def __contains__(self, path: object) -> bool:
        """Return whether no child can be created under this path: there is one, or there was (see `is_gone`)."""
        assert isinstance(path, str)
        self._asked, self._asked_number = path, (number := number_of(path))
        if number < 0:
            return path in self._others[_shard_of(path)]
        return number < self.first or self._visible.has(number, path)

    def __iter__(self) -> Iterator[str]:
        yield from self._visible
        for shard in self._others:
            yield from shard

    @property
    def hidden_count(self) -> int:
        """The number of paths that are hidden and not removed yet."""
        return 0 if self._hidden is None else self._hidden.count

    def is_gone(self, path: str) -> bool:
        """Return whether the path is below `first`."""
        return 0 <= number_of(path) < self.first

    def add(self, path: str) -> None:
        """Add a path that is not there yet: hidden at once if it is below `first`."""
        number = self._asked_number if path is self._asked else number_of(path)
        size = _size_of(path)
        if number < 0:
            self._others[_shard_of(path)][path] = None
            self._others_count += 1
        elif number < self.first:
            if self._hidden is None:
                self._hidden = _Ranges()
            self._hidden.add(number, path, size)
            return
        else:
            self._visible.add(number, path, size)
        self.path_bytes += size

    def extend(self, paths: Iterable[str]) -> None:
        """Add paths that are not there yet."""
        others, count, size = self._others, 0, 0
        cut = 0  # where the names of all of them begin
        for path in paths:
            if path[-NUMBER_DIGITS:].isdigit() and (number := number_of(path)) >= 0:
                self._asked, self._asked_number = path, number
                self.add(path)
            else:
                cut = cut or path.rfind("/") + 1
                others[crc32(path[cut:].encode()) % _SHARDS][path] = None
                count += 1
                # This is `_size_of`, which is asked a million times at a start.
                size += len(path) if path.isascii() else len(path.encode())
        self._others_count += count
        self.path_bytes += size

    def add_numbered(self, number: int, path: str) -> bool:
        """Add a path that ends in this number; return False if no child can be created under it.

        It is what `path in` and `add` do.
        """
        size = len(path) if path.isascii() else len(path.encode())  # `_size_of`, on the hot path
        if number < self.first or not self._visible.add_new(number, path, size):
            return False
        self.path_bytes += size
        return True

    def remove(self, path: str) -> None:
        """Remove a path that is there, or hidden."""
        number = number_of(path)
        size = _size_of(path)
        if number < 0:
            del self._others[_shard_of(path)][path]
            self._others_count -= 1
        elif number < self.first:
            assert self._hidden is not None, f"{path} is not there"
            self._hidden.remove(number, path, size)
            return
        else:
            self._visible.remove(number, path, size)
        self.path_bytes -= size

    def truncate(self, first: int) -> int:
        """Hide all paths with numbers below `first`, which does not sink; how many. A step per 1,024 numbers."""
        assert first >= self.first, f"truncated at {self.first}, now at {first}"
        if self._hidden is None:
            self._hidden = _Ranges()
        before = self._visible.count
        self.path_bytes -= self._visible.size
        self._visible.move_below(self.first, first, self._hidden)
        self.path_bytes += self._visible.size
        self.first = first
        return before - self._visible.count

    def hidden_paths(self, limit: int) -> list[str]:
        """Return the first up to `limit` of those that are hidden, by `order_of`."""
        return [] if self._hidden is None else self._hidden.first_paths(limit)

    def first_paths(self, limit: int) -> list[str]:
        """Return the first up to `limit` of those that are to be seen, by `order_of`."""
        found = self._visible.first_paths(limit)
        for shard in self._others:
            if len(found) >= limit:
                break
            found += sorted(shard)
        return found[:limit]

    def parts(self) -> list[dict[str, None]]:
        """Return the dicts inside, for whoever takes it apart."""
        hidden = [] if self._hidden is None else self._hidden.parts()
        return [*self._others, *self._visible.parts(), *hidden]


Children = dict[str, None] | ManyChildren
