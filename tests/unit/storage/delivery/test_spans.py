"""Deliveries that take several offsets, one for each record of a batch: stored once, found from each of them."""

from __future__ import annotations

from random import Random

import msgpack
import pytest
from attrs import evolve

from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.delivery.scenario import (
    GROUP,
    SMALL,
    START,
    between,
    feed,
    fetch,
    history,
    open_log,
)
from tests.unit.storage.scenario import PATH
from zraft.storage.delivery.inspection import read_group, verify_deliveries
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.values import (
    SPAN_MAX,
    DeliveryFormatError,
    Mark,
    StoredDelivery,
    decode_deliveries,
    encode_deliveries,
    read_deliveries,
)
from zraft.storage.errors import DeliveriesDifferError


def batches(count: int) -> list[StoredDelivery]:
    """A history in which every third delivery takes two to nine offsets."""
    found: list[StoredDelivery] = []
    end = 0
    for at, one in enumerate(history(count)):
        span = 1 if at % 3 else 2 + at % 8
        found.append(evolve(one, offset=end, span=span))
        end += span
    return found


HISTORY = batches(120)
LAST = HISTORY[-1].index
END = HISTORY[-1].end


def holding(offset: int) -> int:
    return next(at for at, one in enumerate(HISTORY) if one.offset <= offset < one.end)


def marks() -> dict[int, Mark]:
    chain, found = START.chain, {0: START}
    for one in HISTORY:
        _, chain = encode_deliveries([one], chain)
        found[one.end] = Mark(one.end, one.stamp, chain, one.index)
    return found


def check(log: DeliveryLog, base: int = 0) -> None:
    assert log.end.offset == END
    for offset in range(base, END):
        assert log.read(offset, 0) == [HISTORY[holding(offset)]], offset
    assert log.read(base, 1 << 30) == HISTORY[holding(base) :]
    for offset, mark in marks().items():
        if offset >= base:
            at = log.reader.mark_at(offset)
            assert (at.stamp, at.chain) == (mark.stamp, mark.chain)


@pytest.mark.parametrize("level", [0, 3])
def test_a_read_at_any_offset_of_a_batch_begins_with_the_whole_batch(level: int) -> None:
    disk = SimulatedDisk()
    settings = evolve(SMALL, compression_level=level)
    log = open_log(disk, settings=settings).log
    feed(log, HISTORY)
    assert len(log.manifest().segments) > 2
    check(log)
    log.close()
    assert all(finding.damage is None for finding in verify_deliveries(disk, PATH, GROUP))
    disk.kill()
    check(open_log(disk, seed=2, settings=settings, expected=marks()[END]).log)


def test_batches_survive_a_crash_and_are_recognised_when_they_come_again() -> None:
    for seed in range(10):
        disk = SimulatedDisk()
        log = open_log(disk).log
        feed(log, between(HISTORY, 0, HISTORY[60].index), Random(seed))
        disk.crash(Random(seed))
        log = open_log(disk, seed=2).log
        assert log.end.offset in marks()
        feed(log, HISTORY, Random(seed))
        check(log)


def test_a_batch_of_another_count_is_not_taken_for_the_one_that_is_here() -> None:
    log = open_log(SimulatedDisk()).log
    feed(log, HISTORY)
    with pytest.raises(DeliveriesDifferError, match=f"at offset {HISTORY[0].offset} "):
        log.append([evolve(HISTORY[0], span=HISTORY[0].span + 1)], LAST)
    behind = evolve(HISTORY[-1], offset=END + 1, stamp=(1 << 50, 0, 0, 0), index=LAST + 1)
    with pytest.raises(DeliveriesDifferError, match=f"ends, but .* delivers offset {END + 1} next"):
        log.append([behind], LAST + 1)


@pytest.mark.parametrize("have", [0, 1, 40, 118])
def test_another_servers_segments_are_joined_between_batches(have: int) -> None:
    other = evolve(SMALL, segment_bytes_max=4500, frame_bytes_max=700, compression_level=1)
    donor = open_log(SimulatedDisk(), settings=other, seed=50).log
    feed(donor, HISTORY, Random(50))
    donor.sync()
    disk = SimulatedDisk()
    log = open_log(disk).log
    feed(log, between(HISTORY, 0, HISTORY[have].index))
    fetch(disk, log, donor).complete()
    check(log)
    assert all(finding.damage is None for finding in verify_deliveries(disk, PATH, GROUP))
    disk.crash(Random(have))
    check(open_log(disk, seed=2, expected=marks()[END]).log)


def test_a_range_of_offsets_shows_each_batch_that_it_touches() -> None:
    disk = SimulatedDisk()
    log = open_log(disk).log
    feed(log, HISTORY)
    log.close()
    for first, last in ((0, 0), (3, 30), (41, 100), (END - 1, END + 5)):
        found = [one.delivery for one in read_group(disk, PATH, GROUP, first=first, last=last)]
        assert found == [one for one in HISTORY if one.end > first and one.offset <= last]


def test_the_records_of_single_offsets_are_those_of_earlier_releases() -> None:
    one = StoredDelivery(0, (5, 7, 0, 0), 3, 1, b"abc", 9, 1000)
    (record,), chain = encode_deliveries([one], START.chain)
    assert msgpack.unpackb(record) == [0, 5, 7, 0, 0, 3, 1, 9, 1000, b"abc"]
    (longer,), same = encode_deliveries([evolve(one, span=4)], START.chain)
    assert msgpack.unpackb(longer) == [0, 5, 7, 0, 0, 3, 1, 9, 1000, b"abc", 4]
    assert same == chain
    assert list(decode_deliveries(longer, START.chain)) == [(evolve(one, span=4), chain)]


@pytest.mark.parametrize("span", [0, -1, SPAN_MAX + 1, "2", True])
def test_a_span_that_no_batch_can_have_is_refused(span: object) -> None:
    record: bytes = msgpack.packb([0, 5, 7, 0, 0, 3, 1, 9, 1000, b"abc", span])
    with pytest.raises(DeliveryFormatError):
        read_deliveries(record)
