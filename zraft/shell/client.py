"""A ZooKeeper session over asyncio: several servers, pings, reconnects, watches and identities kept.

It is for one event loop. A request while no server is connected waits; one under way when a connection breaks
fails, because nobody knows whether it was done. A session that expired is followed by a new one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final

from attrs import evolve, frozen

from zraft.program.reaching import told_once
from zraft.shell.errors import NotConnectedError
from zraft.shell.render import show_hex
from zraft.shell.target import Target, rooted, unrooted, unrooted_value
from zraft.shell.watches import Watches, WatchNotice
from zraft_core.address import Address
from zraft_core.errors import Code, ProtocolError
from zraft_core.wire.client import PENDING_MAX, Pong, Received, Reply, WatchEvent, ZkClientCodec
from zraft_core.wire.client_requests import (
    Auth,
    CloseSession,
    RemoveWatches,
    Request,
)
from zraft_core.wire.connect import NO_PASSWORD, ConnectResponse
from zraft_core.znodes.events import WatcherType

REPLY_BYTES_MAX: Final = 134_217_728
"""The largest accepted answer, far above a server's own bound: a shell must list large directories."""

CONNECT_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 2.0
RETRY_S: Final = 0.25
"""Seconds of pause after every server was tried in vain."""

FOUR_LETTER_BYTES_MAX: Final = 67_108_864


class _RefusedError(Exception):
    """An address accepts no connections: it refuses, has no host, or shows a certificate that is not trusted."""


class State(Enum):
    """States of the session as the client knows it."""

    CONNECTING = "CONNECTING"
    CONNECTED = "CONNECTED"
    CLOSED = "CLOSED"


@frozen
class StateNotice:
    """The connection changed; `text` says how."""

    state: State
    text: str


ClientNotice = WatchNotice | StateNotice
_Pending = deque[tuple[Request[Any], "asyncio.Future[Reply] | None"]]


class Client:
    """One session and whatever connection it has now. `notify` is called in the event loop, in order."""

    def __init__(
        self,
        target: Target,
        *,
        session_timeout_ms: int,
        wait_s: float,
        notify: Callable[[ClientNotice], None],
        tls: ssl.SSLContext | None = None,
        patient: bool = False,
    ) -> None:
        """Prepare a client. `wait_s` is how long a request waits for a connection; `tls` None is plain text.

        A client that was connected once waits also while all servers refuse, as they may be starting again.
        One that never was does so only if it is `patient`.
        """
        self.target = target
        self.server: Address | None = None
        self.session = 0
        self._session_timeout_ms = session_timeout_ms
        self._wait_s = wait_s
        self._notify = notify
        self._tls = tls
        self._password = NO_PASSWORD
        self._zxid = 0
        self._watches = Watches()
        self._auths: dict[Auth, None] = {}
        self._reasons: dict[Address, str] = {}
        self._patient = patient
        self._connected = asyncio.Event()
        self._decided = asyncio.Event()
        """Set when there is a connection, or no use in waiting for one."""
        self._codec = ZkClientCodec()
        self._writer: asyncio.StreamWriter | None = None
        self._pending: _Pending = deque()
        self._pending_auth: _Pending = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """The state of the session."""
        if self._task is None:
            return State.CLOSED
        return State.CONNECTED if self._connected.is_set() else State.CONNECTING

    def start(self) -> None:
        """Begin to connect, and continue until `close`."""
        assert self._task is None, "started twice"
        self._task = asyncio.get_running_loop().create_task(self._keep_connected())

    async def wait_connected(self) -> None:
        """Wait for a connection.

        Raises:
            NotConnectedError: no server accepts one, or it takes longer than `wait_s`. The message has
                what every server said.
        """
        try:
            async with asyncio.timeout(self._wait_s):
                await self._decided.wait()
        except TimeoutError:
            reasons = told_once(self._reasons.items(), "; ")
            raise NotConnectedError(
                f"Not connected: waited {self._wait_s:g} s for {self.target} ({reasons or 'no answer'}); "
                "--connect names the servers, --timeout how long to wait"
            ) from None
        if not self._connected.is_set():
            raise NotConnectedError(
                f"Not connected: {told_once(self._reasons.items(), '; ')}; --connect names the servers, "
                "--wait-for-connection waits for them"
            )

    async def ask(self, requests: Sequence[Request[Any]]) -> list[Reply]:
        """Send all requests together; return the replies, in order.

        Raises:
            NotConnectedError: no connection in time, or it broke first: the requests may have been
                carried out or not.
        """
        assert len(requests) < PENDING_MAX // 2, f"{len(requests)} requests together"
        while self._writer is None or not self._connected.is_set():
            await self.wait_connected()  # and the connection may be gone again when this task's turn comes
        loop = asyncio.get_running_loop()
        futures = []
        for request in requests:
            future: asyncio.Future[Reply] = loop.create_future()
            futures.append(future)
            asked = rooted(request, self.target.chroot)
            if isinstance(asked, RemoveWatches) and not self._watches.has(asked.path, asked.type):
                # This is not left to the server: it may take a persistent watch for one on data, and remove that.
                future.set_result(Reply(0, self._zxid, Code.NO_WATCHER, None))
            else:
                self._send(asked, future)
        try:
            with suppress(OSError):  # then the futures know more
                await self._writer.drain()
            replies = [await future for future in futures]
        finally:
            for future in futures:
                if future.done() and not future.cancelled():
                    future.exception()  # the others are retrieved: only the first failure is raised
                future.cancel()
        return [
            evolve(reply, value=unrooted_value(request, reply.value, self.target.chroot))
            for request, reply in zip(requests, replies, strict=True)
        ]

    def forget_watches(self, path: str, type_: WatcherType) -> None:
        """Drop watches without asking the server."""
        self._forget(self.target.chroot + ("" if self.target.chroot and path == "/" else path), type_)

    async def close(self) -> None:
        """End the session, so that its ephemerals go at once; this does not wait for a server that is away."""
        if self._task is None:
            return
        try:
            if self._connected.is_set() and self._writer is not None:
                future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
                self._send(CloseSession(), future)
                with suppress(TimeoutError, NotConnectedError):
                    async with asyncio.timeout(CLOSE_TIMEOUT_S):
                        await future
        finally:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- the connection

    async def _keep_connected(self) -> None:
        while True:
            refused = 0
            for server in self.target.servers:
                try:
                    await self._converse(server)
                except _RefusedError as error:
                    refused += 1
                    self._reasons[server] = str(error)
                except (OSError, ProtocolError, TimeoutError) as error:
                    self._reasons[server] = str(error) or "no answer in time"
                finally:
                    self._disconnected(server)
            if refused == len(self.target.servers) and not self._patient:
                self._decided.set()
            await asyncio.sleep(RETRY_S)

    async def _converse(self, server: Address) -> None:
        """Use one connection until it breaks."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(server.host, server.port, ssl=self._tls)
        except (TimeoutError, ConnectionResetError, ConnectionAbortedError):
            raise
        except OSError as error:
            raise _RefusedError(reason_of(error)) from error
        self._writer = writer
        try:
            self._codec = ZkClientCodec(last_zxid_seen=self._zxid, jute_maxbuffer=REPLY_BYTES_MAX)
            writer.write(
                self._codec.connect(
                    timeout_ms=self._session_timeout_ms, session=self.session, password=self._password
                )
            )
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                received = await self._receive(reader)
            greeting = received.pop(0)
            assert isinstance(greeting, ConnectResponse), "the codec takes nothing else first"
            if greeting.timeout_ms <= 0:
                self._expired()
                return
            self._welcomed(server, greeting)
            self._dispatch(received)
            keep_alive = asyncio.get_running_loop().create_task(self._keep_alive(greeting.timeout_ms / 1000))
            try:
                while True:
                    self._dispatch(await self._receive(reader))
            finally:
                keep_alive.cancel()
                await asyncio.gather(keep_alive, return_exceptions=True)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _receive(self, reader: asyncio.StreamReader) -> list[Received]:
        """Return what the server says next, at least one message."""
        while True:
            chunk = await reader.read(65_536)
            if not chunk:
                raise ConnectionResetError("the server closed the connection")
            self._heard = asyncio.get_running_loop().time()
            if received := self._codec.receive(chunk):
                return received

    async def _keep_alive(self, timeout_s: float) -> None:
        """Ping thrice per session timeout; give up a server that is silent for two thirds of it."""
        loop = asyncio.get_running_loop()
        while self._writer is not None:
            self._writer.write(self._codec.ping())
            await asyncio.sleep(timeout_s / 3)
            if loop.time() - self._heard > timeout_s * 2 / 3:
                self._writer.transport.abort()
                return

    def _welcomed(self, server: Address, greeting: ConnectResponse) -> None:
        self.server = server
        self._reasons.clear()
        self.session, self._password = greeting.session, greeting.password
        for auth in self._auths:
            self._send(auth, None)
        for restore in self._watches.restore(self._zxid):
            self._send(restore, None)
        self._patient = True
        self._connected.set()
        self._decided.set()
        self._notify(StateNotice(State.CONNECTED, f"connected to {server}, session {show_hex(self.session)}"))

    def _expired(self) -> None:
        lost, self.session, self._password = self.session, 0, NO_PASSWORD
        self._watches.clear()
        if lost:
            self._notify(
                StateNotice(
                    State.CONNECTING,
                    f"session {show_hex(lost)} expired: its ephemeral znodes and watches are gone; a new one begins",
                )
            )

    def _disconnected(self, server: Address) -> None:
        was_connected = self._connected.is_set()
        self._connected.clear()
        self._decided.clear()
        self._writer, self.server = None, None
        reason = self._reasons.get(server, "the connection ended")
        for request, future in (*self._pending, *self._pending_auth):
            if future is not None and not future.done():
                path = getattr(request, "path", None)
                what = "KeeperErrorCode = ConnectionLoss" + (f" for {path}" if path else "")
                future.set_exception(
                    NotConnectedError(f"{what} ({server}: {reason}; it may have been done or not)")
                )
        self._pending.clear()
        self._pending_auth.clear()
        if was_connected and self._task is not None:
            self._notify(StateNotice(State.CONNECTING, f"disconnected from {server}: {reason}"))

    # -- requests and answers

    def _send(self, request: Request[Any], future: asyncio.Future[Reply] | None) -> None:
        assert self._writer is not None, "nothing to send on"
        _, raw = self._codec.ask(request)
        (self._pending_auth if isinstance(request, Auth) else self._pending).append((request, future))
        self._writer.write(raw)

    def _dispatch(self, received: Sequence[Received]) -> None:
        for one in received:
            match one:
                case Reply():
                    self._answered(one)
                case WatchEvent():
                    notice = self._watches.fired(one)
                    self._notify(evolve(notice, path=unrooted(notice.path, self.target.chroot)))
                case Pong() | ConnectResponse():
                    pass
        self._zxid = self._codec.last_zxid_seen

    def _answered(self, reply: Reply) -> None:
        is_auth = reply.xid == Auth.xid
        request, future = (self._pending_auth if is_auth else self._pending).popleft()
        if isinstance(request, Auth):
            if reply.code:
                self._auths.pop(request, None)
            else:
                self._auths[request] = None
        elif reply.code in (Code.OK, Code.NO_NODE):
            self._watches.asked(request, reply.code == Code.OK)
        if isinstance(request, RemoveWatches) and reply.code in (Code.OK, Code.NO_WATCHER):
            self._forget(request.path, request.type)
        if future is not None and not future.done():
            future.set_result(reply)

    def _forget(self, path: str, type_: WatcherType) -> None:
        for notice in self._watches.remove(path, type_):
            self._notify(evolve(notice, path=unrooted(notice.path, self.target.chroot)))


def reason_of(error: OSError) -> str:
    """Return why a connection could not be made, without the address that asyncio adds, which is said anyway."""
    if error.errno is not None and not isinstance(error, ssl.SSLError | socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)


async def four_letter(server: Address, word: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> str:
    """Return the answer to one four-letter word, on a connection of its own.

    Raises:
        NotConnectedError: there is none in time, or none that ends.
    """
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(server.host, server.port, ssl=tls)
            try:
                writer.write(word.encode("ascii"))
                answer = bytearray()
                while chunk := await reader.read(65_536):
                    answer += chunk
                    if len(answer) > FOUR_LETTER_BYTES_MAX:
                        raise NotConnectedError(
                            f"{server}: more than {FOUR_LETTER_BYTES_MAX} bytes in answer to {word}"
                        )
                return answer.decode(errors="replace")
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise NotConnectedError(
            f"{server}: no answer to {word}: {error or f'within {timeout_s:g} s'}"
        ) from error
