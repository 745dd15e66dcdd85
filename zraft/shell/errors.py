"""Errors of the shell, in the words of ZooKeeper's command-line client where scripts may know them."""

from __future__ import annotations

from typing import Final

from zraft_core.errors import Code, ZraftError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


class ShellError(ZraftError):
    """A command did not do what it should; the shell continues with the next."""

    exit_code = EXIT_FAILED


class UsageError(ShellError):
    """A line is not a command: what was found, and what was expected. Nothing was sent to a server."""

    exit_code = EXIT_USAGE


class NotConnectedError(ShellError):
    """No server is connected, or the connection broke before the answer came."""

    retriable = True


class RefusedError(ShellError):
    """A server answered with an error code."""

    def __init__(self, code: Code, path: str | None, hint: str = "") -> None:
        super().__init__(refusal(code, path) + (f" ({hint})" if hint else ""))
        self.code = code
        self.path = path


_BY_PATH: Final = {
    Code.NO_NODE: "Node does not exist: ",
    Code.NO_CHILDREN_FOR_EPHEMERALS: "Ephemerals cannot have children: ",
    Code.NODE_EXISTS: "Node already exists: ",
    Code.NOT_EMPTY: "Node not empty: ",
    Code.NOT_READ_ONLY: "Not a read-only call: ",
    Code.INVALID_ACL: "Acl is not valid : ",
    Code.NO_AUTH: "Insufficient permission : ",
    Code.BAD_ARGUMENTS: "Arguments are not valid : ",
    Code.BAD_VERSION: "version No is not valid : ",
    Code.QUOTA_EXCEEDED: "Quota has exceeded : ",
}
_NAMES: Final = {
    Code.SYSTEM_ERROR: "SystemError",
    Code.RUNTIME_INCONSISTENCY: "RuntimeInconsistency",
    Code.DATA_INCONSISTENCY: "DataInconsistency",
    Code.CONNECTION_LOSS: "ConnectionLoss",
    Code.MARSHALLING_ERROR: "MarshallingError",
    Code.UNIMPLEMENTED: "Unimplemented",
    Code.OPERATION_TIMEOUT: "OperationTimeout",
    Code.API_ERROR: "APIError",
    Code.SESSION_EXPIRED: "Session expired",
    Code.AUTH_FAILED: "AuthFailed",
    Code.SESSION_MOVED: "Session moved",
    Code.EPHEMERAL_ON_LOCAL_SESSION: "Ephemeral node on local session",
    Code.NO_WATCHER: "No such watcher",
    Code.RECONFIG_IN_PROGRESS: "Reconfig is in progress",
    Code.NEW_CONFIG_NO_QUORUM: "No quorum of new config",
    Code.RECONFIG_DISABLED: "Reconfig is disabled",
}
_HINTS: Final = {
    Code.UNIMPLEMENTED: "this server does not know the operation, or it is switched off",
    Code.NO_AUTH: "see getAcl; addauth proves who you are",
}


def refusal(code: Code, path: str | None) -> str:
    """Return the sentence for an error code. What scripts may look for comes first, what people need after it."""
    if path is not None and code in _BY_PATH:
        text = _BY_PATH[code] + path
    else:
        text = f"KeeperErrorCode = {_NAMES.get(code, code.name)}" + (f" for {path}" if path else "")
    return f"{text} ({_HINTS[code]})" if code in _HINTS else text
