"""The test of the tests: each bug of tests/simulation/planted.py is caught.

Here by the seed that is known to show it; those that seeds hardly show have directed schedules (`test_directed`).
"""

from __future__ import annotations

import pytest

from tests.simulation.directed_schedules import DIRECTED
from tests.simulation.planted import PLANTS, planted
from tests.simulation.scenarios import CLUSTER
from tests.simulation.simulation import Simulation

# Up to forty seeds of a second or two each where a schedule has moved, on a machine that may be busy.
pytestmark = pytest.mark.timeout(300)


def test_every_plant_is_caught_somewhere() -> None:
    """A new plant with neither a seed here nor a directed schedule would never run in CI."""
    assert set(CLUSTER.known) | set(DIRECTED) == set(PLANTS)


@pytest.mark.parametrize(("name", "number"), CLUSTER.known.items())
def test_planted_bug_is_caught(name: str, number: int) -> None:
    """The checkers notice this bug in this seed (or, if schedules have moved, in one of the next few)."""
    result, tried = CLUSTER.run_planted(name, [number, *range(number + 1, number + 40)])
    assert result is not None, f"{name}: {PLANTS[name].text}: not noticed in {tried} seeds"


def test_plant_is_gone_afterwards() -> None:
    """A plant must not leak into other tests of the process."""
    before = Simulation(3).run()
    with planted("commit_older_term"):
        pass
    assert Simulation(3).run() == before
