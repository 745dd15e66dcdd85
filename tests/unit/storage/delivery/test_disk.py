"""Deliveries of many groups on one disk, the thread that writes them, and readers beside it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from random import Random

import pytest
from attrs import evolve

from tests.simulation.disk import SimulatedDisk, Trouble
from tests.unit.storage.delivery.scenario import SMALL, between, feed, history, mark_after, read_all
from tests.unit.storage.scenario import PATH, SERVER, entropy_of
from zraft.groups.snapshots.delivery_tasks import (
    AbandonFetch,
    AppendDeliveries,
    BeginFetch,
    CloseDeliveries,
    CompleteFetch,
    DeliveryPerformer,
    OpenDeliveries,
    Opened,
    ReadSegment,
    RemoveDeliveries,
    Result,
    RetainDeliveries,
    StorePiece,
    SyncDeliveries,
    Task,
)
from zraft.server.process.delivery_thread import DeliveryThread
from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.fetching import Piece
from zraft.storage.delivery.settings import DeliveryRetention, DeliverySettings
from zraft.storage.delivery.values import beginning
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import (
    CorruptionError,
    DeliveriesDifferError,
    DeliveriesGoneError,
    DiskFullError,
    FsyncError,
    SegmentGoneError,
)
from zraft.storage.filesystem import FileSystem, RealFileSystem
from zraft_core.ids import GroupId, ServerId

HISTORY = history(90)
LAST = HISTORY[-1].index
A, B = GroupId(100), GroupId(200)


def performer(fs: FileSystem, *, seed: int = 1, settings: DeliverySettings = SMALL) -> DeliveryPerformer:
    directory = DataDirectory.open(fs, PATH, server=SERVER, entropy=entropy_of(seed))
    return DeliveryPerformer(fs, DeliveryDisk(fs, directory, settings))


def test_a_file_with_bytes_that_are_not_durable_stays_open_and_there_are_not_many() -> None:
    """Who closes and opens a file between write and fsync may never hear that the write failed."""
    disk = SimulatedDisk()
    deliveries = performer(disk, settings=evolve(SMALL, files_max=8)).disk
    groups = [GroupId(1000 + number) for number in range(40)]
    first = HISTORY[0].index
    for group in groups:
        deliveries.open(group)
        deliveries.append(group, between(HISTORY, 0, first), first)
        assert deliveries.dirty <= 4
        assert deliveries.open_files <= 8
    synced = [group for group in groups if deliveries.log(group).durable_index == first]
    assert synced == groups[:-4], "who waited longest goes first"
    assert deliveries.sync_all() == dict.fromkeys(groups[-4:], first)
    assert deliveries.dirty == 0
    deliveries.close_all()
    assert deliveries.open_files == 0
    assert deliveries.groups == ()


def test_a_group_is_closed_opened_and_removed_for_good() -> None:
    disk = SimulatedDisk()
    tasks = performer(disk)
    assert isinstance(tasks.perform(OpenDeliveries(A)), Opened)
    tasks.perform(AppendDeliveries(A, HISTORY, LAST))
    assert tasks.perform(CloseDeliveries(A)) is None
    opened = tasks.perform(OpenDeliveries(A, mark_after(HISTORY, LAST, beginning(A))))
    assert isinstance(opened, Opened)
    assert read_all(opened.log) == HISTORY
    assert opened.report.scanned == 0
    assert tasks.perform(RemoveDeliveries(A)) is None
    assert disk.listdir(f"{PATH}/groups/{A}") == []
    assert tasks.perform(RemoveDeliveries(A)) is None
    assert tasks.perform(RemoveDeliveries(GroupId(5))) is None
    assert not disk.listdir(PATH).count("5")


def test_what_concerns_one_group_is_a_result_and_what_concerns_the_disk_is_raised() -> None:
    disk = SimulatedDisk()
    tasks = performer(disk)
    tasks.perform(OpenDeliveries(A))
    tasks.perform(AppendDeliveries(A, HISTORY, LAST))
    wrong = [evolve(HISTORY[0], payload=b"?")]
    assert isinstance(tasks.perform(AppendDeliveries(A, wrong, HISTORY[0].index)), DeliveriesDifferError)
    assert isinstance(tasks.perform(ReadSegment(2, A, b"nonesuch", 0, 10)), SegmentGoneError)
    assert isinstance(tasks.perform(SyncDeliveries(B)), SegmentGoneError)
    assert isinstance(tasks.perform(StorePiece(A, b"x", 0, b"y")), SegmentGoneError)
    assert isinstance(
        tasks.perform(OpenDeliveries(B, mark_after(HISTORY, LAST, beginning(A)))), CorruptionError
    )
    more = evolve(HISTORY[-1], offset=len(HISTORY), stamp=(1 << 50, 0, 0, 0), index=LAST + 1)
    disk.full = True
    assert isinstance(tasks.perform(AppendDeliveries(A, [more], LAST + 1)), DiskFullError)
    disk.full = False
    assert tasks.perform(AppendDeliveries(A, [more], LAST + 1)) is not None
    disk.fail_at(1, Trouble.EIO, Random(1))
    with pytest.raises(FsyncError):
        tasks.perform(SyncDeliveries(A))


def test_segments_travel_from_one_server_to_another_by_tasks() -> None:
    source, target = performer(SimulatedDisk(), seed=3), performer(SimulatedDisk(), seed=4)
    for tasks, upto in ((source, LAST), (target, HISTORY[30].index)):
        opened = tasks.perform(OpenDeliveries(A))
        assert isinstance(opened, Opened)
        tasks.perform(AppendDeliveries(A, between(HISTORY, 0, upto), upto))
        tasks.perform(SyncDeliveries(A))
    shipped = source.disk.log(A).manifest()
    assert isinstance(target.perform(BeginFetch(A, shipped)), Piece)
    assert target.perform(AbandonFetch(A)) is None
    assert isinstance(target.perform(CompleteFetch(A)), SegmentGoneError)
    piece = target.perform(BeginFetch(A, shipped))
    while isinstance(piece, Piece):
        data = source.perform(ReadSegment(2, A, piece.id, piece.offset, 900))
        assert isinstance(data, bytes)
        piece = target.perform(StorePiece(A, piece.id, piece.offset, data))
    assert piece is None
    assert target.perform(CompleteFetch(A)) == source.disk.log(A).durable_index
    assert read_all(target.disk.log(A)) == HISTORY


class Recorder:
    """A thread with its callbacks as queues."""

    def __init__(self, tasks: DeliveryPerformer, **options: float) -> None:
        self.performed: SimpleQueue[tuple[Task, Result]] = SimpleQueue()
        self.synced: SimpleQueue[dict[GroupId, int]] = SimpleQueue()
        self.full: SimpleQueue[DiskFullError | None] = SimpleQueue()
        self.failed: SimpleQueue[BaseException] = SimpleQueue()
        self.thread = DeliveryThread(
            tasks,
            on_performed=self.performed.put,
            on_synced=self.synced.put,
            on_full=self.full.put,
            on_failed=self.failed.put,
            **options,  # type: ignore[arg-type]
        )

        self.durable: dict[GroupId, int] = {}

    def until(self, wanted: Callable[[Task, Result], bool]) -> None:
        while True:
            task, result = self.performed.get(timeout=30)
            if isinstance(task, AppendDeliveries) and isinstance(result, int):
                self.durable[task.group] = max(result, self.durable.get(task.group, 0))
            if wanted(task, result):
                return


def test_the_thread_writes_in_order_syncs_by_itself_and_closes_cleanly(tmp_path: Path) -> None:
    fs = RealFileSystem()
    directory = DataDirectory.open(fs, str(tmp_path / "data"), server=ServerId(1), entropy=os.urandom)
    tasks = DeliveryPerformer(fs, DeliveryDisk(fs, directory, SMALL))
    recorder = Recorder(tasks, sync_interval_s=0.0)
    assert recorder.thread.offer(OpenDeliveries(A))
    assert recorder.thread.offer(OpenDeliveries(B))
    indices = sorted({one.index for one in HISTORY})
    before = 0
    for index in indices:
        for group in (A, B):
            assert recorder.thread.offer(AppendDeliveries(group, between(HISTORY, before, index), index))
        before = index
    for _ in (A, B):
        recorder.until(lambda task, _: isinstance(task, AppendDeliveries) and task.index == LAST)
    while recorder.durable != {A: LAST, B: LAST}:
        for group, index in recorder.synced.get(timeout=30).items():
            recorder.durable[group] = max(index, recorder.durable[group])
    assert read_all(tasks.disk.log(A)) == HISTORY
    assert recorder.thread.waiting_bytes == 0
    recorder.thread.stop()
    assert recorder.failed.empty()
    deliveries = DeliveryDisk(fs, directory, SMALL)
    log, report = deliveries.open(B)
    assert report.scanned == 0
    assert read_all(log) == HISTORY
    deliveries.close_all()
    directory.close()


class Gate(SimulatedDisk):
    """A disk whose writes wait until they may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.reached = threading.Event()

    def pwrite(self, file: int, data: bytes, offset: int) -> None:
        self.reached.set()
        assert self.open_gate.wait(30)
        super().pwrite(file, data, offset)


def test_what_waits_is_bounded_in_bytes_and_goes_as_fewer_frames() -> None:
    disk = Gate()
    tasks = performer(disk, settings=evolve(SMALL, sync_bytes_max=1 << 20, segment_bytes_max=1 << 20))
    recorder = Recorder(tasks, bytes_max=8000, sync_interval_s=1000.0)
    recorder.thread.offer(OpenDeliveries(A))
    recorder.until(lambda task, _: isinstance(task, OpenDeliveries))
    disk.open_gate.clear()
    disk.reached.clear()
    indices = sorted({one.index for one in HISTORY})
    batches = [AppendDeliveries(A, between(HISTORY, index - 1, index), index) for index in indices]
    assert recorder.thread.offer(batches[0])
    assert disk.reached.wait(30)
    taken = 1
    while recorder.thread.offer(batches[taken]):
        taken += 1
        assert recorder.thread.waiting_bytes <= 8000
    assert 3 < taken < len(batches) - 1
    assert recorder.thread.offer(SyncDeliveries(A)), "what asks for no memory is taken"
    disk.open_gate.set()
    recorder.until(lambda task, _: isinstance(task, SyncDeliveries))
    for batch in batches[taken:]:
        while not recorder.thread.offer(batch):
            recorder.performed.get(timeout=30)
    recorder.until(lambda task, _: isinstance(task, AppendDeliveries) and task.index == LAST)
    assert read_all(tasks.disk.log(A)) == HISTORY
    recorder.thread.stop()
    assert recorder.failed.empty()


def test_a_full_disk_is_waited_out_and_retention_goes_first() -> None:
    disk = SimulatedDisk()
    tasks = performer(disk)
    recorder = Recorder(tasks, sync_interval_s=1000.0)
    recorder.thread.offer(OpenDeliveries(A))
    middle = HISTORY[60].index
    recorder.thread.offer(AppendDeliveries(A, between(HISTORY, 0, middle), middle))
    recorder.until(lambda task, _: isinstance(task, AppendDeliveries))
    disk.full = True
    recorder.thread.offer(AppendDeliveries(A, between(HISTORY, middle, LAST), LAST))
    assert isinstance(recorder.full.get(timeout=30), DiskFullError)
    recorder.thread.offer(RetainDeliveries(A, DeliveryRetention(bytes_min=4000), 0))
    task, removed = recorder.performed.get(timeout=30)
    assert isinstance(task, RetainDeliveries)
    assert isinstance(removed, int)
    assert removed > 20
    disk.full = False
    recorder.until(lambda task, _: isinstance(task, AppendDeliveries) and task.index == LAST)
    assert recorder.full.get(timeout=30) is None
    recorder.thread.stop()
    assert recorder.failed.empty()
    assert tasks.disk.groups == ()


def test_a_failed_fsync_ends_it() -> None:
    disk = SimulatedDisk()
    tasks = performer(disk)
    recorder = Recorder(tasks, sync_interval_s=1000.0)
    recorder.thread.offer(OpenDeliveries(A))
    recorder.thread.offer(AppendDeliveries(A, HISTORY[:1], HISTORY[0].index))
    recorder.until(lambda task, _: isinstance(task, AppendDeliveries))
    disk.fail_at(1, Trouble.EIO, Random(1))
    recorder.thread.offer(SyncDeliveries(A))
    assert isinstance(recorder.failed.get(timeout=30), FsyncError)
    recorder.thread.stop()


def test_readers_in_other_threads_see_only_what_is_right_while_it_is_written_and_cut(tmp_path: Path) -> None:
    fs = RealFileSystem()
    directory = DataDirectory.open(fs, str(tmp_path / "data"), server=ServerId(1), entropy=os.urandom)
    settings = evolve(SMALL, compression_level=1, segment_bytes_max=8192, sync_bytes_max=1 << 20)
    log, _ = DeliveryDisk(fs, directory, settings).open(A)
    many = history(600, seed=4)
    done = threading.Event()
    problems: list[BaseException] = []
    read = [0, 0, 0]

    def consume(number: int) -> None:
        offset = 0
        try:
            while not done.is_set() or offset < len(many):
                try:
                    found = log.read(offset, 3000)
                except DeliveriesGoneError as error:
                    later = error.first_offset
                    assert later > offset
                    offset = later
                    continue
                assert found == many[offset : offset + len(found)]
                offset += len(found)
                read[number] += len(found)
                if not found:
                    done.wait(0.002)
                if number == 2 and found:
                    offset = max(0, offset - 40)
                    if done.is_set():
                        return
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    cuts = 0
    before = 0
    for index in sorted({one.index for one in many}):
        log.append(between(many, before, index), index)
        before = index
        if index % 50 == 0:
            cuts += bool(log.cut(log.end.offset - 60))
    log.sync()
    done.set()
    for thread in threads:
        thread.join(30)
    assert problems == []
    assert cuts > 3
    assert read[0] > 0
    feed(log, many[-3:])
    directory.close()
