"""What may follow what in a group's records."""

from __future__ import annotations

import pytest

from tests.so_far import so_far
from zraft.raft.messages import Entry, EntryKind, HardState
from zraft.storage.group_log import GroupLog
from zraft.storage.records import EntryRecord, HardStateRecord, TruncateRecord
from zraft_core.ids import GroupId, ServerId

G = GroupId(0)


def entry(index: int, term: int, position: int = 1) -> EntryRecord:
    return EntryRecord(G, Entry(index, term, EntryKind.NOOP, position, 0, b""))


def log_with(*terms: int) -> GroupLog:
    log = GroupLog()
    for index, term in enumerate(terms, 1):
        assert log.problem(entry(index, term)) is None
        log.apply(entry(index, term))
    return log


def test_entries_are_contiguous_and_terms_do_not_decrease() -> None:
    log = log_with(1, 1, 3)
    assert log.problem(entry(5, 3)) == "entry 5 after entry 3"
    assert log.problem(entry(3, 3)) == "entry 3 after entry 3"
    assert log.problem(entry(4, 2)) == "entry 4 has term 2 after term 3"
    assert GroupLog().problem(entry(1, 0)) == "entry 1 has term 0 after term 0"
    assert log.problem(entry(4, 3, 7)) == "entry 4 has position 7, expected 1"
    assert log.problem(entry(4, 3)) is None


def test_term_of_every_index_is_known_and_forgotten_with_the_entries() -> None:
    log = log_with(1, 1, 3, 3, 7)
    assert so_far(log.term_runs) == ((1, 1), (3, 3), (5, 7))
    assert [log.term_at(index) for index in range(6)] == [0, 1, 1, 3, 3, 7]
    log.apply(TruncateRecord(G, 4))
    assert (log.last_index, log.last_term, log.term_runs) == (3, 3, ((1, 1), (3, 3)))
    log.apply(TruncateRecord(G, 3))
    assert (log.last_term, log.term_runs) == (1, ((1, 1),))
    log.apply(TruncateRecord(G, 1))
    assert (log.last_index, log.last_term, log.term_runs, log.next_position) == (0, 0, (), 1)


@pytest.mark.parametrize("from_index", [0, -1, 4])
def test_truncation_outside_of_the_log_is_refused(from_index: int) -> None:
    assert log_with(1, 1, 3).problem(TruncateRecord(G, from_index)) is not None


def test_term_never_goes_back_and_a_vote_is_given_once() -> None:
    """The vote is part of the term's record: two votes in one term make two leaders."""
    log = GroupLog()
    log.apply(HardStateRecord(G, HardState(4, None)))
    assert log.problem(HardStateRecord(G, HardState(4, ServerId(2)))) is None
    log.apply(HardStateRecord(G, HardState(4, ServerId(2))))
    assert log.problem(HardStateRecord(G, HardState(4, ServerId(2)))) is None
    assert (
        log.problem(HardStateRecord(G, HardState(4, ServerId(3))))
        == "vote for 3 in term 4 after the vote for 2"
    )
    assert log.problem(HardStateRecord(G, HardState(4, None))) is not None
    assert log.problem(HardStateRecord(G, HardState(3, ServerId(2)))) == "term 3 after term 4"
    assert log.problem(HardStateRecord(G, HardState(5, ServerId(3)))) is None


def test_fork_leaves_the_original_alone() -> None:
    log = log_with(1, 2)
    fork = log.fork()
    fork.apply(TruncateRecord(G, 1))
    fork.apply(entry(1, 9))
    fork.apply(HardStateRecord(G, HardState(9, None)))
    assert (log.last_index, log.term_runs, log.hard_state) == (2, ((1, 1), (2, 2)), HardState())
