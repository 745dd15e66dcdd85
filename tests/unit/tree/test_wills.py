"""D-19: the command that ends a session carries out its will."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.tree.level3 import Level3, again
from tests.unit.tree.scenario import EPHEMERAL, TWO, create
from zraft.tree.sessions.session import Session
from zraft_core.errors import Code
from zraft_core.znodes.acl import CREATE as CREATE_RIGHT
from zraft_core.znodes.acl import READ
from zraft_core.znodes.txn import DELETE, ONCE, SET_ACL, SETTINGS, WILL, Command

LIMITS = b"count=2,bytes=-1=;byteHardLimit=-1;countHardLimit=2"


@pytest.fixture
def scenario() -> Level3:
    scenario = Level3()
    scenario.create("/log")
    return scenario


def dying(scenario: Level3, *will: Any, **how: Any) -> Session:
    session = scenario.new_session()
    assert scenario.run((WILL, *(will or ("/log", "leave-", b"bye"))), session, **how) is Code.OK
    return session


@pytest.mark.parametrize("end", ["close", "expire"])
def test_will_is_done_by_the_command_that_ends_the_session(scenario: Level3, end: str) -> None:
    session = dying(scenario)
    scenario.create("/e", flags=EPHEMERAL, session=session)
    scenario.events()
    assert getattr(scenario, end)(session) is Code.OK
    assert scenario.events() == [(2, "/e"), (4, "/"), (1, "/log/leave-0000000000"), (4, "/log")]
    stat = scenario.stat("/log/leave-0000000000")
    assert stat.czxid == scenario.machine.last_zxid
    assert stat.ephemeral_owner == 0
    assert scenario.node("/log/leave-0000000000").data == b"bye"
    again(scenario.machine)


def test_expiry_that_is_void_does_no_will(scenario: Level3) -> None:
    """D-11: the session wrote since."""
    session = dying(scenario)
    stale = (202, session.id, session.attach_position, session.write_position - 1, 0, session.timeout_ms, 0)
    assert scenario.by_leader(stale) is Code.BAD_VERSION
    assert scenario.names("/log") == []


def test_will_survives_the_way_to_another_server_and_a_restore(scenario: Level3) -> None:
    session = dying(scenario)
    scenario.attach(session.id, TWO)
    scenario.machine = again(scenario.machine)
    assert scenario.expire(scenario.machine.sessions[session.id]) is Code.OK
    assert scenario.names("/log") == ["leave-0000000000"]


def test_later_will_replaces_the_earlier_and_nil_takes_it_back(scenario: Level3) -> None:
    session = dying(scenario)
    assert scenario.run((WILL, "/log", "other-", None), session) is Code.OK
    scenario.close(session)
    assert scenario.names("/log") == ["other-0000000000"]
    session = dying(scenario)
    assert scenario.run((WILL, None, None, None), session) is Code.OK
    assert session.memory() == ()
    scenario.close(session)
    assert len(scenario.names("/log")) == 1
    assert scenario.machine.wills_dropped == 0


def test_will_may_be_registered_once(scenario: Level3) -> None:
    session = scenario.new_session()
    assert scenario.once(1, 0, (WILL, "/log", "x-", b""), session=session)[2:] == (0, None)
    assert scenario.run((ONCE, 1, 0, (WILL, None, "", b"")), session)[2] == 0
    scenario.close(session)
    assert scenario.names("/log") == ["x-0000000000"]


@pytest.mark.parametrize("right", ["at registration", "at the end", "never"])
def test_rights_are_those_of_the_ids_at_registration(scenario: Level3, right: str) -> None:
    ours, theirs = (("ip", "10.9.8.7"),), (("ip", "10.0.0.1"),)
    scenario.run((SET_ACL, "/log", ((READ, "world", "anyone"), (CREATE_RIGHT, "ip", "10.9.8.7")), -1))
    session = dying(scenario, ids=ours if right == "at registration" else theirs)
    scenario.close(session, ids=ours if right == "at the end" else theirs)
    assert scenario.names("/log") == (["leave-0000000000"] if right == "at registration" else [])
    assert scenario.machine.wills_dropped == (right != "at registration")


def test_will_without_its_parent_is_dropped_and_counted(scenario: Level3) -> None:
    session = dying(scenario)
    scenario.run((DELETE, "/log", -1))
    assert scenario.close(session) is Code.OK
    assert scenario.machine.wills_dropped == 1
    assert scenario.names("/") == ["zookeeper"]
    again(scenario.machine)


def test_will_below_an_ephemeral_of_the_same_session_is_dropped(scenario: Level3) -> None:
    scenario.create("/e", flags=EPHEMERAL)
    session = scenario.session
    scenario.run((WILL, "/e", "x", b""))
    assert scenario.close(session) is Code.OK
    assert scenario.machine.wills_dropped == 1


def test_full_quota_drops_the_will_unless_the_session_s_own_ephemerals_made_it_full(scenario: Level3) -> None:
    scenario.by_leader((SETTINGS, {"quota_enforced": 1}))
    scenario.multi(
        create("/zookeeper/quota/log"), create("/zookeeper/quota/log/zookeeper_limits", LIMITS),
        create("/zookeeper/quota/log/zookeeper_stats"),
    )  # fmt: skip
    first, second = dying(scenario), dying(scenario)
    assert scenario.create("/log/mine", flags=EPHEMERAL, session=first) == "/log/mine"
    assert scenario.close(second) is Code.OK
    assert scenario.machine.wills_dropped == 1
    assert scenario.close(first) is Code.OK
    assert scenario.names("/log") == ["leave-0000000001"]
    assert scenario.node("/zookeeper/quota/log/zookeeper_stats").data == b"count=2,bytes=3"
    again(scenario.machine)


def test_commands_after_the_close_in_its_run_have_no_session(scenario: Level3) -> None:
    """The will is written with other ids: nothing of them may stay."""
    session = dying(scenario)
    scenario.close(session)
    assert scenario.machine.execute(create("/after")) is Code.SESSION_EXPIRED


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ((WILL,), Code.MARSHALLING_ERROR),
        ((WILL, "/log", "x"), Code.MARSHALLING_ERROR),
        ((WILL, 5, "x", b""), Code.MARSHALLING_ERROR),
        ((WILL, "/log", None, b""), Code.MARSHALLING_ERROR),
        ((WILL, "/log", "x", "text"), Code.MARSHALLING_ERROR),
        ((WILL, "log", "x", b""), Code.BAD_ARGUMENTS),
        ((WILL, "/log/", "x", b""), Code.BAD_ARGUMENTS),
        ((WILL, "/log", "a/b", b""), Code.BAD_ARGUMENTS),
        ((WILL, "/log", "\x01", b""), Code.BAD_ARGUMENTS),
        ((WILL, "/log", "x", b"12345"), Code.BAD_ARGUMENTS),
    ],
)
def test_will_that_cannot_be_done_is_refused_when_it_is_registered(
    scenario: Level3, command: Command, code: Code
) -> None:
    scenario.by_leader((SETTINGS, {"data_bytes_max": 4}))
    session = dying(scenario, "/log", "old-", b"")
    assert scenario.run(command, session) is code
    scenario.close(session)
    assert scenario.names("/log") == ["old-0000000000"], "the one before stays"


def test_will_at_the_root(scenario: Level3) -> None:
    session = dying(scenario, "/", "", None)
    scenario.close(session)
    assert scenario.names("/") == ["0000000001", "log", "zookeeper"]


def test_will_is_part_of_state_and_digest(scenario: Level3) -> None:
    machine = scenario.machine
    before = machine.full_digest()
    session = scenario.new_session()
    between = machine.full_digest()
    scenario.run((WILL, "/log", "x", b""), session)
    assert len({before, between, machine.full_digest()}) == 3
    assert machine.digest() == machine.full_digest()
    machine.sessions[session.id].will = None
    assert machine.full_digest() != machine.digest()
