"""List of `mntr` and AdminServer's `monitor`: ZooKeeper's names of a server's numbers, in order."""

from __future__ import annotations

from typing import Final

from zraft.monitoring.statistics import Distribution, Metric, ServerMode, ServerStatistics

PEER_STATES: Final = {
    ServerMode.LEADER: "leading - broadcast",
    ServerMode.FOLLOWER: "following - broadcast",
    ServerMode.OBSERVER: "observing - broadcast",
}


def monitor_values(statistics: ServerStatistics) -> dict[str, Metric]:
    """Return the values by name, without the prefix `zk_`."""
    values: dict[str, Metric] = {
        "version": statistics.version,
        "server_state": statistics.mode.value,
    }
    if statistics.mode in PEER_STATES:
        values["peer_state"] = PEER_STATES[statistics.mode]
    values |= {
        "avg_latency": statistics.average_latency_ms,
        "max_latency": statistics.latency_max_ms,
        "min_latency": statistics.latency_min_ms,
        "packets_received": statistics.received,
        "packets_sent": statistics.sent,
        "num_alive_connections": statistics.connection_count,
        "outstanding_requests": statistics.outstanding,
        "znode_count": statistics.node_count,
        "watch_count": statistics.watch_count,
        "ephemerals_count": statistics.ephemerals_count,
        "approximate_data_size": statistics.approximate_data_size,
        "global_sessions": statistics.global_sessions,
        "local_sessions": 0,
        "open_file_descriptor_count": statistics.open_file_descriptors,
        "max_file_descriptor_count": statistics.max_file_descriptors,
        "uptime": statistics.uptime_ms,
    }
    leader = statistics.leader
    if leader is not None:
        values |= {
            "learners": leader.learners,
            "synced_followers": leader.synced_followers,
            "synced_non_voting_followers": leader.synced_non_voting_followers,
            "synced_observers": leader.synced_observers,
            "pending_syncs": leader.pending_syncs,
            "quorum_size": leader.quorum_size,
            "leader_uptime": leader.leader_uptime_ms,
            "last_proposal_size": leader.last_proposal_size,
            "max_proposal_size": leader.max_proposal_size,
            "min_proposal_size": leader.min_proposal_size,
        }
    assert not values.keys() & statistics.metrics.keys(), "an extra metric must not hide one of ZooKeeper's"
    return values | dict(statistics.metrics)


QUANTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))


def summary_values(name: str, seconds: Distribution) -> dict[str, Metric]:
    """Return a distribution of times as ZooKeeper lists its summaries: whole ms, but for the average.

    Whole numbers also where we know better, because collectors take the type of a name from its first value.
    """
    return {
        f"avg_{name}": round(seconds.mean * 1000, 4),
        f"min_{name}": round(seconds.smallest * 1000),
        f"max_{name}": round(seconds.largest * 1000),
        f"cnt_{name}": seconds.count,
        f"sum_{name}": round(seconds.total * 1000),
        **{f"{prefix}_{name}": round(seconds.quantile(q) * 1000) for prefix, q in QUANTILES},
    }
