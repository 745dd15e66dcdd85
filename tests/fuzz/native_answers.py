"""All that native clients may be told, from the declarations that servers and clients work by, and the judge of a message.

Clients take fields that they do not know, and words of a newer release. Here everything is held to what this release says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zraft_core.errors import Code, ProtocolError
from zraft_core.layout import Field, Fields, Record, boolean
from zraft_core.wire.native import pushes, results, topic_pushes, topic_results
from zraft_core.wire.native.failures import FAILURE, REDIRECT
from zraft_core.wire.native.requests import REQUESTS
from zraft_core.wire.native.topic_results import ReplicaRefusal

REFUSALS: Final = frozenset({"not_leader", "no_group", "busy", "gone", "timeout", "too_large", "failed"})
OF_RESULTS: Final = results.OF_RESULTS.map.fields
"""What every result has beside its type."""
OF_WRITES: Final = results.OF_WRITES.map.fields
"""What the result of every write has beside that."""
OF_PUSHED: Final = pushes.OF_PUSHED.map.fields
"""What every pushed message has beside its type."""


def _told(
    kind: str, own: Record[Any], *common: Mapping[str, Field], ignores: bool = False
) -> Fields[tuple[Any, ...]]:
    """The fields of a message of one kind, which may have no others."""
    fields = {name: field for some in (*common, own.map.fields) for name, field in some.items()}
    return Fields(kind, lambda *values: values, fields, skips="type", ignores=ignores)


RESULTS: Final[Mapping[str, Fields[Any]]] = {
    kind: _told(
        kind,
        own,
        OF_RESULTS,
        OF_WRITES if "seq" in getattr(REQUESTS.get(kind), "fields", ()) else {},
        ignores=kind == "diagnostic",
    )
    for kind, own in (*results.RESULTS.items(), *topic_results.RESULTS.items())
}
"""By the type of the request; `STATE` is that of a get without a key."""
STATE: Final = _told("get", results.STATE, OF_RESULTS)
_ANY: Final = _told("result", results.RESULTS["ping"], OF_RESULTS, ignores=True)

_ID_IF_KNOWN: Final = {"id": Field(OF_RESULTS["id"].form, None)}
REFUSED: Final[Mapping[str, Fields[Any]]] = {
    "error": _told("error", FAILURE, _ID_IF_KNOWN, {"success": Field(boolean)}),
    "redirect": _told("redirect", REDIRECT, _ID_IF_KNOWN),
}
"""What is not a result."""
PUSHED: Final[Mapping[str, Fields[Any]]] = {
    kind: _told(kind, own, OF_PUSHED)
    for kind, own in (*pushes.PUSHED.items(), ("replies", topic_pushes.REPLIES))
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


def compare(message: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    """Compare a message with its declaration, and its words with those that this release knows.

    Raises:
        ProtocolError: it is not what a client may be told.
    """
    fields = fields_of(message, request)
    if fields is None:
        raise ProtocolError(f"there is no such message to {request}")
    values = dict(zip(fields.fields, fields.unpack(message, fields.called), strict=True))
    if message["type"] == "error" and values["code"] not in Code.__members__:
        raise ProtocolError(f"error.code: there is no code {values['code']}")
    refused = values.get("refused") or ()
    for one in (refused,) if isinstance(refused, ReplicaRefusal) else refused:
        if one.kind not in REFUSALS:
            raise ProtocolError(f"refused.kind: there is no kind {one.kind}")
