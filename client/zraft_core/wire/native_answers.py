"""Encodes what native clients are told: results, errors, redirects, and what is pushed to subscribers.

Source: docs/PROTOCOL-NATIVE.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgpack

from zraft_core.errors import Code
from zraft_core.wire.stat import Znode
from zraft_core.znodes.outcome import Outcome
from zraft_core.znodes.txn import (
    ADD,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    MEMBERS,
    MULTI,
    PUT,
    SET_DATA,
    TOPICS,
    TRUNCATE,
    WILL,
    Command,
)

_packer = msgpack.Packer(use_bin_type=True, autoreset=True)
_pack = _packer.pack
# Heads of what is put together from pieces that are packed already.
_parts = msgpack.Packer(use_bin_type=True, autoreset=False)

STAT_NAMES: Final = (
    "czxid", "mzxid", "ctime", "mtime", "version", "cversion",
    "aversion", "ephemeralOwner", "dataLength", "numChildren", "pzxid",
)  # fmt: skip

BIN_16_BYTES_MAX: Final = 0xFFFF
"""The longest binary whose length MessagePack writes in two bytes."""

RETRIABLE: Final = frozenset(
    {
        Code.CONNECTION_LOSS,
        Code.OPERATION_TIMEOUT,
        Code.RECONFIG_IN_PROGRESS,
        Code.REQUEST_TIMEOUT,
        Code.THROTTLED_OP,
    }
)
"""What the same request may come to something better after."""

TEXTS: Final = {
    Code.SYSTEM_ERROR: "the cluster could not carry it out",
    Code.DATA_INCONSISTENCY: "the znode does not hold what a dictionary's entry is",
    Code.MARSHALLING_ERROR: "the cluster does not understand the command",
    Code.UNIMPLEMENTED: "the cluster does not know this command, or it is switched off",
    Code.BAD_ARGUMENTS: "a path that no znode can have, or data that are too long",
    Code.NEW_CONFIG_NO_QUORUM: "no voting member would be left",
    Code.RECONFIG_IN_PROGRESS: "the cluster is still writing down who its members are",
    Code.RECONFIG_DISABLED: "members are not changed by clients here; set client.reconfig_enabled, or use `zraft member`",
    Code.NO_NODE: "there is no such znode",
    Code.NO_AUTH: "the client has not the right to do this",
    Code.BAD_VERSION: "the version is not the one that was expected",
    Code.NO_CHILDREN_FOR_EPHEMERALS: "an ephemeral znode has no children",
    Code.NODE_EXISTS: "it exists already",
    Code.NOT_EMPTY: "the znode has children",
    Code.SESSION_EXPIRED: "there is no such session, or no longer, or the password is another one",
    Code.INVALID_ACL: "the ACL is empty, or names an unknown scheme or a bad id",
    Code.AUTH_FAILED: "the client's credentials prove nothing",
    Code.SESSION_MOVED: "the session has moved to another connection",
    Code.QUOTA_EXCEEDED: "a quota would be exceeded",
    Code.THROTTLED_OP: "too many numbered requests are not acknowledged: raise the floor, then repeat it",
    Code.RUNTIME_INCONSISTENCY: "an operation before it failed",
}

_BAD_ARGUMENTS: Final = {
    ADD: "the value is no integer, or would leave 64 bits",
    CREATE2: "a path that no znode can have, data that are too long, or an ephemeral znode without a session",
    CREATE_TTL: "a path that no znode can have, data that are too long, or a time to live out of bounds",
    TRUNCATE: "`first` is below where the log begins already, or a path is none that a znode can have",
    WILL: "a parent or prefix that no znode can have",
}
"""What it means for some commands."""


# -- answers


def encode_result(number: int, zxid: int, fields: Mapping[str, Any] | None = None) -> bytes:
    """Success of a request, with what there is to say."""
    answer: dict[str, Any] = {"id": number, "type": "result", "success": True, "zxid": zxid}
    if fields:
        answer |= fields
    return _pack(answer)  # type: ignore[no-any-return]


def encode_large_data(number: int, zxid: int, data: bytes, stat: Sequence[int]) -> tuple[bytes, bytes]:
    """A znode whose data are too large to be copied: what is before them, and they themselves."""
    assert len(data) > BIN_16_BYTES_MAX, f"{len(data)} bytes are not large"
    head = encode_result(number, zxid, {"stat": stat_map(stat)})
    # A map of five becomes one of six, whose last value follows.
    return b"\x86" + head[1:] + _DATA + b"\xc6" + len(data).to_bytes(4), data


def encode_error(
    number: int | None,
    code: Code,
    error: str,
    *,
    retriable: bool | None = None,
    unknown: bool = False,
    further: Mapping[str, Any] | None = None,
) -> bytes:
    """Failure. `retriable` None: as the code says; `unknown`: it may have happened."""
    answer: dict[str, Any] = {} if number is None else {"id": number}
    answer |= {
        "type": "error",
        "success": False,
        "code": code.name,
        "error": error,
        "retriable": code in RETRIABLE if retriable is None else retriable,
        "unknown": unknown,
    }
    if further:
        answer |= further
    return _pack(answer)  # type: ignore[no-any-return]


def encode_redirect(number: int | None, host: str, port: int) -> bytes:
    """Ask the leader; in Zatt's form."""
    answer: dict[str, Any] = {} if number is None else {"id": number}
    return _pack(answer | {"type": "redirect", "leader": [host, port]})  # type: ignore[no-any-return]


def encode_outcome(number: int, command: Command, outcome: Outcome) -> bytes:
    """What a write came to."""
    zxid, position, code, body = outcome
    if code:
        return _encode_failure(number, command, zxid, position, Code(code), body)
    answer: dict[str, Any] = {
        "id": number,
        "type": "result",
        "success": True,
        "zxid": zxid,
        "position": position,
    }
    opcode = command[0]
    if opcode == MULTI:
        answer["results"] = [
            _fields(part[0], result) for part, (_, result) in zip(command[1], body, strict=True)
        ]
    else:
        answer |= _fields(opcode, body)
    return _pack(answer)  # type: ignore[no-any-return]


def _fields(opcode: int, body: Any) -> dict[str, Any]:
    """Of one command that succeeded."""
    if opcode == PUT:
        return {"version": body[4], "mzxid": body[1]}
    if opcode == ADD:
        value, stat = body
        return {"value": value, "version": stat[4], "mzxid": stat[1]}
    if opcode == SET_DATA:
        return {"stat": stat_map(body)}
    if opcode in _CREATES:
        return {"path": body[0], "stat": stat_map(body[1])}
    return {}


_CREATES: Final = frozenset({CREATE2, CREATE_CONTAINER, CREATE_TTL})


def is_outcome_of(command: Command, outcome: Outcome) -> bool:
    """Whether a kept outcome can be that of this command: a client may give one `seq` to two requests, and must not.

    Of two of one form, such as a put and a set, the second gets the first one's answer.
    """
    code, body = outcome[2:]
    opcode = command[0]
    if opcode == MULTI:
        if body is None:
            return bool(code)
        parts = command[1]
        return (
            isinstance(body, tuple)
            and len(body) == len(parts)
            and all(isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], int) for one in body)
            and (bool(code) or all(_is_body(part[0], one[1]) for part, one in zip(parts, body, strict=True)))
        )
    if opcode == TOPICS:
        if body is None:
            return bool(code)
        kinds = str if code else (int, type(None))
        return isinstance(body, tuple) and len(body) == 1 and isinstance(body[0], kinds)
    return body is None if code else _is_body(opcode, body)


def _is_body(opcode: int, body: Any) -> bool:
    if opcode in (PUT, SET_DATA):
        return _is_stat(body)
    if opcode == ADD or opcode in _CREATES:
        kind = int if opcode == ADD else str
        return isinstance(body, tuple) and len(body) == 2 and isinstance(body[0], kind) and _is_stat(body[1])
    return body is None


def _is_stat(body: Any) -> bool:
    return isinstance(body, tuple) and len(body) == len(STAT_NAMES)


def _encode_failure(number: int, command: Command, zxid: int, position: int, code: Code, body: Any) -> bytes:
    further: dict[str, Any] = {"zxid": zxid, "position": position}
    error = failure_text(code, command)
    if command[0] == MULTI and body is not None:
        codes = [Code(part) for part, _ in body]
        index = next((place for place, part in enumerate(codes) if part is not Code.OK), 0)
        further["index"] = index
        further["codes"] = [part.name for part in codes]
        error = f"operation {index}: {failure_text(code, command[1][index])}; nothing was changed"
    return encode_error(number, code, error, further=further)


def failure_text(code: Code, command: Command) -> str:
    """Why a command failed, in words."""
    path = path_of(command)
    if code is Code.BAD_ARGUMENTS and command[0] in _BAD_ARGUMENTS:
        return f"{path or '/'}: {_BAD_ARGUMENTS[command[0]]}"
    if code is Code.BAD_VERSION and command[0] == MEMBERS:
        return "the members were changed meanwhile; look and try again"
    return text_of(code, path)


def path_of(command: Command) -> str | None:
    """The znode that a command is about, if it is about one."""
    path = command[1] if len(command) > 1 else None
    return path if isinstance(path, str) else None


def text_of(code: Code, path: str | None = None) -> str:
    """An error in words."""
    text = TEXTS.get(code, code.name.lower().replace("_", " "))
    return text if path is None else f"{path}: {text}"


def stat_map(stat: Sequence[int]) -> dict[str, int]:
    """A Stat under ZooKeeper's names."""
    return dict(zip(STAT_NAMES, stat, strict=True))


# -- dictionaries: values are stored packed, and are put into answers as they are


def encode_entry(number: int, zxid: int, packed_value: bytes, node: Znode) -> bytes:
    """A key that is there."""
    head = _pack(
        {
            "id": number,
            "type": "result",
            "success": True,
            "zxid": zxid,
            "found": True,
            "version": node.version,
            "mzxid": node.mzxid,
        }
    )
    # A map of seven becomes one of eight, whose last value follows.
    return b"\x88" + head[1:] + _VALUE + packed_value  # type: ignore[no-any-return]


_VALUE: Final = _pack("value")
_DATA: Final = _pack("data")
_STATE: Final = _pack("state")
_ITEMS: Final = _pack("items")
_CHANGES: Final = _pack("changes")


def encode_missing(number: int, zxid: int) -> bytes:
    """A key that is not there."""
    return encode_result(number, zxid, {"found": False, "value": None, "version": None, "mzxid": None})


def map_of(entries: Sequence[bytes]) -> bytes:
    """The map of entries [key, value] that are packed already: a pair's bytes without its array's header are in it."""
    _parts.pack_map_header(len(entries))
    head: bytes = _parts.bytes()
    _parts.reset()
    return head + b"".join([entry[1:] for entry in entries])


def encode_state(number: int, zxid: int, entries: Sequence[bytes]) -> bytes:
    """All of a dictionary."""
    head = encode_result(number, zxid)
    return b"\x85" + head[1:] + _STATE + map_of(entries)  # type: ignore[no-any-return]


def item_of(entry: bytes, version: int, mzxid: int) -> bytes:
    """[key, value, version, mzxid] of an entry [key, value]."""
    return b"\x94" + entry[1:] + _pack(version) + _pack(mzxid)  # type: ignore[no-any-return]


def gone_of(packed_key: bytes) -> bytes:
    """[key]: the key is gone."""
    return b"\x91" + packed_key


def array_of(items: Sequence[bytes]) -> bytes:
    _parts.pack_array_header(len(items))
    head: bytes = _parts.bytes()
    _parts.reset()
    return head + b"".join(items)


def encode_items(number: int, zxid: int, items: Sequence[bytes], following: str | None) -> bytes:
    """A page of a dictionary, and the cursor of the next; None after the last."""
    head = encode_result(number, zxid, {"next": following})
    return b"\x86" + head[1:] + _ITEMS + array_of(items)  # type: ignore[no-any-return]


# -- what is pushed


def encode_changes(number: int, zxid: int, items: Sequence[bytes], *, initial: bool, complete: bool) -> bytes:
    """Entries of a dictionary as they are now, or that are gone."""
    head = _pack({"id": number, "type": "changes", "zxid": zxid, "initial": initial, "complete": complete})
    return b"\x86" + head[1:] + _CHANGES + array_of(items)  # type: ignore[no-any-return]


def encode_log_entries(
    number: int, zxid: int, entries: Iterable[tuple[int, bytes | None, int]], following: int, first: int
) -> bytes:
    """Entries of a log, in order."""
    return _pack(  # type: ignore[no-any-return]
        {
            "id": number,
            "type": "entries",
            "zxid": zxid,
            "entries": [list(entry) for entry in entries],
            "next": following,
            "first": first,
        }
    )


EVENT_KINDS: Final = {1: "created", 2: "deleted", 3: "changed", 4: "children"}


def encode_event(number: int, zxid: int, event_type: int, path: str) -> bytes:
    """A lasting watch fired."""
    return _pack(  # type: ignore[no-any-return]
        {"id": number, "type": "event", "kind": EVENT_KINDS[event_type], "path": path, "zxid": zxid}
    )


def encode_pushed(number: int, kind: str, zxid: int, fields: Mapping[str, Any]) -> bytes:
    """A message of a subscription that has fields of its own."""
    return _pack({"id": number, "type": kind, "zxid": zxid, **fields})  # type: ignore[no-any-return]


# -- Zatt's form


def encode_zatt_result(success: bool, further: Mapping[str, Any] | None = None) -> bytes:
    """The answer to append and config."""
    return _pack({"type": "result", "success": success, **(further or {})})  # type: ignore[no-any-return]


def encode_zatt_map(fields: Mapping[str, Any]) -> bytes:
    """The answer to diagnostic: the bare map."""
    return _pack(fields)  # type: ignore[no-any-return]
