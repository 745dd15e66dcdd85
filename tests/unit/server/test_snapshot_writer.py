"""In which slices images of several groups are written, when each may be written, and what follows a failure."""

from __future__ import annotations

import random

from zraft.groups.identity import Identity
from zraft.groups.snapshots.delivery_tasks import SyncDeliveries
from zraft.groups.snapshots.tasks import Abort, Begin, Finish, Task, WriteBlock
from zraft.groups.snapshots.work import PROBLEMS_KEPT_MAX, Work
from zraft.groups.snapshots.writing import (
    ASK_AGAIN_MS,
    RETRY_MS,
    SLICE_BYTES_MAX,
    SLICE_GAP_MS,
    SmallImage,
    SnapshotWriter,
    Written,
)
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.errors import DiskFullError, SnapshotGoneError
from zraft.storage.snapshot_format import SnapshotInfo
from zraft_core.ids import COORDINATION_GROUP, GroupId, Instance, ServerId

G1, G2 = GroupId(1), GroupId(2)
INDEX = 9


class Place:
    """A writer, how far deliveries are durable, and groups whose state is on its way from elsewhere."""

    def __init__(self) -> None:
        self.work = Work()
        self.cuts: dict[GroupId, int] = {}
        self.received: set[GroupId] = set()
        identity = Identity(ServerId(1), Instance(b"1" * 16), 1, b"", b"c" * 16)
        self.writer = SnapshotWriter(
            identity, random.Random(1).randbytes, self.work, lambda group: self.cuts.get(group, INDEX)
        )
        self.now = 0

    def write(self, group: GroupId, image: bytes) -> None:
        self.writer.write(
            group,
            SnapshotMeta(INDEX, 1, INDEX + 1, b""),
            SmallImage(image, 7),
            cluster=b"c" * 16,
            feature_level=1,
            wall_ms=0,
        )

    def step(self, later_ms: int = SLICE_GAP_MS) -> list[Task]:
        self.now += later_ms
        self.writer.step(self.now, self.received, lambda: True)
        return self.work.take_tasks()

    def full(self, task: Task) -> Written | None:
        assert isinstance(task, Begin | WriteBlock | Finish)
        return self.writer.performed(task, DiskFullError("/snap: no space"), self.now)


def kinds(tasks: list[Task]) -> list[tuple[type[Task], GroupId]]:
    return [(type(task), task.group) for task in tasks]


def test_a_small_image_is_one_slice() -> None:
    place = Place()
    place.write(G1, b"image")
    begin, block, finish = place.step()
    assert isinstance(begin, Begin)
    assert block == WriteBlock(G1, b"image")
    assert finish == Finish(G1, 1, 7, 0)


def test_images_of_several_groups_share_one_pace_and_take_turns() -> None:
    place = Place()
    large = bytes(2 * SLICE_BYTES_MAX + 1)
    place.write(G1, large)
    place.write(COORDINATION_GROUP, large)
    assert kinds(place.step()) == [
        (Begin, G1),
        (Begin, COORDINATION_GROUP),
        (WriteBlock, G1),
    ]
    assert place.step(SLICE_GAP_MS - 1) == []
    slices = [kinds(place.step()) for _ in range(5)]
    assert slices == [
        [(WriteBlock, COORDINATION_GROUP)],
        [(WriteBlock, G1)],
        [(WriteBlock, COORDINATION_GROUP)],
        [(WriteBlock, G1), (Finish, G1)],
        [(WriteBlock, COORDINATION_GROUP), (Finish, COORDINATION_GROUP)],
    ]
    assert place.writer.wake_in_ms is None, "the rest is the disk's"
    assert place.writer.images


def test_d13_an_image_waits_until_what_its_group_delivered_is_durable_and_others_do_not_wait_for_it() -> None:
    place = Place()
    place.cuts[G1] = INDEX - 1
    place.write(G1, b"one")
    place.write(G2, b"two")
    assert {group for _, group in kinds(place.step())} == {G2}
    assert place.work.take_deliveries() == [SyncDeliveries(G1)]
    place.step(ASK_AGAIN_MS - 1)
    assert place.work.take_deliveries() == []
    place.step(1)
    assert place.work.take_deliveries() == [SyncDeliveries(G1)]
    place.cuts[G1] = INDEX
    assert kinds(place.step()) == [(Begin, G1), (WriteBlock, G1), (Finish, G1)]


def test_after_a_failure_a_groups_next_image_waits_and_what_the_disk_still_says_of_the_last_does_not_count() -> (
    None
):
    place = Place()
    place.write(G1, b"one")
    begin, block, finish = place.step()
    failed = place.full(begin)
    assert failed is not None
    assert (failed.group, failed.info) == (G1, None)
    assert place.work.take_tasks() == [Abort(G1)]
    assert "no snapshot of group 1 could be written" in place.work.problems[-1]
    place.write(G1, b"two")
    for task in (block, finish):
        assert isinstance(task, WriteBlock | Finish)
        assert place.writer.performed(task, SnapshotGoneError("given up"), place.now) is None
    assert place.step(RETRY_MS - 1 - SLICE_GAP_MS) == []
    place.write(G2, b"three")
    assert {group for _, group in kinds(place.step())} == {G2}, "others need not wait"
    begin, block, finish = place.step()
    assert block == WriteBlock(G1, b"two")
    assert isinstance(begin, Begin)
    assert isinstance(finish, Finish)
    info = SnapshotInfo(begin.header, "/snap", 1, 1, 7, 0)
    written = place.writer.performed(finish, info, place.now)
    assert written is not None
    assert (written.info, written.size) == (info, len(b"two"))
    assert place.writer.may_begin(G1, place.now)
    assert not place.writer.performed(finish, info, place.now)


def test_no_image_of_a_group_is_written_while_another_servers_state_of_it_is_on_its_way() -> None:
    place = Place()
    place.write(G1, bytes(SLICE_BYTES_MAX + 1))
    place.step()
    place.received = {G1, G2}
    place.write(G2, b"two")
    assert place.step() == []
    place.received.clear()
    assert kinds(place.step()) == [(Begin, G2), (WriteBlock, G1), (Finish, G1)]


def test_problems_do_not_gather_without_end() -> None:
    work = Work()
    for number in range(3 * PROBLEMS_KEPT_MAX):
        work.failed(str(number))
    assert work.problems == [str(number) for number in range(2 * PROBLEMS_KEPT_MAX, 3 * PROBLEMS_KEPT_MAX)]
