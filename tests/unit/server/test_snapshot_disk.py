"""One disk for the snapshots of all groups of a server: what is under way of one does not disturb another."""

from __future__ import annotations

from attrs import evolve

from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.lifetime import header_of
from tests.unit.storage.scenario import PATH, SERVER, entropy_of
from zraft.groups.snapshots.tasks import Begin, Finish, Load, Purge, ReadSnapshot, SnapshotDisk, WriteBlock
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import SnapshotGoneError
from zraft.storage.snapshot_format import SnapshotInfo
from zraft_core.ids import COORDINATION_GROUP, GroupId

TOPIC = GroupId(7)
BLOCK_BYTES = 300_000
"""More than the store gathers before it compresses, so that each piece is a block of the file."""


def snapshot_disk() -> SnapshotDisk:
    disk = SimulatedDisk()
    return SnapshotDisk(disk, DataDirectory.open(disk, PATH, server=SERVER, entropy=entropy_of(1)))


def begin(group: GroupId, index: int = 5) -> Begin:
    header = header_of(SnapshotMeta(index, 1, 9, b"members"))
    return Begin(evolve(header, group=group, id=bytes([group, index] * 8)))


def finished(disk: SnapshotDisk, group: GroupId) -> SnapshotInfo:
    info = disk.perform(Finish(group, 1, 1, 0))
    assert isinstance(info, SnapshotInfo)
    return info


def test_images_of_two_groups_are_written_and_read_piece_by_piece_at_the_same_time() -> None:
    disk = snapshot_disk()
    groups = (COORDINATION_GROUP, TOPIC)
    pieces = {group: [bytes([group, number]) * (BLOCK_BYTES // 2) for number in range(2)] for group in groups}
    for group in groups:
        disk.perform(begin(group))
    for number in range(2):
        for group in groups:
            disk.perform(WriteBlock(group, pieces[group][number]))
    infos = {group: finished(disk, group) for group in groups}
    for number in range(2):
        for group in groups:
            assert disk.perform(Load(infos[group], first=not number)) == pieces[group][number]
    assert [disk.perform(Load(info)) for info in infos.values()] == [None, None]


def test_a_snapshot_that_was_given_up_is_not_finished_and_the_other_groups_is() -> None:
    disk = snapshot_disk()
    disk.perform(begin(TOPIC))
    assert isinstance(disk.perform(WriteBlock(COORDINATION_GROUP, b"x")), SnapshotGoneError)
    assert isinstance(disk.perform(Finish(COORDINATION_GROUP, 1, 1, 0)), SnapshotGoneError)
    disk.perform(WriteBlock(TOPIC, b"image"))
    assert disk.perform(Load(finished(disk, TOPIC), first=True)) == b"image"


def test_a_purge_removes_the_oldest_snapshots_of_its_group_alone() -> None:
    disk = snapshot_disk()
    infos = []
    for group in (COORDINATION_GROUP, TOPIC):
        for index in (5, 6, 7):
            disk.perform(begin(group, index))
            disk.perform(WriteBlock(group, bytes([index])))
            infos.append(finished(disk, group))
    disk.perform(Purge(TOPIC, 2))
    gone = [
        isinstance(disk.perform(ReadSnapshot(2, info.group, info.id, 0, 1)), SnapshotGoneError)
        for info in infos
    ]
    assert gone == [False, False, False, True, False, False]
