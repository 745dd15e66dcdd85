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

KNOWN_SEEDS = {
    "time_lost_between_alarms": 0,
    "own_vote_early": 0,
    "vote_before_fsync": 0,
    "ack_before_fsync": 0,
    "leader_counts_early": 0,
    "heartbeat_commit": 0,
    "commit_older_term": 0,
    "stale_append_truncates": 0,
    "vote_for_shorter_log": 0,
    "stale_round": 4,
    "wiped_voter": 0,
    "directory_not_synced": 4,
    "snapshot_before_fsync": 3,
    "compaction_above_snapshot": 0,
    "restore_not_written": 0,
    "hard_state_not_repeated": 0,
    "torn_image": 0,
    "snapshot_without_members": 0,
    "full_disk_acknowledged": 3,
    "joint_counts_one_half": 0,
    "stale_next": 32,
    "old_boot": 3,
    "gap": 0,
    "keep_old_connection": 15,
    "old_snapshot_accepted": 1,
    "nothing_held": 7,
    "event_after_reply": 0,
    "read_ahead": 0,
    "local_sync": 25,
    "batches_recut": 0,
    "ids_of_another_run": 0,
    "reads_with_old_ids": 0,
    "writes_with_old_ids": 0,
    "unmasked_acl": 0,
    "set_acl_moves_mzxid": 0,
    "lifetimes_by_wall_clock": 2,
    "usage_of_failed_multi": 0,
    "recursive_misses_grandchildren": 0,
    "lasting_watch_consumed": 0,
    "lasting_watch_catches_up": 0,
    "event_without_read": 1,
    "uncommitted_to_readers": 0,
    "once_forgets_on_attach": 0,
    "will_dropped": 3,
    "truncated_visible": 36,
    "producers_outlive_sessions": 3,
    "one_report_is_enough": 3,
    "difference_without_closed": 3,
    "former_disks_forgotten": 3,
    "history_survives_restore": 78,
}
"""When a change of the simulator or the product moves a schedule, `--planted NAME` finds another seed."""


def test_every_plant_is_caught_somewhere() -> None:
    """A new plant with neither a seed here nor a directed schedule would never run in CI."""
    assert set(KNOWN_SEEDS) | set(DIRECTED) == set(PLANTS)


@pytest.mark.parametrize(("name", "number"), KNOWN_SEEDS.items())
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
