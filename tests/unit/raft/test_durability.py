"""What waits for the disk (D-7), and what does not."""

from __future__ import annotations

import pytest

from tests.so_far import so_far
from tests.unit.raft.network import (
    GROUP,
    SETTINGS,
    drain,
    entries_of,
    hear,
    instance_of,
    lead,
    make_raft,
    membership_of,
    of_kind,
)
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    HardState,
    Heartbeat,
    HeartbeatReply,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
)
from zraft.raft.role import Role
from zraft_core.errors import StorageError
from zraft_core.ids import ServerId

TIMEOUT = SETTINGS.election_timeout_ticks


def append(term: int, prev: int, prev_term: int, terms: tuple[int, ...], commit: int = 0) -> AppendEntries:
    return AppendEntries(GROUP, term, prev, prev_term, commit, entries_of(terms, prev + 1))


def test_vote_requests_and_own_vote_wait_for_the_hard_state() -> None:
    """D-7. Single voter: it must not lead before its vote is durable."""
    raft = make_raft(1)
    raft.tick(2 * TIMEOUT)
    drain(raft)
    raft.step(ServerId(2), instance_of(2), PreVoteReply(GROUP, 1, True))
    ready = raft.ready()
    assert raft.role is Role.CANDIDATE
    assert of_kind(ready.messages, RequestVote) == []
    assert ready.write is not None
    assert ready.write.hard_state == HardState(1, ServerId(1))
    raft.persisted(ready.write.number)
    assert {to for to, _ in raft.ready().messages} == {2, 3}

    alone = make_raft(1, membership=membership_of((1,)))
    alone.tick(2 * TIMEOUT)
    write = alone.ready().write
    assert so_far(alone.role) is Role.CANDIDATE
    assert write is not None
    alone.persisted(write.number)
    assert alone.role is Role.LEADER


def test_vote_requested_in_an_abandoned_term_does_not_elect() -> None:
    """The write of term 1 returns after term 5 was seen: neither the own vote nor grants of term 1 count."""
    raft = make_raft(1)
    raft.tick(2 * TIMEOUT)
    drain(raft)
    raft.step(ServerId(2), instance_of(2), PreVoteReply(GROUP, 1, True))
    write = raft.ready().write
    assert write is not None
    raft.step(ServerId(3), instance_of(3), Heartbeat(GROUP, 5, 1, 0))
    raft.persisted(write.number)
    raft.step(ServerId(2), instance_of(2), RequestVoteReply(GROUP, 1, True))
    assert (raft.role, raft.term, raft.leader) == (Role.FOLLOWER, 5, 3)


def test_leader_sends_entries_before_its_own_sync_and_counts_itself_after_it() -> None:
    raft = make_raft(1)
    lead(raft)
    for server in (2, 3):
        hear(raft, server, AppendEntriesReply(GROUP, raft.term, True, 1))
    raft.propose(b"x", 1)
    ready = raft.ready()
    assert {to for to, m in ready.messages if isinstance(m, AppendEntries)} == {2, 3}
    assert ready.write is not None
    raft.step(ServerId(2), instance_of(2), AppendEntriesReply(GROUP, raft.term, True, 2))
    assert raft.commit_index == 1, "one durable copy of three"
    raft.persisted(ready.write.number)
    assert raft.commit_index == 2


def test_entries_are_committed_by_the_followers_disks_alone_but_not_applied_before_the_own() -> None:
    """A server applies only what is committed and locally durable."""
    raft = make_raft(1)
    lead(raft)
    raft.propose(b"x", 1)
    assert raft.ready().write is not None
    for server in (2, 3):
        raft.step(ServerId(server), instance_of(server), AppendEntriesReply(GROUP, raft.term, True, 2))
    assert (raft.commit_index, raft.durable_index, raft.applicable_index) == (2, 1, 1)


def test_acknowledgement_waits_for_the_entries_and_refusal_for_nothing_pending() -> None:
    raft = make_raft(2, terms=(1,))
    raft.step(ServerId(1), instance_of(1), append(1, 1, 1, (1,)))
    ready = raft.ready()
    assert ready.messages == ()
    assert ready.write is not None
    raft.step(ServerId(1), instance_of(1), append(1, 9, 1, (1,)))
    (refusal,) = of_kind(raft.ready().messages, AppendEntriesReply)
    assert not refusal.accepted
    raft.persisted(ready.write.number)
    (reply,) = of_kind(raft.ready().messages, AppendEntriesReply)
    assert (reply.accepted, reply.match_index) == (True, 2)


def test_heartbeat_is_answered_while_entries_wait_for_the_disk_but_not_before_its_term_is_durable() -> None:
    """The answer promises the term, not the entries: a slow disk does not cost the leader its quorum."""
    raft = make_raft(2, terms=(1,))
    raft.step(ServerId(1), instance_of(1), append(1, 1, 1, (1,)))
    assert raft.ready().write is not None
    raft.step(ServerId(1), instance_of(1), Heartbeat(GROUP, 1, 4, 0))
    assert raft.ready().messages == ((1, HeartbeatReply(GROUP, 1, 4, 2)),)
    raft.step(ServerId(1), instance_of(1), Heartbeat(GROUP, 2, 1, 0))
    ready = raft.ready()
    assert ready.messages == ()
    assert ready.write is not None
    raft.persisted(ready.write.number)
    assert of_kind(raft.ready().messages, HeartbeatReply) == [HeartbeatReply(GROUP, 2, 1, 2)]


def test_duplicate_of_a_durable_append_is_acknowledged_at_once() -> None:
    raft = make_raft(2, terms=(1, 1))
    raft.step(ServerId(1), instance_of(1), append(1, 0, 0, (1,)))
    assert raft.ready().messages == ((1, AppendEntriesReply(GROUP, 1, True, 1)),)


def test_appends_of_one_turn_share_one_write_and_one_acknowledgement() -> None:
    raft = make_raft(2)
    for index in range(3):
        raft.step(ServerId(1), instance_of(1), append(1, index, min(index, 1), (1,)))
    ready = raft.ready()
    assert ready.write is not None
    assert [entry.index for entry in ready.write.entries] == [1, 2, 3]
    assert ready.write.hard_state == HardState(1, None)
    raft.persisted(ready.write.number)
    assert raft.ready().messages == ((1, AppendEntriesReply(GROUP, 1, True, 3)),)


def test_write_numbers_increase_and_later_one_covers_earlier_ones() -> None:
    raft = make_raft(2)
    numbers = []
    for index in range(3):
        raft.step(ServerId(1), instance_of(1), append(1, index, min(index, 1), (1,)))
        write = raft.ready().write
        assert write is not None
        numbers.append(write.number)
    assert numbers == sorted(set(numbers))
    raft.persisted(numbers[1])
    assert raft.durable_index == 2
    assert [m.match_index for m in of_kind(raft.ready().messages, AppendEntriesReply)] == [1, 2]
    raft.persisted(numbers[0])
    assert raft.durable_index == 2
    raft.persisted(numbers[2])
    assert raft.durable_index == 3


def test_entries_truncated_while_their_write_is_under_way_do_not_count_as_durable() -> None:
    raft = make_raft(2, terms=(1,))
    raft.step(ServerId(1), instance_of(1), append(1, 1, 1, (1, 1)))
    first = raft.ready().write
    raft.step(ServerId(3), instance_of(3), append(2, 1, 1, (2, 2, 2)))
    second = raft.ready().write
    assert first is not None
    assert second is not None
    assert second.truncate_from == 2
    raft.persisted(first.number)
    assert raft.durable_index == 1
    assert not [m for m in of_kind(raft.ready().messages, AppendEntriesReply) if m.term == 2]
    raft.persisted(second.number)
    assert raft.durable_index == 4


def test_entries_truncated_while_their_write_is_under_way_are_not_acknowledged() -> None:
    """D-7: a disk that is busy makes both writes durable in one step, after which it does not hold them (seed 772691350)."""
    raft = make_raft(2, terms=(1,))
    raft.step(ServerId(1), instance_of(1), append(1, 1, 1, (1,)))
    kept = raft.ready().write
    raft.step(ServerId(1), instance_of(1), append(1, 2, 1, (1,)))
    replaced = raft.ready().write
    raft.step(ServerId(3), instance_of(3), append(2, 2, 1, (2,)))
    last = raft.ready().write
    assert kept is not None
    assert replaced is not None
    assert last is not None
    assert last.truncate_from == 3
    raft.persisted(last.number)
    told = of_kind(raft.ready().messages, AppendEntriesReply)
    assert [(m.term, m.accepted, m.match_index) for m in told] == [(1, True, 2), (2, True, 3)]


def test_entries_truncated_before_they_were_written_are_never_written() -> None:
    raft = make_raft(2, terms=(1,))
    raft.step(ServerId(1), instance_of(1), append(1, 1, 1, (1, 1, 1)))
    raft.step(ServerId(3), instance_of(3), append(2, 2, 1, (2,)))
    write = raft.ready().write
    assert write is not None
    assert write.truncate_from is None
    assert [(entry.index, entry.term) for entry in write.entries] == [(2, 1), (3, 2)]


def test_two_truncations_within_a_turn_become_one() -> None:
    raft = make_raft(2, terms=(1, 1, 1, 1))
    raft.step(ServerId(1), instance_of(1), append(2, 3, 1, (2,)))
    raft.step(ServerId(3), instance_of(3), append(3, 1, 1, (3,)))
    write = raft.ready().write
    assert write is not None
    assert write.truncate_from == 2
    assert [(entry.index, entry.term) for entry in write.entries] == [(2, 3)]


def test_heartbeat_commit_is_the_minimum_of_commit_and_that_followers_match() -> None:
    raft = make_raft(1)
    lead(raft)
    hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, 1))
    raft.tick(SETTINGS.heartbeat_ticks)
    messages = drain(raft)
    assert [m.leader_commit for m in of_kind(messages, Heartbeat, to=2)] == [1]
    assert [m.leader_commit for m in of_kind(messages, Heartbeat, to=3)] == [0]


def test_hard_state_older_than_the_log_is_refused() -> None:
    """The directory lost a write that it had confirmed, perhaps also a vote."""
    with pytest.raises(StorageError, match="log ends in term 4 but the hard state is of term 3"):
        make_raft(1, terms=(1, 4), term=3)


def test_nothing_to_do_is_an_empty_ready() -> None:
    raft = make_raft(2, terms=(1,))
    raft.tick(1)
    ready = raft.ready()
    assert (ready.messages, ready.write, ready.read_states) == ((), None, ())
