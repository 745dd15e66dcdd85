"""Streams between servers over loopback TCP: dialed when needed, bounded, and given up for datagrams (D-22)."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from zraft.raft.messages import AppendEntries, Entry, EntryKind
from zraft.server.process.bulk import BulkSettings, BulkStreams
from zraft.transport import codec, routing
from zraft.transport.bulk import ANSWER_BYTES, MAGIC, OPENING_BYTES, BulkConnection
from zraft.transport.keys import ClusterKey, key_ring
from zraft.transport.link import PeerLinks
from zraft.transport.messages import PeerMessage, Sender, SnapshotChunk
from zraft.transport.packing import UnsendableError
from zraft.transport.sealing import Rejection
from zraft.transport.stream import RECEIVE_BYTES
from zraft_core.ids import Instance, ServerId

A, B = ServerId(1), ServerId(2)
KEY = ClusterKey(bytes(range(32)))
OTHER_KEY = ClusterKey(bytes(range(1, 33)))
QUICK = BulkSettings(handshake_timeout_s=0.3, retry_s_min=0.02, retry_s_max=0.05)


def chunk(size: int, number: int = 0) -> SnapshotChunk:
    return SnapshotChunk(0, 1, bytes(16), number, random.Random(size).randbytes(size))  # type: ignore[arg-type]


class Port(asyncio.BufferedProtocol):
    """The port of clients: hands on what begins like a stream, once it has read that much."""

    def __init__(self, end: End) -> None:
        self.end = end
        self.held = b""
        self.buffer = bytearray(RECEIVE_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.held += bytes(self.buffer[:nbytes])
        if len(self.held) >= len(MAGIC):
            self.end.streams.accept(self.transport, self.held)


class End:
    """One server's streams, with a port."""

    def __init__(
        self, server: ServerId, *, keys: Sequence[ClusterKey] = (KEY,), settings: BulkSettings | None = None
    ) -> None:
        self.me = Sender(server, Instance(bytes([server]) * 16), 1)
        self.got: list[tuple[Sender, PeerMessage]] = []
        self.arrived = asyncio.Event()
        self.ended: list[ServerId] = []
        self.ports: dict[ServerId, int] = {}
        self.streams = BulkStreams(
            me=self.me,
            ring=key_ring(keys, insecure=False) if keys else key_ring(None, insecure=True),
            peers=[A, B],
            address_of=lambda to: ("127.0.0.1", self.ports[to]) if to in self.ports else None,
            on_messages=self._take,
            on_ended=self.ended.append,
            operators=None,
            entropy=os.urandom,
            settings=settings,
        )
        self.server: asyncio.Server | None = None
        self.port = 0

    def _take(self, sender: Sender, messages: list[PeerMessage]) -> None:
        self.got += [(sender, message) for message in messages]
        self.arrived.set()

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Port(self), "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def wait(self, count: int) -> None:
        while len(self.got) < count:
            self.arrived.clear()
            await self.arrived.wait()

    def close(self) -> None:
        self.streams.close()
        if self.server is not None:
            self.server.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that no event tells of; the test's timeout bounds it."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@asynccontextmanager
async def ends(
    a_keys: Sequence[ClusterKey] = (KEY,),
    b_keys: Sequence[ClusterKey] = (KEY,),
    settings: BulkSettings | None = None,
) -> AsyncIterator[tuple[End, End]]:
    a, b = End(A, keys=a_keys, settings=settings), End(B, keys=b_keys, settings=settings)
    try:
        await a.listen()
        await b.listen()
        a.ports[B], b.ports[A] = b.port, a.port
        yield a, b
    finally:
        a.close()
        b.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("keys", [(KEY,), ()], ids=["sealed", "plain"])
async def test_large_messages_cross_in_order_and_name_their_sender(keys: tuple[ClusterKey, ...]) -> None:
    async with ends(keys, keys) as (a, b):
        sent = [chunk(size, number) for number, size in enumerate([1_000_000, 10, 500_000, 1])]
        assert a.streams.offers(B)
        a.streams.send(B, [codec.encode(message) for message in sent])
        await b.wait(4)
        assert b.got == [(a.me, message) for message in sent]
        b.streams.send(A, [codec.encode(chunk(300_000))])
        await a.wait(1)
        assert a.got == [(b.me, chunk(300_000))]
        assert a.streams.statistics().streams == 2, "one per direction"


async def test_a_znode_of_a_megabyte_reaches_a_peer_that_loses_three_percent_of_datagrams() -> None:
    """D-22: over 1,400-byte datagrams its 780 fragments would arrive together once in 10**10 times."""
    async with ends() as (a, b):
        rng = random.Random(3)
        links = {
            end.me.server: PeerLinks(
                me=end.me,
                peers={A + B - end.me.server: 1_400},  # type: ignore[dict-item]
                keys=[KEY],
                entropy=os.urandom,
            )
            for end in (a, b)
        }

        def deliver(to: ServerId, datagrams: Sequence[bytes]) -> list[PeerMessage]:
            """Over the lossy wire, answers of the handshake included."""
            got: list[PeerMessage] = []
            waiting = [(to, datagram) for datagram in datagrams]
            while waiting:
                receiver, datagram = waiting.pop(0)
                if rng.random() >= 0.03:
                    _, messages, beside = links[receiver].receive(datagram, 0)
                    got += messages
                    if beside is not None:
                        waiting += beside.replies
            return got

        entry = Entry(8, 4, EntryKind.COMMANDS, 20, 1, rng.randbytes(2**20 + 300))
        append = AppendEntries(0, 5, 7, 3, 6, (entry,))  # type: ignore[arg-type]
        alone = links[A].send(B, [append])
        assert not [message for _ in range(5) for message in deliver(B, alone)], "datagrams cannot"
        small, large = routing.divide(
            [codec.encode(append)],
            bytes_max=links[A].capacity(B, routing.datagrams_max(lossy=False)),
            stream=lambda: a.streams.offers(B),
        )
        assert not small
        a.streams.send(B, large)
        await b.wait(1)
        assert b.got == [(a.me, append)]


async def test_where_no_stream_can_be_made_all_goes_by_datagrams_until_it_can() -> None:
    async with ends(settings=QUICK) as (a, b):
        assert b.server is not None
        b.server.close()
        await b.server.wait_closed()
        assert a.streams.offers(B), "it is tried first"
        with capture_logs() as logs:
            a.streams.send(B, [codec.encode(chunk(10))])
            await until(lambda: not a.streams.offers(B))
        assert logs[0]["event"] == "no stream to a peer, large messages go by datagrams meanwhile"
        encoded = [codec.encode(chunk(100_000))]
        assert routing.divide(encoded, bytes_max=1_000, stream=lambda: a.streams.offers(B)) == (
            encoded,
            [],
        )
        assert a.streams.statistics().messages_dropped == 1
        await b.listen()
        await until(lambda: a.streams.offers(B))
        a.streams.send(B, encoded)
        await b.wait(1)


async def test_a_port_that_takes_connections_and_says_nothing_is_given_up() -> None:
    async with ends(settings=QUICK) as (a, _):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            a.ports[B] = silent.getsockname()[1]
            a.streams.send(B, [codec.encode(chunk(10))])
            await until(lambda: not a.streams.offers(B))


async def test_a_peer_that_restarts_is_dialed_again() -> None:
    settings = BulkSettings(retry_s_min=0.01, retry_s_max=0.02)
    async with ends(settings=settings) as (a, b):
        a.streams.send(B, [codec.encode(chunk(10))])
        await b.wait(1)
        await asyncio.sleep(0.03)
        b.close()
        await until(lambda: a.streams.statistics().streams == 0)
        again = End(B)
        again.port = b.port
        await again.listen()
        try:
            await until(lambda: a.streams.offers(B))
            a.streams.send(B, [codec.encode(chunk(20))])
            await again.wait(1)
            assert again.got == [(a.me, chunk(20))]
        finally:
            again.close()


@pytest.mark.parametrize("ending", [A, B])
async def test_both_ends_of_a_stream_are_told_that_the_other_one_has_ended(ending: ServerId) -> None:
    async with ends() as (a, b):
        a.streams.hold(B)
        await until(lambda: a.streams.statistics().streams == b.streams.statistics().streams == 1)
        goes, stays = (a, b) if ending == A else (b, a)
        goes.close()
        await until(lambda: bool(stays.ended))
        assert stays.ended == [goes.me.server]
        assert goes.ended == [], "who ends its own streams learns nothing by it"


async def test_nobody_is_told_of_a_stream_that_never_stood() -> None:
    async with ends(b_keys=(OTHER_KEY,)) as (a, b):
        a.streams.hold(B)
        await until(lambda: a.streams.statistics().dials_failed > 0)
        assert a.ended == b.ended == []


async def test_a_stream_that_is_held_is_dialed_once() -> None:
    async with ends() as (a, b):
        for _ in range(10):
            a.streams.hold(B)
        await until(lambda: b.streams.statistics().streams == 1)
        a.streams.hold(B)
        await asyncio.sleep(0.02)
        assert a.streams.statistics().streams == b.streams.statistics().streams == 1


async def test_what_a_peer_does_not_take_is_bounded_and_the_newest_is_dropped() -> None:
    settings = BulkSettings(queue_bytes_max=1_000_000)
    async with ends(settings=settings) as (a, b):
        encoded = [codec.encode(chunk(400_000, number)) for number in range(5)]
        a.streams.send(B, encoded)
        assert a.streams.statistics().messages_dropped == 3
        await b.wait(2)
        assert [message.offset for _, message in b.got] == [0, 1]  # type: ignore[union-attr]


async def test_a_message_above_the_bound_is_refused_by_name() -> None:
    async with ends(settings=BulkSettings(message_bytes_max=1_000)) as (a, _):
        with pytest.raises(UnsendableError, match="message_bytes_max"):
            a.streams.send(B, [bytes(1_001)])


async def test_servers_with_different_keys_get_no_stream_and_the_log_says_why() -> None:
    async with ends((KEY,), (OTHER_KEY,), QUICK) as (a, b):
        with capture_logs() as logs:
            a.streams.send(B, [codec.encode(chunk(10))])
            await until(lambda: not a.streams.offers(B))
        (refused,) = [line for line in logs if line["event"] == "stream refused"]
        assert refused["reason"] == "unknown_key"
        assert KEY.key_id.hex() in refused["error"]
        assert OTHER_KEY.key_id.hex() in refused["error"]
        assert all(KEY.secret.hex() not in str(line) for line in logs)
        assert b.streams.statistics().rejected["unknown_key"] >= 1
        assert not b.got


async def _said_to(port: int, data: bytes, *, wait_s: float = 2.0) -> bytes:
    """All that a server says to who sends `data` and then waits for the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), wait_s)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_stranger_is_disconnected_without_a_byte() -> None:
    async with ends(settings=QUICK) as (a, _):
        _, opening = BulkConnection.dial(
            me=Sender(B, Instance(bytes([2]) * 16), 1),
            to=A,
            ring=key_ring([KEY], insecure=False),
            entropy=os.urandom,
        )
        forged = opening[:-1] + bytes([opening[-1] ^ 1])
        for data in (MAGIC + bytes(OPENING_BYTES), forged, MAGIC, opening[:50]):
            assert await _said_to(a.port, data) == b""
        rejected = a.streams.statistics().rejected
        assert rejected[Rejection.UNAUTHENTIC.value] == 1
        # A recording of an honest opening is answered, once per connection, and then cut off.
        assert len(await _said_to(a.port, opening)) == ANSWER_BYTES
        assert a.streams.statistics().streams == 0


async def test_strangers_that_only_connect_are_bounded_in_number_and_time() -> None:
    settings = BulkSettings(unproved_max=3, handshake_timeout_s=0.2)
    async with ends(settings=settings) as (a, b):
        opened = [await asyncio.open_connection("127.0.0.1", a.port) for _ in range(5)]
        for _, writer in opened:
            writer.write(MAGIC)
        ended = await asyncio.gather(*(reader.read() for reader, _ in opened), return_exceptions=True)
        assert all(said == b"" or isinstance(said, ConnectionError) for said in ended)
        for _, writer in opened:
            writer.close()
        b.streams.send(A, [codec.encode(chunk(10))])
        await a.wait(1)


async def test_strangers_that_only_connect_keep_no_server_out() -> None:
    """They have a second; who knows the key needs none."""
    settings = BulkSettings(unproved_max=3, handshake_timeout_s=600.0)
    async with ends(settings=settings) as (a, b):
        opened = [await asyncio.open_connection("127.0.0.1", a.port) for _ in range(10)]
        for _, writer in opened:
            writer.write(MAGIC)
        # What cannot be sent now is sent again by who needs it, as the driver does.
        async with asyncio.timeout(30):
            while not a.got:
                b.streams.send(A, [codec.encode(chunk(10))])
                await asyncio.sleep(0.1)
        for _, writer in opened:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def test_a_stream_under_a_key_that_goes_ends_and_one_that_stays_goes_on() -> None:
    async with ends() as (a, b):
        a.streams.send(B, [codec.encode(chunk(10))])
        await b.wait(1)
        for end in (a, b):
            end.streams.set_keys(key_ring([KEY, OTHER_KEY], insecure=False))
        for end in (a, b):
            end.streams.set_keys(key_ring([OTHER_KEY, KEY], insecure=False))
        assert a.streams.statistics().streams == 1, "nothing was lost so far"
        a.streams.send(B, [codec.encode(chunk(20))])
        await b.wait(2)
        for end in (a, b):
            end.streams.set_keys(key_ring([OTHER_KEY], insecure=False))
        assert a.streams.statistics().streams == 0
        a.streams.send(B, [codec.encode(chunk(30))])
        await b.wait(3)


async def test_the_stream_of_a_server_that_is_no_member_any_more_ends() -> None:
    async with ends() as (a, b):
        a.streams.send(B, [codec.encode(chunk(10))])
        await b.wait(1)
        b.streams.set_peers([])
        await until(lambda: a.streams.statistics().streams == 0)
        assert b.streams.statistics().streams == 0
        assert not b.streams.offers(A)


async def test_a_server_that_is_removed_while_it_shakes_hands_gets_no_stream() -> None:
    async with ends(settings=QUICK) as (a, b):
        reader, writer = await asyncio.open_connection("127.0.0.1", b.port)
        dialer, opening = BulkConnection.dial(
            me=a.me, to=B, ring=key_ring([KEY], insecure=False), entropy=os.urandom
        )
        writer.write(opening)
        answer = await asyncio.wait_for(reader.readexactly(ANSWER_BYTES), 5)
        b.streams.set_peers([])
        writer.write(dialer.receive(answer).output)
        assert await asyncio.wait_for(_read_all(reader), 5) == b""
        assert b.streams.statistics().streams == 0
        writer.close()


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_four_megabytes_do_not_hold_up_the_loop() -> None:
    """Sealing, opening and copying go in pieces: other callbacks run between them."""
    async with ends() as (a, b):
        loop = asyncio.get_running_loop()
        beats = 0

        def beat() -> None:
            nonlocal beats
            beats += 1
            loop.call_soon(beat)

        a.streams.send(B, [codec.encode(chunk(1))])
        await b.wait(1)
        encoded = [codec.encode(chunk(2**20, number)) for number in range(4)]
        loop.call_soon(beat)
        a.streams.send(B, encoded)
        await b.wait(5)
        assert beats >= 4 * 2**20 // RECEIVE_BYTES
