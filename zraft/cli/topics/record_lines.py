"""Records as lines of text, which `zraft topic produce` reads and `zraft topic consume` writes. Pure.

A line is a value, or a key and a value with a separator between them, or an object of JSON. In JSON bytes that are no
text stand as {"base64": "…"}, so that what one command writes is what the other one reads.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from zraft_client.topics.values import Record
from zraft_core.errors import ZraftError

FIELDS: Final = frozenset(("value", "key", "headers", "partition", "timestamp"))
TOLD: Final = frozenset(("topic", "offset", "stamp", "id"))
"""Further fields of what is written, which say nothing when it is read."""
_NO_HEADERS: Final[Mapping[str, bytes]] = {}


class LineError(ZraftError):
    """A line is no record."""


@frozen
class RecordLine:
    """One record that is to be sent.

    `partition` is None if the producer is to choose one, `timestamp` (ms since 1970) if it is the moment of sending.
    """

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] = _NO_HEADERS
    partition: int | None = None
    timestamp: int | None = None


def read_plain(line: bytes, separator: bytes | None) -> RecordLine:
    """Return the record of a line without its end; with a separator, the key stands before the first one.

    Raises:
        LineError: the separator is missing.
    """
    if separator is None:
        return RecordLine(line)
    key, found, value = line.partition(separator)
    if not found:
        raise LineError(
            f"found no separator {separator.decode(errors='replace')!r}, expected a key before one"
        )
    return RecordLine(value, key)


def read_json(line: bytes) -> RecordLine:
    """Return the record of an object with "value" and perhaps "key", "headers", "partition" and "timestamp".

    Raises:
        LineError: it is no such object.
    """
    try:
        found = json.loads(line)
    except ValueError as error:
        raise LineError(f"found no JSON ({error}), expected an object on a line of its own") from error
    if not isinstance(found, dict) or "value" not in found:
        raise LineError(f'found {_shown(found)}, expected an object with "value"')
    unknown = sorted(found.keys() - FIELDS - TOLD)
    if unknown:
        raise LineError(f"found a field {unknown[0]!r}, expected {', '.join(sorted(FIELDS))}")
    headers = found.get("headers") or {}
    if not isinstance(headers, dict):
        raise LineError(f"headers: found {_shown(headers)}, expected an object")
    for name in ("partition", "timestamp"):
        number = found.get(name)
        if number is not None and (type(number) is not int or not 0 <= number < 2**63):
            raise LineError(f"{name}: found {_shown(number)}, expected a number from 0 on")
    key = found.get("key")
    return RecordLine(
        _bytes(found["value"], "value"),
        None if key is None else _bytes(key, "key"),
        {name: _bytes(value, f"headers.{name}") for name, value in headers.items()},
        found.get("partition"),
        found.get("timestamp"),
    )


def _bytes(value: Any, name: str) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return b64decode(value["base64"], validate=True)
        except Error as error:
            raise LineError(f"{name}: found no base64 ({error})") from error
    raise LineError(f'{name}: found {_shown(value)}, expected a string or {{"base64": "…"}}')


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def plain_line(record: Record, separator: bytes | None) -> bytes:
    """Return a record's value as a line; with a separator, its key and the separator before it."""
    if separator is None:
        return record.value + b"\n"
    return (record.key or b"") + separator + record.value + b"\n"


def json_line(record: Record) -> bytes:
    """Return a record as an object of JSON on a line."""
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else _as_json(record.key),
        "value": _as_json(record.value),
        "headers": {name: _as_json(value) for name, value in record.headers.items()},
        "stamp": list(record.stamp),
        "id": list(record.id),
    }
    return json.dumps(shown, ensure_ascii=False).encode() + b"\n"


def _as_json(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
