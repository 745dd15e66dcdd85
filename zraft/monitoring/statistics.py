"""Statistics of a server at one moment: frozen values, printed by words, JSON, metrics and page.

Everything that could be long is a `Listing`: at most `LISTED_MAX` of them, and how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Generic, Protocol, TypeVar

from attrs import field, frozen

from zraft import __version__

ZOOKEEPER_VERSION: Final = "3.9.5"
"""The release whose behaviour we follow; clients and tools read features out of it."""

FULL_VERSION: Final = f"{ZOOKEEPER_VERSION}-zraft-{__version__}"

VERSION_LINE: Final = f"{FULL_VERSION}, built on unknown"
"""The version as ZooKeeper's tools read it. An installed package does not say when it was built, so neither
do we.
"""

LISTED_MAX: Final = 3_000
"""Lines of one list: with the text made of them about 20 ms, less than a tenth of the default election timeout."""

Metric = int | float | str
T = TypeVar("T")


@frozen
class Listing(Generic[T]):
    """The first of `total` items."""

    items: tuple[T, ...]
    total: int

    @property
    def left_out(self) -> int:
        """The number of items that are not in the list."""
        return self.total - len(self.items)


class ServerMode(StrEnum):
    """Modes of a server, as `Mode:` and `zk_server_state` show them."""

    LEADER = "leader"
    FOLLOWER = "follower"
    OBSERVER = "observer"
    """Follows without a vote: an observer, or a new server that is still catching up."""
    STANDALONE = "standalone"
    READ_ONLY = "read-only"
    """Without a quorum, for clients that ask for no more than reads."""


@frozen
class Distribution:
    """Observed values by bucket: `counts[i]` are those at most `bounds[i]` and above the bound before.

    The last bucket has no bound. `smallest` and `largest` are 0 while nothing was observed.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float
    smallest: float
    largest: float

    @property
    def count(self) -> int:
        """The number of observed values."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """The mean of the observed values, 0 without any."""
        count = self.count
        return self.total / count if count else 0.0

    def quantile(self, q: float) -> float:
        """Return about the value that a share of `q` does not exceed.

        It is exact at the ends, interpolated within a bucket.
        """
        rank = q * self.count
        below = 0
        for place, count in enumerate(self.counts):
            if count and below + count >= rank:
                low = max(self.bounds[place - 1], self.smallest) if place else self.smallest
                high = min(self.bounds[place], self.largest) if place < len(self.bounds) else self.largest
                # Rounding must not lead out of the bucket.
                return min(high, low + (high - low) * (rank - below) / count)
            below += count
        return self.largest


@frozen
class SessionConnection:
    """Statistics of a connection that has a session; times in ms, zxids and cxids -1 before the first.

    `established_ms` is wall-clock time; `last_response_ms` is on the server's clock of time since it was booted.
    """

    session: int
    last_operation: str
    established_ms: int
    timeout_ms: int
    last_cxid: int
    last_zxid: int
    last_response_ms: int
    last_latency_ms: int
    min_latency_ms: int
    avg_latency_ms: int
    max_latency_ms: int


@frozen
class ConnectionStatistics:
    """One client connection; `address` is "host:port", counts are packets since it was opened or its numbers reset.

    `reading` is False while the server takes nothing from it. `session` is None before it has one.
    """

    address: str
    queued: int
    received: int
    sent: int
    reading: bool = True
    secure: bool = False
    session: SessionConnection | None = None


@frozen
class LeaderStatistics:
    """Statistics that only a leader has.

    Proposal sizes are in bytes, -1 before the first proposal; uptime is in ms.
    """

    learners: int
    synced_followers: int
    synced_non_voting_followers: int
    synced_observers: int
    pending_syncs: int
    quorum_size: int
    leader_uptime_ms: int
    last_proposal_size: int
    min_proposal_size: int
    max_proposal_size: int


@frozen
class ServerStatistics:
    """A server's numbers at one moment.

    Latencies in ms, uptime in ms, data size in bytes. `leader` is set exactly on a leader. `metrics` is what else
    `mntr` lists, names without `zk_`.
    """

    mode: ServerMode
    latency_min_ms: int
    latency_avg_ms: float
    latency_max_ms: int
    received: int
    sent: int
    connection_count: int
    outstanding: int
    zxid: int
    node_count: int
    watch_count: int
    ephemerals_count: int
    approximate_data_size: int
    global_sessions: int
    open_file_descriptors: int
    max_file_descriptors: int
    uptime_ms: int
    leader: LeaderStatistics | None = None
    metrics: Mapping[str, Metric] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        assert (self.leader is not None) == (self.mode is ServerMode.LEADER), (
            "leader statistics belong to leaders"
        )

    @property
    def version(self) -> str:
        """The version as ZooKeeper's clients expect it."""
        return VERSION_LINE

    @property
    def average_latency_ms(self) -> float:
        """The average latency as ZooKeeper shows it: four decimal places, and always one."""
        return round(float(self.latency_avg_ms), 4)


@frozen
class ListedMember:
    """One member of the cluster; `address` is "host:port" of clients (TCP) and peers (UDP) alike."""

    server: int
    address: str
    observer: bool = False


@frozen
class Configuration:
    """Values that `conf` shows.

    Sizes in bytes, times in ms, `secure_client_port` -1 without one; `members` by id.
    """

    server: int
    client_port: int
    connections_per_address_max: int
    """0: no limit."""
    secure_client_port: int
    data: str
    data_size: int
    log_size: int
    tick_time_ms: int
    session_timeout_ms_min: int
    session_timeout_ms_max: int
    listen_backlog: int
    members: tuple[ListedMember, ...]

    @property
    def standalone(self) -> bool:
        """True if the server is alone in its cluster."""
        return len(self.members) == 1


@frozen
class SessionExpiries:
    """Sessions by the wall-clock ms (a multiple of the tick time) at which they end if nothing is heard of them."""

    by_time: tuple[tuple[int, tuple[int, ...]], ...]
    total: int


@frozen
class Dump:
    """Sessions and ephemerals.

    `expiries` is known to a leader only, `sessions` are (id, timeout in ms). `connections` are (wall-clock ms,
    addresses and session ids): when a connection counts as silent.
    """

    sessions: Listing[tuple[int, int]]
    expiries: SessionExpiries | None
    owners: int
    ephemerals: Listing[tuple[int, tuple[str, ...]]]
    """Distribution of the number of paths by session."""
    connections: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]
    connection_count: int


@frozen
class WatchSummary:
    """Counts of watching connections, watched paths and watches."""

    connections: int
    paths: int
    watches: int


WatchesBySession = Listing[tuple[int, tuple[str, ...]]]
"""(session, paths), counted in paths."""

WatchesByPath = Listing[tuple[str, tuple[int, ...]]]
"""(path, sessions), counted in sessions."""


class Reports(Protocol):
    """Source of a server's values, each of the moment of the call. None: the server does not serve now."""

    @property
    def serving(self) -> bool:
        """True if clients get answers, even if only to reads."""

    @property
    def read_only(self) -> bool:
        """True if only reads are served, without contact with a quorum."""

    def environment(self) -> tuple[tuple[str, str], ...]:
        """Return the properties of the process and its machine."""

    def server(self) -> ServerStatistics | None:
        """Return the server's numbers."""

    def connections(self) -> Listing[ConnectionStatistics]:
        """Return the statistics of connections."""

    def configuration(self) -> Configuration:
        """Return the configuration in force."""

    def dump(self) -> Dump:
        """Return the sessions with their ephemeral znodes and connections."""

    def digest(self) -> tuple[int, str] | None:
        """Return (zxid, digest of the state at it) if it is cheap to have now."""

    def watch_summary(self) -> WatchSummary:
        """Return the counts of watches."""

    def watches_by_session(self) -> WatchesBySession:
        """Return the watched paths of each session."""

    def watches_by_path(self) -> WatchesByPath:
        """Return the watching sessions of each path."""

    def reset_server(self) -> None:
        """Reset the server's counts."""

    def reset_connections(self) -> None:
        """Reset the counts of all connections."""

    def trace_mask(self) -> int:
        """Return the mask that was set last; it has no effect."""

    def set_trace_mask(self, mask: int) -> None:
        """Keep a mask, which has no effect."""
