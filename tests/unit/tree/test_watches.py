"""Watches: who is told, how often, in which order (traps 6 to 10 and 15)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.unit.tree.scenario import Scenario
from zraft.tree import watches
from zraft.tree.watches import REMOVED_AT_ONCE, SWEPT_PER_CALL, WatchTable, reregister
from zraft_core.znodes.events import (
    NODE_CHILDREN_CHANGED,
    NODE_CREATED,
    NODE_DATA_CHANGED,
    NODE_DELETED,
    AddWatchMode,
    WatcherType,
)


@pytest.fixture
def table() -> WatchTable[Any]:
    return WatchTable()


@pytest.mark.parametrize("event", [NODE_CREATED, NODE_DATA_CHANGED, NODE_DELETED])
def test_data_watch_fires_once_for_the_node(table: WatchTable[Any], event: int) -> None:
    table.add_data("/a", "w")
    assert table.trigger(event, "/b") == []
    assert table.trigger(event, "/a") == ["w"]
    assert table.trigger(event, "/a") == []
    assert (table.watch_count(), table.watcher_count()) == (0, 0)


def test_children_changed_concerns_child_watches_only(table: WatchTable[Any]) -> None:
    table.add_data("/a", "data")
    table.add_child("/a", "child")
    assert table.trigger(NODE_CHILDREN_CHANGED, "/a") == ["child"]
    assert table.trigger(NODE_CHILDREN_CHANGED, "/a") == []
    assert table.has("/a", "data", WatcherType.DATA)


def test_child_watch_does_not_fire_for_data_or_creation(table: WatchTable[Any]) -> None:
    table.add_child("/a", "w")
    assert table.trigger(NODE_DATA_CHANGED, "/a") == []
    assert table.trigger(NODE_CREATED, "/a") == []
    assert table.has("/a", "w", WatcherType.CHILDREN)


def test_deletion_is_told_once_to_a_watcher_of_both_and_consumes_both(table: WatchTable[Any]) -> None:
    """Trap 6."""
    table.add_data("/a", "both")
    table.add_child("/a", "child")
    table.add_child("/a", "both")
    assert table.trigger(NODE_DELETED, "/a") == ["both", "child"]
    assert table.watch_count() == 0
    assert table.trigger(NODE_CHILDREN_CHANGED, "/a") == []


def test_watchers_are_told_in_order_of_registration_each_once(table: WatchTable[Any]) -> None:
    for watcher in ("c", "a", "b", "a", "c"):
        table.add_data("/a", watcher)
    assert table.trigger(NODE_DATA_CHANGED, "/a") == ["c", "a", "b"]


def test_removed_watcher_is_told_nothing_and_leaves_nothing(table: WatchTable[Any]) -> None:
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


def test_removing_a_watcher_costs_only_its_own_watches(table: WatchTable[Any]) -> None:
    watcher = Unhashed()
    for number in range(1000):
        table.add_data(f"/{number}", "other")
    table.add_data("/7", watcher)
    Unhashed.looks = 0
    table.remove_watcher(watcher)
    assert Unhashed.looks <= 3
    assert table.watch_count() == 1000


def test_single_watches_can_be_removed(table: WatchTable[Any]) -> None:
    table.add_data("/a", "w")
    table.add_child("/a", "w")
    assert not table.remove("/b", "w", WatcherType.DATA)
    assert not table.remove("/a", "v", WatcherType.DATA)
    assert table.remove("/a", "w", WatcherType.DATA)
    assert not table.remove("/a", "w", WatcherType.DATA)
    assert table.trigger(NODE_DATA_CHANGED, "/a") == []
    assert table.remove("/a", "w", WatcherType.CHILDREN)
    assert (table.watch_count(), table.path_count(), table.watcher_count()) == (0, 0, 0)


# -- persistent and recursive watches


EVENTS = (NODE_CREATED, NODE_DATA_CHANGED, NODE_CHILDREN_CHANGED, NODE_DELETED)


def test_persistent_watch_is_told_of_everything_at_its_path_for_ever(table: WatchTable[Any]) -> None:
    table.add_lasting("/a", "w", AddWatchMode.PERSISTENT)
    for _ in range(3):
        assert [table.trigger(event, "/a") for event in EVENTS] == [["w"]] * 4
    assert table.trigger(NODE_CREATED, "/a/b") == []
    assert table.watch_count() == 2


def test_recursive_watch_is_told_of_descendants_and_never_of_child_lists(table: WatchTable[Any]) -> None:
    """Trap 10; descendants need not exist when the watch is set."""
    table.add_lasting("/a", "w", AddWatchMode.PERSISTENT_RECURSIVE)
    for path in ("/a", "/a/b", "/a/b/c/d"):
        for _ in range(2):
            assert [table.trigger(event, path) for event in EVENTS] == [["w"], ["w"], [], ["w"]]
    assert table.trigger(NODE_CREATED, "/ab") == []
    assert table.trigger(NODE_CREATED, "/") == []


def test_recursive_watch_on_the_root_sees_everything(table: WatchTable[Any]) -> None:
    table.add_lasting("/", "w", AddWatchMode.PERSISTENT_RECURSIVE)
    assert [table.trigger(NODE_CREATED, path) for path in ("/", "/a", "/a/b")] == [["w"]] * 3


def test_any_mix_of_modes_is_told_once_and_only_the_one_shot_is_spent(table: WatchTable[Any]) -> None:
    """Trap 6."""
    table.add_data("/a", "w")
    table.add_child("/a", "w")
    table.add_lasting("/a", "w", AddWatchMode.PERSISTENT)
    table.add_lasting("/a", "w", AddWatchMode.PERSISTENT_RECURSIVE)
    table.add_lasting("/", "w", AddWatchMode.PERSISTENT_RECURSIVE)
    assert table.trigger(NODE_DELETED, "/a") == ["w"]
    kinds = [kind for kind in WatcherType if table.has("/a", "w", kind)]
    assert kinds == [WatcherType.ANY, WatcherType.PERSISTENT, WatcherType.PERSISTENT_RECURSIVE]
    assert table.trigger(NODE_CREATED, "/a") == ["w"]


def test_removing_one_mode_keeps_the_others(table: WatchTable[Any]) -> None:
    def watch() -> None:
        table.add_data("/a", "w")
        table.add_child("/a", "w")
        table.add_lasting("/a", "w", AddWatchMode.PERSISTENT)
        table.add_lasting("/a", "w", AddWatchMode.PERSISTENT_RECURSIVE)

    for removed in (kind for kind in WatcherType if kind is not WatcherType.ANY):
        watch()
        assert table.remove("/a", "w", removed)
        left = {kind for kind in WatcherType if table.has("/a", "w", kind)}
        assert left == set(WatcherType) - {removed}
        assert not table.remove("/a", "w", removed)
    watch()
    assert table.remove("/a", "w", WatcherType.ANY)
    assert not table
    assert table.trigger(NODE_CREATED, "/a/b") == []


def test_watcher_that_goes_leaves_nothing_behind_whatever_its_modes(table: WatchTable[Any]) -> None:
    for path in ("/", "/a", "/a/b"):
        table.add_data(path, "w")
        table.add_lasting(path, "w", AddWatchMode.PERSISTENT)
        table.add_lasting(path, "w", AddWatchMode.PERSISTENT_RECURSIVE)
    table.remove_watcher("w")
    assert (table.watch_count(), table._lasting, table._recursive) == (0, 0, 0)


def test_watchers_with_many_watches_are_told_nothing_from_the_moment_on_in_which_they_go(
    table: WatchTable[Any],
) -> None:
    """A hundred connections that went together with 20,000 watches each stopped the server for two seconds."""
    paths = [f"/{n}" for n in range(2 * SWEPT_PER_CALL)]
    for watcher in ("goes", "stays"):
        for path in paths:
            table.add_data(path, watcher)
            table.add_lasting(path, watcher, AddWatchMode.PERSISTENT)
    table.add_data("/alone", "goes")
    table.remove_watcher("goes")
    assert table.trigger(NODE_DATA_CHANGED, "/1") == ["stays"]
    assert table.trigger(NODE_CREATED, "/alone") == []
    assert table.watcher_count() == 1
    assert {path: tuple(watchers) for path, watchers in table.by_path()} == dict.fromkeys(paths, ("stays",))
    calls = 0
    while table.gone:
        table.sweep()
        calls += 1
    assert calls == 5, "each takes its share"
    table.remove_watcher("stays")
    while table.gone:
        table.sweep()
    assert (table.path_count(), table.lasting_count, bool(table)) == (0, 0, False)


@pytest.mark.parametrize("at_once", [REMOVED_AT_ONCE, 1], ids=["at once", "swept"])
def test_random_modes_agree_with_a_plain_list_of_watches(
    table: WatchTable[Any], seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same table as a set of (path, watcher, mode), looked through whole each time."""
    monkeypatch.setattr(watches, "REMOVED_AT_ONCE", at_once)
    monkeypatch.setattr(watches, "SWEPT_PER_CALL", 1)
    rng = random.Random(seed)
    paths, watchers = ("/", "/a", "/a/b", "/a/b/c", "/ab"), ["v", "w"]
    plain: set[tuple[str, str, str]] = set()

    def below(path: str, top: str) -> bool:
        return path == top or path.startswith(top.rstrip("/") + "/")

    for _ in range(3000):
        if table.gone and rng.random() < 0.2:
            table.sweep()
        path, watcher = rng.choice(paths), rng.choice(watchers)
        match rng.randrange(8):
            case 0:
                table.add_data(path, watcher)
                plain.add((path, watcher, "data"))
            case 1:
                table.add_child(path, watcher)
                plain.add((path, watcher, "child"))
            case 2:
                table.add_lasting(path, watcher, AddWatchMode.PERSISTENT)
                plain.add((path, watcher, "persistent"))
            case 3:
                table.add_lasting(path, watcher, AddWatchMode.PERSISTENT_RECURSIVE)
                plain.add((path, watcher, "recursive"))
            case 4 if rng.random() < 0.3:
                table.remove_watcher(watcher)
                plain = {entry for entry in plain if entry[1] != watcher}
                watchers[watchers.index(watcher)] += "'"  # it does not come back
            case 5:
                kind = rng.choice(list(WatcherType))
                modes = {
                    WatcherType.CHILDREN: {"child"},
                    WatcherType.DATA: {"data"},
                    WatcherType.PERSISTENT: {"persistent"},
                    WatcherType.PERSISTENT_RECURSIVE: {"recursive"},
                    WatcherType.ANY: {"child", "data", "persistent", "recursive"},
                }[kind]
                hit = {e for e in plain if e[0] == path and e[1] == watcher and e[2] in modes}
                assert table.has(path, watcher, kind) == bool(hit)
                assert table.remove(path, watcher, kind) == bool(hit)
                plain -= hit
            case _:
                event = rng.choice(EVENTS)
                spent = {"child"} if event == NODE_CHILDREN_CHANGED else {"data"}
                if event == NODE_DELETED:
                    spent.add("child")
                hit = {e for e in plain if e[0] == path and e[2] in spent | {"persistent"}}
                if event != NODE_CHILDREN_CHANGED:
                    hit |= {e for e in plain if e[2] == "recursive" and below(path, e[0])}
                told = table.trigger(event, path)
                assert sorted(told) == sorted({e[1] for e in hit})
                plain -= {e for e in hit if e[2] in spent}
    assert bool(table) == bool(plain)


# -- setWatches


def test_setwatches_tells_what_was_missed_and_registers_the_rest(table: WatchTable[Any]) -> None:
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
        (),
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


def test_setwatches_tells_nobody_of_a_znode_that_he_may_not_read(table: WatchTable[Any]) -> None:
    """Trap 15. The watch is spent all the same, as it would have been."""
    scenario = Scenario()
    scenario.create("/secret", acl=((31, "ip", "10.0.0.1"),))
    paths = ["/secret"]
    assert reregister(scenario.machine, table, "w", (("ip", "10.0.0.2"),), 0, paths, paths, paths) == []
    assert len(reregister(scenario.machine, table, "w", (("ip", "10.0.0.1"),), 0, paths, paths, paths)) == 3
    assert not table


def test_change_at_exactly_the_seen_zxid_was_not_missed(table: WatchTable[Any]) -> None:
    """Trap 8: greater, not greater or equal."""
    scenario = Scenario()
    scenario.create("/a")
    seen = scenario.machine.last_zxid
    assert reregister(scenario.machine, table, "w", (), seen, ["/a"], [], ["/a"]) == []
    assert reregister(scenario.machine, table, "w", (), seen - 1, ["/a"], [], ["/a"]) == [
        (NODE_DATA_CHANGED, "/a"),
        (NODE_CHILDREN_CHANGED, "/a"),
    ]


def test_events_of_the_machine_reach_watchers_in_zookeepers_order(table: WatchTable[Any]) -> None:
    """A parent's watcher and a node's watcher, both told of one deletion, node first."""
    scenario = Scenario()
    scenario.create("/a")
    scenario.events()
    table.add_child("/", "parent")
    table.add_data("/a", "node")
    scenario.delete("/a")
    told = [(event, path, table.trigger(event, path)) for event, path in scenario.events()]
    assert told == [(NODE_DELETED, "/a", ["node"]), (NODE_CHILDREN_CHANGED, "/", ["parent"])]
