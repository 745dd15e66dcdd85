"""One peer message as bytes: a MessagePack array `[kind, field, ...]`. Pure.

The layouts are written down in docs/PROTOCOL-PEERS.md, "Messages". Decoding trusts nothing: whatever the
bytes are, the answer is a well-typed message or a `ProtocolError`. That a message makes sense (its term,
its place in the log) is for Raft to judge; that it is *well-formed* is judged here, so that the assertions
of the inner layers can never be tripped by a peer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

import msgpack
from attrs import fields, frozen

from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from zraft.transport.messages import (
    Bundle,
    DeliveryList,
    DeliveryListRequest,
    DeliveryPiece,
    DeliveryRequest,
    Edge,
    GroupDigests,
    GroupLeader,
    GroupVerdict,
    Hello,
    Join,
    MemberReport,
    NotMember,
    OriginBatch,
    PeerMessage,
    SharedHeartbeat,
    SharedHeartbeatReply,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotRequest,
    TouchAck,
    TouchReport,
    Verdict,
    Welcome,
)
from zraft_core.errors import ProtocolError
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN, GroupId, Instance, ServerId

NUMBER_MAX: Final = 2**63 - 1
"""Largest index, position, group, boot or count: what fits a signed 64-bit field everywhere else."""

TERM_MAX: Final = 2**31 - 1
"""Largest term: `term << 32` must stay a positive signed 64-bit zxid (D-15)."""

SESSION_MIN: Final = -(2**63)
SESSION_MAX: Final = 2**64 - 1
"""Session ids have the server id as top byte; both the signed and the unsigned reading of them are taken."""

CLUSTER_ID_BYTES_MAX: Final = 64
"""A cluster id is a short random name; the bound only keeps nonsense out of the directory's `meta`."""

ADDRESS_BYTES_MAX: Final = 300
"""A "HOST:PORT": the longest DNS name has 253 characters, and an IPv6 address with a zone is far shorter."""

MEMBERSHIP_BYTES_MAX: Final = 128 * 1024
"""A configuration: 254 members with the longest addresses take less."""

SNAPSHOT_ID_BYTES: Final = 16

SNAPSHOT_CHUNK_BYTES_MAX: Final = 1024 * 1024
"""The most that one `SnapshotRequest` asks for: well below the bound of one message, and soon sealed."""

COVER_ITEMS_MAX: Final = 256
"""Groups named in one shared heartbeat, or in its answer: four datagrams at most."""

BUNDLE_BYTES_MAX: Final = 4 * 1024 * 1024
"""As much as one message of a peer may have; a bundle of several messages has at most a megabyte."""

DIGEST_BYTES: Final = 16
DIGESTS_MAX: Final = 64
"""Digests in one report; members keep a few (D-26)."""

SEGMENT_ID_BYTES: Final = 8
"""Of a delivery segment."""

MANIFEST_BYTES_MAX: Final = 8 * 1024 * 1024
"""A list of delivery segments: 60,000 of them."""

_KINDS: Final = tuple(EntryKind)

Field = Callable[[Any, str], Any]
"""Checks one decoded field and gives its typed value; the name is for the error only."""


def _found(value: object) -> str:
    """What was found, short enough for a log line however large the value is."""
    if isinstance(value, bytes | str | tuple):
        return f"{type(value).__name__} of length {len(value)}"
    return f"{type(value).__name__} {value!r}"


def _integer(low: int, high: int) -> Field:
    def check(value: Any, name: str) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise ProtocolError(f"{name}: expected an integer from {low} to {high}, found {_found(value)}")

    return check


def _binary(length_min: int, length_max: int | None) -> Field:
    def check(value: Any, name: str) -> bytes:
        if (
            type(value) is bytes
            and length_min <= len(value)
            and (length_max is None or len(value) <= length_max)
        ):
            return value
        limit = "any number" if length_max is None else length_max
        raise ProtocolError(f"{name}: expected {length_min} to {limit} bytes, found {_found(value)}")

    return check


def _boolean(value: Any, name: str) -> bool:
    if type(value) is bool:
        return value
    raise ProtocolError(f"{name}: expected true or false, found {_found(value)}")


def _array(value: Any, name: str, length: int | None = None) -> tuple[Any, ...]:
    if type(value) is tuple and (length is None or len(value) == length):
        return value
    size = "" if length is None else f" of {length}"
    raise ProtocolError(f"{name}: expected an array{size}, found {_found(value)}")


_number: Final = _integer(0, NUMBER_MAX)
_from_one: Final = _integer(1, NUMBER_MAX)
_term: Final = _integer(0, TERM_MAX)
_session: Final = _integer(SESSION_MIN, SESSION_MAX)
_server: Final = _integer(SERVER_ID_MIN, SERVER_ID_MAX)
_instance: Final = _binary(INSTANCE_BYTES, INSTANCE_BYTES)
_blob: Final = _binary(0, None)
_cluster_id: Final = _binary(1, CLUSTER_ID_BYTES_MAX)
_cluster_or_none_yet: Final = _binary(0, CLUSTER_ID_BYTES_MAX)
_membership: Final = _binary(1, MEMBERSHIP_BYTES_MAX)
_snapshot_id: Final = _binary(SNAPSHOT_ID_BYTES, SNAPSHOT_ID_BYTES)
_chunk_length: Final = _integer(1, SNAPSHOT_CHUNK_BYTES_MAX)
_chunk: Final = _binary(0, SNAPSHOT_CHUNK_BYTES_MAX)
_bundle: Final = _binary(1, BUNDLE_BYTES_MAX)
_segment_id: Final = _binary(SEGMENT_ID_BYTES, SEGMENT_ID_BYTES)
_manifest: Final = _binary(1, MANIFEST_BYTES_MAX)
_digest: Final = _binary(DIGEST_BYTES, DIGEST_BYTES)


def _cluster(value: Any, name: str) -> bytes | None:
    return None if value is None else _cluster_id(value, name)


def _roster(value: Any, name: str) -> tuple[tuple[ServerId, Instance], ...] | None:
    if value is None:
        return None
    members = []
    for member in _array(value, name):
        server, instance = _array(member, f"{name} member", 2)
        members.append(
            (ServerId(_server(server, f"{name} server")), Instance(_instance(instance, f"{name} instance")))
        )
    if len({server for server, _ in members}) != len(members):
        raise ProtocolError(f"{name}: expected each server once, found {[server for server, _ in members]}")
    return tuple(members)


def _ages(value: Any, name: str) -> tuple[tuple[int, int], ...]:
    for pair in _array(value, name):
        session, age_ms = _array(pair, f"{name} pair", 2)
        _session(session, f"{name} session")
        _number(age_ms, f"{name} age in ms")
    return value  # type: ignore[no-any-return]


def _sessions(value: Any, name: str) -> tuple[int, ...]:
    for session in _array(value, name):
        _session(session, name)
    return value  # type: ignore[no-any-return]


def _address(value: Any, name: str) -> str:
    """Text travels as a binary: no message has MessagePack strings."""
    text: bytes = _binary(0, ADDRESS_BYTES_MAX)(value, name)
    if not all(0x21 <= byte <= 0x7E for byte in text):
        raise ProtocolError(f"{name}: expected HOST:PORT in visible ASCII, found {_found(value)}")
    return text.decode("ascii")


def _digests(value: Any, name: str) -> tuple[tuple[int, int], ...]:
    digests = []
    for pair in _array(value, name):
        index, digest = _array(pair, f"{name} pair", 2)
        _number(index, f"{name} index")
        digests.append((index, int.from_bytes(_digest(digest, f"{name} digest"))))
    if len(digests) > DIGESTS_MAX:
        raise ProtocolError(f"{name}: expected at most {DIGESTS_MAX}, found {len(digests)}")
    return tuple(digests)


def _group_digests(value: Any, name: str) -> tuple[tuple[GroupId, int, int], ...]:
    if len(_array(value, name)) > DIGESTS_MAX:
        raise ProtocolError(f"{name}: expected at most {DIGESTS_MAX}, found {len(value)}")
    digests = []
    for item in value:
        group, index, digest = _array(item, f"{name} item", 3)
        _from_one(group, f"{name} group")
        _number(index, f"{name} index")
        digests.append((GroupId(group), index, int.from_bytes(_digest(digest, f"{name} digest"))))
    return tuple(digests)


def _cover_items(value: Any, name: str) -> tuple[tuple[GroupId, int, int], ...]:
    if len(_array(value, name)) > COVER_ITEMS_MAX:
        raise ProtocolError(f"{name}: expected at most {COVER_ITEMS_MAX}, found {len(value)}")
    for item in value:
        group, term, index = _array(item, f"{name} item", 3)
        _from_one(group, f"{name} group")
        _term(term, f"{name} term")
        _number(index, f"{name} index")
    return value  # type: ignore[no-any-return]


def _groups(value: Any, name: str) -> tuple[GroupId, ...]:
    if len(_array(value, name)) > COVER_ITEMS_MAX:
        raise ProtocolError(f"{name}: expected at most {COVER_ITEMS_MAX}, found {len(value)}")
    for group in value:
        _from_one(group, name)
    return value  # type: ignore[no-any-return]


def _wire_entries(message: AppendEntries) -> tuple[tuple[int, int, int, int, bytes], ...]:
    """The entries without their indexes: those follow from `prev_log_index`, and so cannot contradict it."""
    assert message.entries, "an AppendEntries is never empty"
    first = message.prev_log_index + 1
    assert all(entry.index == first + at for at, entry in enumerate(message.entries)), (
        "entries are not consecutive"
    )
    return tuple(
        (entry.term, entry.kind, entry.position, entry.count, entry.payload) for entry in message.entries
    )


def _append_entries(array: tuple[Any, ...]) -> AppendEntries:
    """Rebuild the entries with their indexes, and check the rules that hold within one message.

    Terms never fall along a log and never exceed the leader's; positions are cumulative (D-16).
    """
    _, group, term, prev_log_index, prev_log_term, leader_commit, wire_entries = array
    _number(group, "AppendEntries.group")
    _term(term, "AppendEntries.term")
    _number(prev_log_index, "AppendEntries.prev_log_index")
    _term(prev_log_term, "AppendEntries.prev_log_term")
    _number(leader_commit, "AppendEntries.leader_commit")
    _array(wire_entries, "AppendEntries.entries")
    if not wire_entries:
        raise ProtocolError("AppendEntries.entries: expected at least one entry, found none")
    _number(prev_log_index + len(wire_entries), "AppendEntries.entries last index")
    entries = []
    index, last_term, next_position = prev_log_index, prev_log_term, None
    for wire_entry in wire_entries:
        entry_term, kind, position, count, payload = _array(wire_entry, "Entry", 5)
        index += 1
        if type(entry_term) is not int or not last_term <= entry_term <= term:
            raise ProtocolError(
                f"Entry.term at index {index}: expected {last_term} (the term before it) to {term} "
                f"(the leader's), found {_found(entry_term)}"
            )
        last_term = entry_term
        if type(kind) is not int or not 0 <= kind < len(_KINDS):
            raise ProtocolError(
                f"Entry.kind at index {index}: expected 0 to {len(_KINDS) - 1}, found {_found(kind)}"
            )
        _from_one(position, "Entry.position")
        if next_position is not None and position != next_position:
            raise ProtocolError(
                f"Entry.position at index {index}: expected {next_position}, found {position}"
            )
        _number(count, "Entry.count")
        if count and kind != EntryKind.COMMANDS:
            raise ProtocolError(f"Entry.count at index {index}: expected 0 for kind {kind}, found {count}")
        next_position = _number(position + count, "Entry.position + count")
        if type(payload) is not bytes:
            raise ProtocolError(f"Entry.payload at index {index}: expected bytes, found {_found(payload)}")
        entries.append(Entry(index, entry_term, _KINDS[kind], position, count, payload))
    return AppendEntries(group, term, prev_log_index, prev_log_term, leader_commit, tuple(entries))


@frozen
class _Shape:
    """How one class of message stands on the wire: its number, and a check for each field in order.

    `message` makes one from its fields.
    """

    kind: int
    name: str
    message: Callable[..., Any]
    checks: tuple[Field, ...]
    names: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]


def _shape(
    kind: int, message: type[Any], *checks: Field, values: Callable[[Any], tuple[Any, ...]] | None = None
) -> _Shape:
    names = tuple(field.name for field in fields(message))
    assert len(names) == len(checks), f"{message.__name__} has fields {names}, {len(checks)} checks"
    labels = tuple(f"{message.__name__}.{name}" for name in names)
    return _Shape(kind, message.__name__, message, checks, labels, values or attrgetter(*names))


def _join_values(message: Join) -> tuple[Any, ...]:
    return message.cluster, message.address.encode("ascii"), message.features


def _digest_values(digests: tuple[tuple[int, int], ...]) -> tuple[tuple[int, bytes], ...]:
    return tuple((index, digest.to_bytes(DIGEST_BYTES)) for index, digest in digests)


def _report_values(message: MemberReport) -> tuple[Any, ...]:
    return message.features, _digest_values(message.digests)


def _verdict_values(message: Verdict) -> tuple[Any, ...]:
    return (_digest_values(message.digests),)


def _group_digest_values(message: GroupDigests | GroupVerdict) -> tuple[Any, ...]:
    return (tuple((group, index, digest.to_bytes(DIGEST_BYTES)) for group, index, digest in message.digests),)


def _edge_values(message: Edge) -> tuple[Any, ...]:
    return (message.blob,)


# Numbers are never reused: a message that changes its meaning takes a new one. AppendEntries, the one shape
# with a rule between its fields, has its own functions above. A vote asked for by a transfer has a number of
# its own, so that the ordinary one stays what earlier releases understand.
_APPEND_ENTRIES: Final = 5
_APPEND_ENTRIES_FIELDS: Final = 7
_VOTE_FIELDS: Final = ("group", "term", "last_log_index", "last_log_term")
_VOTE_CHECKS: Final = (_number, _term, _number, _term)
_VOTE_LABELS: Final = tuple(f"RequestVote.{name}" for name in _VOTE_FIELDS)
_VOTE_VALUES: Final = attrgetter(*_VOTE_FIELDS)
_VOTE: Final = _Shape(3, "RequestVote", RequestVote, _VOTE_CHECKS, _VOTE_LABELS, _VOTE_VALUES)
_TRANSFER_VOTE: Final = _Shape(
    12, "RequestVote", partial(RequestVote, transfer=True), _VOTE_CHECKS, _VOTE_LABELS, _VOTE_VALUES
)
_SHAPES: Final = (
    _shape(1, PreVote, _number, _term, _number, _term),
    _shape(2, PreVoteReply, _number, _term, _boolean),
    _VOTE,
    _shape(4, RequestVoteReply, _number, _term, _boolean),
    _shape(6, AppendEntriesReply, _number, _term, _boolean, _number, _number, _number, _term),
    _shape(7, Heartbeat, _number, _term, _number, _number),
    _shape(8, HeartbeatReply, _number, _term, _number, _number),
    _shape(9, ReadIndex, _number, _term, _number),
    _shape(10, ReadIndexReply, _number, _term, _number, _number),
    _shape(11, TimeoutNow, _number, _term),
    _TRANSFER_VOTE,
    _shape(32, Hello, _cluster, _roster, _boolean),
    _shape(33, OriginBatch, _number, _number, _from_one, _number, _blob),
    _shape(34, TouchReport, _number, _number, _ages),
    _shape(35, TouchAck, _term, _number, _number, _sessions),
    _shape(36, Join, _cluster_or_none_yet, _address, _number, values=_join_values),
    _shape(37, Welcome, _cluster_id, _number, _membership),
    _shape(38, NotMember, _cluster_id, _number),
    _shape(39, SnapshotOffer, _number, _term, _number, _term, _snapshot_id, _number),
    _shape(40, SnapshotRequest, _number, _term, _snapshot_id, _number, _chunk_length),
    _shape(41, SnapshotChunk, _number, _term, _snapshot_id, _number, _chunk),
    _shape(42, MemberReport, _number, _digests, values=_report_values),
    _shape(43, Verdict, _digests, values=_verdict_values),
    _shape(48, SharedHeartbeat, _from_one, _from_one, _number, _cover_items),
    _shape(49, SharedHeartbeatReply, _number, _from_one, _groups),
    _shape(50, Bundle, _from_one, _bundle, _boolean),
    _shape(51, Edge, _bundle, values=_edge_values),
    _shape(52, GroupLeader, _from_one, _term, _server),
    _shape(53, DeliveryListRequest, _from_one, _snapshot_id),
    _shape(54, DeliveryList, _from_one, _snapshot_id, _manifest),
    _shape(55, DeliveryRequest, _from_one, _segment_id, _number, _chunk_length),
    _shape(56, DeliveryPiece, _from_one, _segment_id, _number, _chunk),
    _shape(57, GroupDigests, _group_digests, values=_group_digest_values),
    _shape(58, GroupVerdict, _group_digests, values=_group_digest_values),
)
_BY_KIND: Final = {shape.kind: shape for shape in _SHAPES}
_BY_CLASS: Final = {shape.message: shape for shape in _SHAPES if shape is not _TRANSFER_VOTE}


def encode(message: PeerMessage) -> bytes:
    """The bytes of one message. Payloads are copied by MessagePack only."""
    if type(message) is AppendEntries:
        return msgpack.packb(  # type: ignore[no-any-return]
            (
                _APPEND_ENTRIES,
                message.group,
                message.term,
                message.prev_log_index,
                message.prev_log_term,
                message.leader_commit,
                _wire_entries(message),
            )
        )
    shape = _BY_CLASS[type(message)]
    if shape is _VOTE and message.transfer:  # type: ignore[union-attr]
        shape = _TRANSFER_VOTE
    return msgpack.packb((shape.kind, *shape.values(message)))  # type: ignore[no-any-return]


def decode(buffer: bytes | memoryview) -> PeerMessage:
    """The message of exactly these bytes.

    Raises:
        ProtocolError: they are not one well-formed message; says which field, what was found and expected.
    """
    return from_array(unpack(buffer))


def decode_sequence(buffer: bytes | memoryview) -> tuple[list[PeerMessage], list[ProtocolError]]:
    """Decode a MessagePack array of messages, as it stands in a datagram.

    A message that is not understood (one of a newer release, say) costs itself only: its error is returned
    beside the messages that are.

    Raises:
        ProtocolError: the bytes are not one MessagePack array.
    """
    messages: list[PeerMessage] = []
    errors: list[ProtocolError] = []
    for array in _array(unpack(buffer), "datagram body"):
        try:
            messages.append(from_array(array))
        except ProtocolError as error:
            errors.append(error)
    return messages, errors


def encode_sequence(encoded: Sequence[bytes]) -> bytes:
    """Join encoded messages into the array that `decode_sequence` reads."""
    assert len(encoded) <= SEQUENCE_MAX
    return b"".join((b"\xdc", len(encoded).to_bytes(2), *encoded))


SEQUENCE_BYTES: Final = 3
"""What `encode_sequence` adds: the header of a MessagePack "array 16"."""

SEQUENCE_MAX: Final = 2**16 - 1


def unpack(buffer: bytes | memoryview) -> Any:
    """The MessagePack value of exactly these bytes, with arrays as tuples.

    Raises:
        ProtocolError: not one MessagePack value, or one with text, maps or extensions, which no peer uses.
    """
    try:
        return msgpack.unpackb(buffer, use_list=False, max_str_len=0, max_map_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(
            f"expected MessagePack integers, booleans, nil, binaries and arrays; "
            f"found {len(buffer)} other bytes: {type(error).__name__}: {error}"
        ) from error


def from_array(array: Any) -> PeerMessage:
    """The message of an unpacked array `(kind, field, ...)`.

    Raises:
        ProtocolError: the kind is unknown, or a field is missing, of another type or out of range.
    """
    if type(array) is not tuple or not array:
        raise ProtocolError(f"message: expected an array that starts with its kind, found {_found(array)}")
    kind = array[0]
    if kind == _APPEND_ENTRIES and type(kind) is int:
        _array(array, "AppendEntries", _APPEND_ENTRIES_FIELDS)
        return _append_entries(array)
    shape = _BY_KIND.get(kind) if type(kind) is int else None
    if shape is None:
        known = sorted([*_BY_KIND, _APPEND_ENTRIES])
        raise ProtocolError(f"message: expected one of the kinds {known}, found {_found(kind)}")
    checks, names = shape.checks, shape.names
    if len(array) != len(checks) + 1:
        raise ProtocolError(
            f"{shape.name}: expected {len(checks)} fields after the kind, found {len(array) - 1}"
        )
    values = [check(value, name) for check, value, name in zip(checks, array[1:], names, strict=True)]
    message: PeerMessage = shape.message(*values)
    return message
