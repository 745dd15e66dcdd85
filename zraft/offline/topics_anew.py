"""The partitions with which a new cluster begins: for each of them deliveries, a snapshot, and what the log has to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final

from attrs import frozen

from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.offline.errors import OfflineError
from zraft.offline.manifest import Manifest, SavedPartition
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Member
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.manifest import Manifest as SegmentManifest
from zraft.storage.delivery.manifest import store_manifest
from zraft.storage.delivery.recovery import directory_of
from zraft.storage.delivery.values import Mark, StoredDelivery, beginning
from zraft.storage.directory import DataDirectory
from zraft.storage.durable import make_directories
from zraft.storage.filesystem import FileSystem
from zraft.storage.snapshot_format import SNAPSHOT_ID_BYTES, SnapshotHeader
from zraft.storage.snapshots import WRITE_BYTES_MAX, SnapshotStore
from zraft.topics.anew import KeptPartition, partition_anew, time_anew
from zraft.topics.group_image import encode_group_image
from zraft.topics.registry import Registry
from zraft_core.claims.snapshot import decode_snapshot
from zraft_core.claims.state import Claims
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId

FIRST_TERM: Final = 1
"""The logs of partitions begin anew: nobody has anything of the old ones."""
UNKNOWN_STAMP: Final = (0, 0, 0, 0)
"""Stands for that of the last delivery that retention removed, which is not in a backup."""


@frozen
class TopicsToKeep:
    """The topics of a backup.

    Attributes:
        manifest: what there is.
        read: returns the deliveries of a partition in parts, and checks them.
    """

    manifest: Manifest
    read: Callable[[SavedPartition], Iterator[Sequence[StoredDelivery]]]


@frozen
class PartitionFounder:
    """What all partitions of a directory that is founded have in common.

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
        manifest = topics.manifest
        if manifest.features > FEATURE_LEVEL_MAX:
            raise OfflineError(
                f"the backup's topics are of feature level {manifest.features}, this release knows {FEATURE_LEVEL_MAX}: use a "
                "newer one"
            )
        time = time_anew(manifest.time)
        if time is None:
            raise OfflineError(
                f"the topics of the backup end at time {manifest.time}, and none is left that is far enough above it; save "
                "without topics (--no-topics), and copy their records with a client"
            )
        of = sum(partition.messages for partition in manifest.partitions)
        metas: dict[GroupId, SnapshotMeta] = {}
        done = 0
        disk = DeliveryDisk(self.fs, self.directory)
        try:
            for partition in manifest.partitions:
                claims = _claims(partition)
                end = self._begin(disk, partition)
                for number, part in enumerate(topics.read(partition), 1):
                    disk.append(partition.group, part, number)
                    end = disk.log(partition.group).end
                    done += len(part)
                    on_progress(done, of)
                disk.close(partition.group)
                metas[partition.group] = self._write_snapshot(partition, claims, end, time)
        finally:
            disk.close_all()
        return metas

    def _begin(self, disk: DeliveryDisk, partition: SavedPartition) -> Mark:
        """Open the partition's deliveries, empty, and beginning where those that were kept begin."""
        group, first = partition.group, partition.first
        if first:
            path = directory_of(self.directory.path, group)
            make_directories(self.fs, path)
            base = Mark(first, UNKNOWN_STAMP, beginning(group).chain, 0)
            store_manifest(self.fs, path, SegmentManifest(group, base))
        log, _ = disk.open(group)
        return log.end

    def _write_snapshot(
        self, partition: SavedPartition, claims: Claims, end: Mark, time: int
    ) -> SnapshotMeta:
        group, directory = partition.group, self.directory
        kept = KeptPartition(group, end.offset, end.chain, dict(partition.offsets), claims.log_time_ms)
        image = encode_group_image(partition_anew(kept, self.registry, time), claims, end.stamp)
        membership = Membership({directory.server: Member(directory.instance)})
        meta = SnapshotMeta(max(1, partition.parts), FIRST_TERM, claims.position + 1, membership.encode())
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


def _claims(partition: SavedPartition) -> Claims:
    try:
        return decode_snapshot(partition.claims)
    except ProtocolError as error:
        raise OfflineError(
            f"the backup's claims of group {partition.group} cannot be read: {error}"
        ) from error
