"""Sockets that others come to: bound to an address, or an error that says what is in the way and what to do about it."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any, Final

from zraft_core.address import Address
from zraft_core.errors import ConfigError

_ADVICE: Final = {
    errno.EADDRINUSE: "another process listens there: stop it, or choose another port",
    errno.EADDRNOTAVAIL: "this machine has no such address: name one that it has (`ip address` lists them), or 0.0.0.0 "
    "for all of them",
    errno.EACCES: "this user may not listen at ports that low: choose one above 1023",
}

_ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Such as the ::1 of a name on a machine without IPv6."""


def cannot_listen(error: OSError) -> str:
    """Return why nobody can listen there, and what to do: the end of a sentence."""
    number = error.errno or 0
    if isinstance(error, socket.gaierror):
        return f"{error.strerror}; expected an address or a name of this machine"
    reason = os.strerror(number) if number in errno.errorcode else str(error)
    return f"{reason}; {_ADVICE[number]}" if number in _ADVICE else reason


def bind_tcp(knob: str, address: Address) -> tuple[socket.socket, ...]:
    """Return a socket for each address that a host has.

    They do not listen yet: who connects is refused.

    Blocks while the name is looked up.

    Raises:
        ConfigError: one cannot be bound; names `knob`.
    """
    return _bind(knob, address, socket.SOCK_STREAM)


def bind_udp(knob: str, address: Address) -> socket.socket:
    """Return a socket at the first address that a host has.

    Blocks while the name is looked up.

    Raises:
        ConfigError: it cannot be bound; names `knob`.
    """
    return _bind(knob, address, socket.SOCK_DGRAM)[0]


def _bind(knob: str, address: Address, kind: socket.SocketKind) -> tuple[socket.socket, ...]:
    """Return sockets at all addresses for TCP, at the first for UDP.

    Those of a family that this machine does not have are left out.
    """
    made: list[socket.socket] = []
    absent: OSError | None = None
    try:
        hosts = address.listening_hosts if kind == socket.SOCK_STREAM else (address.host,)
        found = [
            one
            for host in hosts
            for one in socket.getaddrinfo(host, address.port, type=kind, flags=socket.AI_PASSIVE)
        ]
        for family, _, protocol, _, numeric in dict.fromkeys(found):
            try:
                made.append(_bound(family, kind, protocol, numeric))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
            if made and kind == socket.SOCK_DGRAM:
                break
        if not made:
            assert absent is not None, "a lookup that succeeds finds an address"
            raise absent
    except OSError as error:
        for one in made:
            one.close()
        name = "TCP" if kind == socket.SOCK_STREAM else "UDP"
        raise ConfigError(f"{knob}: cannot listen at {address} ({name}): {cannot_listen(error)}") from error
    return tuple(made)


def _bound(family: int, kind: int, protocol: int, numeric: Any) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        if kind == socket.SOCK_STREAM:
            # Connections of a process that was stopped a moment ago do not keep the port. Not for UDP: there Linux would
            # let a second process take half of the datagrams.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # TCP has a socket of its own for every IPv4 address, UDP takes both by one.
            both = kind == socket.SOCK_DGRAM and numeric[0] == "::"
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        sock.bind(numeric)
    except OSError:
        sock.close()
        raise
    return sock
