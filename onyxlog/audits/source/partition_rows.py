"""Rows of `multicast` and `claims` from entries of partitions' groups, as tuples in column order. Pure.

An entry of a partition holds a batch of topics' commands and, behind it, commands about claims; its first one
creates it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

from attrs import fields as fields_of

from onyxlog.audits.source.entry_rows import DIGEST_BYTES
from onyxlog.audits.tables.claims import CLAIMS
from onyxlog.audits.tables.multicast import MULTICAST
from zraft.storage.records import EntryFields
from zraft.topics.chain import message_digest
from zraft.topics.entries import BirthEntry, decode_entry
from zraft_core.claims import commands as claims
from zraft_core.topics import commands as topics
from zraft_core.topics.codec import encode_message
from zraft_core.topics.message import Message

_HEAD_COLUMNS: Final = 4


def multicast_values(
    head: tuple[Any, ...], fields: EntryFields, *, standing: str
) -> Iterator[tuple[Any, ...]]:
    """Return the rows of `multicast` of one entry; `head`: server, instance, file and offset."""
    _, group, index, term, _, position, _, payload = fields
    entry = decode_entry(payload)
    if isinstance(entry, BirthEntry):
        return
    for at, command in enumerate(entry.batch.commands, position):
        said = _topic_fields(command)
        yield (
            *(*head, group, index, term, at, standing, entry.batch.log_time_ms),
            *(said.get(name) for name in _MULTICAST),
        )


def claim_values(head: tuple[Any, ...], fields: EntryFields, *, standing: str) -> Iterator[tuple[Any, ...]]:
    """Return the rows of `claims` of one entry; a creation is shown as its equivalent `configure`."""
    _, group, index, term, _, position, _, payload = fields
    entry = decode_entry(payload)
    found: Sequence[claims.ClaimCommand]
    if isinstance(entry, BirthEntry):
        first, log_time_ms, found = position, entry.log_time_ms, (claims.Configure(entry.heartbeat_ms),)
    else:
        first, log_time_ms = position + len(entry.batch.commands), entry.batch.log_time_ms
        found = entry.claims
    for at, command in enumerate(found, first):
        said = _claim_fields(command)
        yield (
            *(*head, group, index, term, at, standing, log_time_ms),
            *(said.get(name) for name in _CLAIMS),
        )


_MULTICAST: Final = tuple(column.name for column in MULTICAST.columns)[_HEAD_COLUMNS + 6 :]
_CLAIMS: Final = tuple(column.name for column in CLAIMS.columns)[_HEAD_COLUMNS + 6 :]
_CLAIM_KINDS: Final = {
    claims.ClaimPartition: "claim_partition",
    claims.ClaimMessages: "claim_messages",
    claims.Heartbeat: "heartbeat",
    claims.Commit: "commit",
    claims.CommitRanges: "commit_ranges",
    claims.CommitBatch: "commit_batch",
    claims.Release: "release",
    claims.Expire: "expire",
    claims.Pause: "pause",
    claims.Forget: "forget",
    claims.Configure: "configure",
}


def _claim_fields(command: claims.ClaimCommand) -> dict[str, Any]:
    said = {field.name: getattr(command, field.name) for field in fields_of(type(command))}
    if "group" in said:
        said["consumer_group"] = said.pop("group")
    if "instance" in said:
        said["process"] = said.pop("instance")
    if "mode" in said:
        said["mode"] = int(said["mode"])
    if "ranges" in said:
        said["ranges"] = tuple(end for pair in said["ranges"] for end in pair)
    return {"kind": _CLAIM_KINDS[type(command)], **said}


def _topic_fields(command: topics.PartitionCommand) -> dict[str, Any]:
    match command:
        case topics.Start(message, floor, epoch):
            return {"kind": "start", "floor": floor, "epoch": epoch, **_message_fields(message)}
        case topics.Stage(message, floor, epoch):
            return {"kind": "stage", "floor": floor, "epoch": epoch, **_message_fields(message)}
        case topics.Remote(mid, sender, time, void, floor, digest, carried):
            return {
                "kind": "remote",
                **(_message_fields(carried) if carried is not None else {}),
                "producer": mid.producer,
                "number": mid.seq,
                "sender": sender,
                "time": time,
                "void": void,
                "floor": floor,
                "digest": digest,
            }
        case topics.Advance(time):
            return {"kind": "advance", "time": time}
        case topics.Settled(group, final):
            return {"kind": "settled", "sender": group, "time": final.time, "time_group": final.group}
        case topics.ViewChanged(view):
            return {"kind": "view_changed", "view_position": view.position, "epoch": view.epoch}
        case topics.Seek(consumer, offset):
            return {"kind": "seek", "consumer": consumer.decode(errors="replace"), "offset": offset}
        case topics.Attest(mid, sender, epoch, _, void):
            return {
                "kind": "testify",
                "producer": mid.producer,
                "number": mid.seq,
                "sender": sender,
                "epoch": epoch,
                "void": void,
            }


def _message_fields(message: Message) -> dict[str, Any]:
    after, round_ = message.after, message.round
    return {
        "producer": message.mid.producer,
        "number": message.mid.seq,
        "destinations": message.destinations,
        "digest": message_digest(message),
        "payload_digest": blake2b(encode_message(message), digest_size=DIGEST_BYTES).digest(),
        "single_number": message.number,
        "after_producer": None if after is None else after.mid.producer,
        "after_number": None if after is None else after.mid.seq,
        "depends": message.depends,
        "round_first": None if round_ is None else round_.first,
        "round_upto": None if round_ is None else round_.upto,
    }
