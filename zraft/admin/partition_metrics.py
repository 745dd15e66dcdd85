"""Metrics of single partitions of topics and of their consumers, which `/metrics` alone shows.

How many partitions and consumers have series of their own is bounded by `admin.partitions_max` and
`admin.consumers_max`; the others are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from zraft.admin.exposed import Number, Numbers
from zraft.groups.statistics import FollowerState
from zraft.server.operators.status import PartitionsStatus, PartitionStatus

LEADER_ONLY: Final = "Only the partition's leader knows it."

Samples = Iterable[tuple[tuple[str, ...], float]]


def _of_partitions(
    name: str, text: str, value: Callable[[PartitionStatus], float | None], *, note: str = ""
) -> Numbers[PartitionsStatus]:
    """Return a number of each partition of which it is known."""

    def values(status: PartitionsStatus) -> Samples:
        return [
            ((one.topic, str(one.number)), found)
            for one in status.partitions
            if (found := value(one)) is not None
        ]

    return Numbers(name, text, values, labels=("topic", "partition"), note=note)


def _of_replicas(
    name: str, text: str, value: Callable[[FollowerState], float | None]
) -> Numbers[PartitionsStatus]:
    """Return a number of each other replica of the partitions led here."""

    def values(status: PartitionsStatus) -> Samples:
        return [
            ((one.topic, str(one.number), str(replica.server)), found)
            for one in status.partitions
            for replica in one.state.followers
            if (found := value(replica)) is not None
        ]

    return Numbers(name, f"{text} {LEADER_ONLY}", values, labels=("topic", "partition", "server"))


_TOTAL: Final = (
    "It counts while the partition is led by this server, so that the sum over all servers is right."
)

PARTITIONS: Final[tuple[Number[PartitionsStatus] | Numbers[PartitionsStatus], ...]] = (
    _of_partitions(
        "zraft_partition_messages_total",
        "Messages delivered, each once however many records it has.",
        lambda one: one.state.delivered.messages,
        note=_TOTAL,
    ),
    _of_partitions(
        "zraft_partition_records_total",
        "Records delivered.",
        lambda one: one.state.delivered.records,
        note=_TOTAL,
    ),
    _of_partitions(
        "zraft_partition_bytes_total",
        "Bytes of the messages delivered, with their producer's ids and before compression by the server.",
        lambda one: one.state.delivered.bytes,
        note=_TOTAL,
    ),
    _of_partitions(
        "zraft_partition_leader_id",
        "Id of the server that leads the partition, as known here, 0 while none is known.",
        lambda one: one.state.leader or 0,
    ),
    _of_partitions(
        "zraft_partition_first_offset",
        "Offset of the oldest record that this replica keeps.",
        lambda one: one.state.first,
    ),
    _of_partitions(
        "zraft_partition_end_offset",
        "Offset behind the newest record of this replica.",
        lambda one: one.state.end,
    ),
    _of_partitions(
        "zraft_partition_stored_bytes",
        "Bytes of the partition's deliveries on this server's disk.",
        lambda one: one.state.stored_bytes,
    ),
    _of_partitions(
        "zraft_partition_oldest_age_seconds",
        "Age of the oldest delivery on this server's disk.",
        lambda one: None if one.oldest_age_ms is None else one.oldest_age_ms / 1000,
    ),
    _of_replicas(
        "zraft_partition_replica_lag_entries",
        "Entries of the leader's log that the replica is not known to have.",
        lambda replica: replica.behind,
    ),
    _of_replicas(
        "zraft_partition_replica_in_sync",
        "1 if the replica answers and has everything that is committed, or is sent the rest right now, else 0.",
        lambda replica: int(replica.in_sync),
    ),
    Number(
        "zraft_partition_series_left_out",
        "Partitions on this server that have no series, because of admin.partitions_max.",
        lambda status: status.partitions_left_out,
    ),
    Numbers(
        "zraft_consumer_lag_records",
        "Records of the topic, in the partitions led by this server, that the consumer has not consumed yet.",
        lambda status: [
            ((one.topic, one.name.decode(errors="backslashreplace")), one.lag) for one in status.consumers
        ],
        labels=("topic", "consumer"),
        note="The sum over all servers is the consumer's lag, without partitions in which it has not begun.",
    ),
    Number(
        "zraft_consumer_series_left_out",
        "Consumers of topics that have no series, because of admin.consumers_max.",
        lambda status: status.consumers_left_out,
    ),
)
