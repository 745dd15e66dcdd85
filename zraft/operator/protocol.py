"""Requests and answers of operators as bytes: MessagePack maps, one per message of a stream. Pure.

A request is `{"id": number, "op": name, field: value, …}`, its answer `{"id": number, "ok": name, field: value, …}` or
`{"id": number, "error": text, "leader": "HOST:PORT" or nil, "retriable": boolean}`. Unlike between servers, fields have
names, so that an operator's tool and a server of different releases understand each other: a field that is not known is
ignored, one that is missing has its default. Layouts: docs/PROTOCOL-PEERS.md, "Operators".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack
from attrs import NOTHING, fields, frozen, has

from zraft.operator import requests
from zraft.operator.requests import OperatorReply, OperatorRequest, Refused
from zraft_core.errors import ProtocolError
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN
from zraft_core.messagepack import unpack

NUMBER_MAX: Final = 2**63 - 1
TEXT_BYTES_MAX: Final = 4096
SNAPSHOT_ID_BYTES: Final = 16
PART_BYTES_MAX: Final = 1024 * 1024
"""The most bytes of a snapshot in one answer."""

ROWS_MAX: Final = 1024
REQUEST_BYTES_MAX: Final = 64 * 1024

Check = Callable[[Any, str], Any]


def _found(value: object) -> str:
    if isinstance(value, bytes | str | list | dict | tuple):
        return f"{type(value).__name__} of length {len(value)}"
    return f"{type(value).__name__} {value!r}"


def _integer(low: int, high: int) -> Check:
    def check(value: Any, name: str) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise ProtocolError(f"{name}: expected an integer from {low} to {high}, found {_found(value)}")

    return check


def _binary(low: int, high: int) -> Check:
    def check(value: Any, name: str) -> bytes:
        if type(value) is bytes and low <= len(value) <= high:
            return value
        raise ProtocolError(f"{name}: expected {low} to {high} bytes, found {_found(value)}")

    return check


def _text(low: int) -> Check:
    def check(value: Any, name: str) -> str:
        if type(value) is str and low <= len(value) <= TEXT_BYTES_MAX:
            return value
        raise ProtocolError(f"{name}: expected a text of {low} to {TEXT_BYTES_MAX}, found {_found(value)}")

    return check


def _boolean(value: Any, name: str) -> bool:
    if type(value) is bool:
        return value
    raise ProtocolError(f"{name}: expected true or false, found {_found(value)}")


def _instance(value: Any, name: str) -> bytes:
    if type(value) is bytes and len(value) in (0, INSTANCE_BYTES):
        return value
    raise ProtocolError(f"{name}: expected 0 or {INSTANCE_BYTES} bytes, found {_found(value)}")


def _or_none(check: Check) -> Check:
    return lambda value, name: None if value is None else check(value, name)


def _rows(kind: type[Any]) -> Check:
    def check(value: Any, name: str) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > ROWS_MAX:
            raise ProtocolError(f"{name}: expected an array of at most {ROWS_MAX}, found {_found(value)}")
        return tuple(_make(kind, _ROWS[kind], row, name) for row in value)

    return check


def _servers(value: Any, name: str) -> tuple[int, ...]:
    if type(value) is not list or len(value) > ROWS_MAX:
        raise ProtocolError(f"{name}: expected an array of at most {ROWS_MAX} servers, found {_found(value)}")
    return tuple(_server(one, name) for one in value)


_number: Final = _integer(0, NUMBER_MAX)
_signed: Final = _integer(-(2**63), NUMBER_MAX)
_server: Final = _integer(SERVER_ID_MIN, SERVER_ID_MAX)
_snapshot: Final = _binary(SNAPSHOT_ID_BYTES, SNAPSHOT_ID_BYTES)

_REQUESTS: Final[Mapping[str, tuple[type[Any], tuple[Check, ...]]]] = {
    "member.list": (requests.MemberList, ()),
    "member.add": (requests.MemberAdd, (_server, _text(1), _boolean)),
    "member.move": (requests.MemberMove, (_server, _text(1))),
    "member.remove": (requests.MemberRemove, (_server,)),
    "member.promote": (requests.MemberPromote, (_server,)),
    "leader.transfer": (requests.Transfer, (_or_none(_server),)),
    "snapshot.take": (requests.SnapshotTake, ()),
    "snapshot.read": (requests.SnapshotRead, (_snapshot, _number, _integer(1, PART_BYTES_MAX))),
    "settings.show": (requests.SettingsShow, ()),
    "settings.set": (requests.SettingsSet, (_text(1), _signed)),
    "feature.raise": (requests.FeatureRaise, (_or_none(_number),)),
    "topic.list": (requests.TopicList, (_text(0),)),
    "topic.describe": (requests.TopicDescribe, (_text(1), _number)),
    "topic.create": (
        requests.TopicCreate,
        (_text(1), _number, _or_none(_number), _or_none(_number)),
    ),
    "topic.alter": (requests.TopicAlter, (_text(1), _number)),
    "topic.retain": (requests.TopicRetain, (_text(1), _or_none(_number), _or_none(_number))),
    "topic.delete": (requests.TopicDelete, (_text(1),)),
}
_ROWS: Final[Mapping[type[Any], tuple[Check, ...]]] = {
    requests.MemberLine: (
        *(_server, _text(0), _text(1), _instance, _boolean),
        *(_or_none(_number), _or_none(_number), _or_none(_number)),
    ),
    requests.SettingLine: (_text(1), _signed, _or_none(_signed)),
    requests.TopicLine: (
        *(_text(1), _number, _number, _number, _number),
        *(_or_none(_number), _or_none(_number)),
    ),
    requests.PartitionLine: (_number, _number, _or_none(_server), _servers, _text(1)),
}
_REPLIES: Final[Mapping[str, tuple[type[Any], tuple[Check, ...]]]] = {
    "members": (
        requests.MemberListing,
        (_binary(0, 64), _number, _number, _boolean, _rows(requests.MemberLine)),
    ),
    "done": (requests.Done, (_text(0),)),
    "snapshot": (requests.SnapshotFile, (_server, _snapshot, _number, _number, _signed)),
    "part": (requests.SnapshotPart, (_number, _binary(0, PART_BYTES_MAX))),
    "settings": (requests.SettingsListing, (_rows(requests.SettingLine), _number, _number)),
    "topics": (requests.TopicListing, (_rows(requests.TopicLine), _boolean, _number, _number)),
    "topic": (
        requests.TopicDescription,
        (
            *(_text(1), _number, _number, _or_none(_number), _or_none(_number)),
            *(_rows(requests.PartitionLine), _boolean),
        ),
    ),
}
_REFUSED: Final = (_text(0), _or_none(_text(1)), _boolean)
_REQUEST_NAMES: Final = {kind: name for name, (kind, _) in _REQUESTS.items()}
_REPLY_NAMES: Final = {kind: name for name, (kind, _) in _REPLIES.items()}

OPERATIONS: Final = tuple(_REQUESTS)


def _make(kind: type[Any], checks: tuple[Check, ...], found: Any, name: str) -> Any:
    """Return a value of `kind` from a decoded map."""
    if type(found) is not dict:
        raise ProtocolError(f"{name}: expected a map, found {_found(found)}")
    values = []
    for attribute, check in zip(fields(kind), checks, strict=True):
        if attribute.name in found:
            values.append(check(found[attribute.name], f"{name}.{attribute.name}"))
        elif attribute.default is not NOTHING:
            values.append(attribute.default)
        else:
            raise ProtocolError(f"{name}: expected a field {attribute.name!r}, found none")
    return kind(*values)


def _map(value: Any) -> dict[str, Any]:
    return {attribute.name: _plain(getattr(value, attribute.name)) for attribute in fields(type(value))}


def _plain(value: Any) -> Any:
    if type(value) is not tuple:
        return value
    return [_map(item) if has(type(item)) else item for item in value]


@frozen
class Numbered:
    """A request or an answer, with the number that belongs to both."""

    number: int
    value: Any


class UnknownOperationError(ProtocolError):
    """This release does not know the request; `number` is what its answer must carry."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


def encode_request(number: int, request: OperatorRequest) -> bytes:
    """Encode one request."""
    return msgpack.packb({"id": number, "op": _REQUEST_NAMES[type(request)], **_map(request)})  # type: ignore[no-any-return]


def encode_reply(number: int, reply: OperatorReply) -> bytes:
    """Encode the answer to request `number`."""
    if type(reply) is Refused:
        named: dict[str, Any] = {
            "id": number,
            "error": reply.text,
            "leader": reply.leader,
            "retriable": reply.retriable,
        }
    else:
        named = {"id": number, "ok": _REPLY_NAMES[type(reply)], **_map(reply)}
    return msgpack.packb(named)  # type: ignore[no-any-return]


def decode_request(data: bytes) -> Numbered:
    """Decode a request.

    Raises:
        UnknownOperationError: it is one of another release, or its fields are wrong; it can be answered.
        ProtocolError: it is none.
    """
    found = _unpack(data, REQUEST_BYTES_MAX)
    number = _number(found.get("id"), "request.id")
    name = found.get("op")
    if type(name) is not str or name not in _REQUESTS:
        shown = repr(name[:64]) if isinstance(name, str) else _found(name)
        raise UnknownOperationError(
            number,
            f"op: expected one of {', '.join(_REQUESTS)}; found {shown}; is the server older than the tool?",
        )
    kind, checks = _REQUESTS[name]
    try:
        return Numbered(number, _make(kind, checks, found, name))
    except ProtocolError as error:
        raise UnknownOperationError(number, str(error)) from error


def decode_reply(data: bytes) -> Numbered:
    """Decode an answer.

    Raises:
        ProtocolError: the bytes are no answer, or one of a release that this one does not know.
    """
    found = _unpack(data, None)
    number = _number(found.get("id"), "answer.id")
    if "error" in found:
        text, leader, retriable = _REFUSED
        return Numbered(
            number,
            Refused(
                text(found["error"], "answer.error"),
                leader(found.get("leader"), "answer.leader"),
                retriable(found.get("retriable", False), "answer.retriable"),
            ),
        )
    name = found.get("ok")
    if type(name) is not str or name not in _REPLIES:
        raise ProtocolError(
            f"answer: expected one of {', '.join(_REPLIES)}; found {_found(name)}; is the tool older than the server?"
        )
    kind, checks = _REPLIES[name]
    return Numbered(number, _make(kind, checks, found, f"answer {name}"))


def _unpack(data: bytes, bytes_max: int | None) -> dict[str, Any]:
    if bytes_max is not None and len(data) > bytes_max:
        raise ProtocolError(f"request: expected at most {bytes_max} bytes, found {len(data)}")
    try:
        found = unpack(data, lists=True)
    except ProtocolError as error:
        raise ProtocolError(f"expected a MessagePack map, found {len(data)} other bytes: {error}") from error
    if type(found) is not dict:
        raise ProtocolError(f"expected a MessagePack map, found {_found(found)}")
    return found
