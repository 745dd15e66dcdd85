"""Errors of the client. Each tells first whether the request happened.

A program must treat three outcomes of an error differently:

- `FailedError`: it did not happen. `retriable` says whether asking again can help.
- `UnknownOutcomeError`: it happened or not. Only a write without exactly-once, one whose session ended, or one whose
  deadline passed while a server had it can end so.
- any other `ClientError`: the client itself cannot be used as asked (closed, forked).
"""

from __future__ import annotations

from typing import Any, Final

from zraft_core.errors import Code, ZraftError


class ClientError(ZraftError):
    """The base class of what the client library raises on purpose."""


class FailedError(ClientError):
    """The request did not happen. `code` is the server's (`Code.OK` if no server was asked)."""

    def __init__(self, message: str, code: Code = Code.OK, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retriable = retriable


class NoNodeError(FailedError, KeyError):
    """Error of a znode or a key that does not exist."""

    __str__ = FailedError.__str__


class NodeExistsError(FailedError):
    """The znode or key exists already."""


class BadVersionError(FailedError):
    """The version differs from the one that the write was conditional on."""


class NotEmptyError(FailedError):
    """The znode has children."""


class NoAuthError(FailedError, PermissionError):
    """The ACL does not allow it for the identities that this client has shown."""

    __str__ = FailedError.__str__


class AuthFailedError(FailedError, PermissionError):
    """The server did not believe the client's proof of its identity."""

    __str__ = FailedError.__str__


class BadArgumentsError(FailedError, ValueError):
    """The request makes no sense to the server; the message says what was found and expected."""


class QuotaExceededError(FailedError):
    """The request would exceed a quota."""


class UnimplementedError(FailedError):
    """The servers do not know this request or, in a cluster of mixed releases, not yet."""


class ThrottledError(FailedError):
    """The server accepts no more requests for now."""


class SessionExpiredError(FailedError):
    """The session had ended before the request was carried out."""


class ReconfigDisabledError(FailedError):
    """The servers' `client.reconfig_enabled` is off."""


class NotSentError(FailedError):
    """No server was asked within the deadline, or too many calls wait already (`pending_max`)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.CONNECTION_LOSS, retriable=True)


class DeadlineError(FailedError, TimeoutError):
    """A read was not answered, or a write was always refused, within the deadline of its call."""

    __str__ = FailedError.__str__

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.OPERATION_TIMEOUT, retriable=True)


class EncodingError(FailedError, TypeError):
    """MessagePack cannot hold a key or value, or a request is larger than `request_bytes_max`."""


class LockLostError(FailedError):
    """The lock, or the leadership, was lost: its session ended or its znode was removed."""


class StaleError(FailedError):
    """The copy of a dictionary has not heard from a server for longer than its policy allows."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.CONNECTION_LOSS, retriable=True)


class UnknownOutcomeError(ClientError):
    """The write may have happened, and, if `settled` is false, may yet happen.

    Once any later write of the same client and session was answered, it can happen no more: servers refuse
    what a session gave up. Without a session a copy of it may be under way for as long as a connection lasts.
    """

    def __init__(self, message: str, code: Code = Code.CONNECTION_LOSS, *, settled: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.settled = settled


class ClosedError(ClientError):
    """The client was closed."""


class ForkedError(ClientError):
    """The process was forked after this client was made; open another one in the child."""


class WireError(ClientError):
    """A server sent something that the protocol does not know; the connection is given up."""


class StreamRefusedError(WireError):
    """A server cannot follow the stream any more; it said why and closed the connection."""


_BY_CODE: Final[dict[Code, type[FailedError]]] = {
    Code.NO_NODE: NoNodeError,
    Code.NODE_EXISTS: NodeExistsError,
    Code.BAD_VERSION: BadVersionError,
    Code.NOT_EMPTY: NotEmptyError,
    Code.NO_AUTH: NoAuthError,
    Code.AUTH_FAILED: AuthFailedError,
    Code.BAD_ARGUMENTS: BadArgumentsError,
    Code.INVALID_ACL: BadArgumentsError,
    Code.QUOTA_EXCEEDED: QuotaExceededError,
    Code.UNIMPLEMENTED: UnimplementedError,
    Code.THROTTLED_OP: ThrottledError,
    Code.SESSION_EXPIRED: SessionExpiredError,
    Code.RECONFIG_DISABLED: ReconfigDisabledError,
}


def code_of(name: Any) -> Code:
    """Return the code of a name on the wire; for a name that this release does not know, `Code.SYSTEM_ERROR`."""
    return Code[name] if isinstance(name, str) and name in Code.__members__ else Code.SYSTEM_ERROR


def error_of(name: Any, text: Any, *, retriable: bool = False) -> FailedError:
    """Return what to raise for an answer of type "error" that certainly had no effect."""
    code = code_of(name)
    shown = str(text) if text else str(name)
    return _BY_CODE.get(code, FailedError)(shown, code, retriable=retriable)
