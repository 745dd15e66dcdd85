"""Reports of a server that never was, in every value a word or command may ask for."""

from __future__ import annotations

from attrs import define, evolve, field

from zraft.monitoring.statistics import (
    Configuration,
    ConnectionStatistics,
    Distribution,
    Dump,
    LeaderStatistics,
    ListedMember,
    Listing,
    ServerMode,
    ServerStatistics,
    SessionConnection,
    SessionExpiries,
    WatchesByPath,
    WatchesBySession,
    WatchSummary,
)

FOLLOWER = ServerStatistics(
    mode=ServerMode.FOLLOWER,
    latency_min_ms=0,
    latency_avg_ms=0.123456,
    latency_max_ms=17,
    received=101,
    sent=102,
    connection_count=2,
    outstanding=4,
    zxid=0x500000002,
    node_count=5,
    watch_count=6,
    ephemerals_count=7,
    approximate_data_size=44,
    global_sessions=2,
    open_file_descriptors=63,
    max_file_descriptors=1048576,
    uptime_ms=9000,
)
LEADER = evolve(
    FOLLOWER,
    mode=ServerMode.LEADER,
    leader=LeaderStatistics(
        learners=2,
        synced_followers=1,
        synced_non_voting_followers=0,
        synced_observers=0,
        pending_syncs=0,
        quorum_size=3,
        leader_uptime_ms=8000,
        last_proposal_size=92,
        min_proposal_size=32,
        max_proposal_size=4096,
    ),
)
STANDALONE = evolve(FOLLOWER, mode=ServerMode.STANDALONE, latency_avg_ms=0, connection_count=0)

CONNECTIONS = (
    ConnectionStatistics(
        "127.0.0.1:40001",
        queued=0,
        received=9,
        sent=9,
        session=SessionConnection(
            session=0x100000A8E6B0000,
            last_operation="GETC",
            established_ms=1795294429807,
            timeout_ms=10000,
            last_cxid=8,
            last_zxid=3,
            last_response_ms=698540,
            last_latency_ms=2,
            min_latency_ms=0,
            avg_latency_ms=4,
            max_latency_ms=12,
        ),
    ),
    ConnectionStatistics("[::1]:40002", queued=3, received=20, sent=19, reading=False, secure=True),
)

CONFIGURATION = Configuration(
    server=2,
    client_port=2181,
    connections_per_address_max=0,
    secure_client_port=-1,
    data="/var/lib/zraft",
    data_size=67109337,
    log_size=67108864,
    tick_time_ms=2000,
    session_timeout_ms_min=4000,
    session_timeout_ms_max=40000,
    listen_backlog=4096,
    members=(
        ListedMember(1, "10.0.0.1:2181"),
        ListedMember(2, "10.0.0.2:2181"),
        ListedMember(3, "[::1]:2183"),
    ),
)

AT = 1795294432000
"""Sat Nov 21 20:53:52 UTC 2026."""

DUMP = Dump(
    sessions=Listing(((0x100000A8E6B0000, 10000),), 1),
    expiries=SessionExpiries(((AT, (0x100000A8E6B0000,)),), 1),
    owners=1,
    ephemerals=Listing(((0x100000A8E6B0000, ("/a/e",)),), 1),
    connections=((AT, (("127.0.0.1:40001", 0x100000A8E6B0000), ("[::1]:40002", 0))),),
    connection_count=2,
)

LISTED = Listing(CONNECTIONS, 2)
SUMMARY = WatchSummary(1, 2, 3)
BY_SESSION: WatchesBySession = Listing(((0x1, ("/a/none", "/a")),), 2)
BY_PATH: WatchesByPath = Listing((("/a/none", (0x1,)), ("/a", (0x1,))), 2)
ENVIRONMENT = (("zookeeper.version", FOLLOWER.version), ("host.name", "here"), ("os.name", "Linux"))


@define
class FakeReports:
    """Every value as the test sets it; what was asked to change stands in `changes`."""

    statistics: ServerStatistics | None = FOLLOWER
    listed: Listing[ConnectionStatistics] = LISTED
    configured: Configuration = CONFIGURATION
    dumped: Dump = DUMP
    digested: tuple[int, str] | None = (0x100000004, "258f96")
    summarised: WatchSummary = SUMMARY
    by_session: WatchesBySession = BY_SESSION
    by_path: WatchesByPath = BY_PATH
    mask: int = 306
    read_only: bool = False
    changes: list[str] = field(factory=list)

    @property
    def serving(self) -> bool:
        return self.statistics is not None

    def environment(self) -> tuple[tuple[str, str], ...]:
        return ENVIRONMENT

    def server(self) -> ServerStatistics | None:
        return self.statistics

    def connections(self) -> Listing[ConnectionStatistics]:
        return self.listed

    def configuration(self) -> Configuration:
        return self.configured

    def dump(self) -> Dump:
        return self.dumped

    def digest(self) -> tuple[int, str] | None:
        return self.digested

    def watch_summary(self) -> WatchSummary:
        return self.summarised

    def watches_by_session(self) -> WatchesBySession:
        return self.by_session

    def watches_by_path(self) -> WatchesByPath:
        return self.by_path

    def reset_server(self) -> None:
        self.changes.append("server")

    def reset_connections(self) -> None:
        self.changes.append("connections")

    def trace_mask(self) -> int:
        return self.mask

    def set_trace_mask(self, mask: int) -> None:
        self.mask = mask


def distribution(*counts: int, bounds: tuple[float, ...] = (0.001, 0.01)) -> Distribution:
    """Values of which `counts` are in the buckets up to 1 ms, up to 10 ms and above."""
    return Distribution(bounds, counts, total=0.5, smallest=0.0005, largest=0.25)
