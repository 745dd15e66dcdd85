"""Servers with partitions under faults: a few seeds, and a few of the planted bugs; the command runs all of them."""

from __future__ import annotations

import pytest

from zraft.testing.partitions.__main__ import run_planted, run_seed
from zraft.testing.partitions.planted import PLANTS


@pytest.mark.parametrize("seed", [0, 1, 6])
def test_a_seed_breaks_no_promise_of_multicast_and_loses_nothing_that_was_delivered(seed: int) -> None:
    result = run_seed(seed)
    assert result.report is not None, f"{result.checker}: {result.reason}"
    assert result.report.recoveries > 10
    assert result.report.snapshots > 10
    assert result.report.several > 50
    assert result.report.idle_datagrams <= result.report.idle_datagrams_max


@pytest.mark.parametrize("name", ["cut_before_durable", "need_ignored", "read_at_once"])
def test_a_planted_bug_is_noticed_by_a_seed(name: str) -> None:
    assert name in PLANTS
    result, _ = run_planted(name, range(2))
    assert result is not None
