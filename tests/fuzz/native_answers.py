"""The fields of what native clients are told: results by the type of their request, errors, redirects, and what is pushed.

Servers write these maps at once, since they are most of what a server writes. The fuzzer compares what they say with
these declarations, and the document's tables come from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zraft_core.errors import Code
from zraft_core.ids import SERVER_ID_MAX
from zraft_core.layout import (
    NUMBER_MAX,
    Field,
    Fields,
    Form,
    any_binary,
    any_string,
    anything,
    boolean,
    choice,
    from_one,
    integer,
    listed,
    number,
    optional,
    row,
    ruled,
)
from zraft_core.topics import forms
from zraft_core.topics.messages import Answer
from zraft_core.wire.native_answers import EVENT_KINDS, STAT_NAMES
from zraft_core.wire.native_requests import ID_MAX, INT64_MIN
from zraft_core.wire.native_topics import PASSWORD_BYTES
from zraft_core.znodes.stat import INT32_MAX

REFUSALS: Final = ("not_leader", "no_group", "busy", "gone", "timeout", "too_large", "failed")

_id: Final = integer(0, ID_MAX)
_int64: Final = integer(INT64_MIN, NUMBER_MAX)
_version: Final = integer(-1, INT32_MAX)
_server: Final = integer(0, SERVER_ID_MAX)
_many: Final = NUMBER_MAX
"""Items of one answer; what bounds them is its length."""


def _map(called: str, **forms: Form) -> Form:
    """A map of exactly these fields."""
    fields = Fields(called, lambda *values: values, {name: Field(form) for name, form in forms.items()})
    return Form(fields.unpack, expected=f"a map of {', '.join(forms)}")


_stat: Final = Form(
    _map("stat", **dict.fromkeys(STAT_NAMES, _int64)).unpack, expected="a map of ZooKeeper's eleven names"
)
_key: Final = anything("the key")
_value: Final = anything("the value")
_entry: Final = row(number=number, data=optional(any_binary), zxid=number)
_refusal: Final = row(
    group=number, kind=choice(*REFUSALS), leader=optional(_server), first=optional(number), words=any_string
)
_refused: Final = Field(optional(_refusal))
_reply: Final = (number, from_one, integer(0, len(Answer) - 1), boolean, optional(number), number, number)
_replies: Final = listed(
    Form(
        lambda value, name: row(*_reply, *([number] if len(value) > len(_reply) else [])).unpack(value, name),
        expected="[number of the message, group, answer, everywhere, offset, epoch, epoch of the group's view, and with "
        "`times` the time up to which the group has delivered]",
    ),
    _many,
)
_delivery: Final = row(offset=number, stamp=forms.stamp, message=any_binary)


def _said(**forms: Form | Field) -> dict[str, Field]:
    """Fields that are always there, but for those with a default."""
    return {name: form if isinstance(form, Field) else Field(form) for name, form in forms.items()}


def _or_absent(form: Form) -> Field:
    return Field(form, None)


def _told(
    kind: str, always: Mapping[str, Field], further: Mapping[str, Field], ignores: bool = False
) -> Fields[Any]:
    return Fields(kind, lambda *values: values, {**always, **further}, skips="type", ignores=ignores)


# -- results

OF_RESULTS: Final = _said(id=_id, success=boolean, zxid=number)
"""What every result has beside its type."""
OF_WRITES: Final = _said(position=number)
"""What the result of every write has beside that."""

_written: Final = _said(version=_version, mzxid=number)
_maybe_written: Final = {name: Field(field.form, None) for name, field in _written.items()}
_created: Final = _said(created=optional(number))
_WRITES: Final[Mapping[str, Mapping[str, Field]]] = {
    "put": _written,
    "delete": {},
    "increment": _said(value=_int64) | _written,
    "create": _said(path=any_string, stat=_stat),
    "set": _said(stat=_stat),
    "remove": {},
    "multi": _said(results=listed(anything("a map of what the operation has as a write"), _many)),
    "truncate": {},
    "will": {},
    "append": _maybe_written,
    "create_topic": _created,
    "retain_topic": _created,
    "alter_topic": _created,
    "delete_topic": _created,
    "register_producer": _created,
    "close_producer": _created,
}
_OTHERS: Final[Mapping[str, Mapping[str, Field]]] = {
    "hello": _said(
        session=_int64,
        password=ruled(any_binary, lambda value: len(value) == PASSWORD_BYTES, f"{PASSWORD_BYTES} bytes"),
        timeout_ms=number,
        server=_server,
        cluster=optional(any_binary),
    ),
    "ping": {},
    "close": {},
    "auth": _said(token=_or_absent(any_binary)),
    "config": _said(server=_server),
    "get": _said(found=boolean, value=_value, version=optional(_version), mzxid=optional(number)),
    "items": _said(
        next=optional(any_string),
        items=listed(row(key=_key, value=_value, version=_version, mzxid=number), _many),
    ),
    "size": _said(size=number),
    "read": _said(data=optional(any_binary), stat=_stat),
    "exists": _said(stat=optional(_stat)),
    "children": _said(names=listed(any_string, _many), stat=_stat),
    "owners": _said(
        owners=listed(
            row(name=any_string, session=_int64, silent_ms=optional(number), timeout_ms=number), _many
        ),
        leads=boolean,
    ),
    "log": _said(entries=listed(_entry, _many), next=number, first=number, end=number),
    "sync": {},
    "diagnostic": {},
    "members": _said(
        members=listed(
            _map("member", server=_server, address=any_string, part=any_string, leader=boolean), _many
        )
    ),
    "subscribe": {},
    "unsubscribe": {},
    "topics": _said(
        position=number,
        epoch=number,
        servers=anything("a map of ids to HOST:PORT"),
        digest=any_binary,
        destinations_max=number,
        features=number,
        topics=_or_absent(
            listed(
                row(
                    id=number,
                    name=any_string,
                    wanted=number,
                    groups=listed(number, _many),
                    adding=listed(number, _many),
                    retention_bytes=optional(number),
                    retention_age_ms=optional(number),
                ),
                _many,
            )
        ),
        groups=_or_absent(
            listed(
                row(group=number, topic=number, leader=optional(_server), servers=listed(_server, _many)),
                _many,
            )
        ),
        deleting=_or_absent(listed(number, _many)),
    ),
    "fetch": _said(
        partitions=listed(
            row(
                group=number,
                first=number,
                next=number,
                end=number,
                frontier=forms.stamp,
                deliveries=listed(_delivery, _many),
            ),
            _many,
        ),
        refused=listed(_refusal, _many),
    ),
    "need": {},
    "claim": _said(answer=_or_absent(any_binary), refused=_refused),
    "claims": _said(view=_or_absent(any_binary), refused=_refused),
    "seek": _said(offset=_or_absent(optional(number)), refused=_refused),
    "offset": _said(offset=_or_absent(optional(number)), refused=_refused),
}

RESULTS: Final[Mapping[str, Fields[Any]]] = {
    **{kind: _told(kind, OF_RESULTS | OF_WRITES, fields) for kind, fields in _WRITES.items()},
    **{
        kind: _told(kind, OF_RESULTS, fields, ignores=kind == "diagnostic")
        for kind, fields in _OTHERS.items()
    },
}
"""By the type of the request; `STATE` is that of a get without a key."""

_ANY: Final = _told("result", OF_RESULTS, {}, ignores=True)
STATE: Final = _told("get", OF_RESULTS, _said(state=anything("a map")))

# -- what is not a result

REFUSED: Final[Mapping[str, Fields[Any]]] = {
    "error": _told(
        "error",
        _said(
            id=_or_absent(_id),
            success=boolean,
            code=ruled(any_string, frozenset(code.name for code in Code).__contains__, "the name of a code"),
            error=any_string,
            retriable=boolean,
            unknown=boolean,
        ),
        _said(
            zxid=_or_absent(number),
            position=_or_absent(number),
            index=_or_absent(number),
            codes=_or_absent(listed(any_string, _many)),
        ),
    ),
    "redirect": _told("redirect", _said(id=_or_absent(_id)), _said(leader=row(host=any_string, port=number))),
}
OF_PUSHED: Final = _said(id=_id, zxid=number)
PUSHED: Final[Mapping[str, Fields[Any]]] = {
    kind: _told(kind, OF_PUSHED, fields)
    for kind, fields in {
        "changes": _said(
            initial=boolean,
            complete=boolean,
            changes=listed(anything("[key, value, version, mzxid], or [key] if it is gone"), _many),
        ),
        "entries": _said(entries=listed(_entry, _many), next=number, first=number),
        "event": _said(kind=choice(*EVENT_KINDS.values()), path=any_string),
        "replies": _said(replies=_replies, refused=listed(_refusal, _many)),
    }.items()
}
"""What subscriptions push, by its type."""


def fields_of(message: Mapping[str, Any], request: Mapping[str, Any]) -> Fields[Any] | None:
    """The fields of a message to a client; None if there is no such message.

    Args:
        message: what the client got.
        request: what it asked under the same id; without a type if nobody knows that.
    """
    kind = message.get("type")
    if kind != "result":
        return REFUSED.get(str(kind)) or PUSHED.get(str(kind))
    if "type" not in request:
        return _ANY
    asked = request["type"]
    return STATE if asked == "get" and "key" not in request else RESULTS.get(str(asked))
