"""A `Status` as the JSON object that the page shows and `/status.json` answers. Pure."""

from __future__ import annotations

from typing import Any

from attrs import asdict

from zraft.monitoring.statistics import Distribution
from zraft.server.operators.status import Status


def summary(status: Status) -> dict[str, Any]:
    """Return everything that fits on a page; times in ms, distributions as count, mean and quantiles."""
    durations = status.durations
    statistics = status.statistics
    return {
        "server": status.server,
        "version": status.version,
        "address": status.address,
        "cluster": status.cluster,
        "uptime_ms": status.uptime_ms,
        "ready": status.ready,
        "reasons": list(status.reasons),
        "mode": None if statistics is None else statistics.mode.value,
        "feature_level": status.feature_level,
        "topics": asdict(status.topics),
        "partition_problems": [asdict(problem) for problem in status.partition_problems.items],
        "partition_problems_left_out": status.partition_problems.left_out,
        "partitions": None
        if statistics is None
        else {
            "here": statistics.metrics.get("partitions", 0),
            "leading": statistics.metrics.get("partitions_leading", 0),
            "without_leader": statistics.metrics.get("groups_leaderless", 0),
            "under_replicated": statistics.metrics.get("partitions_under_replicated", 0),
            "records_total": statistics.metrics.get("partitions_led_records_total", 0),
            "bytes_total": statistics.metrics.get("partitions_led_bytes_total", 0),
        },
        "snapshot": None if status.snapshot is None else asdict(status.snapshot),
        "snapshot_received": status.snapshot_received,
        "log_bytes": status.log_bytes,
        "snapshots_bytes": status.snapshots_bytes,
        "raft": None if status.raft is None else asdict(status.raft),
        "members": [asdict(member) for member in status.members],
        "clients": asdict(status.clients),
        "tree": None
        if statistics is None
        else {
            "zxid": f"{statistics.zxid:#x}",
            "znodes": statistics.node_count,
            "ephemerals": statistics.ephemerals_count,
            "data_bytes": statistics.approximate_data_size,
            "watches": statistics.watch_count,
            "sessions": statistics.global_sessions,
        },
        "writes_ms": _times(durations.writes),
        "reads_ms": _times(durations.reads),
        "fsync_ms": _times(durations.fsync),
        "loop_lag_ms": _times(durations.loop_lag),
        "entries": durations.entry_commands.count,
        "entry_commands_mean": round(durations.entry_commands.mean, 1),
        "loop_stall_max_ms": round(status.loop_stall_max_ms, 1),
        "peer_datagrams_refused": 0 if status.peers is None else sum(status.peers.refused.values()),
        "settings_differ": list(status.settings_differ),
    }


def _times(seconds: Distribution) -> dict[str, float]:
    return {
        "count": seconds.count,
        "mean": round(seconds.mean * 1000, 3),
        "p50": round(seconds.quantile(0.5) * 1000, 3),
        "p99": round(seconds.quantile(0.99) * 1000, 3),
        "max": round(seconds.largest * 1000, 3),
    }
