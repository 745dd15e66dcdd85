"""Compaction, restored logs and what segments begin with: nothing needed goes, whatever a crash leaves can be opened."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from attrs import evolve

from tests.simulation.disk import ProcessDied, SimulatedDisk, Trouble
from tests.so_far import so_far
from tests.unit.storage.lifetime import Life
from tests.unit.storage.scenario import (
    GROUP,
    OTHER,
    PATH,
    SERVER,
    SMALL,
    Model,
    check_reads,
    entries,
    open_wal,
)
from zraft.raft.messages import EntryKind, HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import CompactedError, CorruptionError, DiskFullError, FsyncError, WriteError
from zraft.storage.filesystem import RealFileSystem
from zraft.storage.frames import (
    HEAD_BYTES,
    HEADER_BYTES,
    SegmentHeader,
    decode_head,
    decode_header,
    encode_frame,
    encode_header,
)
from zraft.storage.records import BaseRecord, HardStateRecord, RosterRecord, TruncateRecord, encode_records
from zraft.storage.segments import segment_path
from zraft.storage.wal import Wal
from zraft_core.ids import Instance

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


# --- one schedule at a time


def server_with(*sizes: int) -> tuple[Life, list[str]]:
    """A log with one entry per frame and vote and membership at its start; the segments' paths."""
    life = Life(SimulatedDisk())
    life.start()
    life.append(
        RosterRecord(GROUP, ((SERVER, Instance(bytes(16))),)), HardStateRecord(GROUP, HardState(1, SERVER))
    )
    life.append(*entries(life.before, GROUP, 1, 20, kind=EntryKind.MEMBERSHIP, count=0))
    for size in sizes:
        life.append(*entries(life.before, GROUP, 1, size))
    return life, paths(life)


def paths(life: Life) -> list[str]:
    return [f"{PATH}/wal/{name}" for name in life.disk.listdir(f"{PATH}/wal")]


def restart(life: Life) -> None:
    life.disk.kill()
    life.start()


def test_hard_state_and_roster_survive_the_segment_that_they_were_written_in() -> None:
    life, before = server_with(*[1500] * 6)
    assert len(before) == 3
    life.compact(GROUP, 6)
    assert paths(life) == [before[-1], f"{PATH}/wal/0000000004.seg"]
    restart(life)
    found = life.recovered.groups[GROUP]
    assert found.hard_state == HardState(1, SERVER)
    assert found.roster == ((SERVER, Instance(bytes(16))),)
    assert found.base == life.before.group(GROUP).meta(5)
    assert found.base.membership == life.before.group(GROUP).entries[0].payload
    assert found.memberships == ()


def test_nothing_goes_that_a_group_still_needs() -> None:
    life, before = server_with(*[1500] * 6)
    life.append(*entries(life.before, OTHER, 1, 10))
    for _ in range(4):
        life.append(*entries(life.before, GROUP, 1, 1500))
    life.compact(GROUP, 11)
    kept = paths(life)
    assert kept[0] == before[-1], "the segment with the other group's only entry"
    life.compact(OTHER, 1)
    assert len(paths(life)) < len(kept)


def test_segment_whose_truncation_reaches_below_its_start_is_never_the_oldest() -> None:
    """The truncation would refer to entries that are gone, and no start could make sense of it."""
    life, _ = server_with(*[1500] * 4)
    last = paths(life)[-1]
    base = life.before.group(GROUP).last_index
    life.append(*entries(life.before, GROUP, 1, 1500))  # begins another segment
    assert paths(life)[-1] != last
    life.append(TruncateRecord(GROUP, base - 1))
    life.append(*entries(life.before, GROUP, 2, 10, 10, 10, 10))
    life.compact(GROUP, life.before.group(GROUP).last_index)
    restart(life)
    life.append(*entries(life.before, GROUP, 2, 3000))
    life.append(*entries(life.before, GROUP, 2, 3000))
    life.compact(GROUP, life.before.group(GROUP).last_index)
    assert len(paths(life)) == 1
    restart(life)


def test_newest_segment_is_closed_when_covered_entries_fill_it() -> None:
    life, before = server_with(1500)
    assert len(before) == 1
    life.compact(GROUP, 2)
    assert paths(life) == [f"{PATH}/wal/0000000002.seg"]
    assert life.wal.statistics().length < 300
    life.compact(GROUP, 2)
    assert len(paths(life)) == 1, "there is nothing in it that could go"
    restart(life)


def test_restored_log_drops_everything_and_keeps_the_vote() -> None:
    life, _ = server_with(*[1500] * 6)
    life.restore(GROUP, SnapshotMeta(900, 1, 77, b"other members"))
    assert paths(life) == [f"{PATH}/wal/0000000004.seg"]
    restart(life)
    found = life.recovered.groups[GROUP]
    assert (found.last_index, found.next_position, found.tail) == (900, 77, ())
    assert found.hard_state == HardState(1, SERVER)
    life.append(*entries(life.before, GROUP, 1, 10))
    restart(life)
    assert life.recovered.groups[GROUP].tail[0].position == 77


@pytest.mark.parametrize(("index", "term"), [(900, 3), (4, 2)], ids=["log ends before", "log contradicts"])
def test_snapshot_installed_before_a_crash_replaces_the_log_at_the_start(index: int, term: int) -> None:
    life, _ = server_with(*[1500] * 6)
    life.snapshots[GROUP] = SnapshotMeta(index, term, 77, b"other members")
    restart(life)
    assert so_far(life.recovered.report.restored) == (GROUP,)
    assert life.recovered.groups[GROUP].last_index == index
    assert life.recovered.groups[GROUP].hard_state == HardState(term, None)
    life.disk.crash(Random(1))
    life.start()
    assert life.recovered.report.restored == ()


def test_log_that_begins_above_every_snapshot_is_corruption_that_says_so() -> None:
    life, _ = server_with(*[1500] * 6)
    life.compact(GROUP, 6)
    life.disk.kill()
    for snapshots, held in (
        ({}, "there is none"),
        ({GROUP: SnapshotMeta(3, 1, 5, b"")}, "the newest good one ends at 3"),
    ):
        with pytest.raises(
            CorruptionError,
            match=f"begins after entry 5 and needs a snapshot that reaches there, but {held}; put",
        ):
            open_wal(life.disk, snapshots=snapshots)
        life.disk.kill()


def test_segment_missing_in_the_middle_is_corruption_unless_a_snapshot_covers_what_preceded_it() -> None:
    life, before = server_with(*[1500] * 6)
    whole = {path: life.disk.contents(path) for path in [*before, f"{PATH}/meta"]}
    for gone in before[:-1]:
        life.disk.kill()
        for path, data in whole.items():
            life.disk.replace(path, data)
        life.disk.remove(gone)
        with pytest.raises(CorruptionError, match=f"{gone}: corrupt at offset 0: the file is missing"):
            open_wal(life.disk)
    # The leftovers of an interrupted compaction look the same, and a snapshot tells them from a loss.
    life.snapshots[GROUP] = life.before.group(GROUP).meta(7)
    life.before.group(GROUP).compacted = 7
    restart(life)
    assert paths(life) == before[-1:]


def test_damage_to_what_a_segment_begins_with_is_never_a_torn_tail() -> None:
    """It was durable before the segment got its name, so no crash tore it, although no frame follows it."""
    life, _ = server_with(*[1500] * 6)
    last = paths(life)[-1]
    data = bytearray(life.disk.contents(last))
    data[HEADER_BYTES + HEAD_BYTES + 3] ^= 1
    cut = HEADER_BYTES + HEAD_BYTES + 60
    life.disk.replace(last, bytes(data[:cut]) + bytes(len(data) - cut))
    life.disk.kill()
    with pytest.raises(CorruptionError, match=f"{last}: corrupt at offset {HEADER_BYTES}") as stopped:
        open_wal(life.disk)
    assert "where the segment's first frame was" in str(stopped.value)


def test_what_a_segment_begins_with_must_be_what_the_log_says() -> None:
    life, before = server_with(*[1500] * 5)
    second = before[1]
    data = life.disk.contents(second)
    header = decode_header(data, second)
    head = decode_head(data, HEADER_BYTES, header.seed)
    assert head is not None
    end = HEADER_BYTES + HEAD_BYTES + head.length
    good = BaseRecord(
        GROUP, HardState(1, SERVER), ((SERVER, Instance(bytes(16))),), life.before.group(GROUP).meta(3)
    )
    assert data[HEADER_BYTES:end] == encode_frame(head.number, encode_records([good]), header.seed)
    for wrong, why in (
        ([evolve(good, hard_state=HardState(2, None))], "restated with hard state"),
        ([evolve(good, roster=None)], "restated with roster"),
        ([evolve(good, log=evolve(good.log, index=9))], "restated with last index 9, expected 3"),
        ([evolve(good, log=evolve(good.log, term=2))], "restated with last term"),
        ([evolve(good, log=evolve(good.log, next_position=99))], "restated with position 99"),
        ([evolve(good, log=evolve(good.log, membership=b""))], "restated with membership"),
        ([good, evolve(good, group=OTHER)], "restated, but unknown before"),
        ([good, good], "expected each group restated once"),
        ([evolve(good, group=OTHER)], "restated, but unknown before"),
        ([HardStateRecord(GROUP, HardState(1, SERVER))], "expected each group restated once"),
    ):
        frame = encode_frame(head.number, encode_records(wrong), header.seed)
        life.disk.replace(second, data[:HEADER_BYTES] + frame + data[end:])
        life.disk.kill()
        with pytest.raises(CorruptionError, match=why):
            open_wal(life.disk)
    life.disk.replace(second, data)
    last = paths(life)[-1]
    whole = life.disk.contents(last).rstrip(b"\0")
    wal_header = decode_header(whole, last)
    number = life.wal.statistics().frames + 1
    life.disk.replace(last, whole + encode_frame(number, encode_records([good]), wal_header.seed))
    life.disk.kill()
    with pytest.raises(CorruptionError, match="restated in the middle of a segment"):
        open_wal(life.disk)


def test_segments_of_the_format_before_are_read() -> None:
    """Format 1 had no base frames; a log of it goes on with segments that have them."""
    header = SegmentHeader(1, bytes(8), 1, SERVER, Instance(bytes(16)), format=1)
    life = Life(SimulatedDisk())
    life.start()
    first = evolve(header, instance=life.directory.instance)
    records = entries(Model(), GROUP, 1, 3000)
    life.before.apply(records)
    second = evolve(first, segment=2, first_frame=2)
    more = entries(life.before, GROUP, 1, 3000)
    life.before.apply(more)
    for segment, frame, written in ((first, 1, records), (second, 2, more)):
        data = encode_header(segment) + encode_frame(frame, encode_records(written), segment.seed)
        life.disk.replace(segment_path(f"{PATH}/wal", segment.segment), data)
    life.directory.note_segment(2, None)
    life.after = life.before
    restart(life)
    for _ in range(3):
        life.append(*entries(life.before, GROUP, 1, 3000))
    life.compact(GROUP, 5)
    restart(life)
    assert life.removed >= 3


def test_older_format_alone_is_not_understood_without_what_preceded_it() -> None:
    life = Life(SimulatedDisk())
    life.start()
    header = SegmentHeader(2, bytes(8), 5, SERVER, life.directory.instance, format=1)
    life.disk.remove(f"{PATH}/wal/0000000001.seg")
    life.disk.replace(f"{PATH}/wal/0000000002.seg", encode_header(header))
    life.disk.kill()
    with pytest.raises(
        CorruptionError, match=r"0000000001.seg: .* is missing, and segment 2 cannot be understood"
    ):
        open_wal(life.disk)


def test_full_disk_or_error_at_every_step_of_compaction_is_declared() -> None:
    for trouble in (Trouble.ENOSPC, Trouble.EIO):
        ends: Counter[str] = Counter()
        for step in range(1, 40):
            life, _ = server_with(*[1500] * 6)
            life.disk.fail_at(step, trouble, Random(step))
            steps = life.disk.statistics().steps
            try:
                life.compact(GROUP, 7)
            except (DiskFullError, FsyncError, WriteError) as error:
                ends[type(error).__name__] += 1
                if isinstance(error, DiskFullError):
                    life.append(*entries(life.before, GROUP, 1, 10))
                    life.compact(GROUP, 7)
                else:
                    with pytest.raises(WriteError, match="an earlier write failed"):
                        life.wal.append(entries(life.before, GROUP, 1, 10))
                    with pytest.raises(WriteError, match="an earlier write failed"):
                        life.wal.compact(GROUP, 7)
            life.disk.crash(Random(step))
            life.start()
            if life.disk.statistics().steps < steps:
                break
        assert ends["FsyncError"] >= 2
        assert ends["DiskFullError" if trouble is Trouble.ENOSPC else "WriteError"] >= 2


def test_full_disk_is_given_room_by_compaction() -> None:
    """Old segments go although there is no room for a new one."""
    life, before = server_with(*[1500] * 6)
    life.disk.full = True
    life.compact(GROUP, 6)
    assert len(paths(life)) < len(before)
    life.disk.full = False
    life.append(*entries(life.before, GROUP, 1, 1500))
    restart(life)


def test_reader_of_compacted_entries_gets_a_clear_error_or_the_data(tmp_path: Path) -> None:
    class Unsynced(RealFileSystem):
        def fdatasync(self, file: int) -> None:
            pass

    fs = Unsynced()
    directory = DataDirectory.open(fs, str(tmp_path), server=SERVER, entropy=os.urandom)
    wal, _ = Wal.open(fs, directory, settings=evolve(SMALL, segment_bytes_max=8192))
    model = Model()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for turn in range(1500):
                records = entries(model, GROUP, 1, 300, 5)
                wal.append(records)
                model.apply(records)
                if turn % 20 == 19:
                    wal.compact(GROUP, model.group(GROUP).last_index - 10)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    seen: Counter[str] = Counter()
    while writer.is_alive() or not seen:
        base = wal.base(GROUP)
        lo = base.index + 1 if base else 1
        try:
            found = wal.read_entries(GROUP, lo, 1 << 40, 1 << 30)
        except CompactedError as error:
            seen["compacted" if error.first_index > lo else "wrong"] += 1
        else:
            assert [entry.index for entry in found] == list(range(lo, lo + len(found)))
            assert all(
                entry.payload == (b"%d.%d." % (1, entry.index) * 80)[: len(entry.payload)] for entry in found
            )
            seen["read"] += 1
    writer.join()
    assert not failures
    assert seen["read"] > 10
    assert not seen["wrong"]
    with pytest.raises(CompactedError, match="entry 1 was compacted, the log begins at"):
        wal.read_entries(GROUP, 1, 5, 100)
    assert wal.statistics().segments < 5
    wal.close()
    directory.close()


def test_what_a_group_holds_back_is_counted_from_the_segment_in_which_its_first_entry_stands() -> None:
    life, _ = server_with(*[1500] * 6)
    life.append(*entries(life.before, OTHER, 1, 5))
    life.append(*entries(life.before, GROUP, 1, 1500))
    wal, log = life.wal, life.before.group(GROUP)

    def check_held() -> None:
        length = wal.statistics().length
        spans = wal._segments
        assert wal.held_after(GROUP, 0) == length, "nobody needs what is before its first entry"
        assert wal.held_after(GROUP, log.last_index) == 0
        assert wal.held_after(GROUP, log.last_index - 1) == spans[-1].end
        # The second segment from the end was begun after this entry.
        assert spans[-2].bases is not None
        before = spans[-2].bases[GROUP].index
        assert wal.held_after(GROUP, before) == spans[-1].log_bytes + spans[-1].end - spans[-2].log_bytes
        assert wal.held_after(GROUP, before - 1) > wal.held_after(GROUP, before)

    check_held()
    assert 0 < wal.held_after(OTHER, 0) < wal.statistics().length
    life.compact(GROUP, log.last_index - 4)
    life.compact(OTHER, 1)
    assert life.removed
    check_held()
    assert wal.held_after(OTHER, 1) == 0
