"""Power cuts and kills at every step of snapshots, compaction and restored logs: what was acknowledged is there."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.simulation.disk import ProcessDied, SimulatedDisk, Trouble
from tests.unit.storage.lifetime import NodeLife
from tests.unit.storage.scenario import GROUP, OTHER, PATH, SERVER, entries
from zraft.raft.messages import EntryKind, HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.records import HardStateRecord, TruncateRecord

DEATHS = [Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER]


def live(node: NodeLife) -> None:
    """Everything that storage does, once: rolls, snapshots, compaction, purging, truncation, a snapshot from elsewhere."""
    node.start()
    node.append(HardStateRecord(GROUP, HardState(1, SERVER)), HardStateRecord(OTHER, HardState(3, None)))
    node.append(*entries(node.before, GROUP, 1, 30, kind=EntryKind.MEMBERSHIP, count=0))
    for _ in range(3):
        node.append(*entries(node.before, GROUP, 1, 1500, 600))
    node.take_snapshot(4)
    node.compact_to_fallback()
    # Entries of the first segments are truncated by a record in a later one.
    node.append(*entries(node.before, GROUP, 1, 900, 900))
    node.append(HardStateRecord(GROUP, HardState(2, None)), TruncateRecord(GROUP, 6))
    node.append(*entries(node.before, GROUP, 2, 800, 1900), HardStateRecord(OTHER, HardState(4, None)))
    node.take_snapshot(7)
    node.compact_to_fallback()
    node.purge(1)
    node.append(*entries(node.before, GROUP, 2, 1900, 1900))
    node.compact_log(GROUP, 7)
    node.take_snapshot(9)
    node.compact_log(GROUP, 9)
    node.install(SnapshotMeta(30, 4, 99, b"members"))
    node.purge(2)
    node.append(*entries(node.before, GROUP, 4, 100, 3000))
    node.append(HardStateRecord(GROUP, HardState(7, SERVER)), *entries(node.before, GROUP, 5, 2000))
    node.take_snapshot(33)
    node.compact_log(GROUP, 30)
    node.compact_log(GROUP, 33)
    node.purge(1)
    node.wal.close()
    node.store.close()


def whole_life() -> NodeLife:
    node = NodeLife(SimulatedDisk())
    live(node)
    return node


STEPS = whole_life().disk.statistics().steps


def test_the_life_that_is_cut_short_does_everything() -> None:
    node = whole_life()
    assert node.removed >= 4
    assert STEPS > 120
    assert len(node.disk.listdir(f"{PATH}/wal")) <= 2
    assert len(node.disk.listdir(f"{PATH}/groups/0/snap")) == 1
    node.disk.kill()
    node.start()
    assert node.recovered.groups[GROUP].base == SnapshotMeta(
        33, 5, node.before.group(GROUP).next_position, b"members"
    )


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
@pytest.mark.parametrize("trouble", DEATHS)
def test_crash_at_every_step_keeps_logs_and_snapshots(trouble: Trouble, power: bool) -> None:
    crash_at_every_step(trouble, power=power, seeds=range(1))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("trouble", DEATHS)
def test_crash_at_every_step_and_other_lost_pages_keeps_logs_and_snapshots(
    trouble: Trouble, seed: int
) -> None:
    crash_at_every_step(trouble, power=True, seeds=range(seed, seed + 1))


def crash_at_every_step(trouble: Trouble, *, power: bool, seeds: range) -> None:
    seen: Counter[str] = Counter()
    for step in range(1, STEPS + 1):
        for seed in seeds:
            rng = Random(1000 * seed + step)
            node = NodeLife(SimulatedDisk())
            node.disk.fail_at(step, trouble, rng)
            with pytest.raises(ProcessDied):
                live(node)
            node.disk.crash(rng) if power else node.disk.kill()
            node.start()
            seen["restored"] += bool(node.recovered.report.restored)
            seen["torn"] += node.recovered.report.torn_tail is not None
            # What was recovered is durable, and work goes on from it.
            node.disk.crash(rng)
            node.start()
            assert not node.recovered.report.restored
            node.append(*entries(node.before, GROUP, 9, 50, 2000))
            last = node.before.group(GROUP).last_index
            node.take_snapshot(last)
            node.compact_log(GROUP, last)
            node.purge(1)
            node.disk.crash(rng)
            node.start()
    # DIE_AFTER complete, or DIE_BEFORE the RESTORE record: a snapshot is there and the log does not know.
    assert seen["restored"] > 0
    assert trouble is not Trouble.DIE_DURING or not power or seen["torn"] > 0


@pytest.mark.parametrize("trouble", DEATHS)
def test_crash_at_every_step_of_recovery_is_recovered_from(trouble: Trouble) -> None:
    assert crash_in_recovery(trouble, range(5, STEPS + 1, 25)) > 30


@pytest.mark.long
@pytest.mark.parametrize("start", range(1, 8))
@pytest.mark.parametrize("trouble", DEATHS)
def test_crash_at_every_step_of_every_recovery_is_recovered_from(trouble: Trouble, start: int) -> None:
    assert crash_in_recovery(trouble, range(start, STEPS + 1, 7)) > 100


def crash_in_recovery(trouble: Trouble, steps: range) -> int:
    crashed = 0
    for step in steps:
        for second in range(1, 40):
            rng = Random(1000 * step + second)
            node = NodeLife(SimulatedDisk())
            node.disk.fail_at(step, Trouble.DIE_DURING, rng)
            with pytest.raises(ProcessDied):
                live(node)
            node.disk.crash(rng)
            node.disk.fail_at(second, trouble, rng)
            try:
                node.start()
            except ProcessDied:
                crashed += 1
                node.disk.crash(rng)
                node.start()
            else:
                break
    return crashed


@pytest.mark.parametrize("seed", range(20))
def test_storage_goes_through_random_crashes(seed: int) -> None:
    rng = Random(seed)
    node = NodeLife(SimulatedDisk())
    crashes = 0
    for _ in range(10):
        try:
            if rng.random() < 0.4:
                node.disk.fail_at(rng.randint(1, 30), rng.choice(DEATHS), rng)
            node.start()
            node.disk.fail_at(rng.randint(1, 200), rng.choice(DEATHS), rng)
            while True:
                _random_turn(node, rng)
        except ProcessDied:
            crashes += 1
        node.disk.crash(rng) if rng.random() < 0.7 else node.disk.kill()
    assert crashes == 10
    node.start()


def _random_turn(node: NodeLife, rng: Random) -> None:
    group = node.before.group(GROUP)
    newest = node.store.newest
    floor = max(group.base.index, newest.meta.index if newest else 0)
    chance = rng.random()
    if chance < 0.15 and group.last_index > floor:
        node.take_snapshot(rng.randint(floor + 1, group.last_index))
    elif chance < 0.25:
        node.compact_to_fallback()
    elif chance < 0.35:
        node.purge(rng.randint(1, 3))
    elif chance < 0.42:
        index = group.last_index + rng.randint(1, 9)
        node.install(SnapshotMeta(index, group.last_term + 1, rng.randint(1, 99), b"members"))
    else:
        # The model's truncations stay above what a snapshot holds.
        group.compacted = max(group.compacted, floor)
        records = entries(
            node.before, GROUP, max(1, group.last_term + (rng.random() < 0.2)), rng.choice((10, 900))
        )
        if group.last_index > floor and rng.random() < 0.3:
            node.append(TruncateRecord(GROUP, rng.randint(floor + 1, group.last_index)))
        else:
            node.append(*records)
