"""Every metric that a server exposes, declared: ZooKeeper's names, then our own. Pure; exposition is prometheus-client's.

ZooKeeper's provider exposes its counters without `_total` and its times in milliseconds; dashboards and alerts use
those names, so they stay as they are, as gauges and summaries. Ours begin with `zraft_`, are in base units, and
end in `_total` exactly when they are counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from prometheus_client.core import Metric

from zraft.admin.exposed import (
    Exposed,
    HistogramMetric,
    Info,
    Monitored,
    Number,
    Numbers,
    SummaryMs,
    monitored,
    shown,
)
from zraft.admin.group_metrics import GROUPS
from zraft.admin.partition_metrics import PARTITIONS
from zraft.monitoring.monitor import monitor_values
from zraft.monitoring.statistics import Listing
from zraft.server.operators.partition_problems import PROBLEMS_MAX
from zraft.server.operators.status import (
    ClientTraffic,
    Durations,
    MemberStatus,
    PartitionProblem,
    PeerTraffic,
    RaftStatus,
    SnapshotStatus,
    Status,
    TopicsStatus,
)

ROLES: Final = ("follower", "pre-candidate", "candidate", "leader")
PARTS: Final = ("voter", "learner", "observer", "leaving", "wanted")

Members = tuple[MemberStatus, ...]

ZOOKEEPER: Final[tuple[Number[Monitored], ...]] = (
    monitored(
        "avg_latency", "Mean time in ms from a request's arrival to its answer, since the start or srst."
    ),
    monitored(
        "max_latency", "Longest time in ms from a request's arrival to its answer, since the start or srst."
    ),
    monitored(
        "min_latency", "Shortest time in ms from a request's arrival to its answer, since the start or srst."
    ),
    monitored("packets_received", "Requests received from clients."),
    monitored("packets_sent", "Answers and events sent to clients."),
    monitored("num_alive_connections", "Connections of clients that are open."),
    monitored("outstanding_requests", "Requests that wait for an answer."),
    monitored("znode_count", "Znodes, counted as ZooKeeper does."),
    monitored("watch_count", "Watches of the clients of this server."),
    monitored("ephemerals_count", "Ephemeral znodes."),
    monitored("approximate_data_size", "Bytes of all paths and data."),
    monitored("global_sessions", "Sessions of the whole cluster."),
    monitored("local_sessions", "Sessions that only this server knows. There are none, so it is 0."),
    monitored("open_file_descriptor_count", "File descriptors that are open."),
    monitored("max_file_descriptor_count", "Limit of open file descriptors."),
    monitored("uptime", "Time in ms since the start."),
    monitored("learners", "Followers, as the leader counts them."),
    monitored("synced_followers", "Followers that have everything committed, as the leader knows it."),
    monitored(
        "synced_non_voting_followers", "New servers that have everything committed and are about to vote."
    ),
    monitored("synced_observers", "Observers that have everything committed, as the leader knows it."),
    monitored("pending_syncs", "Syncs that wait at the leader. It keeps none, so it is 0."),
    monitored("quorum_size", "Voters of the cluster."),
    monitored("leader_uptime", "Time in ms since this leadership began."),
    monitored("last_proposal_size", "Bytes of the last entry proposed here, -1 before the first."),
    monitored("max_proposal_size", "Bytes of the largest entry proposed here, -1 before the first."),
    monitored("min_proposal_size", "Bytes of the smallest entry proposed here, -1 before the first."),
    monitored("connection_request_count", "Connections of clients accepted."),
    monitored(
        "connection_rejected",
        "Connections refused because of client.connections_max or client.connections_per_address_max.",
    ),
    monitored("bytes_received_count", "Bytes received from clients."),
    monitored("response_bytes", "Bytes sent to clients."),
    monitored("looking_count", "Elections that this server called for."),
    monitored("commit_count", "Entries committed, as far as this server knows."),
    monitored("stale_sessions_expired", "Sessions of the whole cluster that expired."),
    monitored("outstanding_tls_handshake", "TLS handshakes under way."),
    monitored("tls_handshake_exceeded", "Connections refused because of tls.handshakes_max."),
)

ZOOKEEPER_TIMES: Final[tuple[SummaryMs[Durations], ...]] = (
    SummaryMs(
        "updatelatency", "Time in ms from a write's arrival to its answer.", lambda times: times.writes
    ),
    SummaryMs(
        "readlatency",
        "Time in ms from the arrival of what needs no entry of the log, a read or a ping, to its answer.",
        lambda times: times.reads,
    ),
    SummaryMs("fsynctime", "Time in ms to write and sync one frame of the log.", lambda times: times.fsync),
    SummaryMs(
        "election_time",
        "Time in ms without a known leader, each time until one was found.",
        lambda times: times.elections,
    ),
)

FURTHER: Final[tuple[Number[Monitored], ...]] = (
    monitored("zraft_tls_handshakes_total", "TLS handshakes done.", note="It is shown if TLS is configured."),
    monitored("zraft_tls_handshakes_failed_total", "TLS handshakes that failed."),
    monitored("zraft_tls_reloads_failed_total", "How often a certificate could not be loaded again."),
    monitored(
        "zraft_cluster_key_reloads_failed_total",
        "How often the files of the cluster key could not be read again.",
        note="The former keys stay in force.",
    ),
    monitored("zraft_peer_stream_messages_sent_total", "Messages sent to other servers by streams (TCP)."),
    monitored(
        "zraft_peer_stream_messages_dropped_total",
        "Messages that a stream to another server could not take; they are repeated.",
    ),
    monitored(
        "zraft_peer_stream_bytes_sent_total", "Bytes sent by streams to other servers and to operators."
    ),
    monitored(
        "zraft_peer_streams_refused_total",
        "Streams refused because of a wrong key, a wrong address, or a sender that is no peer.",
        note="The log says which.",
    ),
    monitored(
        "zraft_audit_lines_dropped_total",
        "Lines of the audit log that were lost.",
        note="It is shown if the audit log is configured.",
    ),
    monitored(
        "zraft_leaderships_handed_on_total",
        "Leaderships handed to another server because of this server's disk.",
    ),
    monitored(
        "zraft_syncs_by_loop_total", "Frames of the log that the loop has synced itself, on a fast disk."
    ),
    monitored(
        "zraft_replay_seconds",
        "Work that a restart would spend on the log after the newest snapshot of the coordination group.",
    ),
    monitored("zraft_snapshots_taken_total", "Snapshots written."),
    monitored("zraft_snapshots_failed_total", "Snapshots given up; they are tried again."),
    monitored("zraft_snapshots_restored_total", "States taken over from a leader's snapshot."),
    monitored(
        "zraft_digest_alarms_total",
        "Entries after which no majority agrees on the state, as the leader counts them.",
    ),
)


def _of_snapshot(value: Callable[[SnapshotStatus], float]) -> Callable[[Status], float]:
    return lambda status: value(status.snapshot) if status.snapshot is not None else 0


SERVER: Final[tuple[Exposed[Status], ...]] = (
    Info(
        "zraft_build_info",
        "The release that runs, and which server it is.",
        lambda status: {"version": status.version, "server": str(status.server)},
        labels=("version", "server"),
    ),
    Number(
        "zraft_ready",
        "1 while clients are served, else 0; /readyz tells why.",
        lambda status: int(status.ready),
    ),
    Number("zraft_uptime_seconds", "Time since the server's start.", lambda status: status.uptime_ms / 1000),
    Number(
        "zraft_disk_full",
        "1 while nothing is acknowledged because the disk is full.",
        lambda status: int(status.disk_full),
    ),
    Number(
        "zraft_loop_stall_seconds_max",
        "Longest stall of the server's loop, since the start or srst.",
        lambda status: status.loop_stall_max_ms / 1000,
    ),
    Number(
        "zraft_feature_level",
        "Feature level of the cluster that is in force.",
        lambda status: status.feature_level,
    ),
    Number("zraft_wal_bytes", "Bytes of the write-ahead log on disk.", lambda status: status.log_bytes),
    Number(
        "zraft_snapshot_files_bytes", "Bytes of snapshots on disk.", lambda status: status.snapshots_bytes
    ),
    Number(
        "zraft_data_free_bytes",
        "Bytes that are free on the file system of the data directory.",
        lambda status: status.data_free_bytes,
    ),
    Number(
        "zraft_data_size_bytes",
        "Size in bytes of the file system of the data directory.",
        lambda status: status.data_size_bytes,
    ),
    Number(
        "zraft_tls_certificate_not_after_seconds",
        "End of the certificate that clients are shown, in seconds since 1970.",
        lambda status: status.certificate_ends_s,
        note="It follows a reload.",
    ),
    Number(
        "zraft_snapshot_index",
        "Index of the last entry that the newest snapshot covers, 0 without a snapshot.",
        _of_snapshot(lambda newest: newest.index),
    ),
    Number(
        "zraft_snapshot_bytes",
        "Size of the newest snapshot in bytes.",
        _of_snapshot(lambda newest: newest.size_bytes),
        note="It is 0 before the first.",
    ),
    Number(
        "zraft_snapshot_timestamp_seconds",
        "When the newest snapshot was taken, in seconds since 1970.",
        _of_snapshot(lambda newest: newest.taken_ms / 1000),
        note="It is 0 before the first.",
    ),
    Number(
        "zraft_undigested_items",
        "Changed items not yet part of the state's digest.",
        lambda status: status.undigested,
    ),
    Number(
        "zraft_settings_differing",
        "Settings that the configuration names with another value than the cluster's.",
        lambda status: len(status.settings_differ),
        note="See [Upgrades](../how-to/upgrades.md#which-settings-are-replicated).",
    ),
)

RAFT: Final[tuple[Exposed[RaftStatus], ...]] = (
    Numbers(
        "zraft_raft_role",
        "1 for the role that this server has, 0 for the others.",
        lambda raft: [((role,), int(role == raft.role)) for role in ROLES],
        labels=("role",),
        note=f"Roles: {', '.join(ROLES)}.",
    ),
    Number("zraft_raft_leader_id", "The leader's id, 0 while none is known.", lambda raft: raft.leader or 0),
    Number("zraft_raft_term", "Term of consensus that this server is in.", lambda raft: raft.term),
    Number("zraft_raft_first_index", "Index of the oldest entry in the log.", lambda raft: raft.first_index),
    Number("zraft_raft_last_index", "Index of the newest entry in the log.", lambda raft: raft.last_index),
    Number(
        "zraft_raft_durable_index",
        "Index of the newest entry that is on this server's disk.",
        lambda raft: raft.durable_index,
    ),
    Number(
        "zraft_raft_commit_index",
        "Index of the newest entry known to be committed.",
        lambda raft: raft.commit_index,
    ),
    Number(
        "zraft_raft_applied_index", "Index of the newest entry applied here.", lambda raft: raft.applied_index
    ),
    Number(
        "zraft_raft_uncommitted_bytes",
        "Bytes of entries that this leader proposed and that wait for a quorum.",
        lambda raft: raft.uncommitted_bytes,
    ),
    Number("zraft_raft_pending_reads", "Syncs that wait for a quorum.", lambda raft: raft.pending_reads),
    Number(
        "zraft_raft_campaigns_total",
        "Elections that this server called for.",
        lambda raft: raft.campaigns_total,
    ),
    Number(
        "zraft_raft_leader_changes_total",
        "How often this server found another leader, or became the leader.",
        lambda raft: raft.leader_changes_total,
    ),
    Number(
        "zraft_raft_messages_ignored_total",
        "Messages ignored, such as those of servers that are not members.",
        lambda raft: raft.messages_ignored_total,
    ),
    Number(
        "zraft_raft_proposals_refused_total",
        "Entries that were proposed to this server and refused.",
        lambda raft: raft.proposals_refused_total,
    ),
    Number(
        "zraft_raft_reads_dropped_total",
        "Requests for a read index that were dropped.",
        lambda raft: raft.reads_dropped_total,
    ),
    Number(
        "zraft_raft_peer_mistakes_total",
        "Messages dropped that no correct peer sends.",
        lambda raft: raft.peer_mistakes_total,
    ),
)


def _of_followers(name: str, text: str, value: Callable[[MemberStatus], float | None]) -> Numbers[Members]:
    """Return numbers by follower, as far as a leader knows the value."""
    return Numbers(
        name,
        f"{text} Only a leader knows it.",
        lambda members: [
            ((str(member.server),), found)
            for member in members
            if member.lag_entries is not None and (found := value(member)) is not None
        ],
        labels=("server",),
    )


def _partition_troubles(problems: Listing[PartitionProblem]) -> list[tuple[tuple[str, ...], float]]:
    return [((one.topic, str(one.partition), one.kind), (one.for_ms or 0) / 1000) for one in problems.items]


def _snapshot_remaining(member: MemberStatus) -> float | None:
    if member.snapshot_bytes is None or member.snapshot_sent_bytes is None:
        return None
    return member.snapshot_bytes - member.snapshot_sent_bytes


MEMBERS: Final[tuple[Numbers[Members], ...]] = (
    _of_followers(
        "zraft_raft_follower_lag_entries",
        "Entries of the leader's log that the follower is not known to have.",
        lambda member: member.lag_entries,
    ),
    _of_followers(
        "zraft_raft_follower_match_index",
        "Index of the newest entry that the follower is known to have.",
        lambda member: member.match_index,
    ),
    _of_followers(
        "zraft_raft_follower_inflight_messages",
        "Messages with entries on their way to the follower.",
        lambda member: member.inflight_messages,
    ),
    _of_followers(
        "zraft_raft_follower_inflight_bytes",
        "Bytes of messages with entries on their way to the follower.",
        lambda member: member.inflight_bytes,
    ),
    _of_followers(
        "zraft_raft_follower_replicating",
        "0 while the leader looks for the end of the follower's log, else 1.",
        lambda member: member.replicating,
    ),
    _of_followers(
        "zraft_raft_follower_silent_seconds",
        "Time since the follower last sent anything, or since the leadership began.",
        lambda member: None if member.silent_ms is None else member.silent_ms / 1000,
    ),
    _of_followers(
        "zraft_raft_follower_snapshot_remaining_bytes",
        "Bytes of a snapshot that are left to send to the follower.",
        _snapshot_remaining,
    ),
    Numbers(
        "zraft_members",
        "Members of the cluster by part.",
        lambda members: [((part,), sum(member.part == part for member in members)) for part in PARTS],
        labels=("part",),
        note=f"Parts: {', '.join(PARTS)}.",
    ),
)

TOPICS: Final[tuple[Number[TopicsStatus], ...]] = (
    Number("zraft_topics", "Topics of the cluster.", lambda topics: topics.topics),
    Number("zraft_topic_partitions", "Partitions of all topics.", lambda topics: topics.partitions),
    Number(
        "zraft_topic_partitions_missing",
        "Partitions that topics should have but do not have.",
        lambda topics: topics.partitions_missing,
    ),
    Number(
        "zraft_topic_partitions_moving",
        "Partitions on their way to other servers.",
        lambda topics: topics.partitions_moving,
    ),
    Number(
        "zraft_topic_partitions_deleting",
        "Partitions of deleted topics that still exist.",
        lambda topics: topics.partitions_deleting,
    ),
    Number("zraft_topic_producers", "Producers of all sessions.", lambda topics: topics.producers),
    Number(
        "zraft_topic_producers_closed",
        "Producers that ended and are not forgotten yet.",
        lambda topics: topics.producers_closed,
    ),
)

PROBLEMS: Final[tuple[Exposed[Listing[PartitionProblem]], ...]] = (
    Number(
        "zraft_topic_partitions_in_trouble",
        "Partitions that do not take or do not deliver messages, as far as this server knows.",
        lambda problems: problems.total,
        note="The leader of the coordination group also counts those whose servers do not answer.",
    ),
    Numbers(
        "zraft_topic_partition_trouble_seconds",
        "Time for which a partition has not taken or not delivered messages, by topic, number and kind of trouble.",
        _partition_troubles,
        labels=("topic", "partition", "kind"),
        note=f"At most {PROBLEMS_MAX} partitions are shown, and none that works. `zraft status` says the reasons.",
    ),
)

CLIENTS: Final[tuple[Number[ClientTraffic], ...]] = (
    Number(
        "zraft_client_connections",
        "Connections of clients that are open.",
        lambda clients: clients.connections,
    ),
    Number(
        "zraft_client_sessions",
        "Sessions whose client is connected here.",
        lambda clients: clients.sessions_attached,
    ),
    Number(
        "zraft_client_outstanding_bytes",
        "Bytes of writes accepted and not applied yet; see client.outstanding_bytes_max.",
        lambda clients: clients.outstanding_bytes,
    ),
    Number(
        "zraft_client_outstanding_bytes_max",
        "Most bytes of writes that may be accepted and not applied: client.outstanding_bytes_max.",
        lambda clients: clients.outstanding_bytes_max,
    ),
    Number(
        "zraft_client_output_bytes",
        "Bytes that clients have not read yet; see client.output_bytes_sum_max.",
        lambda clients: clients.output_bytes,
    ),
    Number(
        "zraft_client_input_bytes",
        "Bytes of requests that were read and wait; see client.input_bytes_sum_max.",
        lambda clients: clients.input_bytes,
    ),
    Number(
        "zraft_client_unfinished_bytes",
        "Bytes of incomplete requests; see client.unfinished_bytes_sum_max.",
        lambda clients: clients.unfinished_bytes,
    ),
    Number(
        "zraft_client_attaches_waiting",
        "Clients that wait for their session; see client.connects_per_second_max.",
        lambda clients: clients.attaches_waiting,
        note="A storm of clients makes it grow, too.",
    ),
    Number(
        "zraft_client_connections_accepted_total",
        "Connections of clients accepted.",
        lambda clients: clients.connections_total,
    ),
    Number(
        "zraft_client_connections_rejected_total",
        "Connections refused because of client.connections_max or client.connections_per_address_max.",
        lambda clients: clients.rejected_total,
    ),
    Number(
        "zraft_client_connections_evicted_total",
        "Connections closed because of the bounds of zraft_client_output_bytes and zraft_client_unfinished_bytes.",
        lambda clients: clients.evicted_total,
    ),
    Number(
        "zraft_client_connections_refused_total",
        "Connections closed for what their clients did; the log says why, now and then.",
        lambda clients: clients.refused_total,
        note="Those that were evicted count here, too.",
    ),
    Number(
        "zraft_client_requests_denied_total",
        "Requests about topics and consumers that an ACL has forbidden.",
        lambda clients: clients.denied_total,
        note="The audit log has them.",
    ),
    Number(
        "zraft_client_requests_total",
        "Requests received from clients.",
        lambda clients: clients.packets_received_total,
    ),
    Number(
        "zraft_client_replies_total",
        "Answers and events sent to clients.",
        lambda clients: clients.packets_sent_total,
    ),
    Number(
        "zraft_client_events_total", "Watch events sent to clients.", lambda clients: clients.events_total
    ),
    Number(
        "zraft_client_received_bytes_total",
        "Bytes received from clients.",
        lambda clients: clients.bytes_received_total,
    ),
    Number(
        "zraft_client_sent_bytes_total", "Bytes sent to clients.", lambda clients: clients.bytes_sent_total
    ),
    Number(
        "zraft_sessions_expired_total",
        "Sessions of the whole cluster that expired.",
        lambda clients: clients.sessions_expired_total,
    ),
)

PEERS: Final[tuple[Exposed[PeerTraffic], ...]] = (
    Number(
        "zraft_peer_datagrams_sent_total",
        "Datagrams sent to other servers.",
        lambda peers: peers.datagrams_sent,
    ),
    Number(
        "zraft_peer_datagrams_received_total",
        "Datagrams received, those of strangers included.",
        lambda peers: peers.datagrams_received,
    ),
    Number(
        "zraft_peer_sent_bytes_total",
        "Bytes of datagrams sent to other servers.",
        lambda peers: peers.bytes_sent,
    ),
    Number(
        "zraft_peer_received_bytes_total",
        "Bytes of datagrams received from other servers.",
        lambda peers: peers.bytes_received,
    ),
    Number(
        "zraft_peer_messages_sent_total",
        "Messages sent to other servers in datagrams.",
        lambda peers: peers.messages_sent,
    ),
    Number(
        "zraft_peer_messages_received_total",
        "Messages received from other servers in datagrams.",
        lambda peers: peers.messages_received,
    ),
    Number(
        "zraft_peer_messages_not_understood_total",
        "Authentic messages of a form that this release does not understand.",
        lambda peers: peers.messages_not_understood,
    ),
    Numbers(
        "zraft_peer_datagrams_refused_total",
        "Datagrams dropped unread, by reason.",
        lambda peers: [((reason,), count) for reason, count in sorted(peers.refused.items())],
        labels=("reason",),
        note="Reasons: malformed, unknown_sender, misaddressed, unknown_key, stale, unauthentic, replayed.",
    ),
    Numbers(
        "zraft_peer_socket_errors_total",
        "Datagrams that the system could not send or receive.",
        lambda peers: sorted(peers.errors.items()),
        labels=("direction", "error"),
        note="Errors are named by their errno.",
    ),
)

DURATIONS: Final[tuple[HistogramMetric[Durations], ...]] = (
    HistogramMetric(
        "zraft_fsync_duration_seconds",
        "Time to write and sync one frame of the log.",
        lambda times: times.fsync,
    ),
    HistogramMetric(
        "zraft_write_duration_seconds",
        "Time from a write's arrival to its answer.",
        lambda times: times.writes,
    ),
    HistogramMetric(
        "zraft_read_duration_seconds",
        "Time from a read's or ping's arrival to its answer.",
        lambda times: times.reads,
    ),
    HistogramMetric(
        "zraft_turn_duration_seconds",
        "Time of one turn of the loop, which decides, sends and answers.",
        lambda times: times.turns,
    ),
    HistogramMetric(
        "zraft_loop_lag_seconds", "How late the loop's alarms rang.", lambda times: times.loop_lag
    ),
    HistogramMetric(
        "zraft_leaderless_seconds",
        "Time without a known leader, each time until one was found.",
        lambda times: times.elections,
    ),
    HistogramMetric(
        "zraft_entry_commands",
        "Commands in one entry proposed here.",
        lambda times: times.entry_commands,
        note="It shows how well batching works.",
    ),
    HistogramMetric(
        "zraft_entry_bytes",
        "Bytes of one entry proposed here.",
        lambda times: times.entry_bytes,
        note="It shows how well batching works.",
    ),
)

OF_ZOOKEEPER: Final[tuple[Exposed[Any], ...]] = (*ZOOKEEPER, *ZOOKEEPER_TIMES)
OURS: Final[tuple[Exposed[Any], ...]] = (
    *SERVER,
    *RAFT,
    *MEMBERS,
    *CLIENTS,
    *PEERS,
    *DURATIONS,
    *FURTHER,
    *TOPICS,
    *PROBLEMS,
    *GROUPS,
    *PARTITIONS,
)
"""In the order of the document."""


def families(status: Status) -> Iterator[Metric]:
    """Yield all metrics of one scrape but those of single partitions, which `text_of` writes.

    A server that does not serve has no numbers of `mntr`, as in ZooKeeper.
    """
    if status.statistics is not None:
        yield from shown((*ZOOKEEPER, *FURTHER, *GROUPS), monitor_values(status.statistics))
    yield from shown(ZOOKEEPER_TIMES, status.durations)
    yield from shown(SERVER, status)
    if status.raft is not None:
        yield from shown(RAFT, status.raft)
    yield from shown(MEMBERS, status.members)
    yield from shown(TOPICS, status.topics)
    yield from shown(PROBLEMS, status.partition_problems)
    yield from shown(CLIENTS, status.clients)
    if status.peers is not None:
        yield from shown(PEERS, status.peers)
    yield from shown(DURATIONS, status.durations)


class StatusCollector:
    """Collector for prometheus-client's registry.

    `current` is set before each exposition; None shows nothing.
    """

    def __init__(self) -> None:
        self.current: Status | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the current status."""
        if self.current is not None:
            yield from families(self.current)
