"""Delivery segments of another server's snapshot: only what is missing is fetched, and becomes ours at once (D-13)."""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve

from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.delivery.scenario import (
    DIRECTORY,
    GROUP,
    SMALL,
    START,
    between,
    feed,
    fetch,
    history,
    mark_after,
    open_log,
    read_all,
)
from tests.unit.storage.scenario import PATH
from zraft.storage.delivery.fetching import SegmentFetch
from zraft.storage.delivery.inspection import verify_deliveries
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.manifest import decode_manifest, encode_manifest, joined, seam, wanted
from zraft.storage.delivery.values import encode_deliveries
from zraft.storage.errors import (
    DeliveriesDifferError,
    DiskFullError,
    SegmentGoneError,
    SnapshotRejectedError,
)
from zraft_core.ids import GroupId

HISTORY = history(100)
LAST = HISTORY[-1].index
OTHER = evolve(SMALL, segment_bytes_max=4500, frame_bytes_max=700, compression_level=1)


def donor(upto: int = 100, *, cut: int = 0, seed: int = 50) -> DeliveryLog:
    log = open_log(SimulatedDisk(), settings=OTHER, seed=seed).log
    feed(log, between(HISTORY, 0, HISTORY[upto - 1].index), Random(seed))
    log.cut(cut)
    log.sync()
    return log


def receiver(upto: int) -> tuple[SimulatedDisk, DeliveryLog]:
    disk = SimulatedDisk()
    log = open_log(disk).log
    if upto:
        feed(log, between(HISTORY, 0, HISTORY[upto - 1].index))
    return disk, log


@pytest.mark.parametrize("have", [0, 1, 30, 60, 99])
@pytest.mark.parametrize("cut", [0, 40, 80, 100])
def test_a_server_has_everything_afterwards_whatever_it_had(have: int, cut: int) -> None:
    source = donor(cut=cut)
    disk, log = receiver(have)
    before = log.end.offset
    incoming = fetch(disk, log, source)
    incoming.complete()
    expected = 0 if source.base.offset <= before else source.base.offset
    assert log.base.offset == expected
    assert read_all(log) == HISTORY[expected:]
    assert log.end.chain == source.end.chain
    assert log.durable_index == source.durable_index
    assert all(finding.damage is None for finding in verify_deliveries(disk, PATH, GROUP))
    disk.crash(Random(have))
    log = open_log(disk, seed=2, expected=mark_after(HISTORY, LAST)).log
    assert read_all(log) == HISTORY[expected:]
    more = evolve(HISTORY[-1], offset=len(HISTORY), stamp=(1 << 50, 0, 0, 0), index=LAST + 1)
    log.append([more], LAST + 1)
    assert read_all(log)[-1] == more


def test_only_segments_that_hold_more_are_fetched_and_ours_are_kept_up_to_there() -> None:
    source = donor()
    disk, log = receiver(70)
    log.sync()
    own = {segment.id for segment in log.manifest().segments}
    asked = set()
    incoming = SegmentFetch(disk, log, source.manifest())
    while (piece := incoming.next) is not None:
        asked.add(piece.id)
        incoming.store(piece.id, piece.offset, source.read_file(piece.id, piece.offset, 999))
    ends = {segment.id: segment.end.offset for segment in source.manifest().segments}
    assert asked == {id for id, end in ends.items() if end > log.end.offset}
    assert asked < set(ends)
    incoming.complete()
    assert len(own & {segment.id for segment in log.manifest().segments}) > 2
    assert read_all(log) == HISTORY


def test_a_segment_that_was_cut_at_a_seam_is_verified_read_and_shipped_on() -> None:
    """What we keep of our last segment ends where the fetched ones begin, in the middle of its frames."""
    disk, log = receiver(75)
    fetch(disk, log, donor()).complete()
    trimmed = [segment for segment in log.manifest().segments if segment.end.offset < 100]
    assert trimmed
    assert read_all(log) == HISTORY
    for one in HISTORY:
        assert log.read(one.offset, 0) == [one]
        mark = log.reader.mark_at(one.offset + 1)
        assert (mark.stamp, mark.chain) == (one.stamp, mark_upto(one.offset + 1))
    third_disk, third = receiver(0)
    fetch(third_disk, third, log).complete()
    assert read_all(third) == HISTORY


def mark_upto(offset: int) -> bytes:
    return encode_deliveries(HISTORY[:offset], START.chain)[1]


def test_the_log_may_go_on_while_segments_are_fetched() -> None:
    source = donor()
    disk, log = receiver(20)
    incoming = fetch(disk, log, source)
    feed(log, between(HISTORY, 0, HISTORY[89].index))
    incoming.complete()
    assert read_all(log) == HISTORY
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".part")]


def test_nothing_is_fetched_when_all_is_here() -> None:
    disk, log = receiver(100)
    log.sync()
    before = log.manifest()
    incoming = SegmentFetch(disk, log, donor(60).manifest())
    assert incoming.next is None
    assert incoming.missing_bytes == 0
    incoming.complete()
    assert log.manifest().end == before.end
    assert read_all(log) == HISTORY


def test_pieces_that_come_twice_or_out_of_order_are_ignored() -> None:
    source = donor()
    disk, log = receiver(0)
    incoming = SegmentFetch(disk, log, source.manifest())
    rng = Random(3)
    while (piece := incoming.next) is not None:
        left = incoming.missing_bytes
        data = source.read_file(piece.id, piece.offset, 800)
        assert incoming.store(piece.id, piece.offset + 1, data) == piece
        assert incoming.store(b"another!", piece.offset, data) == piece
        incoming.store(piece.id, piece.offset, data)
        assert incoming.missing_bytes == left - len(data)
        if rng.random() < 0.5:
            incoming.store(piece.id, piece.offset, data)
    incoming.complete()
    assert read_all(log) == HISTORY


@pytest.mark.parametrize("seed", range(12))
def test_a_piece_that_arrives_damaged_is_found_and_fetched_again(seed: int) -> None:
    rng = Random(seed)
    source = donor()
    disk, log = receiver(0)
    incoming = SegmentFetch(disk, log, source.manifest())
    rejected, spoil_at = 0, rng.randrange(12)
    count = 0
    while (piece := incoming.next) is not None:
        data = bytearray(source.read_file(piece.id, piece.offset, 1000))
        if count == spoil_at:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        count += 1
        try:
            incoming.store(piece.id, piece.offset, bytes(data))
        except SnapshotRejectedError as error:
            rejected += 1
            message = str(error)
    assert rejected == 1
    assert "arrived damaged (at offset" in message
    incoming.complete()
    assert read_all(log) == HISTORY


def test_a_server_that_delivered_something_else_is_told_so() -> None:
    disk, log = receiver(0)
    wrong = [evolve(one, payload=b"?") if one.offset == 10 else one for one in HISTORY[:60]]
    feed(log, [one for one in wrong if one.index < HISTORY[59].index])
    with pytest.raises(DeliveriesDifferError, match="another server's list of segments says"):
        SegmentFetch(disk, log, donor().manifest())
    assert len(read_all(log)) > 50


def test_a_list_of_another_group_is_refused() -> None:
    disk, log = receiver(10)
    with pytest.raises(
        SnapshotRejectedError, match=f"list of group 5's delivery segments, expected one of group {GROUP}"
    ):
        SegmentFetch(disk, log, evolve(donor().manifest(), group=GroupId(5)))


def test_a_segment_that_retention_removed_meanwhile_is_gone_and_a_new_list_goes_on() -> None:
    source = donor()
    disk, log = receiver(0)
    incoming = SegmentFetch(disk, log, source.manifest())
    piece = incoming.next
    assert piece is not None
    source.cut(30)
    with pytest.raises(SegmentGoneError, match="ask for the list of segments again") as caught:
        source.read_file(piece.id, piece.offset, 10)
    assert caught.value.retriable
    incoming.give_up()
    fetch(disk, log, source).complete()
    assert read_all(log) == HISTORY[source.base.offset :]


def test_a_full_disk_gives_up_what_was_fetched_and_nothing_else() -> None:
    source = donor()
    disk, log = receiver(40)
    log.sync()
    before = read_all(log)
    incoming = SegmentFetch(disk, log, source.manifest())
    piece = incoming.next
    assert piece is not None
    disk.full = True
    with pytest.raises(DiskFullError):
        incoming.store(piece.id, 0, source.read_file(piece.id, 0, 100))
    assert read_all(log) == before
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".part")]
    disk.full = False
    fetch(disk, log, source).complete()
    assert read_all(log) == HISTORY


def test_what_is_listed_is_durable_and_no_more() -> None:
    log = open_log(
        SimulatedDisk(), settings=evolve(SMALL, segment_bytes_max=1 << 20, sync_bytes_max=1 << 20)
    ).log
    feed(log, between(HISTORY, 0, HISTORY[49].index))
    log.sync()
    manifest = log.manifest()
    assert not manifest.open
    assert manifest == decode_manifest(encode_manifest(manifest))
    end = manifest.end
    log.append(between(HISTORY, HISTORY[49].index, LAST), LAST)
    assert log.manifest().end == end
    for segment in manifest.segments:
        data = b""
        while more := log.read_file(segment.id, len(data), 700):
            data += more
        assert len(data) == segment.size


def test_joining_keeps_the_beginning_that_reaches_furthest_back() -> None:
    far = donor(cut=60).manifest()
    near = donor(70, seed=51).manifest()
    place = seam(near, far)
    assert place is not None
    both = joined(near, far, place)
    assert both.problem() is None
    assert (both.base, both.end) == (near.base, far.end)
    assert wanted(both, far) == ()
    gap = donor(20, seed=52).manifest()
    assert seam(gap, far) is None
    assert joined(gap, far, None).base == far.base
