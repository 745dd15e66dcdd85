"""The model of giving a partition up: the promises hold over many seeds, and every rule is needed."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.giving_up import RULES, World

SEEDS: Final = 60
NOTICED: Final = {
    "all_testify": 3,
    "decided_testify": 3,
    "frozen": 310,
    "given_up_silent": 61,
    "labelled": 256,
    "recovered_testifies": 85,
}
"""A seed that needs each rule. Another one is found by running seeds in turn."""


def test_who_is_left_delivers_the_same_in_one_order_and_waits_for_nobody_who_is_given_up() -> None:
    delivered = [World(seed).run() for seed in range(SEEDS)]
    assert sum(delivered) > 20 * SEEDS


@pytest.mark.parametrize("rule", sorted(RULES))
def test_each_rule_is_needed(rule: str) -> None:
    World(NOTICED[rule]).run()
    with pytest.raises(BrokenPromiseError, match="order"):
        World(NOTICED[rule], frozenset(RULES) - {rule}).run()
