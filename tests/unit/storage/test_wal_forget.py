"""A group that is gone for good: the log forgets it, for ever and whatever crash comes in between (D-13, D-18)."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.disk import ProcessDied, SimulatedDisk, Trouble
from tests.unit.storage.scenario import open_wal
from zraft.raft.messages import Entry, EntryKind, HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.records import (
    EntryRecord,
    ForgetRecord,
    HardStateRecord,
    RestoreRecord,
    RosterRecord,
    TruncateRecord,
)
from zraft.storage.wal import Wal
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId, ServerId

GONE, KEPT = GroupId(7), GroupId(9)


def entry(group: GroupId, index: int, size: int = 200) -> EntryRecord:
    return EntryRecord(group, Entry(index, 1, EntryKind.COMMANDS, index, 1, bytes(size)))


def begin(wal: Wal) -> None:
    wal.append([HardStateRecord(GONE, HardState(1, ServerId(1))), entry(GONE, 1), entry(KEPT, 1)])


def test_a_forgotten_group_is_not_recovered_and_others_are() -> None:
    disk = SimulatedDisk()
    directory, wal, _ = open_wal(disk)
    begin(wal)
    wal.append([ForgetRecord(GONE), entry(KEPT, 2)])
    wal.close()
    directory.close()
    _, wal, recovered = open_wal(disk)
    assert set(recovered.groups) == {KEPT}
    assert recovered.groups[KEPT].last_index == 2
    assert recovered.forgotten == {GONE}
    assert wal.read_entries(GONE, 1, 2, 1000) == []


def test_a_group_that_was_never_written_can_be_forgotten() -> None:
    disk = SimulatedDisk()
    directory, wal, _ = open_wal(disk)
    wal.append([ForgetRecord(GONE)])
    wal.append([entry(KEPT, 1)])
    wal.close()
    directory.close()
    _, _, recovered = open_wal(disk)
    assert set(recovered.groups) == {KEPT}


def test_a_forgotten_group_holds_no_segment_and_is_restated_in_none() -> None:
    disk = SimulatedDisk()
    directory, wal, _ = open_wal(disk)
    begin(wal)
    for index in range(2, 60):
        wal.append([entry(KEPT, index)])
    before = wal.statistics().segments
    assert before > 2
    wal.compact(KEPT, 59)
    assert wal.statistics().segments >= before, "the other group still needs the first"
    wal.append([ForgetRecord(GONE)])
    wal.compact(KEPT, 59)
    assert wal.statistics().segments < 3
    for index in range(60, 90):
        wal.append([entry(KEPT, index)])
    wal.compact(KEPT, 89)
    wal.close()
    directory.close()
    base = SnapshotMeta(89, 1, 90, b"")
    _, _, recovered = open_wal(disk, snapshots={KEPT: base})
    assert set(recovered.groups) == {KEPT}


@pytest.mark.parametrize("last", [TruncateRecord(GONE, 3), RestoreRecord(GONE, SnapshotMeta(50, 1, 50, b""))])
def test_what_a_forgotten_group_dropped_of_earlier_segments_keeps_them_until_the_segment_itself_goes(
    last: TruncateRecord | RestoreRecord,
) -> None:
    """Or a start would find a truncation that reaches back to entries which are gone, and call it corruption."""
    disk = SimulatedDisk()
    directory, wal, _ = open_wal(disk)
    begin(wal)
    for index in range(2, 6):
        wal.append([entry(GONE, index)])
    index = 1
    while wal.statistics().segments < 3:  # so the last one says that the group ended with its fifth entry
        index += 1
        wal.append([entry(KEPT, index)])
    wal.append([last])
    wal.append([ForgetRecord(GONE)])
    wal.compact(KEPT, index)
    wal.close()
    directory.close()
    snapshots = {KEPT: SnapshotMeta(index, 1, index + 1, b"")}
    directory, wal, recovered = open_wal(disk, snapshots=snapshots)
    assert set(recovered.groups) == {KEPT}
    for later in range(index + 1, index + 60):
        wal.append([entry(KEPT, later)])
    wal.compact(KEPT, index + 59)
    assert wal.statistics().segments < 3, "they are kept no longer than that"
    wal.close()
    directory.close()
    _, _, recovered = open_wal(disk, snapshots={KEPT: SnapshotMeta(index + 59, 1, index + 60, b"")})
    assert set(recovered.groups) == {KEPT}


def test_files_that_a_crash_left_of_a_forgotten_group_do_not_bring_it_back() -> None:
    disk = SimulatedDisk()
    directory, wal, _ = open_wal(disk)
    begin(wal)
    wal.append([ForgetRecord(GONE)])
    wal.close()
    directory.close()
    left_over = SnapshotMeta(1, 1, 2, b"")
    _, _, recovered = open_wal(disk, snapshots={GONE: left_over})
    assert recovered.groups.keys() == {KEPT}
    assert recovered.report.restored == ()


@pytest.mark.parametrize("step", range(1, 9))
@pytest.mark.parametrize("trouble", [Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER])
def test_a_power_cut_leaves_the_group_whole_or_gone(step: int, trouble: Trouble) -> None:
    rng = Random(f"{step}/{trouble}")
    disk = SimulatedDisk()
    _, wal, _ = open_wal(disk)
    begin(wal)
    disk.fail_at(step, trouble, rng)
    forgotten = False
    try:
        wal.append([ForgetRecord(GONE)])
        forgotten = True
        for index in range(2, 40):
            wal.append([entry(KEPT, index)])
    except (ProcessDied, StorageError):
        pass
    disk.crash(rng)
    _, wal, recovered = open_wal(disk)
    if GONE in recovered.groups:
        assert not forgotten
        assert recovered.groups[GONE].last_index == 1
        assert recovered.groups[GONE].hard_state == HardState(1, ServerId(1))
    else:
        assert recovered.forgotten == {GONE}
    wal.append([RosterRecord(GroupId(0), ())])
