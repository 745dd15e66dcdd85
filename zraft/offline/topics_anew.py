"""The partitions with which a new cluster begins: for each of them deliveries, a snapshot, and what the log has to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from attrs import frozen

from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.offline.archive import ArchiveReader
from zraft.offline.errors import OfflineError
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Member
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.manifest import Manifest, store_manifest
from zraft.storage.delivery.recovery import directory_of
from zraft.storage.delivery.values import Mark, StoredDelivery, beginning
from zraft.storage.directory import DataDirectory
from zraft.storage.durable import make_directories
from zraft.storage.filesystem import FileSystem
from zraft.storage.snapshot_format import SNAPSHOT_ID_BYTES, SnapshotHeader
from zraft.storage.snapshots import WRITE_BYTES_MAX, SnapshotStore
from zraft.topics.anew import KeptPartition, KeptTopic, partition_anew, time_anew
from zraft.topics.group_image import encode_group_image
from zraft.topics.registry import Registry
from zraft_core.claims.state import Claims
from zraft_core.ids import GroupId

FIRST_TERM: Final = 1
"""The logs of partitions begin anew: nobody has anything of the old ones."""
UNKNOWN_STAMP: Final = (0, 0, 0, 0)
"""Stands for that of the last delivery that retention removed, which is not in a backup."""


@frozen
class PartitionToKeep:
    """A partition to begin with: where its deliveries begin, how many there are, and how far its consumers are."""

    group: GroupId
    first: int
    messages: int
    offsets: Mapping[bytes, int]
    claims: Claims


@frozen
class TopicsToKeep:
    """The topics with which a new cluster begins.

    Attributes:
        time: no delivery has a later one; the new cluster delivers far above it.
        features: the feature level that these topics need.
        read: returns the deliveries of a partition in parts, whose numbers, from 1, are the deliveries' indices.
    """

    time: int
    features: int
    topics: tuple[KeptTopic, ...]
    partitions: tuple[PartitionToKeep, ...]
    read: Callable[[GroupId], Iterator[Sequence[StoredDelivery]]]


def topics_of(archive: ArchiveReader) -> TopicsToKeep:
    """Return the topics of a backup, whose deliveries are checked as they are read.

    Raises:
        CorruptionError: claims cannot be read.
    """
    manifest = archive.manifest
    saved = {one.group: one for one in manifest.partitions}
    return TopicsToKeep(
        manifest.time,
        manifest.features,
        manifest.topics,
        tuple(
            PartitionToKeep(one.group, one.first, one.messages, dict(one.offsets), archive.claims(one))
            for one in manifest.partitions
        ),
        lambda group: archive.parts(saved[group]),
    )


@frozen
class PartitionFounder:
    """Maker of the partitions of a directory that is founded, with all that they have in common.

    Attributes:
        registry: that of the new cluster, which names the partitions.
        feature_level: of the new cluster's state.
    """

    fs: FileSystem
    directory: DataDirectory
    registry: Registry
    cluster: bytes
    feature_level: int
    wall_ms: int

    def write(
        self, topics: TopicsToKeep, on_progress: Callable[[int, int], None]
    ) -> dict[GroupId, SnapshotMeta]:
        """Write all partitions, durably, and return for each where its log begins.

        `on_progress` gets (messages written, messages in all).

        Raises:
            OfflineError: no time is left above that of the cut, or a newer release made the backup.
            StorageError: a file cannot be read or written, or is not what it should be.
        """
        if topics.features > FEATURE_LEVEL_MAX:
            raise OfflineError(
                f"these topics are of feature level {topics.features}, this release knows {FEATURE_LEVEL_MAX}: use a newer "
                "release"
            )
        time = time_anew(topics.time)
        if time is None:
            raise OfflineError(
                f"the topics end at time {topics.time}, and none is left that is far enough above it; begin without topics, "
                "and copy their records with a client"
            )
        of = sum(partition.messages for partition in topics.partitions)
        metas: dict[GroupId, SnapshotMeta] = {}
        done = 0
        disk = DeliveryDisk(self.fs, self.directory)
        try:
            for partition in topics.partitions:
                group, parts = partition.group, 0
                end = self._begin(disk, partition)
                for parts, part in enumerate(topics.read(group), 1):
                    disk.append(group, part, parts)
                    end = disk.log(group).end
                    done += len(part)
                    on_progress(done, of)
                disk.close(group)
                metas[group] = self._write_snapshot(partition, end, max(1, parts), time)
        finally:
            disk.close_all()
        return metas

    def _begin(self, disk: DeliveryDisk, partition: PartitionToKeep) -> Mark:
        """Open the partition's deliveries, empty, and beginning where those that were kept begin."""
        group, first = partition.group, partition.first
        if first:
            path = directory_of(self.directory.path, group)
            make_directories(self.fs, path)
            base = Mark(first, UNKNOWN_STAMP, beginning(group).chain, 0)
            store_manifest(self.fs, path, Manifest(group, base))
        log, _ = disk.open(group)
        return log.end

    def _write_snapshot(self, partition: PartitionToKeep, end: Mark, index: int, time: int) -> SnapshotMeta:
        group, directory, claims = partition.group, self.directory, partition.claims
        kept = KeptPartition(group, end.offset, end.chain, partition.offsets, claims.log_time_ms)
        image = encode_group_image(partition_anew(kept, self.registry, time), claims, end.stamp)
        membership = Membership({directory.server: Member(directory.instance)})
        meta = SnapshotMeta(index, FIRST_TERM, claims.position + 1, membership.encode())
        store = SnapshotStore.open(self.fs, directory, group)
        try:
            store.begin(
                SnapshotHeader(
                    group,
                    meta,
                    self.cluster,
                    directory.server,
                    directory.instance,
                    directory.entropy(SNAPSHOT_ID_BYTES),
                    self.feature_level,
                    self.wall_ms,
                )
            )
            for at in range(0, len(image), WRITE_BYTES_MAX):
                store.write(image[at : at + WRITE_BYTES_MAX])
            store.finish(1, int.from_bytes(blake2b(image, digest_size=16).digest()), 0)
        finally:
            store.close()
        return meta
