"""Latencies: percentiles within the promised error, merges that change nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft_bench.load.histogram import EXACT_BELOW, Histogram, bucket_of, highest_of

DURATIONS = st.lists(st.floats(1e-6, 100.0), min_size=1, max_size=300)


def of(values: list[float]) -> Histogram:
    made = Histogram()
    made.add(values)
    return made


@given(st.integers(0, 10**12))
def test_a_bucket_holds_its_durations_and_is_at_most_a_64th_wide(microseconds: int) -> None:
    bucket = bucket_of(microseconds)
    highest = highest_of(bucket)
    assert bucket_of(highest) == bucket
    assert microseconds <= highest
    assert highest - microseconds <= microseconds / 64
    assert bucket_of(highest + 1) == bucket + 1


def test_short_durations_are_exact() -> None:
    assert [highest_of(bucket_of(n)) for n in range(EXACT_BELOW)] == list(range(EXACT_BELOW))


@given(DURATIONS, st.sampled_from([50.0, 90.0, 99.0, 99.9]))
def test_a_percentile_is_never_below_the_true_one_and_at_most_a_64th_above(
    values: list[float], percent: float
) -> None:
    true_ms = sorted(values)[math.ceil(len(values) * percent / 100) - 1] * 1000
    found = of(values).percentile(percent)
    assert true_ms <= found * (1 + 1e-9)
    assert found <= (true_ms + 0.001) * (1 + 1 / 64) + 1e-9


@given(DURATIONS, DURATIONS)
def test_merging_is_counting_all_at_once(one: list[float], other: list[float]) -> None:
    merged = of(one)
    merged.merge(of(other))
    both = of(one + other)
    assert merged.counts == both.counts
    assert merged.summary().percentiles == both.summary().percentiles
    assert (merged.smallest, merged.largest) == (both.smallest, both.largest)
    assert merged.summary().mean_ms == pytest.approx(both.summary().mean_ms)


@given(DURATIONS)
def test_mean_and_deviation_are_those_of_the_values(values: list[float]) -> None:
    summary = of(values).summary()
    mean = sum(values) / len(values) * 1000
    deviation = math.sqrt(sum((v * 1000 - mean) ** 2 for v in values) / len(values))
    assert summary.mean_ms == pytest.approx(mean)
    assert summary.stdev_ms == pytest.approx(deviation, abs=max(1e-3, mean * 1e-4))


def test_an_empty_histogram_has_no_percentiles() -> None:
    empty = Histogram()
    assert empty.summary().count == 0
    assert empty.percentile(99) == 0.0
    assert empty.share_below(1.0) == 0.0
    filled = of([0.001])
    filled.merge(empty)
    assert filled.summary().min_ms == 1.0


def test_the_cumulative_share_ends_at_one() -> None:
    points = list(of([0.001, 0.002, 0.002, 0.4]).cumulative())
    assert points[-1] == (400.0, 1.0)
    assert [share for _, share in points] == [0.25, 0.75, 1.0]
    assert of([0.079, 0.081, 0.2]).share_below(80) == pytest.approx(1 / 3)
