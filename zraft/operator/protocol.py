"""Requests and answers of operators as bytes: MessagePack maps, one per message of a stream. Pure.

A request is `{"id": number, "op": name, field: value, …}`, its answer `{"id": number, "ok": name, field: value, …}` or
`{"id": number, "error": text, "leader": "HOST:PORT" or nil, "retriable": boolean}`. Unlike between servers, fields have
names, so that an operator's tool and a server of different releases understand each other: a field that is not known is
ignored, one that is missing has its default. Layouts: docs/reference/protocol-peers.md, "Operators".
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from zraft.operator import requests
from zraft.operator.requests import OperatorReply, OperatorRequest, Refused
from zraft_core.errors import ProtocolError
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN
from zraft_core.layout import (
    NUMBER_MAX,
    Form,
    Kinds,
    Record,
    binary,
    boolean,
    integer,
    listed,
    number,
    optional,
    row,
    ruled,
    string,
    to_bytes,
    wrong,
)
from zraft_core.messagepack import unpack
from zraft_core.topics.access import Guarded
from zraft_core.znodes.acl import ALL

TEXT_MAX: Final = 4096
NAME_BYTES_MAX: Final = 1024
"""Of a topic or a consumer, as far as one may ask for."""
SNAPSHOT_ID_BYTES: Final = 16
PART_BYTES_MAX: Final = 1024 * 1024
"""The most bytes of a snapshot in one answer."""

ROWS_MAX: Final = 1024
REQUEST_BYTES_MAX: Final = 64 * 1024

_signed: Final = integer(-(2**63), NUMBER_MAX)
_maybe_number: Final = optional(number)
_server: Final = integer(SERVER_ID_MIN, SERVER_ID_MAX)
_snapshot: Final = binary(SNAPSHOT_ID_BYTES, SNAPSHOT_ID_BYTES)
_instance: Final = ruled(
    binary(0, INSTANCE_BYTES),
    lambda value: len(value) in (0, INSTANCE_BYTES),
    f"0 or {INSTANCE_BYTES} bytes",
)
_text: Final = string(0, TEXT_MAX)
_name: Final = string(1, TEXT_MAX)

ACL_MAX: Final = 4096
"""Entries of one ACL; a request has fewer bytes than so many would need."""


def _kind_of(value: Any, name: str) -> Guarded:
    try:
        return Guarded[value]
    except (KeyError, TypeError):
        raise wrong(name, _KINDS, value) from None


_KINDS: Final = " or ".join(repr(kind.name) for kind in Guarded)
_kind: Final = Form(_kind_of, lambda kind: kind.name, expected=_KINDS)
_acl: Final = listed(row(bits=integer(0, ALL), scheme=_name, id=_name), ACL_MAX, 1)
_consumer: Final = binary(0, NAME_BYTES_MAX)


def _rows(of: type[Any], *forms: Form) -> Form:
    return listed(Record(of, *forms).map_form, ROWS_MAX)


_REQUESTS: Final = Kinds[OperatorRequest](
    "op",
    {
        "member.list": Record(requests.MemberList),
        "member.add": Record(requests.MemberAdd, _server, _name, boolean),
        "member.move": Record(requests.MemberMove, _server, _name),
        "member.remove": Record(requests.MemberRemove, _server),
        "member.promote": Record(requests.MemberPromote, _server),
        "leader.transfer": Record(requests.Transfer, optional(_server)),
        "snapshot.take": Record(requests.SnapshotTake),
        "snapshot.read": Record(requests.SnapshotRead, _snapshot, number, integer(1, PART_BYTES_MAX)),
        "settings.show": Record(requests.SettingsShow),
        "settings.set": Record(requests.SettingsSet, _name, _signed),
        "feature.raise": Record(requests.FeatureRaise, _maybe_number),
        "topic.list": Record(requests.TopicList, _text),
        "topic.describe": Record(requests.TopicDescribe, _name, number),
        "topic.replicas": Record(requests.TopicReplicas, listed(number, ROWS_MAX)),
        "topic.create": Record(requests.TopicCreate, _name, number, _maybe_number, _maybe_number),
        "topic.alter": Record(requests.TopicAlter, _name, number),
        "topic.retain": Record(requests.TopicRetain, _name, _maybe_number, _maybe_number),
        "topic.delete": Record(requests.TopicDelete, _name),
        "acl.list": Record(requests.AclList, _kind, _text),
        "acl.show": Record(requests.AclShow, _kind, _consumer),
        "acl.set": Record(requests.AclSet, _kind, _consumer, _acl, optional(_signed)),
        "acl.defaults": Record(requests.AclDefaults, _acl),
        "acl.remove": Record(requests.AclRemove, _kind, _consumer),
        "topic.give-up": Record(requests.TopicGiveUp, number, boolean),
    },
)
_REPLIES: Final = Kinds[OperatorReply](
    "answer",
    {
        "members": Record(
            requests.MemberListing,
            *(binary(0, 64), number, number, boolean),
            _rows(
                requests.MemberLine,
                *(_server, _text, _name, _instance, boolean),
                *(_maybe_number, _maybe_number, _maybe_number),
            ),
        ),
        "done": Record(requests.Done, _text),
        "snapshot": Record(requests.SnapshotFile, _server, _snapshot, number, number, _signed),
        "part": Record(requests.SnapshotPart, number, binary(0, PART_BYTES_MAX)),
        "settings": Record(
            requests.SettingsListing,
            *(_rows(requests.SettingLine, _name, _signed, optional(_signed)), number, number),
        ),
        "topics": Record(
            requests.TopicListing,
            _rows(
                requests.TopicLine,
                *(_name, number, number, number, number, _maybe_number, _maybe_number),
            ),
            *(boolean, number, number),
        ),
        "topic": Record(
            requests.TopicDescription,
            *(_name, number, number, _maybe_number, _maybe_number),
            _rows(
                requests.PartitionLine,
                *(number, number, optional(_server), listed(_server, ROWS_MAX), _name),
            ),
            boolean,
        ),
        "acls": Record(
            requests.AclListing,
            optional(_acl),
            _rows(requests.AclLine, _name, _consumer, _acl),
            boolean,
        ),
        "acl": Record(requests.AclShown, optional(_acl), optional(_signed), optional(_acl)),
        "replicas": Record(
            requests.ReplicaListing,
            _server,
            _rows(
                requests.ReplicaLine,
                *(number, number, optional(_server), boolean, number, number, number, _maybe_number, _text),
                _rows(requests.FollowerLine, _server, _maybe_number, _maybe_number, boolean),
            ),
        ),
    },
)

OPERATIONS: Final = tuple(_REQUESTS.records)


@frozen
class Numbered:
    """A request or an answer, with the number that belongs to both."""

    number: int
    value: Any


class UnknownOperationError(ProtocolError):
    """A request that this release does not know; `number` is what its answer must carry."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


def encode_request(request_id: int, request: OperatorRequest) -> bytes:
    """Return the bytes of one request."""
    name, record = _REQUESTS.of(request)
    return to_bytes({"id": request_id, "op": name, **record.pack_map(request)})


def encode_reply(request_id: int, reply: OperatorReply) -> bytes:
    """Return the bytes of the answer to that request."""
    if type(reply) is Refused:
        return to_bytes(
            {"id": request_id, "error": reply.text, "leader": reply.leader, "retriable": reply.retriable}
        )
    name, record = _REPLIES.of(reply)
    return to_bytes({"id": request_id, "ok": name, **record.pack_map(reply)})


def decode_request(data: bytes) -> Numbered:
    """Return the request of these bytes.

    Raises:
        UnknownOperationError: it is one of another release, or its fields are wrong; it can be answered.
        ProtocolError: it is none.
    """
    found = _unpack(data, REQUEST_BYTES_MAX)
    request_id = number.unpack(found.get("id"), "request.id")
    name = found.get("op")
    try:
        return Numbered(request_id, _REQUESTS.record(name).unpack_map(found, str(name)))
    except ProtocolError as error:
        raise UnknownOperationError(request_id, str(error)) from error


def decode_reply(data: bytes) -> Numbered:
    """Return the answer of these bytes.

    Raises:
        ProtocolError: they are none, or one of a release that this one does not know.
    """
    found = _unpack(data, None)
    answered = number.unpack(found.get("id"), "answer.id")
    if "error" in found:
        text, leader, retriable = found["error"], found.get("leader"), found.get("retriable", False)
        return Numbered(
            answered,
            Refused(
                _text.unpack(text, "answer.error"),
                optional(_name).unpack(leader, "answer.leader"),
                boolean.unpack(retriable, "answer.retriable"),
            ),
        )
    name = found.get("ok")
    return Numbered(answered, _REPLIES.record(name).unpack_map(found, f"answer {name}"))


def _unpack(data: bytes, bytes_max: int | None) -> dict[str, Any]:
    if bytes_max is not None and len(data) > bytes_max:
        raise ProtocolError(f"request: expected at most {bytes_max} bytes, found {len(data)}")
    try:
        found = unpack(data)
    except ProtocolError as error:
        raise ProtocolError(f"expected a MessagePack map, found {len(data)} other bytes: {error}") from error
    if type(found) is not dict:
        raise wrong("message", "a MessagePack map", found)
    return found
