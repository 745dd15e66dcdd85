"""The rules a group's records obey, one after the other: what may follow what. Pure.

Checked twice, by the same code: before a frame is written, where a violation is our own mistake, and
when it is read back, where it is corruption.
"""

from __future__ import annotations

from bisect import bisect_right

from zraft.raft.messages import NO_INDEX, HardState
from zraft.storage.records import EntryRecord, HardStateRecord, Record, Roster, RosterRecord, TruncateRecord


class GroupLog:
    """Shape of one group's log: everything but the entries themselves.

    `term_runs` is a tuple of (first_index, term), one per run of entries of equal term; with it the term of
    any index is known. `next_position` is None while it is unknown, after a truncation only.
    """

    __slots__ = ("hard_state", "last_index", "last_term", "next_position", "roster", "term_runs")

    def __init__(self) -> None:
        self.hard_state = HardState()
        self.roster: Roster | None = None
        self.last_index = NO_INDEX
        self.last_term = 0
        self.next_position: int | None = 1
        self.term_runs: tuple[tuple[int, int], ...] = ()

    def fork(self) -> GroupLog:
        """A copy on which records can be tried; cheap, because everything it holds is immutable."""
        log = GroupLog()
        log.hard_state = self.hard_state
        log.roster = self.roster
        log.last_index = self.last_index
        log.last_term = self.last_term
        log.next_position = self.next_position
        log.term_runs = self.term_runs
        return log

    def term_at(self, index: int) -> int:
        """Term of the entry at `index`, 0 before the first."""
        assert NO_INDEX <= index <= self.last_index, f"{index=} beyond {self.last_index=}"
        run = bisect_right(self.term_runs, index, key=_first_index)
        return self.term_runs[run - 1][1] if run else 0

    def problem(self, record: Record) -> str | None:
        """Why `record` may not come next, or None."""
        match record:
            case EntryRecord(_, entry):
                return self.problem_with_entry(entry.index, entry.term, entry.position)
            case HardStateRecord(_, hard_state):
                return self._problem_with_hard_state(hard_state)
            case TruncateRecord(_, from_index):
                if not 1 <= from_index <= self.last_index:
                    return f"truncation from {from_index} of a log that ends at {self.last_index}"
            case RosterRecord():
                pass
        return None

    def problem_with_entry(self, index: int, term: int, position: int) -> str | None:
        """Why an entry of these numbers may not be appended, or None."""
        if index != self.last_index + 1:
            return f"entry {index} after entry {self.last_index}"
        if term < self.last_term or term == 0:
            return f"entry {index} has term {term} after term {self.last_term}"
        if position != self.next_position and (self.next_position is not None or position < 1):
            return f"entry {index} has position {position}, expected {self.next_position}"
        return None

    def _problem_with_hard_state(self, hard_state: HardState) -> str | None:
        old = self.hard_state
        if hard_state.term < old.term:
            return f"term {hard_state.term} after term {old.term}"
        # A second vote in one term is how two leaders of that term come about.
        if (
            hard_state.term == old.term
            and old.voted_for is not None
            and hard_state.voted_for != old.voted_for
        ):
            return f"vote for {hard_state.voted_for} in term {old.term} after the vote for {old.voted_for}"
        return None

    def apply(self, record: Record) -> None:
        """Take a record that has no problem."""
        match record:
            case EntryRecord(_, entry):
                self.append(entry.index, entry.term, entry.next_position)
            case HardStateRecord(_, hard_state):
                self.hard_state = hard_state
            case TruncateRecord(_, from_index):
                self.truncate(from_index, None)
            case RosterRecord(_, roster):
                self.roster = roster

    def append(self, index: int, term: int, next_position: int) -> None:
        """Take an entry that has no problem."""
        if term != self.last_term:
            self.term_runs = (*self.term_runs, (index, term))
            self.last_term = term
        self.last_index = index
        self.next_position = next_position

    def truncate(self, from_index: int, next_position: int | None) -> None:
        """Forget `from_index` and above; `next_position` is that of the new last entry, where known."""
        self.last_index = from_index - 1
        runs = bisect_right(self.term_runs, self.last_index, key=_first_index)
        self.term_runs = self.term_runs[:runs]
        self.last_term = self.term_runs[-1][1] if runs else 0
        self.next_position = 1 if self.last_index == NO_INDEX else next_position


def _first_index(run: tuple[int, int]) -> int:
    return run[0]
