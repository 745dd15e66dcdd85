"""Seeds that found a bug once are replayed for ever: see regressions.txt for what each found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.profile import Mode
from tests.simulation.scenarios import CLUSTER


def regressions() -> list[tuple[int, str]]:
    lines = Path(__file__).with_name("regressions.txt").read_text().splitlines()
    rows = [line.split(None, 2) for line in lines if line and not line.startswith("#")]
    return [(int(seed), mode) for seed, mode, _ in rows]


@pytest.mark.parametrize(("number", "mode"), regressions())
def test_regression_stays_fixed(number: int, mode: str) -> None:
    """A seed of regressions.txt breaks no promise."""
    result = CLUSTER.run_seed(number, mode=None if mode == "-" else Mode(mode))
    assert result.report is not None, f"{result.checker}: {result.reason}"
