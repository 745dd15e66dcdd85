"""Telling systemd, or whatever else started this process and asks for it, that the server is ready and what it does.

The protocol is sd_notify's: datagrams of `NAME=VALUE` lines to the socket that NOTIFY_SOCKET names. A server is ready
when it listens. Whether it serves depends on the other servers, which may be started after it, so that is its status.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final

import structlog

VARIABLE: Final = "NOTIFY_SOCKET"

STATUS_CHARACTERS_MAX: Final = 200
"""A reason may name any number of servers; `systemctl status` has one line for it."""

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

log = structlog.get_logger()


class ServiceManager:
    """The program that manages this process, and what it knows of it."""

    def __init__(self, address: str) -> None:
        """`address` is the path of a datagram socket, or `@` and the name of an abstract one."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        self._told = b""

    def tell(self, state: str, status: str) -> None:
        """Send `state` (READY or STOPPING) and a line for people, unless they are what was sent last.

        It never waits: what a full socket does not take is sent by the next call. After any other error nothing more is
        sent, and the log says so.
        """
        if self._socket is None:
            return
        line = " ".join(status.split())[:STATUS_CHARACTERS_MAX]
        message = f"{state}\nSTATUS={line}\n".encode()
        if message == self._told:
            return
        try:
            self._socket.sendto(message, self._address)
        except BlockingIOError:
            return
        except OSError as error:
            log.warning(
                "the service manager is not told that this server is ready",
                variable=VARIABLE,
                error=str(error),
            )
            self.close()
            return
        self._told = message

    def close(self) -> None:
        """Send nothing more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def service_manager(environ: Mapping[str, str]) -> ServiceManager | None:
    """Return the program that `environ` names; None if there is none, or one that is reached by other means."""
    address = environ.get(VARIABLE, "")
    if not address:
        return None
    if address[0] not in "/@":
        log.warning(
            "expected a path or an abstract socket, nothing is told", variable=VARIABLE, found=address
        )
        return None
    return ServiceManager(address)
