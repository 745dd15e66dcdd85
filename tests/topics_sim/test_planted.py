"""Every planted bug is noticed: by a directed schedule, or by the seed that is known to notice it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.multicast.directed import DIRECTED
from tests.simulation.multicast.planted import PLANTS, planted
from tests.simulation.multicast.profile import Size
from tests.simulation.scenarios import MULTICAST

SEEDS: Final[Mapping[str, int]] = {
    "advance_past_pending": 6,
    "advance_without_clock": 0,
    "after_begun_elsewhere": 4,
    "after_pending_suffices": 21,
    "after_unknown_satisfied": 5,
    "batch_takes_one_offset": 0,
    "boundary_ignored": 0,
    "bypass_below_round": 109,
    "clear_ignores_settled": 31,
    "clear_not_awaited": 11,
    "clock_not_raised": 0,
    "clock_one_below": 0,
    "clock_without_max": 0,
    "close_checked_by_leader_only": 140,
    "condition_effect_at_delivery": 28,
    "condition_judged_everywhere": 0,
    "condition_not_carried": 45,
    "decided_without_testimony": 102,
    "delivered_and_silent": 180,
    "delivered_by_first": 0,
    "depends_bypassed": 0,
    "epoch_raised_blindly": 5,
    "final_before_all": 0,
    "floor_by_accepted": 0,
    "floor_by_first_delivery": 5,
    "given_up_is_heard": 11,
    "given_up_still_awaited": 1,
    "known_without_outcomes": 0,
    "lost_and_awaited": 0,
    "merger_waits_for_nobody": 0,
    "need_T": 2,
    "new_leader_silent": 0,
    "one_refusal_is_final": 0,
    "one_stamp_per_round": 0,
    "plain_watermark": 4,
    "propose_without_floor": 10,
    "proposed_before_commit": 0,
    "refuse_propose_of_closed": 6,
    "released_before_staged": 0,
    "released_behind_undecided": 5,
    "remote_begins_known": 174,
    "removed_in_its_place": 11,
    "replaced_from_time_zero": 46,
    "reported_before_the_loss": 764,
    "retired_not_known": 0,
    "round_without_depends": 24,
    "rounds_overlap": 8,
    "rows_dropped_at_close": 18,
    "settled_dropped_on_any_floor": 7,
    "settled_never_kept": 0,
    "singles_unnumbered": 102,
    "snapshot_without_settled": 3,
    "snapshot_without_staged": 1,
    "staged_as_it_came": 0,
    "staged_is_delivered": 0,
    "staged_told_before_commit": 10,
    "stale_epoch_admitted": 5,
    "ties_by_receiver": 0,
    "told_before_commit": 137,
    "view_goes_back": 18,
    "void_delivered": 28,
}
"""The first small run, in the bug's mode, that notices it. When the simulator changes, find them again:
`python -m tests.simulation multicast --planted all` prints them."""


def test_every_planted_bug_has_a_schedule_or_a_known_seed() -> None:
    assert set(SEEDS) | set(DIRECTED) == set(PLANTS)
    assert not set(SEEDS) & set(DIRECTED)


def test_the_documented_table_names_each_bug_with_its_rule_and_what_notices_it() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "explanation" / "topics.md").read_text()
    for name, bug in PLANTS.items():
        by = f"`{DIRECTED[name].schedule.__name__}`" if name in DIRECTED else f"seed {SEEDS[name]}"
        assert f"| `{name}` | {bug.rule} | {bug.text} | {by} | " in documented


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_a_planted_bug_is_noticed_by_its_seed(name: str) -> None:
    result, _ = MULTICAST.run_planted(name, [SEEDS[name]])
    assert result is not None, f"seed {SEEDS[name]} does not notice {name}"


@pytest.mark.parametrize("name", sorted(DIRECTED))
def test_a_planted_bug_is_noticed_by_its_schedule(name: str) -> None:
    assert MULTICAST.run_directed(name) is not None


def test_a_plant_ends_with_its_run() -> None:
    with planted("clock_not_raised"):
        assert (
            MULTICAST.run_seed(2, size=Size.SMALL).report is None
            or MULTICAST.run_seed(3, size=Size.SMALL).report is None
        )
    assert MULTICAST.run_seed(2, size=Size.SMALL).report is not None
    assert MULTICAST.run_seed(3, size=Size.SMALL).report is not None
