"""Power cuts and kills at every step (D-10, D-13): what was said to be durable is there, the rest comes again."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from attrs import evolve

from tests.simulation.disk import ProcessDied, SimulatedDisk, Trouble
from tests.unit.storage.delivery.scenario import (
    DIRECTORY,
    SMALL,
    Life,
    between,
    feed,
    history,
    mark_after,
    open_log,
    read_all,
)
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.settings import DeliverySettings
from zraft.storage.errors import DiskFullError, FsyncError, WriteError

DEATHS = [Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER]
HISTORY = history(90)
LAST = HISTORY[-1].index


def donor_log(upto: int, cut: int = 0, seed: int = 99) -> DeliveryLog:
    """The log of another server, on a disk of its own that nothing happens to: other segments, the same deliveries."""
    settings = evolve(SMALL, segment_bytes_max=5000, frame_bytes_max=900, compression_level=1)
    log = open_log(SimulatedDisk(), settings=settings, seed=seed).log
    feed(log, between(HISTORY, 0, upto), Random(seed))
    log.cut(cut)
    log.sync()
    return log


NEAR = donor_log(HISTORY[62].index)
FAR = donor_log(HISTORY[80].index, cut=76, seed=98)


def live(life: Life) -> None:
    """Everything that storage of deliveries does, once: frames, rolls, checkpoints, retention, snapshots from elsewhere."""
    life.start()
    at = [one.index for one in HISTORY]
    for offset in (2, 3, 9, 14):
        life.apply(at[offset])
    life.sync()
    life.apply(at[24])
    life.purge()
    life.apply(at[33])
    life.sync()
    life.cut(12)
    life.apply(at[40])
    life.cut(life.log.end.offset)
    life.apply(at[46])
    life.apply(at[47])
    life.install(NEAR, at[62])
    life.apply(at[66])
    life.purge()
    life.sync()
    life.install(FAR, at[80])
    life.apply(at[84])
    life.log.close_segment()
    life.purge()
    life.apply(at[-1])
    life.cut(82)
    life.sync()
    life.log.close()
    life.purge()


def whole_life() -> Life:
    life = Life(SimulatedDisk(), HISTORY)
    live(life)
    return life


STEPS = whole_life().disk.statistics().steps


def test_the_life_that_is_cut_short_does_everything() -> None:
    life = whole_life()
    assert life.purged == LAST
    assert STEPS > 150
    assert FAR.base.offset > 66, "a gap, so that nothing of our own stays"
    assert NEAR.base.offset == 0
    life.disk.kill()
    life.start()
    assert life.opened.report.scanned == 0
    assert life.log.end.offset == len(HISTORY)


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
@pytest.mark.parametrize("trouble", DEATHS)
def test_crash_at_every_step_keeps_what_was_said_to_be_durable(trouble: Trouble, power: bool) -> None:
    """Each step is cut in one of the three ways here, and in all of them by `-m long`."""
    crash_at_steps(trouble, range(1 + DEATHS.index(trouble), STEPS + 1, 3), power=power, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("trouble", DEATHS)
def test_crash_at_every_step_and_other_lost_pages_keeps_what_was_durable(trouble: Trouble, seed: int) -> None:
    crash_at_steps(trouble, range(1, STEPS + 1), power=True, seed=seed)


def crash_at_steps(trouble: Trouble, steps: range, *, power: bool, seed: int) -> None:
    seen: Counter[str] = Counter()
    for step in steps:
        rng = Random(1000 * seed + step)
        life = Life(SimulatedDisk(), HISTORY)
        life.disk.fail_at(step, trouble, rng)
        with pytest.raises(ProcessDied):
            live(life)
        life.disk.crash(rng) if power else life.disk.kill()
        life.start()
        seen["torn"] += life.opened.report.torn is not None
        seen["scanned"] += life.opened.report.scanned
        seen["leftovers"] += life.opened.report.leftovers
        end = life.log.end
        # What a start found is durable, and work goes on from it.
        life.disk.crash(rng)
        life.start()
        assert life.log.end == end
        assert life.opened.report.torn is None
        life.apply(LAST)
        life.disk.crash(rng)
        life.start()
        life.apply(LAST)
        life.sync()
        assert life.log.end.offset == len(HISTORY)
        assert life.purged == LAST
    assert seen["scanned"] > 0
    assert seen["leftovers"] > 0
    assert not power or trouble is not Trouble.DIE_DURING or seen["torn"] > 0


@pytest.mark.parametrize("trouble", DEATHS)
def test_crash_at_every_step_of_recovery_is_recovered_from(trouble: Trouble) -> None:
    assert crash_in_recovery(trouble, range(8, STEPS + 1, 43)) > 30


@pytest.mark.long
@pytest.mark.parametrize("start", range(1, 6))
@pytest.mark.parametrize("trouble", DEATHS)
def test_crash_at_every_step_of_every_recovery_is_recovered_from(trouble: Trouble, start: int) -> None:
    assert crash_in_recovery(trouble, range(start, STEPS + 1, 5)) > 100


def crash_in_recovery(trouble: Trouble, steps: range) -> int:
    crashed = 0
    for step in steps:
        for second in range(1, 60):
            rng = Random(1000 * step + second)
            life = Life(SimulatedDisk(), HISTORY)
            life.disk.fail_at(step, Trouble.DIE_DURING, rng)
            with pytest.raises(ProcessDied):
                live(life)
            life.disk.crash(rng)
            life.disk.fail_at(second, trouble, rng)
            try:
                life.start()
            except ProcessDied:
                crashed += 1
                life.disk.crash(rng)
                life.start()
            else:
                break
    return crashed


@pytest.mark.parametrize("seed", range(15))
def test_deliveries_go_through_random_crashes(seed: int) -> None:
    random_life(seed, 8)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 500, 10))
def test_deliveries_go_through_many_random_crashes(seed: int) -> None:
    for more in range(10):
        random_life(seed + more, 12)


def random_life(seed: int, crashes: int) -> None:
    rng = Random(seed)
    deliveries = history(2000, seed=seed)
    life = Life(SimulatedDisk(), deliveries)
    donor = open_log(SimulatedDisk(), seed=seed).log
    donor_at = 0
    for _ in range(crashes):
        try:
            if rng.random() < 0.4:
                life.disk.fail_at(rng.randint(1, 25), rng.choice(DEATHS), rng)
            life.start()
            life.disk.fail_at(rng.randint(1, 150), rng.choice(DEATHS), rng)
            while True:
                chance = rng.random()
                end = life.log.end.offset
                if chance < 0.1:
                    life.sync()
                elif chance < 0.15:
                    life.purge()
                elif chance < 0.2:
                    life.cut(rng.randint(life.base, end))
                elif chance < 0.23:
                    life.log.close_segment()
                elif chance < 0.26:
                    upto = deliveries[min(end + rng.randint(0, 30), len(deliveries) - 1)].index
                    if upto > donor_at:
                        feed(donor, between(deliveries, donor_at, upto), rng)
                        donor_at = upto
                    donor.sync()
                    if rng.random() < 0.3:
                        donor.cut(rng.randint(donor.base.offset, donor.end.offset))
                    if donor_at >= life.applied and donor.end.offset >= end:
                        life.install(donor, donor_at)
                else:
                    life.apply(deliveries[min(end + rng.randint(0, 6), len(deliveries) - 1)].index)
        except ProcessDied:
            pass
        life.disk.crash(rng) if rng.random() < 0.7 else life.disk.kill()
    life.start()
    life.apply(deliveries[life.log.end.offset].index)
    life.sync()


# --- a disk that fails or is full


@pytest.mark.parametrize("trouble", [Trouble.EIO, Trouble.ENOSPC])
def test_an_error_at_every_step_is_declared_and_loses_nothing(trouble: Trouble) -> None:
    """EIO ends the process; so does any error of an fsync; lack of space is waited out, in the same process."""
    seen: Counter[str] = Counter()
    for step in range(1 + (trouble is Trouble.EIO), STEPS + 1, 2):
        rng = Random(step)
        life = Life(SimulatedDisk(), HISTORY)
        life.may_be_full = trouble is Trouble.ENOSPC
        life.disk.fail_at(step, trouble, rng)
        try:
            live(life)
            seen["unnoticed"] += 1
        except DiskFullError:
            assert trouble is Trouble.ENOSPC
            seen["full"] += 1
            if hasattr(life, "opened"):
                # Nothing is broken: the same process goes on.
                assert read_all(life.log) == HISTORY[life.log.base.offset : life.log.end.offset]
                life.base_after = life.log.base.offset
                life.apply(LAST)
                life.sync()
                assert life.log.end.offset == len(HISTORY)
        except (FsyncError, WriteError) as error:
            seen[type(error).__name__] += 1
            if hasattr(life, "opened") and life.log._failure is not None:
                with pytest.raises(WriteError, match="an earlier write failed"):
                    life.log.append([], LAST)
                with pytest.raises(WriteError, match="an earlier write failed"):
                    life.log.sync()
        life.disk.crash(rng) if rng.random() < 0.5 else life.disk.kill()
        life.base_after = max(life.base_after, life.opened.log.base.offset) if hasattr(life, "opened") else 0
        life.start()
        life.apply(LAST)
        life.sync()
        assert life.log.end.offset == len(HISTORY)
    assert seen["FsyncError"] > 10
    assert seen["WriteError" if trouble is Trouble.EIO else "full"] > 10
    assert seen["unnoticed"] < STEPS // 5


def test_on_a_full_disk_nothing_is_written_and_retention_still_gives_space_back() -> None:
    disk = SimulatedDisk()
    log = open_log(disk).log
    middle = HISTORY[50].index
    feed(log, between(HISTORY, 0, middle))
    log.sync()
    disk.full = True
    with pytest.raises(DiskFullError):
        log.append(between(HISTORY, middle, LAST), LAST)
    written = log.end.offset
    used = sum(len(disk.contents(f"{DIRECTORY}/{name}")) for name in disk.listdir(DIRECTORY))
    assert log.cut(30) > 10
    assert log.base.offset > 10
    left = sum(len(disk.contents(f"{DIRECTORY}/{name}")) for name in disk.listdir(DIRECTORY))
    assert left < used - 4096
    assert log.cut(40) > 0
    assert read_all(log) == HISTORY[log.base.offset : written]
    base = log.base
    # Also if the process ends before there is space again: what was cut stays cut.
    disk.crash(Random(1))
    disk.full = False
    log = open_log(disk, seed=2, expected=mark_after(HISTORY, middle)).log
    assert log.base == base
    log.append(between(HISTORY, middle, LAST), LAST)
    assert read_all(log) == HISTORY[base.offset :]
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".gone")]


def test_a_frame_that_did_not_fit_leaves_nothing_behind() -> None:
    """What is written in its place may be shorter, and no start is to take the rest for something torn."""
    partial = 0
    for seed in range(10):
        disk = SimulatedDisk()
        log = open_log(disk, settings=DeliverySettings(compression_level=0)).log
        middle = HISTORY[20].index
        feed(log, between(HISTORY, 0, middle))
        log.sync()
        before = disk.statistics().steps
        disk.fail_at(1, Trouble.ENOSPC, Random(seed))
        with pytest.raises(DiskFullError):
            log.append(between(HISTORY, middle, LAST), LAST)
        partial += disk.statistics().steps - before == 2
        (path,) = [name for name in disk.listdir(DIRECTORY) if name.endswith(".seg")]
        assert len(disk.contents(f"{DIRECTORY}/{path}")) == log.statistics().bytes
        following = HISTORY[21].index
        log.append(between(HISTORY, middle, following), following)
        log.sync()
        disk.kill()
        opened = open_log(disk, seed=2)
        assert opened.report.torn is None
        assert read_all(opened.log) == between(HISTORY, 0, following)
    assert partial == 10, "the write, and cutting off what it left"


def test_a_start_on_a_full_disk_can_be_repeated() -> None:
    disk = SimulatedDisk()
    log = open_log(disk).log
    feed(log, HISTORY)
    log.sync()
    disk.kill()
    disk.full = True
    with pytest.raises(DiskFullError):
        open_log(disk, seed=2)
    disk.full = False
    disk.kill()
    assert read_all(open_log(disk, seed=2).log) == HISTORY


def test_a_failed_fsync_that_lied_is_made_good_by_the_next_start() -> None:
    """The kernel calls the pages clean though the disk never got them: they are written again before they are relied on."""
    lost = 0
    for seed in range(30):
        disk = SimulatedDisk()
        log = open_log(disk, settings=DeliverySettings(compression_level=0)).log
        feed(log, between(HISTORY, 0, HISTORY[20].index))
        disk.fail_at(1, Trouble.EIO, Random(seed))
        with pytest.raises(FsyncError):
            log.sync()
        disk.kill()
        found = open_log(disk, seed=2).log
        end = found.end
        assert end.offset > 0
        disk.crash(Random(seed))
        again = open_log(disk, seed=3).log
        assert again.end == end
        assert read_all(again) == HISTORY[: end.offset]
        lost += 1
    assert lost == 30
