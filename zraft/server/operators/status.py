"""One server's inner numbers at one moment, beyond what ZooKeeper's words tell. Frozen values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from attrs import frozen

from zraft.monitoring.statistics import Distribution, Listing, Reports, ServerStatistics
from zraft.server.partitions.statistics import PartitionState


@frozen
class MemberStatus:
    """One member as this server knows it; what follows `part` is known to a leader of its followers only.

    `part` is voter, learner (votes once it has caught up), observer, leaving, or wanted (not taken in yet); unknown
    before this server belongs to a cluster.
    """

    server: int
    address: str
    leads: bool
    is_me: bool
    part: str = "unknown"
    match_index: int | None = None
    lag_entries: int | None = None
    inflight_messages: int | None = None
    inflight_bytes: int | None = None
    replicating: bool | None = None
    """False while the leader has to find out where the follower's log ends."""
    needs_snapshot: bool | None = None
    """The log no longer holds what it needs next."""
    snapshot_sent_bytes: int | None = None
    """The bytes of the snapshot that were sent to it so far, None if none is being sent; out of
    `snapshot_bytes`.
    """
    snapshot_bytes: int | None = None
    silent_ms: int | None = None
    """Since it last said anything, or since the leadership began."""


@frozen(kw_only=True)
class RaftStatus:
    """Consensus; the `_total` fields count since the process started."""

    role: str
    term: int
    leader: int | None
    first_index: int
    last_index: int
    durable_index: int
    commit_index: int
    applied_index: int
    uncommitted_bytes: int
    pending_reads: int
    campaigns_total: int
    leader_changes_total: int
    messages_ignored_total: int
    proposals_refused_total: int
    reads_dropped_total: int
    peer_mistakes_total: int


@frozen(kw_only=True)
class SnapshotStatus:
    """The newest durable snapshot of this server. `taken_ms` is wall time; `zxid` is that of its last change."""

    index: int
    zxid: int
    taken_ms: int
    items: int
    size_bytes: int


@frozen(kw_only=True)
class TopicsStatus:
    """Topics of the whole cluster, as this server has applied them.

    Of the partitions, `missing` are not created yet, `moving` are on their way to other disks, `deleting` are of topics that
    are gone. `producers_closed` ended, and something of theirs may be left.
    """

    topics: int = 0
    partitions: int = 0
    partitions_missing: int = 0
    partitions_moving: int = 0
    partitions_deleting: int = 0
    producers: int = 0
    producers_closed: int = 0


@frozen
class PartitionProblem:
    """A partition that does not take messages, or does not deliver them, as one server sees it.

    `kind` is one of `TroubleKind`, `reason` says it in words, and `for_ms` says since when, as far as that is known.
    """

    topic: str
    partition: int
    group: int
    kind: str
    reason: str
    for_ms: int | None = None


NO_PROBLEMS: Final = Listing[PartitionProblem]((), 0)


@frozen
class PartitionStatus:
    """A partition's replica on this server: number `number` of `topic`. `oldest_age_ms` is the age of what it keeps."""

    topic: str
    number: int
    state: PartitionState
    oldest_age_ms: int | None


@frozen
class ConsumerLag:
    """Count of the records of `topic`, in the partitions led by this server, that consumer `name` has not consumed yet."""

    topic: str
    name: bytes
    lag: int


@frozen(kw_only=True)
class PartitionsStatus:
    """The partitions of topics on this server and their consumers, each up to a bound; the others are counted."""

    partitions: tuple[PartitionStatus, ...] = ()
    partitions_left_out: int = 0
    consumers: tuple[ConsumerLag, ...] = ()
    consumers_left_out: int = 0


@frozen(kw_only=True)
class PeerTraffic:
    """Datagrams to and from other servers since the start; `refused` by reason, `errors` by (direction, errno name)."""

    datagrams_sent: int
    datagrams_received: int
    bytes_sent: int
    bytes_received: int
    messages_sent: int
    messages_received: int
    messages_not_understood: int
    refused: Mapping[str, int]
    errors: Mapping[tuple[str, str], int]


@frozen(kw_only=True)
class ClientTraffic:
    """Clients of this server.

    `outstanding_bytes`: writes taken and not yet applied; `output_bytes`, `input_bytes`, `unfinished_bytes`: what the bounds
    of the same names count; `evicted_total`: connections that were closed for these bounds; `refused_total`: those, and
    others that were closed for what their clients did. `denied_total`: requests about topics that an ACL has forbidden.
    """

    connections: int
    sessions_attached: int
    connections_total: int
    rejected_total: int
    packets_received_total: int
    packets_sent_total: int
    bytes_received_total: int
    bytes_sent_total: int
    events_total: int
    outstanding_bytes: int
    outstanding_bytes_max: int
    output_bytes: int
    input_bytes: int
    unfinished_bytes: int
    evicted_total: int
    refused_total: int
    denied_total: int
    attaches_waiting: int
    sessions_expired_total: int


@frozen(kw_only=True)
class Durations:
    """Distributions of durations in seconds, and of two sizes of entries: commands and bytes."""

    fsync: Distribution
    writes: Distribution
    reads: Distribution
    turns: Distribution
    loop_lag: Distribution
    elections: Distribution
    entry_commands: Distribution
    entry_bytes: Distribution


@frozen(kw_only=True)
class Status:
    """Status of all parts, beyond what `ServerStatistics` has.

    `reasons` is empty exactly while `ready`; times in ms.
    """

    server: int
    version: str
    address: str
    cluster: str | None
    uptime_ms: int
    ready: bool
    reasons: tuple[str, ...]
    raft: RaftStatus | None
    members: tuple[MemberStatus, ...]
    clients: ClientTraffic
    peers: PeerTraffic | None
    durations: Durations
    loop_stall_max_ms: float
    disk_full: bool
    undigested: int
    settings_differ: tuple[str, ...]
    feature_level: int = 1
    """In force (D-5)."""
    topics: TopicsStatus = TopicsStatus()
    partition_problems: Listing[PartitionProblem] = NO_PROBLEMS
    snapshot: SnapshotStatus | None = None
    snapshot_received: tuple[int, int] | None = None
    """(bytes here, bytes of all) of a snapshot that the leader is sending."""
    log_bytes: int = 0
    """The bytes of the write-ahead log on disk."""
    snapshots_bytes: int = 0
    """The bytes of all snapshots on disk."""
    data_free_bytes: int = 0
    """Room that is left for the server's user on the file system of the data directory, out of `data_size_bytes`."""
    data_size_bytes: int = 0
    certificate_ends_s: float | None = None
    """When the certificate that TLS clients are shown ends, in s since 1970; None without TLS."""
    statistics: ServerStatistics | None
    """None while the server does not serve its clients."""


class AdminReports(Reports, Protocol):
    """The values of the words, and those of the admin server."""

    def status(self) -> Status:
        """Return the numbers of all parts of the server."""

    def partitions(self) -> PartitionsStatus:
        """Return the partitions of topics here and their consumers, which costs more the more there are."""

    def reasons(self) -> tuple[str, ...]:
        """Return the reasons for which clients are better served elsewhere now.

        This costs nothing, unlike the rest of `status`.
        """

    def knobs(self) -> tuple[tuple[str, str], ...]:
        """Return the configuration in force, as (knob, value)."""

    def cluster_text(self) -> str:
        """Return the servers as the configuration lists them."""


def readiness(reasons: tuple[str, ...]) -> tuple[int, str]:
    """Return the answer to `/readyz`: the HTTP status, and "ok" or a reason a line."""
    if not reasons:
        return 200, "ok\n"
    return 503, "".join(f"{reason}\n" for reason in reasons)
