"""The interval that a paired benchmark judges by."""

from __future__ import annotations

import math
import random

import pytest

from tests.bench.paired import interval_of_median, shown


@pytest.mark.parametrize(("count", "low", "high"), [(15, 3, 11), (5, 0, 4), (30, 9, 20)])
def test_the_interval_is_that_of_the_sign_test(count: int, low: int, high: int) -> None:
    """Tables of the sign test for 95 %: of 15 values the fourth and the twelfth, of 30 the tenth and the 21st."""
    assert interval_of_median([float(value) for value in range(count)]) == (low, high)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = random.Random(1)
    held = 0
    for _ in range(2_000):
        low, high = interval_of_median([rng.expovariate(1.0) for _ in range(15)])
        held += low <= math.log(2) <= high
    assert 0.95 <= held / 2_000 <= 0.99


def test_a_test_is_slower_only_if_its_whole_interval_is() -> None:
    noisy = [0.80, 0.90, 0.93, 0.99, 1.02] * 3
    steady = [0.90, 0.91, 0.92, 0.93, 0.94] * 3
    ratios = {
        ("write x1", "requests/s"): noisy,
        ("write x8", "requests/s"): steady,
        ("write x8", "CPU us"): steady,
    }
    _, slower = shown(ratios, ratios, ratios, "")
    assert slower == ["write x8: requests/s"]
