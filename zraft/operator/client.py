"""The blocking client of operators' commands: finds a server that accepts the key, follows the leader, and retries.

Sockets and the clock are handed in by default arguments only; `zraft.transport.bulk` and
`zraft.operator.protocol` define the bytes.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from zraft.operator.errors import OperatorError, RefusedError, UncertainError
from zraft.operator.protocol import PART_BYTES_MAX, decode_reply, encode_request
from zraft.operator.requests import (
    READ_ONLY,
    OperatorReply,
    OperatorRequest,
    Refused,
    SnapshotFile,
    SnapshotPart,
    SnapshotRead,
)
from zraft.program.reaching import told_once
from zraft.transport.bulk import ANY_SERVER, BulkConnection, Ring
from zraft.transport.keys import PLAIN_KEY_ID, key_name
from zraft.transport.sealing import RejectedError
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError, ProtocolError

CONNECT_TIMEOUT_S: Final = 3.0
"""Seconds for one server of several, so that a dead one leaves time for the others."""

REDIRECTS_MAX: Final = 5
RETRY_S: Final = 0.2
"""Seconds between two attempts while the cluster has no leader."""

READ_BYTES: Final = 256 * 1024
PROBE_BYTES: Final = 4096

R = TypeVar("R")


class _UnaskedError(OperatorError):
    """One server cannot be asked; `about_key`: because of the key, as far as can be told."""

    def __init__(self, address: Address, reason: str, *, about_key: bool = False) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason
        self.about_key = about_key


class _LostError(OSError):
    """The connection ended before the answer was there."""


class _Connection:
    """One authenticated connection, one request at a time."""

    def __init__(self, sock: socket.socket, bulk: BulkConnection, address: Address) -> None:
        self._sock = sock
        self._bulk = bulk
        self._number = 0
        self._messages: list[bytes] = []
        self.address = address

    def ask(self, request: OperatorRequest, timeout_s: float) -> OperatorReply:
        """Return the answer to `request`.

        Raises:
            _LostError: the connection ended, or nothing came in time.
            ProtocolError: the server speaks another release's language.
        """
        self._number += 1
        self._bulk.enqueue(encode_request(self._number, request))
        until = time.monotonic() + timeout_s
        try:
            while (frame := self._bulk.next_frame()) is not None:
                self._sock.settimeout(max(0.001, until - time.monotonic()))
                self._sock.sendall(frame)
            while True:
                while self._messages:
                    reply = decode_reply(self._messages.pop(0))
                    if reply.number == self._number:
                        return reply.value  # type: ignore[no-any-return]
                self._sock.settimeout(max(0.001, until - time.monotonic()))
                data = self._sock.recv(READ_BYTES)
                if not data:
                    raise _LostError("the server closed the connection")
                self._messages += self._bulk.receive(data).messages
        except TimeoutError as error:
            raise _LostError(f"no answer within {timeout_s:.0f} s") from error
        except RejectedError as error:
            raise _LostError(str(error)) from error

    def close(self) -> None:
        self._sock.close()


class OperatorClient:
    """Client of operators for the servers of one cluster.

    Use it in a `with` statement. It is not for several threads at once.

    Args:
        addresses: of any of its servers; they are tried in order, and the one that answered is
            remembered.
        ring: the cluster's key (`keys.key_ring`), or the entry that stands for none.
        timeout_s: for one `call`, all attempts together.
        key_hint: where the key is from, or is; a sentence for the error that servers do not accept it.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        ring: Ring,
        *,
        timeout_s: float = 30.0,
        key_hint: str = "",
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if not addresses:
            raise ConfigError("--connect: found nothing, expected HOST:PORT,…")
        self._addresses = list(addresses)
        self._ring = ring
        self.timeout_s = timeout_s
        self._key_hint = key_hint
        self._entropy = entropy
        self._connection: _Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def at(self, address: Address, timeout_s: float) -> OperatorClient:
        """Return another client with the same key, for the server at `address` alone.

        Its calls take `timeout_s`, and no longer than those of this client.
        """
        return self._alike([address], min(timeout_s, self.timeout_s))

    def another(self) -> OperatorClient:
        """Return a client for the same servers, with a connection of its own."""
        return self._alike(self._addresses, self.timeout_s)

    def _alike(self, addresses: Sequence[Address], timeout_s: float) -> OperatorClient:
        return OperatorClient(
            addresses,
            self._ring,
            timeout_s=timeout_s,
            key_hint=self._key_hint,
            entropy=self._entropy,
        )

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses that are tried, in this order."""
        return tuple(self._addresses)

    @property
    def address(self) -> Address | None:
        """The address of the server that answered last."""
        return self._connection.address if self._connection is not None else None

    def call(self, request: OperatorRequest, expected: type[R]) -> R:
        """Return the answer, the leader's if the request is for the leader.

        Raises:
            RefusedError: the cluster will not do it; the message says why.
            UncertainError: it may have been done or not.
            OperatorError: no server could be asked; the message says for each why not.
        """
        until = time.monotonic() + self.timeout_s
        redirects = 0
        while True:
            connection = self._connection or self._connect(self._addresses, until)
            self._connection = connection
            try:
                reply = connection.ask(request, max(0.001, until - time.monotonic()))
            except (_LostError, OSError) as error:
                self.close()
                if not isinstance(request, READ_ONLY):
                    raise UncertainError(
                        f"{connection.address}: the request was sent, then {error}; it may have been carried out or "
                        "not: look before you repeat it (`zraft member list`, `zraft settings show`, `zraft topic list`)"
                    ) from error
                if time.monotonic() + RETRY_S >= until:
                    raise OperatorError(f"{connection.address}: {error}") from error
                time.sleep(RETRY_S)
                continue
            except ProtocolError as error:
                self.close()
                raise OperatorError(
                    f"{connection.address}: its answer is not understood: {error}; use the zraft command of the "
                    "servers' release"
                ) from error
            if isinstance(reply, Refused):
                has_time = time.monotonic() + RETRY_S < until
                if reply.leader is not None and redirects < REDIRECTS_MAX and has_time:
                    redirects += 1
                    self._follow(connection.address, reply.leader, until)
                    continue
                if (reply.retriable or reply.leader is not None) and has_time:
                    redirects = 0
                    self._try_others_first(connection.address)
                    time.sleep(RETRY_S)
                    continue
                raise RefusedError(f"{connection.address}: {reply.text}")
            if not isinstance(reply, expected):
                raise OperatorError(
                    f"{connection.address}: expected an answer of kind {expected.__name__}, found "
                    f"{type(reply).__name__}; use the zraft command of the servers' release"
                )
            return reply

    def download(self, file: SnapshotFile) -> Iterator[bytes]:
        """Yield the bytes of a snapshot from its server, piece by piece, in order.

        Raises:
            OperatorError: as `call`; or the server was lost and its snapshot with it.
        """
        offset = 0
        server = self.address
        while offset < file.size:
            part = self.call(
                SnapshotRead(file.snapshot, offset, min(PART_BYTES_MAX, file.size - offset)), SnapshotPart
            )
            if self.address != server:
                raise OperatorError(
                    f"{server}: lost after {offset} of {file.size} bytes of its snapshot; begin again"
                )
            if part.offset != offset or not part.data:
                raise OperatorError(
                    f"{server}: expected bytes of the snapshot from {offset} on, found {len(part.data)} from "
                    f"{part.offset}; begin again"
                )
            yield part.data
            offset += len(part.data)

    def _try_others_first(self, refused: Address) -> None:
        """Try this server last: it cannot answer now, and may never again, as it may have been removed."""
        self.close()
        others = [address for address in self._addresses if address != refused]
        self._addresses = [*others, refused] if refused in self._addresses else others

    def _follow(self, asked: Address, leader: str, until: float) -> None:
        """Go to the leader that a server named."""
        self.close()
        try:
            address = parse_address(leader, "leader")
        except ConfigError as error:
            raise OperatorError(f"{asked}: it names a leader at {leader!r}, which is no address") from error
        try:
            self._connection = self._connect([address], until)
        except OperatorError as error:
            raise OperatorError(
                f"{asked} names {address} as the leader, which cannot be asked from here: {error}"
            ) from error

    def _connect(self, addresses: Sequence[Address], until: float) -> _Connection:
        complaints: list[_UnaskedError] = []
        for address in addresses:
            left = until - time.monotonic()
            if left <= 0:
                complaints.append(_UnaskedError(address, "not tried, the time is over"))
                continue
            try:
                return self._open(address, min(CONNECT_TIMEOUT_S, left))
            except _UnaskedError as error:
                complaints.append(error)
        told = told_once((one.address, one.reason) for one in complaints)
        if self._key_hint and any(one.about_key for one in complaints):
            told += f"\n{self._key_hint}"
        raise OperatorError(told)

    def _open(self, address: Address, timeout_s: float) -> _Connection:
        bulk, opening = BulkConnection.dial(me=None, to=ANY_SERVER, ring=self._ring, entropy=self._entropy)
        try:
            sock = socket.create_connection((address.host, address.port), timeout_s)
        except OSError as error:
            raise _UnaskedError(address, f"cannot connect: {error.strerror or error}") from error
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                sock.sendall(opening)
                while not bulk.established:
                    data = sock.recv(READ_BYTES)
                    if not data:
                        raise self._unanswered(address, timeout_s)
                    sock.sendall(bulk.receive(data).output)
            except TimeoutError as error:
                raise _UnaskedError(
                    address, f"no answer within {timeout_s:.0f} s; is it a zraft server, and not stuck?"
                ) from error
            except RejectedError as error:
                raise _UnaskedError(
                    address,
                    f"what answers is no zraft server of this release with our key: {error}",
                    about_key=True,
                ) from error
            except OSError as error:
                raise self._unanswered(address, timeout_s) from error
        except OperatorError:
            sock.close()
            raise
        return _Connection(sock, bulk, address)

    def _unanswered(self, address: Address, timeout_s: float) -> _UnaskedError:
        """Return why a server closed the connection.

        It does not say so to a client without a key, but tells everybody what it is.
        """
        what = _probe(address, timeout_s)
        key_id = next(iter(self._ring))
        if what is None:
            return _UnaskedError(
                address,
                "it closed the connection without a word: no zraft server (a port of clients is expected), or it does "
                f"not take {key_name(key_id)}; its log says",
                about_key=True,
            )
        if "zraft" not in what:
            return _UnaskedError(address, f"expected a zraft server, found {what}")
        if key_id == PLAIN_KEY_ID:
            return _UnaskedError(
                address, "a zraft server, which takes no commands without the cluster key", about_key=True
            )
        return _UnaskedError(
            address,
            f"a zraft server ({what}), which does not take {key_name(key_id)}: that is not its key, or it runs without "
            "one (then leave out --key), or another release; its log says which",
            about_key=True,
        )


def _probe(address: Address, timeout_s: float) -> str | None:
    """Return what the server at a client port says it is, or None if it does not."""
    try:
        with socket.create_connection((address.host, address.port), timeout_s) as sock:
            sock.sendall(b"srvr")
            said = b""
            while b"\n" not in said and len(said) < PROBE_BYTES and (data := sock.recv(PROBE_BYTES)):
                said += data
    except OSError:
        return None
    first = said.partition(b"\n")[0].decode("ascii", "replace")
    label, colon, version = first.partition(": ")
    return version[:100] if colon and label == "Zookeeper version" else None
