"""What is left on the disk of a group that is gone for good: nothing, through power cuts at every step (D-18)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from attrs import evolve

from tests.simulation.disk import ProcessDied, SimulatedDisk, Trouble
from tests.unit.storage.delivery.scenario import SMALL, feed, history
from tests.unit.storage.lifetime import header_of
from tests.unit.storage.scenario import PATH, SERVER, entropy_of
from zraft.groups.recovery import open_stores
from zraft.groups.snapshots.tasks import Begin, Finish, RemoveSnapshots, SnapshotDisk, WriteBlock
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import FileSystem, RealFileSystem
from zraft_core.ids import GroupId

GONE, KEPT = GroupId(7), GroupId(9)
HISTORY = history(12)


def started(disk: FileSystem, seed: int = 1) -> tuple[DataDirectory, DeliveryDisk, SnapshotDisk]:
    directory = DataDirectory.open(disk, PATH, server=SERVER, entropy=entropy_of(seed))
    snapshots = SnapshotDisk(disk, directory, open_stores(disk, directory))
    return directory, DeliveryDisk(disk, directory, SMALL), snapshots


def filled() -> SimulatedDisk:
    """Two groups with deliveries and a snapshot each."""
    disk = SimulatedDisk()
    _, deliveries, snapshots = started(disk)
    for group in (GONE, KEPT):
        feed(deliveries.open(group)[0], HISTORY)
        deliveries.sync(group)
        header = evolve(header_of(SnapshotMeta(5, 1, 9, b"members")), group=group)
        for task in (Begin(header), WriteBlock(group, b"image"), Finish(group, 1, 1, 0)):
            snapshots.perform(task)
    disk.kill()
    return disk


def remove(deliveries: DeliveryDisk, snapshots: SnapshotDisk) -> None:
    deliveries.remove(GONE)
    snapshots.perform(RemoveSnapshots(GONE))


def groups_on(disk: FileSystem) -> list[str]:
    return disk.listdir(f"{PATH}/groups")


def test_the_directory_of_a_removed_group_goes_and_stays_away() -> None:
    disk = filled()
    _, deliveries, snapshots = started(disk, 2)
    remove(deliveries, snapshots)
    remove(deliveries, snapshots)
    disk.crash(Random(1))
    assert groups_on(disk) == [str(KEPT)]
    assert disk.listdir(f"{PATH}/groups/{KEPT}") == ["deliveries", "snap"]


@pytest.mark.parametrize("trouble", [Trouble.DIE_BEFORE, Trouble.DIE_AFTER])
def test_a_removal_that_was_cut_off_anywhere_is_finished_by_the_next_start(trouble: Trouble) -> None:
    """What it said is done stays done; meanwhile the log still knows that the group is gone, and says so again."""
    died = 0
    for step in range(1, 100):
        disk = filled()
        _, deliveries, snapshots = started(disk, 2)
        disk.fail_at(step, trouble, Random(step))
        try:
            remove(deliveries, snapshots)
        except ProcessDied:
            died += 1
        else:
            break
        if step % 2:
            disk.crash(Random(step))
        else:
            disk.kill()
        _, deliveries, snapshots = started(disk, 3)
        remove(deliveries, snapshots)
        disk.crash(Random(step + 1))
        assert groups_on(disk) == [str(KEPT)], step
    assert died >= 7, "the files, two directories and their parent"


def test_what_earlier_releases_left_of_removed_groups_goes_at_the_start_and_nothing_else_does() -> None:
    disk = filled()
    for path in ("5", "5/snap", "5/deliveries", "6", "8", "8/snap"):
        disk.mkdir(f"{PATH}/groups/{path}")
    disk.close(disk.create(f"{PATH}/groups/8/note"))
    _, _, snapshots = started(disk, 2)
    assert groups_on(disk) == sorted(["8", str(GONE), str(KEPT)])
    assert snapshots.perform(RemoveSnapshots(GroupId(8))) is None, "somebody else's file"
    assert disk.listdir(f"{PATH}/groups/8") == ["note"]


def test_rmdir_does_the_same_on_both_disks(tmp_path: Path) -> None:
    def outcome(call: Callable[[str], None], path: str) -> int | None:
        try:
            call(path)
        except OSError as error:
            return error.errno
        return None

    simulated = SimulatedDisk()
    for disk, root in ((RealFileSystem(), str(tmp_path)), (simulated, "/root")):
        if disk is simulated:
            disk.mkdir(root)
        disk.mkdir(f"{root}/a")
        disk.mkdir(f"{root}/a/b")
        disk.close(disk.create(f"{root}/f"))
        found = [outcome(disk.rmdir, f"{root}/{name}") for name in ("a", "a/b", "a", "a", "f")]
        assert found == [errno.ENOTEMPTY, None, None, errno.ENOENT, errno.ENOTDIR]
        assert disk.listdir(root) == ["f"]
