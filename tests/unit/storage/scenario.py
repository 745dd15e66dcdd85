"""A server's storage on a disk, the records it writes, and a plain model of what it has to remember."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

import pytest
from attrs import define, evolve, field

from zraft.raft.messages import Entry, EntryKind, HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import CompactedError
from zraft.storage.filesystem import FileSystem
from zraft.storage.group_log import NO_BASE
from zraft.storage.records import (
    EntryRecord,
    HardStateRecord,
    Record,
    RestoreRecord,
    Roster,
    RosterRecord,
    TruncateRecord,
)
from zraft.storage.recovery import Recovered
from zraft.storage.settings import WalSettings
from zraft.storage.wal import Wal
from zraft_core.ids import GroupId, Instance, ServerId

SERVER = ServerId(1)
GROUP = GroupId(0)
OTHER = GroupId(7 << 32)
PATH = "/data"
SMALL = WalSettings(segment_bytes_max=4096, tail_bytes_max=2000, index_stride_bytes=300, index_points_max=4)


def entropy_of(seed: int) -> Callable[[int], bytes]:
    return Random(seed).randbytes


def open_wal(
    fs: FileSystem,
    path: str = PATH,
    *,
    settings: WalSettings = SMALL,
    seed: int = 1,
    snapshots: Mapping[GroupId, SnapshotMeta] | None = None,
) -> tuple[DataDirectory, Wal, Recovered]:
    directory = DataDirectory.open(fs, path, server=SERVER, entropy=entropy_of(seed))
    wal, recovered = Wal.open(fs, directory, settings=settings, snapshots=snapshots)
    return directory, wal, recovered


def membership_of(entry: Entry) -> list[bytes]:
    return [entry.payload] if entry.kind is EntryKind.MEMBERSHIP else []


@define
class GroupModel:
    """`entries` are those after `base`, compacted ones included; `compacted` is what may no longer be on the disk."""

    hard_state: HardState = field(factory=HardState)
    roster: Roster | None = None
    entries: list[Entry] = field(factory=list)
    base: SnapshotMeta = NO_BASE
    compacted: int = 0

    @property
    def last_index(self) -> int:
        return self.base.index + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else self.base.term

    @property
    def next_position(self) -> int:
        return self.entries[-1].next_position if self.entries else self.base.next_position

    def after(self, index: int) -> list[Entry]:
        """The entries above `index`."""
        return self.entries[index - self.base.index :]

    def meta(self, index: int) -> SnapshotMeta:
        """What a snapshot at `index` says of itself."""
        upto = self.entries[: index - self.base.index]
        if not upto:
            return self.base
        memberships = [payload for entry in upto for payload in membership_of(entry)]
        last = upto[-1]
        newest = memberships[-1] if memberships else self.base.membership
        return SnapshotMeta(last.index, last.term, last.next_position, newest)

    @staticmethod
    def term_runs(entries: list[Entry]) -> tuple[tuple[int, int], ...]:
        runs: list[tuple[int, int]] = []
        for entry in entries:
            if not runs or runs[-1][1] != entry.term:
                runs.append((entry.index, entry.term))
        return tuple(runs)


@define
class Model:
    """A log as lists. `copy` before a write gives both states that a crash during it may leave."""

    groups: dict[GroupId, GroupModel] = field(factory=dict)

    def copy(self) -> Model:
        return Model({id: evolve(group, entries=list(group.entries)) for id, group in self.groups.items()})

    def group(self, id: GroupId) -> GroupModel:
        return self.groups.setdefault(id, GroupModel())

    def apply(self, records: Sequence[Record]) -> None:
        for record in records:
            group = self.group(record.group)
            match record:
                case EntryRecord(_, entry):
                    group.entries.append(entry)
                case HardStateRecord(_, hard_state):
                    group.hard_state = hard_state
                case TruncateRecord(_, from_index):
                    del group.entries[from_index - group.base.index - 1 :]
                case RosterRecord(_, roster):
                    group.roster = roster
                case RestoreRecord(_, meta):
                    group.base = meta
                    group.entries.clear()


def entries(
    model: Model, group: GroupId, term: int, *sizes: int, count: int = 2, kind: EntryKind = EntryKind.COMMANDS
) -> list[EntryRecord]:
    """Records that append entries with payloads of these sizes to the model's group (not yet applied)."""
    state = model.group(group)
    index, position = state.last_index, state.next_position
    records = []
    for size in sizes:
        index += 1
        payload = (b"%d.%d." % (term, index) * (size // 4 + 1))[:size]
        records.append(EntryRecord(group, Entry(index, term, kind, position, count, payload)))
        position += count
    return records


def random_records(model: Model, rng: Random) -> list[Record]:
    """What a driver might write in one turn, valid after the model's state."""
    after = model.copy()
    records: list[Record] = []
    for _ in range(rng.randint(1, 4)):
        group = rng.choice((GROUP, OTHER))
        state = after.group(group)
        more: list[Record]
        match rng.randrange(6):
            case 0:
                more = [
                    HardStateRecord(group, HardState(state.hard_state.term + 1, ServerId(rng.randint(1, 3))))
                ]
            case 1 if state.last_index > max(state.base.index, state.compacted):
                lowest = max(1 + max(state.base.index, state.compacted), state.last_index - 6)
                more = [TruncateRecord(group, rng.randint(lowest, state.last_index))]
            case 2 if rng.random() < 0.3:
                more = [
                    RosterRecord(
                        group, ((SERVER, Instance(rng.randbytes(16))), (ServerId(2), Instance(bytes(16))))
                    )
                ]
            case _:
                sizes = [rng.choice((0, 10, 100, 700)) for _ in range(rng.randint(1, 4))]
                if rng.random() < 0.02:
                    sizes.append(9000)
                term = max(1, state.last_term + (rng.random() < 0.2))
                kind = EntryKind.MEMBERSHIP if rng.random() < 0.1 else EntryKind.COMMANDS
                more = list(entries(after, group, term, *sizes, kind=kind))
        after.apply(more)
        records += more
    return records


def check(wal: Wal, recovered: Recovered, model: Model) -> None:
    """Everything that was recovered is what the model says, to the last field."""
    written = {
        id: group for id, group in model.groups.items() if group != GroupModel() or id in recovered.groups
    }
    assert set(recovered.groups) == set(written)
    for id, group in written.items():
        found = recovered.groups[id]
        base = found.base or NO_BASE
        assert group.base.index <= base.index <= max(group.base.index, group.compacted)
        assert base == group.meta(base.index)
        entries = group.after(base.index)
        assert found.hard_state == group.hard_state
        assert found.roster == group.roster
        assert found.last_index == group.last_index
        assert found.term_runs == group.term_runs(entries)
        assert found.next_position == group.next_position
        assert list(found.tail) == entries[len(entries) - len(found.tail) :]
        assert bool(found.tail) == bool(entries)
        assert list(found.memberships) == [entry for entry in entries if membership_of(entry)]
        check_reads(wal, id, group)


def check_reads(wal: Wal, id: GroupId, group: GroupModel) -> None:
    base = (wal.base(id) or NO_BASE).index
    assert group.base.index <= base <= max(group.base.index, group.compacted)
    entries, last = group.after(base), group.last_index
    assert wal.read_entries(id, base + 1, last + 5, 1 << 30) == entries
    for lo in {base + 1, last // 2, last - 1, last} - {-1, 0}:
        if lo > base:
            assert wal.read_entries(id, lo, lo + 3, 1 << 30) == entries[lo - base - 1 : lo - base + 2]
        else:
            with pytest.raises(
                CompactedError, match=f"entry {lo} was compacted, the log begins at {base + 1}"
            ):
                wal.read_entries(id, lo, lo + 3, 1 << 30)
