"""Histories of clients of real servers: one record per thing that a client saw, as values and as JSON lines.

A client's records stand in the order in which it saw them: an operation at its answer (or when it was given up),
an event where it arrived among the answers. Times are microseconds of one monotonic clock that all clients of a run
share. The schema for other readers is in docs/explanation/testing.md, "Recorded histories".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

from attrs import asdict, frozen

from zraft_core.errors import ProtocolError

SCHEMA: Final = 1
"""Written as first line of every file; raised when a field changes its meaning."""


class Outcome(StrEnum):
    """Outcomes of an operation, as its client knows them."""

    OK = "ok"
    FAIL = "fail"
    """Refused with a code: it had no effect, and the code says what was found."""
    UNKNOWN = "unknown"
    """No answer: it took effect at any time after it was asked, perhaps much later, or never."""


class Kind(StrEnum):
    """Kinds of operations.

    A SYNC_GET is a sync and a getData on one connection: its interval begins with the sync.
    """

    CREATE = "create"
    SET = "set"
    DELETE = "delete"
    GET = "get"
    SYNC_GET = "sync get"
    CHILDREN = "children"
    SYNC_CHILDREN = "sync children"
    MULTI_SET = "multi set"
    """setData of `path` and of `further`, all with `value`, and all of them conditional on `expected` of `path`."""
    ADD_WATCH = "add watch"
    """A persistent recursive watch on `path`."""
    RESTORE_WATCHES = "restore watches"
    CLOSE = "close"


WRITES: Final = frozenset({Kind.CREATE, Kind.SET, Kind.DELETE, Kind.MULTI_SET})
READS: Final = frozenset({Kind.GET, Kind.SYNC_GET})


@frozen(kw_only=True)
class Operation:
    """One request and what became of it."""

    client: int
    session: int
    server: int
    """The server that the client was connected to."""
    kind: Kind
    path: str
    invoked_us: int
    returned_us: int | None
    """None if and only if the outcome is unknown."""
    outcome: Outcome
    code: int = 0
    """ZooKeeper's, 0 if ok or unknown."""
    zxid: int = 0
    """The zxid of the answer's header: of a write its own, of a read the last one its server had applied."""
    value: str | None = None
    """The value that was written, or that was read."""
    expected: int = -1
    """The version that a write was conditional on, -1 for any."""
    version: int | None = None
    """The version of the data, as the answer shows it."""
    mzxid: int | None = None
    owner: int = 0
    """ephemeralOwner that a read shows."""
    ephemeral: bool = False
    """True for a create of an ephemeral znode."""
    created: str | None = None
    """The path that a create was answered with: with its number, if it is sequential."""
    names: tuple[str, ...] = ()
    """The names of children, sorted."""
    further: tuple[str, ...] = ()
    watch: bool = False
    """A read that left a one-shot watch on data (if it was ok), or on existence (if there was no such znode)."""


@frozen(kw_only=True)
class Event:
    """A watch fired."""

    client: int
    session: int
    server: int
    at_us: int
    type: int
    """1 created, 2 deleted, 3 data changed, 4 children changed."""
    path: str
    zxid: int


@frozen(kw_only=True)
class Connected:
    """A server took the session, or, with `resumed` false, made it."""

    client: int
    session: int
    server: int
    at_us: int
    timeout_ms: int
    resumed: bool


@frozen(kw_only=True)
class Disconnected:
    """The connection ended, from whichever side."""

    client: int
    session: int
    server: int
    at_us: int


@frozen(kw_only=True)
class Expired:
    """A server said that the session is gone."""

    client: int
    session: int
    server: int
    at_us: int
    heard_us: int
    """When the client sent the last thing that was answered within the session."""
    timeout_ms: int


Record = Operation | Event | Connected | Disconnected | Expired
_TYPES: Final[dict[str, type[Record]]] = {
    "operation": Operation,
    "event": Event,
    "connected": Connected,
    "disconnected": Disconnected,
    "expired": Expired,
}
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}
_TUPLES: Final = ("names", "further")


def heading(client: int, seed: int) -> str:
    """Return the first line of a client's file."""
    return json.dumps({"record": "history", "schema": SCHEMA, "client": client, "seed": seed})


def encode(record: Record) -> str:
    """Return a record as one line, without its end."""
    return json.dumps({"record": _NAMES[type(record)], **asdict(record)}, separators=(",", ":"))


def decode(line: str) -> Record:
    """Return the record of a line.

    Raises:
        ProtocolError: the line is no record of this schema; the message says what it is.
    """
    try:
        fields: dict[str, Any] = json.loads(line)
        made = _TYPES[fields.pop("record")]
        for name in _TUPLES:
            if name in fields:
                fields[name] = tuple(fields[name])
        if made is Operation:
            fields["kind"], fields["outcome"] = Kind(fields["kind"]), Outcome(fields["outcome"])
        return made(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(
            f"history: expected a record of schema {SCHEMA}, found {line[:200]!r}: {error}"
        ) from error


def decode_file(lines: Iterable[str]) -> Iterator[Record]:
    """Yield the records of one client's file.

    Raises:
        ProtocolError: it does not begin with a heading of this schema, or a line is no record.
    """
    rows = iter(lines)
    first = next(rows, "")
    try:
        schema = json.loads(first)["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError(f"history: expected a heading, found {first[:200]!r}") from error
    if schema != SCHEMA:
        raise ProtocolError(
            f"history: schema {schema}, expected {SCHEMA}: read it with the release that wrote it"
        )
    for row in rows:
        yield decode(row)


@frozen
class Violation:
    """A broken promise: which, and the evidence."""

    checker: str
    found: str


def operations(histories: Iterable[Iterable[Record]]) -> Iterator[Operation]:
    """Yield all operations of all clients."""
    for history in histories:
        for record in history:
            if isinstance(record, Operation):
                yield record


def describe(operation: Operation) -> str:
    """Return an operation as a text for people."""
    end = "?" if operation.returned_us is None else f"{operation.returned_us / 1e6:.6f}"
    what = f"{operation.kind} {operation.path} value={operation.value!r} expected={operation.expected}"
    return (
        f"client {operation.client} session {operation.session:#x} server {operation.server}: {what} "
        f"[{operation.invoked_us / 1e6:.6f}, {end}] {operation.outcome} code={operation.code} "
        f"zxid={operation.zxid:#x} version={operation.version} mzxid={operation.mzxid}"
    )
