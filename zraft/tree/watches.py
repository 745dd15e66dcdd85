"""Watches of one server's connections: who is to be told what. Not replicated, no part of the state.

Source: ZooKeeper's `WatchManager` and `DataTree`. A watcher is any hashable object, one per connection. A path and
a watcher may be tied in any mix of the three modes; whatever the mix, one change is told once. Limits are ZooKeeper's:
none but the client's own requests; `count_of` lets the front end set one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

from zraft.tree.machine import Machine
from zraft.tree.node import Znode
from zraft.tree.paths import ROOT
from zraft_core.znodes.acl import READ, Ids, permits
from zraft_core.znodes.events import (
    NODE_CHILDREN_CHANGED,
    NODE_CREATED,
    NODE_DATA_CHANGED,
    NODE_DELETED,
    AddWatchMode,
    WatcherType,
)

W = TypeVar("W", bound=Hashable)

_ONE_SHOT: Final = 1
_PERSISTENT: Final = 2
_RECURSIVE: Final = 4
_EVERY: Final = _ONE_SHOT | _PERSISTENT | _RECURSIVE

REMOVED_AT_ONCE: Final = 100
"""The most watches of one watcher that are removed while others wait: many watchers may go in the same moment."""

SWEPT_PER_CALL: Final = 1_000
"""About a millisecond."""

# Dicts serve as sets that remember the order of registration; the value is a mix of the modes above.
_Table = dict[str, dict[W, int]]


_DATA_MODES: Final = {
    WatcherType.CHILDREN: 0,
    WatcherType.DATA: _ONE_SHOT,
    WatcherType.ANY: _EVERY,
    WatcherType.PERSISTENT: _PERSISTENT,
    WatcherType.PERSISTENT_RECURSIVE: _RECURSIVE,
}
_CHILD_MODES: Final = {
    WatcherType.CHILDREN: _ONE_SHOT,
    WatcherType.DATA: 0,
    WatcherType.ANY: _EVERY,
    WatcherType.PERSISTENT: _PERSISTENT,
    WatcherType.PERSISTENT_RECURSIVE: 0,
}


class WatchTable(Generic[W]):
    """Data watches (getData, exists) and child watches (getChildren) by path, and by watcher.

    A persistent watch stands in both tables, a recursive one in the data table alone: it is told of every znode
    at or below its path, and never of lists of children.

    Attributes:
        gone: watchers that were removed, and the paths in whose rows they still stand. `sweep` takes them out.
        paths: those whose data somebody watches, and those whose children; only to be looked into. What happens below a
            path that somebody watches recursively is not found in them.
    """

    __slots__ = ("_by_watcher", "_child", "_data", "_lasting", "_on_first", "_recursive", "gone", "paths")

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        """Begin without watches.

        `on_first` is called when somebody watches and nobody did, or watches recursively and nobody did.
        """
        self._on_first = on_first
        self._data: _Table[W] = {}
        self._child: _Table[W] = {}
        self.paths: Final = (self._data.keys(), self._child.keys())
        self._by_watcher: dict[W, tuple[set[str], set[str]]] = {}
        self._lasting = 0
        """Entries with a mode that a change does not consume; while there is none, whole rows are dropped."""
        self._recursive = 0
        """Entries with the recursive mode; while there is none, nobody looks at the ancestors of a path."""
        self.gone: dict[W, tuple[set[str], set[str]]] = {}

    def __bool__(self) -> bool:
        """Return whether anybody watches anything; most servers most of the time need not look further."""
        return bool(self._by_watcher)

    @property
    def is_recursive(self) -> bool:
        """True if somebody watches all that is below some path."""
        return self._recursive > 0

    @property
    def lasting_count(self) -> int:
        """Number of watches that a change does not consume; one that is persistent counts for data and for children.

        Those of watchers that are gone count until they are swept.
        """
        return self._lasting

    # -- registering

    def add_data(self, path: str, watcher: W) -> None:
        """Tell `watcher` once of the next creation, deletion or change of data at `path`."""
        row = self._data.setdefault(path, {})
        row[watcher] = row.get(watcher, 0) | _ONE_SHOT
        self._paths_of(watcher)[0].add(path)

    def add_child(self, path: str, watcher: W) -> None:
        """Tell `watcher` once when `path` next gains or loses a child, or is deleted."""
        row = self._child.setdefault(path, {})
        row[watcher] = row.get(watcher, 0) | _ONE_SHOT
        self._paths_of(watcher)[1].add(path)

    def add_lasting(self, path: str, watcher: W, mode: AddWatchMode) -> None:
        """Tell `watcher` from now on, until it is removed or gone."""
        if mode is AddWatchMode.PERSISTENT_RECURSIVE:
            if not self._recursive:
                self._on_first()
            self._add(self._data, 0, path, watcher, _RECURSIVE)
        else:
            self._add(self._data, 0, path, watcher, _PERSISTENT)
            self._add(self._child, 1, path, watcher, _PERSISTENT)

    def _add(self, table: _Table[W], kind: int, path: str, watcher: W, mode: int) -> None:
        row = table.setdefault(path, {})
        before = row.get(watcher, 0)
        self._recount(before, before | mode)
        row[watcher] = before | mode
        self._paths_of(watcher)[kind].add(path)

    def _recount(self, before: int, after: int) -> None:
        """Count again when an entry changes its modes (0: there is none)."""
        self._lasting += (after > _ONE_SHOT) - (before > _ONE_SHOT)
        self._recursive += (after >= _RECURSIVE) - (before >= _RECURSIVE)

    # -- looking

    def has(self, path: str, watcher: W, kind: WatcherType) -> bool:
        """Return whether `watcher` watches `path` in this way."""
        data = self._data.get(path, {}).get(watcher, 0) & _DATA_MODES[kind]
        child = self._child.get(path, {}).get(watcher, 0) & _CHILD_MODES[kind]
        return bool(data | child)

    def count_of(self, watcher: W) -> int:
        """Return the number of a watcher's watches."""
        data, child = self._by_watcher.get(watcher, ((), ()))
        return len(data) + len(child)

    def watch_count(self) -> int:
        """Return the number of watches.

        It takes time in proportion to the watchers, of which there are far fewer than watches.
        """
        return sum([len(data) + len(child) for data, child in self._by_watcher.values()])

    def path_count(self) -> int:
        """Return the number of watched paths, with those of watchers that are gone and not swept.

        It takes time in proportion to the paths of the kind that is watched less.
        """
        fewer, more = sorted((self._data, self._child), key=len)
        return len(fewer) + len(more) - sum(map(more.__contains__, fewer))

    def by_watcher(self) -> Iterator[tuple[W, Iterable[str]]]:
        """Yield every watcher with the paths it watches in any way; not to be changed meanwhile."""
        for watcher, (data, child) in self._by_watcher.items():
            yield watcher, chain(data, (path for path in child if path not in data))

    def by_path(self) -> Iterator[tuple[str, Iterable[W]]]:
        """Yield every watched path with its watchers; not to be changed meanwhile."""
        for path, watchers in self._data.items():
            yield from self._row(path, dict.fromkeys(chain(watchers, self._child.get(path, ()))))
        for path, watchers in self._child.items():
            if path not in self._data:
                yield from self._row(path, watchers)

    def _row(self, path: str, watchers: Iterable[W]) -> Iterator[tuple[str, Iterable[W]]]:
        there = [watcher for watcher in watchers if watcher not in self.gone]
        if there:
            yield path, there

    def watcher_count(self) -> int:
        """Return the number of watchers."""
        return len(self._by_watcher)

    # -- telling

    def trigger(self, event_type: int, path: str) -> list[W]:
        """Return whom this event concerns, each once; watches that are told once are consumed.

        The caller drops those who lack READ under the event's ACL: their watches are spent all the same.
        """
        told = self._told(event_type, path)
        return [one for one in told if one not in self.gone] if self.gone else told

    def _told(self, event_type: int, path: str) -> list[W]:
        if event_type == NODE_CHILDREN_CHANGED:
            return self._consume(self._child, 1, path)
        told = self._consume(self._data, 0, path)
        if event_type == NODE_DELETED:
            # A watcher of the data, too, hears of the deletion once, but both watches are gone.
            told = list(dict.fromkeys(told + self._consume(self._child, 1, path)))
        if self._recursive:
            told = list(dict.fromkeys(told + self._recursive_above(path)))
        return told

    def _consume(self, table: _Table[W], kind: int, path: str) -> list[W]:
        row = table.pop(path, None)
        if row is None:
            return []
        told = list(row)
        if self._lasting:
            if min(row.values()) > _ONE_SHOT and not any(mode & _ONE_SHOT for mode in row.values()):
                table[path] = row
                return told
            kept = {watcher: mode & ~_ONE_SHOT for watcher, mode in row.items() if mode > _ONE_SHOT}
            if kept:
                table[path] = kept
                for watcher in kept:
                    del row[watcher]
        for watcher in row:
            self._forget(kind, path, watcher)
        return told

    def _recursive_above(self, path: str) -> list[W]:
        """Return the recursive watchers of the ancestors of `path`, nearest first."""
        found: list[W] = []
        while path != ROOT:
            path = path[: path.rfind("/")] or ROOT
            row = self._data.get(path)
            if row:
                found += [watcher for watcher, mode in row.items() if mode & _RECURSIVE]
        return found

    # -- removing

    def remove(self, path: str, watcher: W, kind: WatcherType) -> bool:
        """Forget what `kind` says; False if there was nothing of it."""
        data = self._take(self._data, 0, path, watcher, _DATA_MODES[kind])
        child = self._take(self._child, 1, path, watcher, _CHILD_MODES[kind])
        return data or child

    def remove_watcher(self, watcher: W) -> None:
        """Forget a connection: it is told of nothing any more.

        If it has more than `REMOVED_AT_ONCE` watches, it must not come back: `sweep` gives their memory back.
        """
        watches = self._by_watcher.pop(watcher, None)
        if watches is None:
            return
        data, child = watches
        if len(data) + len(child) > REMOVED_AT_ONCE:
            self.gone[watcher] = data, child
        else:
            self._sweep(watcher, (data, child), REMOVED_AT_ONCE)

    def sweep(self) -> None:
        """Give back the memory of some watches whose watchers are gone; to be called as long as there are any."""
        watcher = next(iter(self.gone))
        if not self._sweep(watcher, self.gone[watcher], SWEPT_PER_CALL):
            del self.gone[watcher]

    def _sweep(self, watcher: W, paths: tuple[set[str], set[str]], most: int) -> bool:
        """Take a watcher out of at most so many rows; return whether others are left."""
        for table, left in zip((self._data, self._child), paths, strict=True):
            while left and most:
                most -= 1
                path = left.pop()
                row = table.get(path)
                if row is not None and watcher in row:  # a change may have consumed it since
                    self._recount(row.pop(watcher), 0)
                    if not row:
                        del table[path]
        return bool(paths[0] or paths[1])

    def _take(self, table: _Table[W], kind: int, path: str, watcher: W, modes: int) -> bool:
        row = table.get(path, {})
        before = row.get(watcher, 0)
        if not before & modes:
            return False
        after = before & ~modes
        self._recount(before, after)
        if after:
            row[watcher] = after
            return True
        del row[watcher]
        if not row:
            del table[path]
        self._forget(kind, path, watcher)
        return True

    def _paths_of(self, watcher: W) -> tuple[set[str], set[str]]:
        paths = self._by_watcher.get(watcher)
        if paths is None:
            if not self._by_watcher:
                self._on_first()
            paths = self._by_watcher[watcher] = (set(), set())
        return paths

    def _forget(self, kind: int, path: str, watcher: W) -> None:
        paths = self._by_watcher.get(watcher)
        if paths is None:
            return  # it is gone
        paths[kind].remove(path)
        if not paths[0] and not paths[1]:
            del self._by_watcher[watcher]


def reregister(
    machine: Machine,
    table: WatchTable[W],
    watcher: W,
    ids: Ids,
    relative_zxid: int,
    data: Iterable[str],
    exist: Iterable[str],
    child: Iterable[str],
) -> list[tuple[int, str]]:
    """Return (event type, path) of what a client that reconnected missed (setWatches); the rest is registered.

    `relative_zxid` is the last zxid the client has seen. Missed by design, as in ZooKeeper: a creation and
    deletion in between; a deletion and creation in between shows as a change of data. Who lacks READ on a znode is
    not told of it; the watch is spent all the same.
    """
    missed: list[tuple[int, str]] = []

    def tell(event_type: int, path: str, node: Znode | None) -> None:
        if node is None or permits(node.acl, READ, ids):
            missed.append((event_type, path))

    for path in data:
        node = machine.find(path)
        if node is None:
            tell(NODE_DELETED, path, None)
        elif node.mzxid > relative_zxid:
            tell(NODE_DATA_CHANGED, path, node)
        else:
            table.add_data(path, watcher)
    for path in exist:
        node = machine.find(path)
        if node is not None:
            tell(NODE_CREATED, path, node)
        else:
            table.add_data(path, watcher)
    for path in child:
        node = machine.find(path)
        if node is None:
            tell(NODE_DELETED, path, None)
        elif node.pzxid > relative_zxid:
            tell(NODE_CHILDREN_CHANGED, path, node)
        else:
            table.add_child(path, watcher)
    return missed
