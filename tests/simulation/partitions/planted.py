"""Bugs planted into servers' partitions, each of which the simulation must notice: the test of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve

from tests.simulation.planted_registry import Patch, Plants
from zraft.groups.replica import HostedReplica
from zraft.raft.messages import Entry
from zraft.raft.role import Role
from zraft.server.partitions.delivery_tail import DeliveryTail
from zraft.server.partitions.hosted_partition import HostedPartition
from zraft.server.partitions.machine import AppliedEntry, PartitionMachine
from zraft.server.partitions.partitions import Partitions
from zraft.server.partitions.topic_requests import TopicRequests
from zraft.storage.delivery.values import StoredDelivery
from zraft.topics.entries import BirthEntry, decode_entry
from zraft_core.ids import GroupId, ServerId

PLANTS: Final = Plants[None]()
plant = PLANTS.plant
planted = PLANTS.planted


@plant("D-13", "the log goes, and snapshots count, before the deliveries under them are durable")
def cut_before_durable() -> Sequence[Patch]:
    return [(HostedPartition, "cut_index", lambda self, applied_index: applied_index)]


@plant("D-13", "deliveries are forgotten in memory before they are on the disk")
def unwritten_forgotten() -> Sequence[Patch]:
    original = DeliveryTail.shrink

    def shrink(self: DeliveryTail, size_max: int) -> None:
        self.written = self.end
        original(self, size_max)

    return [(DeliveryTail, "shrink", shrink)]


@plant("D-13", "what is delivered again after a start has another wall time than before")
def wall_time_of_apply() -> Sequence[Patch]:
    original = PartitionMachine._apply_batch
    count = [0]

    def apply(self: PartitionMachine, partition: Any, claims: Any, entry: Entry, found: Any) -> AppliedEntry:
        applied = original(self, partition, claims, entry, found)
        count[0] += 1
        deliveries = tuple(
            StoredDelivery(d.offset, d.stamp, d.producer, d.number, d.payload, d.index, d.time + count[0])
            for d in applied.deliveries
        )
        return AppliedEntry(applied.index, applied.term, applied.applied, applied.answers, deliveries)

    return [(PartitionMachine, "_apply_batch", apply)]


@plant("D-18", "each new leader lets its partition be born again")
def born_again() -> Sequence[Patch]:
    original = PartitionMachine._apply
    follow = Partitions._follow

    def apply(self: PartitionMachine, entry: Entry) -> AppliedEntry:
        if isinstance(decode_entry(entry.payload), BirthEntry):
            self.partition = self.claims = None
        return original(self, entry)

    def lead(self: Partitions, hosted: HostedPartition, replica: HostedReplica) -> None:
        before = hosted.leadership
        follow(self, hosted, replica)
        if hosted.leadership is not None and hosted.leadership is not before and self._host is not None:
            partition, hosted.machine.partition = hosted.machine.partition, None
            self._give_birth(self._host, hosted, replica, 0)
            hosted.machine.partition = partition

    return [(PartitionMachine, "_apply", apply), (Partitions, "_follow", lead)]


@plant("D-9", "a leadership goes on when its server leads no more")
def leads_on() -> Sequence[Patch]:
    original = Partitions._follow

    def follow(self: Partitions, hosted: HostedPartition, replica: HostedReplica) -> None:
        raft = replica.raft
        if hosted.leadership is not None and raft.role is not Role.LEADER:
            for entry in hosted.take_applied(self._tasks):
                hosted.leadership.on_applied(entry)
            return
        original(self, hosted, replica)

    return [(Partitions, "_follow", follow)]


@plant("D-9", "a server that a group has left sends what is for it to the leader that it had")
def retired_replica_trusted() -> Sequence[Patch]:
    original = Partitions._leader_of

    def leader_of(self: Partitions, group: GroupId) -> ServerId | None:
        replica = self._replica(group)
        return original(self, group) if replica is None else replica.raft.leader

    return [(Partitions, "_leader_of", leader_of)]


@plant("D-17d", "a read that ends before the last delivery gives the frontier of the partition")
def frontier_of_the_end() -> Sequence[Patch]:
    original = HostedPartition.fetched

    def fetched(self: HostedPartition, offset: int, found: Any) -> Any:
        return evolve(original(self, offset, found), frontier=self.frontier())

    return [(HostedPartition, "fetched", fetched)]


@plant("D-17d", "nobody who waits learns that the frontier moved, and need is not passed on")
def need_ignored() -> Sequence[Patch]:
    return [(TopicRequests, "need", lambda self, group, time: None)]
