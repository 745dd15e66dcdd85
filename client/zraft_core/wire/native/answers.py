"""Bytes of what native clients are told: results, what writes came to, and what is pushed to subscribers.

Layouts declare all of it (`results`, `pushes`). Answers to writes and what concerns entries of
dictionaries are packed by hand: the first are what a server writes most, and their layouts take twice as many calls;
the others are put together from pieces that are stored packed.

Source: docs/reference/protocol-native.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgpack

from zraft_core.errors import Code
from zraft_core.layout import Record
from zraft_core.wire.native import topic_results
from zraft_core.wire.native.failures import RETRIABLE, Failure, encode_failure, failure_text
from zraft_core.wire.native.pushes import ENTRIES, EVENT, EVENT_KINDS, EntriesPush, EventPush
from zraft_core.wire.native.results import RESULTS, STAT_NAMES, SetResult, stat_map
from zraft_core.wire.stat import Znode
from zraft_core.znodes.outcome import Outcome
from zraft_core.znodes.stat import Stat
from zraft_core.znodes.txn import (
    ADD,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    MULTI,
    PUT,
    SET_DATA,
    TOPICS,
    Command,
)

_packer = msgpack.Packer(use_bin_type=True, autoreset=True)
_pack = _packer.pack

BIN_16_BYTES_MAX: Final = 0xFFFF
"""The longest binary whose length MessagePack writes in two bytes."""

_RECORDS: Final[Mapping[type, Record[Any]]] = {
    record.of: record
    for record in (
        *RESULTS.values(),
        *topic_results.RESULTS.values(),
        topic_results.NOT_TAKEN,
    )
}

# -- answers


def encode_result(number: int, zxid: int, result: object = None) -> bytes:
    """Return the bytes of a result, which is of one of the declared classes; None: there is nothing more to say."""
    answer: dict[str, Any] = {"id": number, "type": "result", "success": True, "zxid": zxid}
    if result is not None:
        answer |= _RECORDS[type(result)].pack_map(result)
    return _pack(answer)  # type: ignore[no-any-return]


def encode_large_data(number: int, zxid: int, data: bytes, stat: Stat) -> tuple[bytes, bytes]:
    """Return what is before the data of a znode that are too large to be copied, and the data.

    They are those of a `ReadResult` in another order.
    """
    assert len(data) > BIN_16_BYTES_MAX, f"{len(data)} bytes are not large"
    head = encode_result(number, zxid, SetResult(stat))
    # A map of five becomes one of six, whose last value follows.
    return b"\x86" + head[1:] + _DATA + b"\xc6" + len(data).to_bytes(4), data


def encode_outcome(number: int, command: Command, outcome: Outcome) -> bytes:
    """Return the bytes of what a write came to."""
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


def encode_put(number: int, zxid: int, position: int, stat: Sequence[int]) -> bytes:
    """Return what `encode_outcome` makes of a put that succeeded, in one step: the most frequent write."""
    return _pack(  # type: ignore[no-any-return]
        {
            "id": number,
            "type": "result",
            "success": True,
            "zxid": zxid,
            "position": position,
            "version": stat[4],
            "mzxid": stat[1],
        }
    )


def _fields(opcode: int, body: Any) -> dict[str, Any]:
    """Return the fields of one command that succeeded."""
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
    """Return whether a kept outcome can be that of this command.

    A client may give one `seq` to two requests, and must not. Of two requests of one form, such as a put and a set, the
    second gets the first one's answer.
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
    error = failure_text(code, command)
    index: int | None = None
    codes: tuple[str, ...] | None = None
    if command[0] == MULTI and body is not None:
        parts = [Code(part) for part, _ in body]
        index = next((place for place, part in enumerate(parts) if part is not Code.OK), 0)
        codes = tuple([part.name for part in parts])
        error = f"operation {index}: {failure_text(code, command[1][index])}; nothing was changed"
    retriable = code in RETRIABLE
    return encode_failure(number, Failure(code.name, error, retriable, False, zxid, position, index, codes))


def encode_diagnostic(number: int, zxid: int, fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a server's account of itself, in which Zatt's fields stand under Zatt's names."""
    return _pack({"id": number, "type": "result", "success": True, "zxid": zxid, **fields})  # type: ignore[no-any-return]


# -- dictionaries: values are stored packed, and are put into answers as they are


def encode_entry(number: int, zxid: int, packed_value: bytes, node: Znode) -> bytes:
    """Return the bytes of an entry that is there."""
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
_NEXT: Final = _pack("next")


def encode_missing(number: int, zxid: int) -> bytes:
    """Return the bytes of the answer for a key that is not there."""
    return _pack(  # type: ignore[no-any-return]
        {
            "id": number,
            "type": "result",
            "success": True,
            "zxid": zxid,
            "found": False,
            "value": None,
            "version": None,
            "mzxid": None,
        }
    )


def map_of(entries: Sequence[bytes]) -> bytes:
    """Return the map of entries [key, value] that are packed already.

    A pair's bytes without its array's header are in it.
    """
    head: bytes = _packer.pack_map_header(len(entries))
    return head + b"".join([entry[1:] for entry in entries])


def encode_state(number: int, zxid: int, entries: Sequence[bytes]) -> bytes:
    """Return the bytes of all of a dictionary."""
    head = encode_result(number, zxid)
    return b"\x85" + head[1:] + _STATE + map_of(entries)  # type: ignore[no-any-return]


def item_of(entry: bytes, version: int, mzxid: int) -> bytes:
    """Return [key, value, version, mzxid] of an entry [key, value]."""
    return b"\x94" + entry[1:] + _pack(version) + _pack(mzxid)  # type: ignore[no-any-return]


def gone_of(packed_key: bytes) -> bytes:
    """Return [key], which says that the key is gone."""
    return b"\x91" + packed_key


def array_of(items: Sequence[bytes]) -> bytes:
    """Return the array of items that are packed already."""
    head: bytes = _packer.pack_array_header(len(items))
    return head + b"".join(items)


def encode_items(number: int, zxid: int, items: Sequence[bytes], following: str | None) -> bytes:
    """Return the bytes of a page of a dictionary with the cursor of the next one, None after the last."""
    head = encode_result(number, zxid)
    return b"\x86" + head[1:] + _NEXT + _pack(following) + _ITEMS + array_of(items)  # type: ignore[no-any-return]


# -- what is pushed


def encode_changes(number: int, zxid: int, items: Sequence[bytes], *, initial: bool, complete: bool) -> bytes:
    """Return the bytes of a push of entries of a dictionary as they are now, or that are gone."""
    head = _pack({"id": number, "type": "changes", "zxid": zxid, "initial": initial, "complete": complete})
    return b"\x86" + head[1:] + _CHANGES + array_of(items)  # type: ignore[no-any-return]


def encode_log_entries(number: int, zxid: int, entries: EntriesPush) -> bytes:
    """Return the bytes of a push of entries of a log, in order."""
    return _pack({"id": number, "type": "entries", "zxid": zxid, **ENTRIES.pack_map(entries)})  # type: ignore[no-any-return]


def encode_event(number: int, zxid: int, event_type: int, path: str) -> bytes:
    """Return the bytes of an event of a lasting watch."""
    event = EVENT.pack_map(EventPush(EVENT_KINDS[event_type], path))
    return _pack({"id": number, "type": "event", **event, "zxid": zxid})  # type: ignore[no-any-return]
