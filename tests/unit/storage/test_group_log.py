"""What may follow what in a group's records."""

from __future__ import annotations

import pytest

from tests.so_far import so_far
from zraft.raft.messages import HardState
from zraft.storage.group_log import GroupLog
from zraft.storage.records import HardStateRecord, RosterRecord, TruncateRecord
from zraft_core.ids import GroupId, Instance, ServerId

G = GroupId(0)


def append(log: GroupLog, index: int, term: int, position: int = 1) -> str | None:
    return log.append(index, term, position, 0)


def log_with(*terms: int) -> GroupLog:
    log = GroupLog()
    for index, term in enumerate(terms, 1):
        assert append(log, index, term) is None
    return log


def state(log: GroupLog) -> list[object]:
    return [getattr(log, name) for name in GroupLog.__slots__]


def test_entries_are_contiguous_and_terms_do_not_decrease() -> None:
    log = log_with(1, 1, 3)
    before = state(log)
    assert append(log, 5, 3) == "entry 5 after entry 3"
    assert append(log, 3, 3) == "entry 3 after entry 3"
    assert append(log, 4, 2) == "entry 4 has term 2 after term 3"
    assert append(GroupLog(), 1, 0) == "entry 1 has term 0 after term 0"
    assert append(log, 4, 3, 7) == "entry 4 has position 7, expected 1"
    assert state(log) == before, "what is refused changes nothing"
    assert append(log, 4, 3) is None
    assert state(log) != before


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


def test_a_copy_is_equal_and_leaves_the_original_alone() -> None:
    log = log_with(1, 2)
    log.apply(RosterRecord(G, ((ServerId(1), Instance(bytes(16))),)))
    copy, before = GroupLog(log), state(log)
    assert state(copy) == before
    copy.apply(TruncateRecord(G, 1))
    assert append(copy, 1, 9) is None
    copy.apply(HardStateRecord(G, HardState(9, None)))
    copy.apply(RosterRecord(G, ()))
    assert state(log) == before
