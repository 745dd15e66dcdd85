"""Seeds that are known to show planted bugs, so that nobody has to search for them in every run of the tests.

When a change of the simulator or the product moves a schedule, `python -m tests.simulation SCENARIO --planted NAME` finds
another seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CLUSTER: Final[Mapping[str, int]] = {
    "time_lost_between_alarms": 0,
    "own_vote_early": 0,
    "vote_before_fsync": 0,
    "ack_before_fsync": 0,
    "leader_counts_early": 0,
    "heartbeat_commit": 0,
    "commit_older_term": 0,
    "stale_append_truncates": 0,
    "vote_for_shorter_log": 0,
    "stale_round": 9,
    "wiped_voter": 1,
    "directory_not_synced": 4,
    "snapshot_before_fsync": 3,
    "compaction_above_snapshot": 0,
    "restore_not_written": 0,
    "hard_state_not_repeated": 0,
    "torn_image": 0,
    "snapshot_without_members": 0,
    "full_disk_acknowledged": 6,
    "joint_counts_one_half": 4,
    "stale_next": 34,
    "old_boot": 3,
    "gap": 0,
    "keep_old_connection": 20,
    "old_snapshot_accepted": 7,
    "nothing_held": 16,
    "event_after_reply": 0,
    "read_ahead": 0,
    "local_sync": 42,
    "batches_recut": 0,
    "ids_of_another_run": 0,
    "reads_with_old_ids": 0,
    "writes_with_old_ids": 0,
    "unmasked_acl": 2,
    "set_acl_moves_mzxid": 0,
    "lifetimes_by_wall_clock": 2,
    "usage_of_failed_multi": 7,
    "recursive_misses_grandchildren": 1,
    "lasting_watch_consumed": 0,
    "lasting_watch_catches_up": 9,
    "event_without_read": 5,
    "uncommitted_to_readers": 0,
    "once_forgets_on_attach": 0,
    "will_dropped": 3,
    "truncated_visible": 47,
    "producers_outlive_sessions": 3,
    "one_report_is_enough": 3,
    "difference_without_closed": 3,
    "former_disks_forgotten": 3,
    "history_survives_restore": 105,
}

PARTITIONS: Final[Mapping[str, int]] = {"retired_replica_trusted": 283}
"""The others show in one of the first few seeds."""

HOSTING: Final[Mapping[str, int]] = {"image_does_not_wait": 11}
"""The others show in one of the first few seeds."""

CLAIMS: Final[Mapping[str, int]] = {
    "readers_clock": 31,
    "future_is_stale": 32,
    "heartbeat_overwrites": 31,
    "successor_at_committed": 2,
    "batch_without_epoch": 32,
    "processed_before_claimed": 2,
    "no_self_fencing": 32,
    "fenced_at_two_intervals": 32,
    "lease_from_answer": 28,
    "expired_while_unknown": 31,
    "late_claim_counts": 3,
    "late_range_counts": 19,
    "instance_not_checked": 31,
    "old_claims_left_out": 32,
    "expiry_on_waking": 31,
    "expiry_applied_blindly": 3,
    "nobody_expires": 6,
    "heartbeat_without_offset": 31,
    "durable_when_sent": 1,
    "ranges_not_kept": 4,
    "skips_not_told": 4,
    "ranges_without_gaps": 48,
    "current_behind_last_commit": 24,
    "fetched_is_processed": 31,
}
