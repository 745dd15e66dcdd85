"""What the client remembers of its watches is what the server has."""

from __future__ import annotations

from zraft.shell.watches import RESTORE_BYTES_MAX, Notice, Watches, WatchNotice
from zraft_core.wire.client import WatchEvent
from zraft_core.wire.client_requests import (
    AddWatch,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    RestoreWatches,
)
from zraft_core.wire.events import EventType
from zraft_core.znodes.events import AddWatchMode, WatcherType


def watching() -> Watches:
    watches = Watches()
    watches.asked(GetData("/d", watch=True), True)
    watches.asked(Exists("/e", watch=True), False)
    watches.asked(GetChildren("/c", watch=True), True)
    watches.asked(AddWatch("/p", AddWatchMode.PERSISTENT), True)
    watches.asked(AddWatch("/r", AddWatchMode.PERSISTENT_RECURSIVE), True)
    return watches


def test_only_what_was_asked_for_and_answered_is_watched() -> None:
    watches = Watches()
    for request in (GetData("/a"), Exists("/a"), GetChildren("/a"), GetChildren2("/a")):
        watches.asked(request, True)
    # Trap 7: of reads of a missing znode only exists sets a watch.
    for request in (GetData("/a", watch=True), GetChildren("/a", watch=True), GetChildren2("/a", watch=True)):
        watches.asked(request, False)
    assert len(watches) == 0
    assert list(watches.restore(1)) == []


def test_everything_is_set_again_with_the_last_zxid() -> None:
    expected = RestoreWatches(
        7, data=("/d",), exist=("/e",), child=("/c",), persistent=("/p",), recursive=("/r",)
    )
    assert list(watching().restore(7)) == [expected]


def test_an_event_uses_up_one_shot_watches_and_no_others() -> None:
    watches = watching()
    watches.asked(Exists("/d", watch=True), True)
    watches.asked(AddWatch("/d", AddWatchMode.PERSISTENT), True)
    assert watches.fired(WatchEvent(5, EventType.NODE_DATA_CHANGED, 3, "/d")) == WatchNotice(
        Notice.NodeDataChanged, "/d", 5
    )
    assert not watches.has("/d", WatcherType.DATA)
    assert watches.has("/d", WatcherType.PERSISTENT)
    watches.fired(WatchEvent(6, EventType.NODE_CREATED, 3, "/e"))
    watches.fired(WatchEvent(6, EventType.NODE_CHILDREN_CHANGED, 3, "/c"))
    watches.fired(WatchEvent(6, EventType.NODE_CREATED, 3, "/r/below"))
    assert list(watches.restore(7)) == [RestoreWatches(7, persistent=("/d", "/p"), recursive=("/r",))]


def test_a_deletion_uses_up_the_watch_on_children_too() -> None:
    watches = Watches()
    watches.asked(GetChildren2("/a", watch=True), True)
    watches.asked(GetData("/a", watch=True), True)
    watches.fired(WatchEvent(5, EventType.NODE_DELETED, 3, "/a"))
    assert len(watches) == 0


def test_removing_says_what_is_gone() -> None:
    watches = watching()
    watches.asked(AddWatch("/d", AddWatchMode.PERSISTENT), True)
    assert watches.remove("/d", WatcherType.CHILDREN) == []
    assert watches.remove("/d", WatcherType.DATA) == [WatchNotice(Notice.DataWatchRemoved, "/d")]
    assert watches.remove("/d", WatcherType.ANY) == [WatchNotice(Notice.PersistentWatchRemoved, "/d")]
    assert watches.remove("/c", WatcherType.ANY) == [WatchNotice(Notice.ChildWatchRemoved, "/c")]
    assert len(watches) == 3


def test_many_watches_are_set_again_in_requests_that_servers_take() -> None:
    watches = Watches()
    paths = [f"/{n:0>1000}" for n in range(1000)]
    for path in paths:
        watches.asked(GetData(path, watch=True), True)
    batches = list(watches.restore(7))
    assert [path for batch in batches for path in batch.data] == sorted(paths)
    assert max(len(batch.body()) for batch in batches) < RESTORE_BYTES_MAX + 2000
    assert len(batches) == 8
