"""A connection to the ZooKeeper that is imported: opens it, and carries a walk's requests and replies."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from zraft.offline.errors import OfflineError
from zraft.offline.walking import Walk
from zraft_core.address import Address
from zraft_core.errors import Code, ProtocolError
from zraft_core.wire.client import Received, Reply, ZkClientCodec
from zraft_core.wire.client_requests import Auth, CloseSession
from zraft_core.wire.connect import ConnectResponse

REQUESTS_MAX: Final = 96
"""The number of requests that are on the way at a time: a server holds their answers in memory until we take
them.
"""

READ_BYTES: Final = 1 << 20
REPLY_BYTES_MAX: Final = 134_217_728
SESSION_TIMEOUT_MS: Final = 30_000


class Source:
    """A session with one server. Use it in a `with` statement."""

    def __init__(
        self,
        servers: Sequence[Address],
        auths: Sequence[Auth],
        *,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connect to the first server that answers.

        Raises:
            OfflineError: none does, or an identity is refused.
        """
        self._timeout_s = timeout_s
        self._tls = tls
        complaints = []
        for address in servers:
            self.server = str(address)
            try:
                self._socket, self._codec = self._open(address.host, address.port)
                break
            except (OSError, ProtocolError) as error:
                complaints.append(f"{self.server}: {error}")
        else:
            raise OfflineError("no server can be read: " + "; ".join(complaints))
        try:
            self._prove(auths)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _open(self, host: str, port: int) -> tuple[socket.socket, ZkClientCodec]:
        codec = ZkClientCodec(jute_maxbuffer=REPLY_BYTES_MAX)
        plain = socket.create_connection((host, port), self._timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock = self._tls.wrap_socket(plain, server_hostname=host) if self._tls is not None else plain
            sock.sendall(codec.connect(timeout_ms=SESSION_TIMEOUT_MS))
            greetings: list[Received] = []
            while not greetings:
                data = sock.recv(READ_BYTES)
                if not data:
                    raise OSError("it closed the connection: no ZooKeeper, or one that does not serve now")
                greetings = codec.receive(data)
            if not isinstance(greetings[0], ConnectResponse) or greetings[0].timeout_ms <= 0:
                raise OSError("it refused a session")
            return sock, codec
        except BaseException:
            plain.close()
            raise

    def _prove(self, auths: Sequence[Auth]) -> None:
        for auth in auths:
            self._socket.sendall(self._codec.ask(auth)[1])
            for reply in self._receive(f"the identity of scheme {auth.scheme}"):
                if isinstance(reply, Reply) and reply.code is not Code.OK:
                    raise OfflineError(
                        f"{self.server}: refused the identity of scheme {auth.scheme} ({reply.code.name}); correct "
                        "--auth-file"
                    )

    def _receive(self, doing: str) -> list[Received]:
        while True:
            try:
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise OfflineError(
                        f"{self.server}: closed the connection during {doing}; nothing was made, run the command again"
                    )
                received = self._codec.receive(data)
            except TimeoutError:
                raise OfflineError(
                    f"{self.server}: no answer within {self._timeout_s:g} s during {doing}; nothing was made, run the "
                    "command again, perhaps with a larger --timeout"
                ) from None
            except (OSError, ProtocolError) as error:
                raise OfflineError(f"{self.server}: {error}, during {doing}; nothing was made") from error
            if received:
                return received

    def read(self, walk: Walk, on_progress: Callable[[int, int], None] = lambda *_: None) -> None:
        """Read all of the walk; `on_progress` gets (znodes read, znodes known)."""
        codec = self._codec
        while not walk.done:
            # In halves: then a server answers one while it reads the other.
            room = REQUESTS_MAX - codec.pending
            if room >= REQUESTS_MAX // 2:
                requests = walk.requests(room)
                if requests:
                    self._send(b"".join(codec.ask(request)[1] for request in requests))
            for reply in self._receive("the reading of the tree"):
                if isinstance(reply, Reply):
                    walk.answered(reply)
            on_progress(walk.counts.znodes, walk.counts.znodes + walk.due)

    def close(self) -> None:
        """End the session, so that no trace of it stays until its timeout."""
        self._send(self._codec.ask(CloseSession())[1])
        self._receive("the end of the session")

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise OfflineError(f"{self.server}: {error}; nothing was made, run the command again") from error
