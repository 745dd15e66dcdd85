"""S22: published figures of measurements follow from what was counted. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from attrs import frozen

from onyxlog.audits.measured_multicast import MeasuredSends
from onyxlog.audits.measurements import OK, MeasuredTest, MeasuredTrial
from onyxlog.audits.rules.check import Check, Input, Rule
from onyxlog.audits.rules.violation import Violation

RULE: Final = "S22"
TOLERANCE: Final = 1e-6
"""Relative: figures are floats that went through JSON."""
_EXACT_BELOW: Final = 128
_SUB_BITS: Final = 6
WRITE_SHARES: Final = {"write": 1.0, "read": 0.0}
ELECTION_LIMITS_MS: Final = (80.0, 100.0)


def longest_us(bucket: int) -> int:
    """Return the longest duration that a bucket counts: exact below 128, then 64 buckets per power of two."""
    if bucket < _EXACT_BELOW:
        return bucket
    octave, step = divmod(bucket, 1 << _SUB_BITS)
    return ((step + (1 << _SUB_BITS) + 1) << (octave - 1)) - 1


def percentile_ms(counted: MeasuredTest | MeasuredSends, percent: float) -> float:
    """Return the duration that so many percent of the requests did not exceed."""
    needed = math.ceil(sum(counted.counts) * percent / 100)
    seen = 0
    for bucket, count in zip(counted.buckets, counted.counts, strict=True):
        seen += count
        if seen >= needed:
            return min(longest_us(bucket) / 1000, counted.longest_ms)
    return 0.0


def figures_of(test: MeasuredTest) -> Iterator[tuple[str, float, float | None]]:
    """Yield (figure, recomputed, published)."""
    seconds, count = test.elapsed_s, test.acknowledged
    write_share = WRITE_SHARES.get(test.operation, 1.0 - test.read_share)
    yield "requests per second", count / seconds if seconds else 0.0, test.per_second
    yield "seconds per entry", seconds / count if count else 0.0, test.seconds_per_entry
    written = count * write_share * test.value_bytes / 1000
    yield "KB per second", written / seconds if seconds else 0.0, test.write_kb_per_s
    counted = sum(test.counts)
    if counted:
        yield "requests in the histogram", float(counted), float(count)
        yield "mean ms", test.total_ms / counted, test.mean_ms
    for name, published in zip(test.percentile_names, test.percentiles_ms, strict=True):
        yield f"p{name} ms", percentile_ms(test, float(name)), published


def _tests(rows: Iterator[MeasuredTest]) -> Iterator[Violation]:
    for test in rows:
        if test.state != OK:
            continue  # the file says itself that its figures are of an attempt that failed
        for figure, recomputed, published in figures_of(test):
            if published is None or not math.isclose(recomputed, published, rel_tol=TOLERANCE, abs_tol=1e-9):
                yield Violation(
                    rule=RULE,
                    promise="figures follow from counts",
                    subject=f"{figure} of test {test.number}.{test.attempt} of run {test.run}",
                    index=test.number,
                    file=test.file,
                    expected=f"{recomputed:.6g}, from {test.acknowledged} requests in {test.elapsed_s:.6g} s",
                    found="none" if published is None else f"{published:.6g}",
                )


def _trials(rows: Iterator[MeasuredTrial]) -> Iterator[Violation]:
    for trial in rows:
        if trial.state != OK:
            continue
        steps = [
            (name, ms)
            for name, ms in (
                ("first candidacy", trial.stood_ms),
                ("winner's candidacy", trial.candidate_ms),
                ("leader", trial.led_ms),
                ("acknowledged write", trial.served_ms),
            )
            if ms is not None
        ]
        for (earlier, a), (later, b) in pairwise(steps):
            if a > b:
                yield _trial(trial, f"{earlier} at {a:.3f} ms before {later}", f"{later} at {b:.3f} ms")
        if trial.winner == trial.killed or trial.led_ms is None or trial.led_ms < 0:
            yield _trial(trial, "another server led after the loss", f"{trial.winner} at {trial.led_ms} ms")


def _trial(trial: MeasuredTrial, expected: str, found: str) -> Violation:
    return Violation(
        rule=RULE,
        promise="elections in order of time",
        subject=f"trial {trial.number} of run {trial.run}, term {trial.term}",
        server=trial.winner or None,
        index=trial.number,
        file=trial.file,
        expected=expected,
        found=found,
    )


@frozen
class Elections:
    """Figures of the trials that succeeded; shares are 0 to 1."""

    trials: int
    failed: int
    below: tuple[tuple[float, float], ...]
    longest_ms: float


def elections(trials: list[MeasuredTrial], limits_ms: tuple[float, ...] = ELECTION_LIMITS_MS) -> Elections:
    """Return the figures from the first candidacy to a leader, without the time to notice a loss.

    Zatt's thesis must have measured it this way.
    """
    good = [t for t in trials if t.state == OK and t.led_ms is not None and t.stood_ms is not None]
    took = [t.led_ms - t.stood_ms for t in good if t.led_ms is not None and t.stood_ms is not None]
    below = tuple((limit, sum(ms < limit for ms in took) / len(took) if took else 0.0) for limit in limits_ms)
    return Elections(len(took), len(trials) - len(good), below, max(took, default=0.0))


PUBLISHED_FIGURES: Final = Rule(
    id=RULE,
    title="Published figures",
    claim="rates, sizes and percentiles of benchmarks follow from their counts, and elections from their moments",
    checks=(
        Check("figures follow from counts", (Input("measured_tests", ("file", "number")),), _tests),
        Check("elections in order of time", (Input("measured_trials", ("file", "number")),), _trials),
    ),
)
