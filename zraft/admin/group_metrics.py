"""Numbers of groups and partitions that `/metrics` shows, and what they mean; `mntr` has the same under zk_."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family

from zraft.monitoring.statistics import Metric

GROUP_GAUGES: Final[Mapping[str, str]] = {
    "groups": "Groups of topics with a replica here.",
    "groups_leading": "Groups led here.",
    "groups_following": "Groups that follow a leader elsewhere.",
    "groups_campaigning": "Groups that stand for election here.",
    "groups_learning": "Groups whose replica here does not vote.",
    "groups_leaderless": "Groups of which no leader is known here.",
    "groups_asleep": "Groups that have nothing to do.",
    "groups_misplaced": "Groups led here that another server should lead and could.",
    "groups_log_needed_bytes": "Log of all groups back to the oldest entry that any group needs.",
    "groups_log_oldest_group": "Id of the group that needs it; 0 is the coordination group.",
    "groups_receiving": "Images and deliveries that are being received from other servers.",
    "partitions": "Partitions with a replica here.",
    "partitions_leading": "Partitions whose leader takes messages here.",
    "partitions_unborn": "Partitions whose log has no beginning yet.",
    "partitions_stopped": "Partitions that met an entry that this release cannot carry out.",
    "partitions_failed": "Partitions whose deliveries on this disk cannot be used.",
    "groups_pending": "Messages begun and not delivered, of partitions led here.",
    "partitions_pending_bytes": "Bytes of these messages.",
    "partitions_settled": "Messages delivered here, perhaps not everywhere, of partitions led here.",
    "partitions_started": "Messages that are in the log and not begun, of partitions led here.",
    "partitions_tails_bytes": "Deliveries in memory.",
    "partitions_fetches_waiting": "Consumers at the end of a partition.",
    "partitions_reads_under_way": "Reads of older deliveries under way or waiting for the disk.",
    "deliveries_open": "Partitions whose deliveries are open.",
    "deliveries_files_open": "Segments of deliveries open.",
    "deliveries_unsynced_groups": "Partitions with deliveries that only the log makes durable so far.",
    "deliveries_waiting_bytes": "Deliveries that wait for the disk.",
    "deliveries_disk_full": "1 while the disk takes no deliveries.",
}
GROUP_COUNTERS: Final[Mapping[str, str]] = {
    "groups_touched_total": "Groups looked at, one per group and turn.",
    "groups_mistakes_total": "Messages of groups dropped that no correct peer sends.",
    "groups_moves_total": "Leaderships handed to the server that should lead.",
    "groups_entries_total": "Entries appended by leaders here.",
    "groups_commands_total": "Commands in these entries.",
    "groups_bundles_sent_total": "Messages sent to partitions on other servers.",
    "groups_bundles_received_total": "Messages from partitions on other servers.",
    "groups_edges_sent_total": "Messages sent to the leader of the coordination group about partitions.",
    "groups_snapshots_total": "Images of groups written.",
    "groups_snapshots_failed_total": "Images of groups given up; they are tried again.",
    "groups_digests_compared_total": "States of groups compared between members.",
    "groups_digest_alarms_total": "Comparisons in which nobody has a majority.",
    "groups_installed_total": "Images taken over from other servers.",
    "groups_transfers_failed_total": "Images given up on their way from another server.",
    "groups_transfer_bytes_sent_total": "Bytes of images and deliveries sent to other servers.",
    "groups_transfer_bytes_received_total": "Bytes of images and deliveries from other servers.",
    "groups_delivered_total": "Deliveries applied here.",
    "partitions_entries_total": "Entries of commands proposed by leaders here.",
    "partitions_commands_total": "Commands in these entries.",
    "partitions_fetches_total": "Fetches of consumers.",
    "partitions_deliveries_read_total": "Deliveries given to consumers.",
    "partitions_replies_total": "Answers to producers and to consumers' requests.",
    "partitions_refusals_total": "Requests about partitions refused.",
    "partitions_bundles_sent_total": "Messages to other partitions, those on this server included.",
    "partitions_bundles_received_total": "Messages from other partitions, those on this server included.",
    "partitions_bundles_passed_total": "Messages for a leader elsewhere, passed on.",
    "partitions_edges_sent_total": "Messages to the coordination group, on this server or another one.",
    "partitions_strays_total": "Messages for partitions that nobody here knows a leader of.",
    "partitions_mistakes_total": "Messages between partitions dropped that no correct server sends.",
    "deliveries_refused_total": "How often the disk took no more deliveries and partitions waited.",
}
AGE: Final = "groups_pending_age_ms_max"
AGE_SECONDS: Final = "groups_pending_age_seconds_max"
"""It has this name here, because Prometheus counts in seconds."""


def group_families(values: Mapping[str, Metric], prefix: str) -> Iterator[Family]:
    """Return those of `mntr`'s values that are of groups, partitions and deliveries."""
    for name, text in GROUP_GAUGES.items():
        if name in values:
            yield GaugeMetricFamily(prefix + name, text, value=float(values[name]))
    for name, text in GROUP_COUNTERS.items():
        if name in values:
            yield CounterMetricFamily(prefix + name.removesuffix("_total"), text, value=float(values[name]))
    if AGE in values:
        text = "Age in log time of the oldest message that is begun and not delivered."
        yield GaugeMetricFamily(prefix + AGE_SECONDS, text, value=float(values[AGE]) / 1000)
