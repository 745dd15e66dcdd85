"""One peer message as bytes: a MessagePack array `[kind, field, ...]`. Pure.

The layouts are written down in docs/reference/protocol-peers.md, "Messages". Decoding trusts nothing: whatever the
bytes are, the answer is a well-typed message or a `ProtocolError`. That a message makes sense (its term,
its place in the log) is for Raft to judge; that it is *well-formed* is judged here, so that the assertions
of the inner layers can never be tripped by a peer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgpack

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
from zraft_core.layout import (
    NUMBER_MAX,
    Form,
    Kinds,
    Record,
    array,
    big_integer,
    binary,
    boolean,
    from_bytes,
    from_one,
    integer,
    listed,
    number,
    optional,
    row,
    wrong,
)

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
"""The most bytes of a bundle: as much as one message of a peer may have; one of several messages has at most
a megabyte.
"""

DIGEST_BYTES: Final = 16
DIGESTS_MAX: Final = 64
"""Digests in one report; members keep a few (D-26)."""

SEGMENT_ID_BYTES: Final = 8
"""The length of a delivery segment's id."""

MANIFEST_BYTES_MAX: Final = 8 * 1024 * 1024
"""A list of delivery segments: 60,000 of them."""

ITEMS_MAX: Final = 2**22
"""The most items of one array: more than a message has bytes."""

_ENTRY_KINDS: Final = tuple(EntryKind)

_term: Final = integer(0, TERM_MAX)
_session: Final = integer(SESSION_MIN, SESSION_MAX)
_server: Final = integer(SERVER_ID_MIN, SERVER_ID_MAX)
_instance: Final = binary(INSTANCE_BYTES, INSTANCE_BYTES)
_blob: Final = binary(0, NUMBER_MAX)
_cluster_id: Final = binary(1, CLUSTER_ID_BYTES_MAX)
_snapshot_id: Final = binary(SNAPSHOT_ID_BYTES, SNAPSHOT_ID_BYTES)
_chunk_length: Final = integer(1, SNAPSHOT_CHUNK_BYTES_MAX)
_chunk: Final = binary(0, SNAPSHOT_CHUNK_BYTES_MAX)
_bundle: Final = binary(1, BUNDLE_BYTES_MAX)
_segment_id: Final = binary(SEGMENT_ID_BYTES, SEGMENT_ID_BYTES)
_digest: Final = big_integer(DIGEST_BYTES)
_digests: Final = listed(row(index=number, digest=_digest), DIGESTS_MAX)
_group_digests: Final = listed(row(group=from_one, index=number, digest=_digest), DIGESTS_MAX)
_members: Final = listed(row(server=_server, instance=_instance), SERVER_ID_MAX)
_address_bytes: Final = binary(0, ADDRESS_BYTES_MAX)


def _roster(value: Any, name: str) -> tuple[tuple[ServerId, Instance], ...]:
    members: tuple[tuple[ServerId, Instance], ...] = _members.unpack(value, name)
    servers = [server for server, _ in members]
    if len(set(servers)) != len(servers):
        raise ProtocolError(f"{name}: expected each server once, found {servers}")
    return members


def _address(value: Any, name: str) -> str:
    """Return a text that travels as a binary: no message has MessagePack strings."""
    text: bytes = _address_bytes.unpack(value, name)
    if not all(0x21 <= byte <= 0x7E for byte in text):
        raise wrong(name, "HOST:PORT in visible ASCII", value)
    return text.decode("ascii")


# -- entries


def _wire_entries(entries: tuple[Entry, ...]) -> list[tuple[int, int, int, int, bytes]]:
    """Return the entries without their indexes: those follow from `prev_log_index`, and so cannot contradict it."""
    return [(entry.term, entry.kind, entry.position, entry.count, entry.payload) for entry in entries]


_ENTRIES: Final = Form(
    listed(
        row(
            term=_term,
            kind=integer(0, len(_ENTRY_KINDS) - 1),
            position=from_one,
            count=number,
            payload=_blob,
        ),
        ITEMS_MAX,
        least=1,
    ).unpack,
    _wire_entries,
)


def _append_entries(
    group: GroupId,
    term: int,
    prev_log_index: int,
    prev_log_term: int,
    leader_commit: int,
    wire_entries: tuple[tuple[int, int, int, int, bytes], ...],
) -> AppendEntries:
    """Rebuild the entries with their indexes, and check the rules that hold within one message.

    Terms never fall along a log and never exceed the leader's; positions are cumulative (D-16).
    """
    number.unpack(prev_log_index + len(wire_entries), "AppendEntries.entries last index")
    entries = []
    index, last_term, next_position = prev_log_index, prev_log_term, None
    for entry_term, kind, position, count, payload in wire_entries:
        index += 1
        if not last_term <= entry_term <= term:
            raise wrong(
                f"Entry.term at index {index}",
                f"{last_term} (the term before it) to {term} (the leader's)",
                entry_term,
            )
        last_term = entry_term
        if next_position is not None and position != next_position:
            raise ProtocolError(
                f"Entry.position at index {index}: expected {next_position}, found {position}"
            )
        if count and kind != EntryKind.COMMANDS:
            raise ProtocolError(f"Entry.count at index {index}: expected 0 for kind {kind}, found {count}")
        next_position = number.unpack(position + count, "Entry.position + count")
        entries.append(Entry(index, entry_term, _ENTRY_KINDS[kind], position, count, payload))
    return AppendEntries(group, term, prev_log_index, prev_log_term, leader_commit, tuple(entries))


def _quick_append_entries(items: tuple[Any, ...]) -> AppendEntries | None:
    """Return the message, if it is well-formed: all the same checks as by its forms and rules, at once."""
    try:
        _, group, term, prev_log_index, prev_log_term, leader_commit, wire_entries = items
    except ValueError:
        return None
    if (
        type(group) is not int
        or type(term) is not int
        or type(prev_log_index) is not int
        or type(prev_log_term) is not int
        or type(leader_commit) is not int
        or type(wire_entries) is not tuple
        # Both bounds have all bits set: none of the numbers is negative, and none is above it.
        or not 0 <= group | prev_log_index | leader_commit <= NUMBER_MAX
        or not 0 <= term | prev_log_term <= TERM_MAX
        or not wire_entries
    ):
        return None
    entries = []
    index, last_term, next_position = prev_log_index, prev_log_term, 0
    for wire_entry in wire_entries:
        try:
            entry_term, kind, position, count, payload = wire_entry
        except (TypeError, ValueError):
            return None
        if (
            type(wire_entry) is not tuple
            or type(entry_term) is not int
            or type(kind) is not int
            or type(position) is not int
            or type(count) is not int
            or type(payload) is not bytes
            or not last_term <= entry_term <= term
            or not 0 <= kind <= _KIND_MAX
            or position < 1
            or (position != next_position and next_position)
            or count < 0
            or (count and kind != _COMMANDS)
            or position + count > NUMBER_MAX
        ):
            return None
        index += 1
        last_term = entry_term
        next_position = position + count
        entries.append(Entry(index, entry_term, _ENTRY_KINDS[kind], position, count, payload))
    if index > NUMBER_MAX or index - prev_log_index > ITEMS_MAX:
        return None
    return AppendEntries(items[1], term, prev_log_index, prev_log_term, leader_commit, tuple(entries))


def _quick_beat(
    made: Callable[[GroupId, int, int, int], Heartbeat | HeartbeatReply],
) -> Callable[[tuple[Any, ...]], Heartbeat | HeartbeatReply | None]:
    """Read a heartbeat, or its answer, if it is well-formed: all the same checks as by its forms, at once."""

    def read(items: tuple[Any, ...]) -> Heartbeat | HeartbeatReply | None:
        try:
            _, group, term, beat_round, index = items
        except ValueError:
            return None
        if (
            type(group) is not int
            or type(term) is not int
            or type(beat_round) is not int
            or type(index) is not int
            or not 0 <= group | beat_round | index <= NUMBER_MAX
            or not 0 <= term <= TERM_MAX
        ):
            return None
        return made(items[1], term, beat_round, index)

    return read


def _quick_append_entries_reply(items: tuple[Any, ...]) -> AppendEntriesReply | None:
    """Return the message, if it is well-formed: all the same checks as by its forms, at once."""
    try:
        _, group, term, accepted, match_index, prev_log_index, conflict_index, conflict_term = items
    except ValueError:
        return None
    if (
        type(group) is not int
        or type(term) is not int
        or type(accepted) is not bool
        or type(match_index) is not int
        or type(prev_log_index) is not int
        or type(conflict_index) is not int
        or type(conflict_term) is not int
        or not 0 <= group | match_index | prev_log_index | conflict_index <= NUMBER_MAX
        or not 0 <= term | conflict_term <= TERM_MAX
    ):
        return None
    return AppendEntriesReply(
        items[1], term, accepted, match_index, prev_log_index, conflict_index, conflict_term
    )


_KIND_MAX: Final = len(_ENTRY_KINDS) - 1
_COMMANDS: Final = int(EntryKind.COMMANDS)

# A vote asked for by a transfer has a number of its own, so that the ordinary one stays what earlier releases understand.
MESSAGES: Final = Kinds[PeerMessage](
    "message",
    {
        1: Record(PreVote, number, _term, number, _term),
        2: Record(PreVoteReply, number, _term, boolean),
        3: Record(RequestVote, number, _term, number, _term),
        4: Record(RequestVoteReply, number, _term, boolean),
        5: Record(AppendEntries, number, _term, number, _term, number, _ENTRIES, made=_append_entries),
        6: Record(AppendEntriesReply, number, _term, boolean, number, number, number, _term),
        7: Record(Heartbeat, number, _term, number, number),
        8: Record(HeartbeatReply, number, _term, number, number),
        9: Record(ReadIndex, number, _term, number),
        10: Record(ReadIndexReply, number, _term, number, number),
        11: Record(TimeoutNow, number, _term),
        12: Record(RequestVote, number, _term, number, _term, transfer=True),
        32: Record(Hello, optional(_cluster_id), optional(Form(_roster)), boolean),
        33: Record(OriginBatch, number, number, from_one, number, _blob),
        34: Record(TouchReport, number, number, listed(row(session=_session, age_ms=number), ITEMS_MAX)),
        35: Record(TouchAck, _term, number, number, listed(_session, ITEMS_MAX)),
        36: Record(Join, binary(0, CLUSTER_ID_BYTES_MAX), Form(_address, str.encode), number),
        37: Record(Welcome, _cluster_id, number, binary(1, MEMBERSHIP_BYTES_MAX)),
        38: Record(NotMember, _cluster_id, number),
        39: Record(SnapshotOffer, number, _term, number, _term, _snapshot_id, number),
        40: Record(SnapshotRequest, number, _term, _snapshot_id, number, _chunk_length),
        41: Record(SnapshotChunk, number, _term, _snapshot_id, number, _chunk),
        42: Record(MemberReport, number, _digests),
        43: Record(Verdict, _digests),
        48: Record(
            SharedHeartbeat,
            *(from_one, from_one, number),
            listed(row(group=from_one, term=_term, index=number), COVER_ITEMS_MAX),
        ),
        49: Record(SharedHeartbeatReply, number, from_one, listed(from_one, COVER_ITEMS_MAX)),
        50: Record(Bundle, from_one, _bundle, boolean),
        51: Record(Edge, _bundle),
        52: Record(GroupLeader, from_one, _term, _server),
        53: Record(DeliveryListRequest, from_one, _snapshot_id),
        54: Record(DeliveryList, from_one, _snapshot_id, binary(1, MANIFEST_BYTES_MAX)),
        55: Record(DeliveryRequest, from_one, _segment_id, number, _chunk_length),
        56: Record(DeliveryPiece, from_one, _segment_id, number, _chunk),
        57: Record(GroupDigests, _group_digests),
        58: Record(GroupVerdict, _group_digests),
    },
    quick={
        5: _quick_append_entries,
        6: _quick_append_entries_reply,
        7: _quick_beat(Heartbeat),
        8: _quick_beat(HeartbeatReply),
    },
)


def encode(message: PeerMessage) -> bytes:
    """Return the bytes of one message. Payloads are copied by MessagePack only."""
    if type(message) is AppendEntries:
        assert message.entries, "an AppendEntries is never empty"
        for index, entry in enumerate(message.entries, message.prev_log_index + 1):
            assert entry.index == index, "entries are not consecutive"
    return _Packer().pack(MESSAGES.pack(message))  # type: ignore[no-any-return]


_Packer: Final = msgpack.Packer

decode: Final = MESSAGES.decode
"""Returns the message of exactly these bytes. If they are not one well-formed message, the `ProtocolError` says which field,
what was found and expected."""


def decode_sequence(buffer: bytes | memoryview) -> tuple[list[PeerMessage], list[ProtocolError]]:
    """Decode a MessagePack array of messages, as it stands in a datagram.

    A message that is not understood (one of a newer release, say) costs itself only: its error is returned
    beside the messages that are.

    Raises:
        ProtocolError: the bytes are not one MessagePack array.
    """
    messages: list[PeerMessage] = []
    errors: list[ProtocolError] = []
    unpack = MESSAGES.unpack
    for one in array(from_bytes(buffer), "datagram body"):
        try:
            messages.append(unpack(one))
        except ProtocolError as error:
            errors.append(error)
    return messages, errors


def encode_sequence(encoded: Sequence[bytes]) -> bytes:
    """Join encoded messages into the array that `decode_sequence` reads."""
    assert len(encoded) <= SEQUENCE_MAX
    return b"".join((b"\xdc", len(encoded).to_bytes(2), *encoded))


SEQUENCE_BYTES: Final = 3
"""The bytes that `encode_sequence` adds: the header of a MessagePack "array 16"."""

SEQUENCE_MAX: Final = 2**16 - 1
