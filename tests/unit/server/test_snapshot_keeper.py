"""When a snapshot is written, in which steps, and how much log is kept behind it."""

from __future__ import annotations

import random

import pytest

from tests.unit.server.test_snapshot_transfer import machine_with
from zraft.ids import COORDINATION_GROUP, Instance, ServerId
from zraft.raft.snapshot import SnapshotMeta
from zraft.server.identity import Identity
from zraft.server.snapshot_keeper import (
    BLOCKS_QUEUED_MAX,
    MARK_BYTES,
    RETRY_MS,
    SLICE_GAP_MS,
    SnapshotKeeper,
    SnapshotSettings,
)
from zraft.server.snapshot_tasks import Abort, Begin, Finish, Purge, Task, WriteBlock
from zraft.storage.errors import DiskFullError
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.tree.image import ImageReader
from zraft.tree.machine import Machine

CLUSTER = b"c" * 16
MEBIBYTE = 1024 * 1024
SETTINGS = SnapshotSettings(log_bytes_min=10_000, log_ratio_percent=200, commands_min=1_000, keep=2)


def meta(index: int = 5) -> SnapshotMeta:
    return SnapshotMeta(index, 1, index + 1, b"")


def info(index: int, size: int = 100, items: int = 10) -> SnapshotInfo:
    header = SnapshotHeader(
        COORDINATION_GROUP, meta(index), CLUSTER, ServerId(1), Instance(b"1" * 16), bytes(16), 1, 0
    )
    return SnapshotInfo(header, "/snap", size, items, 0, 0)


class Place:
    """A keeper on server 5, whose stagger is none, and what it asked of the disk."""

    def __init__(self, machine: Machine | None = None, settings: SnapshotSettings = SETTINGS) -> None:
        self.machine = machine if machine is not None else machine_with(10)
        identity = Identity(ServerId(5), Instance(b"5" * 16), 1, b"", CLUSTER)
        self.keeper = SnapshotKeeper(settings, identity, self.machine, random.Random(1).randbytes, None)
        self.now = 0
        self.tasks: list[Task] = []

    def step(self, *, idle: bool = True) -> list[Task]:
        tasks = self.keeper.step(self.now, 0, meta, CLUSTER, idle=idle)
        self.tasks += tasks
        return tasks

    def finish(self, at: int = 5) -> None:
        """Steps and a disk that does all at once, until the snapshot is durable."""
        while True:
            self.now += SLICE_GAP_MS
            for task in self.step():
                result = info(at) if isinstance(task, Finish) else None
                self.tasks += self.keeper.performed(task, result, self.now)
                if isinstance(task, Finish):
                    return


def test_no_snapshot_before_the_log_is_long_enough() -> None:
    place = Place()
    place.keeper.applied(5, 9_999, 999)
    assert place.step() == []
    place.keeper.applied(6, 1, 0)
    assert isinstance(place.step()[0], Begin)


def test_commands_to_replay_count_as_well_as_bytes() -> None:
    place = Place()
    place.keeper.applied(5, 10, 1_000)
    assert isinstance(place.step()[0], Begin)


def test_a_busy_server_waits_for_twice_as_much_but_not_for_ever() -> None:
    place = Place()
    place.keeper.applied(5, 19_999, 0)
    assert place.step(idle=False) == []
    place.keeper.applied(6, 1, 0)
    assert place.step(idle=False)


def test_a_large_state_is_written_less_often() -> None:
    """By size ratio: a snapshot per 10 kB of log would write a state of gigabytes again and again."""
    place = Place()
    place.keeper.restored(info(5, size=MEBIBYTE))
    place.keeper.applied(6, 2 * MEBIBYTE, 0)
    assert place.step() == []
    place.keeper.applied(7, 5 * MEBIBYTE, 0)
    assert place.step()


def test_servers_do_not_all_write_at_the_same_moment() -> None:
    due = set()
    for server in range(1, 6):
        identity = Identity(ServerId(server), Instance(b"5" * 16), 1, b"", CLUSTER)
        keeper = SnapshotKeeper(SETTINGS, identity, machine_with(1), random.Random(1).randbytes, None)
        size = 0
        while not keeper.is_due(0, idle=True):
            keeper.applied(5, 100, 0)
            size += 100
        due.add(size)
    assert len(due) == 5


def test_what_is_written_is_the_state_of_the_moment_it_began() -> None:
    place = Place(machine_with(3_000))
    before = place.machine.full_digest()
    place.keeper.request()
    place.finish()
    reader = ImageReader()
    for task in place.tasks:
        if isinstance(task, WriteBlock):
            reader.feed(task.block)
            while reader.step(1_000):
                pass
    (finish,) = [task for task in place.tasks if isinstance(task, Finish)]
    assert finish.digest == reader.finish().digest == before
    assert place.tasks[-1] == Purge(SETTINGS.keep)
    assert place.keeper.newest is not None


def test_slices_keep_a_distance_and_a_slow_disk_is_waited_for() -> None:
    place = Place(machine_with(20_000))
    place.keeper.request()
    assert len(place.step()) == 2
    assert place.step() == [], "not twice in a moment"
    for _ in range(3 * BLOCKS_QUEUED_MAX):
        place.now += SLICE_GAP_MS
        place.step()
    assert len(place.tasks) <= BLOCKS_QUEUED_MAX + 2
    place.keeper.performed(place.tasks[0], None, place.now)
    place.keeper.performed(place.tasks[1], None, place.now)
    place.now += SLICE_GAP_MS
    assert place.step()


def test_a_full_disk_ends_the_attempt_and_it_is_repeated_later() -> None:
    place = Place(machine_with(3_000))
    place.keeper.request()
    begin = place.step()[0]
    assert place.keeper.performed(begin, DiskFullError("/snap: full"), 0) == [Abort()]
    assert not place.keeper.writing
    assert place.machine.image_writer is None, "changes cost what they did before"
    place.keeper.request()
    assert place.step() == []
    place.now = RETRY_MS
    assert place.step()


def test_an_adopted_state_makes_the_snapshot_under_way_obsolete() -> None:
    place = Place(machine_with(3_000))
    place.keeper.request()
    place.step()
    place.keeper.restored(info(50))
    assert not place.keeper.writing
    assert place.keeper.newest == info(50)


# -- how much log is kept


def long_log(settings: SnapshotSettings) -> Place:
    """Entries 1 to 400 of a mark's size each, with snapshots at 100 and 300."""
    place = Place(settings=settings)
    for index in range(1, 401):
        place.keeper.applied(index, MARK_BYTES, 1)
        if index in (100, 300):
            place.keeper.request()
            place.finish(index)
    return place


def test_nothing_is_cut_before_there_is_a_snapshot() -> None:
    place = Place()
    place.keeper.applied(100, 100 * MEBIBYTE, 1)
    assert place.keeper.may_compact_to([]) == 0


def test_the_log_reaches_back_to_the_snapshot_before_the_newest() -> None:
    """Bit rot in the newest one then costs nothing but a longer start."""
    place = long_log(SnapshotSettings(retain_bytes=0, retain_bytes_max=1 << 40))
    assert place.keeper.may_compact_to([]) == 100


@pytest.mark.parametrize("needed", [[30], [30, 250]])
def test_the_log_is_kept_for_followers_that_are_heard(needed: list[int]) -> None:
    place = long_log(SnapshotSettings(retain_bytes=0, retain_bytes_max=1 << 40))
    assert place.keeper.may_compact_to(needed) == 30


def test_but_not_beyond_the_bound() -> None:
    """Memory and disk stay bounded however slow a follower is: it gets a snapshot."""
    place = long_log(SnapshotSettings(retain_bytes=0, retain_bytes_max=50 * MARK_BYTES))
    assert 245 <= place.keeper.may_compact_to([30]) <= 255


def test_a_suffix_is_always_kept() -> None:
    place = long_log(SnapshotSettings(retain_bytes=250 * MARK_BYTES, retain_bytes_max=1 << 40))
    assert 45 <= place.keeper.may_compact_to([]) <= 55
