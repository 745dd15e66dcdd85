"""The UDP socket: reads datagrams in lists, sends without ever waiting, counts what is lost. Shell, asyncio.

Not a `DatagramProtocol`: asyncio gives that one datagram per turn of the loop, each read into a fresh 256 KiB
buffer, at five times the cost of the plain reads done here. Works on asyncio's selector loops and on uvloop.

The network may lose anything, and so may this socket: what cannot be sent now is counted and dropped. Where
a datagram came from is reported for logs only; `PeerLinks` decides who sent it.

Whoever reaches the port can fill the socket's buffer, and what peers send would be lost with the rest. So a peer that was
heard has a socket of its own on the same port, which the kernel gives nothing but what comes from that address.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, Self

from attrs import frozen

from zraft.program.listening import cannot_listen
from zraft_core.address import Address as HostAddress
from zraft_core.errors import ZraftError

SocketAddress = tuple[str, int] | tuple[str, int, int, int]
"""A numeric address as the socket module has it, IPv4 or IPv6."""

MAPPED: Final = "::ffff:"
"""In front of an IPv4 address at a socket that takes both."""

OnDatagrams = Callable[[list[tuple[bytes, SocketAddress]]], None]

DATAGRAMS_PER_WAKEUP_MAX: Final = 64
"""Then the loop gets its turn: a burst of datagrams must not hold up clients and timers for milliseconds."""

DATAGRAMS_PER_DRAIN_MAX: Final = 4_096
"""About what a receive buffer of 4 MB holds at 1,400 bytes. More than that is not "queued right now"."""

ALONE_MAX: Final = 15
"""A wake-up that looked for a second datagram in vain is followed by some that read only one: by 1, 3, 7, and then by so
many, because datagrams that come several at a time have to be noticed soon. If something is left, the loop finds the socket
readable again.
"""

BUFFER_BYTES: Final = 4 * 1024 * 1024
"""The bytes that are asked of the kernel for each direction; its default holds three datagrams of 60 KB."""

_DATAGRAM_BYTES_MAX: Final = 65_535
_NO_ADDRESS: Final = "expected a host name or address, found none"


class AddressError(ZraftError, OSError):
    """A host name has no address, or a socket cannot be bound to it. A name may get an address later."""

    retriable = True


@frozen(kw_only=True)
class UdpStatistics:
    """Counts since the socket was opened; errors by errno name (`EMSGSIZE`)."""

    datagrams_received: int
    bytes_received: int
    datagrams_sent: int
    bytes_sent: int
    send_errors: Mapping[str, int]
    receive_errors: Mapping[str, int]


async def _lookup(host: str, port: int, family: int, flags: int) -> tuple[int, SocketAddress]:
    """Return the family and the first address of a host.

    Raises:
        OSError: there is no such address.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, family=family, type=socket.SOCK_DGRAM, flags=flags
    )
    chosen, _, _, _, address = found[0]
    return chosen, address  # type: ignore[return-value]  # the type stub knows of sockets without Internet


async def _has_address(host: str, port: int) -> bool:
    try:
        await _lookup(host, port, socket.AF_UNSPEC, 0)
    except OSError:
        return False
    return True


def discard_waiting(sock: socket.socket) -> None:
    """Throw away the datagrams that wait in a bound socket, as far as its buffer holds."""
    sock.setblocking(False)
    for _ in range(DATAGRAMS_PER_DRAIN_MAX):
        try:
            sock.recv(1)
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionError:
            continue


class UdpEndpoint:
    """One bound, non-blocking UDP socket on the running loop.

    All methods belong to the loop's thread. `on_datagrams` gets what one wake-up read, in order of arrival;
    it owns the list.
    """

    def __init__(
        self, sock: socket.socket, loop: asyncio.AbstractEventLoop, on_datagrams: OnDatagrams
    ) -> None:
        """Take over a bound socket; `open` is the usual way."""
        sock.setblocking(False)
        self._socket = sock
        self._loop = loop
        self._on_datagrams = on_datagrams
        self._datagrams_received = 0
        self._bytes_received = 0
        self._datagrams_sent = 0
        self._bytes_sent = 0
        self._send_errors: dict[str, int] = {}
        self._receive_errors: dict[str, int] = {}
        self._buffer = bytearray(_DATAGRAM_BYTES_MAX)
        self._view = memoryview(self._buffer)
        self._alone = (
            0  # so many wake-ups read no more than one datagram after one that looked for more in vain
        )
        self._alone_left = 0  # how many of them are left
        self._own: dict[int, socket.socket] = {}
        self.sources: dict[int, SocketAddress] = {}
        """The servers whose datagrams come through a socket of their own, and from where; only to be read."""
        self._closed = False
        self.receive_buffer_bytes: Final = _ask_buffer(sock, socket.SO_RCVBUF)
        """The bytes that the kernel granted, as it reports them (Linux: twice the limit, for its own
        bookkeeping).
        """
        self.send_buffer_bytes: Final = _ask_buffer(sock, socket.SO_SNDBUF)
        self.address: Final[SocketAddress] = sock.getsockname()
        self._everywhere = self.address[0] == "::"
        """True if it takes IPv4 as well: those addresses have the form of IPv6 then."""
        loop.add_reader(sock.fileno(), self._on_readable, sock)

    @classmethod
    async def open(cls, host: str, port: int, on_datagrams: OnDatagrams) -> Self:
        """Bind a socket to host and port (0: any free one) and start reading.

        Raises:
            AddressError: the host has no address, or it cannot be bound (in use, not of this machine).
        """
        where = HostAddress(host, port)
        try:
            family, address = await _lookup(host, port, socket.AF_UNSPEC, socket.AI_PASSIVE)
        except OSError as error:
            raise AddressError(f"{where}: {_NO_ADDRESS}: {error.strerror}") from error
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            if address[0] == "::":
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            # SO_REUSEADDR is left out: with it, Linux would let a second process take half of the datagrams.
            sock.bind(address)
            return cls(sock, asyncio.get_running_loop(), on_datagrams)
        except OSError as error:
            sock.close()
            raise AddressError(f"cannot listen at {where} for datagrams: {cannot_listen(error)}") from error

    def numeric(self, host: str, port: int) -> SocketAddress | None:
        """Return a host that is an address already, as `send` takes it.

        None for a name, or an address of the other family.
        """
        try:
            ip = ip_address(host)
        except ValueError:
            return None
        if self._socket.family == socket.AF_INET:
            return (host, port) if ip.version == 4 else None
        if ip.version == 4:
            return (f"{MAPPED}{host}", port, 0, 0) if self._everywhere else None
        # This is the form of the kernel, so that it can be compared with where a datagram came from.
        return (socket.inet_ntop(socket.AF_INET6, ip.packed), port, 0, 0)

    async def resolve(self, host: str, port: int) -> SocketAddress:
        """Return the first address of a host that `send` can send to.

        `send` accepts numeric addresses only: a host name there would block the loop in the
        resolver.

        Raises:
            AddressError: the name has no address now, or none of this socket's family.
        """
        if (known := self.numeric(host, port)) is not None:
            return known
        family = self._socket.family
        try:
            return (await _lookup(host, port, family, socket.AI_V4MAPPED if self._everywhere else 0))[1]
        except OSError as error:
            where = HostAddress(host, port)
            if self._everywhere or not await _has_address(host, port):
                raise AddressError(f"{where}: {_NO_ADDRESS}: {error.strerror}") from error
            name = "IPv6" if family == socket.AF_INET6 else "IPv4"
            raise AddressError(
                f"{where}: found no {name} address, and this server listens at one; let it listen at [::], which takes both"
            ) from error

    def send(self, address: SocketAddress, datagram: bytes) -> None:
        """Send now or not at all. Every failure is a lost datagram: counted by its errno, and dropped."""
        try:
            self._bytes_sent += self._socket.sendto(datagram, address)
        except OSError as error:
            # Full buffer, no route, port closed, too long, filtered ... all of them may pass, none is ours.
            _count(self._send_errors, error)
            return
        self._datagrams_sent += 1

    def hear(self, peer: int, source: SocketAddress) -> None:
        """Take what `peer` sends from a socket of its own, from where it was heard last.

        Where that cannot be done it goes on coming through the common one.
        """
        self._forget(peer)
        self.sources[peer] = source
        if self._closed or not sys.platform.startswith("linux"):
            return  # elsewhere the kernel would give both sockets what is for one
        own = socket.socket(self._socket.family, socket.SOCK_DGRAM)
        own.setblocking(False)
        try:
            if self._everywhere:
                own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            with _shared_port([self._socket, own, *self._own.values()]):
                own.bind(self.address)
                own.connect(source)
        except OSError as error:
            _count(self._receive_errors, error)
            own.close()
            return
        _ask_buffer(own, socket.SO_RCVBUF)
        self._own[peer] = own
        self._loop.add_reader(own.fileno(), self._on_readable, own)

    def _forget(self, peer: int) -> None:
        own = self._own.pop(peer, None)
        if own is not None:
            self._loop.remove_reader(own.fileno())
            own.close()

    def drain(self) -> int:
        """Read what is queued right now and hand it to `on_datagrams`; how many datagrams that were.

        For before a timer is judged: a heartbeat that lies in the socket has arrived (D-11). Peers are read first; where
        they have sockets of their own, no more than a wake-up's worth is read of what comes from others.
        """
        read = 0
        for own in tuple(self._own.values()):
            read += self._drain(own, DATAGRAMS_PER_DRAIN_MAX)
        return read + self._drain(
            self._socket, DATAGRAMS_PER_WAKEUP_MAX if self._own else DATAGRAMS_PER_DRAIN_MAX
        )

    def _drain(self, sock: socket.socket, datagrams_max: int) -> int:
        read = 0
        # What was read, from this socket or from one before it, may have closed it: its peer has another one now.
        while sock.fileno() >= 0 and (batch := self._read(sock)):
            read += len(batch)
            self._on_datagrams(batch)
            if len(batch) < DATAGRAMS_PER_WAKEUP_MAX or read >= datagrams_max:
                break
        return read

    def close(self) -> None:
        """Stop reading and free the port. What is still queued is lost, as on any network."""
        if self._closed:
            return
        self._closed = True
        for peer in tuple(self._own):
            self._forget(peer)
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def statistics(self) -> UdpStatistics:
        """Return counts for metrics and logs."""
        return UdpStatistics(
            datagrams_received=self._datagrams_received,
            bytes_received=self._bytes_received,
            datagrams_sent=self._datagrams_sent,
            bytes_sent=self._bytes_sent,
            send_errors=dict(self._send_errors),
            receive_errors=dict(self._receive_errors),
        )

    def _on_readable(self, sock: socket.socket) -> None:
        if self._alone_left and not self._closed:
            self._alone_left -= 1
            try:
                size, source = sock.recvfrom_into(self._buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._note_error(sock, error)
                return
            self._datagrams_received += 1
            self._bytes_received += size
            self._on_datagrams([(bytes(self._view[:size]), source)])
            return
        batch = self._read(sock)
        self._alone = min(2 * self._alone + 1, ALONE_MAX) if len(batch) == 1 else 0
        self._alone_left = self._alone
        if batch:
            self._on_datagrams(batch)

    def _note_error(self, sock: socket.socket, error: OSError) -> None:
        """Count an ICMP answer to something sent earlier (port closed, filtered by a firewall); the socket itself is well.

        Have the loop watch it again: uvloop's stops to, and tells nobody. Else whatever comes from a peer that was down for
        a moment would be read when a timer drains the sockets.
        """
        _count(self._receive_errors, error)
        self._loop.remove_reader(sock.fileno())
        self._loop.add_reader(sock.fileno(), self._on_readable, sock)

    def _read(self, sock: socket.socket) -> list[tuple[bytes, SocketAddress]]:
        batch: list[tuple[bytes, SocketAddress]] = []
        if self._closed:
            return batch
        receive, buffer, view = sock.recvfrom_into, self._buffer, self._view
        for _ in range(DATAGRAMS_PER_WAKEUP_MAX):
            try:
                size, source = receive(buffer)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._note_error(sock, error)
                continue
            self._bytes_received += size
            batch.append((bytes(view[:size]), source))
        if batch:
            self._datagrams_received += len(batch)
        return batch


@contextlib.contextmanager
def _shared_port(sockets: Sequence[socket.socket]) -> Iterator[None]:
    """Share the port for as long as a further socket is bound to it: nobody else's is, before or afterwards."""
    for sock in sockets:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        yield
    finally:
        for sock in sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)


def _count(counts: dict[str, int], error: OSError) -> None:
    name = errno.errorcode.get(error.errno or 0, "UNKNOWN")
    counts[name] = counts.get(name, 0) + 1


def _ask_buffer(sock: socket.socket, option: int) -> int:
    """Ask for BUFFER_BYTES, or the most below it that the kernel grants; what it says it granted."""
    asked = BUFFER_BYTES
    while asked > sock.getsockopt(socket.SOL_SOCKET, option):
        try:
            sock.setsockopt(socket.SOL_SOCKET, option, asked)
        except OSError:
            # Some kernels refuse what Linux quietly cuts down.
            asked //= 2
        else:
            break
    return sock.getsockopt(socket.SOL_SOCKET, option)
