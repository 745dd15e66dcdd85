"""Statistics of a server's partitions for metrics and operators: counts, never a series per partition."""

from __future__ import annotations

from attrs import frozen


@frozen
class PartitionsStatistics:
    """A moment of one server; the `_total` fields count since its start.

    Of those led here: `pending` messages are begun and not delivered, the oldest of them for `pending_age_ms_max` in log
    time; `settled` are delivered, perhaps not everywhere; `started` are in the log. `unborn`: whose log has no birth yet.
    `stopped` met an entry that this release cannot carry out, `failed` have deliveries that cannot be used.
    `fetches_waiting`: consumers at the end of a partition. `entries_total`, `commands_total`: proposed by leaders here.
    Bundles are between this server's partitions and those of others, edges to the leader of group 0.
    `bundles_passed_total`, `strays_total`: for leaders, but arrived at another replica, or where nobody knew better.
    """

    partitions: int
    leading: int
    unborn: int
    stopped: int
    failed: int
    pending: int
    pending_bytes: int
    pending_age_ms_max: int
    settled: int
    started: int
    tails_bytes: int
    fetches_waiting: int
    reads_under_way: int
    entries_total: int
    commands_total: int
    delivered_total: int
    fetches_total: int
    deliveries_read_total: int
    replies_total: int
    refusals_total: int
    bundles_sent_total: int
    bundles_received_total: int
    bundles_passed_total: int
    edges_sent_total: int
    strays_total: int
    mistakes_total: int
