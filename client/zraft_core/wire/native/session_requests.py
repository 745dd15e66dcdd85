"""Native requests about a session: hello, ping, close, auth, and the command of a will.

Source: docs/reference/protocol-native.md, "Sessions".
"""

from __future__ import annotations

from typing import Any, Final

from attrs import NOTHING, field, frozen

from zraft_core.layout import Fields, any_binary, any_string, integer, number, optional, wrong
from zraft_core.wire.connect import NO_PASSWORD
from zraft_core.wire.native.fields import PASSWORD, data, int64, proof_of, request
from zraft_core.znodes.stat import INT32_MAX
from zraft_core.znodes.txn import WILL, Command


@frozen
class Hello:
    """A session, new or to be resumed; `last_zxid` is the last one that the client has seen."""

    id: int
    timeout_ms: int
    session: int
    password: bytes = field(repr=False)
    last_zxid: int


@frozen
class Ping:
    """Is anybody there? Also keeps the session alive."""

    id: int


@frozen
class Close:
    """End the session, if there is one, and the connection."""

    id: int


@frozen
class Authenticate:
    """The client says who it is, as in ZooKeeper's `auth`; with scheme sasl one step of a login."""

    id: int
    scheme: str
    credentials: bytes = field(repr=False)


SessionRequest = Hello | Ping | Close | Authenticate


def _hello(
    id: int, timeout_ms: int, session: int | None = None, password: Any = None, last_zxid: int = 0
) -> Hello:
    return Hello(
        id, timeout_ms, session or 0, proof_of("hello", password) if session else NO_PASSWORD, last_zxid
    )


def _will(parent: str | None = None, prefix: str | None = None, data: bytes | None = None) -> Command:
    if parent is None:
        return WILL, None, "", None
    if prefix is None:
        raise wrong("will.prefix", any_string.expected, NOTHING)
    return WILL, parent, prefix, data


WRITES: Final[tuple[Fields[Command], ...]] = (
    Fields.of("will", _will, parent=optional(any_string), prefix=optional(any_string), data=data),
)
"""Their own fields; those of any write are beside them."""

REQUESTS: Final[tuple[Fields[SessionRequest], ...]] = (
    request(
        "hello",
        _hello,
        timeout_ms=integer(0, INT32_MAX),
        session=optional(int64),
        password=PASSWORD,
        last_zxid=number,
    ),
    request("ping", Ping),
    request("close", Close),
    request("auth", Authenticate, scheme=any_string, credentials=any_binary),
)
