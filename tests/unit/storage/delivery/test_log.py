"""A group's deliveries: written once, read from anywhere, recognised when they come again (D-13)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from attrs import evolve

from tests.simulation.disk import SimulatedDisk
from tests.so_far import so_far
from tests.unit.storage.delivery.scenario import (
    DIRECTORY,
    GROUP,
    SMALL,
    Opened,
    between,
    feed,
    history,
    mark_after,
    open_log,
    read_all,
)
from zraft.storage.delivery.reading import DELIVERY_OVERHEAD_BYTES
from zraft.storage.delivery.settings import DeliveryRetention, DeliverySettings
from zraft.storage.delivery.values import StoredDelivery
from zraft.storage.errors import CorruptionError, DeliveriesDifferError, DeliveriesGoneError
from zraft_core.errors import ConfigError

HISTORY = history(120)
LAST = HISTORY[-1].index


def reopened(disk: SimulatedDisk, seed: int = 2) -> Opened:
    disk.kill()
    return open_log(disk, seed=seed)


def test_deliveries_are_read_back_as_they_were_from_every_offset() -> None:
    opened = open_log(SimulatedDisk())
    feed(opened.log, HISTORY)
    assert len(opened.log.manifest().segments) > 5
    for offset in range(0, len(HISTORY), 3):
        assert opened.log.read(offset, 1 << 30) == HISTORY[offset:]
    assert opened.log.read(len(HISTORY)) == []
    assert opened.log.read(len(HISTORY) + 5) == []


def test_a_read_is_bounded_in_bytes_but_gives_at_least_one() -> None:
    opened = open_log(SimulatedDisk())
    feed(opened.log, HISTORY)
    for offset in range(0, len(HISTORY), 7):
        found = opened.log.read(offset, 1000)
        cost = [
            len(one.payload) + DELIVERY_OVERHEAD_BYTES for one in HISTORY[offset : offset + len(found) + 1]
        ]
        assert sum(cost[: len(found)]) <= 1000
        assert sum(cost) > 1000 or offset + len(found) == len(HISTORY)
        assert opened.log.read(offset, 0) == HISTORY[offset : offset + 1]


def test_what_was_appended_is_read_at_once_and_durable_after_sync() -> None:
    opened = open_log(SimulatedDisk(), settings=evolve(SMALL, sync_bytes_max=1 << 20))
    log = opened.log
    first = HISTORY[0].index
    log.append(between(HISTORY, 0, first), first)
    assert log.read(0) == between(HISTORY, 0, first)
    assert log.durable_index == 0
    assert so_far(log.dirty)
    assert log.sync() == first == log.durable_index
    assert not log.dirty
    log.append([], first + 1)
    assert log.durable_index == first + 1, "what delivers nothing needs no disk"


def test_deliveries_that_come_again_are_recognised_and_not_written_twice() -> None:
    disk = SimulatedDisk()
    opened = open_log(disk)
    feed(opened.log, HISTORY)
    opened.log.sync()
    opened = reopened(disk)
    before = opened.log.statistics()
    feed(opened.log, HISTORY, Random(9))
    assert opened.log.statistics() == before
    assert not opened.log.dirty
    assert read_all(opened.log) == HISTORY


def test_a_batch_that_is_known_in_part_is_written_from_there_on() -> None:
    opened = open_log(SimulatedDisk())
    middle = HISTORY[60].index
    feed(opened.log, between(HISTORY, 0, middle))
    opened.log.append(between(HISTORY, HISTORY[50].index, LAST), LAST)
    assert read_all(opened.log) == HISTORY


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"other"},
        {"producer": 77},
        {"number": 9999},
        {"time": 1},
        {"stamp": (1 << 60, 0, 0, 0)},
    ],
)
def test_another_delivery_at_a_known_offset_is_an_error(change: dict[str, Any]) -> None:
    opened = open_log(SimulatedDisk())
    feed(opened.log, HISTORY)
    differing = [*HISTORY[:40], evolve(HISTORY[40], **change), *HISTORY[41:]]
    with pytest.raises(
        DeliveriesDifferError, match=r"at offset 40 this disk has message .* the state machine of group"
    ):
        opened.log.append(differing, LAST)
    assert read_all(opened.log) == HISTORY


def test_a_gap_or_a_stamp_that_does_not_grow_is_an_error() -> None:
    opened = open_log(SimulatedDisk())
    upto = HISTORY[10].index
    known = between(HISTORY, 0, upto)
    opened.log.append(known, upto)
    rest = between(HISTORY, upto, LAST)
    with pytest.raises(DeliveriesDifferError, match=f"delivers offset {rest[1].offset} next"):
        opened.log.append(rest[1:], LAST)
    with pytest.raises(DeliveriesDifferError, match="comes after stamp"):
        opened.log.append([evolve(rest[0], stamp=known[-1].stamp)], LAST)
    with pytest.raises(DeliveriesDifferError, match="comes after stamp"):
        opened.log.append([evolve(rest[0], index=upto)], LAST)
    opened.log.append(rest, LAST)
    assert read_all(opened.log) == HISTORY


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("clean", [True, False])
def test_a_start_finds_everything(level: int, clean: bool) -> None:
    disk = SimulatedDisk()
    settings = evolve(SMALL, compression_level=level)
    opened = open_log(disk, settings=settings)
    feed(opened.log, HISTORY)
    end = opened.log.end
    if clean:
        opened.log.close()
        assert len(opened.files) == 0
    else:
        opened.log.sync()
    disk.kill()
    opened = open_log(disk, settings=settings, seed=2, expected=mark_after(HISTORY, LAST))
    assert opened.log.end == end
    assert opened.log.durable_index == LAST
    assert opened.report.torn is None
    assert not clean or opened.report.scanned == 0
    assert read_all(opened.log) == HISTORY


def test_compression_makes_what_can_be_compressed_smaller_and_leaves_the_rest() -> None:
    sizes = {}
    for level in (0, 3):
        opened = open_log(SimulatedDisk(), settings=evolve(SMALL, compression_level=level))
        feed(opened.log, HISTORY)
        sizes[level] = opened.log.statistics().bytes
        random = Random(1).randbytes(5000)
        one = StoredDelivery(len(HISTORY), (1 << 50, 0, 0, 0), 1, 1, random, LAST + 1, 5)
        opened.log.append([one], LAST + 1)
        assert opened.log.read(len(HISTORY)) == [one]
    assert sizes[3] < sizes[0] * 0.6


def test_a_delivery_larger_than_a_segment_has_one_of_its_own() -> None:
    disk = SimulatedDisk()
    opened = open_log(disk)
    big = [
        StoredDelivery(0, (1, 0, 0, 0), 1, 1, b"a" * 20_000, 5, 1),
        StoredDelivery(1, (2, 0, 0, 0), 1, 2, b"b", 5, 1),
        StoredDelivery(2, (3, 0, 0, 0), 1, 3, b"c" * 9_000, 5, 1),
    ]
    opened.log.append(big, 5)
    opened.log.sync()
    assert [segment.first for segment in opened.log.manifest().segments] == [0, 1, 2]
    assert read_all(reopened(disk).log) == big


def test_an_entry_that_was_written_in_part_does_not_count_as_durable() -> None:
    many = [StoredDelivery(at, (at + 1, 0, 0, 0), 1, at, b"x" * 1000, 9, 1) for at in range(5)]
    ends = set()
    for seed in range(20):
        disk = SimulatedDisk()
        opened = open_log(disk)
        opened.log.append([], 8)
        opened.log.append(many, 9)
        assert opened.log.durable_index == 8
        disk.crash(Random(seed))
        opened = open_log(disk, seed=2)
        end = opened.log.end.offset
        ends.add(end)
        assert end >= 3, "these were synced by themselves"
        assert opened.log.durable_index == (9 if end == 5 else 8)
        opened.log.append(many, 9)
        assert read_all(opened.log) == many
    assert len(ends) > 1


def test_the_first_delivery_at_or_after_a_time_is_found() -> None:
    opened = open_log(SimulatedDisk())
    feed(opened.log, HISTORY)
    reader = opened.log.reader
    times = [one.time for one in HISTORY]
    assert times != sorted(times), "wall time goes back between leaders"
    for time in range(min(times) - 1, max(times) + 2, 7):
        expected = next((one.offset for one in HISTORY if one.time >= time), len(HISTORY))
        assert reader.offset_of_time(time) == expected


def test_an_index_that_is_lost_or_damaged_is_made_anew() -> None:
    disk = SimulatedDisk()
    opened = open_log(disk)
    feed(opened.log, HISTORY)
    opened.log.close()
    names = [name for name in disk.listdir(DIRECTORY) if name.endswith(".idx")]
    assert len(names) > 5
    good = {name: disk.contents(f"{DIRECTORY}/{name}") for name in names}
    disk.remove(f"{DIRECTORY}/{names[0]}")
    disk.replace(f"{DIRECTORY}/{names[1]}", good[names[2]])
    disk.replace(f"{DIRECTORY}/{names[3]}", good[names[3]][:-1])
    disk.replace(f"{DIRECTORY}/{names[4]}", b"")
    opened = reopened(disk)
    for offset in range(len(HISTORY)):
        assert opened.log.read(offset, 1) == [HISTORY[offset]]
    assert opened.indices.rebuilt == 4
    assert len(opened.indices) <= SMALL.indices_max
    assert {name: disk.contents(f"{DIRECTORY}/{name}") for name in names} == good


def test_a_snapshot_that_needs_more_than_is_here_or_something_else_is_refused() -> None:
    disk = SimulatedDisk()
    opened = open_log(disk)
    feed(opened.log, between(HISTORY, 0, HISTORY[50].index))
    opened.log.close()
    disk.kill()
    with pytest.raises(
        CorruptionError, match=rf"deliveries end at \d+, the newest snapshot of group {GROUP} needs"
    ):
        open_log(disk, expected=mark_after(HISTORY, LAST))
    disk.kill()
    wrong = mark_after([evolve(HISTORY[0], payload=b"?"), *HISTORY[1:]], HISTORY[20].index)
    with pytest.raises(DeliveriesDifferError, match="the group's snapshot says"):
        open_log(disk, expected=wrong)
    disk.kill()
    for one in HISTORY[:50]:
        open_log(disk, expected=mark_after(HISTORY, one.index))
        disk.kill()


def test_mark_at_an_offset_is_the_digest_of_what_is_before() -> None:
    opened = open_log(SimulatedDisk())
    feed(opened.log, HISTORY)
    opened.log.cut(30)
    base = opened.log.base.offset
    assert 0 < base <= 30
    for index in sorted({one.index for one in HISTORY}):
        expected = mark_after(HISTORY, index)
        if expected.offset >= base:
            mark = opened.log.reader.mark_at(expected.offset)
            assert (mark.offset, mark.stamp, mark.chain) == (expected.offset, expected.stamp, expected.chain)
            assert all(one.index > mark.index for one in HISTORY[mark.offset :])
            assert all(one.index <= mark.index + 1 for one in HISTORY[: mark.offset])


# --- retention


def test_retention_by_size_keeps_at_least_that_much_in_whole_segments() -> None:
    opened = open_log(SimulatedDisk())
    feed(opened.log, HISTORY)
    log = opened.log
    before = log.statistics()
    removed = log.retain(DeliveryRetention(bytes_min=9000), 0)
    after = log.statistics()
    assert after.first_offset == removed > 0
    assert 9000 <= after.bytes <= 9000 + SMALL.segment_bytes_max < before.bytes
    assert log.retain(DeliveryRetention(bytes_min=9000), 0) == 0
    assert read_all(log) == HISTORY[removed:]


def test_retention_by_age_goes_by_the_newest_delivery_of_a_segment() -> None:
    opened = open_log(SimulatedDisk())
    feed(opened.log, HISTORY)
    log = opened.log
    newest = max(one.time for one in HISTORY)
    log.retain(DeliveryRetention(age_ms_max=500), newest + 1)
    kept = read_all(log)
    assert 0 < len(kept) < len(HISTORY)
    assert max(one.time for one in log.read(log.base.offset, 1 << 30)[:60]) >= newest + 1 - 500
    assert log.retain(DeliveryRetention(age_ms_max=500), newest + 5000) == len(kept), (
        "the one being written, too"
    )
    assert read_all(log) == []
    assert log.end.offset == len(HISTORY)
    more = StoredDelivery(len(HISTORY), (1 << 50, 0, 0, 0), 1, 1, b"more", LAST + 1, newest)
    log.append([more], LAST + 1)
    assert read_all(log) == [more]


def test_what_others_have_not_taken_is_kept_whatever_the_retention_says() -> None:
    opened = open_log(SimulatedDisk())
    feed(opened.log, HISTORY)
    assert opened.log.retain(DeliveryRetention(bytes_min=0), 0, keep_from=0) == 0
    opened.log.retain(DeliveryRetention(bytes_min=0, age_ms_max=0), 1 << 60, keep_from=50)
    assert 30 < opened.log.base.offset <= 50


def test_no_retention_removes_nothing() -> None:
    opened = open_log(SimulatedDisk())
    feed(opened.log, HISTORY)
    assert opened.log.retain(DeliveryRetention(), 1 << 60) == 0


def test_below_the_beginning_the_error_says_where_it_is() -> None:
    disk = SimulatedDisk()
    opened = open_log(disk)
    feed(opened.log, HISTORY)
    opened.log.cut(70)
    for log in (opened.log, reopened(disk).log):
        first = log.base.offset
        assert 50 < first <= 70
        with pytest.raises(
            DeliveriesGoneError, match=f"delivery 3 was removed by retention, the log begins at {first}"
        ) as caught:
            log.read(3)
        assert caught.value.first_offset == first
        assert log.read(first, 1 << 30) == HISTORY[first:]
        assert log.reader.offset_of_time(0) == first


def test_deliveries_that_were_removed_are_recognised_when_they_come_again() -> None:
    disk = SimulatedDisk()
    opened = open_log(disk)
    feed(opened.log, HISTORY)
    opened.log.cut(len(HISTORY))
    opened.log.close()
    opened = reopened(disk)
    assert opened.log.durable_index == LAST
    feed(opened.log, HISTORY)
    assert read_all(opened.log) == []
    more = StoredDelivery(len(HISTORY), (1 << 50, 0, 0, 0), 1, 1, b"more", LAST + 1, 5)
    opened.log.append([more], LAST + 1)
    assert read_all(opened.log) == [more]


# --- bounds


def test_open_files_and_indices_stay_bounded_over_many_groups_and_readers() -> None:
    disk = SimulatedDisk()
    opened = open_log(disk)
    from zraft.storage.delivery.log import DeliveryLog
    from zraft_core.ids import GroupId

    logs = []
    for number in range(30):
        log, _ = DeliveryLog.open(
            disk,
            opened.directory,
            GroupId(100 + number),
            files=opened.files,
            indices=opened.indices,
            settings=SMALL,
        )
        feed(log, HISTORY[:30])
        log.sync()
        logs.append(log)
    assert len(opened.files) <= SMALL.files_max
    for log in logs:
        assert log.read(0, 1 << 30) == HISTORY[: log.end.offset]
        assert len(opened.files) <= SMALL.files_max
    assert len(opened.indices) <= SMALL.indices_max


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: DeliverySettings(segment_bytes_max=100),
            "deliveries.segment_bytes_max is 100, expected 4096 to",
        ),
        (
            lambda: DeliverySettings(compression_level=20),
            "deliveries.compression_level is 20, expected 0 to 19",
        ),
        (lambda: DeliverySettings(files_max=1), "deliveries.files_max is 1"),
        (lambda: DeliveryRetention(age_ms_max=-1), "retention_ms is -1"),
    ],
)
def test_settings_out_of_range_are_refused(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]
