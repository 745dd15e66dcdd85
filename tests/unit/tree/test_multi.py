"""MULTI: all or nothing, one zxid, and nothing left of a failed one."""

from __future__ import annotations

import pytest

from tests.unit.tree.scenario import EPHEMERAL, SEQUENTIAL, Scenario, create
from zraft.tree.commands.multi import MultiFailed
from zraft_core.errors import Code
from zraft_core.znodes.acl import ALL
from zraft_core.znodes.events import NODE_CHILDREN_CHANGED, NODE_CREATED, NODE_DATA_CHANGED, NODE_DELETED
from zraft_core.znodes.stat import Stat
from zraft_core.znodes.txn import CHECK, CREATE2, DELETE, MULTI, SET_DATA, Command

NO_SUCH: Command = (DELETE, "/no-such", -1)


@pytest.fixture
def scenario() -> Scenario:
    scenario = Scenario()
    scenario.create("/a", b"data")
    scenario.events()
    return scenario


def test_empty_multi_succeeds_with_no_results(scenario: Scenario) -> None:
    assert scenario.multi() == ()


def test_all_parts_share_one_zxid_and_one_position(scenario: Scenario) -> None:
    position = scenario.machine.position
    scenario.multi(create("/b"), create("/b/c"), (SET_DATA, "/a", b"x", 0))
    zxid = scenario.machine.last_zxid
    assert scenario.machine.position == position + 1
    assert scenario.stat("/b").czxid == scenario.stat("/b/c").czxid == scenario.stat("/a").mzxid == zxid


def test_later_parts_see_what_earlier_parts_did(scenario: Scenario) -> None:
    results = scenario.multi(
        create("/p"),
        create("/p/s-", flags=SEQUENTIAL),
        (CHECK, "/p", 0),
        (DELETE, "/p/s-0000000000", 0),
        (DELETE, "/p", 0),
    )
    assert [r if isinstance(r, Code) else r[0] for r in results] == [
        "/p",
        "/p/s-0000000000",
        Code.OK,
        Code.OK,
        Code.OK,
    ]
    assert "/p" not in scenario.machine.nodes


def test_stats_are_those_right_after_their_part(scenario: Scenario) -> None:
    """Trap 12 needs the stat of create2; a later part of the same multi must not show in it."""
    created, changed, _ = scenario.multi(
        (CREATE2, "/b", b"1", None, 0, None), (SET_DATA, "/b", b"22", 0), create("/b/c")
    )
    zxid, now = scenario.machine.last_zxid, scenario.wall_time
    assert created == ("/b", Stat(zxid, zxid, now, now, 0, 0, 0, 0, 1, 0, zxid))
    assert changed == Stat(zxid, zxid, now, now, 1, 0, 0, 0, 2, 0, zxid)
    assert scenario.stat("/b").num_children == 1


def test_events_come_in_the_order_of_the_parts(scenario: Scenario) -> None:
    scenario.multi(create("/a/b"), (SET_DATA, "/a", b"x", -1), (CHECK, "/a", -1), (DELETE, "/a/b", -1))
    assert scenario.events() == [
        (NODE_CREATED, "/a/b"),
        (NODE_CHILDREN_CHANGED, "/a"),
        (NODE_DATA_CHANGED, "/a"),
        (NODE_DELETED, "/a/b"),
        (NODE_CHILDREN_CHANGED, "/a"),
    ]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_failed_multi_reports_ok_before_the_failure_and_inconsistency_after(
    scenario: Scenario, index: int
) -> None:
    """Trap 11."""
    parts: list[Command] = [create("/b"), create("/c"), create("/d")]
    parts[index] = NO_SUCH
    codes = [Code.OK] * index + [Code.NO_NODE] + [Code.RUNTIME_INCONSISTENCY] * (2 - index)
    assert scenario.multi(*parts) == MultiFailed(index, Code.NO_NODE, tuple(codes))


def test_failed_multi_leaves_no_trace(scenario: Scenario) -> None:
    """Trap 11: counters, pzxids, ephemerals, events, ACLs and digest marks are as before (ZOOKEEPER-1624)."""
    restricted = ((ALL, "ip", "10.9.8.7"),)
    scenario.create("/e", flags=EPHEMERAL)
    scenario.create("/r", acl=restricted)
    scenario.events()
    machine = scenario.machine
    machine.digest()
    image, ephemerals = machine.image()[0], set(scenario.session.ephemerals)
    full = machine.full_digest()

    result = scenario.multi(
        create("/a/s-", flags=SEQUENTIAL),
        create("/a/e-", flags=EPHEMERAL | SEQUENTIAL),
        create("/x", acl=((ALL, "ip", "7.7.7.7"), (1, "world", "anyone"))),
        create("/x2", acl=restricted),
        (SET_DATA, "/a", b"changed", 0),
        (SET_DATA, "/a", None, 1),
        (DELETE, "/e", 0),
        create("/e"),
        (DELETE, "/r", 0),
        (DELETE, "/a/s-0000000000", 0),
        NO_SUCH,
    )
    assert isinstance(result, MultiFailed)
    assert result.index == 10
    assert machine.image()[0] == image
    assert scenario.session.ephemerals == ephemerals == {"/e"}
    assert scenario.events() == []
    assert machine._tree.digest.dirty_nodes == set()
    assert len(machine._tree.acls) == 2  # that of /zookeeper/config and that of /r
    assert machine.digest() == machine.full_digest() != full  # position and zxid have moved on
    assert scenario.create("/a/s-", flags=SEQUENTIAL) == "/a/s-0000000000"
    assert scenario.node("/r").acl is machine._tree.acls.hold(restricted)


@pytest.mark.parametrize("part", [create("/b"), NO_SUCH])
def test_inverses_are_kept_only_while_a_multi_runs(scenario: Scenario, part: Command) -> None:
    scenario.multi(part)
    assert scenario.machine._tree.journal is None


def test_failed_multi_is_a_write_of_the_session_and_takes_a_zxid(scenario: Scenario) -> None:
    zxid = scenario.machine.last_zxid
    scenario.multi(NO_SUCH)
    assert scenario.machine.last_zxid == zxid + 1
    assert scenario.session.write_position == scenario.machine.position


def test_znode_replaced_within_a_multi_keeps_the_digest_true(scenario: Scenario) -> None:
    scenario.machine.digest()
    assert scenario.multi((SET_DATA, "/a", b"", -1), (DELETE, "/a", -1), create("/a"), create("/a/b")) != ()
    assert scenario.machine.digest() == scenario.machine.full_digest()
    scenario.multi((DELETE, "/a/b", -1), (DELETE, "/a", -1))
    assert scenario.machine.digest() == scenario.machine.full_digest()


def test_part_that_cannot_be_understood_makes_the_whole_request_a_marshalling_error(
    scenario: Scenario,
) -> None:
    before = scenario.machine.image()[0]
    for part in ((MULTI, ()), (-11,), (7, "/a", ()), (SET_DATA, "/a", 5, 0), "x"):
        assert scenario.run((MULTI, (create("/b"), part))) is Code.MARSHALLING_ERROR
    assert scenario.machine.image()[0] == before
    assert scenario.events() == []


def test_a_multi_whose_results_nobody_waits_for_changes_the_same() -> None:
    answered, unanswered = Scenario(), Scenario()
    unanswered.machine.answered = False
    good = (
        create("/b"),
        (SET_DATA, "/b", b"1", 0),
        (CREATE2, "/b/s-", b"", None, SEQUENTIAL, None),
        (CHECK, "/b", 1),
    )
    bad = (create("/c"), (SET_DATA, "/b", b"2", -1), NO_SUCH)
    assert len(answered.multi(*good)) == len(good)
    assert unanswered.multi(*good) == ()
    assert answered.multi(*bad) == unanswered.multi(*bad)
    assert answered.multi((7,)) is unanswered.multi((7,)) is Code.MARSHALLING_ERROR
    assert answered.machine.image() == unanswered.machine.image()
    assert answered.events() == unanswered.events()
