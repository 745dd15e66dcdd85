"""The model of giving a partition up: the promises hold over many seeds, and every rule is needed."""

from __future__ import annotations

import pytest

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.giving_up import RULES, World

SEEDS = 150
SEEDS_MAX = 600


def test_who_is_left_delivers_the_same_in_one_order_and_waits_for_nobody_who_is_given_up() -> None:
    delivered = [World(seed).run() for seed in range(SEEDS)]
    assert sum(delivered) > 20 * SEEDS


@pytest.mark.parametrize("rule", sorted(RULES))
def test_each_rule_is_needed(rule: str) -> None:
    rules = frozenset(RULES) - {rule}
    for seed in range(SEEDS_MAX):
        try:
            World(seed, rules).run()
        except BrokenPromiseError:
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not notice that this is missing: {RULES[rule]}")
