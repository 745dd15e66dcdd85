"""One-shot watches of one server's connections: who is to be told what. Not replicated, no part of the state.

Source: ZooKeeper's `WatchManager` and `DataTree.setWatches`. A watcher is any hashable object, one per
connection. Limits are ZooKeeper's: none but the client's own requests; `count_of` lets the front end set one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from zraft.tree.events import NODE_CHILDREN_CHANGED, NODE_CREATED, NODE_DATA_CHANGED, NODE_DELETED
from zraft.tree.machine import Machine

# Dicts serve as sets that remember the order of registration.
W = TypeVar("W", bound=Hashable)

_Table = dict[str, dict[W, None]]


class WatchTable(Generic[W]):
    """Data watches (getData, exists) and child watches (getChildren) by path, and by watcher."""

    __slots__ = ("_by_watcher", "_child", "_data")

    def __init__(self) -> None:
        self._data: _Table[W] = {}
        self._child: _Table[W] = {}
        self._by_watcher: dict[W, tuple[set[str], set[str]]] = {}

    def __bool__(self) -> bool:
        """Whether anybody watches anything; most servers most of the time need not look further."""
        return bool(self._by_watcher)

    def add_data(self, path: str, watcher: W) -> None:
        """Tell `watcher` once of the next creation, deletion or change of data at `path`."""
        self._data.setdefault(path, {})[watcher] = None
        self._paths_of(watcher)[0].add(path)

    def add_child(self, path: str, watcher: W) -> None:
        """Tell `watcher` once when `path` next gains or loses a child, or is deleted."""
        self._child.setdefault(path, {})[watcher] = None
        self._paths_of(watcher)[1].add(path)

    def has_data(self, path: str, watcher: W) -> bool:
        return watcher in self._data.get(path, ())

    def has_child(self, path: str, watcher: W) -> bool:
        return watcher in self._child.get(path, ())

    def trigger(self, event_type: int, path: str) -> list[W]:
        """Whom this event concerns, each once, in order of registration; their watches are consumed.

        The caller drops those who lack READ under the event's ACL: their watches are spent all the same.
        """
        if event_type == NODE_CHILDREN_CHANGED:
            return self._consume(self._child, 1, path)
        told = self._consume(self._data, 0, path)
        if event_type == NODE_DELETED:
            # Who watches the data too hears of the deletion once, but both watches are gone.
            told = list(dict.fromkeys(told + self._consume(self._child, 1, path)))
        return told

    def remove_watcher(self, watcher: W) -> None:
        """Forget a connection, in time proportional to its own watches."""
        data, child = self._by_watcher.pop(watcher, ((), ()))
        for table, paths in ((self._data, data), (self._child, child)):
            for path in paths:
                watchers = table[path]
                del watchers[watcher]
                if not watchers:
                    del table[path]

    def remove_data(self, path: str, watcher: W) -> bool:
        """Forget one data watch; False if there is none."""
        return self._remove(self._data, 0, path, watcher)

    def remove_child(self, path: str, watcher: W) -> bool:
        """Forget one child watch; False if there is none."""
        return self._remove(self._child, 1, path, watcher)

    def count_of(self, watcher: W) -> int:
        """How many watches one connection has."""
        data, child = self._by_watcher.get(watcher, ((), ()))
        return len(data) + len(child)

    def watch_count(self) -> int:
        return sum(map(len, self._data.values())) + sum(map(len, self._child.values()))

    def path_count(self) -> int:
        return len(self._data.keys() | self._child.keys())

    def watcher_count(self) -> int:
        return len(self._by_watcher)

    def _paths_of(self, watcher: W) -> tuple[set[str], set[str]]:
        paths = self._by_watcher.get(watcher)
        if paths is None:
            paths = self._by_watcher[watcher] = (set(), set())
        return paths

    def _consume(self, table: _Table[W], kind: int, path: str) -> list[W]:
        watchers = table.pop(path, None)
        if watchers is None:
            return []
        for watcher in watchers:
            self._forget(kind, path, watcher)
        return list(watchers)

    def _remove(self, table: _Table[W], kind: int, path: str, watcher: W) -> bool:
        watchers = table.get(path)
        if watchers is None or watcher not in watchers:
            return False
        del watchers[watcher]
        if not watchers:
            del table[path]
        self._forget(kind, path, watcher)
        return True

    def _forget(self, kind: int, path: str, watcher: W) -> None:
        paths = self._by_watcher[watcher]
        paths[kind].remove(path)
        if not paths[0] and not paths[1]:
            del self._by_watcher[watcher]


def reregister(
    machine: Machine,
    table: WatchTable[W],
    watcher: W,
    relative_zxid: int,
    data: Iterable[str],
    exist: Iterable[str],
    child: Iterable[str],
) -> list[tuple[int, str]]:
    """setWatches of a client that reconnected: (event type, path) of what it missed; the rest is registered.

    `relative_zxid` is the last zxid the client has seen. Missed by design, as in ZooKeeper: a creation and
    deletion in between; a deletion and creation in between shows as a change of data.
    """
    missed: list[tuple[int, str]] = []
    for path in data:
        node = machine.nodes.get(path)
        if node is None:
            missed.append((NODE_DELETED, path))
        elif node.mzxid > relative_zxid:
            missed.append((NODE_DATA_CHANGED, path))
        else:
            table.add_data(path, watcher)
    for path in exist:
        if path in machine.nodes:
            missed.append((NODE_CREATED, path))
        else:
            table.add_data(path, watcher)
    for path in child:
        node = machine.nodes.get(path)
        if node is None:
            missed.append((NODE_DELETED, path))
        elif node.pzxid > relative_zxid:
            missed.append((NODE_CHILDREN_CHANGED, path))
        else:
            table.add_child(path, watcher)
    return missed
