"""What a peer process counts, as Prometheus metrics. Where Onyx has a monitoring event, its name is in ours."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from onyxlog.replica.commands import Command

SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ENTRY_SECONDS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1)


class PeerMetrics:
    """Of all groups of a process; each has its own registry, so that many can be made in one test."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)
        self.write_log_entry = Histogram(
            "onyxlog_zookeeper_write_log_entry_duration_seconds",
            "From handing an entry to the log until its position is known.",
            buckets=SECONDS,
            registry=registry,
        )
        self.written = Counter(
            "onyxlog_zookeeper_write_log_entry", "Entries written, by kind.", ["kind"], registry=registry
        )
        self.read = Counter(
            "onyxlog_zookeeper_read_log_entry",
            "Entries read and applied, by kind.",
            ["kind"],
            registry=registry,
        )
        self.apply_seconds = Histogram(
            "onyxlog_apply_log_entry_duration_seconds",
            "Playing one entry: replica, digest, reactions and effects.",
            buckets=ENTRY_SECONDS,
            registry=registry,
        )
        self.scheduler_lag = Histogram(
            "onyxlog_peer_group_scheduler_lag_seconds",
            "From the writer's clock in an entry until it was applied here; clocks may differ.",
            buckets=SECONDS,
            registry=registry,
        )
        self.write_origin = Histogram(
            "onyxlog_zookeeper_write_origin_duration_seconds",
            "Storing an origin and truncating the log.",
            buckets=SECONDS,
            registry=registry,
        )
        self.origin_refused = Counter(
            "onyxlog_zookeeper_write_origin_refused",
            "Origins not stored: there was one as new, or no server took it.",
            registry=registry,
        )
        self.restarts = Counter(
            "onyxlog_peer_group_restarts",
            "Groups begun again under a new id, by cause.",
            ["cause"],
            registry=registry,
        )
        self.peer_restarts = Counter(
            "onyxlog_virtual_peer_restarts", "Virtual peers begun again under a new id.", registry=registry
        )
        self.jumps = Counter(
            "onyxlog_replica_jumps", "Entries were truncated before they were read here.", registry=registry
        )
        self.join_seconds = Histogram(
            "onyxlog_group_join_duration_seconds",
            "From opening the log until the group was a member.",
            buckets=SECONDS,
            registry=registry,
        )
        self.replica_version = Gauge(
            "onyxlog_replica_version", "Position of the last entry applied.", ["group"], registry=registry
        )
        self.groups = Gauge(
            "onyxlog_replica_groups", "Groups that have joined, as this peer knows.", registry=registry
        )
        self.peers = Gauge(
            "onyxlog_peer_group_peers_count",
            "Virtual peers of all groups, as this peer knows.",
            registry=registry,
        )
        self.allocated = Gauge(
            "onyxlog_peer_group_allocated_peers_count",
            "Virtual peers with a task, as this peer knows.",
            registry=registry,
        )
        self.jobs = Gauge("onyxlog_replica_jobs", "Jobs submitted and not over.", registry=registry)
        self.unseen = Gauge(
            "onyxlog_outbox_entries",
            "Entries written here and not yet read back.",
            ["group"],
            registry=registry,
        )

    def forget(self, group: str) -> None:
        """An incarnation is over; its series end."""
        for gauge in (self.replica_version, self.unseen):
            if (group,) in gauge._metrics:
                gauge.remove(group)


def kind_of(command: Command) -> str:
    """As the entry is called in Onyx' log: "submit-job"."""
    name = type(command).__name__
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")
