"""The TCP side of one client: bytes between asyncio and a sans-I/O `ZooKeeperConnection`, through TLS if it speaks that.

The first bytes tell TLS from plain text, and both from the streams of other servers and of operators, on the same port;
in plain text as inside of TLS, the first byte tells ZooKeeper's protocol from the native one. From then on a plain
connection pays for TLS with nothing.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from zraft.program.reading import read_buffer
from zraft.server.clients.budget import address_of
from zraft.server.clients.connection import UNCOUNTED_BYTES, ClientConnection, Phase
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft.server.engine.driver import Driver
from zraft.server.process.security.tls import CLIENT_HELLO, TlsError, TlsStream
from zraft.transport.bulk import MAGIC as STREAM
from zraft_core.errors import ProtocolError
from zraft_core.wire.native.framing import FIRST_BYTES

if TYPE_CHECKING:
    from zraft.server.process.security.client_tls import ClientTls

RECEIVE_BYTES: Final = 256 * 1024
"""One buffer for all connections of a loop: it is single-threaded, and allocating one per read costs more than the read."""

KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (
            (
                "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE",
                30,
            ),  # macOS has the other name
            ("TCP_KEEPINTVL", 10),
            ("TCP_KEEPCNT", 3),
        )
        if hasattr(socket, name)
    ),
)
"""A peer that is gone is noticed within a minute."""

NOT_SENT_BYTES_MAX: Final = 1024 * 1024
"""The kernel takes this much of a client's answers before they can leave. An answer of usual size still fits whole.

Without this bound it takes several megabytes for each client that does not read, and 500 of those use up what all TCP of a
machine may hold (`net.ipv4.tcp_mem`), to everybody's cost.
"""

NOT_SENT: Final = (
    ((socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOT_SENT_BYTES_MAX),)
    if hasattr(socket, "TCP_NOTSENT_LOWAT")
    else ()
)

IS_INHERITED: Final = sys.platform == "linux"
"""Whether connections have the options of the socket at which they came; elsewhere nobody promises that."""

_FOREIGN_FIRST_BYTES: Final = frozenset({CLIENT_HELLO[0], STREAM[0]})
"""What is not a client's plain text begins with one of these."""


class ClientHost(Protocol):
    """Interface of the process (`zraft.server.process.node`) to a client's connection."""

    driver: Driver

    def on_waiting(self, protocol: ClientProtocol) -> None:
        """Take note that the client must do something now.

        It asks for a session, or takes the rest of an answer and goes.
        """

    def on_protocol_paused(self, protocol: ClientProtocol) -> None:
        """Take note that the connection does not read for now, and is to be asked whether it may again."""

    def on_protocol_closed(self, protocol: ClientProtocol) -> None:
        """Stop looking at a connection that is closed, or reads again."""

    def on_protocol_lost(self, protocol: ClientProtocol) -> None:
        """Take note that the client's socket is gone."""

    def on_too_many_connections(self, address: str) -> None:
        """Take note that the client at `address` was turned away."""

    def on_stream(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over a connection that is no client's; `data` was already read from it."""


class ClientProtocol(asyncio.BufferedProtocol):
    """Protocol that feeds its connection and writes what the turn hands out."""

    def __init__(
        self, node: ClientHost, schedule: Callable[[], None], tls: ClientTls | None, *, plain: bool
    ) -> None:
        """Begin without a transport.

        `tls` is None on a server without TLS, `plain` says whether plain text may be spoken.
        """
        self._node = node
        self._schedule = schedule
        self._server_tls = tls
        self._plain = plain
        self._transport: asyncio.Transport | None = None
        self._connection: ClientConnection | None = None
        self._is_told = False
        """True once it is known which of the two protocols the client speaks."""
        self._tls: TlsStream | None = None
        self._held = b""
        """A first byte that may begin a frame or TLS."""
        self._take: Callable[[bytes], None] = self._take_first
        """The handler of bytes that arrived: the connection's own method, once it is known to be plain."""
        self._clients = node.driver.clients
        self._buffer = read_buffer("clients", RECEIVE_BYTES)
        self._narrow_buffer = self._buffer[:UNCOUNTED_BYTES]
        """The buffer where clients send more than is taken: what is read at once of each is then so little that the
        sum stays bounded.
        """
        self._writable = True
        self._reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the client; refuse it if there are too many."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are no subclasses
        peer = transport.get_extra_info("peername")
        host, port = (peer[0], peer[1]) if peer else ("unknown", 0)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        connection = self._clients.connect(address, (("ip", host),))
        if connection is None:
            self._node.on_too_many_connections(address)
            transport.abort()  # type: ignore[attr-defined]
            return
        self._connection = connection
        connection.handle = self
        if not IS_INHERITED:
            _set_options(transport, NOT_SENT)
        # Bytes that cannot be sent at once are counted from the first one on.
        transport.set_write_buffer_limits(high=0)  # type: ignore[attr-defined]
        self._node.on_waiting(self)

    @property
    def secure(self) -> bool:
        """True if the client speaks TLS."""
        return self._tls is not None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that asyncio reads into; it is shared by all connections of this loop."""
        return self._buffer if self._clients.sums.is_wide else self._narrow_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Give the bytes that arrived to the connection, through TLS if the client speaks it."""
        connection = self._connection
        if connection is None:
            return
        # First, so that the moment of arrival is known to whoever measures; the turn itself comes after all reads.
        self._schedule()
        self._take(bytes(self._buffer[:nbytes]))
        connection = self._connection  # a native one by now, or somebody else's
        if connection is not None and not connection.account():
            self._pause()

    def eof_received(self) -> bool:
        """Close the connection when the client closes its side."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, here and in the driver."""
        connection, self._connection = self._connection, None
        self._node.on_protocol_lost(self)
        if self._tls is not None:
            self._over()
        if connection is not None:
            connection.handle = None
            # One that was over, and had told its client everything, leaves nothing that others waited for.
            is_over = connection.phase is Phase.CLOSED and not connection.unsent
            connection.connection_lost()
            if not is_over:
                self._schedule()
        self._transport = None

    def pause_writing(self) -> None:
        """Stop reading and answering, since the socket's buffer is full."""
        # A client that does not read its replies gets no more of its requests read, nor answered: memory stays bounded.
        self._writable = False
        self._pause()

    def resume_writing(self) -> None:
        """Continue, since the socket's buffer has room."""
        self._writable = True
        self._left_unsent(0)
        self.maybe_resume()

    def write(self, data: bytes, *, close: bool) -> None:
        """Send what the turn handed out."""
        transport = self._transport
        if transport is None:
            return
        tls = self._tls
        if tls is not None:
            try:
                if data:
                    data = tls.encrypt(data)
                if close:
                    data += tls.close()
            except TlsError:
                # This is reached only after the client broke the stream, which closes the connection by
                # itself.
                transport.abort()
                return
        if data:
            transport.write(data)
            if not self._writable:
                self._left_unsent(transport.get_write_buffer_size())
        if close:
            if self._writable or (self._connection is not None and self._connection.cut):
                # If everything has left, this cuts nothing off: asyncio only saves looking for what is still to leave.
                transport.abort()
                return
            transport.close()
            # A client that does not take the rest of its answer is not waited for.
            self._node.on_waiting(self)

    def abort(self) -> None:
        """End the connection without what is still to be sent."""
        if self._transport is not None:
            self._transport.abort()

    def maybe_resume(self) -> None:
        """Read again once both reasons to pause are gone."""
        if (
            not self._reading
            and self._writable
            and self._transport is not None
            and (self._connection is None or self._connection.wants_read)
        ):
            self._reading = True
            self._transport.resume_reading()
            self._node.on_protocol_closed(self)

    def on_deadline(self) -> None:
        """Close the connection: the time to ask for a session, or to take the rest of an answer and go, is over."""
        connection = self._connection
        if connection is None or connection.phase is Phase.CLOSED:
            if self._transport is not None:
                self._transport.abort()
        elif connection.phase is Phase.NEW:
            what = (
                "TLS handshake" if self._tls is not None and not self._tls.established else "connect request"
            )
            self._refuse(f"no {what} within client.handshake_timeout_ms")

    # -- TLS

    def step_handshake(self) -> None:
        """Go on with the handshake, if the connection still stands."""
        tls, server_tls, connection = self._tls, self._server_tls, self._connection
        assert tls is not None, "only TLS connections have handshakes"
        assert server_tls is not None, "there is no TLS without a certificate"
        if connection is None or connection.phase is Phase.CLOSED:
            self._over()
            return
        try:
            if not tls.handshake():
                self._send(tls.take_output())
                return
            connection.identify(server_tls.ids_of(tls.peer_certificate))
        except ProtocolError as error:
            server_tls.failed_total += 1
            self._over()
            self._refuse(str(error))
            return
        server_tls.established_total += 1
        self._over()
        self._send(tls.take_output())
        self._take_decrypted()

    def displace_handshake(self) -> None:
        """Close the connection, whose handshake others wait for: it took too long, or its address has too many."""
        self._over()
        self._refuse("its TLS handshake takes too long while tls.handshakes_max are under way")

    def _over(self) -> None:
        """Leave the handshakes under way, if it was one of them."""
        if self._server_tls is not None:
            self._server_tls.handshakes.finish(self)

    def _take_first(self, data: bytes) -> None:
        """Take the beginning of the connection, and see whether it is TLS."""
        data = self._held + data
        self._held = b""
        if data[0] in _FOREIGN_FIRST_BYTES and self._take_foreign(data):
            return
        if not self._plain:
            self._refuse("plain text, where only TLS is spoken (tls.required, or the port of tls.address)")
        elif self._connection is not None:
            self._take = self._told(self._connection, data).data_received
            self._take(data)

    def _take_foreign(self, data: bytes) -> bool:
        """Return whether these first bytes are, or may become, something else than a client's plain text."""
        if len(data) < len(CLIENT_HELLO) and CLIENT_HELLO.startswith(data):
            self._held = data
        elif data.startswith(CLIENT_HELLO):
            self._begin_tls(data)
        elif STREAM.startswith(data[: len(STREAM)]):
            if len(data) < len(STREAM):
                self._held = data
            else:
                self._hand_over(data)
        else:
            return False
        return True

    def _told(self, connection: ClientConnection, data: bytes) -> ClientConnection:
        """Return the connection that understands the first bytes of what the client itself says."""
        self._is_told = True
        if data[0] in FIRST_BYTES and isinstance(connection, ZooKeeperConnection):
            self._connection = connection = self._node.driver.clients.native(connection)
            transport = self._transport
            if transport is not None:
                # Without a session nothing else tells that the machine at the other end is gone.
                _set_options(transport, KEEP_ALIVE)
        return connection

    def _hand_over(self, data: bytes) -> None:
        """Hand over a connection of another server, or an operator.

        It proves itself by the cluster key, so TLS has no say.
        """
        transport, self._transport = self._transport, None  # the connection is none of ours from here on
        connection, self._connection = self._connection, None
        self._node.on_protocol_lost(self)
        if connection is not None:
            connection.handle = None
            connection.connection_lost()
        if transport is not None:
            self._node.on_stream(transport, data)

    def _begin_tls(self, data: bytes) -> None:
        if self._server_tls is None:
            self._refuse("TLS, which this server does not speak; set tls.certificate")
            return
        address = "" if self._connection is None else address_of(self._connection.address)
        self._tls = self._server_tls.begin(self, address)
        if self._tls is None:
            self._refuse("tls.handshakes_max handshakes are under way already")
            return
        self._take = self._take_encrypted
        self._take(data)

    def _take_encrypted(self, data: bytes) -> None:
        tls, server_tls = self._tls, self._server_tls
        assert tls is not None, "encrypted bytes of a connection without TLS"
        assert server_tls is not None, "there is no TLS without a certificate"
        if tls.established:
            tls.feed(data)
            self._take_decrypted()
            return
        try:
            tls.feed(data)
        except TlsError as error:
            self._over()
            self._refuse(str(error))
        else:
            server_tls.handshakes.feed(self)

    def _take_decrypted(self) -> None:
        tls, connection = self._tls, self._connection
        if tls is None or connection is None or connection.phase is Phase.CLOSED:
            return
        try:
            plain = tls.read()
        except TlsError as error:
            self._refuse(str(error))
            return
        output = tls.take_output()
        if output:
            self._send(output)
        if plain:
            if not self._is_told:
                connection = self._told(connection, plain)
            connection.data_received(plain)
        if tls.ended and self._transport is not None:
            # A plain connection ends in the same way: nothing is left to be said to somebody who has gone.
            self._node.driver.clients.close(connection)

    # -- the transport

    def _refuse(self, why: str) -> None:
        """Close, and tell the operator why."""
        self._take = _ignore
        if self._tls is not None:
            self._send(self._tls.take_output())  # the alert that tells the client why
        if self._connection is not None:
            self._node.driver.clients.refuse(self._connection, why)
            self._schedule()

    def _send(self, data: bytes) -> None:
        """Send what TLS says by itself."""
        transport = self._transport
        if data and transport is not None:
            transport.write(data)
            if not self._writable:
                self._left_unsent(transport.get_write_buffer_size())

    def _left_unsent(self, size: int) -> None:
        """Note that so much of what was written waits for the client to read."""
        connection = self._connection
        if connection is not None and self._node.driver.clients.left_unsent(connection, size):
            self._schedule()

    def _pause(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()
            self._node.on_protocol_paused(self)


def prepare_listener(listening: socket.socket) -> None:
    """Give a socket at which clients will come the options that their connections inherit."""
    for level, option, value in NOT_SENT:
        listening.setsockopt(level, option, value)


def _set_options(transport: asyncio.BaseTransport, options: Iterable[tuple[int, int, int]]) -> None:
    """Set options of a connection's socket: (level, option, value)."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        for level, option, value in options:
            sock.setsockopt(level, option, value)


def _ignore(data: bytes) -> None:
    """Ignore bytes of a connection that is refused, until its socket is closed."""
