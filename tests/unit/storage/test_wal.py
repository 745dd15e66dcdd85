"""The write-ahead log while nothing fails: what is appended can be read, at once and after a restart."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import msgpack
import pytest

from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.scenario import (
    GROUP,
    OTHER,
    PATH,
    SERVER,
    SMALL,
    Model,
    check,
    check_reads,
    entries,
    open_wal,
    random_records,
)
from zraft.raft.messages import HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import RealFileSystem
from zraft.storage.frames import HEAD_BYTES, HEADER_BYTES
from zraft.storage.records import (
    EntryRecord,
    HardStateRecord,
    Record,
    RestoreRecord,
    TruncateRecord,
    encode_records,
)
from zraft.storage.settings import WalSettings
from zraft.storage.wal import Wal
from zraft_core.errors import ConfigError, StorageError
from zraft_core.ids import GroupId


class Server:
    """An open WAL beside the model of what it holds."""

    def __init__(self, settings: WalSettings = SMALL) -> None:
        self.disk = SimulatedDisk()
        self.model = Model()
        self.settings = settings
        self.directory, self.wal, self.recovered = open_wal(self.disk, settings=settings)

    def append(self, *records: Record) -> None:
        self.wal.append(records)
        self.model.apply(records)

    def append_entries(self, term: int, *sizes: int, group: GroupId = GROUP) -> None:
        self.append(*entries(self.model, group, term, *sizes))

    def restart(self) -> None:
        self.wal.close()
        self.directory.close()
        self.directory, self.wal, self.recovered = open_wal(self.disk, settings=self.settings)
        check(self.wal, self.recovered, self.model)

    def segments(self) -> list[str]:
        return [f"{PATH}/wal/{name}" for name in self.disk.listdir(f"{PATH}/wal")]


def test_new_directory_has_nothing_to_remember() -> None:
    server = Server()
    assert server.recovered.groups == {}
    assert server.recovered.report.torn_tail is None
    assert server.wal.read_entries(GROUP, 1, 10, 1000) == []


def test_one_append_is_one_write_and_one_fsync() -> None:
    server = Server()
    server.append_entries(1, 10)
    before = server.disk.statistics()
    server.append(HardStateRecord(GROUP, HardState(2, SERVER)), *entries(server.model, GROUP, 2, 10, 20, 30))
    after = server.disk.statistics()
    assert after.steps - before.steps == 2
    assert after.fdatasyncs - before.fdatasyncs == 1


@pytest.mark.parametrize("seed", range(8))
def test_a_frame_is_one_write_and_one_fsync_exactly_if_there_is_room_for_it(seed: int) -> None:
    rng = Random(seed)
    server = Server()
    fitted = 0
    for turn in range(150):
        records = random_records(server.model, rng)
        if seed % 2 and rng.random() < 0.1:
            records.append(RestoreRecord(GROUP, SnapshotMeta(10_000 + turn, 10_000, 10_000, b"")))
        fits = HEAD_BYTES + len(encode_records(records)) <= server.wal.room
        before = server.disk.statistics().steps
        server.append(*records)
        assert (server.disk.statistics().steps - before == 2) is fits
        fitted += fits
        if rng.random() < 0.1:
            if seed % 2:
                server.wal.compact(GROUP, server.model.group(GROUP).last_index)
            else:
                server.restart()
    assert 30 < fitted < 140


def test_log_of_several_groups_is_recovered() -> None:
    server = Server()
    server.append(HardStateRecord(GROUP, HardState(1, SERVER)))
    server.append_entries(1, 10, 20)
    server.append_entries(1, 10, group=OTHER)
    server.append_entries(4, 0, 0, 0)
    server.append(HardStateRecord(OTHER, HardState(9, None)))
    server.restart()
    assert server.recovered.groups[GROUP].term_runs == ((1, 1), (3, 4))
    assert server.recovered.groups[OTHER].hard_state == HardState(9, None)
    assert (server.recovered.report.frames, server.recovered.report.entries) == (5, 6)


@pytest.mark.parametrize("seed", range(15))
def test_log_equals_a_list_whatever_is_written(seed: int) -> None:
    rng = Random(seed)
    server = Server()
    for turn in range(60):
        server.append(*random_records(server.model, rng))
        if turn % 20 == 19:
            server.restart()
        for id, group in server.model.groups.items():
            check_reads(server.wal, id, group)
    assert len(server.segments()) > 2
    assert sum(group.last_index for group in server.model.groups.values()) > 20


def test_read_after_truncation_gives_the_surviving_entries() -> None:
    server = Server()
    server.append_entries(1, *[40] * 20)
    server.append(TruncateRecord(GROUP, 10), *entries(_cut(server.model, 10), GROUP, 2, 41, 42))
    server.append(TruncateRecord(GROUP, 5))
    assert [entry.index for entry in server.wal.read_entries(GROUP, 1, 99, 10**6)] == [1, 2, 3, 4]
    server.append_entries(3, *[43] * 8)
    check_reads(server.wal, GROUP, server.model.group(GROUP))
    assert [entry.term for entry in server.wal.read_entries(GROUP, 3, 8, 10**6)] == [1, 1, 3, 3, 3]
    server.restart()
    assert server.recovered.groups[GROUP].term_runs == ((1, 1), (5, 3))


def _cut(model: Model, from_index: int) -> Model:
    after = model.copy()
    after.apply([TruncateRecord(GROUP, from_index)])
    return after


def test_entries_truncated_within_their_own_frame_are_not_read() -> None:
    server = Server()
    first = entries(server.model, GROUP, 1, 10, 10, 10)
    after = server.model.copy()
    after.apply([*first, TruncateRecord(GROUP, 2)])
    server.append(*first, TruncateRecord(GROUP, 2), *entries(after, GROUP, 2, 20, 20))
    check_reads(server.wal, GROUP, server.model.group(GROUP))
    server.restart()


def test_truncation_of_everything_leaves_an_empty_log() -> None:
    server = Server()
    server.append_entries(1, 10, 10)
    server.append(TruncateRecord(GROUP, 1))
    assert server.wal.read_entries(GROUP, 1, 5, 100) == []
    server.restart()
    found = server.recovered.groups[GROUP]
    assert (found.last_index, found.next_position, found.tail, found.term_runs) == (0, 1, (), ())
    server.append_entries(2, 10)
    server.restart()


def test_truncation_below_the_tail_in_memory_still_gives_the_last_entry() -> None:
    server = Server(WalSettings(segment_bytes_max=4096, tail_bytes_max=600))
    server.append_entries(1, *[100] * 30)
    server.append(TruncateRecord(GROUP, 4))
    server.restart()
    found = server.recovered.groups[GROUP]
    assert [entry.index for entry in found.tail] == [3]
    assert found.next_position == found.tail[-1].next_position == 7


def test_tail_is_bounded_in_bytes_but_holds_the_last_entry() -> None:
    server = Server()
    server.append_entries(1, *[100] * 100)
    server.restart()
    assert 3 <= len(server.recovered.groups[GROUP].tail) <= 2000 // 100
    server.append_entries(1, 5000)
    server.restart()
    assert [entry.index for entry in server.recovered.groups[GROUP].tail] == [101]


def test_read_is_bounded_in_bytes_and_gives_at_least_one() -> None:
    server = Server()
    server.append_entries(1, 100, 100, 100, 500, 100)
    read = server.wal.read_entries
    assert [entry.index for entry in read(GROUP, 1, 6, 0)] == [1]
    assert [entry.index for entry in read(GROUP, 1, 6, 299)] == [1, 2]
    assert [entry.index for entry in read(GROUP, 1, 6, 300)] == [1, 2, 3]
    assert [entry.index for entry in read(GROUP, 4, 6, 50)] == [4]
    assert read(GROUP, 6, 9, 1000) == []
    assert read(GROUP, 3, 3, 1000) == []
    assert read(OTHER, 1, 9, 1000) == []


def test_closed_segments_are_cut_and_the_open_one_is_preallocated() -> None:
    server = Server()
    while len(server.segments()) < 4:
        server.append_entries(1, 700)
    *closed, last = (server.disk.contents(path) for path in server.segments())
    assert all(len(data) <= SMALL.segment_bytes_max and data[-1] for data in closed)
    assert len(last) == SMALL.segment_bytes_max
    assert server.directory.newest_segment == 4
    server.wal.close()
    assert server.disk.contents(server.segments()[-1])[-1] != 0


def test_frame_numbers_continue_across_segments() -> None:
    server = Server()
    while len(server.segments()) < 3:
        server.append_entries(1, 700)
    numbers = []
    for path in server.segments():
        objects = list(msgpack.Unpacker(_stream(server.disk.contents(path))))
        frames = [thing[1] for thing in objects[1:] if thing and thing[0] == 1]
        assert frames[0] == objects[0]["first_frame"]
        numbers += frames
    assert numbers == list(range(1, server.wal.statistics().frames + 1))


def _stream(data: bytes) -> io.BytesIO:

    return io.BytesIO(data.rstrip(b"\0"))


@pytest.mark.parametrize("first", [[], [10]])
def test_frame_larger_than_a_segment_gets_one_sized_for_it(first: list[int]) -> None:
    server = Server()
    for size in first:
        server.append_entries(1, size)
    server.append_entries(1, 50_000)
    assert len(server.segments()) == 1 + len(first)
    server.append_entries(1, 10)
    assert len(server.segments()) == 2 + len(first)
    server.restart()


def test_clean_restart_continues_in_the_same_segment() -> None:
    server = Server()
    for _ in range(5):
        server.append_entries(1, 50)
        server.restart()
    assert len(server.segments()) == 1
    assert server.wal.statistics().length > HEADER_BYTES
    assert server.recovered.report.torn_tail is None


def test_statistics_count_segments_frames_and_bytes() -> None:
    server = Server()
    while len(server.segments()) < 3:
        server.append_entries(1, 700)
    statistics = server.wal.statistics()
    server.wal.close()
    assert statistics.length == sum(len(server.disk.contents(path)) for path in server.segments())
    assert statistics.segments == 3
    # One frame for each entry, and one at the start of each later segment.
    assert statistics.frames == server.model.group(GROUP).last_index + 2


@pytest.mark.parametrize(
    "records",
    [
        lambda model: [],
        lambda model: entries(_cut(model, 3), GROUP, 5, 10),  # index not contiguous
        lambda model: entries(model, GROUP, 1, 10),  # term decreases
        lambda model: [TruncateRecord(GROUP, 9)],
        lambda model: [HardStateRecord(GROUP, HardState(1, None))],
        lambda model: [*entries(model, GROUP, 5, 10), *entries(model, GROUP, 5, 10)],
    ],
)
def test_our_own_mistakes_never_reach_the_disk(records: Callable[[Model], list[Record]]) -> None:
    server = Server()
    server.append(HardStateRecord(GROUP, HardState(2, None)))
    server.append_entries(2, 10, 10, 10)
    before = server.disk.statistics()
    with pytest.raises(AssertionError):
        server.wal.append(records(server.model))
    assert server.disk.statistics() == before
    server.append_entries(2, 10)
    server.restart()


def test_damage_after_opening_is_noticed_when_read() -> None:
    server = Server()
    server.append_entries(1, 100)
    server.append_entries(1, 100)
    path = server.segments()[0]
    data = bytearray(server.disk.contents(path))
    data[HEADER_BYTES + 60] ^= 1
    server.disk.replace(path, bytes(data))
    with pytest.raises(
        CorruptionError, match=f"{path}: corrupt at offset {HEADER_BYTES}: the body of frame 1"
    ):
        server.wal.read_entries(GROUP, 1, 3, 1000)
    server.disk.spoil(path, 0)
    with pytest.raises(StorageError, match=f"{path}: cannot be read"):
        server.wal.read_entries(GROUP, 1, 3, 1000)


@pytest.mark.parametrize(
    "wrong",
    [{"segment_bytes_max": 100}, {"tail_bytes_max": -1}, {"index_stride_bytes": -1}, {"index_points_max": 0}],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"wal.{next(iter(wrong))}"):
        WalSettings(**wrong)


def test_one_thread_reads_while_another_appends(tmp_path: Path) -> None:
    """On real files: readers see whole prefixes, and after a truncation never a mixture of old and new."""

    class Unsynced(RealFileSystem):
        def fdatasync(self, file: int) -> None:
            pass

    fs = Unsynced()
    directory = DataDirectory.open(fs, str(tmp_path), server=SERVER, entropy=os.urandom)
    wal, _ = Wal.open(fs, directory, settings=WalSettings(segment_bytes_max=8192, index_stride_bytes=500))
    model = Model()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            rng = Random(5)
            for term in range(1, 60):
                for _ in range(5):
                    records: list[Record] = list(entries(model, GROUP, term, *[rng.choice((5, 300))] * 3))
                    wal.append(records)
                    model.apply(records)
                state = model.group(GROUP)
                cut = TruncateRecord(GROUP, rng.randint(max(1, state.last_index - 20), state.last_index))
                after = model.copy()
                after.apply([cut])
                records = [cut, *entries(after, GROUP, term + 1, 20)]
                wal.append(records)
                model.apply(records)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while writer.is_alive() or not reads:
        found = wal.read_entries(GROUP, 1, 1 << 40, 1 << 30)
        assert [entry.index for entry in found] == list(range(1, len(found) + 1))
        # An entry says its own term; terms and positions of one consistent log never go back.
        assert all(a.term <= b.term and a.next_position == b.position for a, b in pairwise(found))
        reads += 1
    writer.join()
    assert not failures
    wal.close()
    directory.close()
    directory = DataDirectory.open(fs, str(tmp_path), server=SERVER, entropy=os.urandom)
    wal, recovered = Wal.open(fs, directory, settings=WalSettings(segment_bytes_max=8192))
    check(wal, recovered, model)
    assert isinstance(entries(model, GROUP, 99, 1)[0], EntryRecord)
    wal.close()
    directory.close()
