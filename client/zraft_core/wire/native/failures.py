"""Answers that are no results: errors with their codes and words, and redirects.

Source: docs/reference/protocol-native.md, "Requests and answers".
"""

from __future__ import annotations

from typing import Final

import msgpack
from attrs import frozen

from zraft_core.errors import Code
from zraft_core.layout import Record, any_string, boolean, called, listed, number, or_absent, row
from zraft_core.wire.native.results import MANY
from zraft_core.znodes.txn import (
    ADD,
    CREATE2,
    CREATE_TTL,
    MEMBERS,
    TRUNCATE,
    WILL,
    Command,
)

_pack: Final = msgpack.Packer().pack

RETRIABLE: Final = frozenset(
    {
        Code.CONNECTION_LOSS,
        Code.OPERATION_TIMEOUT,
        Code.RECONFIG_IN_PROGRESS,
        Code.REQUEST_TIMEOUT,
        Code.THROTTLED_OP,
    }
)
"""Codes after which the same request may succeed a little later."""

TEXTS: Final = {
    Code.SYSTEM_ERROR: "the cluster could not carry it out",
    Code.DATA_INCONSISTENCY: "the znode does not hold what a dictionary's entry is",
    Code.MARSHALLING_ERROR: "the cluster does not understand the command",
    Code.UNIMPLEMENTED: "the cluster does not know this command, or it is switched off",
    Code.BAD_ARGUMENTS: "a path that no znode can have, or data that are too long",
    Code.NEW_CONFIG_NO_QUORUM: "no voting member would be left",
    Code.RECONFIG_IN_PROGRESS: "the cluster is still writing down who its members are",
    Code.RECONFIG_DISABLED: "members are not changed by clients here; set client.reconfig_enabled, or use `zraft member`",
    Code.NO_NODE: "there is no such znode",
    Code.NO_AUTH: "the client has not the right to do this",
    Code.BAD_VERSION: "the version is not the one that was expected",
    Code.NO_CHILDREN_FOR_EPHEMERALS: "an ephemeral znode has no children",
    Code.NODE_EXISTS: "it exists already",
    Code.NOT_EMPTY: "the znode has children",
    Code.SESSION_EXPIRED: "there is no such session, or no longer, or the password is another one",
    Code.INVALID_ACL: "the ACL is empty, or names an unknown scheme or a bad id",
    Code.AUTH_FAILED: "the client's credentials prove nothing",
    Code.SESSION_MOVED: "the session has moved to another connection",
    Code.QUOTA_EXCEEDED: "a quota would be exceeded",
    Code.THROTTLED_OP: "too many numbered requests are not acknowledged: raise the floor, then repeat it",
    Code.RUNTIME_INCONSISTENCY: "an operation before it failed",
}

_BAD_ARGUMENTS: Final = {
    ADD: "the value is no integer, or would leave 64 bits",
    CREATE2: "a path that no znode can have, data that are too long, or an ephemeral znode without a session",
    CREATE_TTL: "a path that no znode can have, data that are too long, or a time to live out of bounds",
    TRUNCATE: "`first` is below where the log begins already, or a path is none that a znode can have",
    WILL: "a parent or prefix that no znode can have",
}
"""Texts of the code `BAD_ARGUMENTS` for commands of which more can be said."""


# -- their fields


@frozen
class Failure:
    """Fields of an error, beside its id and its type.

    Attributes:
        code: the name of a code.
        error: the same in words.
        retriable: the same request may succeed a little later.
        unknown: the request may have happened.
        zxid: that of a write that was decided.
        position: its place among all commands.
        index: the operation of a multi that failed.
        codes: the codes of all its operations.
    """

    code: str
    error: str
    retriable: bool
    unknown: bool
    zxid: int | None = None
    position: int | None = None
    index: int | None = None
    codes: tuple[str, ...] | None = None


@frozen
class Redirect:
    """Answer that sends a client to the leader, at (host, port)."""

    leader: tuple[str, int]


FAILURE: Final = Record(
    Failure,
    called(any_string, "the name of a code"),
    any_string,
    boolean,
    boolean,
    or_absent(number),
    or_absent(number),
    or_absent(number),
    or_absent(listed(any_string, MANY)),
)
REDIRECT: Final = Record(Redirect, row(host=any_string, port=number))


def encode_failure(number: int | None, failure: Failure) -> bytes:
    """Return the bytes of an error; one without a number is about the stream."""
    answer = {} if number is None else {"id": number}
    return _pack(answer | {"type": "error", "success": False} | FAILURE.pack_map(failure))  # type: ignore[no-any-return]


def encode_error(
    number: int | None, code: Code, error: str, *, retriable: bool | None = None, unknown: bool = False
) -> bytes:
    """Return the bytes of an error.

    `retriable` None: as the code says. `unknown`: the request may have happened.
    """
    return encode_failure(
        number, Failure(code.name, error, code in RETRIABLE if retriable is None else retriable, unknown)
    )


def encode_redirect(number: int | None, host: str, port: int) -> bytes:
    """Return the bytes that send a client to the leader, in Zatt's form."""
    answer = {} if number is None else {"id": number}
    return _pack(answer | {"type": "redirect"} | REDIRECT.pack_map(Redirect((host, port))))  # type: ignore[no-any-return]


# -- words


def failure_text(code: Code, command: Command) -> str:
    """Return why a command failed, in words."""
    path = path_of(command)
    if code is Code.BAD_ARGUMENTS and command[0] in _BAD_ARGUMENTS:
        return f"{path or '/'}: {_BAD_ARGUMENTS[command[0]]}"
    if code is Code.BAD_VERSION and command[0] == MEMBERS:
        return "the members were changed meanwhile; look and try again"
    return text_of(code, path)


def path_of(command: Command) -> str | None:
    """Return the znode that a command is about, None if it is about none."""
    path = command[1] if len(command) > 1 else None
    return path if isinstance(path, str) else None


def text_of(code: Code, path: str | None = None) -> str:
    """Return an error in words."""
    text = TEXTS.get(code, code.name.lower().replace("_", " "))
    return text if path is None else f"{path}: {text}"
