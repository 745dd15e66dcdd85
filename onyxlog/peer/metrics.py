"""Counts of a peer process, as Prometheus metrics.

Where Onyx has a monitoring event, our metric has its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ENTRY_SECONDS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1)


class PeerMetrics:
    """Metrics of all groups of a process. Each object has its own registry, so that many can be made in one test."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(name, documentation, labels, registry=registry)

        def gauge(name: str, documentation: str, *labels: str) -> Gauge:
            return Gauge(name, documentation, labels, registry=registry)

        def duration(name: str, documentation: str, buckets: Sequence[float] = SECONDS) -> Histogram:
            return Histogram(name, documentation, buckets=buckets, registry=registry)

        self.write_log_entry = duration(
            "onyxlog_zookeeper_write_log_entry_duration_seconds",
            "From handing an entry to the log until its position is known.",
        )
        self.written = counter("onyxlog_zookeeper_write_log_entry_total", "Entries written, by kind.", "kind")
        self.read = counter(
            "onyxlog_zookeeper_read_log_entry_total", "Entries read and applied, by kind.", "kind"
        )
        self.apply_seconds = duration(
            "onyxlog_apply_log_entry_duration_seconds",
            "Playing one entry: replica, digest, reactions and effects.",
            ENTRY_SECONDS,
        )
        self.scheduler_lag = duration(
            "onyxlog_peer_group_scheduler_lag_seconds",
            "From the writer's clock in an entry until it was applied here; clocks may differ.",
        )
        self.write_origin = duration(
            "onyxlog_zookeeper_write_origin_duration_seconds", "Storing an origin and truncating the log."
        )
        self.origin_refused = counter(
            "onyxlog_zookeeper_write_origin_refused_total",
            "Origins not stored: there was one as new, or no server took it.",
        )
        self.restarts = counter(
            "onyxlog_peer_group_restarts_total", "Groups begun again under a new id, by cause.", "cause"
        )
        self.peer_restarts = counter(
            "onyxlog_virtual_peer_restarts_total", "Virtual peers begun again under a new id."
        )
        self.jumps = counter(
            "onyxlog_replica_jumps_total", "Entries were truncated before they were read here."
        )
        self.join_seconds = duration(
            "onyxlog_group_join_duration_seconds", "From opening the log until the group was a member."
        )
        self.replica_version = gauge(
            "onyxlog_replica_version", "Position of the last entry applied.", "group"
        )
        self.groups = gauge("onyxlog_replica_groups", "Groups that have joined, as this peer knows.")
        self.peers = gauge(
            "onyxlog_peer_group_peers_count", "Virtual peers of all groups, as this peer knows."
        )
        self.allocated = gauge(
            "onyxlog_peer_group_allocated_peers_count", "Virtual peers with a task, as this peer knows."
        )
        self.jobs = gauge("onyxlog_replica_jobs", "Jobs submitted and not over.")
        self.unseen = gauge("onyxlog_outbox_entries", "Entries written here and not yet read back.", "group")

    def forget(self, group: str) -> None:
        """End the series of an incarnation that is over."""
        for gauge in (self.replica_version, self.unseen):
            with suppress(KeyError):  # the incarnation ended before it had any
                gauge.remove(group)
