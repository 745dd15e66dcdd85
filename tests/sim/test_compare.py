"""The comparison of two trees sees a difference, and none where there is none."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.simulation.compare import REPOSITORY, differing, main, reports_of
from tests.simulation.scenarios import SCENARIOS


def test_a_seed_reports_the_same_again_and_another_seed_something_else() -> None:
    first = reports_of(REPOSITORY, "claims", range(2), jobs=1)
    assert differing(first, reports_of(REPOSITORY, "claims", range(2), jobs=2)) == []
    assert differing(first, {0: first[0], 1: first[0]}) == [1]
    assert differing(first, {0: first[0]}) == [1]


def test_whole_servers_say_the_same_again_to_the_byte() -> None:
    first = reports_of(REPOSITORY, "hosting", range(1, 2), jobs=1)
    assert "fingerprint='" in first[1]
    assert differing(first, reports_of(REPOSITORY, "hosting", range(1, 2), jobs=1)) == []


def test_a_tree_without_simulators_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"claims in .*: no simulators in this tree"):
        reports_of(tmp_path, "claims", range(1), jobs=1)


def test_every_simulator_is_compared() -> None:
    (choice,) = [option.type for option in main.params if option.name == "names"]
    assert isinstance(choice, click.Choice)
    assert set(choice.choices) == set(SCENARIOS)
