"""Compaction, restored logs and what segments begin with: nothing needed goes, whatever a crash leaves can be opened."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.storage.scenario import (
    GROUP,
    OTHER,
    Model,
    check,
    check_reads,
    open_wal,
    random_records,
)
from zraft.ids import GroupId
from zraft.raft.messages import HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.records import HardStateRecord, Record, RestoreRecord
from zraft.storage.recovery import Recovered
from zraft.storage.wal import Wal
from zraft.testing.disk import ProcessDied, SimulatedDisk, Trouble

DEATHS = [Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER]


class Life:
    """One server's log through crashes, with the snapshots that stand beside it.

    `before` is what was acknowledged, `after` what a write in flight would make of it.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.snapshots: dict[GroupId, SnapshotMeta] = {}
        self.before = Model()
        self.after = self.before
        self.boot = 0
        self.removed = 0
        self.directory: DataDirectory
        self.wal: Wal
        self.recovered: Recovered

    def start(self) -> None:
        """Open; whichever of the two states is there must be there exactly, and from then on for good."""
        self.boot += 1
        states = [self._with_snapshots(state) for state in (self.after, self.before)]
        self.directory, self.wal, self.recovered = open_wal(
            self.disk, seed=self.boot, snapshots=self.snapshots
        )
        for state in states:
            try:
                check(self.wal, self.recovered, state)
            except AssertionError:
                if state is states[-1]:
                    raise
            else:
                self.before = self.after = state
                return

    def _with_snapshots(self, state: Model) -> Model:
        """A log that ends before its snapshot or contradicts it begins after it."""
        state = state.copy()
        for id, meta in self.snapshots.items():
            group = state.group(id)
            if group.last_index >= meta.index and group.meta(meta.index).term == meta.term:
                continue
            if group.hard_state.term < meta.term:
                state.apply([HardStateRecord(id, HardState(meta.term, None))])
            state.apply([RestoreRecord(id, meta)])
        return state

    def append(self, *records: Record) -> None:
        self.after = self.before.copy()
        self.after.apply(records)
        self.wal.append(records)
        self.before = self.after

    def compact(self, id: GroupId, index: int) -> None:
        group = self.before.group(id)
        if index <= group.base.index:
            return
        self.snapshots[id] = group.meta(index)
        group.compacted = max(group.compacted, index)
        self.removed += self.wal.compact(id, index)

    def restore(self, id: GroupId, meta: SnapshotMeta) -> None:
        """A snapshot from another server is durable, and then the log says so."""
        self.snapshots[id] = meta
        group = self.before.group(id)
        records: list[Record] = []
        if group.hard_state.term < meta.term:
            records.append(HardStateRecord(id, HardState(meta.term, None)))
        self.append(*records, RestoreRecord(id, meta))
        group = self.before.group(id)
        group.compacted = meta.index
        self.removed += self.wal.compact(id, meta.index)

    def random_turn(self, rng: Random) -> None:
        chance = rng.random()
        id = rng.choice((GROUP, OTHER))
        group = self.before.group(id)
        if chance < 0.2 and group.last_index > group.base.index:
            self.compact(id, rng.randint(max(group.compacted, group.last_index - 10), group.last_index))
        elif chance < 0.25:
            index = group.last_index + rng.randint(-3, 9)
            if index > max(group.compacted, group.base.index):
                meta = SnapshotMeta(index, group.last_term + 1, rng.randint(1, 99), b"members")
                self.restore(id, meta)
        else:
            self.append(*random_records(self.before, rng))


@pytest.mark.parametrize("seed", range(20))
def test_compacted_log_equals_a_list(seed: int) -> None:
    rng = Random(seed)
    life = Life(SimulatedDisk())
    life.start()
    for turn in range(150):
        life.random_turn(rng)
        if turn % 25 == 24:
            life.wal.close()
            life.directory.close()
            life.start()
        for id, group in life.before.groups.items():
            check_reads(life.wal, id, group)
    assert life.removed > 3


@pytest.mark.parametrize("seed", range(60))
def test_compacted_log_equals_a_list_through_random_crashes(seed: int) -> None:
    rng = Random(seed)
    disk = SimulatedDisk()
    life = Life(disk)
    crashes = 0
    for _ in range(12):
        try:
            if rng.random() < 0.4:
                disk.fail_at(rng.randint(1, 20), rng.choice(DEATHS), rng)
            life.start()
            disk.fail_at(rng.randint(1, 120), rng.choice(DEATHS), rng)
            while True:
                life.random_turn(rng)
        except ProcessDied:
            crashes += 1
        disk.crash(rng) if rng.random() < 0.7 else disk.kill()
    assert crashes == 12
    life.start()
