"""Every planted bug is noticed: by a directed schedule, or by the seed that is known to notice it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from zraft.testing.multicast.directed import DIRECTED
from zraft.testing.multicast.planted import PLANTS, planted
from zraft.testing.multicast.profile import Size
from zraft.testing.multicast.run import run_directed, run_planted, run_seed

SEEDS: Final[Mapping[str, int]] = {}
"""The first small run, in the bug's mode, that notices it. When the simulator changes, find them again:
`python -m zraft.testing.multicast --planted all` prints them."""


def test_every_planted_bug_has_a_schedule_or_a_known_seed() -> None:
    assert set(SEEDS) | set(DIRECTED) == set(PLANTS)
    assert not set(SEEDS) & set(DIRECTED)


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_a_planted_bug_is_noticed_by_its_seed(name: str) -> None:
    result = run_planted(name, [SEEDS[name]])
    assert result is not None, f"seed {SEEDS[name]} does not notice {name}"


@pytest.mark.parametrize("name", sorted(DIRECTED))
def test_a_planted_bug_is_noticed_by_its_schedule(name: str) -> None:
    assert run_directed(name) is not None


def test_a_plant_ends_with_its_run() -> None:
    with planted("clock_not_raised"):
        assert run_seed(2, Size.SMALL).summary is None or run_seed(3, Size.SMALL).summary is None
    assert run_seed(2, Size.SMALL).summary is not None
    assert run_seed(3, Size.SMALL).summary is not None
