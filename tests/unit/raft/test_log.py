"""The log: terms and contents, in memory and in the archive."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.so_far import so_far
from tests.unit.raft.network import entries_of, membership_of
from zraft.raft.log import ENTRY_OVERHEAD_BYTES, Log, entry_bytes
from zraft.raft.messages import Entry, EntryKind
from zraft_core.errors import StorageError


def archive_of(entries: Sequence[Entry]):  # type: ignore[no-untyped-def]
    """A disk that holds these entries and gives two at a time."""

    def read(lo: int, hi: int, bytes_max: int) -> Sequence[Entry]:
        return [entry for entry in entries if lo <= entry.index < hi][:2]

    return read


TERMS = st.lists(st.integers(0, 3), max_size=30).map(
    lambda steps: [1 + sum(steps[:n]) for n in range(len(steps))]
)


@given(TERMS, st.integers(0, 30), st.integers(0, 30), TERMS)
def test_log_behaves_as_a_list_through_eviction_and_truncation(
    terms: list[int], evicted: int, cut: int, more: list[int]
) -> None:
    model = list(entries_of(terms))
    log = Log(entries=model, archive=archive_of(list(model)))
    log.evict_to(evicted)
    if 1 <= cut <= len(model):
        log.truncate_from(cut)
        del model[cut - 1 :]
    for term in more:
        (entry,) = entries_of([term + log.last_term], log.last_index + 1)
        log.append(entry)
        model.append(entry)
    assert log.last_index == len(model)
    assert log.last_term == (model[-1].term if model else 0)
    assert log.next_position == len(model) + 1
    assert [log.term_at(index) for index in range(len(model) + 1)] == [0, *(entry.term for entry in model)]
    assert [log.entry(index) for index in range(1, len(model) + 1)] == model
    assert log.bytes_in_memory == sum(map(entry_bytes, model[log.memory_index - 1 :]))
    for index, entry in enumerate(model, 1):
        first = log.first_index_of_term_at(index)
        assert model[first - 1].term == entry.term
        assert first == 1 or model[first - 2].term < entry.term
        for term in (0, entry.term, entry.term + 1):
            below = [other.index for other in model[:index] if other.term <= term]
            assert log.last_index_of_term_at_most(term, index) == max(below, default=0)


def test_slice_is_bounded_in_bytes_but_never_empty() -> None:
    log = Log(entries=entries_of([1] * 5))
    size = len(log.entry(1).payload) + ENTRY_OVERHEAD_BYTES
    assert [entry.index for entry in log.slice(2, 6, 3 * size)] == [2, 3, 4]
    assert [entry.index for entry in log.slice(2, 6, 3 * size - 1)] == [2, 3]
    assert [entry.index for entry in log.slice(2, 6, 1)] == [2]


def test_slice_of_evicted_entries_reads_the_archive_and_ends_where_memory_begins() -> None:
    entries = entries_of([1] * 6)
    log = Log(entries=entries, archive=archive_of(entries))
    log.evict_to(3)
    assert log.memory_index == 4
    assert [entry.index for entry in log.slice(1, 7, 10_000)] == [1, 2]
    assert [entry.index for entry in log.slice(3, 7, 10_000)] == [3]
    assert [entry.index for entry in log.slice(4, 7, 10_000)] == [4, 5, 6]


def test_the_newest_entries_may_stay_in_memory_as_far_as_they_are_asked_to() -> None:
    entries = entries_of([1] * 6)
    log = Log(entries=entries, archive=archive_of(entries))
    size = entry_bytes(entries[0])
    log.evict_to(5, 2 * size)
    assert (log.memory_index, log.bytes_in_memory) == (5, 2 * size)
    log.evict_to(2, 0)
    assert log.memory_index == 5
    log.evict_to(5)
    assert (log.memory_index, log.bytes_in_memory) == (6, size), "what was not to go is still here"


def test_log_begins_after_a_snapshot() -> None:
    entries = entries_of([3, 4], first_index=11)
    log = Log(entries=entries, first_index=11, base_term=2, base_position=11)
    assert [log.term_at(index) for index in (10, 11, 12)] == [2, 3, 4]
    assert log.last_index_of_term_at_most(1, 12) == 10
    empty = Log(first_index=11, base_term=2, base_position=77)
    assert (empty.last_index, empty.last_term, empty.next_position) == (10, 2, 77)


def test_log_is_recovered_with_its_older_part_in_the_archive() -> None:
    entries = entries_of([1, 1, 2, 3, 3])
    log = Log(entries=entries[3:], archive=archive_of(entries), term_runs=((1, 1), (3, 2)))
    assert [log.term_at(index) for index in range(6)] == [0, 1, 1, 2, 3, 3]
    assert log.entry(2) == entries[1]


def test_newest_membership_follows_append_and_truncation() -> None:
    payload = membership_of((1, 2)).encode()
    first, second = (Entry(index, 1, EntryKind.MEMBERSHIP, 1, 0, payload) for index in (1, 2))
    log = Log(entries=(first, second))
    assert log.memberships[-1] == (second.index, payload)
    log.truncate_from(2)
    assert so_far(log.memberships) == ((first.index, payload),)
    assert log.membership_at(1) == payload
    log.truncate_from(1)
    assert log.memberships == ()


@pytest.mark.parametrize(
    "entries",
    [
        entries_of([1]) + entries_of([1], first_index=3),
        entries_of([2]) + entries_of([1], first_index=2),
        (*entries_of([1]), Entry(2, 1, EntryKind.COMMANDS, 5, 1, b"")),
        entries_of([1], first_index=4),
    ],
    ids=["gap", "term falls", "position", "missing prefix"],
)
def test_what_is_no_log_is_refused(entries: tuple[Entry, ...]) -> None:
    with pytest.raises(StorageError):
        Log(entries=entries)
