"""Whose code a paired benchmark measures, and the interval that it judges by."""

from __future__ import annotations

import math
import random
import shutil
from pathlib import Path

import pytest

import zraft
from tests.bench.paired import TreeCluster, interval_of_median, shown

REPOSITORY = Path(zraft.__file__).parents[1]


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


def test_servers_run_the_code_of_their_checkout_wherever_the_benchmark_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m` looks into the present directory first, which is another checkout."""
    tree = tmp_path / "tree"
    for package in ("zraft", "client/zraft_core"):
        shutil.copytree(REPOSITORY / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "zraft" / "program" / "__init__.py").write_text("print('of this tree', flush=True)\n")
    monkeypatch.chdir(REPOSITORY)
    cluster = TreeCluster(tree, tmp_path / "servers")
    cluster.start()
    try:
        logs = [process.log.read_text() for process in cluster.processes.values()]
    finally:
        cluster.stop()
    assert all("of this tree" in log for log in logs), logs
