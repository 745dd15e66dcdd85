"""Prometheus samples from a `Status`: ZooKeeper's names, then our own. Pure; exposition is prometheus-client's.

ZooKeeper's provider exposes its counters without `_total` and its times in milliseconds; dashboards and alerts use
those names, so they stay as they are, as gauges and summaries. Ours begin with `zraft_`, are in base units, and
end in `_total` exactly when they are counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from zraft.admin.group_metrics import group_families
from zraft.monitoring.monitor import monitor_values
from zraft.monitoring.statistics import Distribution
from zraft.server.operators.status import (
    ClientTraffic,
    Durations,
    MemberStatus,
    PeerTraffic,
    RaftStatus,
    Status,
    TopicsStatus,
)

PREFIX: Final = "zraft_"

ROLES: Final = ("follower", "pre-candidate", "candidate", "leader")

ZOOKEEPER_GAUGES: Final[Mapping[str, str]] = {
    "avg_latency": "Mean time in ms from a request's arrival to its answer, since the start or srst.",
    "max_latency": "Longest of these times in ms.",
    "min_latency": "Shortest of these times in ms.",
    "packets_received": "Requests received from clients.",
    "packets_sent": "Answers and events sent to clients.",
    "num_alive_connections": "Connections of clients.",
    "outstanding_requests": "Requests that wait for an answer.",
    "znode_count": "Znodes, counted as ZooKeeper does.",
    "watch_count": "Watches of the clients of this server.",
    "ephemerals_count": "Ephemeral znodes.",
    "approximate_data_size": "Bytes of all paths and data.",
    "global_sessions": "Sessions of the whole cluster.",
    "local_sessions": "Sessions that only this server knows: none.",
    "open_file_descriptor_count": "Open file descriptors.",
    "max_file_descriptor_count": "Limit of open file descriptors.",
    "uptime": "Time in ms since the start.",
    "learners": "Followers, as the leader counts them.",
    "synced_followers": "Followers that have everything committed, as the leader knows it.",
    "synced_non_voting_followers": "New servers that have everything committed and are about to vote.",
    "synced_observers": "Observers that have everything committed, as the leader knows it.",
    "pending_syncs": "Syncs that wait: none is kept by a leader.",
    "quorum_size": "Voters.",
    "leader_uptime": "Time in ms that this leadership lasts.",
    "last_proposal_size": "Bytes of the last entry proposed here, -1 before the first.",
    "max_proposal_size": "Bytes of the largest entry proposed here.",
    "min_proposal_size": "Bytes of the smallest entry proposed here.",
    "connection_request_count": "Connections accepted.",
    "connection_rejected": "Connections refused because of client.connections_max or client.connections_per_address_max.",
    "bytes_received_count": "Bytes received from clients.",
    "response_bytes": "Bytes sent to clients.",
    "looking_count": "Elections that this server called for.",
    "commit_count": "Entries committed, as far as this server knows.",
    "stale_sessions_expired": "Sessions expired.",
    "outstanding_tls_handshake": "TLS handshakes under way.",
    "tls_handshake_exceeded": "Connections refused because of tls.handshakes_max.",
}

FURTHER_COUNTERS: Final[Mapping[str, str]] = {
    "tls_handshakes_total": "TLS handshakes done.",
    "tls_handshakes_failed_total": "TLS handshakes that failed.",
    "tls_reloads_failed_total": "Certificates that could not be loaded anew.",
    "cluster_key_reloads_failed_total": "Files of the cluster key that could not be read anew.",
    "peer_stream_messages_sent_total": "Messages sent to other servers by streams (TCP).",
    "peer_stream_messages_dropped_total": "Messages that a stream could not take; they are repeated.",
    "peer_stream_bytes_sent_total": "Bytes sent by streams, to operators too.",
    "peer_streams_refused_total": "Streams refused: a wrong key, a wrong address, or no peer at all.",
    "audit_lines_dropped_total": "Lines of the audit log that were lost.",
    "leaderships_handed_on_total": "Leaderships handed on because of this server's disk.",
    "snapshots_taken_total": "Snapshots written.",
    "snapshots_failed_total": "Snapshots given up; they are tried again.",
    "snapshots_restored_total": "States taken over from a leader's snapshot.",
    "digest_alarms_total": "Indexes at which no majority agrees on the state. Leader only.",
}

PARTS: Final = ("voter", "learner", "observer", "leaving", "wanted")

QUANTILES: Final = (0.5, 0.95, 0.99)


def families(status: Status) -> Iterator[Metric]:
    """All metrics of one scrape."""
    yield from _zookeeper(status)
    yield from _server(status)
    if status.raft is not None:
        yield from _raft(status.raft)
    yield from _members(status.members)
    yield from _topics(status.topics)
    yield from _clients(status.clients)
    if status.peers is not None:
        yield from _peers(status.peers)
    yield from _durations(status.durations)


class StatusCollector:
    """What prometheus-client's registry collects; `current` is set before each exposition, None shows nothing."""

    def __init__(self) -> None:
        self.current: Status | None = None

    def collect(self) -> Iterator[Metric]:
        if self.current is not None:
            yield from families(self.current)


def _zookeeper(status: Status) -> Iterator[Metric]:
    """ZooKeeper's names. A server that does not serve has none of the first kind, as in ZooKeeper."""
    if status.statistics is not None:
        values = monitor_values(status.statistics)
        for name, help_text in ZOOKEEPER_GAUGES.items():
            value = values.get(name)
            if value is not None:
                yield GaugeMetricFamily(name, help_text, value=float(value))
        for name, help_text in FURTHER_COUNTERS.items():
            if name in values:
                yield _counter(name.removesuffix("_total"), help_text, int(values[name]))
        yield from group_families(values, PREFIX)
    durations = status.durations
    for name, help_text, distribution in (
        ("updatelatency", "Time in ms from a write's arrival to its answer.", durations.writes),
        ("readlatency", "The same of what needs no entry of the log: reads and pings.", durations.reads),
        ("fsynctime", "Time in ms to write and sync one frame of the log.", durations.fsync),
        (
            "election_time",
            "Time in ms without a known leader, per leader that was then found.",
            durations.elections,
        ),
    ):
        yield _summary_ms(name, help_text, distribution)


def _summary_ms(name: str, help_text: str, seconds: Distribution) -> Metric:
    family = SummaryMetricFamily(
        name, help_text, count_value=seconds.count, sum_value=round(seconds.total * 1000, 4)
    )
    for q in QUANTILES:
        family.add_sample(name, {"quantile": str(q)}, round(seconds.quantile(q) * 1000, 4))
    return family


def _server(status: Status) -> Iterator[Metric]:
    build = InfoMetricFamily(PREFIX + "build", "The release that runs, and which server it is.")
    build.add_metric([], {"version": status.version, "server": str(status.server)})
    yield build
    yield _gauge("ready", "1 while clients are served, else 0; /readyz tells why.", int(status.ready))
    yield _gauge("uptime_seconds", "Time since the start.", status.uptime_ms / 1000)
    yield _gauge(
        "disk_full", "1 while nothing is acknowledged because the disk is full.", int(status.disk_full)
    )
    yield _gauge(
        "loop_stall_seconds_max", "Longest stall of the loop, since srst.", status.loop_stall_max_ms / 1000
    )
    yield _gauge("feature_level", "The cluster's, in force.", status.feature_level)
    yield _gauge("wal_bytes", "Write-ahead log on disk.", status.log_bytes)
    yield _gauge("snapshot_files_bytes", "Snapshots on disk.", status.snapshots_bytes)
    yield _gauge(
        "data_free_bytes", "Room left on the file system of the data directory.", status.data_free_bytes
    )
    yield _gauge("data_size_bytes", "Size of that file system.", status.data_size_bytes)
    if status.certificate_ends_s is not None:
        yield _gauge(
            "tls_certificate_not_after_seconds",
            "When the certificate that clients are shown ends, since 1970.",
            status.certificate_ends_s,
        )
    newest = status.snapshot
    yield _gauge("snapshot_index", "Entry of the newest snapshot, 0: none.", newest.index if newest else 0)
    yield _gauge("snapshot_bytes", "Size of the newest snapshot.", newest.size_bytes if newest else 0)
    taken_ms = newest.taken_ms if newest else 0
    yield _gauge("snapshot_timestamp_seconds", "When the newest snapshot was taken.", taken_ms / 1000)
    yield _gauge("undigested_items", "Changed items not yet part of the state's digest.", status.undigested)
    yield _gauge(
        "settings_differing",
        "Settings that the configuration names with another value than the cluster's.",
        len(status.settings_differ),
    )


def _raft(raft: RaftStatus) -> Iterator[Metric]:
    role = GaugeMetricFamily(PREFIX + "raft_role", "1 for the role that this server has.", labels=["role"])
    for name in ROLES:
        role.add_metric([name], int(name == raft.role))
    yield role
    yield _gauge("raft_leader_id", "The leader's id, 0 while none is known.", raft.leader or 0)
    yield _gauge("raft_term", "Current term.", raft.term)
    yield _gauge("raft_first_index", "Oldest entry of the log.", raft.first_index)
    yield _gauge("raft_last_index", "Newest entry of the log.", raft.last_index)
    yield _gauge("raft_durable_index", "Newest entry that is on this server's disk.", raft.durable_index)
    yield _gauge("raft_commit_index", "Newest entry known to be committed.", raft.commit_index)
    yield _gauge("raft_applied_index", "Newest entry applied here.", raft.applied_index)
    yield _gauge("raft_uncommitted_bytes", "Own proposals that await a quorum.", raft.uncommitted_bytes)
    yield _gauge("raft_pending_reads", "Syncs that await a quorum.", raft.pending_reads)
    yield _counter("raft_campaigns", "Elections that this server called for.", raft.campaigns_total)
    yield _counter(
        "raft_leader_changes", "Leaders that this server followed or was.", raft.leader_changes_total
    )
    yield _counter("raft_messages_ignored", "Messages of strangers.", raft.messages_ignored_total)
    yield _counter("raft_proposals_refused", "Proposals refused.", raft.proposals_refused_total)
    yield _counter("raft_reads_dropped", "Read indices asked for in vain.", raft.reads_dropped_total)
    yield _counter(
        "raft_peer_mistakes", "Messages dropped that no correct peer sends.", raft.peer_mistakes_total
    )


def _members(members: tuple[MemberStatus, ...]) -> Iterator[Metric]:
    followers = [member for member in members if member.lag_entries is not None]
    for name, help_text, value in (
        ("lag_entries", "Entries of the leader's log that the follower is not known to have.", "lag_entries"),
        ("match_index", "Newest entry that the follower is known to have.", "match_index"),
        ("inflight_messages", "Messages with entries on their way to the follower.", "inflight_messages"),
        ("inflight_bytes", "The same in bytes.", "inflight_bytes"),
        ("replicating", "0 while the leader looks for the end of the follower's log.", "replicating"),
    ):
        family = GaugeMetricFamily(
            f"{PREFIX}raft_follower_{name}", help_text + " Leader only.", labels=["server"]
        )
        for member in followers:
            family.add_metric([str(member.server)], float(getattr(member, value)))
        yield family
    silent = GaugeMetricFamily(
        PREFIX + "raft_follower_silent_seconds",
        "Since the follower last said anything, or since the leadership began. Leader only.",
        labels=["server"],
    )
    for member in followers:
        if member.silent_ms is not None:
            silent.add_metric([str(member.server)], member.silent_ms / 1000)
    yield silent
    sending = GaugeMetricFamily(
        PREFIX + "raft_follower_snapshot_remaining_bytes",
        "What is left to send of a snapshot. Leader only.",
        labels=["server"],
    )
    for member in followers:
        if member.snapshot_bytes is not None and member.snapshot_sent_bytes is not None:
            sending.add_metric([str(member.server)], member.snapshot_bytes - member.snapshot_sent_bytes)
    yield sending
    parts = GaugeMetricFamily(PREFIX + "members", "Members of the cluster by what they are.", labels=["part"])
    for part in PARTS:
        parts.add_metric([part], sum(member.part == part for member in members))
    yield parts


def _topics(topics: TopicsStatus) -> Iterator[Metric]:
    yield _gauge("topics", "Topics of the cluster.", topics.topics)
    yield _gauge("topic_partitions", "Partitions of all topics.", topics.partitions)
    yield _gauge(
        "topic_partitions_missing",
        "Partitions that topics should have and have not.",
        topics.partitions_missing,
    )
    yield _gauge(
        "topic_partitions_moving", "Partitions on their way to other servers.", topics.partitions_moving
    )
    yield _gauge(
        "topic_partitions_deleting",
        "Partitions of deleted topics that are not gone.",
        topics.partitions_deleting,
    )
    yield _gauge("topic_producers", "Producers of all sessions.", topics.producers)
    yield _gauge(
        "topic_producers_closed", "Producers that ended and are not forgotten yet.", topics.producers_closed
    )


def _clients(clients: ClientTraffic) -> Iterator[Metric]:
    yield _gauge("client_connections", "Connections of clients.", clients.connections)
    yield _gauge("client_sessions", "Sessions whose client is connected here.", clients.sessions_attached)
    yield _gauge(
        "client_outstanding_bytes",
        "Writes taken and not applied yet; see client.outstanding_bytes_max.",
        clients.outstanding_bytes,
    )
    yield _gauge("client_outstanding_bytes_max", "The bound of these bytes.", clients.outstanding_bytes_max)
    yield _gauge(
        "client_output_bytes",
        "What clients leave unread; see client.output_bytes_sum_max.",
        clients.output_bytes,
    )
    yield _gauge(
        "client_input_bytes",
        "Requests that were read and wait; see client.input_bytes_sum_max.",
        clients.input_bytes,
    )
    yield _gauge(
        "client_unfinished_bytes",
        "Beginnings of requests; see client.unfinished_bytes_sum_max.",
        clients.unfinished_bytes,
    )
    yield _gauge(
        "client_attaches_waiting",
        "Clients that wait for their session; see client.connects_per_second_max.",
        clients.attaches_waiting,
    )
    yield _counter("client_connections_accepted", "Connections accepted.", clients.connections_total)
    yield _counter(
        "client_connections_rejected",
        "Refused: client.connections_max, …_per_address_max.",
        clients.rejected_total,
    )
    yield _counter(
        "client_connections_evicted",
        "Closed for the bounds of client_output_bytes and client_unfinished_bytes.",
        clients.evicted_total,
    )
    yield _counter(
        "client_connections_refused",
        "Closed for what their clients did; the log says why, now and then.",
        clients.refused_total,
    )
    yield _counter("client_requests", "Requests received.", clients.packets_received_total)
    yield _counter("client_replies", "Answers and events sent.", clients.packets_sent_total)
    yield _counter("client_events", "Watch events sent.", clients.events_total)
    yield _counter("client_received_bytes", "Bytes received.", clients.bytes_received_total)
    yield _counter("client_sent_bytes", "Bytes sent.", clients.bytes_sent_total)
    yield _counter("sessions_expired", "Sessions that ended in silence.", clients.sessions_expired_total)


def _peers(peers: PeerTraffic) -> Iterator[Metric]:
    yield _counter("peer_datagrams_sent", "Datagrams sent to other servers.", peers.datagrams_sent)
    yield _counter(
        "peer_datagrams_received", "Datagrams received, strangers' included.", peers.datagrams_received
    )
    yield _counter("peer_sent_bytes", "Bytes of them.", peers.bytes_sent)
    yield _counter("peer_received_bytes", "Bytes of them.", peers.bytes_received)
    yield _counter("peer_messages_sent", "Messages in them.", peers.messages_sent)
    yield _counter("peer_messages_received", "Messages in them.", peers.messages_received)
    yield _counter(
        "peer_messages_not_understood", "Authentic messages of another form.", peers.messages_not_understood
    )
    refused = CounterMetricFamily(
        PREFIX + "peer_datagrams_refused", "Datagrams dropped unread, by reason.", labels=["reason"]
    )
    for reason, count in sorted(peers.refused.items()):
        refused.add_metric([reason], count)
    yield refused
    errors = CounterMetricFamily(
        PREFIX + "peer_socket_errors",
        "Datagrams that the system did not take or bring.",
        labels=["direction", "error"],
    )
    for (direction, error), count in sorted(peers.errors.items()):
        errors.add_metric([direction, error], count)
    yield errors


def _durations(durations: Durations) -> Iterator[Metric]:
    for name, help_text, distribution in (
        ("fsync_duration_seconds", "Time to write and sync one frame of the log.", durations.fsync),
        ("write_duration_seconds", "From a write's arrival to its answer.", durations.writes),
        ("read_duration_seconds", "From a read's or ping's arrival to its answer.", durations.reads),
        ("turn_duration_seconds", "One turn of the loop: decide, send, answer.", durations.turns),
        ("loop_lag_seconds", "How late the loop's heartbeat of 10 ms came.", durations.loop_lag),
        ("leaderless_seconds", "Time without a known leader, per leader then found.", durations.elections),
        ("entry_commands", "Commands of an entry proposed here.", durations.entry_commands),
        ("entry_bytes", "Bytes of an entry proposed here.", durations.entry_bytes),
    ):
        yield _histogram(name, help_text, distribution)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, help_text, value=value)


def _counter(name: str, help_text: str, value: int) -> Metric:
    """`name` without `_total`, which the exposition adds."""
    return CounterMetricFamily(PREFIX + name, help_text, value=value)


def _histogram(name: str, help_text: str, distribution: Distribution) -> Metric:
    buckets: list[tuple[str, float]] = []
    at_most = 0
    for bound, count in zip((*distribution.bounds, "+Inf"), distribution.counts, strict=True):
        at_most += count
        buckets.append((str(bound), at_most))
    return HistogramMetricFamily(PREFIX + name, help_text, buckets=buckets, sum_value=distribution.total)
