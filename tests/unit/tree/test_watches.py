"""One-shot watches: who is told, once, in which order (traps 6, 7, 8)."""

from __future__ import annotations

import pytest

from tests.unit.tree.scenario import Scenario
from zraft.tree.events import NODE_CHILDREN_CHANGED, NODE_CREATED, NODE_DATA_CHANGED, NODE_DELETED
from zraft.tree.watches import WatchTable, reregister


@pytest.fixture
def table() -> WatchTable:
    return WatchTable()


@pytest.mark.parametrize("event", [NODE_CREATED, NODE_DATA_CHANGED, NODE_DELETED])
def test_data_watch_fires_once_for_the_node(table: WatchTable, event: int) -> None:
    table.add_data("/a", "w")
    assert table.trigger(event, "/b") == []
    assert table.trigger(event, "/a") == ["w"]
    assert table.trigger(event, "/a") == []
    assert (table.watch_count(), table.watcher_count()) == (0, 0)


def test_children_changed_concerns_child_watches_only(table: WatchTable) -> None:
    table.add_data("/a", "data")
    table.add_child("/a", "child")
    assert table.trigger(NODE_CHILDREN_CHANGED, "/a") == ["child"]
    assert table.trigger(NODE_CHILDREN_CHANGED, "/a") == []
    assert table.has_data("/a", "data")


def test_child_watch_does_not_fire_for_data_or_creation(table: WatchTable) -> None:
    table.add_child("/a", "w")
    assert table.trigger(NODE_DATA_CHANGED, "/a") == []
    assert table.trigger(NODE_CREATED, "/a") == []
    assert table.has_child("/a", "w")


def test_deletion_is_told_once_to_a_watcher_of_both_and_consumes_both(table: WatchTable) -> None:
    """Trap 6."""
    table.add_data("/a", "both")
    table.add_child("/a", "child")
    table.add_child("/a", "both")
    assert table.trigger(NODE_DELETED, "/a") == ["both", "child"]
    assert table.watch_count() == 0
    assert table.trigger(NODE_CHILDREN_CHANGED, "/a") == []


def test_watchers_are_told_in_order_of_registration_each_once(table: WatchTable) -> None:
    for watcher in ("c", "a", "b", "a", "c"):
        table.add_data("/a", watcher)
    assert table.trigger(NODE_DATA_CHANGED, "/a") == ["c", "a", "b"]


def test_removed_watcher_is_told_nothing_and_leaves_nothing(table: WatchTable) -> None:
    for watcher in ("stays", "goes"):
        table.add_data("/a", watcher)
        table.add_child("/b", watcher)
    table.add_data("/only", "goes")
    assert table.count_of("goes") == 3
    table.remove_watcher("goes")
    table.remove_watcher("goes")
    table.remove_watcher("never seen")
    assert table.count_of("goes") == 0
    assert (table.watch_count(), table.path_count(), table.watcher_count()) == (2, 2, 1)
    assert table.trigger(NODE_DELETED, "/a") == ["stays"]
    assert table.trigger(NODE_DELETED, "/b") == ["stays"]
    assert table.trigger(NODE_DELETED, "/only") == []


class Unhashed:
    """A watcher that counts how often a table looks at it."""

    looks = 0

    def __hash__(self) -> int:
        Unhashed.looks += 1
        return 1


def test_removing_a_watcher_costs_only_its_own_watches(table: WatchTable) -> None:
    watcher = Unhashed()
    for number in range(1000):
        table.add_data(f"/{number}", "other")
    table.add_data("/7", watcher)
    Unhashed.looks = 0
    table.remove_watcher(watcher)
    assert Unhashed.looks <= 3
    assert table.watch_count() == 1000


def test_single_watches_can_be_removed(table: WatchTable) -> None:
    table.add_data("/a", "w")
    table.add_child("/a", "w")
    assert not table.remove_data("/b", "w")
    assert not table.remove_data("/a", "v")
    assert table.remove_data("/a", "w")
    assert not table.remove_data("/a", "w")
    assert table.trigger(NODE_DATA_CHANGED, "/a") == []
    assert table.remove_child("/a", "w")
    assert (table.watch_count(), table.path_count(), table.watcher_count()) == (0, 0, 0)


# -- setWatches


def test_setwatches_tells_what_was_missed_and_registers_the_rest(table: WatchTable) -> None:
    """Trap 8: data by mzxid, children by pzxid, existence as it is."""
    scenario = Scenario()
    for path in ("/same", "/changed", "/children", "/quiet", "/quiet/kept", "/gone"):
        scenario.create(path)
    seen = scenario.machine.last_zxid
    scenario.set_data("/changed")
    scenario.create("/children/new")
    scenario.set_data("/quiet/kept")
    scenario.delete("/gone")
    scenario.create("/born")

    missed = reregister(
        scenario.machine,
        table,
        "w",
        seen,
        data=["/same", "/changed", "/gone", "/children"],
        exist=["/born", "/absent"],
        child=["/quiet", "/children", "/gone"],
    )
    assert missed == [
        (NODE_DATA_CHANGED, "/changed"),
        (NODE_DELETED, "/gone"),
        (NODE_CREATED, "/born"),
        (NODE_CHILDREN_CHANGED, "/children"),
        (NODE_DELETED, "/gone"),
    ]
    assert table.trigger(NODE_DATA_CHANGED, "/same") == ["w"]
    assert table.trigger(NODE_DATA_CHANGED, "/children") == ["w"]
    assert table.trigger(NODE_CREATED, "/absent") == ["w"]
    assert table.trigger(NODE_CHILDREN_CHANGED, "/quiet") == ["w"]
    assert table.watch_count() == 0


def test_change_at_exactly_the_seen_zxid_was_not_missed(table: WatchTable) -> None:
    """Trap 8: greater, not greater or equal."""
    scenario = Scenario()
    scenario.create("/a")
    seen = scenario.machine.last_zxid
    assert reregister(scenario.machine, table, "w", seen, ["/a"], [], ["/a"]) == []
    assert reregister(scenario.machine, table, "w", seen - 1, ["/a"], [], ["/a"]) == [
        (NODE_DATA_CHANGED, "/a"),
        (NODE_CHILDREN_CHANGED, "/a"),
    ]


def test_events_of_the_machine_reach_watchers_in_zookeepers_order(table: WatchTable) -> None:
    """A parent's watcher and a node's watcher, both told of one deletion, node first."""
    scenario = Scenario()
    scenario.create("/a")
    scenario.events()
    table.add_child("/", "parent")
    table.add_data("/a", "node")
    scenario.delete("/a")
    told = [(event, path, table.trigger(event, path)) for event, path in scenario.events()]
    assert told == [(NODE_DELETED, "/a", ["node"]), (NODE_CHILDREN_CHANGED, "/", ["parent"])]
