"""The sockets of one server, bound before anything else of it is done: a start that fails for a port changes nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from attrs import frozen

from zraft.config.server import ServerConfig
from zraft.program.listening import bind_tcp, bind_udp


@frozen
class ListeningSockets:
    """Bound, and not listening yet: whoever connects before the server can answer is refused.

    `peers` is for datagrams of the other servers, `clients` and `tls` are for clients, `admin` for the admin HTTP server.
    """

    peers: socket.socket
    clients: tuple[socket.socket, ...]
    tls: tuple[socket.socket, ...] = ()
    admin: tuple[socket.socket, ...] = ()


@contextmanager
def bound(config: ServerConfig) -> Iterator[ListeningSockets]:
    """Return the sockets that `config` asks for; they are closed at the end, also by whoever uses them.

    Raises:
        ConfigError: one cannot be bound; names the knob.
    """
    with ExitStack() as stack:

        def kept(sockets: tuple[socket.socket, ...]) -> tuple[socket.socket, ...]:
            for one in sockets:
                stack.enter_context(one)
            return sockets

        peers = stack.enter_context(bind_udp("address", config.address))
        clients = kept(bind_tcp("address", config.address))
        tls = kept(bind_tcp("tls.address", config.tls.address)) if config.tls.address is not None else ()
        admin = kept(bind_tcp("admin", config.admin)) if config.admin is not None else ()
        yield ListeningSockets(peers, clients, tls, admin)
