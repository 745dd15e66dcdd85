"""Native request of several writes that happen all or not at all.

Source: docs/reference/protocol-native.md, "Writes".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zraft_core.layout import Fields, Form, listed, wrong
from zraft_core.wire.native import dictionary_requests, znode_requests
from zraft_core.znodes.txn import MULTI, Command

MULTI_OPERATIONS_MAX: Final = 4_096

_PARTS: Final[Mapping[str, Fields[Command]]] = {
    fields.called: fields
    for fields in (*dictionary_requests.PARTS, *znode_requests.WRITES, znode_requests.CHECK_PART)
}
"""The operations of a multi, each with its own fields; all but a check are writes, too."""


def _operation(value: Any, name: str) -> Command:
    if type(value) is not dict:
        raise wrong(name, "a map", value)
    kind = value.get("type")
    part = _PARTS.get(kind) if type(kind) is str else None
    if part is None:
        raise wrong(f"{name}.type", f"one of {', '.join(_PARTS)}", kind)
    return part.unpack(value, name)


WRITES: Final[tuple[Fields[Command], ...]] = (
    Fields.of(
        "multi",
        lambda operations: (MULTI, operations),
        operations=listed(Form(_operation, expected="a map of an operation"), MULTI_OPERATIONS_MAX),
    ),
)
"""Its own field; those of any write are beside it."""
