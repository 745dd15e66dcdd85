"""When a snapshot is written, in which steps, and how much log is kept behind it."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.unit.server.test_snapshot_transfer import machine_with
from zraft.config.sections import SnapshotConfig
from zraft.groups.identity import Identity
from zraft.groups.retention import LogRetention
from zraft.groups.settings import GroupSettings
from zraft.groups.snapshots.keeper import MARK_BYTES, SnapshotKeeper
from zraft.groups.snapshots.snapshots import Snapshots
from zraft.groups.snapshots.tasks import Abort, Begin, Finish, Purge, Result, Task, WriteBlock
from zraft.groups.snapshots.writing import (
    BLOCKS_QUEUED_MAX,
    RETRY_MS,
    SLICE_GAP_MS,
    UNHURRIED_GAP_MS,
    Written,
)
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import HardState, Member
from zraft.raft.settings import RaftSettings
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.errors import DiskFullError
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.tree.image.reader import ImageReader
from zraft.tree.machine import Machine
from zraft_core.ids import COORDINATION_GROUP, GroupId, Instance, ServerId
from zraft_core.znodes.txn import SET_DATA

CLUSTER = b"c" * 16
MEBIBYTE = 1024 * 1024
WAL_BYTES_MAX = 512 * MEBIBYTE
TOPICS_GROUP = GroupId(7)
SETTINGS = SnapshotConfig(log_bytes_min=10_000, log_ratio_percent=200, commands_min=1_000, keep=2)


def meta(index: int = 5) -> SnapshotMeta:
    return SnapshotMeta(index, 1, index + 1, b"")


def info(index: int, size: int = 100, items: int = 10) -> SnapshotInfo:
    header = SnapshotHeader(
        COORDINATION_GROUP, meta(index), CLUSTER, ServerId(1), Instance(b"1" * 16), bytes(16), 1, 0
    )
    return SnapshotInfo(header, "/snap", size, items, 0, 0)


def image(found: SnapshotInfo | None) -> Written:
    """A small image that became this snapshot, or none."""
    return Written(COORDINATION_GROUP, meta(), found, 100)


class Place:
    """Snapshots on server 5, whose stagger is none, and what they asked of the disk."""

    def __init__(self, machine: Machine | None = None, settings: SnapshotConfig = SETTINGS) -> None:
        self.machine = machine if machine is not None else machine_with(10)
        identity = Identity(ServerId(5), Instance(b"5" * 16), 1, b"", CLUSTER)
        self.retention = LogRetention(GroupSettings(snapshot_bytes=1_000, wal_bytes_max=WAL_BYTES_MAX))
        self.raft = Raft(
            group=COORDINATION_GROUP,
            server=identity.server,
            instance=identity.instance,
            settings=RaftSettings(),
            hard_state=HardState(),
            log=Log(),
            membership=Membership({identity.server: Member(identity.instance)}),
            rng=random.Random(1),
        )
        self.snapshots = Snapshots(
            settings,
            identity,
            self.machine,
            random.Random(1).randbytes,
            None,
            self.retention,
            lambda index: 0,
            lambda group: self.raft,
            lambda group: 0,
        )
        self.snapshots._compact_at = 1 << 60  # each test asks for itself how much log may go
        self.keeper = self.snapshots.keeper
        self.now = 0
        self.index = 5
        self.tasks: list[Task] = []

    def step(self, *, idle: bool = True) -> list[Task]:
        self.snapshots.turn(self.now, 0, self.raft, lambda: meta(self.index), CLUSTER, idle=idle)
        return self._take()

    def performed(self, task: Task, result: Result) -> list[Task]:
        self.snapshots.performed(task, result, self.now)
        return self._take()

    def _take(self) -> list[Task]:
        tasks = self.snapshots.work.take_tasks()
        self.tasks += tasks
        return tasks

    def finish(self, at: int = 5) -> None:
        """Steps and a disk that does all at once, until the snapshot of entry `at` is durable."""
        self.index = at
        while True:
            self.now += SLICE_GAP_MS
            for task in self.step():
                self.performed(task, info(at) if isinstance(task, Finish) else None)
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


TIMED = SnapshotConfig(replay_ms=4_500)
"""At most 4.5 s of replay, so that an idle server writes after a second of it, and a busy one after two."""


def test_the_work_of_a_restart_is_counted_until_the_snapshot_that_covers_it_is_durable() -> None:
    keeper = Place(settings=TIMED).keeper
    keeper.applied(5, 10_000, 100, 1.5)
    keeper.begun(meta(5))
    keeper.applied(6, 10_000, 100, 0.25)
    keeper.written(image(None))
    assert keeper.restart_s == 1.75
    keeper.begun(meta(6))
    keeper.applied(7, 10_000, 100, 0.5)
    assert keeper.restart_s == 2.25
    keeper.written(image(info(6)))
    assert keeper.restart_s == 0.5


@pytest.mark.parametrize("server", range(1, 6))
def test_a_restart_finds_no_more_work_than_it_may_whenever_it_comes(server: int) -> None:
    """A busy server that is as slow with its image as it may be, at each of its moments."""
    keeper = SnapshotKeeper(TIMED, ServerId(server), machine_with(1), None, LogRetention(GroupSettings()))
    keeper._machine.index = 5
    most = 0.0
    for _ in range(3):
        while not keeper.is_due(idle=False):
            keeper.applied(5, 10_000, 1_000, 0.01)
        keeper.begun(meta())
        keeper.applied(5, 10_000, 1_000, 0.01)
        while not keeper.next_slice_hurries(1.0):
            keeper.applied(5, 10_000, 1_000, 0.01)
        most = max(most, keeper.restart_s)
        keeper.written(image(info(5)))
    assert most > 2.5
    assert most <= TIMED.replay_ms / 1000


def test_a_snapshot_is_due_after_its_part_of_the_time_that_a_restart_may_take() -> None:
    place = Place(settings=TIMED)
    for index in range(5, 12):
        place.keeper.applied(index, 10_000, 100, 0.125)
    assert place.keeper.replay_s == 0.875
    assert place.step() == []
    place.keeper.applied(12, 10_000, 100, 0.125)
    assert place.step(idle=False) == []
    assert isinstance(place.step()[0], Begin)
    assert place.keeper.replay_s == 0


def test_before_anything_is_measured_commands_count_as_much_as_on_a_slow_machine() -> None:
    place = Place(settings=TIMED)
    place.keeper.applied(5, 10, 99_999)
    assert place.step() == []
    place.keeper.applied(6, 10, 1)
    assert isinstance(place.step()[0], Begin)


def test_small_entries_count_by_what_a_command_of_large_ones_took() -> None:
    place = Place(settings=TIMED)
    for index in range(5, 105):
        place.keeper.applied(index, 10_000, 1_000, 0.002)
    measured_s = place.keeper.replay_s
    place.keeper.applied(105, 100, 1)
    assert place.keeper.replay_s - measured_s == pytest.approx(2e-6)


def test_a_large_transaction_counts_itself_and_says_nothing_about_other_commands() -> None:
    place = Place(settings=TIMED)
    for index in range(5, 105):
        place.keeper.applied(index, 60_000, 1_000, 0.002)
    place.keeper.applied(105, 60_000, 1, 0.5)
    measured_s = place.keeper.replay_s
    for index in range(106, 206):
        place.keeper.applied(index, 100, 1)
    assert place.keeper.replay_s - measured_s == pytest.approx(100 * 2e-6)


def test_a_state_of_many_znodes_is_not_written_before_half_as_many_commands_in_whatever_time() -> None:
    place = Place(settings=TIMED)
    place.keeper.restored(info(5, items=1_000_000))
    place.keeper.applied(6, 10, 499_999)
    assert place.step() == []
    place.keeper.applied(7, 10, 1)
    assert place.step()


def test_a_busy_server_waits_for_twice_as_much_but_not_for_ever() -> None:
    place = Place()
    place.keeper.applied(5, 19_999, 0)
    assert place.step(idle=False) == []
    place.keeper.applied(6, 1, 0)
    assert place.step(idle=False)


def write_under_load(
    place: Place, per_gap: int, *, request: bool = False, change: bool = False
) -> tuple[list[int], int]:
    """The gaps between the slices of one image while `per_gap` bytes are applied each 4 ms, and the bytes in the end."""
    znodes = [path for path, _ in place.machine.nodes.items() if path.startswith("/z")]
    if request:
        place.keeper.request()
    else:
        place.keeper.applied(5, 20_000, 0)
    at, gaps = [], []
    for _ in range(100_000):
        place.now += SLICE_GAP_MS
        if per_gap:
            place.keeper.applied(6, per_gap, 0)
        if change and znodes:
            for path in znodes[-200:]:
                place.machine.execute((SET_DATA, path, b"", -1))
            del znodes[-200:]
        for task in place.step(idle=False):
            if isinstance(task, WriteBlock):
                at.append(place.now)
            elif isinstance(task, Finish):
                gaps = [after - before for before, after in itertools.pairwise(at)]
                return gaps, place.keeper.log_bytes
            place.performed(task, None)
    raise AssertionError("the image was never finished")


def test_a_server_with_other_work_writes_slowly_and_has_written_all_when_the_log_has_half_of_what_is_due() -> (
    None
):
    gaps, _ = write_under_load(Place(machine_with(20_000)), 1)
    assert gaps.count(UNHURRIED_GAP_MS) > 0.8 * len(gaps) > 20
    for per_gap in (20, 100, 200):
        gaps, log_bytes = write_under_load(Place(machine_with(20_000)), per_gap)
        assert log_bytes < 1.3 * SETTINGS.log_bytes_min, per_gap
    assert set(gaps) == {SLICE_GAP_MS}, "it is late from the beginning on"


def test_a_quiet_server_writes_as_fast_as_it_may_and_so_does_one_whose_snapshot_somebody_waits_for() -> None:
    for gaps, _ in (
        write_under_load(Place(machine_with(20_000)), 0),
        write_under_load(Place(machine_with(20_000)), 1, request=True),
    ):
        assert set(gaps) == {SLICE_GAP_MS}


def test_a_request_hurries_the_image_that_is_being_written() -> None:
    place = Place(machine_with(20_000))
    place.keeper.applied(5, 20_000, 0)
    for _ in range(20):
        place.now += UNHURRIED_GAP_MS
        place.keeper.applied(6, 1, 0)
        for task in place.step(idle=False):
            place.performed(task, None)
    gaps, _ = write_under_load(place, 1, request=True)
    assert set(gaps) == {SLICE_GAP_MS}


def test_what_changes_before_its_turn_comes_makes_an_image_hurry() -> None:
    """It is in memory until it is taken."""
    place = Place(machine_with(20_000))
    for number in range(20_000):
        place.machine.execute((SET_DATA, f"/z{number}", bytes(2_000), -1))
    gaps, _ = write_under_load(place, 1, change=True)
    assert gaps.count(SLICE_GAP_MS) > 0.8 * len(gaps)


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
        keeper = SnapshotKeeper(
            SETTINGS, ServerId(server), machine_with(1), None, LogRetention(GroupSettings())
        )
        size = 0
        while not keeper.is_due(idle=True):
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
    assert place.tasks[-1] == Purge(COORDINATION_GROUP, SETTINGS.keep)
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
    place.performed(place.tasks[0], None)
    place.performed(place.tasks[1], None)
    place.now += SLICE_GAP_MS
    assert place.step()


def test_a_full_disk_ends_the_attempt_and_it_is_repeated_later() -> None:
    place = Place(machine_with(3_000))
    place.keeper.request()
    begin = place.step()[0]
    assert place.performed(begin, DiskFullError("/snap: full")) == [Abort(COORDINATION_GROUP)]
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
    place.snapshots.restored(info(50))
    assert place.machine.image_writer is None
    assert not place.keeper.writing
    assert place.keeper.newest == info(50)


# -- how much log is kept


def long_log(settings: SnapshotConfig) -> Place:
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
    place = long_log(SnapshotConfig(retain_bytes=0, retain_bytes_max=1 << 40))
    assert place.keeper.may_compact_to([]) == 100


@pytest.mark.parametrize("needed", [[30], [30, 250]])
def test_the_log_is_kept_for_followers_that_are_heard(needed: list[int]) -> None:
    place = long_log(SnapshotConfig(retain_bytes=0, retain_bytes_max=1 << 40))
    assert place.keeper.may_compact_to(needed) == 30


def test_but_not_beyond_the_bound() -> None:
    """Memory and disk stay bounded however slow a follower is: it gets a snapshot."""
    place = long_log(SnapshotConfig(retain_bytes=0, retain_bytes_max=50 * MARK_BYTES))
    assert 245 <= place.keeper.may_compact_to([30]) <= 255


def test_a_suffix_is_always_kept() -> None:
    place = long_log(SnapshotConfig(retain_bytes=250 * MARK_BYTES, retain_bytes_max=1 << 40))
    assert 45 <= place.keeper.may_compact_to([]) <= 55


# -- what topics write into the same log


def silent_while_topics_write(size: int = WAL_BYTES_MAX // 2 + 10 * MEBIBYTE) -> Place:
    """Entries 1 to 4 of the coordination group, then only those of a topic, which has images of its own."""
    place = Place(machine_with(3_000))
    for index in range(1, 5):
        place.keeper.applied(index, 100, 1)
    write_topic(place, size)
    return place


def write_topic(place: Place, size: int) -> None:
    place.retention.wrote(TOPICS_GROUP, size)
    place.retention.begun(TOPICS_GROUP)
    place.retention.ended(TOPICS_GROUP, durable=True, needs_more=False)


def snapshot(place: Place, at: int) -> None:
    place.keeper.shorten_log()
    place.finish(at)


def test_a_silent_group_is_due_when_topics_wrote_half_of_what_it_may_hold_back() -> None:
    place = silent_while_topics_write(WAL_BYTES_MAX // 2)
    assert list(place.retention.due()) == []
    assert place.step() == []
    write_topic(place, 1)
    assert list(place.retention.due()) == [COORDINATION_GROUP]
    assert place.retention.oldest == COORDINATION_GROUP


def test_what_it_writes_itself_does_not_make_it_due_for_the_sake_of_others() -> None:
    """By its own bytes it is judged as where there are no topics."""
    place = silent_while_topics_write(WAL_BYTES_MAX // 2)
    place.keeper.applied(5, WAL_BYTES_MAX, 1)
    assert list(place.retention.due()) == []


def test_while_its_snapshot_is_written_it_is_not_due_and_after_a_failure_it_is_again() -> None:
    place = silent_while_topics_write()
    place.keeper.shorten_log()
    begin = place.step()[0]
    assert isinstance(begin, Begin)
    assert list(place.retention.due()) == []
    place.performed(begin, DiskFullError("/snap: full"))
    assert list(place.retention.due()) == [COORDINATION_GROUP]


def test_the_log_is_kept_back_to_the_snapshot_before_the_newest_while_that_is_not_too_long() -> None:
    place = silent_while_topics_write()
    snapshot(place, 4)
    assert list(place.retention.due()) == []
    place.keeper.applied(5, 100, 1)
    write_topic(place, WAL_BYTES_MAX // 2 + 10 * MEBIBYTE)
    assert list(place.retention.due()) == [COORDINATION_GROUP]
    place.keeper.newest = info(4)
    snapshot(place, 5)
    place.keeper.kept_from(4, last_index=5)
    assert place.keeper.may_compact_to([5]) == 4
    write_topic(place, WAL_BYTES_MAX // 2)
    assert place.keeper.may_compact_to([2]) == 5, "nor for who is slow, then"
    place.keeper.kept_from(5, last_index=6)
    assert place.retention.needed_bytes == WAL_BYTES_MAX // 2


def test_no_image_is_written_that_would_say_nothing_new() -> None:
    place = silent_while_topics_write()
    place.keeper.restored(info(place.machine.index))
    write_topic(place, WAL_BYTES_MAX)
    assert COORDINATION_GROUP in place.retention.due()
    place.keeper.shorten_log()
    assert place.step() == []
    assert COORDINATION_GROUP not in place.retention.due()


def test_a_group_with_nothing_in_the_log_holds_nothing_back_however_much_topics_write() -> None:
    """Its newest image says all; else it would be named as the one that needs the oldest part of the log."""
    place = silent_while_topics_write()
    snapshot(place, 4)
    place.keeper.kept_from(4, last_index=4)
    write_topic(place, WAL_BYTES_MAX + 10 * MEBIBYTE)
    place.keeper.kept_from(4, last_index=4)
    assert place.retention.needed_bytes == 0
    assert not place.retention.is_long(COORDINATION_GROUP)
    place.keeper.applied(5, 100, 1)
    place.keeper.kept_from(4, last_index=5)
    assert (place.retention.oldest, place.retention.needed_bytes) == (COORDINATION_GROUP, 100)


def test_a_group_that_was_silent_holds_back_the_log_from_its_next_entry_on_and_not_what_was_before() -> None:
    place = silent_while_topics_write()
    snapshot(place, 4)
    write_topic(place, WAL_BYTES_MAX)
    place.keeper.applied(5, 100, 1)
    write_topic(place, 1_000)
    place.keeper.kept_from(4, last_index=5)
    assert (place.retention.oldest, place.retention.needed_bytes) == (COORDINATION_GROUP, 1_100)


def test_who_pulls_a_snapshot_may_finish_before_the_log_after_it_goes() -> None:
    place = silent_while_topics_write(0)
    snapshot(place, 4)
    place.keeper.applied(5, 100, 1)
    write_topic(place, WAL_BYTES_MAX + 10 * MEBIBYTE)
    place.keeper.request()
    place.finish(5)
    assert place.keeper.may_compact_to([1], pulled=4) == 4
    assert place.keeper.may_compact_to([1]) == 5


def test_a_large_state_holds_back_as_much_more_of_the_log_as_its_image_takes() -> None:
    """Or a million znodes would be written again whenever topics wrote a little."""
    place = silent_while_topics_write()
    assert list(place.retention.due()) == [COORDINATION_GROUP]
    place.keeper.restored(info(5, size=100 * MEBIBYTE))
    write_topic(place, (WAL_BYTES_MAX + 200 * MEBIBYTE) // 2)
    assert list(place.retention.due()) == []
    write_topic(place, 60 * MEBIBYTE)
    assert list(place.retention.due()) == [COORDINATION_GROUP]


def test_bounds_on_the_log_count_what_all_groups_wrote() -> None:
    settings = SnapshotConfig(retain_bytes=0, retain_bytes_max=50 * MEBIBYTE)
    place = Place(settings=settings)
    for index in range(1, 11):
        place.keeper.applied(index, 100, 1)
        write_topic(place, 10 * MEBIBYTE)
    place.keeper.request()
    place.finish(10)
    assert place.keeper.may_compact_to([1]) == 6


def test_a_start_counts_what_the_group_holds_back_of_the_log_that_is_there() -> None:
    retention = LogRetention(GroupSettings())
    held = {0: 700 * MEBIBYTE, 5: 300 * MEBIBYTE}
    keeper = SnapshotKeeper(SETTINGS, ServerId(5), machine_with(1), info(5), retention, held.__getitem__)
    assert retention.needed_bytes == 700 * MEBIBYTE
    assert list(retention.due()) == [COORDINATION_GROUP]
    keeper.kept_from(keeper.may_compact_to([]), last_index=6)
    assert retention.needed_bytes == 300 * MEBIBYTE
