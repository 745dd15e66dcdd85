"""Compaction, restored logs and what segments begin with: nothing needed goes, whatever a crash leaves can be opened."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.storage.lifetime import Life
from tests.unit.storage.scenario import check_reads
from zraft.testing.disk import ProcessDied, SimulatedDisk, Trouble

DEATHS = [Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER]


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
