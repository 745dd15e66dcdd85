"""A follower that no quorum needs gets entries that come fast a little later, several at a time; nobody waits for it."""

from __future__ import annotations

from tests.so_far import so_far
from tests.unit.raft.network import GROUP, SETTINGS, drain, instance_of
from tests.unit.raft.test_commits import NOBODY, NOTHING_PUT_OFF, acknowledge, leader
from zraft.raft.core import Raft
from zraft.raft.messages import AppendEntries, AppendEntriesReply, HeartbeatReply, ReadIndex
from zraft_core.ids import ServerId

FIRST, OTHER = 2, 3
"""The follower that a leader asks here, and the one that gets its entries later."""


def sent(raft: Raft) -> dict[int, list[int]]:
    """Return the indices of the entries that each follower is sent now."""
    return {
        to: [entry.index for entry in message.entries]
        for to, message in drain(raft)
        if isinstance(message, AppendEntries)
    }


def written(raft: Raft, *origins: int, size: int = 1) -> dict[int, list[int]]:
    """Propose an entry for which clients of these servers wait; return who is sent what."""
    assert raft.propose(bytes(size), 1, frozenset(map(ServerId, origins))) is not None
    return sent(raft)


def answered(raft: Raft, server: int, index: int) -> None:
    raft.step(ServerId(server), instance_of(server), AppendEntriesReply(GROUP, raft.term, True, index))


def fast() -> tuple[Raft, int]:
    """A leader that has put an entry off, which is committed; and that entry."""
    raft = leader()
    first = raft.log.last_index + 1
    assert written(raft) == {FIRST: [first]}
    answered(raft, FIRST, first)
    assert raft.commit_index == first
    assert sent(raft) == {}
    return raft, first


def test_a_quorum_gets_entries_at_once_and_the_others_several_at_a_time() -> None:
    raft, first = fast()
    for index in range(first + 1, first + SETTINGS.put_off_ticks):
        raft.tick(1)
        assert written(raft) == {FIRST: [index]}
        answered(raft, FIRST, index)
    raft.tick(1)
    last = first + SETTINGS.put_off_ticks
    assert written(raft) == {FIRST: [last], OTHER: list(range(first, last + 1))}


def test_what_was_put_off_leaves_with_the_commit_if_nothing_follows() -> None:
    raft, first = fast()
    raft.tick(SETTINGS.commit_told_ticks - 1)
    assert sent(raft) == {}
    raft.tick(1)
    assert so_far(raft.has_ready)
    assert sent(raft) == {OTHER: [first]}
    assert not so_far(raft.has_ready)


def test_a_quorum_that_does_not_answer_is_not_waited_for() -> None:
    raft = leader()
    first = raft.log.last_index + 1
    assert written(raft) == {FIRST: [first]}
    assert raft.alarm_in == SETTINGS.put_off_ticks_max
    raft.tick(SETTINGS.put_off_ticks_max)
    assert sent(raft) == {OTHER: [first]}
    answered(raft, OTHER, first)
    assert raft.commit_index == first


def test_who_has_not_answered_is_not_relied_upon_again() -> None:
    raft = leader()
    first = raft.log.last_index + 1
    assert written(raft) == {FIRST: [first]}
    raft.tick(SETTINGS.put_off_ticks_max)
    assert sent(raft) == {OTHER: [first]}
    answered(raft, OTHER, first)
    raft.tick(1)
    assert written(raft) == {OTHER: [first + 1], FIRST: [first + 1]}


def test_who_answered_first_is_asked_again() -> None:
    raft = leader()
    raft.tick(SETTINGS.put_off_ticks + 1)
    index = raft.log.last_index + 1
    assert written(raft) == {OTHER: [index], FIRST: [index]}
    answered(raft, OTHER, index)
    answered(raft, FIRST, index)
    raft.tick(1)
    assert written(raft) == {OTHER: [index + 1]}


def test_entries_for_which_clients_of_a_follower_wait_are_not_put_off() -> None:
    raft = leader()
    index = raft.log.last_index + 1
    assert written(raft, OTHER) == {OTHER: [index]}
    raft, first = fast()
    assert written(raft, 1, OTHER, FIRST) == {OTHER: [first, first + 1], FIRST: [first + 1]}


def test_entries_are_not_put_off_for_a_follower_that_has_clients() -> None:
    """One of them may be told of a write by the client whose it was, and look."""
    raft, first = fast()
    raft.attended = {ServerId(OTHER): 1}
    assert written(raft) == {OTHER: [first, first + 1]}
    raft.attended = {ServerId(OTHER): 1, ServerId(FIRST): 3}
    answered(raft, OTHER, first + 1)
    drain(raft)
    assert written(raft).keys() == {OTHER, FIRST}


def test_entries_that_come_seldom_are_not_put_off() -> None:
    raft = leader()
    raft.tick(SETTINGS.put_off_ticks + 1)
    assert written(raft).keys() == {OTHER, FIRST}


def test_large_entries_are_not_put_off() -> None:
    raft = leader()
    assert written(raft, size=SETTINGS.at_once_bytes_min).keys() == {OTHER, FIRST}


def test_entries_for_which_all_wait_are_not_put_off() -> None:
    raft = leader()
    assert raft.propose(b"x", 1) is not None
    assert sent(raft).keys() == {OTHER, FIRST}


def test_a_round_of_heartbeats_takes_along_what_was_put_off() -> None:
    raft, first = fast()
    raft.request_round()
    assert sent(raft) == {OTHER: [first]}


def test_a_read_takes_along_what_was_put_off() -> None:
    raft, first = fast()
    raft.step(ServerId(OTHER), instance_of(OTHER), ReadIndex(GROUP, raft.term, 7))
    assert sent(raft) == {OTHER: [first]}


def test_a_round_that_is_due_does_not_pass_over_what_was_put_off() -> None:
    """`Raft.beat` sends heartbeats and nothing else."""
    raft, first = fast()
    raft.pass_time(raft.settings.idle_heartbeat_ticks)
    assert raft.beat() is None
    raft.tick(0)
    assert sent(raft) == {OTHER: [first]}


def test_who_has_lost_what_was_put_off_and_sent_gets_it_again() -> None:
    raft, first = fast()
    raft.request_round()
    drain(raft)
    raft.step(ServerId(OTHER), instance_of(OTHER), HeartbeatReply(GROUP, raft.term, raft.round, first - 1))
    assert sent(raft) == {OTHER: [first]}


def test_nothing_is_put_off_if_that_is_switched_off() -> None:
    raft = leader(NOTHING_PUT_OFF)
    assert raft.propose(b"x", 1, NOBODY) is not None
    assert sent(raft).keys() == {OTHER, FIRST}
    acknowledge(raft, OTHER, FIRST)
