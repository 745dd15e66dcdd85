"""Crashes, failed fsyncs, full disks at every step: the acknowledged is there, the rest wholly or not at all (D-10)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.simulation.disk import ProcessDied, SimulatedDisk, Trouble
from tests.unit.storage.scenario import (
    GROUP,
    OTHER,
    PATH,
    SERVER,
    SMALL,
    Model,
    check,
    entries,
    open_wal,
    random_records,
)
from zraft.raft.messages import HardState
from zraft.storage.errors import DiskFullError, FsyncError, WriteError
from zraft.storage.frames import HEADER_BYTES, decode_header
from zraft.storage.records import HardStateRecord, Record, TruncateRecord
from zraft.storage.recovery import Recovered
from zraft.storage.wal import Wal

DEATHS = [Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER]


def script(model: Model) -> Iterator[list[Record]]:
    """Writes that roll three times, truncate, vote and span pages. The model is brought up to date between them."""
    yield [HardStateRecord(GROUP, HardState(1, SERVER))]
    yield [*entries(model, GROUP, 1, 20), *entries(model, OTHER, 1, 0)]
    yield list(entries(model, GROUP, 1, 1500, 1500))
    yield list(entries(model, GROUP, 1, 900, 10))
    cut = model.copy()
    cut.apply([TruncateRecord(GROUP, 4)])
    yield [HardStateRecord(GROUP, HardState(2, None)), TruncateRecord(GROUP, 4), *entries(cut, GROUP, 2, 300)]
    yield list(entries(model, GROUP, 2, 9000))
    yield list(entries(model, OTHER, 3, 5))


class Run:
    """One server's life on a disk: `before` is what was acknowledged, `after` what a write in flight would make of it."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.before = Model()
        self.after = self.before

    def live(self) -> None:
        _, wal, _ = open_wal(self.disk)
        for records in script(self.before):
            self.after = self.before.copy()
            self.after.apply(records)
            wal.append(records)
            self.before.apply(records)
            self.after = self.before
        wal.close()

    def recover(self, seed: int = 2) -> tuple[Wal, Recovered]:
        """Open again; whichever of the two states is there must be there exactly, and from then on for good."""
        _, wal, recovered = open_wal(self.disk, seed=seed)
        for state in (self.after, self.before):
            try:
                check(wal, recovered, state)
            except AssertionError:
                if state is self.before:
                    raise
            else:
                self.before = self.after = state
                break
        return wal, recovered


def steps_of_the_script() -> int:
    disk = SimulatedDisk()
    run = Run(disk)
    run.live()
    assert len(disk.listdir(f"{PATH}/wal")) == 4
    return disk.statistics().steps


STEPS = steps_of_the_script()


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
@pytest.mark.parametrize("trouble", DEATHS)
def test_crash_at_every_step_keeps_what_was_acknowledged(trouble: Trouble, power: bool) -> None:
    kept_in_flight = lost_in_flight = 0
    for step in range(1, STEPS + 1):
        disk = SimulatedDisk()
        run = Run(disk)
        rng = Random(step)
        disk.fail_at(step, trouble, rng)
        with pytest.raises(ProcessDied):
            run.live()
        disk.crash(rng) if power else disk.kill()
        in_flight = run.after if run.after is not run.before else None
        _, recovered = run.recover()
        kept_in_flight += run.before is in_flight
        lost_in_flight += recovered.report.torn_tail is not None
        # What recovery reported it may act upon: it is durable now, and recovering again changes nothing.
        disk.crash(rng)
        wal, again = run.recover(seed=3)
        assert again.groups == recovered.groups
        assert again.report.torn_tail is None
        wal.append(entries(run.before, GROUP, 9, 50, 2000))
        run.before.apply(entries(run.before, GROUP, 9, 50, 2000))
        disk.crash(rng)
        run.recover(seed=4)
    if trouble is Trouble.DIE_DURING:
        assert lost_in_flight > 0, "no crash tore a frame: this test shows less than it claims"
    assert kept_in_flight > 0


@pytest.mark.parametrize("trouble", DEATHS)
def test_crash_while_a_closed_segment_is_made_longer_is_never_taken_for_a_cut(trouble: Trouble) -> None:
    """Its length is noted when it is durable: a power failure may take back what was not."""
    grown = 0
    for seed in range(120):
        rng = Random(seed)
        disk = SimulatedDisk()
        run = Run(disk)
        _, wal, _ = open_wal(disk)
        for records in (entries(run.before, GROUP, 1, 300), entries(run.before, OTHER, 1, 20)):
            wal.append(records)
            run.before.apply(records)
        wal.close()
        disk.kill()
        _, wal, _ = open_wal(disk, seed=2)
        run.after = run.before.copy()
        more = entries(run.before, GROUP, 1, 50)
        run.after.apply(more)
        disk.fail_at(rng.randint(1, 10), trouble, rng)
        try:
            wal.append(more)
            wal.close()
        except ProcessDied:
            grown += 1
        else:
            run.before = run.after
        disk.crash(rng)
        run.recover(seed=3)
    assert grown > 60


@pytest.mark.parametrize("trouble", DEATHS)
def test_crash_at_every_step_of_recovery_is_recovered_from(trouble: Trouble) -> None:
    crashed = 0
    for step in range(3, STEPS + 1, 4):
        for second in range(1, 25):
            disk = SimulatedDisk()
            run = Run(disk)
            rng = Random(1000 * step + second)
            disk.fail_at(step, Trouble.DIE_DURING, rng)
            with pytest.raises(ProcessDied):
                run.live()
            disk.crash(rng)
            disk.fail_at(second, trouble, rng)
            try:
                open_wal(disk, seed=2)
            except ProcessDied:
                crashed += 1
                disk.crash(rng)
                run.recover(seed=3)
            else:
                break
    assert crashed > 100


def test_frames_torn_one_after_another_never_come_back() -> None:
    """The number of a torn frame is used again, in a segment of other checksums (D-10: nothing is reused)."""
    torn = 0
    for seed in range(40):
        rng = Random(seed)
        disk = SimulatedDisk()
        model = Model()
        for attempt in range(6):
            _, wal, recovered = open_wal(disk, seed=attempt)
            model = _one_of(wal, recovered, model, locals().get("after", model))
            torn += recovered.report.torn_tail is not None
            records = entries(model, GROUP, attempt + 1, rng.randrange(3000), rng.randrange(3000))
            after = model.copy()
            after.apply(records)
            disk.fail_at(rng.randint(1, 2), Trouble.DIE_DURING, rng)
            try:
                wal.append(records)
            except ProcessDied:
                pass
            else:
                model = after
            disk.crash(rng)
    assert torn > 20


def test_torn_frame_is_followed_by_a_segment_of_other_checksums() -> None:
    for seed in range(50):
        disk = SimulatedDisk()
        _, wal, _ = open_wal(disk)
        disk.fail_at(2, Trouble.DIE_DURING, Random(seed))
        with pytest.raises(ProcessDied):
            wal.append(entries(Model(), GROUP, 1, 3500))
        disk.crash(Random(seed))
        _, wal, recovered = open_wal(disk, seed=2)
        if recovered.report.torn_tail is not None:
            break
    wal.append(entries(Model(), GROUP, 1, 10))
    assert wal.statistics().segments == 2
    headers = [disk.contents(f"{PATH}/wal/{name}")[:HEADER_BYTES] for name in disk.listdir(f"{PATH}/wal")]
    first, second = (decode_header(header, "") for header in headers)
    assert first.first_frame == second.first_frame == 1
    assert first.id != second.id


def _one_of(wal: Wal, recovered: Recovered, *states: Model) -> Model:
    for state in states[:-1]:
        try:
            check(wal, recovered, state)
        except AssertionError:
            continue
        return state
    check(wal, recovered, states[-1])
    return states[-1]


@pytest.mark.parametrize("seed", range(25))
def test_log_equals_a_list_through_random_crashes(seed: int) -> None:
    rng = Random(seed)
    disk = SimulatedDisk()
    before = after = Model()
    crashes = 0
    for boot in range(12):
        try:
            if rng.random() < 0.3:
                disk.fail_at(rng.randint(1, 20), rng.choice(DEATHS), rng)
            _, wal, recovered = open_wal(disk, seed=boot)
            before = after = _one_of(wal, recovered, before, after)
            disk.fail_at(rng.randint(1, 40), rng.choice(DEATHS), rng)
            while True:
                records = random_records(before, rng)
                after = before.copy()
                after.apply(records)
                wal.append(records)
                before = after
        except ProcessDied:
            crashes += 1
        disk.crash(rng) if rng.random() < 0.7 else disk.kill()
    assert crashes == 12
    _, wal, recovered = open_wal(disk)
    _one_of(wal, recovered, before, after)


def test_failed_fsync_ends_the_log_for_good() -> None:
    disk = SimulatedDisk()
    _, wal, _ = open_wal(disk)
    wal.append(entries(Model(), GROUP, 1, 10))
    disk.fail_at(2, Trouble.EIO, Random(1))
    model = Model()
    model.apply(entries(model, GROUP, 1, 10))
    with pytest.raises(FsyncError, match=r"/data/wal/0000000001.seg: fsync failed .*the server has to end"):
        wal.append(entries(model, GROUP, 1, 10))
    assert not FsyncError.retriable
    with pytest.raises(WriteError, match="an earlier write failed"):
        wal.append(entries(model, GROUP, 1, 10))
    assert len(wal.read_entries(GROUP, 1, 9, 1000)) == 1
    wal.close()


def test_frame_whose_fsync_failed_is_made_durable_before_it_is_recovered() -> None:
    """The kernel calls its pages clean after the error: a fsync alone would promise what the disk does not hold."""
    recovered_whole = 0
    for seed in range(30):
        disk = SimulatedDisk()
        _, wal, _ = open_wal(disk)
        records = entries(Model(), GROUP, 1, 3000, 3000)
        # After fallocate, its fdatasync, five steps that put the new length into meta, and pwrite.
        disk.fail_at(9, Trouble.EIO, Random(seed))
        with pytest.raises(FsyncError):
            wal.append(records)
        disk.kill()
        _, _, recovered = open_wal(disk, seed=2)
        recovered_whole += GROUP in recovered.groups
        disk.crash(Random(seed))
        _, _, again = open_wal(disk, seed=3)
        assert again.groups == recovered.groups
    assert recovered_whole == 30


def test_write_error_other_than_full_ends_the_log() -> None:
    disk = SimulatedDisk()
    _, wal, _ = open_wal(disk)
    disk.fail_at(1, Trouble.EIO, Random(1))
    with pytest.raises(WriteError, match=r"0000000001.seg: cannot be written"):
        wal.append(entries(Model(), GROUP, 1, 10))
    with pytest.raises(WriteError, match="an earlier write failed"):
        wal.append(entries(Model(), GROUP, 1, 10))


@pytest.mark.parametrize("seed", range(5))
def test_full_disk_at_every_step_takes_nothing_and_recovers_when_space_returns(seed: int) -> None:
    """D-10: ENOSPC before the fsync is recoverable; the frame's number is not consumed."""
    refused = fatal = 0
    for step in range(1, STEPS + 1):
        disk = SimulatedDisk()
        rng = Random(100 * seed + step)
        model = Model()
        try:
            disk.fail_at(step, Trouble.ENOSPC, rng)
            _, wal, _ = open_wal(disk)
        except (DiskFullError, FsyncError):
            disk.kill()
            continue
        shorter = rng.random() < 0.5
        try:
            for records in script(model):
                try:
                    wal.append(records)
                except DiskFullError:
                    refused += 1
                    if shorter:  # what the driver writes next need not be what was refused
                        records = list(entries(model, GROUP, 9, 7))
                    wal.append(records)
                    model.apply(records)
                    if shorter:
                        break
                else:
                    model.apply(records)
        except (FsyncError, WriteError):
            # ENOSPC from an fsync, or from the call that was to give space back.
            fatal += 1
            continue
        check(*open_after(disk, rng), model)
    assert refused > 3
    assert fatal > 3


def open_after(disk: SimulatedDisk, rng: Random) -> tuple[Wal, Recovered]:
    disk.crash(rng)
    _, wal, recovered = open_wal(disk, seed=2)
    return wal, recovered


def test_disk_that_stays_full_for_a_while_loses_nothing() -> None:
    disk = SimulatedDisk()
    _, wal, _ = open_wal(disk)
    model = Model()
    rng = Random(1)
    refused = 0
    for turn in range(120):
        disk.full = turn % 20 > 8
        records = entries(model, GROUP, 1, rng.choice((10, 1200)))
        try:
            wal.append(records)
        except DiskFullError:
            refused += 1
        else:
            model.apply(records)
    disk.full = False
    assert refused > 20
    check(*open_after(disk, rng), model)
    assert not [name for name in disk.listdir(f"{PATH}/wal") if name.endswith(".tmp")]


def test_part_of_a_frame_refused_for_space_leaves_nothing_behind_the_shorter_next_one() -> None:
    disk = SimulatedDisk()
    _, wal, _ = open_wal(disk)
    disk.fail_at(1, Trouble.ENOSPC, Random(4))
    with pytest.raises(DiskFullError):
        wal.append(entries(Model(), GROUP, 1, 3000))
    wal.append(entries(Model(), GROUP, 1, 3))
    data = disk.contents(f"{PATH}/wal/0000000001.seg")
    assert len(data.rstrip(b"\0")) < 200
    assert len(data) == SMALL.segment_bytes_max
    disk.kill()
    _, _, recovered = open_wal(disk)
    assert recovered.report.torn_tail is None
    assert recovered.groups[GROUP].last_index == 1
