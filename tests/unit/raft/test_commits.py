"""A leader tells servers of a commit: those whose clients wait at once, the others with the next entry or soon after."""

from __future__ import annotations

from typing import Final

from attrs import evolve

from tests.so_far import so_far
from tests.unit.raft.network import GROUP, SETTINGS, drain, hear, instance_of, lead, make_raft
from zraft.raft.core import Raft
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    Message,
    ReadIndex,
)
from zraft.raft.settings import RaftSettings
from zraft_core.ids import ServerId

NOBODY: frozenset[ServerId] = frozenset()
NOTHING_PUT_OFF: Final = evolve(SETTINGS, at_once_bytes_min=1)


def leader(settings: RaftSettings = SETTINGS) -> Raft:
    """Its followers hold the whole log and know that it is committed."""
    raft = make_raft(1, settings=settings)
    lead(raft)
    acknowledge(raft, 2, 3)
    raft.request_round()
    drain(raft)
    for server in (2, 3):
        hear(raft, server, HeartbeatReply(GROUP, raft.term, raft.round, raft.log.last_index))
    drain(raft)
    return raft


def acknowledge(raft: Raft, *servers: int) -> None:
    for server in servers:
        reply = AppendEntriesReply(GROUP, raft.term, True, raft.log.last_index)
        raft.step(ServerId(server), instance_of(server), reply)


def told(messages: list[tuple[int, Message]]) -> list[int]:
    """Return the servers that are told of the newest commit in a message of its own."""
    return [to for to, message in messages if isinstance(message, Heartbeat) and not message.round]


def committed(raft: Raft, *origins: int) -> list[int]:
    """One entry for which clients of these servers wait; who is told of its commit at once, once all hold it."""
    assert raft.propose(b"x", 1, frozenset(map(ServerId, origins))) is not None
    drain(raft)
    acknowledge(raft, 2, 3)
    assert raft.commit_index == raft.log.last_index
    return told(drain(raft))


def test_the_servers_whose_clients_wait_are_told_at_once() -> None:
    assert committed(leader(), 3) == [3]
    assert committed(leader(), 1, 2) == [2]
    assert committed(leader(), 2, 3) == [2, 3]
    assert committed(leader(), 1) == []


def test_without_a_word_of_who_waits_all_are_told_at_once() -> None:
    raft = leader()
    raft.propose(b"x", 1)
    drain(raft)
    acknowledge(raft, 2, 3)
    assert told(drain(raft)) == [2, 3]
    assert raft.alarm_in > SETTINGS.commit_told_ticks


def test_the_next_entry_tells_the_others() -> None:
    raft = leader(NOTHING_PUT_OFF)
    assert committed(raft, 1) == []
    raft.tick(1)
    raft.propose(b"y", 1, NOBODY)
    appends = [message for _, message in drain(raft) if isinstance(message, AppendEntries)]
    assert [append.leader_commit for append in appends] == [raft.commit_index] * 2
    raft.tick(SETTINGS.commit_told_ticks)
    assert told(drain(raft)) == []


def test_without_one_they_are_told_a_little_later() -> None:
    raft = leader()
    assert committed(raft, 2) == [2]
    assert raft.alarm_in == SETTINGS.commit_told_ticks
    raft.tick(SETTINGS.commit_told_ticks - 1)
    assert not so_far(raft.has_ready)
    raft.tick(1)
    assert so_far(raft.has_ready)
    assert told(drain(raft)) == [3]
    assert raft.alarm_in > SETTINGS.commit_told_ticks
    assert not so_far(raft.has_ready)


def test_who_acknowledges_later_than_that_is_told_when_it_does() -> None:
    for origins in ((), (3,)):
        raft = leader(NOTHING_PUT_OFF)
        raft.propose(b"x", 1, frozenset(map(ServerId, origins)))
        drain(raft)
        acknowledge(raft, 2)
        assert told(drain(raft)) == []
        raft.tick(SETTINGS.commit_told_ticks)
        assert told(drain(raft)) == [2]
        assert not so_far(raft.has_ready)
        acknowledge(raft, 3)
        assert so_far(raft.has_ready)
        assert told(drain(raft)) == [3]


def test_whose_clients_wait_is_told_when_it_acknowledges_also_before_that() -> None:
    raft = leader()
    raft.propose(b"x", 1, frozenset({ServerId(3)}))
    drain(raft)
    acknowledge(raft, 2)
    assert told(drain(raft)) == []
    raft.tick(1)
    acknowledge(raft, 3)
    assert told(drain(raft)) == [3]


def test_who_asks_for_a_read_index_is_told_with_the_answer() -> None:
    """It answers when it has applied that far."""
    raft = leader()
    assert committed(raft, 1) == []
    raft.step(ServerId(3), instance_of(3), ReadIndex(GROUP, raft.term, 7))
    messages = drain(raft)
    beats = {to: message for to, message in messages if isinstance(message, Heartbeat)}
    assert beats[3].leader_commit == raft.commit_index


def test_a_new_leadership_owes_nobody_a_word() -> None:
    raft = leader()
    committed(raft, 1)
    raft.step(ServerId(2), instance_of(2), Heartbeat(GROUP, raft.term + 1, 0, 0))
    assert raft.due_at > raft.now + SETTINGS.commit_told_ticks
