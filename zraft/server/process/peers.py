"""The other servers of a process: where each is, how messages get there and back, and under which keys.

Datagrams and streams carry the same messages; which of the two is for which is decided in `zraft.transport.routing`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from zraft.config.server import ServerConfig
from zraft.monitoring.statistics import Metric
from zraft.program.limited_log import LimitedLog
from zraft.raft.membership.value import Membership
from zraft.server.engine.driver import Driver
from zraft.server.process.addresses import PeerAddresses, Strangers
from zraft.server.process.bulk import BulkStreams
from zraft.server.process.operators import OperatorStreams
from zraft.server.process.rejections import Rejections
from zraft.server.process.security.reloading import Reloading
from zraft.server.process.surroundings import Dial, OpenEndpoint, dial
from zraft.transport import codec, routing
from zraft.transport.keys import ClusterKey, key_ring
from zraft.transport.link import Beside, LinkStatistics, PeerLinks
from zraft.transport.messages import PeerMessage, Sender
from zraft.transport.packing import UnsendableError
from zraft.transport.udp import SocketAddress, UdpEndpoint, UdpStatistics, discard_waiting
from zraft_core.address import Address as ListenAddress
from zraft_core.address import parse_address
from zraft_core.errors import ConfigError, ZraftError
from zraft_core.ids import ServerId

HEAR_AGAIN_MS: Final = 1_000
"""A peer whose datagrams come from another address each time keeps the socket it has for so long."""

log = structlog.get_logger()


class Peers:
    """Messages to and from the other servers of one process.

    Attributes:
        keys: the files of the cluster key, read again when they change; None without a key.
    """

    def __init__(
        self,
        config: ServerConfig,
        me: Sender,
        driver: Driver,
        operators: OperatorStreams,
        stop: asyncio.Event,
        *,
        keys: Reloading[tuple[ClusterKey, ...]] | None,
        now_ms: Callable[[], float],
        on_arrived: Callable[[float], None],
        on_answered: Callable[[], None],
        on_failed: Callable[[ZraftError], None],
        endpoint: OpenEndpoint = UdpEndpoint,
        dial: Dial = dial,
    ) -> None:
        """Make the links to the other servers; `open` binds the socket.

        `keys`: None without a key. `on_arrived` gets the time when the driver was given something that wants a turn.
        `on_answered` is called when all that follows from it was said at once, and `on_failed` when it cannot continue. Once
        `stop` is set, what comes by streams no longer counts.
        """
        self._config = config
        self._driver = driver
        self._stop = stop
        self._now_ms = now_ms
        self._on_arrived = on_arrived
        self._on_answered = on_answered
        self._on_failed = on_failed
        self._open_endpoint = endpoint
        sizes = {server: config.peer.datagram_bytes for server in config.cluster if server != config.id}
        self.keys = keys
        self._keys_in_force = self.keys.value if self.keys is not None else None
        self._links = PeerLinks(
            me=me,
            peers=sizes,
            keys=self._keys_in_force,
            entropy=os.urandom,
            insecure=self._keys_in_force is None,
        )
        loop = asyncio.get_running_loop()
        self._rejections = Rejections("datagram", LimitedLog(loop.time))
        self._strangers = Strangers(loop.time)
        self._streams = BulkStreams(
            me=me,
            ring=key_ring(self._keys_in_force, self._keys_in_force is None),
            peers=sizes,
            address_of=lambda server: self._addresses.known.get(server) if self._addresses else None,
            on_messages=self._on_messages,
            on_ended=self._on_ended,
            operators=operators,
            operators_local=self._keys_in_force is None and not config.insecure_peers,
            entropy=os.urandom,
            dial=dial,
        )
        self._endpoint: UdpEndpoint | None = None
        self._addresses: PeerAddresses | None = None
        self._heard_at: dict[ServerId, int] = {}
        self._encoded: tuple[PeerMessage | None, bytes] = None, b""
        """The message that was sent last, and its bytes: what goes to several servers is the same one."""
        self._lossy: set[ServerId] = set()
        """Peers whose path loses so many datagrams that larger messages go by a stream (D-22)."""
        self._met: dict[ServerId, tuple[ListenAddress, ...]] = {
            server: (address,) for server, address in config.cluster.items() if server != config.id
        }
        """Everybody who was a peer in this run, and where: as configured here, as replicated. At most 254."""

    async def open(self, bound: socket.socket) -> PeerAddresses:
        """Take datagrams from this socket, and look up where the others are; the caller keeps the addresses fresh.

        What came before, while the server was starting, is thrown away: nobody waits for an answer to it any more.
        """
        discard_waiting(bound)
        self._endpoint = self._open_endpoint(bound, asyncio.get_running_loop(), self._on_datagrams)
        self._addresses = PeerAddresses(self._met, self._endpoint.resolve)
        await self._addresses.refresh()
        return self._addresses

    @property
    def receive_buffer_bytes(self) -> int:
        """The number of bytes that the kernel keeps for us between two reads."""
        assert self._endpoint is not None
        return self._endpoint.receive_buffer_bytes

    def close(self) -> None:
        """Close the socket and all streams."""
        self._streams.close()
        if self._endpoint is not None:
            self._endpoint.close()

    # -- what leaves

    def send(self, to: ServerId, messages: Sequence[PeerMessage]) -> None:
        """Send what a turn of the driver has for one other server."""
        assert self._addresses is not None
        assert self._endpoint is not None
        known = self._addresses.known
        if to not in known:
            return
        match messages:
            case [message]:
                # Nearly always it is one that fits a datagram.
                if message is not self._encoded[0]:
                    self._encoded = message, codec.encode(message)
                datagram = self._links.send_one(to, self._encoded[1])
                if datagram is not None:
                    self._endpoint.send(known[to], datagram)
                    return
        last, last_encoded = self._encoded
        encoded = [last_encoded if message is last else codec.encode(message) for message in messages]
        try:
            datagrams = self._links.send_encoded(to, self._send_large(to, encoded))
        except UnsendableError as error:
            # Batches are bounded so that this cannot happen; were it to, Raft's repetition would find it again.
            log.error("message too large for a peer", peer=to, error=str(error))
            return
        for datagram in datagrams:
            self._endpoint.send(known[to], datagram)

    def _note_loss(self, server: ServerId) -> None:
        """Take note whether the path to a peer loses so many datagrams that larger messages go by a stream."""
        raft, lossy = self._driver.raft, self._links.is_lossy(server)
        if raft is not None and lossy is not (server in self._lossy):
            (self._lossy.add if lossy else self._lossy.discard)(server)
            raft.set_bulk_bytes_min(server, self._links.capacity(server, routing.datagrams_max(lossy=lossy)))

    def _send_large(self, to: ServerId, encoded: list[bytes]) -> list[bytes]:
        """Send by a stream what is too long for datagrams; the rest is returned, in order.

        Raises:
            UnsendableError: a message is longer than any may be.
        """
        bytes_max = self._links.capacity(to, routing.datagrams_max(lossy=self._links.is_lossy(to)))
        encoded, streamed = routing.divide(
            encoded, bytes_max=bytes_max, stream=lambda: self._streams.offers(to)
        )
        if streamed:
            self._streams.send(to, streamed)
        return encoded

    # -- what arrives

    def drain(self) -> None:
        """Take what waits in the socket now: it has arrived, so it counts before any timer."""
        if self._endpoint is not None:
            self._endpoint.drain()

    def _on_datagrams(self, datagrams: list[tuple[bytes, SocketAddress]]) -> None:
        arrived = self._now_ms()
        now = int(arrived)
        self._driver.pass_time(now)
        links, addresses, endpoint = self._links, self._addresses, self._endpoint
        assert addresses is not None
        assert endpoint is not None
        for datagram, source in datagrams:
            sender, messages, beside = links.receive(datagram, now)
            if sender is not None:
                server = sender.server
                if server not in addresses.sources or addresses.sources[server] != source:
                    addresses.heard(server, source)
                if server not in endpoint.sources or endpoint.sources[server] != source:
                    self._hear(server, source, now)
            if beside is not None:
                self._see_to(beside, source)
            if sender is not None and messages:
                try:
                    self._driver.receive(sender, messages)
                except ZraftError as error:
                    self._on_failed(error)
                    return
            elif sender is not None:
                self._note_loss(sender.server)  # it may have told of it
        self._answer(arrived)

    def _answer(self, arrived: float) -> None:
        """Say at once what the driver says to what it was given, or have a turn."""
        sends = self._driver.answer()
        if sends is None:
            self._on_arrived(arrived)
        else:
            for to, said in sends:
                self.send(to, said)
            if sends:
                self._on_answered()

    def _see_to(self, beside: Beside, source: SocketAddress) -> None:
        """Send the answers to a datagram from `source`, and log why it was dropped."""
        assert self._addresses is not None
        assert self._endpoint is not None
        for to, reply in beside.replies:
            address = self._addresses.answer_to(to, source)
            if address is not None and address != source:
                self._strangers.note(to, source, address)
            if address is not None:
                self._endpoint.send(address, reply)
        if beside.rejection is not None:
            self._rejections.note(beside.rejection, beside.error or "")

    def _hear(self, server: ServerId, source: SocketAddress, now: int) -> None:
        """Note where datagrams of a peer come from, if that was not known.

        A moved peer is followed now and then.
        """
        if self._endpoint is not None and now - self._heard_at.get(server, -HEAR_AGAIN_MS) >= HEAR_AGAIN_MS:
            self._heard_at[server] = now
            self._endpoint.hear(server, source)

    def _on_messages(self, sender: Sender, messages: list[PeerMessage]) -> None:
        """Take messages that came by a stream."""
        if self._stop.is_set():
            return
        arrived = self._now_ms()
        self._driver.pass_time(int(arrived))
        try:
            self._driver.receive(sender, messages)
        except ZraftError as error:
            self._on_failed(error)
            return
        self._answer(arrived)

    def _on_ended(self, server: ServerId) -> None:
        """Take note that a stream to or from that server has ended."""
        if self._stop.is_set():
            return
        self.drain()  # what it said before its end comes first
        now = self._now_ms()
        self._driver.pass_time(int(now))
        self._driver.note_lost(server)
        self._on_arrived(now)

    def hold_streams(self) -> None:
        """Have a stream to each server that leads a group here. It carries little; its end tells of a leader's end."""
        for server in self._driver.leaders:
            self._streams.hold(server)

    def on_stream(self, transport: asyncio.Transport, data: bytes) -> None:
        """Give a connection to the port of clients that is another server's, or an operator's, to the streams."""
        self._streams.accept(transport, data)

    # -- who they are

    def set_members(self, membership: Membership) -> None:
        """Speak to the members of a changed configuration, wherever they are.

        A server may be where this server's own configuration says, or where the replicated membership does: see
        `PeerAddresses`.
        """
        mine = self._config.id
        # Servers that went stay, too: the leader goes on telling them that they were removed, and they may
        # ask.
        peers = self._met
        for server, member in membership.members.items():
            if server != mine and member.address:
                try:
                    address = parse_address(member.address, f"address of server {server}")
                except ConfigError as error:
                    log.error("member has no usable address", server=server, error=str(error))
                    continue
                configured = self._config.cluster.get(server)
                if address.is_wildcard:
                    # A server's own entry may be one, and it was the leader who wrote down the founders.
                    continue
                peers[server] = (address,) if configured in (None, address) else (configured, address)
        self._links.set_peers(dict.fromkeys(peers, self._config.peer.datagram_bytes))
        if self._addresses is not None:
            self._addresses.set_peers(peers)
        self._streams.set_peers(peers)

    def take_keys(self) -> None:
        """Use the keys of changed key files from now on: the first seals, all of them open."""
        if self.keys is None or self.keys.value == self._keys_in_force:
            return
        keys: tuple[ClusterKey, ...] = self.keys.value
        hellos = self._links.set_keys(keys)
        self._streams.set_keys(key_ring(keys, False))
        self._keys_in_force = keys
        for to, hello in hellos:
            address = self._addresses.known.get(to) if self._addresses is not None else None
            if address is not None and self._endpoint is not None:
                self._endpoint.send(address, hello)
        log.info(
            "cluster keys taken",
            seals=keys[0].key_id.hex(),
            opens=[key.key_id.hex() for key in keys],
        )

    # -- what operators see

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics of keys, streams and paths."""
        metrics: dict[str, Metric] = {}
        if self.keys is not None and self._keys_in_force is not None:
            metrics["cluster_key_sealing"] = self._keys_in_force[0].key_id.hex()
            metrics["cluster_keys_valid"] = len(self._keys_in_force)
            metrics["cluster_key_reloads_failed_total"] = self.keys.failures_total
        streams = self._streams.statistics()
        metrics["peer_streams"] = streams.streams
        metrics["peer_stream_messages_sent_total"] = streams.messages_sent
        metrics["peer_stream_messages_dropped_total"] = streams.messages_dropped
        metrics["peer_stream_bytes_sent_total"] = streams.bytes_sent
        metrics["peer_streams_refused_total"] = sum(streams.rejected.values())
        loss = self._links.statistics().loss
        metrics["peer_datagrams_lost_permille"] = round(1000 * max(loss.values(), default=0.0))
        metrics["operators_connected"] = streams.operators
        return metrics

    def traffic(self) -> tuple[UdpStatistics, LinkStatistics] | None:
        """Return the counts of datagrams; None before `open`."""
        if self._endpoint is None:
            return None
        return self._endpoint.statistics(), self._links.statistics()
