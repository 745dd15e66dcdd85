"""The tables of docs/reference/protocol-native.md: which fields requests and answers have, and what may stand in each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import NOTHING

from tests.fuzz import native_answers as told
from zraft_core.layout import Field, Fields
from zraft_core.wire.native.fields import ABSENT
from zraft_core.wire.native.requests import OF_READS, OF_WRITES, REQUESTS, SUBSCRIBE

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Titles and rows."""

_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Session": ("hello", "ping", "close", "auth", "will"),
    "Write": (
        *("put", "delete", "increment", "create", "set", "remove", "multi", "truncate", "append", "config"),
    ),
    "Read": (
        *("get", "items", "size", "read", "exists", "children", "owners", "log", "sync"),
        *("diagnostic", "members"),
    ),
    "Group 0": (
        *("create_topic", "alter_topic", "retain_topic", "delete_topic"),
        *("register_producer", "close_producer", "topics"),
    ),
    "Consuming": ("fetch", "need"),
    "Sharing": ("claim", "claims", "seek", "offset", "consumers"),
}
"""What has results, by the first title of its table."""


def tables() -> list[Table]:
    """All tables."""
    made: list[Table] = []
    for title, kinds in _SECTIONS.items():
        rows: list[tuple[str, ...]] = [(kind, _asked(REQUESTS[kind]), _result(kind)) for kind in kinds]
        if title == "Write":
            rows.insert(0, ("every write", _fields(OF_WRITES, {"id"}), _names(told.OF_WRITES)))
        if title == "Read":
            rows.insert(0, ("every read", _fields(OF_READS, {"id"}), ""))
            rows.insert(2, ("get, no `key`", "", _names(told.STATE.fields, told.OF_RESULTS)))
        made.append(((title, "Fields", "Result"), rows))
    ordinary = [fields for what, fields in SUBSCRIBE.items() if what != "producer"]
    others = [REQUESTS["credit"], REQUESTS["unsubscribe"]]
    made.append((("Subscription", "Fields"), [_row(fields) for fields in (*ordinary, *others)]))
    stream = [_row(fields) for fields in (SUBSCRIBE["producer"], REQUESTS["produce"])]
    made.append((("Stream", "Fields"), stream))
    pushed: dict[str, str] = {
        kind: _names(fields.fields, told.OF_PUSHED) for kind, fields in told.PUSHED.items()
    }
    replies = pushed.pop("replies")
    made.append((("Pushed", "Fields"), [*pushed.items()]))
    made.append((("Pushed to a stream", "Fields"), [("replies", replies)]))
    made.append((("Field", "Of", "Value"), _values((*REQUESTS.values(), *SUBSCRIBE.values()))))
    answers = (*told.RESULTS.values(), told.STATE, *told.PUSHED.values(), told.REFUSED["error"])
    made.append((("Told", "In", "Value"), _values(answers)))
    return made


def _row(fields: Fields[Any]) -> tuple[str, ...]:
    return fields.called, _asked(fields)


def _asked(fields: Fields[Any]) -> str:
    """The fields of a request beside those that others of its sort have as well."""
    return _fields(fields.fields, {"id"} | _sort(fields).keys())


def _sort(fields: Fields[Any]) -> Mapping[str, Field]:
    for common in (OF_WRITES, OF_READS):
        if common.items() <= fields.fields.items():
            return common
    return {}


def _fields(fields: Mapping[str, Field], known: Iterable[str]) -> str:
    return ", ".join(f"`{name}`{_default(one)}" for name, one in fields.items() if name not in known)


def _default(field: Field) -> str:
    value = field.default
    if value is NOTHING:
        return ""
    if value is ABSENT:
        return " or not"
    if isinstance(value, str):
        return f' = "{value}"'
    return f" = {'nil' if value is None else _numbers(str(value).lower())}"


def _result(kind: str) -> str:
    known = {*told.OF_RESULTS, *told.OF_WRITES} if "seq" in REQUESTS[kind].fields else told.OF_RESULTS.keys()
    return _names(told.RESULTS[kind].fields, known)


def _names(fields: Mapping[str, Field], known: Iterable[str] = ()) -> str:
    return ", ".join(f"`{name}`" for name in fields if name not in known)


# -- what stands in fields


def _values(all_fields: Iterable[Fields[Any]]) -> list[tuple[str, ...]]:
    """A row for each name and what stands under it, with where it does."""
    where: dict[tuple[str, str], list[str]] = {}
    for fields in all_fields:
        for name, field in fields.fields.items():
            kinds = where.setdefault((name, _numbers(field.form.expected)), [])
            kind = _group(name, fields)
            if kind not in kinds:
                kinds.append(kind)
    return [(f"`{name}`", ", ".join(kinds), value) for (name, value), kinds in sorted(where.items())]


def _group(name: str, fields: Fields[Any]) -> str:
    """What a row says of a field: the type of its request, or of many requests."""
    if name == "id":
        return "all"
    if fields is told.STATE or fields in told.RESULTS.values():
        if name in told.OF_RESULTS:
            return "every result"
        if name in told.OF_WRITES and fields.called != "topics":
            return "every write"
    if name in _sort(fields):
        return "every write" if _sort(fields) is OF_WRITES else "every read"
    return fields.called


_LARGE: Final = 1 << 20


def _numbers(text: str) -> str:
    """The text with large numbers as powers of two, and long ones with commas."""
    return re.sub(r"-?\d{4,}", lambda found: _number(int(found[0])), text)


def _number(value: int) -> str:
    size = abs(value)
    if size >= _LARGE and size & (size - 1) == 0:
        return f"{'-' if value < 0 else ''}2^{size.bit_length() - 1}"
    if size >= _LARGE and size & (size + 1) == 0:
        return f"2^{size.bit_length()} - 1"
    return f"{value:,}"
