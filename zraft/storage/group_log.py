"""The rules a group's records obey, one after the other: what may follow what. Pure.

Checked twice, by the same code: before a frame is written, where a violation is our own mistake, and
when it is read back, where it is corruption.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from zraft.raft.messages import NO_INDEX, Entry, HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.records import (
    BaseRecord,
    ForgetRecord,
    HardStateRecord,
    OtherRecord,
    RestoreRecord,
    Roster,
    RosterRecord,
    TruncateRecord,
)

NO_BASE: Final = SnapshotMeta(NO_INDEX, 0, 1, b"")
"""The base of a log that is whole."""


class GroupLog:
    """Shape of one group's log: everything but the entries themselves.

    The log holds the entries after `base`. `term_runs` is a tuple of (first_index, term), one per run of entries of equal
    term; with it the term of any index is known. `memberships` are the MEMBERSHIP entries after the base.
    `next_position` is None while it is unknown, after a truncation only.
    """

    __slots__ = (
        "base",
        "hard_state",
        "last_index",
        "last_term",
        "memberships",
        "next_position",
        "roster",
        "term_runs",
    )

    def __init__(self, like: GroupLog | None = None) -> None:
        """Make an empty log, or a copy on which records can be tried. It is cheap: all that a log holds is immutable."""
        if like is None:
            self.hard_state = HardState()
            self.roster: Roster | None = None
            self.base = NO_BASE
            self.last_index = NO_INDEX
            self.last_term = 0
            self.next_position: int | None = 1
            self.term_runs: tuple[tuple[int, int], ...] = ()
            self.memberships: tuple[Entry, ...] = ()
        else:
            self.hard_state = like.hard_state
            self.roster = like.roster
            self.base = like.base
            self.last_index = like.last_index
            self.last_term = like.last_term
            self.next_position = like.next_position
            self.term_runs = like.term_runs
            self.memberships = like.memberships

    @classmethod
    def from_base(cls, record: BaseRecord) -> GroupLog:
        """Return an empty log that begins where `record` says the older segments ended."""
        log = cls()
        log.hard_state = record.hard_state
        log.roster = record.roster
        log.restore(record.log)
        return log

    def term_at(self, index: int) -> int:
        """Return the term of the entry at `index`, of the base at the base's index."""
        assert self.base.index <= index <= self.last_index, (
            f"{index=} outside [{self.base.index}, {self.last_index}]"
        )
        run = bisect_right(self.term_runs, index, key=_first_index)
        return self.term_runs[run - 1][1] if run else self.base.term

    @property
    def is_blank(self) -> bool:
        """True if nothing was written since the beginning, or since the group was forgotten."""
        return self.last_index == NO_INDEX and self.roster is None and self.hard_state == HardState()

    @property
    def membership(self) -> bytes:
        """Payload of the newest MEMBERSHIP entry, in the log or before it; empty if there never was one."""
        return self.memberships[-1].payload if self.memberships else self.base.membership

    @property
    def end(self) -> SnapshotMeta:
        """The position at which the log ends; `next_position` must be known."""
        assert self.next_position is not None
        return SnapshotMeta(self.last_index, self.last_term, self.next_position, self.membership)

    def append(self, index: int, term: int, position: int, count: int) -> str | None:
        """Append an entry of these numbers, or return why it may not come next: nothing has changed then.

        The caller adds it to `memberships` if it is one.
        """
        if index != self.last_index + 1:
            return f"entry {index} after entry {self.last_index}"
        if term < self.last_term or term == 0:
            return f"entry {index} has term {term} after term {self.last_term}"
        if position != self.next_position and (self.next_position is not None or position < 1):
            return f"entry {index} has position {position}, expected {self.next_position}"
        if term != self.last_term or not self.term_runs:
            self.term_runs = (*self.term_runs, (index, term))
            self.last_term = term
        self.last_index = index
        self.next_position = position + count
        return None

    def problem(self, record: OtherRecord) -> str | None:
        """Return why `record` may not come next, or None."""
        match record:
            case HardStateRecord(_, hard_state):
                return self._problem_with_hard_state(hard_state)
            case TruncateRecord(_, from_index):
                if not self.base.index < from_index <= self.last_index:
                    begins = f"begins after {self.base.index} and " if self.base.index else ""
                    return f"truncation from {from_index} of a log that {begins}ends at {self.last_index}"
            case RestoreRecord(_, meta):
                if meta.index <= NO_INDEX or meta.term <= 0 or meta.next_position < 1:
                    return (
                        f"restored to entry {meta.index} of term {meta.term}, position {meta.next_position}"
                    )
            case RosterRecord() | ForgetRecord():
                pass
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

    def problem_with_base(self, record: BaseRecord) -> str | None:
        """Return why `record` contradicts this log, or None."""
        restated, log = record.log, self.end if self.next_position is not None else None
        for what, found, expected in (
            ("hard state", record.hard_state, self.hard_state),
            ("roster", record.roster, self.roster),
            ("last index", restated.index, self.last_index),
            ("last term", restated.term, self.last_term),
            ("position", restated.next_position, log.next_position if log else restated.next_position),
            ("membership", restated.membership, self.membership),
        ):
            if found != expected:
                return f"restated with {what} {found!r}, expected {expected!r}"
        return None

    def apply(self, record: OtherRecord) -> None:
        """Take a record that has no problem."""
        match record:
            case HardStateRecord(_, hard_state):
                self.hard_state = hard_state
            case TruncateRecord(_, from_index):
                self.truncate(from_index, None)
            case RestoreRecord(_, meta):
                self.restore(meta)
            case RosterRecord(_, roster):
                self.roster = roster
            case ForgetRecord():
                self.forget()

    def truncate(self, from_index: int, next_position: int | None) -> None:
        """Forget `from_index` and above; `next_position` is that of the new last entry, where known."""
        self.last_index = from_index - 1
        runs = bisect_right(self.term_runs, self.last_index, key=_first_index)
        self.term_runs = self.term_runs[:runs]
        self.last_term = self.term_runs[-1][1] if runs else self.base.term
        self.next_position = self.base.next_position if self.last_index == self.base.index else next_position
        if self.memberships and self.memberships[-1].index >= from_index:
            self.memberships = tuple(entry for entry in self.memberships if entry.index < from_index)

    def restore(self, base: SnapshotMeta) -> None:
        """Drop everything; the log begins after `base`."""
        self.base = base
        self.last_index = base.index
        self.last_term = base.term
        self.next_position = base.next_position
        self.term_runs = ()
        self.memberships = ()

    def forget(self) -> None:
        """Forget everything, as if there had never been a record."""
        self.hard_state = HardState()
        self.roster = None
        self.restore(NO_BASE)

    def compact(self, base: SnapshotMeta) -> None:
        """Forget the entries up to `base.index`, which are of this log."""
        index = base.index
        assert self.term_at(index) == base.term, f"{base=} is not of this log"
        runs = tuple(run for run in self.term_runs if run[0] > index)
        if index < self.last_index and (not runs or runs[0][0] != index + 1):
            runs = ((index + 1, self.term_at(index + 1)), *runs)
        self.term_runs = runs
        self.memberships = tuple(entry for entry in self.memberships if entry.index > index)
        if index == self.last_index:
            self.next_position = base.next_position
        self.base = base


def _first_index(run: tuple[int, int]) -> int:
    return run[0]
