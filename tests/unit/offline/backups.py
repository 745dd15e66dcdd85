"""Backups with topics for tests: made as `zraft snapshot save` makes them, of deliveries that are handed in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from tests.unit.offline.states import rich
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.offline.archive import SNAPSHOT, ArchiveWriter, PartitionWriter
from zraft.offline.manifest import Manifest, SavedPartition
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Member
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.delivery.values import StoredDelivery
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import RealFileSystem
from zraft.storage.snapshot_format import SnapshotHeader
from zraft.storage.snapshots import SnapshotStore
from zraft.topics.anew import KeptTopic
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine
from zraft_core.claims.anew import claims_anew
from zraft_core.claims.answers import ClaimsView
from zraft_core.claims.snapshot import encode_snapshot
from zraft_core.ids import COORDINATION_GROUP, GroupId, Instance, ProducerId, ServerId
from zraft_core.topics.codec import encode_message
from zraft_core.topics.message import Message
from zraft_core.topics.registry_values import Retention
from zraft_core.topics.stamps import MessageId

A, B, C = GroupId(0x1_0000_0002), GroupId(0x1_0000_0003), GroupId(0x1_0000_0007)
PRODUCER = ProducerId(0x1_0000_0009)
SAVED_MS = 1_800_000_000_000
TOPICS = (
    KeptTopic(0x1_0000_0001, "orders", 2, (A, B), Retention(1 << 30, None)),
    KeptTopic(0x1_0000_0006, "audit", 1, (C,), Retention()),
)


@frozen
class Kept:
    """What a test saves of a partition."""

    deliveries: Sequence[StoredDelivery] = ()
    first: int = 0
    offsets: Mapping[bytes, int] = {}
    views: Sequence[ClaimsView] = ()


def delivery(group: GroupId, offset: int, *, time: int = 0, payload: bytes = b"") -> StoredDelivery:
    """A message of one producer to that partition alone."""
    message = Message(
        MessageId(PRODUCER, offset + 1), (group,), payload or b"payload %d" % offset, number=offset + 1
    )
    stamp = (time or offset + 1, group, 0, 0)
    return StoredDelivery(offset, stamp, *message.mid, encode_message(message), 1, SAVED_MS)


def several(group: GroupId, count: int, first: int = 0) -> list[StoredDelivery]:
    return [delivery(group, offset) for offset in range(first, first + count)]


def snapshot_file(directory: Path, machine: Machine | None = None) -> bytes:
    """The bytes of a snapshot of group 0, as a server sends them."""
    machine = rich() if machine is None else machine
    fs = RealFileSystem()
    server, instance = ServerId(3), Instance(b"the old disk of3")
    held = DataDirectory.open(fs, str(directory), server=server, entropy=os.urandom)
    meta = SnapshotMeta(70, 3, 90, Membership({server: Member(instance)}).encode())
    store = SnapshotStore.open(fs, held, COORDINATION_GROUP)
    store.begin(
        SnapshotHeader(
            COORDINATION_GROUP,
            meta,
            b"the old cluster!",
            server,
            instance,
            b"i" * 16,
            machine.feature_level,
            SAVED_MS,
        )
    )
    writer = ImageWriter(machine)
    while piece := writer.step(1_000, 1 << 20):
        store.write(piece)
    info = store.finish(writer.items, writer.digest, writer.zxid)
    writer.close()
    held.close()
    return Path(info.path).read_bytes()


def saved(archive: ArchiveWriter, group: GroupId, kept: Kept) -> SavedPartition:
    writer = PartitionWriter(archive, group, kept.first)
    for one in kept.deliveries:
        writer.add(
            StoredDelivery(
                *(
                    one.offset,
                    one.stamp,
                    one.producer,
                    one.number,
                    one.payload,
                    writer.number,
                    one.time,
                    one.span,
                )
            )
        )
    return writer.finish(kept.offsets, encode_snapshot(claims_anew(kept.views, writer.end)))


def backup(
    path: Path,
    snapshot: bytes,
    partitions: Mapping[GroupId, Kept],
    *,
    topics: Iterable[KeptTopic] = TOPICS,
    time: int = 1_000,
) -> Manifest:
    """Write a backup of these partitions."""
    fs = RealFileSystem()
    file = fs.create(str(path))
    try:
        archive = ArchiveWriter(fs, file, str(path), SAVED_MS)
        digest = archive.member(SNAPSHOT, len(snapshot), (snapshot,))
        found = tuple(saved(archive, group, kept) for group, kept in partitions.items())
        manifest = Manifest(digest, time, SAVED_MS, FEATURE_LEVEL_MAX, tuple(topics), found)
        archive.finish(manifest)
    finally:
        fs.close(file)
    return manifest
