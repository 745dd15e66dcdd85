"""Messages without an id, which are Zatt's: how they are read, whatever else they carry, and how they are answered.

Source: docs/reference/protocol-native.md, "Zatt's messages".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgpack
from attrs import frozen

from zraft_core.errors import MarshallingError, ProtocolError
from zraft_core.layout import Field, Fields, Record, any_string, boolean, or_absent
from zraft_core.messagepack import shown
from zraft_core.wire.dictionary import DEFAULT, directory_of
from zraft_core.wire.native.dictionary_requests import GetState
from zraft_core.wire.native.member_requests import CONFIG, Config, ReadDiagnostic, made_config
from zraft_core.wire.native.requests import REQUESTS, Read, Write, refusal
from zraft_core.wire.native.results import server

_pack: Final = msgpack.Packer().pack

Asked = Write | Read | Config
"""Any message without an id."""

ZATTS: Final[Mapping[str, Fields[Asked]]] = {
    "get": Fields(
        "get", lambda: Read(None, "get", GetState(directory_of(DEFAULT)), linearizable=True), {}, ignores=True
    ),
    "append": Fields(
        "append",
        lambda command, forward: Write(None, "append", command, forward=forward),
        {"data": REQUESTS["append"].fields["data"], "forward": Field(boolean, False)},
        ignores=True,
    ),
    "diagnostic": Fields(
        "diagnostic",
        lambda: Read(None, "diagnostic", ReadDiagnostic(), linearizable=False),
        {},
        ignores=True,
    ),
    "config": Fields("config", made_config, CONFIG, ignores=True),
}
"""Messages without an id, by their type."""


def decode_one_shot(message: Any) -> Asked:
    """Return the request of one of Zatt's messages, which carry no id: get, append, diagnostic, config.

    Raises:
        MarshallingError: it is none.
    """
    if message.__class__ is not dict:
        raise MarshallingError(f"a message that is {shown(message)}, expected a map")
    kind = message.get("type")
    fields = ZATTS.get(kind) if kind.__class__ is str else None
    if fields is None:
        raise MarshallingError(
            f"type: found {shown(kind)} in a message without id, expected {', '.join([*ZATTS][:-1])} or {[*ZATTS][-1]}: all "
            "others need an id"
        )
    try:
        return fields.unpack(message, fields.called)
    except MarshallingError:
        raise
    except ProtocolError as error:
        raise refusal(error) from error


# -- answers


@frozen
class ZattResult:
    """Answer to an append or a config without an id."""

    success: bool
    server: int | None = None
    code: str | None = None
    error: str | None = None


_ZATT: Final = Record(ZattResult, boolean, or_absent(server), or_absent(any_string), or_absent(any_string))


def encode_zatt_result(result: ZattResult) -> bytes:
    """Return the bytes of the answer to append and config."""
    return _pack({"type": "result", **_ZATT.pack_map(result)})  # type: ignore[no-any-return]


def encode_zatt_map(fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of the answer to diagnostic, which is the bare map."""
    return _pack(fields)  # type: ignore[no-any-return]
