"""The manifest of a backup with topics: what it holds of each partition, and the digests of its other members. Pure.

docs/explanation/storage.md, "Backups with topics".
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft.storage.sealed_map import OtherFormatError, SealError, seal, unseal
from zraft.topics.anew import KeptTopic
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId
from zraft_core.layout import Record, binary, from_one, listed, number, row, wrong
from zraft_core.topics import forms
from zraft_core.topics.message import DIGEST_BYTES

FORMAT: Final = 1
MANIFEST_BYTES_MAX: Final = 1 << 30
_TOPICS_MAX: Final = 1 << 20


@frozen
class SavedPartition:
    """One partition in a backup.

    Attributes:
        first, end: the offsets of the first record that was kept, and behind the last one below the cut.
        messages: how many messages these records came in.
        size: the bytes of these messages; `stored`: what they take in the file, compressed.
        parts: in how many members they are.
        digest: BLAKE2b-128 of these members, one after the other.
        chain: the chain of deliveries up to `end`, begun anew at `first`.
        offsets: how far the consumers are that store their offsets.
        claims: the snapshot of the claims with which a copy begins.
    """

    group: GroupId
    first: int
    end: int
    messages: int
    size: int
    stored: int
    parts: int
    digest: bytes
    chain: bytes
    offsets: tuple[tuple[bytes, int], ...]
    claims: bytes


@frozen
class Manifest:
    """All that a backup holds beside the snapshot of the coordination group.

    Attributes:
        snapshot: BLAKE2b-128 of that snapshot's file.
        time: the cut: every delivery up to that time is in it.
        saved_ms: when it was made, in milliseconds since 1970; records count as that old.
        features: the servers' feature level then.
    """

    snapshot: bytes
    time: int
    saved_ms: int
    features: int
    topics: tuple[KeptTopic, ...]
    partitions: tuple[SavedPartition, ...]


_TOPIC: Final = Record(
    KeptTopic, from_one, forms.topic_name, number, forms.ordered_groups, forms.retention
).form
_PARTITION: Final = Record(
    SavedPartition,
    *(forms.group, number, number, number, number, number, number),
    *(binary(DIGEST_BYTES, DIGEST_BYTES), binary(DIGEST_BYTES, DIGEST_BYTES)),
    *(listed(row(consumer=forms.consumer, offset=number), forms.LISTED_MAX), binary(1, MANIFEST_BYTES_MAX)),
).form
_MANIFEST: Final = Record(
    Manifest,
    *(binary(DIGEST_BYTES, DIGEST_BYTES), forms.asked_time, number, number),
    *(listed(_TOPIC, _TOPICS_MAX), listed(_PARTITION, _TOPICS_MAX)),
)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return one MessagePack map: `format` first, a checksum of all that precedes it last."""
    return seal(FORMAT, _MANIFEST.pack_map(manifest))


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest that these bytes are.

    Raises:
        ProtocolError: they are none, or contradict themselves.
    """
    try:
        manifest = _MANIFEST.unpack_map(unseal(data, FORMAT, _TOPICS_MAX), "manifest")
    except OtherFormatError as error:
        raise ProtocolError(f"a manifest of {error}; use the zraft of the release that wrote it") from error
    except SealError as error:
        raise ProtocolError(f"manifest: {error}") from error
    groups = [one.group for one in manifest.partitions]
    if sorted(groups) != sorted(group for topic in manifest.topics for group in topic.partitions):
        raise ProtocolError("manifest: its topics have other partitions than it holds")
    if len({*groups}) != len(groups) or len({topic.name for topic in manifest.topics}) != len(
        manifest.topics
    ):
        raise ProtocolError("manifest: a topic or a partition stands in it twice")
    for one in manifest.partitions:
        if one.first > one.end or any(offset > one.end for _, offset in one.offsets):
            raise wrong(f"manifest: group {one.group}", f"offsets up to its end {one.end}", one.offsets)
    return manifest
