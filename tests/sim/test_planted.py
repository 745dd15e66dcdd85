"""The test of the tests: each bug of zraft/testing/planted.py is caught by the seed that is known to show it."""

from __future__ import annotations

import pytest

from zraft.testing.planted import PLANTS, planted
from zraft.testing.simulate import run_planted
from zraft.testing.simulation import Simulation

# Up to forty seeds of a second or two each where a schedule has moved, on a machine that may be busy.
pytestmark = pytest.mark.timeout(300)

KNOWN_SEEDS = {
    "own_vote_early": 0,
    "vote_before_fsync": 0,
    "ack_before_fsync": 0,
    "leader_counts_early": 0,
    "heartbeat_commit": 0,
    "commit_older_term": 0,
    "stale_append_truncates": 0,
    "vote_for_shorter_log": 4,
    "stale_round": 3,
    "wiped_voter": 1,
    "directory_not_synced": 0,
    "snapshot_before_fsync": 0,
    "compaction_above_snapshot": 0,
    "restore_not_written": 0,
    "hard_state_not_repeated": 0,
    "torn_image": 0,
    "snapshot_without_members": 0,
    "full_disk_acknowledged": 4,
    "joint_counts_one_half": 0,
    "stale_next": 1,
    "old_boot": 1,
    "gap": 0,
    "keep_old_connection": 5,
    "expiry_on_waking": 9,
    "old_snapshot_accepted": 6,
    "snapshot_keeps_clients": 6,
    "vote_forgotten": 17,
    "blind_expire": 103,
    "table_not_read_again": 59,
    "nothing_held": 0,
    "event_after_reply": 0,
    "read_ahead": 0,
    "local_sync": 0,
    "touch_while_expiring": 0,
    "batches_recut": 0,
    "ids_of_another_run": 0,
    "reads_with_old_ids": 0,
    "writes_with_old_ids": 0,
    "unmasked_acl": 1,
    "set_acl_moves_mzxid": 0,
    "blind_reap": 5,
    "lifetimes_by_wall_clock": 2,
    "usage_of_failed_multi": 0,
    "recursive_misses_grandchildren": 4,
    "lasting_watch_consumed": 0,
    "lasting_watch_catches_up": 1,
    "event_without_read": 0,
    "silent_readers": 0,
    "uncommitted_to_readers": 0,
}
"""When a change of the simulator or the product moves a schedule, `--planted NAME` finds another seed."""


NO_SEED_YET = {
    "read_index_without_quorum",
    "restore_acknowledged_early",
    "position_lost",
    "configuration_of_snapshot_ignored",
    "failed_fsync_ignored",
    "joint_elects_one_half",
    "learner_counts",
    "final_too_early",
    "two_changes_at_once",
    "progress_of_lost_disk",
    "row_of_lost_disk",
    "promoted_blindly",
    "removed_first",
    "late_transfer",
    "removed_and_not_told",
    "feature_level_blindly_raised",
    "one_differs",
}
"""To be searched with `--planted NAME`; whatever no seed shows is not a test and goes."""


def test_every_plant_has_a_known_seed() -> None:
    """A new plant without a seed here would never run in CI."""
    assert set(KNOWN_SEEDS) | NO_SEED_YET == set(PLANTS)
    assert not NO_SEED_YET & set(KNOWN_SEEDS)


@pytest.mark.parametrize(("name", "number"), KNOWN_SEEDS.items())
def test_planted_bug_is_caught(name: str, number: int) -> None:
    """The checkers notice this bug in this seed (or, if schedules have moved, in one of the next few)."""
    result, tried = run_planted(name, [number, *range(number + 1, number + 40)])
    assert result is not None, f"{name}: {PLANTS[name].text}: not noticed in {tried} seeds"


def test_plant_is_gone_afterwards() -> None:
    """A plant must not leak into other tests of the process."""
    before = Simulation(3).run()
    with planted("commit_older_term"):
        pass
    assert Simulation(3).run() == before
