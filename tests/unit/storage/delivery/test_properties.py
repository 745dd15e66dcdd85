"""Whatever is appended, in whatever sizes, cut and opened again: every offset, stamp and time is found (D-13)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.delivery.scenario import (
    GROUP,
    between,
    feed,
    fetch,
    history,
    mark_after,
    open_log,
    read_all,
)
from tests.unit.storage.scenario import PATH
from zraft.storage.delivery.inspection import read_group, verify_deliveries
from zraft.storage.delivery.manifest import Segment, decode_manifest, encode_manifest
from zraft.storage.delivery.retention import expired_until
from zraft.storage.delivery.settings import DeliveryRetention, DeliverySettings
from zraft.storage.delivery.values import Mark

any_settings = st.builds(
    DeliverySettings,
    segment_bytes_max=st.integers(4096, 20_000),
    frame_bytes_max=st.integers(256, 6000),
    compression_level=st.sampled_from([0, 1, 3]),
    sync_bytes_max=st.integers(1, 9000),
    checkpoint_bytes=st.integers(1, 9000),
    index_stride_bytes=st.integers(1, 3000),
    indices_max=st.integers(1, 4),
    files_max=st.integers(4, 6),
)


@given(
    any_settings,
    any_settings,
    st.integers(1, 10_000),
    st.integers(1, 70),
    st.lists(st.sampled_from([0, 1, 30, 400, 5000]), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
@settings(max_examples=40)
def test_a_log_is_the_list_of_its_deliveries(
    first: DeliverySettings,
    second: DeliverySettings,
    seed: int,
    count: int,
    sizes: list[int],
    rng: Random,
) -> None:
    deliveries = history(count, seed=seed, sizes=sizes)
    last = deliveries[-1].index
    disk = SimulatedDisk()
    log = open_log(disk, settings=first).log
    middle = deliveries[rng.randrange(len(deliveries))].index
    feed(log, between(deliveries, 0, middle), rng)
    ends: list[Callable[[], object]] = [log.close, log.sync, lambda: None]
    rng.choice(ends)()
    disk.kill()
    log = open_log(disk, settings=second, seed=2).log
    feed(log, between(deliveries, rng.choice([0, middle]), last), rng)
    base = log.base.offset
    if rng.random() < 0.5:
        log.cut(rng.randint(0, len(deliveries)))
        base = log.base.offset
    kept = deliveries[base:]
    assert read_all(log, rng.randint(0, 9000)) == kept
    assert log.end.chain == mark_after(deliveries, last).chain
    for one in kept[:: max(1, len(kept) // 10)]:
        assert log.read(one.offset, 0) == [one]
        expected = next(other.offset for other in kept if other.time >= one.time)
        assert log.reader.offset_of_time(one.time) == expected
        marked = log.reader.mark_at(one.offset + 1)
        assert marked.chain == mark_after(deliveries[: one.offset + 1], last).chain
    assert [placed.delivery for placed in read_group(disk, PATH, GROUP)] == kept
    assert all(finding.damage is None for finding in verify_deliveries(disk, PATH, GROUP))
    log.sync()
    assert log.durable_index == last
    manifest = log.manifest()
    assert decode_manifest(encode_manifest(manifest)) == manifest
    other_disk = SimulatedDisk()
    other = open_log(other_disk, settings=first, seed=9).log
    feed(other, between(deliveries, 0, deliveries[rng.randrange(len(deliveries))].index), rng)
    fetch(other_disk, other, log, piece=rng.randint(1, 4000)).complete()
    assert read_all(other) == deliveries[other.base.offset :]
    assert other.base.offset in (0, base)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100)), max_size=12),
    st.none() | st.integers(0, 300),
    st.none() | st.integers(0, 120),
    st.integers(0, 150),
    st.none() | st.integers(0, 12),
)
@settings(max_examples=200)
def test_retention_takes_the_longest_prefix_that_it_may(
    rows: list[tuple[int, int]],
    bytes_min: int | None,
    age_ms_max: int | None,
    now_ms: int,
    keep_from: int | None,
) -> None:

    segments = [
        Segment(b"12345678", at, Mark(at + 1, (at, 0, 0, 0), bytes(16), at), size, 0, time)
        for at, (size, time) in enumerate(rows)
    ]
    until = expired_until(segments, DeliveryRetention(bytes_min, age_ms_max), now_ms, keep_from=keep_from)
    removed = bisect_left([segment.end.offset for segment in segments], until + 1) if until is not None else 0

    def may_go(at: int) -> bool:
        rest = sum(size for size, _ in rows[at + 1 :])
        protected = keep_from is not None and at + 1 > keep_from
        large = bytes_min is not None and rest >= bytes_min
        old = age_ms_max is not None and rows[at][1] < now_ms - age_ms_max
        return not protected and (large or old)

    assert all(may_go(at) for at in range(removed))
    assert removed == len(rows) or not may_go(removed)
