"""Numbers of groups and partitions that `/metrics` shows; `mntr` has the same under zk_."""

from __future__ import annotations

from typing import Final

from zraft.admin.exposed import Monitored, Number, monitored

AGE_MS: Final = "groups_pending_age_ms_max"

GROUPS: Final[tuple[Number[Monitored], ...]] = (
    monitored("zraft_groups", "Groups of topics with a replica here."),
    monitored("zraft_groups_leading", "Groups led here."),
    monitored("zraft_groups_following", "Groups that follow a leader elsewhere."),
    monitored("zraft_groups_campaigning", "Groups that stand for election here."),
    monitored("zraft_groups_learning", "Groups whose replica here does not vote."),
    monitored(
        "zraft_groups_leaderless",
        "Groups of which no leader is known here.",
        note="A group without a leader for long has lost its quorum.",
    ),
    monitored("zraft_groups_asleep", "Groups that have nothing to do."),
    monitored("zraft_groups_misplaced", "Groups led here that another server should lead and could."),
    monitored(
        "zraft_groups_log_needed_bytes",
        "Bytes of the log of all groups, back to the oldest entry that any group needs.",
        note="Only payload counts.",
    ),
    monitored(
        "zraft_groups_log_oldest_group",
        "Id of the group that needs the oldest entry of the log; 0 is the coordination group.",
        note="If the log grows and this group stays the same, find out why it is not snapshotted.",
    ),
    monitored(
        "zraft_groups_receiving", "Groups whose images and deliveries are being received from other servers."
    ),
    monitored("zraft_partitions", "Partitions with a replica here."),
    monitored("zraft_partitions_leading", "Partitions whose leader takes messages here."),
    monitored("zraft_partitions_unborn", "Partitions whose log has no beginning yet."),
    monitored("zraft_partitions_stopped", "Partitions that met an entry that this release cannot carry out."),
    monitored("zraft_partitions_failed", "Partitions whose deliveries on this disk cannot be used."),
    monitored(
        "zraft_partitions_under_replicated",
        "Partitions led here of which a replica is not in sync.",
        note="`zraft topic describe` shows which.",
    ),
    monitored("zraft_groups_pending", "Messages begun and not delivered, of partitions led here."),
    monitored(
        "zraft_partitions_pending_bytes", "Bytes of messages begun and not delivered, of partitions led here."
    ),
    monitored(
        "zraft_partitions_settled", "Messages delivered here, perhaps not everywhere, of partitions led here."
    ),
    monitored(
        "zraft_partitions_started", "Messages that are in the log and not begun, of partitions led here."
    ),
    monitored("zraft_partitions_tails_bytes", "Bytes of deliveries in memory."),
    monitored(
        "zraft_partitions_fetches_waiting", "Fetches of consumers that wait at the end of a partition."
    ),
    monitored(
        "zraft_partitions_reads_under_way", "Reads of older deliveries under way or waiting for the disk."
    ),
    monitored("zraft_deliveries_open", "Partitions whose deliveries are open."),
    monitored("zraft_deliveries_files_open", "Segments of deliveries that are open."),
    monitored(
        "zraft_deliveries_unsynced_groups",
        "Partitions with deliveries that only the log makes durable so far.",
    ),
    monitored("zraft_deliveries_waiting_bytes", "Bytes of deliveries that wait for the disk."),
    monitored("zraft_deliveries_disk_full", "1 while the disk takes no deliveries, else 0."),
    monitored(
        "zraft_groups_touched_total",
        "Groups at which the server looked, counted once per group and turn.",
        note="A server's work grows with it.",
    ),
    monitored(
        "zraft_groups_mistakes_total",
        "Messages of groups that no correct peer sends; they are dropped.",
        note="The log names the sender of the newest, at most once a minute.",
    ),
    monitored("zraft_groups_moves_total", "Leaderships handed to the server that should lead."),
    monitored("zraft_groups_entries_total", "Entries appended by leaders here."),
    monitored("zraft_groups_commands_total", "Commands in the entries that leaders here appended."),
    monitored("zraft_groups_bundles_sent_total", "Messages sent to partitions on other servers."),
    monitored("zraft_groups_bundles_received_total", "Messages received from partitions on other servers."),
    monitored(
        "zraft_groups_edges_sent_total",
        "Messages sent to the leader of the coordination group about partitions.",
    ),
    monitored("zraft_groups_snapshots_total", "Images of groups written."),
    monitored("zraft_groups_snapshots_failed_total", "Images of groups given up; they are tried again."),
    monitored(
        "zraft_groups_digests_compared_total",
        "States of groups compared between members.",
        note="Rule D-26 says why.",
    ),
    monitored("zraft_groups_digest_alarms_total", "Comparisons in which no state has a majority."),
    monitored("zraft_groups_installed_total", "Images of groups taken over from other servers."),
    monitored(
        "zraft_groups_transfers_failed_total", "Images of groups given up on their way from another server."
    ),
    monitored(
        "zraft_groups_transfer_bytes_sent_total", "Bytes of images and deliveries sent to other servers."
    ),
    monitored(
        "zraft_groups_transfer_bytes_received_total",
        "Bytes of images and deliveries received from other servers.",
    ),
    monitored("zraft_groups_delivered_total", "Deliveries applied here."),
    monitored(
        "zraft_partitions_led_messages_total",
        "Messages delivered to partitions while they were led here.",
        note="The sum over all servers is what all topics were sent.",
    ),
    monitored(
        "zraft_partitions_led_records_total", "Records delivered to partitions while they were led here."
    ),
    monitored(
        "zraft_partitions_led_bytes_total",
        "Bytes of messages delivered to partitions while they were led here.",
    ),
    monitored(
        "zraft_partitions_entries_total", "Entries of commands proposed by leaders of partitions here."
    ),
    monitored(
        "zraft_partitions_commands_total", "Commands in the entries that leaders of partitions here proposed."
    ),
    monitored("zraft_partitions_fetches_total", "Fetches of consumers."),
    monitored("zraft_partitions_deliveries_read_total", "Deliveries given to consumers."),
    monitored("zraft_partitions_replies_total", "Answers to producers, and to consumers' requests."),
    monitored("zraft_partitions_refusals_total", "Requests about partitions refused."),
    monitored(
        "zraft_partitions_bundles_sent_total",
        "Messages sent to other partitions, those on this server included.",
    ),
    monitored(
        "zraft_partitions_bundles_received_total",
        "Messages received from other partitions, those on this server included.",
    ),
    monitored("zraft_partitions_bundles_passed_total", "Messages passed on to a leader on another server."),
    monitored(
        "zraft_partitions_edges_sent_total",
        "Messages sent to the coordination group, on this server or another one.",
    ),
    monitored("zraft_partitions_strays_total", "Messages for partitions whose leader is not known here."),
    monitored(
        "zraft_partitions_mistakes_total",
        "Messages between partitions that no correct server sends; they are dropped.",
        note="The log names the sender of the newest, at most once a minute.",
    ),
    monitored(
        "zraft_deliveries_refused_total", "How often the disk took no more deliveries and partitions waited."
    ),
    Number(
        "zraft_groups_pending_age_seconds_max",
        "Age of the oldest message that is begun and not delivered.",
        lambda values: float(values[AGE_MS]) / 1000 if AGE_MS in values else None,
        note="`mntr` counts in milliseconds: `zk_groups_pending_age_ms_max`.",
    ),
)
