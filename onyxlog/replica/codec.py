"""Bytes of entries and of origins: MessagePack of canonical forms, with a version, and a check of what an origin holds.

Entry: [FORMAT, kind, fields of the command, author, cause, at_ms]. Origin: [FORMAT, replica, chain, digest]. Both
are the same bytes whoever writes them: the digest chain goes over those of entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from onyxlog.errors import EntryError
from onyxlog.replica import commands
from onyxlog.replica.canonical import pack
from onyxlog.replica.commands import Command, Record
from onyxlog.replica.digests import CHAIN_BYTES, digest
from onyxlog.replica.forms import read, wrong
from onyxlog.replica.replica import VERSION, Replica
from zraft_core.messagepack import shown, unpack

FORMAT: Final = 2
"""The format of entries and origins. A peer refuses another one: it would compute another replica than those
who wrote it.
"""

NAMES: Final[Mapping[str, type[Any]]] = {
    "prepare-join": commands.PrepareJoin,
    "notify-join": commands.NotifyJoin,
    "accept-join": commands.AcceptJoin,
    "abort-join": commands.AbortJoin,
    "join-direct": commands.JoinDirect,
    "group-leave": commands.GroupLeave,
    "add-virtual-peer": commands.AddVirtualPeer,
    "leave": commands.Leave,
    "submit-job": commands.SubmitJob,
    "kill-job": commands.KillJob,
    "complete-job": commands.CompleteJob,
    "exhaust-input": commands.ExhaustInput,
    "seal-output": commands.SealOutput,
    "signal-ready": commands.SignalReady,
    "backpressure-on": commands.BackpressureOn,
    "backpressure-off": commands.BackpressureOff,
    "gc": commands.Gc,
}
"""The names of kinds of entries in the log, for ever."""
_name_of: Final = {kind: name for name, kind in NAMES.items()}


@frozen
class _Envelope:
    format: int
    kind: str
    author: str
    cause: int | None
    at_ms: int


def name_of(command: Command) -> str:
    """Return the name of a command's kind, as `NAMES`, metrics and people have it."""
    return _name_of[type(command)]


def encode_record(record: Record) -> bytes:
    """Return a record as bytes."""
    command = record.command
    return pack((FORMAT, name_of(command), command, record.author, record.cause, record.at_ms))


def decode_record(data: bytes, where: str) -> Record:
    """Return the record in a znode; `where` names it for the message.

    Raises:
        EntryError: the bytes are no record.
    """
    found = _unpack(data, where)
    if type(found) is not tuple or len(found) != 6:
        raise wrong(where, "an entry: [format, kind, fields, author, cause, at_ms]", found)
    form, name, kind_fields, *others = found
    envelope = read(_Envelope, (form, name, *others), where)
    _check_format(envelope.format, where)
    kind = NAMES.get(envelope.kind)
    if kind is None:
        raise EntryError(
            f"{where}: found an entry of kind {envelope.kind!r}, which this version does not know; upgrade this peer"
        )
    command = read(kind, kind_fields, f"{where}: {envelope.kind}")
    return Record(command, envelope.author, envelope.cause, envelope.at_ms)


def encode_origin(replica: Replica, chain: bytes) -> bytes:
    """Return the replica as of its version, and the digest chain's value there.

    About 250 bytes per virtual peer with a task.
    """
    return pack((FORMAT, replica, chain, digest(replica)))


def decode_origin(data: bytes, where: str) -> tuple[Replica, bytes]:
    """Return the replica and the chain's value.

    Raises:
        EntryError: not an origin, or one of a log whose entries mean something else, or whose replica is not what its
            writer had.
    """
    found = _unpack(data, where)
    if type(found) is not tuple or len(found) != 4:
        raise wrong(where, "an origin: [format, replica, chain, digest]", found)
    _check_format(found[0], where)
    replica = read(Replica, found[1], f"{where}: replica")
    if replica.parameters.version != VERSION:
        raise EntryError(
            f"{where}: found a log of version {replica.parameters.version}, expected {VERSION}: its entries mean "
            "something else; run the version of this program that its peers run"
        )
    chain, written = read(bytes, found[2], f"{where}: chain"), read(bytes, found[3], f"{where}: digest")
    if len(chain) != CHAIN_BYTES:
        raise wrong(f"{where}: chain", f"{CHAIN_BYTES} bytes", chain)
    if written != digest(replica):
        raise EntryError(
            f"{where}: found a replica of digest {digest(replica).hex()}, expected {written.hex()} as its writer had; "
            "the origin is damaged, or its writer computes another replica: compare versions"
        )
    return replica, chain


def _unpack(data: bytes, where: str) -> Any:
    try:
        return unpack(data)
    except ValueError as error:
        raise EntryError(f"{where}: found {len(data)} bytes that are no MessagePack ({error})") from error


def _check_format(found: Any, where: str) -> None:
    if type(found) is not int or found != FORMAT:
        raise EntryError(
            f"{where}: found format {shown(found)}, expected {FORMAT}; all peers must run versions that know it"
        )
