"""Survey of one server's write-ahead log, record by record: each group's standpoint, by segment and term.

Pure: records in, values out. Planning an audit needs this of every server before anything can be said about
any entry: what was truncated later, and what a majority has. It keeps no entries, only runs of equal terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import Factory, define, evolve, frozen

from onyxlog.audits.tables.hard_states import HardStateRow
from onyxlog.audits.tables.members import MembershipRow
from onyxlog.audits.tables.truncations import TruncationRow
from zraft.raft.membership.value import Membership
from zraft.raft.messages import EntryKind, Member, MemberRole
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.records import (
    BaseRecord,
    EntryFields,
    ForgetRecord,
    HardStateRecord,
    Record,
    RestoreRecord,
    RosterRecord,
    TruncateRecord,
)
from zraft_core.ids import Instance, ServerId

Runs = tuple[tuple[int, int], ...]
"""(first index, term) of each run of entries of equal term, ascending."""
_FRAME_BITS: Final = 32
_RECORD_MASK: Final = (1 << _FRAME_BITS) - 1
MEMBERSHIP: Final = int(EntryKind.MEMBERSHIP)


@frozen
class Configuration:
    """A configuration and the entry in which it stands; it counts from there on."""

    index: int
    term: int
    membership: Membership


@frozen
class Cut:
    """A truncation: entries of `group` from `from_index` on that were written before `order` are no longer in the log.

    `reached`: per term, how far this server had acknowledged to that term's leader before.
    """

    group: int
    from_index: int
    order: int
    reached: tuple[tuple[int, int], ...]


@frozen
class Standpoint:
    """A group's log between two records.

    Attributes:
        first: index of the first entry that it may hold: one above what it begins after.
        runs: of its entries, with a run for the entry that it begins after, if that is known.
        reached: per term, the highest index that was appended in it while the server was in that term: what it has
            acknowledged, or could have, to the leader of that term.
    """

    term: int = 0
    voted_for: int | None = None
    first: int = 1
    last_index: int = 0
    last_term: int = 0
    runs: Runs = ()
    reached: tuple[tuple[int, int], ...] = ()
    configurations: tuple[Configuration, ...] = ()

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry that it holds, or of the one that it begins after; None if it knows of neither."""
        return term_in(self.runs, index) if self.first - 1 <= index <= self.last_index else None


def term_in(runs: Runs, index: int) -> int | None:
    """Return the term of the run that `index` lies in; None before the first."""
    low, high = 0, len(runs)
    while low < high:
        middle = (low + high) // 2
        if runs[middle][0] <= index:
            low = middle + 1
        else:
            high = middle
    return runs[low - 1][1] if low else None


@define
class _Group:
    """A group while it is read."""

    term: int = 0
    voted_for: int | None = None
    first: int = 1
    last_index: int = 0
    last_term: int = 0
    runs: list[tuple[int, int]] = Factory(list)
    reached: dict[int, int] = Factory(dict)
    configurations: list[Configuration] = Factory(list)

    def frozen(self) -> Standpoint:
        return Standpoint(
            self.term,
            self.voted_for,
            self.first,
            self.last_index,
            self.last_term,
            tuple(self.runs),
            tuple(sorted(self.reached.items())),
            tuple(self.configurations),
        )

    def begin_after(self, meta: SnapshotMeta) -> None:
        """Note that the log is empty, and continues after a snapshot."""
        self.first, self.last_index, self.last_term = meta.index + 1, meta.index, meta.term
        self.runs = [(meta.index, meta.term)] if meta.index else []
        if meta.membership:
            self.configurations = [Configuration(meta.index, meta.term, Membership.decode(meta.membership))]

    def cut(self, from_index: int) -> None:
        while self.runs and self.runs[-1][0] >= from_index:
            self.runs.pop()
        while self.configurations and self.configurations[-1].index >= from_index:
            self.configurations.pop()
        self.last_index = from_index - 1
        self.last_term = self.runs[-1][1] if self.runs else 0
        for term, index in self.reached.items():
            if index >= from_index:
                self.reached[term] = from_index - 1


@frozen
class Spot:
    """The place of a record."""

    file: str
    file_offset: int
    frame: int


class Survey:
    """One server's log as far as it was read.

    `order` is the place of the last record: its frame's number and its own in that, so that it is the same
    wherever the reading began; 0 before the first.
    """

    def __init__(self, server: int, instance: str) -> None:
        self.server = server
        self.instance = instance
        self.order = 0
        self.cuts: list[Cut] = []
        self.hard_states: list[HardStateRow] = []
        self.truncations: list[tuple[TruncationRow, Cut]] = []
        self.members: list[tuple[MembershipRow, int]] = []
        """Configurations, each with its `order`."""
        self._groups: dict[int, _Group] = {}
        self._proven: dict[int, dict[int, int]] = {}

    def standpoints(self) -> dict[int, Standpoint]:
        """Return the present standpoint of every group."""
        return {group: state.frozen() for group, state in self._groups.items()}

    def resume(self, order: int, standpoints: Mapping[int, Standpoint]) -> None:
        """Continue from the state of another survey of the same log."""
        self.order = order
        for group, point in standpoints.items():
            self._proven[group] = {}
            self._groups[group] = _Group(
                point.term,
                point.voted_for,
                point.first,
                point.last_index,
                point.last_term,
                list(point.runs),
                dict(point.reached),
                list(point.configurations),
            )

    def before(self, group: int) -> tuple[int, int]:
        """Return (term of the last entry, term of the server) in a group."""
        state = self._groups.get(group)
        return (0, 0) if state is None else (state.last_term, state.term)

    def proven(self, group: int) -> dict[int, int]:
        """Return, per term, the highest index that this server ever held while in that term.

        It counts, too, if the entry was truncated later.
        """
        return self._proven.get(group, {})

    def take_entry(self, fields: EntryFields, spot: Spot) -> None:
        """Take an ENTRY record as unpacked; by far the most records are entries."""
        self._count(spot.frame)
        _, group, index, term, kind, _, _, payload = fields
        state = self._group(group)
        if term != state.last_term:
            state.runs.append((index, term))
            state.last_term = term
        state.last_index = index
        if state.term == term:
            state.reached[term] = index
            proven = self._proven[group]
            if index > proven.get(term, 0):
                proven[term] = index
        if kind == MEMBERSHIP:
            membership = Membership.decode(payload)
            state.configurations.append(Configuration(index, term, membership))
            row = self._members_row(group, index, term, membership, "entry", spot)
            self.members.append((row, self.order))

    def take(self, record: Record | BaseRecord, spot: Spot, *, oldest: bool) -> None:
        """Take any other record; `oldest`: it stands in the first segment that is read."""
        self._count(spot.frame)
        group = int(record.group)
        match record:
            case HardStateRecord(_, hard_state):
                state = self._group(group)
                state.term, state.voted_for = hard_state.term, hard_state.voted_for
                self._note_hard_state(group, state, spot, restated=False)
            case TruncateRecord(_, from_index):
                self._note_cut(group, "truncate", from_index, 0, spot)
                self._group(group).cut(from_index)
            case RestoreRecord(_, meta):
                self._note_cut(group, "restore", meta.index + 1, meta.term, spot)
                self._group(group).begin_after(meta)
                self._note_base(group, meta, "restore", spot)
            case ForgetRecord():
                self._note_cut(group, "forget", 0, 0, spot)
                self._groups.pop(group, None)
            case BaseRecord(_, hard_state, roster, log):
                if not oldest or group in self._groups:
                    return
                state = self._group(group)
                state.term, state.voted_for = hard_state.term, hard_state.voted_for
                state.begin_after(log)
                if roster and not state.configurations:
                    self._note_founders(group, state, roster, spot)
                self._note_hard_state(group, state, spot, restated=True)
                self._note_base(group, log, "base", spot)
            case RosterRecord(_, roster):
                state = self._group(group)
                if not state.configurations:
                    self._note_founders(group, state, roster, spot)

    @property
    def record(self) -> int:
        """The number of the last record in its frame, from 0."""
        return self.order & _RECORD_MASK

    def order_of(self, frame: int) -> int:
        """Return what `order` will be after the first record of the next frame."""
        return frame << _FRAME_BITS

    def _count(self, frame: int) -> None:
        self.order = self.order + 1 if self.order >> _FRAME_BITS == frame else frame << _FRAME_BITS

    def _group(self, group: int) -> _Group:
        state = self._groups.get(group)
        if state is None:
            state = self._groups[group] = _Group()
            self._proven.setdefault(group, {})
        return state

    def _note_hard_state(self, group: int, state: _Group, spot: Spot, *, restated: bool) -> None:
        self.hard_states.append(
            HardStateRow(
                server=self.server, instance=self.instance, file=spot.file, file_offset=spot.file_offset,
                group=group, frame=spot.frame, record=self.record, term=state.term, voted_for=state.voted_for,
                restated=restated, last_index=state.last_index, last_term=state.last_term,
            )
        )  # fmt: skip

    def _note_cut(self, group: int, cause: str, from_index: int, term: int, spot: Spot) -> None:
        state = self._group(group)
        cut = Cut(group, from_index, self.order, tuple(sorted(state.reached.items())))
        self.cuts.append(cut)
        row = TruncationRow(
            server=self.server, instance=self.instance, file=spot.file, file_offset=spot.file_offset,
            group=group, frame=spot.frame, record=self.record, cause=cause, from_index=from_index, term=term,
            last_index=state.last_index, last_term=state.last_term,
        )  # fmt: skip
        self.truncations.append((row, cut))

    def _note_base(self, group: int, meta: SnapshotMeta, source: str, spot: Spot) -> None:
        if meta.index and meta.membership:
            membership = Membership.decode(meta.membership)
            row = self._members_row(group, meta.index, meta.term, membership, source, spot)
            self.members.append((row, self.order))

    def _note_founders(
        self, group: int, state: _Group, roster: Sequence[tuple[ServerId, Instance]], spot: Spot
    ) -> None:
        """Note who created the group: that counts until the log names a configuration."""
        founders = Membership({server: Member(instance) for server, instance in roster})
        state.configurations.append(Configuration(0, 0, founders))
        self.members.append((self._members_row(group, 0, 0, founders, "founders", spot), self.order))

    def _members_row(
        self, group: int, index: int, term: int, membership: Membership, source: str, spot: Spot
    ) -> MembershipRow:
        members = membership.members

        def having(role: MemberRole) -> tuple[int, ...]:
            return tuple(int(server) for server, member in members.items() if member.role is role)

        return MembershipRow(
            server=self.server, instance=self.instance, file=spot.file, file_offset=spot.file_offset,
            group=group, index=index, term=term, source=source, frame=spot.frame, record=self.record,
            servers=tuple(map(int, members)), instances=tuple(m.instance.hex() for m in members.values()),
            voters=tuple(map(int, membership.voters)), learners=having(MemberRole.LEARNER),
            observers=having(MemberRole.OBSERVER), leaving=having(MemberRole.LEAVING),
            outgoing=tuple(map(int, membership.outgoing)),
        )  # fmt: skip


def is_cut(cuts: Sequence[Cut], group: int, index: int, order: int) -> bool:
    """Return whether the entry `index`, written as record number `order`, was truncated later."""
    return any(cut.order > order and cut.group == group and index >= cut.from_index for cut in cuts)


def with_committed(row: TruncationRow, cut: Cut, commit_in_term: dict[int, int]) -> TruncationRow:
    """Return the row with how far this server had been part of what is committed: nothing up to there may be truncated.

    What it held in a term, and was committed in that term, every later leader has; so it can never conflict
    again. What was committed in another term may have been missing here, or have been truncated before it was
    committed.
    """
    committed = max((min(index, commit_in_term.get(term, 0)) for term, index in cut.reached), default=0)
    return evolve(row, committed_index=committed)
