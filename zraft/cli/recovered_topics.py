"""The topics that the directory of a stopped server holds, as `zraft recover` goes on with them.

Each partition goes on with what its replica here has delivered, and with what it lacks of messages that other partitions
here have delivered. So a message to several partitions is at all of them that are here, or at none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from typing import Final

from attrs import Factory, define, evolve, frozen

from zraft.groups.recovery import open_stores
from zraft.offline.archive import PART_BYTES
from zraft.offline.errors import OfflineError
from zraft.offline.topics_anew import PartitionToKeep, TopicsToKeep
from zraft.server.partitions.machine import PartitionMachine, mark_of_image
from zraft.storage.delivery.inspection import read_group
from zraft.storage.delivery.manifest import NAME, load_manifest
from zraft.storage.delivery.recovery import directory_of, without_gone
from zraft.storage.delivery.values import Stamp, StoredDelivery
from zraft.storage.directory import DataDirectory
from zraft.storage.durable import names_if_there
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal
from zraft.topics.anew import KeptTopic
from zraft.topics.partition import Partition
from zraft.topics.registry import Registry
from zraft.tree.machine import Machine
from zraft_core.claims.anew import claims_anew
from zraft_core.claims.answers import ClaimsView
from zraft_core.ids import COORDINATION_GROUP, GroupId, Instance, ServerId
from zraft_core.topics.codec import decode_message
from zraft_core.topics.message import Condition
from zraft_core.topics.registry_values import Topic
from zraft_core.topics.stamps import MessageId

READ_BYTES: Final = 4 << 20
_BEFORE_ALL: Final = (-1, -1, -1, -1)


@define(eq=False)
class _Replica:
    """The replica of a partition in this directory.

    Attributes:
        first, disk_end: the offsets that its segments hold.
        tail: what was delivered since, and only its log holds.
        last: the stamp of the last delivery.
        lacking: by stamp, the messages that other partitions here have delivered and this one has not.
        sources: the partitions that have them, and from which offset on.
        conditions: those of these messages that count here.
        messages: how many it has delivered that are still there.
    """

    partition: Partition
    views: tuple[ClaimsView, ...]
    first: int
    disk_end: int
    tail: list[StoredDelivery]
    last: Stamp
    lacking: dict[Stamp, MessageId] = Factory(dict)
    spans: int = 0
    sources: dict[GroupId, int] = Factory(dict)
    conditions: list[tuple[Stamp, Condition]] = Factory(list)
    messages: int = 0

    @property
    def end(self) -> int:
        return self.partition.next_offset + self.spans

    def lacks(self, one: StoredDelivery, source: GroupId) -> None:
        """Take note of a message of another partition that was delivered to this one, too, but not here."""
        if one.stamp in self.lacking:
            return
        message = decode_message(one.payload)
        self.lacking[one.stamp] = message.mid
        self.spans += one.span
        self.sources.setdefault(source, one.offset)
        condition = message.condition
        if condition is not None and condition.home == self.partition.group:
            self.conditions.append((one.stamp, condition))

    def offsets(self) -> dict[bytes, int]:
        """Return how far consumers are, with the steps of messages that stay, and without those of messages that go."""
        offsets = dict(self.partition.offsets)
        stay = {*self.lacking.values()}
        pending = sorted(self.partition.pending.entries.values(), key=lambda entry: entry.time, reverse=True)
        for entry in pending:
            step = entry.message.condition
            if step is None or step.home != self.partition.group or entry.void or entry.mid in stay:
                continue
            if offsets.get(step.consumer) == step.following:
                offsets[step.consumer] = step.expected
        for _, step in sorted(self.conditions, key=lambda one: one[0]):
            if offsets.get(step.consumer, 0) == step.expected:
                offsets[step.consumer] = step.following
        return {name: min(offset, self.end) for name, offset in offsets.items()}


@frozen
class RecoveredTopics:
    """Topics that are kept, and a line for people about each partition."""

    topics: TopicsToKeep
    lines: tuple[str, ...]


def recovered_topics(
    fs: FileSystem,
    directory: DataDirectory,
    machine: Machine,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> RecoveredTopics | None:
    """Return the topics of the state and what the directory has of them; None if there are none. Changes nothing.

    `machine` is the coordination group's state at the end of its log. `on_progress` gets (partitions read, partitions).

    Raises:
        StorageError: files of a partition are damaged or missing.
        OfflineError: a partition had stopped.
        ProtocolError: a newer release wrote them.
    """
    registry = machine.registry
    if not registry.topics:
        return None
    groups = [group for topic in registry.topics.values() for group in (*topic.partitions, *topic.adding)]
    reading = _Reading(fs, directory, groups)
    replicas = reading.replicas(on_progress)
    reading.compare(replicas)
    topics = tuple(_kept(topic, replicas) for topic in registry.topics.values())
    kept = [group for topic in topics for group in topic.partitions]
    times = [0]
    for replica in replicas.values():
        times += (
            replica.partition.clock,
            replica.partition.floor.time,
            replica.last[0],
            *(s[0] for s in replica.lacking),
        )
    return RecoveredTopics(
        TopicsToKeep(
            max(times),
            machine.feature_level,
            topics,
            tuple(_partition(group, replicas.get(group)) for group in kept),
            partial(reading.parts, replicas),
        ),
        tuple(_lines(topics, registry, replicas, (directory.server, directory.instance))),
    )


def _kept(topic: Topic, replicas: Mapping[GroupId, _Replica]) -> KeptTopic:
    """Return a topic with the partitions that it has; one is added once it has delivered the change that adds it."""
    added = []
    for group in topic.adding:
        replica = replicas.get(group)
        if topic.change is not None if replica is None else replica.end:
            added.append(group)
    return KeptTopic(topic.topic, topic.name, topic.wanted, (*topic.partitions, *added), topic.retention)


def _partition(group: GroupId, replica: _Replica | None) -> PartitionToKeep:
    if replica is None:
        return PartitionToKeep(group, 0, 0, {}, claims_anew((), 0))
    return PartitionToKeep(
        group,
        replica.first,
        replica.messages + len(replica.lacking),
        replica.offsets(),
        claims_anew(replica.views, replica.end),
    )


def _lines(
    topics: Iterable[KeptTopic],
    registry: Registry,
    replicas: Mapping[GroupId, _Replica],
    disk: tuple[ServerId, Instance],
) -> Iterator[str]:
    for topic in topics:
        for number, group in enumerate(topic.partitions):
            replica = replicas.get(group)
            if replica is None:
                yield f"{topic.name}/{number}: HAS NO REPLICA HERE, begins empty at offset 0"
                continue
            line = f"{topic.name}/{number}: offsets {replica.first} to {replica.end}"
            if disk not in registry.groups[group].holders:
                line += "; THIS DISK HAD LEFT the partition, so that newer records are missing"
            if replica.lacking:
                line += (
                    f"; {len(replica.lacking)} of the messages were delivered only at other partitions here"
                )
            if len(replica.partition.pending):
                line += f"; {len(replica.partition.pending)} messages were under way"
            yield line
    deleting = len(registry.deleting)
    if deleting:
        yield f"{deleting} partitions of deleted topics go"


class _Reading:
    """Reading of partitions' files, none of which is changed."""

    def __init__(self, fs: FileSystem, directory: DataDirectory, groups: Sequence[GroupId]) -> None:
        self._fs = fs
        self._directory = directory
        self._path = directory.path
        self._groups = groups

    def replicas(self, on_progress: Callable[[int, int], None]) -> dict[GroupId, _Replica]:
        """Return those of the partitions that are here, each at the end of its log, committed or not."""
        coordination = SnapshotStore.open(self._fs, self._directory, COORDINATION_GROUP)
        stores = {COORDINATION_GROUP: coordination, **open_stores(self._fs, self._directory)}
        newest = {group: store.newest for group, store in stores.items() if store.newest is not None}
        wal, recovered = Wal.open(
            self._fs,
            self._directory,
            snapshots={group: info.meta for group, info in newest.items()},
            read_only=True,
        )
        found: dict[GroupId, _Replica] = {}
        try:
            for at, group in enumerate(self._groups):
                log, info = recovered.groups.get(group), newest.get(group)
                last = log.last_index if log is not None else info.meta.index if info is not None else 0
                image = b"".join(stores[group].blocks(info)) if info is not None else b""
                replica = self._replica(wal, group, info, image, last)
                if replica is not None:
                    found[group] = replica
                on_progress(at + 1, len(self._groups))
        finally:
            wal.close()
            for store in stores.values():
                store.close()
        return found

    def _replica(
        self, wal: Wal, group: GroupId, info: SnapshotInfo | None, image: bytes, last: int
    ) -> _Replica | None:
        machine = PartitionMachine(group)
        index, stamp = 0, None
        if info is not None:
            machine.prepare_restore(image)()
            index, stamp = info.meta.index, mark_of_image(group, image, 0).stamp
        first, disk_end = self._bounds(group)
        tail: list[StoredDelivery] = []
        while index < last:
            for entry in wal.read_entries(group, index + 1, last + 1, READ_BYTES):
                machine.apply(entry)
                index = entry.index
            for applied in machine.take_fresh():
                for one in applied.deliveries:
                    stamp = one.stamp
                    if one.offset >= disk_end:
                        tail.append(one)
            if machine.error:
                raise OfflineError(
                    f"a partition had stopped: {machine.error}; begin without topics (--no-topics)"
                )
        partition, claims = machine.partition, machine.claims
        if partition is None or claims is None:
            return None
        if (tail[0].offset if tail else machine.next_offset) != disk_end:
            raise CorruptionError(
                directory_of(self._path, group),
                0,
                f"deliveries end at {disk_end}, and the log of group {group} does not go on there",
                advice="begin without topics (--no-topics)",
            )
        views = tuple(claims.view(one.name) for one in claims.groups())
        return _Replica(partition, views, first, disk_end, tail, _BEFORE_ALL if stamp is None else stamp)

    def _bounds(self, group: GroupId) -> tuple[int, int]:
        """Return the offsets that a partition's segments hold."""
        path = directory_of(self._path, group)
        names = set(names_if_there(self._fs, path))
        if NAME not in names:
            return 0, 0
        manifest = without_gone(load_manifest(self._fs, path, group), names)
        end = manifest.end.offset
        for placed in read_group(self._fs, self._path, group, first=max(0, end - 1)):
            end = max(end, placed.delivery.end)
        return manifest.base.offset, end

    def compare(self, replicas: Mapping[GroupId, _Replica]) -> None:
        """Find the messages that some of the partitions have delivered and others, to which they went, have not."""
        for group, replica in replicas.items():
            others = [other.last for number, other in replicas.items() if number != group]
            lowest = min(others, default=replica.last)
            for one in self._deliveries(group, replica, 0):
                replica.messages += 1
                if one.stamp <= lowest:
                    continue
                for to in decode_message(one.payload).destinations:
                    other = replicas.get(to)
                    if other is not None and one.stamp > other.last:
                        other.lacks(one, group)

    def _deliveries(self, group: GroupId, replica: _Replica, first: int) -> Iterator[StoredDelivery]:
        if replica.disk_end > first:
            for placed in read_group(self._fs, self._path, group, first=first):
                yield placed.delivery
        for one in replica.tail:
            if one.offset >= first:
                yield one

    def parts(
        self, replicas: Mapping[GroupId, _Replica], group: GroupId
    ) -> Iterator[Sequence[StoredDelivery]]:
        """Yield all that a partition begins with, in parts."""
        replica = replicas.get(group)
        if replica is None:
            return
        part: list[StoredDelivery] = []
        number, size, offset = 1, 0, replica.first
        for one in self._all(replicas, group, replica):
            part.append(evolve(one, offset=offset, index=number))
            offset += one.span
            size += len(one.payload)
            if size >= PART_BYTES:
                yield part
                part, size, number = [], 0, number + 1
        if part:
            yield part

    def _all(
        self, replicas: Mapping[GroupId, _Replica], group: GroupId, replica: _Replica
    ) -> Iterator[StoredDelivery]:
        yield from self._deliveries(group, replica, replica.first)
        sources = [
            self._lacking(source, replicas[source], first, group, replica)
            for source, first in replica.sources.items()
        ]
        last = replica.last
        for one in merge(*sources, key=lambda one: one.stamp):
            if one.stamp > last:
                last = one.stamp
                yield one

    def _lacking(
        self, source: GroupId, replica: _Replica, first: int, group: GroupId, lacking: _Replica
    ) -> Iterator[StoredDelivery]:
        for one in self._deliveries(source, replica, first):
            if one.stamp in lacking.lacking and group in decode_message(one.payload).destinations:
                yield one
