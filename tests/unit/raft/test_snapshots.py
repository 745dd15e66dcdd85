"""Logs that begin after a snapshot: compaction, restoring, followers that fell behind (chapter 5; flaws 13, 14, 22)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

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
from tests.unit.raft.test_log import TERMS, archive_of
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
)
from zraft.raft.progress import ProgressState
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.errors import ProtocolError, StorageError
from zraft_core.ids import ServerId

TIMEOUT = SETTINGS.election_timeout_ticks
FOUR = membership_of((1, 2, 3), learners=(4,))


def meta_of(index: int, term: int, position: int | None = None) -> SnapshotMeta:
    """A snapshot of a log of one command per entry."""
    return SnapshotMeta(index, term, index + 1 if position is None else position, FOUR.encode())


def append(term: int, prev: int, prev_term: int, terms: Iterable[int], commit: int = 0) -> AppendEntries:
    return AppendEntries(GROUP, term, prev, prev_term, commit, entries_of(terms, prev + 1))


def follower(terms: Iterable[int], commit: int = 0) -> Raft:
    """Server 2, following server 1 in the last term of its log."""
    raft = make_raft(2, terms=terms)
    hear(raft, 1, Heartbeat(GROUP, raft.term, 1, commit))
    return raft


def leader_of(terms: tuple[int, ...], *followers: int) -> Raft:
    """Server 1 leads; everything, its no-op included, is acknowledged by these."""
    raft = make_raft(1, terms=terms)
    lead(raft)
    for each in followers:
        hear(raft, each, AppendEntriesReply(GROUP, raft.term, True, raft.log.last_index))
    return raft


def row(raft: Raft, server: int):  # type: ignore[no-untyped-def]
    (found,) = [each for each in raft.statistics().followers if each.server == server]
    return found


# -- the log


@given(TERMS, st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), TERMS)
def test_compacted_log_answers_as_the_whole_one(
    terms: list[int], evicted: int, compacted: int, cut: int, more: list[int]
) -> None:
    model = list(entries_of(terms))
    whole = Log(entries=model)
    log = Log(entries=model, archive=archive_of(list(model)))
    log.evict_to(evicted)
    base = min(compacted, len(model))
    log.compact_to(base)
    if base < cut <= len(model):
        log.truncate_from(cut)
        whole.truncate_from(cut)
    for step in more:
        term = max(step, whole.last_term)
        entry = Entry(whole.last_index + 1, term, EntryKind.COMMANDS, whole.next_position, 2, b"")
        whole.append(entry)
        log.append(entry)
    assert log.first_index == base + 1
    for question in ("last_index", "last_term", "next_position"):
        assert getattr(log, question) == getattr(whole, question)
    for index in range(base, whole.last_index + 1):
        assert log.term_at(index) == whole.term_at(index)
        if index > base:
            assert log.entry(index) == whole.entry(index)
            assert log.first_index_of_term_at(index) == max(base + 1, whole.first_index_of_term_at(index))
            for term in range(whole.last_term + 2):
                expected = max(base, whole.last_index_of_term_at_most(term, index))
                assert log.last_index_of_term_at_most(term, index) == expected
    log.compact_to(base)
    log.compact_to(0)
    assert log.first_index == base + 1


@given(st.sets(st.integers(1, 12)), st.integers(0, 12), st.integers(0, 12))
def test_log_knows_the_membership_of_every_index_it_may_be_asked_for(
    changes: set[int], first: int, second: int
) -> None:
    kinds = {True: EntryKind.MEMBERSHIP, False: EntryKind.NOOP}
    log = Log()
    for index in range(1, 13):
        log.append(Entry(index, 1, kinds[index in changes], 1, 0, b"%d" % index))
    for base in sorted((first, second)):
        log.compact_to(base)
    for index in range(max(first, second), 13):
        at = max((each for each in changes if each <= index), default=None)
        assert log.membership_at(index) == (None if at is None else b"%d" % at)


def test_entries_before_the_log_are_never_asked_of_it() -> None:
    log = Log(entries=entries_of([1, 1, 2]))
    log.compact_to(2)
    assert log.term_at(2) == 1
    for question in (lambda: log.slice(2, 3, 0), lambda: log.term_at(1), lambda: log.truncate_from(2)):
        with pytest.raises(AssertionError):
            question()


def test_log_that_begins_anew_forgets_everything_but_the_snapshots_end() -> None:
    log = Log(entries=entries_of([1, 1, 2]), archive=archive_of(()))
    log.evict_to(1)
    log.restart_after(meta_of(10, 5, position=33))
    assert (log.first_index, log.last_index, log.last_term, log.next_position) == (11, 10, 5, 33)
    assert log.bytes_in_memory == 0
    assert log.term_at(10) == 5
    assert log.membership_at(10) == FOUR.encode()
    log.append(Entry(11, 5, EntryKind.COMMANDS, 33, 2, b""))
    assert log.first_index_of_term_at(11) == 11


# -- compaction


def test_membership_of_a_compacted_log_is_the_one_that_it_held() -> None:
    """Section 5.1: a snapshot takes the newest configuration with it, so that a restart finds it again."""
    change = Entry(1, 1, EntryKind.MEMBERSHIP, 1, 0, FOUR.encode())
    raft = make_raft(
        1, log=Log(entries=(change, *(evolve(e, position=e.index - 1) for e in entries_of([1, 1], 2))))
    )
    lead(raft)
    hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, 4))
    raft.compact(3)
    assert raft.membership == FOUR
    assert raft.log.membership_at(4) == FOUR.encode()
    assert raft.members_changed_index == 1
    again = Log(first_index=4, base_term=1, base_position=3, base_membership=FOUR.encode())
    restarted = make_raft(1, log=again, membership=membership_of((1,)))
    assert restarted.membership == FOUR
    assert restarted.commit_index == 3
    assert restarted.membership_committed


def test_only_what_is_committed_and_durable_is_compacted() -> None:
    raft = leader_of((1, 1), 2)
    with pytest.raises(AssertionError, match="committed and durable"):
        raft.compact(4)
    raft.compact(2)
    assert raft.log.first_index == 3


def test_leader_that_compacts_its_whole_log_keeps_something_to_ask_with() -> None:
    """An answer lost before would leave a follower uncertain of what is committed for as long as nobody writes."""
    raft = leader_of((1, 1), 2)
    raft.compact(3)
    assert (raft.log.first_index, raft.log.last_index) == (4, 4)
    messages = drain(raft)
    (sent,) = of_kind(messages, AppendEntries, to=2)
    assert (sent.prev_log_index, sent.prev_log_term) == (3, 2)


def test_follower_that_is_probed_while_the_leader_compacts_needs_a_snapshot() -> None:
    """It had the chance to ask from there; now only heartbeats go there, and nobody's buffers fill."""
    raft = leader_of((1,) * 9, 2)
    hear(raft, 3, AppendEntriesReply(GROUP, 2, False, 0, prev_log_index=9, conflict_index=4))
    assert row(raft, 3).next_index == 4
    raft.compact(6)
    assert raft.followers_needing_snapshot == (3,)
    raft.propose(b"x", 1)
    messages = drain(raft)
    assert of_kind(messages, AppendEntries, to=3) == []
    assert row(raft, 3).state is ProgressState.SNAPSHOT
    assert row(raft, 3).needs_snapshot
    assert row(raft, 3).inflight_messages == 0
    raft.request_round()
    assert len(of_kind(drain(raft), Heartbeat, to=3)) == 1
    hear(raft, 3, AppendEntriesReply(GROUP, 2, False, 0, prev_log_index=3, conflict_index=2))
    assert row(raft, 3).state is ProgressState.SNAPSHOT
    assert not raft.has_ready


def test_lost_answer_to_a_compacted_entry_is_asked_for_with_the_first_one_left() -> None:
    """`ask_again` never reads below the log."""
    raft = leader_of((1, 1), 2, 3)
    raft.propose(b"x", 1)
    drain(raft)
    hear(raft, 2, AppendEntriesReply(GROUP, 2, True, 4))
    raft.tick(1)
    hear(raft, 3, HeartbeatReply(GROUP, 2, raft.round, 4))
    raft.compact(4)
    drain(raft)
    hear(raft, 2, AppendEntriesReply(GROUP, 2, True, 5))
    raft.compact(4)
    raft.tick(SETTINGS.resend_ticks)
    again = of_kind(drain(raft), AppendEntries, to=3)
    assert [each.prev_log_index for each in again] == [4]
    hear(raft, 3, AppendEntriesReply(GROUP, 2, True, 5))
    assert row(raft, 3).match_index == 5


def test_conflict_at_the_base_is_settled_without_a_snapshot_if_the_base_matches() -> None:
    """Flaw 22, next to the beginning of the log: the base's term is known, although its entry is gone."""
    raft = leader_of((1, 5, 5, 7, 7), 2)  # and its no-op of term 8 at 6
    raft.compact(3)
    # S3 has 1, then term 5 up to 6: its run of 5 begins at 2, before our log.
    hear(raft, 3, AppendEntriesReply(GROUP, 8, False, 0, prev_log_index=5, conflict_index=2, conflict_term=5))
    assert raft.followers_needing_snapshot == ()
    assert row(raft, 3).next_index == 4


@pytest.mark.parametrize(
    ("conflict_index", "conflict_term"),
    [(2, 0), (3, 0), (2, 3), (1, 1)],
    ids=["short", "shorter by one", "3", "1"],
)
def test_follower_whose_log_ends_before_ours_begins_or_differs_there_needs_a_snapshot(
    conflict_index: int, conflict_term: int
) -> None:
    raft = leader_of((1, 5, 5, 7, 7), 2)
    raft.compact(3)
    refusal = AppendEntriesReply(GROUP, 8, False, 0, 5, conflict_index, conflict_term)
    hear(raft, 3, refusal)
    assert raft.followers_needing_snapshot == (3,)


# -- appends to a log that begins late


def compacted_follower() -> Raft:
    """Entries 4 to 6 of term 2 after a snapshot at 3; 5 is committed."""
    log = Log(entries=entries_of([2, 2, 2], 4), first_index=4, base_term=1, base_position=4)
    raft = make_raft(2, log=log)
    hear(raft, 1, Heartbeat(GROUP, 2, 1, 5))
    return raft


@pytest.mark.parametrize(
    ("prev", "prev_term", "terms", "match"),
    [
        (0, 0, (1,), 1),
        (0, 0, (1, 1, 1), 3),
        (1, 1, (1, 1, 2, 2), 5),
        (2, 1, (1, 2, 2, 2, 2), 7),
        (3, 1, (2,), 4),
        (3, 1, (2, 2, 2, 2), 7),
        (2, 9, (9,), 3),
    ],
)
def test_append_that_begins_before_the_log_is_taken_from_where_the_log_begins(
    prev: int, prev_term: int, terms: tuple[int, ...], match: int
) -> None:
    """What lies before is committed, and so equal; late and repeated ones arrive at any time (flaw 8)."""
    raft = compacted_follower()
    if prev_term == 9:
        with pytest.raises(ProtocolError, match="committed"):
            hear(raft, 1, append(9, prev, prev_term, terms))
        return
    (reply,) = of_kind(hear(raft, 1, append(2, prev, prev_term, terms)), AppendEntriesReply)
    assert (reply.accepted, reply.match_index) == (True, match)
    assert raft.log.last_index == max(6, match)
    assert raft.log.first_index == 4


def test_hint_near_the_base_is_not_below_what_is_committed() -> None:
    raft = compacted_follower()
    (reply,) = of_kind(hear(raft, 1, append(3, 6, 3, (3,))), AppendEntriesReply)
    assert (reply.accepted, reply.conflict_index, reply.conflict_term) == (False, 6, 2)


# -- restoring


def test_restore_replaces_the_log_and_tells_the_leader_when_durable() -> None:
    raft = follower((1, 1))
    assert raft.restore(meta_of(9, 1)) is True
    assert (raft.log.first_index, raft.log.last_index, raft.commit_index) == (10, 9, 9)
    assert raft.membership == FOUR
    assert raft.members_changed_index == 9
    assert raft.applicable_index < 9
    ready = raft.ready()
    assert ready.write is not None
    assert ready.write.restore == meta_of(9, 1)
    assert (ready.write.truncate_from, ready.write.entries) == (None, ())
    assert of_kind(ready.messages, AppendEntriesReply) == []
    raft.persisted(ready.write.number)
    assert raft.durable_index == raft.applicable_index == 9
    (reply,) = of_kind(raft.ready().messages, AppendEntriesReply)
    assert reply.conflict_index == 10
    assert not reply.accepted


def test_restored_follower_and_its_leader_find_each_other_without_waiting() -> None:
    """Chapter 5: one question and its answer; nothing is taken for acknowledged that was not compared."""
    raft = leader_of((1,) * 9, 2)
    hear(raft, 3, AppendEntriesReply(GROUP, 2, False, 0, prev_log_index=9, conflict_index=1))
    raft.compact(8)
    drain(raft)
    behind = make_raft(3)
    hear(behind, 1, Heartbeat(GROUP, 2, 1, 0))
    assert so_far(raft.followers_needing_snapshot) == (3,)
    assert behind.restore(SnapshotMeta(8, 1, 9, membership_of((1, 2, 3)).encode()))
    to_leader = [m for to, m in drain(behind) if to == 1]
    for _ in range(3):
        to_follower = [m for message in to_leader for to, m in hear(raft, 3, message) if to == 3]
        to_leader = [m for message in to_follower for to, m in hear(behind, 1, message) if to == 1]
    assert row(raft, 3).match_index == raft.log.last_index == behind.commit_index
    assert row(raft, 3).state is ProgressState.REPLICATE
    assert raft.followers_needing_snapshot == ()


def test_lost_word_of_a_restored_follower_is_made_up_for_by_its_heartbeat_replies() -> None:
    raft = leader_of((1,) * 9, 2)
    hear(raft, 3, AppendEntriesReply(GROUP, 2, False, 0, prev_log_index=9, conflict_index=1))
    raft.compact(8)
    drain(raft)
    asked: list[AppendEntries] = []
    for _ in range(2 * TIMEOUT // 10):
        raft.tick(10)
        messages = drain(raft)
        asked += of_kind(messages, AppendEntries, to=3)
        for each in (2, 3):
            asked += of_kind(hear(raft, each, HeartbeatReply(GROUP, 2, raft.round, 8)), AppendEntries, to=3)
    assert asked
    assert {each.prev_log_index for each in asked} == {8}


def test_follower_whose_snapshot_fell_behind_the_log_needs_another_one() -> None:
    raft = leader_of((1,) * 9, 2)
    hear(raft, 3, AppendEntriesReply(GROUP, 2, False, 0, prev_log_index=9, conflict_index=1))
    raft.compact(8)
    drain(raft)
    hear(raft, 3, AppendEntriesReply(GROUP, 2, True, 5))  # what it restored is older than our log by now
    assert raft.followers_needing_snapshot == (3,)
    drain(raft)
    assert row(raft, 3).state is ProgressState.SNAPSHOT


@pytest.mark.parametrize("index", [1, 4, 5])
def test_late_snapshot_takes_nothing_back(index: int) -> None:
    """Flaw 13: of whatever term; below or at what is committed it changes nothing."""
    raft = follower((1, 1, 2, 2, 2), commit=5)
    hear(raft, 1, append(2, 5, 2, (2,), commit=5))
    before = (raft.log.first_index, raft.log.last_index, raft.commit_index, raft.term)
    assert raft.commit_index == 5
    assert raft.restore(meta_of(index, 9)) is False
    assert (raft.log.first_index, raft.log.last_index, raft.commit_index, raft.term) == before
    assert raft.ready().write is None


def test_snapshot_of_an_entry_in_the_log_commits_it_and_keeps_what_follows() -> None:
    """Section 5, and flaw 13: "retain the entries following it"."""
    raft = follower((1, 1, 2, 2))
    assert raft.restore(meta_of(3, 2)) is False
    assert (raft.commit_index, raft.log.first_index, raft.log.last_index) == (3, 1, 4)
    assert raft.ready().write is None


def test_log_that_contradicts_the_snapshot_goes_as_a_whole() -> None:
    """Same index, another term: nothing behind it can be right either."""
    raft = follower((1, 2, 2, 2, 2))
    assert raft.restore(meta_of(3, 1)) is True
    assert (raft.log.first_index, raft.log.last_index, raft.log.last_term) == (4, 3, 1)


def test_restore_while_writes_are_under_way_counts_none_of_them_as_the_snapshot() -> None:
    """D-7: what was written before, and is dropped by the restore, makes nothing durable."""
    raft = follower((1,))
    raft.step(ServerId(1), instance_of(1), append(1, 1, 1, (1, 1, 1, 1)))
    first = raft.ready().write
    raft.step(ServerId(1), instance_of(1), append(1, 5, 1, (1,)))
    assert first is not None
    assert raft.restore(meta_of(20, 1)) is True
    raft.persisted(first.number)
    assert raft.durable_index == 5
    replies = of_kind(raft.ready().messages, AppendEntriesReply)
    assert [reply.match_index for reply in replies if reply.accepted] == [5], (
        "true when it was sent, and still"
    )
    raft.step(ServerId(1), instance_of(1), append(1, 20, 1, (1,)))
    messages = drain(raft)
    assert raft.durable_index == 21
    assert of_kind(messages, AppendEntriesReply)[-1].match_index == 21


def test_restore_of_a_longer_log_under_way_does_not_count_its_length() -> None:
    """The write that is under way ends at 6; the log anew at 3. Six is not durable, whatever the disk says."""
    raft = follower((1,))
    raft.step(ServerId(1), instance_of(1), append(1, 1, 1, (1, 1, 1, 1, 1)))
    write = raft.ready().write
    assert write is not None
    assert raft.restore(meta_of(3, 4)) is True
    raft.persisted(write.number)
    assert raft.durable_index == 2
    restored = raft.ready().write
    assert restored is not None
    assert restored.hard_state == HardState(4, None), "the log must not be ahead of the term"
    raft.persisted(restored.number)
    assert raft.durable_index == 3


def test_restore_and_appends_of_one_turn_share_a_write() -> None:
    raft = follower((1,))
    raft.restore(meta_of(9, 1))
    raft.step(ServerId(1), instance_of(1), append(1, 9, 1, (1, 1)))
    write = raft.ready().write
    assert write is not None
    assert write.restore is not None
    assert [entry.index for entry in write.entries] == [10, 11]


def test_entries_dropped_within_the_turn_of_a_restore_are_not_written() -> None:
    raft = follower((1,))
    raft.restore(meta_of(9, 1))
    raft.step(ServerId(1), instance_of(1), append(1, 9, 1, (1, 1)))
    raft.step(ServerId(3), instance_of(3), append(2, 9, 1, (2,)))
    write = raft.ready().write
    assert write is not None
    assert (write.truncate_from, [(e.index, e.term) for e in write.entries]) == (None, [(10, 2)])


def test_log_that_begins_after_a_snapshot_of_a_later_term_takes_that_term() -> None:
    """Flaw 14: a crash between the durable snapshot and the write that follows it."""
    log = Log(first_index=10, base_term=4, base_position=10, base_membership=FOUR.encode())
    raft = make_raft(2, log=log, term=2, voted_for=3)
    assert raft.term == 4
    write = raft.ready().write
    assert write is not None
    assert write.hard_state == HardState(4, None)
    with pytest.raises(StorageError, match="hard state"):
        make_raft(2, terms=(1, 4), term=2)


def test_snapshot_whose_membership_cannot_be_read_changes_nothing() -> None:
    raft = follower((1, 1))
    with pytest.raises(ProtocolError, match="MEMBERSHIP"):
        raft.restore(evolve(meta_of(9, 1), membership=b"?"))
    assert (raft.log.last_index, raft.commit_index) == (2, 0)
    assert raft.ready().write is None


def test_leader_that_was_replaced_and_restores_leads_no_longer() -> None:
    """A log that lacks what is committed cannot lead (section 5.4 of the paper)."""
    raft = make_raft(1, terms=(1,))
    lead(raft)
    assert raft.restore(meta_of(20, 5)) is True
    assert raft.role is Role.FOLLOWER
    assert raft.term == 5
