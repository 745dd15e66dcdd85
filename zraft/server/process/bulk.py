"""Streams to and from the other servers, on the port of clients: dials, accepts, queues and closes them.

Each server dials the others for what it sends and is dialed for what it receives, so there is one stream per pair
and direction and nothing to agree on. `zraft.transport.bulk` decides what the bytes mean, `zraft.transport.routing` what
goes this way. Operators come in here as well: they prove the same key, and are handed on (`zraft.server.process.operators`).

A message for a stream that cannot take more is dropped: Raft repeats what it misses, chunks of snapshots are pulled. It is
the newest that goes, because the stream is in order: what is before it can be used without it, but not the other way round.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import structlog
from attrs import frozen

from zraft.program.limited_log import LimitedLog
from zraft.server.process.newcomers import Newcomers
from zraft.server.process.rejections import Rejections
from zraft.server.process.surroundings import Dial, dial
from zraft.transport import codec
from zraft.transport.bulk import BulkConnection, DialerRole, Ring
from zraft.transport.messages import PeerMessage, Sender
from zraft.transport.packing import MESSAGE_BYTES_MAX, UnsendableError
from zraft.transport.sealing import RejectedError
from zraft.transport.stream import Owner, Stream
from zraft.transport.udp import SocketAddress
from zraft_core.errors import ProtocolError
from zraft_core.ids import ServerId

log = structlog.get_logger()


@frozen(kw_only=True)
class BulkSettings:
    """Bounds of one server's streams; sizes in bytes, times in seconds."""

    message_bytes_max: int = MESSAGE_BYTES_MAX
    queue_bytes_max: int = 2 * MESSAGE_BYTES_MAX
    handshake_timeout_s: float = 5.0
    retry_s_min: float = 0.1
    retry_s_max: float = 2.0
    unproved_max: int = 64
    operators_max: int = 16


@frozen(kw_only=True)
class BulkStatistics:
    """Counts since the start; `rejected` by `sealing.Rejection` value, with every reason present."""

    streams: int
    operators: int
    messages_sent: int
    messages_received: int
    messages_dropped: int
    messages_not_understood: int
    bytes_sent: int
    bytes_received: int
    dials_failed: int
    rejected: dict[str, int]


class _Path:
    """State of the stream that this server dials to one other."""

    __slots__ = ("dialing", "failed", "queue", "queued_bytes", "retry_at", "retry_s", "since", "stream")

    def __init__(self, retry_s: float) -> None:
        self.queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self.stream: Stream | None = None
        self.dialing: asyncio.Task[None] | None = None
        self.failed = False
        self.retry_at = 0.0
        self.retry_s = retry_s
        self.since = 0.0

    @property
    def established(self) -> bool:
        return self.stream is not None and self.stream.connection.established

    def drop_queue(self) -> int:
        dropped = len(self.queue)
        self.queue.clear()
        self.queued_bytes = 0
        return dropped


class BulkStreams:
    """All streams of one server.

    Args:
        me: as authenticated to others.
        ring: keys by id, the sealing one first.
        peers: who may dial, and can be dialed.
        address_of: where a peer is now, as a numeric address; None if that is not known.
        on_messages: whose messages arrived; the same that takes what datagrams bring.
        on_ended: called with a peer to or from which a stream stood that has ended, as it does when the process of
            that peer ends.
        operators: takes the streams of operators; None: there are none.
        operators_local: operators must be on this machine. For a server without a key that was not told to do without.
        entropy: gives that many unpredictable bytes.
        dial: makes the connections.
    """

    def __init__(
        self,
        *,
        me: Sender,
        ring: Ring,
        peers: Iterable[ServerId],
        address_of: Callable[[ServerId], SocketAddress | None],
        on_messages: Callable[[Sender, list[PeerMessage]], None],
        on_ended: Callable[[ServerId], None],
        operators: Owner | None,
        operators_local: bool = False,
        entropy: Callable[[int], bytes],
        settings: BulkSettings | None = None,
        dial: Dial = dial,
    ) -> None:
        self._me = me
        self._ring = ring
        self._peers = frozenset(peers) - {me.server}
        self._address_of = address_of
        self._on_messages = on_messages
        self._on_ended = on_ended
        self._operators = operators
        self._operators_local = operators_local
        self._entropy = entropy
        self._settings = settings or BulkSettings()
        self._make_connection = dial
        self._loop = asyncio.get_running_loop()
        self._limited = LimitedLog(self._loop.time)
        self._rejections = Rejections("stream", self._limited)
        self._paths: dict[ServerId, _Path] = {}
        self._unproved: Newcomers[Stream] = Newcomers(self._settings.unproved_max)
        self._incoming: dict[ServerId, Stream] = {}
        self._operating: set[Stream] = set()
        self._closed = False
        self._messages_sent = 0
        self._messages_received = 0
        self._messages_dropped = 0
        self._messages_not_understood = 0
        self._bytes_sent = 0
        self._bytes_received = 0
        self._dials_failed = 0

    # -- what the server calls

    def offers(self, to: ServerId) -> bool:
        """Return whether to give large messages for `to` to `send`: a stream exists, or is tried first.

        Once it could not be made, False until it can: it is then tried in the background, when asked for.
        """
        if self._closed or to not in self._peers:
            return False
        path = self._path(to)
        if path.established:
            return True
        if path.dialing is None and path.stream is None and self._loop.time() >= path.retry_at:
            self._dial(to, path)
        return not path.failed

    def hold(self, to: ServerId) -> None:
        """Have a stream to a peer, so that `on_ended` tells when its process ends."""
        self.offers(to)

    def send(self, to: ServerId, encoded: Iterable[bytes]) -> None:
        """Send these messages (`codec.encode`), in order, now or when the stream stands; drop what is too much.

        Raises:
            UnsendableError: one is larger than `message_bytes_max`.
        """
        if self._closed or to not in self._peers:
            return
        path = self._path(to)
        for message in encoded:
            if len(message) > self._settings.message_bytes_max:
                raise UnsendableError(
                    f"peer message: expected at most {self._settings.message_bytes_max} bytes "
                    f"(message_bytes_max), found {len(message)}"
                )
            waiting = path.stream.queued_bytes if path.stream is not None else path.queued_bytes
            if waiting and waiting + len(message) > self._settings.queue_bytes_max:
                self._messages_dropped += 1
            elif path.established:
                assert path.stream is not None
                self._messages_sent += 1
                path.stream.send(message)
            else:
                path.queue.append(message)
                path.queued_bytes += len(message)
        if path.queue and path.dialing is None and path.stream is None:
            self._dial(to, path)

    def accept(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take a connection to the client port that began with `MAGIC`; `data` is what was read of it."""
        if self._closed:
            transport.abort()
            return
        connection = BulkConnection.accept(
            me=self._me,
            peers=self._peers,
            ring=self._ring,
            entropy=self._entropy,
            message_bytes_max=self._settings.message_bytes_max,
        )
        stream = Stream(connection, self, timeout_s=self._settings.handshake_timeout_s)
        peer = transport.get_extra_info("peername")
        goes = self._unproved.enter(stream, peer[0] if peer else "", self._loop.time())
        if goes is stream:
            transport.abort()
            return
        if goes is not None:
            goes.abort()
        stream.adopt(transport, data)

    def set_peers(self, peers: Iterable[ServerId]) -> None:
        """Allow these servers to dial and be dialed from now on. Streams of others end."""
        self._peers = frozenset(peers) - {self._me.server}
        for server in [server for server in self._paths if server not in self._peers]:
            self._end(self._paths.pop(server))
        for server, stream in list(self._incoming.items()):
            if server not in self._peers:
                stream.abort()

    def set_keys(self, ring: Ring) -> None:
        """Use these keys from now on. Streams under another end, and are dialed again when needed."""
        self._ring = ring
        for stream in self._streams():
            if stream.connection.key_id not in ring or not stream.connection.established:
                stream.abort()
        for path in self._paths.values():
            # It may have failed for want of just this key.
            path.failed, path.retry_at, path.retry_s = False, 0.0, self._settings.retry_s_min

    def reconnect(self, to: ServerId) -> None:
        """Dial another address of a peer, when needed."""
        path = self._paths.get(to)
        if path is not None:
            self._end(path)
            del self._paths[to]

    def close(self) -> None:
        """End all."""
        self._closed = True
        for path in self._paths.values():
            self._end(path)
        for stream in self._streams():
            stream.abort()

    def statistics(self) -> BulkStatistics:
        """Return the counts of streams and bytes."""
        live = self._streams()
        return BulkStatistics(
            streams=sum(stream.connection.established for stream in live) - len(self._operating),
            operators=len(self._operating),
            messages_sent=self._messages_sent,
            messages_received=self._messages_received,
            messages_dropped=self._messages_dropped,
            messages_not_understood=self._messages_not_understood,
            bytes_sent=self._bytes_sent + sum(stream.bytes_sent for stream in live),
            bytes_received=self._bytes_received + sum(stream.bytes_received for stream in live),
            dials_failed=self._dials_failed,
            rejected=dict(self._rejections.by_reason),
        )

    # -- what streams report

    def on_established(self, stream: Stream) -> None:
        """Take a stream whose other end has proved that it has the key."""
        connection = stream.connection
        assert connection.peer is not None
        if stream not in self._unproved:
            self._on_dialed(stream, connection.peer.server)
            return
        self._unproved.leave(stream)
        if connection.role is DialerRole.OPERATOR:
            self._on_operator(stream)
            return
        server = connection.peer.server
        if server not in self._peers:
            stream.abort()  # removed while it shook hands
            return
        before = self._incoming.get(server)
        # The newest is the peer's: the one before is of an earlier run, or half dead.
        self._incoming[server] = stream
        if before is not None:
            before.abort()
        log.info("stream accepted", peer=server, address=stream.address)

    def _on_operator(self, stream: Stream) -> None:
        if self._operators is None or len(self._operating) >= self._settings.operators_max:
            self._limited.warn(
                "operator refused, there are too many",
                kind="operators_max",
                address=stream.address,
                operators_max=self._settings.operators_max if self._operators is not None else 0,
            )
            stream.abort()
        elif self._operators_local and not stream.is_local:
            self._limited.warn(
                "operator refused, without a cluster key they must be on this machine",
                kind="operators_local",
                address=stream.address,
                knob="key",
            )
            stream.abort()
        else:
            self._operating.add(stream)
            self._operators.on_established(stream)

    def on_message(self, stream: Stream, message: bytes) -> None:
        """Take a message of a server or of an operator."""
        if stream in self._operating:
            assert self._operators is not None
            self._operators.on_message(stream, message)
            return
        peer = stream.connection.peer
        assert peer is not None
        if self._incoming.get(peer.server) is not stream:
            return  # nothing comes back on a stream that this server dialed
        try:
            decoded = codec.decode(message)
        except ProtocolError as error:
            self._messages_not_understood += 1
            log.warning("message of a stream not understood", peer=peer.server, error=str(error))
            return
        self._messages_received += 1
        self._on_messages(peer, [decoded])

    def on_rejected(self, stream: Stream, error: RejectedError) -> None:
        """Count and log a stream whose other end proved nothing."""
        self._rejections.note(error.rejection, f"{error} (from {stream.address})")

    def on_lost(self, stream: Stream) -> None:
        """Forget a stream that ended."""
        self._bytes_sent += stream.bytes_sent
        self._bytes_received += stream.bytes_received
        if stream in self._unproved:
            self._unproved.leave(stream)
            return
        if stream in self._operating:
            self._operating.discard(stream)
            if self._operators is not None:
                self._operators.on_lost(stream)
            return
        peer = stream.connection.peer
        if peer is not None and self._incoming.get(peer.server) is stream:
            del self._incoming[peer.server]
            self._note_end(peer.server)
            return
        for server, path in self._paths.items():
            if path.stream is stream:
                self._on_dialed_lost(server, path)
                return

    # -- dialing

    def _path(self, to: ServerId) -> _Path:
        path = self._paths.get(to)
        if path is None:
            path = self._paths[to] = _Path(self._settings.retry_s_min)
        return path

    def _dial(self, to: ServerId, path: _Path) -> None:
        address = self._address_of(to)
        if address is None:
            self._failed(to, path, "its address is not known")
            return
        path.dialing = self._loop.create_task(self._connect(to, path, address))

    async def _connect(self, to: ServerId, path: _Path, address: SocketAddress) -> None:
        connection, greeting = BulkConnection.dial(
            me=self._me,
            to=to,
            ring=self._ring,
            entropy=self._entropy,
            message_bytes_max=self._settings.message_bytes_max,
        )
        stream = Stream(connection, self, greeting=greeting, timeout_s=self._settings.handshake_timeout_s)
        path.stream = stream
        try:
            async with asyncio.timeout(self._settings.handshake_timeout_s):
                await self._make_connection(lambda: stream, address[0], address[1])
        except OSError as error:  # TimeoutError is one
            if path.stream is stream:
                path.stream = None
                self._failed(to, path, error.strerror or type(error).__name__)
        finally:
            path.dialing = None

    def _on_dialed(self, stream: Stream, server: ServerId) -> None:
        path = self._paths.get(server)
        if path is None or path.stream is not stream:
            stream.abort()
            return
        log.info("stream established", peer=server, address=stream.address)
        path.failed = False
        path.since = self._loop.time()
        waiting = list(path.queue)
        path.drop_queue()
        for message in waiting:
            self._messages_sent += 1
            stream.connection.enqueue(message)

    def _on_dialed_lost(self, server: ServerId, path: _Path) -> None:
        assert path.stream is not None
        was_established = path.stream.connection.established
        path.stream = None
        settings = self._settings
        if was_established and self._loop.time() - path.since >= settings.retry_s_max:
            # It did its work: the peer restarted, most likely, and will be there again.
            path.retry_s = settings.retry_s_min
            path.retry_at = 0.0
            path.failed = False
        else:
            self._failed(
                server,
                path,
                "it was lost at once"
                if was_established
                else "the peer does not take our key or is no zraft server",
            )
        if was_established:
            self._note_end(server)

    def _note_end(self, server: ServerId) -> None:
        if not self._closed:
            self._on_ended(server)

    def _failed(self, server: ServerId, path: _Path, why: str) -> None:
        if self._closed:
            return
        self._dials_failed += 1
        self._messages_dropped += path.drop_queue()
        if not path.failed:
            log.warning(
                "no stream to a peer, large messages go by datagrams meanwhile", peer=server, error=why
            )
        path.failed = True
        path.retry_at = self._loop.time() + path.retry_s
        path.retry_s = min(self._settings.retry_s_max, path.retry_s * 2)

    def _end(self, path: _Path) -> None:
        if path.dialing is not None:
            path.dialing.cancel()
        self._messages_dropped += path.drop_queue()
        stream, path.stream = path.stream, None
        if stream is not None:
            stream.abort()

    def _streams(self) -> list[Stream]:
        dialed = [path.stream for path in self._paths.values() if path.stream is not None]
        return [*self._unproved, *self._incoming.values(), *self._operating, *dialed]
