"""Messages to datagrams and back, for all peers of one server: packing and sealing composed. Pure.

The shell gives it what arrives and puts on the wire what it returns; addresses are none of its business.
Who a datagram is from is decided by what opens it, never by where it came from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import frozen

from zraft.transport import codec, packing
from zraft.transport.handshake import Handshake
from zraft.transport.keys import PLAIN_KEY_ID, ClusterKey, key_name, key_ring
from zraft.transport.loss import REPORT_EVERY, REPORT_LEAST, Loss, Reporter
from zraft.transport.messages import PeerMessage, Sender
from zraft.transport.packing import (
    MESSAGE_BYTES_MAX,
    ONE,
    ONE_BYTES,
    Packer,
    Reassembly,
    UnsendableError,
)
from zraft.transport.sealing import (
    HELLO,
    SALT_BYTES,
    SEAL_BYTES,
    SENDER_AT,
    HelloDatagram,
    Incoming,
    Outgoing,
    RejectedError,
    Rejection,
    decode_hello,
    encode_hello,
    mac_key_for,
    read_prefix,
)
from zraft_core.errors import ConfigError, ProtocolError
from zraft_core.ids import SERVER_ID_MAX, SERVER_ID_MIN, ServerId

DATAGRAM_BYTES_DEFAULT: Final = 1_400
"""Fits an Ethernet frame with room for IPv6 and a tunnel or two: no fragmentation by IP."""

DATAGRAM_BYTES_LOOPBACK: Final = 60_000
"""Below the 65,507 bytes of UDP over IPv4; a fifth of the cost per byte where no frame limits it."""

DATAGRAM_BYTES_MIN: Final = 512
DATAGRAM_BYTES_MAX: Final = 65_507

QUEUED_MESSAGES_MAX: Final = 64
QUEUED_BYTES_MAX: Final = 1024 * 1024
"""The bytes that wait per peer for the handshake: a round trip's worth; to a peer that was down the newest
matters.
"""


@frozen(kw_only=True)
class TransportSettings:
    """Bounds of one server's datagram transport; sizes in bytes, times in milliseconds."""

    message_bytes_max: int = MESSAGE_BYTES_MAX
    reassembly_bytes_per_peer_max: int = 4 * MESSAGE_BYTES_MAX
    reassembly_bytes_total_max: int = 16 * MESSAGE_BYTES_MAX
    reassembly_timeout_ms: int = 1_000

    def __attrs_post_init__(self) -> None:
        if self.message_bytes_max < 1:
            raise ConfigError(f"message_bytes_max: expected at least 1, found {self.message_bytes_max}")
        # Twice, so that one message in the smallest fragments fits with the allowance for each of them.
        if self.reassembly_bytes_per_peer_max < 2 * self.message_bytes_max:
            raise ConfigError(
                f"reassembly_bytes_per_peer_max: expected at least twice message_bytes_max "
                f"({2 * self.message_bytes_max}), found {self.reassembly_bytes_per_peer_max}"
            )
        if self.reassembly_bytes_total_max < self.reassembly_bytes_per_peer_max:
            raise ConfigError(
                f"reassembly_bytes_total_max: expected at least reassembly_bytes_per_peer_max "
                f"({self.reassembly_bytes_per_peer_max}), found {self.reassembly_bytes_total_max}"
            )
        if self.reassembly_timeout_ms < 1:
            raise ConfigError(
                f"reassembly_timeout_ms: expected at least 1, found {self.reassembly_timeout_ms}"
            )


@frozen
class Beside:
    """Answers and problems beside the messages of a datagram; there are seldom any.

    `replies` are datagrams to send now. `error` is for the log, and already counted: the datagram may hold messages beside
    the one that was not understood. `rejection` says why a whole datagram was dropped.
    """

    replies: Sequence[tuple[ServerId, bytes]]
    error: str | None = None
    rejection: Rejection | None = None


ReceivedDatagram = tuple[Sender | None, Sequence[PeerMessage], Beside | None]
"""The authenticated peer (as claimed only, in plain mode), its messages, and what there is beside them. The peer is None if
the datagram was dropped or was part of the handshake."""


@frozen(kw_only=True)
class LinkStatistics:
    """Counts since this run began. `rejected` is by `sealing.Rejection` value, with every reason present.

    `loss` is the share of the newest datagrams to each peer that did not arrive there, 0 to 1.
    """

    datagrams_sent: int
    datagrams_opened: int
    messages_sent: int
    messages_received: int
    messages_not_understood: int
    hellos_sent: int
    hellos_received: int
    runs_installed: int
    queued_messages_dropped: int
    reassembly_dropped: int
    reassembly_held_bytes: int
    rejected: Mapping[str, int]
    loss: Mapping[ServerId, float]


class _Peer:
    """State of the links to one peer."""

    __slots__ = ("handshake", "loss", "outgoing", "packer", "queue", "queued_bytes", "reporter")

    def __init__(self, handshake: Handshake, outgoing: Outgoing, packer: Packer) -> None:
        self.handshake = handshake
        self.outgoing = outgoing
        self.packer = packer
        self.queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self.loss = Loss()
        self.reporter = Reporter()

    def drop_queue(self) -> int:
        """Drop the messages that wait; return how many there were."""
        dropped = len(self.queue)
        self.queue.clear()
        self.queued_bytes = 0
        return dropped


class PeerLinks:
    """The datagram links of one run of one server.

    Args:
        me: this server, its disk instance, and its boot number, already durable (D-1).
        peers: the servers to talk to, each with the largest datagram to send it, in bytes.
        keys: one or two cluster keys: the first one seals, all open. None only with `insecure`.
        insecure: no key, no secrecy, no authentication: anybody who reaches the port can be any server.
        entropy: gives that many unpredictable bytes (`os.urandom`); drawn from at start and for challenges.

    Raises:
        ConfigError: the arguments do not fit each other; says which.
    """

    def __init__(
        self,
        *,
        me: Sender,
        peers: Mapping[ServerId, int],
        keys: Sequence[ClusterKey] | None,
        entropy: Callable[[int], bytes],
        insecure: bool = False,
        settings: TransportSettings | None = None,
    ) -> None:
        self._settings = settings or TransportSettings()
        self._keys = key_ring(keys, insecure)
        self._seal_key_id, self._seal_key = next(iter(self._keys.items()))
        self._mac_keys = {key_id: mac_key_for(key) for key_id, key in self._keys.items()}
        self._me = me
        self._entropy = entropy
        self._salt = entropy(SALT_BYTES)
        assert len(self._salt) == SALT_BYTES
        self._reassembly = Reassembly(
            message_bytes_max=self._settings.message_bytes_max,
            bytes_per_peer_max=self._settings.reassembly_bytes_per_peer_max,
            bytes_total_max=self._settings.reassembly_bytes_total_max,
            timeout_ms=self._settings.reassembly_timeout_ms,
        )
        self._datagrams_sent = 0
        self._datagrams_opened = 0
        self._messages_sent = 0
        self._messages_received = 0
        self._messages_not_understood = 0
        self._hellos_sent = 0
        self._hellos_received = 0
        self._runs_installed = 0
        self._queued_messages_dropped = 0
        self._rejected = dict.fromkeys(Rejection, 0)
        self._peers = {server: self._new_peer(server, size) for server, size in peers.items()}
        self._former: dict[ServerId, _Peer] = {}

    def peer(self, server: ServerId) -> Sender | None:
        """Return the run of a peer that was proved last; None before the first handshake, or if it is no peer."""
        peer = self._peers.get(server)
        incoming = peer.handshake.incoming if peer is not None else None
        return incoming.sender if incoming is not None else None

    def set_peers(self, peers: Mapping[ServerId, int]) -> None:
        """Talk to these servers from now on, each with the largest datagram to send it.

        Peers that stay keep everything. One that goes and comes back goes on where it was: its counter and its
        replay windows outlive its absence, because our salt does (D-6). At most 254 are remembered.

        Raises:
            ConfigError: as when it was made; nothing has changed then.
        """
        for server, size in peers.items():
            self._check_peer(server, size)
        for server in [server for server in self._peers if server not in peers]:
            peer = self._former[server] = self._peers.pop(server)
            peer.handshake.forget()
            self._queued_messages_dropped += peer.drop_queue()
            self._reassembly.forget_sender(server)
        for server, size in peers.items():
            if server in self._former:
                self._peers[server] = self._former.pop(server)
            if server in self._peers:
                self._peers[server].packer.resize(size - SEAL_BYTES)
            else:
                self._peers[server] = self._new_peer(server, size)

    def set_keys(self, keys: Sequence[ClusterKey]) -> list[tuple[ServerId, bytes]]:
        """Take these cluster keys instead: the first seals from now on, all open.

        Runs of peers stay, except those that proved themselves under no key which stays; these must prove themselves
        again, and the hellos returned, to be sent now, ask them to. Until the answer messages wait as at the start.

        Raises:
            ConfigError: too many keys or too few, of one id, or this is plain mode. Nothing has changed then.
        """
        if PLAIN_KEY_ID in self._keys:
            raise ConfigError("cluster keys: found some, expected none: this server runs in insecure mode")
        ring = key_ring(keys, insecure=False)
        for key_id, key in self._keys.items():
            if key_id in ring and ring[key_id] != key:
                raise ConfigError(
                    f"cluster keys: expected different ids, found two keys with {key_id.hex()}; create another key"
                )
        gone = self._keys.keys() - ring.keys()
        self._keys = ring
        self._mac_keys = {key_id: mac_key_for(key) for key_id, key in ring.items()}
        self._seal_key_id, self._seal_key = next(iter(ring.items()))
        hellos = []
        for server, peer in (*self._peers.items(), *self._former.items()):
            peer.outgoing.set_key(self._seal_key)
            if peer.handshake.forget_keys(gone) and server in self._peers:
                hellos.append((server, self._hello(server, peer.handshake.ask())))
        return hellos

    def capacity(self, to: ServerId, datagrams: int) -> int:
        """Return the most bytes that one encoded message may have to cross in so many datagrams to this peer."""
        return self._peers[to].packer.capacity(datagrams)

    def is_lossy(self, to: ServerId) -> bool:
        """Return whether this peer loses so many datagrams that large messages should take another way (D-22)."""
        return self._peers[to].loss.lossy

    def send(self, to: ServerId, messages: Sequence[PeerMessage]) -> list[bytes]:
        """Return the datagrams that carry these messages; see `send_encoded`."""
        return self.send_encoded(to, [codec.encode(message) for message in messages])

    def send_one(self, to: ServerId, encoded: bytes) -> bytes | None:
        """Return the datagram that carries this message (`codec.encode`), as nearly all do: see `send_encoded`.

        None if that has to be asked, because it takes more than one datagram or has to wait. Nothing has changed then.
        """
        peer = self._peers[to]
        incoming = peer.handshake.incoming
        if incoming is None or len(encoded) > peer.packer.single_bytes_max:
            return None
        self._datagrams_sent += 1
        self._messages_sent += 1
        return peer.outgoing.seal(ONE + encoded, incoming.salt)

    def send_encoded(self, to: ServerId, encoded: list[bytes]) -> list[bytes]:
        """Return datagrams that carry these messages (`codec.encode`), in order, to put on the wire now.

        While the peer's salt is not known, the messages wait (bounded: the oldest are dropped) and the one
        datagram returned asks for it.

        Raises:
            UnsendableError: a message is larger than `message_bytes_max`; none is sent.
        """
        peer = self._peers[to]
        if not encoded:
            return []
        if peer.handshake.incoming is None:
            self._queue(peer, encoded)
            return [self._hello(to, peer.handshake.ask())]
        return self._seal(peer, encoded)

    def receive(self, datagram: bytes, now_ms: int) -> ReceivedDatagram:
        """Return what a datagram brings, wherever it came from.

        Never raises, whatever its bytes are.

        `now_ms` is a monotonic clock's; it is used for timeouts and rates only.
        """
        try:
            peer = self._peers[datagram[SENDER_AT]]  # type: ignore[index]  # any byte may stand there
        except LookupError:
            return self._receive_other(datagram, now_ms)
        incoming = peer.handshake.incoming
        body = incoming.open_next(datagram) if incoming is not None else None
        if incoming is None or body is None:
            return self._receive_other(datagram, now_ms)
        reporter = peer.reporter
        opened = reporter.opened + 1
        if body[:ONE_BYTES] == ONE and (
            opened < REPORT_LEAST or (opened < REPORT_EVERY and now_ms < reporter.due_ms)
        ):
            # This is what `_opened` does with nearly all of them, in short.
            try:
                message = codec.decode(memoryview(body)[ONE_BYTES:])
            except ProtocolError:
                return self._opened(peer, incoming, body, now_ms)
            reporter.opened = opened
            self._datagrams_opened += 1
            self._messages_received += 1
            return incoming.sender, [message], None
        return self._opened(peer, incoming, body, now_ms)

    def _receive_other(self, datagram: bytes, now_ms: int) -> ReceivedDatagram:
        """Return what a datagram brings that is not the next one of a run that is known."""
        try:
            kind, server, receiver, key_id = read_prefix(datagram)
            peer = self._peers.get(server)
            if peer is None or receiver != self._me.server or key_id not in self._keys:
                raise self._not_for_us(server, receiver, key_id)
            if kind == HELLO:
                return self._on_hello(server, peer, datagram, key_id, now_ms)
            return self._on_data(server, peer, datagram, key_id, now_ms)
        except RejectedError as error:
            self._rejected[error.rejection] += 1
            return None, (), Beside((), str(error), error.rejection)

    def statistics(self) -> LinkStatistics:
        """Return counts for metrics and for tests."""
        return LinkStatistics(
            datagrams_sent=self._datagrams_sent,
            datagrams_opened=self._datagrams_opened,
            messages_sent=self._messages_sent,
            messages_received=self._messages_received,
            messages_not_understood=self._messages_not_understood,
            hellos_sent=self._hellos_sent,
            hellos_received=self._hellos_received,
            runs_installed=self._runs_installed,
            queued_messages_dropped=self._queued_messages_dropped,
            reassembly_dropped=self._reassembly.dropped,
            reassembly_held_bytes=self._reassembly.held_bytes,
            rejected={rejection.value: count for rejection, count in self._rejected.items()},
            loss={server: peer.loss.share for server, peer in self._peers.items()},
        )

    def _check_peer(self, server: ServerId, datagram_bytes_max: int) -> None:
        if not SERVER_ID_MIN <= server <= SERVER_ID_MAX or server == self._me.server:
            raise ConfigError(
                f"peers: expected servers {SERVER_ID_MIN} to {SERVER_ID_MAX} other than this one "
                f"({self._me.server}), found {server}"
            )
        if not DATAGRAM_BYTES_MIN <= datagram_bytes_max <= DATAGRAM_BYTES_MAX:
            raise ConfigError(
                f"datagram_bytes_max of server {server}: expected {DATAGRAM_BYTES_MIN} to "
                f"{DATAGRAM_BYTES_MAX}, found {datagram_bytes_max}"
            )
        body_bytes_max = datagram_bytes_max - SEAL_BYTES
        largest = packing.message_bytes_max(body_bytes_max)
        if self._settings.message_bytes_max > largest:
            raise ConfigError(
                f"message_bytes_max: expected at most {largest} with datagrams of {datagram_bytes_max} bytes "
                f"to server {server}, found {self._settings.message_bytes_max}; raise datagram_bytes_max"
            )

    def _new_peer(self, server: ServerId, datagram_bytes_max: int) -> _Peer:
        self._check_peer(server, datagram_bytes_max)
        return _Peer(
            Handshake(me=self._me, salt=self._salt, entropy=self._entropy),
            Outgoing(self._seal_key, me=self._me, receiver=server, salt=self._salt),
            Packer(
                body_bytes_max=datagram_bytes_max - SEAL_BYTES,
                message_bytes_max=self._settings.message_bytes_max,
            ),
        )

    def _not_for_us(self, server: ServerId, receiver: ServerId, key_id: bytes) -> RejectedError:
        """Say, before any cryptography, why a datagram cannot be meant for this server."""
        if receiver != self._me.server:
            return RejectedError(
                Rejection.MISADDRESSED,
                f"datagram from server {server} for server {receiver}, but this is server {self._me.server}; "
                f"do the configured addresses agree?",
            )
        if server not in self._peers:
            return RejectedError(
                Rejection.UNKNOWN_SENDER,
                f"datagram from server {server}: expected one of the configured peers {sorted(self._peers)}",
            )
        return RejectedError(
            Rejection.UNKNOWN_KEY,
            f"datagram from server {server}: {key_name(key_id)}; this server has "
            f"{' and '.join(key_name(mine) for mine in self._keys)}",
        )

    def _on_hello(
        self, server: ServerId, peer: _Peer, datagram: bytes, key_id: bytes, now_ms: int
    ) -> ReceivedDatagram:
        hello = decode_hello(datagram, mac_key=self._mac_keys[key_id])
        self._hellos_received += 1
        before = peer.handshake.incoming
        proved, answer = peer.handshake.on_hello(hello, key_id, now_ms)
        replies = []
        if answer is not None:
            replies.append((server, self._hello(server, answer)))
        if proved:
            if peer.handshake.incoming is not before:
                self._runs_installed += 1
                peer.loss.restart()
                self._reassembly.forget_sender(server)
            replies.extend((server, datagram) for datagram in self._flush(peer))
        return None, (), Beside(replies) if replies else None

    def _on_data(
        self, server: ServerId, peer: _Peer, datagram: bytes, key_id: bytes, now_ms: int
    ) -> ReceivedDatagram:
        incoming = peer.handshake.incoming
        if len(datagram) < SEAL_BYTES:
            # This comes before it can make us ask the peer anything: a few forged bytes are not to be worth a
            # hello.
            raise RejectedError(
                Rejection.MALFORMED, f"datagram: expected at least {SEAL_BYTES} bytes, found {len(datagram)}"
            )
        try:
            if incoming is None:
                raise RejectedError(
                    Rejection.STALE, f"datagram of server {server}: its handshake has not reached this run"
                )
            body = incoming.open(datagram, key_id, self._keys[key_id], self._salt)
        except RejectedError as error:
            self._rejected[error.rejection] += 1
            question = None
            if error.rejection in (Rejection.STALE, Rejection.UNAUTHENTIC):
                question = peer.handshake.on_unopenable(now_ms)
            replies = [(server, self._hello(server, question))] if question is not None else []
            return None, (), Beside(replies, str(error), error.rejection)
        return self._opened(peer, incoming, body, now_ms)

    def _opened(self, peer: _Peer, incoming: Incoming, body: bytes, now_ms: int) -> ReceivedDatagram:
        self._datagrams_opened += 1
        server = incoming.sender.server
        replies = []
        try:
            if body and body[0] == packing.REPORT:
                peer.loss.on_report(packing.unpack_report(body))
                return incoming.sender, (), None
            reporter = peer.reporter
            reporter.opened += 1
            opened = reporter.opened
            if (
                opened >= REPORT_EVERY or (opened >= REPORT_LEAST and now_ms >= reporter.due_ms)
            ) and reporter.is_due(now_ms):
                replies.append((server, self._report(peer, incoming)))
            if body and body[0] == packing.WHOLE:
                messages, errors = codec.decode_sequence(memoryview(body)[1:])
            else:
                messages, errors = self._reassemble(server, body, now_ms), []
        except ProtocolError as error:
            messages, errors = [], [error]
        self._messages_received += len(messages)
        self._messages_not_understood += len(errors)
        text = f"from server {server}: {errors[0]}" if errors else None
        return incoming.sender, messages, Beside(replies, text) if replies or errors else None

    def _report(self, peer: _Peer, incoming: Incoming) -> bytes:
        self._datagrams_sent += 1
        body = packing.pack_report(packing.LossReport(incoming.next_counter, incoming.opened))
        return peer.outgoing.seal(body, incoming.salt)

    def _reassemble(self, server: ServerId, body: bytes, now_ms: int) -> list[PeerMessage]:
        """Return the message of which this body is the last part that was missing."""
        kind = body[0] if body else None
        if kind == packing.FRAGMENT:
            whole = self._reassembly.add(server, packing.unpack_fragment(body), now_ms)
            return [] if whole is None else [codec.decode(whole)]
        raise ProtocolError(
            f"body: expected kind {packing.WHOLE}, {packing.FRAGMENT} or {packing.REPORT}, found {kind} in {len(body)} bytes"
        )

    def _queue(self, peer: _Peer, encoded: list[bytes]) -> None:
        for message in encoded:
            if len(message) > self._settings.message_bytes_max:
                raise UnsendableError(
                    f"peer message: expected at most {self._settings.message_bytes_max} bytes "
                    f"(message_bytes_max), found {len(message)}"
                )
        for message in encoded:
            peer.queue.append(message)
            peer.queued_bytes += len(message)
        # The newest message stays even if it alone is above the bound of bytes: it is bounded by its own.
        while len(peer.queue) > QUEUED_MESSAGES_MAX or (
            peer.queued_bytes > QUEUED_BYTES_MAX and len(peer.queue) > 1
        ):
            peer.queued_bytes -= len(peer.queue.popleft())
            self._queued_messages_dropped += 1

    def _flush(self, peer: _Peer) -> list[bytes]:
        encoded = list(peer.queue)
        peer.drop_queue()
        return self._seal(peer, encoded)

    def _seal(self, peer: _Peer, encoded: list[bytes]) -> list[bytes]:
        assert peer.handshake.incoming is not None
        salt = peer.handshake.incoming.salt
        seal = peer.outgoing.seal
        datagrams = []
        for body in peer.packer.pack(encoded):
            datagrams.append(seal(body, salt))  # noqa: PERF401  # a comprehension is one call more
        self._datagrams_sent += len(datagrams)
        self._messages_sent += len(encoded)
        return datagrams

    def _hello(self, to: ServerId, hello: HelloDatagram) -> bytes:
        self._hellos_sent += 1
        return encode_hello(
            hello, receiver=to, key_id=self._seal_key_id, mac_key=self._mac_keys[self._seal_key_id]
        )
