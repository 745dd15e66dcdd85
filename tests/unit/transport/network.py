"""Servers of a test and the datagrams between them, with every choice made by the test."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

from attrs import frozen

from zraft.raft.messages import AppendEntries, Entry, EntryKind, ReadIndex
from zraft.transport.keys import ClusterKey
from zraft.transport.link import PeerLinks, TransportSettings
from zraft.transport.messages import PeerMessage, Sender
from zraft.transport.sealing import Rejection
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId

A, B, C = ServerId(1), ServerId(2), ServerId(3)
KEY = ClusterKey(bytes(range(32)))
OTHER_KEY = ClusterKey(bytes(range(1, 33)))


def sender(server: ServerId, *, boot: int = 1, disk: int = 0) -> Sender:
    return Sender(server, Instance(bytes([server, disk]) * 8), boot)


def links(
    server: ServerId,
    *,
    seed: int,
    keys: Sequence[ClusterKey] | None = (KEY,),
    peers: Sequence[ServerId] = (A, B),
    datagram_bytes_max: int = 1_400,
    boot: int = 1,
    settings: TransportSettings | None = None,
) -> PeerLinks:
    """One run of a server; the seed stands for the entropy of that run. No keys: plain mode."""
    return PeerLinks(
        me=sender(server, boot=boot),
        peers={peer: datagram_bytes_max for peer in peers if peer != server},
        keys=keys,
        insecure=keys is None,
        entropy=random.Random(f"{seed}-{server}").randbytes,
        settings=settings,
    )


def note(number: int) -> ReadIndex:
    """A small message that a test can tell from the others."""
    return ReadIndex(COORDINATION_GROUP, 1, number)


def append(payload: bytes) -> AppendEntries:
    return AppendEntries(COORDINATION_GROUP, 5, 7, 3, 6, (Entry(8, 4, EntryKind.COMMANDS, 20, 2, payload),))


@frozen
class Received:
    """What a datagram brought."""

    sender: Sender | None
    messages: list[PeerMessage]
    replies: list[tuple[ServerId, bytes]]
    error: str | None
    rejection: Rejection | None


def receive(links: PeerLinks, datagram: bytes, now_ms: int = 0) -> Received:
    sender, messages, beside = links.receive(datagram, now_ms)
    if beside is None:
        return Received(sender, list(messages), [], None, None)
    return Received(sender, list(messages), list(beside.replies), beside.error, beside.rejection)


class Network:
    """Runs of servers by id, a queue of datagrams on their way, and a tape of all that ever were."""

    def __init__(self, *runs: tuple[ServerId, PeerLinks]) -> None:
        self.runs = dict(runs)
        self.wire: deque[tuple[ServerId, bytes]] = deque()
        self.tape: list[tuple[ServerId, bytes]] = []
        self.got: list[tuple[ServerId, Sender, PeerMessage]] = []
        self.errors: list[str] = []
        self.now_ms = 0

    def put(self, to: ServerId, datagram: bytes) -> None:
        self.wire.append((to, datagram))
        self.tape.append((to, datagram))

    def send(self, frm: ServerId, to: ServerId, *messages: PeerMessage) -> None:
        for datagram in self.runs[frm].send(to, messages):
            self.put(to, datagram)

    def deliver(self, to: ServerId, datagram: bytes) -> Received:
        received = receive(self.runs[to], datagram, self.now_ms)
        for reply_to, reply in received.replies:
            self.put(reply_to, reply)
        if received.error is not None:
            self.errors.append(received.error)
        for message in received.messages:
            assert received.sender is not None
            self.got.append((to, received.sender, message))
        return received

    def run(self) -> None:
        """Deliver everything in order until the wire is silent; the handshake must not chatter for ever."""
        for _ in range(10_000):
            if not self.wire:
                return
            self.deliver(*self.wire.popleft())
        raise AssertionError("the wire never falls silent")

    def messages(self, to: ServerId) -> list[PeerMessage]:
        return [message for receiver, _, message in self.got if receiver == to]


def joined(
    seed: int = 0, *, datagram_bytes_max: int = 1_400, keys: Sequence[ClusterKey] | None = (KEY,)
) -> Network:
    """Two servers that have shaken hands both ways."""
    network = Network(
        (A, links(A, seed=seed, keys=keys, datagram_bytes_max=datagram_bytes_max)),
        (B, links(B, seed=seed, keys=keys, datagram_bytes_max=datagram_bytes_max)),
    )
    network.send(A, B, note(0))
    network.run()
    network.send(B, A, note(0))
    network.run()
    assert network.messages(A) == network.messages(B) == [note(0)]
    assert not network.errors
    network.got.clear()
    return network
