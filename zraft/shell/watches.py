"""The watches of this session, so that they can be set again after a reconnect, and removed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from attrs import frozen

from zraft_core.wire.client import WatchEvent
from zraft_core.wire.client_requests import (
    AddWatch,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    Request,
    RestoreWatches,
)
from zraft_core.wire.events import EventType
from zraft_core.znodes.events import AddWatchMode, WatcherType

RESTORE_BYTES_MAX: Final = 131_072
"""The most bytes of paths in one request that sets watches again: a server need not accept a larger one."""


class Notice(IntEnum):
    """Events in ZooKeeper's words; no server sends those above 4."""

    NodeCreated = 1
    NodeDeleted = 2
    NodeDataChanged = 3
    NodeChildrenChanged = 4
    DataWatchRemoved = 5
    ChildWatchRemoved = 6
    PersistentWatchRemoved = 7


_FIELDS: Final = ("data", "exist", "child", "persistent", "recursive")
_REMOVED_BY: Final = {
    WatcherType.DATA: ("data", "exist"),
    WatcherType.CHILDREN: ("child",),
    WatcherType.PERSISTENT: ("persistent",),
    WatcherType.PERSISTENT_RECURSIVE: ("recursive",),
    WatcherType.ANY: _FIELDS,
}
_NOTICES: Final = {
    "data": Notice.DataWatchRemoved,
    "exist": Notice.DataWatchRemoved,
    "child": Notice.ChildWatchRemoved,
    "persistent": Notice.PersistentWatchRemoved,
    "recursive": Notice.PersistentWatchRemoved,
}


@frozen
class WatchNotice:
    """A watch fired, or is gone. `zxid` is 0 if no change of the tree was the reason."""

    notice: Notice
    path: str
    zxid: int = 0


class Watches:
    """Paths by kind of watch; as many as the session has set, and the server keeps as many."""

    def __init__(self) -> None:
        self._paths: dict[str, set[str]] = {name: set() for name in _FIELDS}

    def __len__(self) -> int:
        return sum(map(len, self._paths.values()))

    def clear(self) -> None:
        """Forget all watches."""
        for paths in self._paths.values():
            paths.clear()

    def asked(self, request: Request[Any], found: bool) -> None:
        """Note the watch that an answered request has set; `found` says whether the znode exists."""
        match request:
            case Exists(path, True):
                self._paths["data" if found else "exist"].add(path)
            case GetData(path, True) if found:
                self._paths["data"].add(path)
            case GetChildren(path, True) | GetChildren2(path, True) if found:
                self._paths["child"].add(path)
            case AddWatch(path, mode) if found:
                self._paths["persistent" if mode == AddWatchMode.PERSISTENT else "recursive"].add(path)

    def fired(self, event: WatchEvent) -> WatchNotice:
        """Forget the one-shot watches that an event has used up."""
        used = {
            EventType.NODE_CREATED: ("data", "exist"),
            EventType.NODE_DATA_CHANGED: ("data", "exist"),
            EventType.NODE_DELETED: ("data", "exist", "child"),
            EventType.NODE_CHILDREN_CHANGED: ("child",),
        }[event.type]
        for name in used:
            self._paths[name].discard(event.path)
        return WatchNotice(Notice(event.type), event.path, event.zxid)

    def has(self, path: str, type_: WatcherType) -> bool:
        """Return whether `remove` would find any."""
        return any(path in self._paths[name] for name in _REMOVED_BY[type_])

    def remove(self, path: str, type_: WatcherType) -> list[WatchNotice]:
        """Forget watches of a path; return what to tell about each."""
        gone = [name for name in _REMOVED_BY[type_] if path in self._paths[name]]
        for name in gone:
            self._paths[name].discard(path)
        return [WatchNotice(_NOTICES[name], path) for name in gone]

    def restore(self, zxid: int) -> Iterator[RestoreWatches]:
        """Return what sets all of them again on a new connection; `zxid` is the last one seen."""
        batch: dict[str, list[str]] = {name: [] for name in _FIELDS}
        size = 0
        for name in _FIELDS:
            for path in sorted(self._paths[name]):
                if size and size + len(path.encode()) > RESTORE_BYTES_MAX:
                    yield _restoring(zxid, batch)
                    batch = {one: [] for one in _FIELDS}
                    size = 0
                batch[name].append(path)
                size += len(path.encode()) + 4
        if size:
            yield _restoring(zxid, batch)


def _restoring(zxid: int, batch: dict[str, list[str]]) -> RestoreWatches:
    return RestoreWatches(zxid, **{name: tuple(paths) for name, paths in batch.items()})
