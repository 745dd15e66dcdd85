"""Short histories by hand: operations with times and zxids, a line each."""

from __future__ import annotations

from typing import Any

from zraft.checkers.history import (
    Connected,
    Disconnected,
    Event,
    Expired,
    Kind,
    Operation,
    Outcome,
)
from zraft_core.errors import Code


def op(
    kind: Kind,
    path: str,
    at: tuple[int, int | None],
    *,
    client: int = 1,
    session: int | None = None,
    code: Code = Code.OK,
    **more: Any,
) -> Operation:
    """An operation from at[0] to at[1] us; without an end it is unknown, with a code it failed."""
    if at[1] is None:
        outcome = Outcome.UNKNOWN
    else:
        outcome = Outcome.FAIL if code else Outcome.OK
    return Operation(
        client=client,
        session=client if session is None else session,
        server=1,
        kind=kind,
        path=path,
        invoked_us=at[0],
        returned_us=at[1],
        outcome=outcome,
        code=int(code),
        **more,
    )


def wrote(path: str, at: tuple[int, int | None], value: str, **more: Any) -> Operation:
    return op(Kind.SET, path, at, value=value, **more)


def read(path: str, at: tuple[int, int | None], value: str, version: int, **more: Any) -> Operation:
    more.setdefault("kind", Kind.SYNC_GET)
    return op(more.pop("kind"), path, at, value=value, version=version, **more)


def connected(
    client: int = 1, at: int = 0, *, session: int | None = None, resumed: bool = False
) -> Connected:
    return Connected(
        client=client,
        session=client if session is None else session,
        server=1,
        at_us=at,
        timeout_ms=2_000,
        resumed=resumed,
    )


def disconnected(client: int = 1, at: int = 0) -> Disconnected:
    return Disconnected(client=client, session=client, server=1, at_us=at)


def expired(client: int = 1, at: int = 0, heard: int = 0, timeout_ms: int = 2_000) -> Expired:
    return Expired(client=client, session=client, server=1, at_us=at, heard_us=heard, timeout_ms=timeout_ms)


def event(path: str, zxid: int, type_: int = 3, *, client: int = 1, at: int = 0) -> Event:
    return Event(client=client, session=client, server=1, at_us=at, type=type_, path=path, zxid=zxid)
