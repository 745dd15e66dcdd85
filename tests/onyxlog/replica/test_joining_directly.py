"""One entry to join, the session's will to leave."""

from __future__ import annotations

import pytest

from onyxlog.replica.commands import AbortJoin, GroupLeave, JoinDirect, PrepareJoin
from onyxlog.replica.effects import RestartGroup
from onyxlog.replica.kinds.join_direct import Joined
from onyxlog.replica.replica import Replica
from tests.onyxlog.replica.scripts import DIRECT, Log, worker


def direct() -> Log:
    return Log(Replica(parameters=DIRECT))


def test_a_group_is_in_with_one_entry_and_nobody_reacts() -> None:
    log = direct()
    log.write(JoinDirect("a"), "a")
    log.write(JoinDirect("b"), "b")
    assert log.step.diff == Joined("b")
    assert list(log.replica.groups) == ["a", "b"]
    assert not log.reaction_of_all("ab")
    assert [log.effects(group) for group in "ab"] == [(), ()]


def test_workers_that_came_first_wait_for_their_group() -> None:
    log = direct()
    log.write(worker("a", "a1"), "a")
    assert list(log.replica.orphans) == ["a1"]
    log.write(JoinDirect("a"), "a")
    assert not log.replica.orphans
    assert list(log.replica.peers) == ["a1"]


def test_the_will_of_a_group_that_died_before_it_joined_removes_its_orphans() -> None:
    log = direct()
    log.write(worker("a", "a1"), "a")
    log.write(GroupLeave("a"), "a")
    assert not log.replica.orphans
    log.write(JoinDirect("a"), "a")
    assert not log.replica.groups
    assert log.effects("a") == (RestartGroup(),)


def test_joining_twice_does_nothing() -> None:
    log = direct()
    log.write(JoinDirect("a"), "a")
    log.write(JoinDirect("a"), "a")
    assert log.step.diff is None


@pytest.mark.parametrize("command", [PrepareJoin("a"), AbortJoin("a")])
def test_an_entry_of_the_ring_does_nothing(command: PrepareJoin | AbortJoin) -> None:
    log = direct()
    log.write(command, "a")
    assert log.step.diff is None
    assert not log.replica.groups
    assert not log.replica.aborted
