"""Figures beside an audit's verdicts: small series, computed by Spark from tables of any size.

Every series is bounded: times are cut into BINS, quantiles are approximate where Spark's are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen

from onyxlog.audits.rules.gossip_completeness import GossipFigures, PeerCounts, figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BINS: Final = 200
TERMS_MAX: Final = 500
PEERS_MAX: Final = 60
PARTITIONS_MAX: Final = 60

Series = Mapping[str, tuple[tuple[float, float], ...]]
"""Points (x, y) by name of what they are of."""


@frozen
class Reign:
    """A term as the log shows it; `leader` 0 if no server noted that it led.

    Times are seconds from the first entry of all.
    """

    term: int
    leader: int
    begins_s: float
    entries: int


@frozen
class Share:
    """Receptions of one peer group, and the share of superfluous ones among them (0 to 1)."""

    peer: str
    receptions: int
    redundancy: float


@frozen
class Latency:
    """Latencies of one kind of operation, in milliseconds."""

    kind: str
    count: int
    p50: float
    p90: float
    p99: float
    longest: float


@frozen(kw_only=True)
class Figures:
    """All figures of an audit.

    Attributes:
        growth: by server, megabytes of entries over seconds.
        positions: by server, committed index over seconds.
        replicas: by peer group, applied position over seconds.
        partitions: by partition's group, end of its deliveries (offset) over seconds.
    """

    reigns: tuple[Reign, ...] = ()
    growth: Series = field(factory=dict)
    positions: Series = field(factory=dict)
    replicas: Series = field(factory=dict)
    partitions: Series = field(factory=dict)
    shares: tuple[Share, ...] = ()
    latencies: tuple[Latency, ...] = ()
    gossip: tuple[GossipFigures, ...] = ()


def figures_of(spark: SparkSession, counts: Mapping[str, int]) -> Figures:
    """Compute the figures of the tables that are views of this session and have rows."""

    def has(*names: str) -> bool:
        return all(counts.get(name, 0) for name in names)

    return Figures(
        reigns=_reigns(spark) if has("entries") else (),
        growth=_growth(spark) if has("entries") else {},
        positions=_positions(spark) if has("events") else {},
        replicas=_replicas(spark) if has("onyx_entries") else {},
        partitions=_partitions(spark) if has("deliveries") else {},
        shares=_shares(spark) if has("gossip") else (),
        latencies=_latencies(spark) if has("histories") else (),
        gossip=_gossip(spark) if has("gossip") else (),
    )


def _reigns(spark: SparkSession) -> tuple[Reign, ...]:
    rows = spark.sql(
        "WITH beginning AS (SELECT min(wall_time_ms) AS ms FROM entries WHERE `group` = 0 AND wall_time_ms > 0), "
        "terms AS (SELECT term, min(wall_time_ms) AS ms, count(DISTINCT `index`) AS entries FROM entries "
        "WHERE `group` = 0 GROUP BY term), "
        # Only commands have a time: a term without any is put before the next one that has some, or at the last.
        "timed AS (SELECT term, entries, coalesce(ms, min(ms) OVER (ORDER BY term ROWS BETWEEN CURRENT ROW AND "
        "UNBOUNDED FOLLOWING), max(ms) OVER (ORDER BY term)) AS ms FROM terms), "
        "leaders AS (SELECT term, min(server) AS server FROM events "
        "WHERE kind = 'became_leader' AND `group` = 0 GROUP BY term) "
        "SELECT t.term, coalesce(l.server, 0) AS leader, coalesce((t.ms - b.ms) / 1000.0D, 0D) AS begins, t.entries "
        f"FROM timed t CROSS JOIN beginning b LEFT JOIN leaders l ON t.term = l.term ORDER BY t.term LIMIT {TERMS_MAX}"
    ).collect()
    return tuple(Reign(row.term, row.leader, float(row.begins), row.entries) for row in rows)


def _binned(spark: SparkSession, sql: str, name: str) -> dict[str, tuple[tuple[float, float], ...]]:
    """Return points of a query with columns who, at (ms), value: the largest value in each bin of time."""
    rows = spark.sql(
        f"WITH points AS ({sql}), bounds AS (SELECT min(at) AS low, max(at) AS high FROM points) "
        f"SELECT who, CAST((at - low) * {BINS} DIV (high - low + 1) AS INT) AS bin, "
        "max(value) AS value, min(high - low) AS span FROM points CROSS JOIN bounds GROUP BY ALL ORDER BY who, bin"
    ).collect()
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        series.setdefault(f"{name} {row.who}", []).append(
            ((row.bin + 1) * row.span / BINS / 1000, float(row.value))
        )
    return {who: tuple(points) for who, points in series.items()}


def _growth(spark: SparkSession) -> Series:
    return _binned(
        spark,
        "SELECT server AS who, bin_ms AS at, sum(bytes) OVER (PARTITION BY server ORDER BY bin_ms) / 1e6 AS value FROM ("
        "SELECT server, bin_ms, sum(size) AS bytes FROM (SELECT server, size, wall_time_ms - wall_time_ms % "
        f"(SELECT (max(wall_time_ms) - min(wall_time_ms)) DIV {BINS} + 1 FROM entries WHERE wall_time_ms > 0) AS bin_ms "
        "FROM entries WHERE wall_time_ms > 0 AND standing != 'truncated') GROUP BY server, bin_ms)",
        "server",
    )


def _positions(spark: SparkSession) -> Series:
    return _binned(
        spark,
        "SELECT server AS who, wall_time_ms AS at, `index` AS value FROM events "
        "WHERE kind IN ('committed', 'digest') AND `group` = 0 AND wall_time_ms > 0",
        "server",
    )


def _replicas(spark: SparkSession) -> Series:
    return _binned(
        spark,
        "SELECT peer AS who, applied_ms AS at, position AS value FROM onyx_entries WHERE applied_ms > 0 AND peer IN ("
        f"SELECT DISTINCT peer FROM onyx_entries ORDER BY peer LIMIT {PEERS_MAX})",
        "peer",
    )


def _partitions(spark: SparkSession) -> Series:
    return _binned(
        spark,
        "SELECT `group` AS who, wall_time_ms AS at, offset + span AS value FROM deliveries WHERE wall_time_ms > 0 "
        f"AND `group` IN (SELECT DISTINCT `group` FROM deliveries ORDER BY `group` LIMIT {PARTITIONS_MAX})",
        "group",
    )


def _shares(spark: SparkSession) -> tuple[Share, ...]:
    rows = spark.sql(
        "SELECT peer, count(*) AS receptions, 1 - count_if(first) / count(*) AS redundancy FROM gossip "
        f"WHERE what = 'received' GROUP BY peer ORDER BY peer LIMIT {PEERS_MAX}"
    ).collect()
    return tuple(Share(row.peer, row.receptions, float(row.redundancy)) for row in rows)


def _gossip(spark: SparkSession) -> tuple[GossipFigures, ...]:
    events = spark.sql("SELECT tenancy, count(DISTINCT position) AS n FROM gossip GROUP BY tenancy").collect()
    rows = spark.sql(
        "WITH said AS (SELECT tenancy, peer, count_if(what = 'received') AS receptions, "
        "count_if(what = 'received' AND first) AS first, sum(if(what = 'received' AND first, hops, 0)) AS hops, "
        "count_if(what = 'sent') AS sent, sum(if(what = 'sent', copies, 0)) AS copies FROM gossip GROUP BY tenancy, peer), "
        "looked AS (SELECT tenancy, peer, sum(`count`) AS entries FROM log_reads GROUP BY tenancy, peer) "
        "SELECT s.*, coalesce(l.entries, 0) AS entries FROM said s LEFT JOIN looked l "
        "ON s.tenancy = l.tenancy AND s.peer = l.peer ORDER BY s.tenancy, s.peer"
    ).collect()
    peers: dict[str, list[PeerCounts]] = {}
    for row in rows:
        counted = PeerCounts(
            row.peer, row.receptions, row["first"], row.hops, row.sent, row.copies, row.entries
        )
        peers.setdefault(row.tenancy, []).append(counted)
    return tuple(figures(row.tenancy, row.n, peers[row.tenancy]) for row in sorted(events))


def _latencies(spark: SparkSession) -> tuple[Latency, ...]:
    rows: list[Any] = spark.sql(
        "SELECT kind, count(*) AS n, approx_percentile(ms, array(0.5, 0.9, 0.99)) AS p, max(ms) AS longest FROM ("
        "SELECT kind, (returned_us - at_us) / 1000.0D AS ms FROM histories "
        "WHERE record = 'operation' AND outcome = 'ok' AND returned_us IS NOT NULL) GROUP BY kind ORDER BY kind"
    ).collect()
    return tuple(
        Latency(row.kind, row.n, float(row.p[0]), float(row.p[1]), float(row.p[2]), float(row.longest))
        for row in rows
    )
