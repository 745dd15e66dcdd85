"""The one real socket: a few datagrams over loopback, on asyncio and on uvloop, bounded by counts."""

from __future__ import annotations

import asyncio
import socket
from types import FrameType
from typing import Any

import pytest

from tests.ipv6 import has_ipv6
from tests.unit.profiled import profiled
from zraft.transport.udp import (
    ALONE_MAX,
    DATAGRAMS_PER_WAKEUP_MAX,
    AddressError,
    SocketAddress,
    UdpEndpoint,
)
from zraft_core.address import Address as ListenAddress


class Ear:
    """Collects batches and wakes the test when enough datagrams are there."""

    def __init__(self, enough: int) -> None:
        self.batches: list[list[tuple[bytes, SocketAddress]]] = []
        self.enough = enough
        self.done = asyncio.Event()

    def __call__(self, batch: list[tuple[bytes, SocketAddress]]) -> None:
        self.batches.append(batch)
        if len(self.datagrams) >= self.enough:
            self.done.set()

    @property
    def datagrams(self) -> list[bytes]:
        return [datagram for batch in self.batches for datagram, _ in batch]


async def test_datagrams_arrive_in_lists_with_their_source() -> None:
    ear, nobody = Ear(150), Ear(1)
    receiver = await UdpEndpoint.open("127.0.0.1", 0, ear)
    sender = await UdpEndpoint.open("127.0.0.1", 0, nobody)
    sent = [number.to_bytes(2) + bytes(1_398) for number in range(150)]
    for datagram in sent:
        sender.send(receiver.address, datagram)
    await ear.done.wait()
    assert ear.datagrams == sent
    assert [len(batch) for batch in ear.batches] == [64, 64, 22]
    assert {source for batch in ear.batches for _, source in batch} == {sender.address}
    assert receiver.statistics().datagrams_received == 150
    assert receiver.statistics().bytes_received == sender.statistics().bytes_sent == 150 * 1_400
    sender.close()
    receiver.close()


async def test_datagrams_that_come_alone_are_read_once_each_and_a_burst_after_them_is_read_whole() -> None:
    ear = Ear(1)
    receiver = await UdpEndpoint.open("127.0.0.1", 0, ear)
    sender = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    reads = 0

    def note(_frame: FrameType, event: str, called: Any) -> None:
        nonlocal reads
        reads += event == "c_call" and called.__name__ == "recvfrom_into"

    async def say(*datagrams: bytes) -> None:
        ear.enough += len(datagrams)
        ear.done.clear()
        for datagram in datagrams:
            sender.send(receiver.address, datagram)
        await ear.done.wait()

    ear.enough = 0
    with profiled(note):
        for _ in range(5 * (ALONE_MAX + 1)):
            await say(b"x")
    # The first wake-up looks for a second one, then the one after 1, 3, 7 and 15 more, and after each 15 again.
    looks = ALONE_MAX.bit_length() + 1 + 3
    assert reads == 5 * (ALONE_MAX + 1) + looks, "a second time only to look whether they come together now"
    burst = [number.to_bytes(2) for number in range(100)]
    await say(*burst)
    assert ear.datagrams[-100:] == burst
    assert len(ear.batches[-1]) > 1
    sender.close()
    receiver.close()


async def test_drain_reads_what_is_queued_before_the_loop_does() -> None:
    """D-11: what lies in the socket has arrived, and a timer judged without it would be judged wrongly."""
    ear = Ear(1)
    receiver = await UdpEndpoint.open("127.0.0.1", 0, ear)
    sender = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    for number in range(100):
        sender.send(receiver.address, number.to_bytes(2))
    assert ear.datagrams == []
    assert receiver.drain() == 100
    assert ear.datagrams == [number.to_bytes(2) for number in range(100)]
    assert max(len(batch) for batch in ear.batches) == DATAGRAMS_PER_WAKEUP_MAX
    assert receiver.drain() == 0
    sender.close()
    receiver.close()


async def test_datagrams_of_60_kb_cross_and_larger_than_udp_are_counted_not_raised() -> None:
    ear = Ear(1)
    receiver = await UdpEndpoint.open("127.0.0.1", 0, ear)
    sender = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    sender.send(receiver.address, bytes(70_000))
    sender.send(receiver.address, bytes(60_000))
    await ear.done.wait()
    assert ear.datagrams == [bytes(60_000)]
    assert sender.statistics().send_errors == {"EMSGSIZE": 1}
    assert sender.statistics().datagrams_sent == 1
    sender.close()
    receiver.close()


async def test_a_port_where_nobody_listens_loses_datagrams_and_nothing_else() -> None:
    ear = Ear(1)
    gone = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    gone.close()
    gone.close()
    assert gone.drain() == 0
    endpoint = await UdpEndpoint.open("127.0.0.1", 0, ear)
    for _ in range(3):
        endpoint.send(gone.address, b"anybody there?")
    endpoint.send(endpoint.address, b"still well")
    await ear.done.wait()
    assert ear.datagrams == [b"still well"]
    endpoint.close()


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")


@needs_ipv6
async def test_an_endpoint_for_every_address_exchanges_datagrams_with_both_families() -> None:
    """As Java's sockets do, whatever the machine's default is (net.ipv6.bindv6only)."""
    ear = Ear(2)
    everywhere = await UdpEndpoint.open("::", 0, ear)
    port = everywhere.address[1]
    for host in ("127.0.0.1", "::1"):
        heard = Ear(1)
        single = await UdpEndpoint.open(host, 0, heard)
        single.send(await single.resolve(host, port), host.encode())
        everywhere.send(await everywhere.resolve(host, single.address[1]), b"answer")
        await heard.done.wait()
        single.close()
    await ear.done.wait()
    assert ear.datagrams == [b"127.0.0.1", b"::1"]
    everywhere.close()


@needs_ipv6
@pytest.mark.parametrize(
    ("own", "other", "family"), [("127.0.0.1", "::1", "IPv4"), ("::1", "127.0.0.1", "IPv6")]
)
async def test_an_address_of_the_other_family_is_told_with_what_to_do(
    own: str, other: str, family: str
) -> None:
    endpoint = await UdpEndpoint.open(own, 0, Ear(1))
    with pytest.raises(AddressError) as refused:
        await endpoint.resolve(other, 2181)
    assert str(refused.value).startswith(f"{ListenAddress(other, 2181)}: found no {family} address")
    assert "let it listen at [::], which takes both" in str(refused.value)
    endpoint.close()


class BrokenSocket(socket.socket):
    """Gives the errors that loopback does not."""

    send_error: OSError | None = None
    receive_errors: list[OSError] = []  # noqa: RUF012

    def sendto(self, *args: Any) -> int:
        if self.send_error is not None:
            raise self.send_error
        return super().sendto(*args)

    def recvfrom_into(self, *args: Any) -> Any:
        if self.receive_errors:
            raise self.receive_errors.pop(0)
        return super().recvfrom_into(*args)


async def test_a_full_buffer_and_a_refused_datagram_are_counted_by_errno() -> None:
    ear = Ear(1)
    sock = BrokenSocket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    endpoint = UdpEndpoint(sock, asyncio.get_running_loop(), ear)
    for error in (
        BlockingIOError(11, "full"),
        BlockingIOError(11, "full"),
        ConnectionRefusedError(111, "no"),
    ):
        sock.send_error = error
        endpoint.send(endpoint.address, b"lost")
    sock.send_error = None
    endpoint.send(endpoint.address, b"sent")
    sock.receive_errors = [
        ConnectionRefusedError(111, "no"),
        OSError(113, "filtered"),
        InterruptedError(4, "signal"),
    ]
    assert endpoint.drain() == 0
    assert endpoint.drain() == 1
    statistics = endpoint.statistics()
    assert statistics.send_errors == {"EAGAIN": 2, "ECONNREFUSED": 1}
    assert statistics.receive_errors == {"ECONNREFUSED": 1, "EHOSTUNREACH": 1}
    assert statistics.datagrams_sent == 1
    endpoint.close()


async def test_a_peer_that_was_heard_is_heard_through_a_flood_of_strangers() -> None:
    """Its datagrams have a buffer of their own, which strangers cannot fill, and are read first."""
    ear = Ear(1)
    receiver = await UdpEndpoint.open("127.0.0.1", 0, ear)
    peer = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    stranger = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    receiver.hear(2, peer.address)
    for _ in range(20_000):  # more than any buffer takes
        stranger.send(receiver.address, b"junk" * 300)
    sent = [b"peer %d" % n for n in range(100)]
    for datagram in sent:
        peer.send(receiver.address, datagram)
    assert receiver.drain() == len(sent) + DATAGRAMS_PER_WAKEUP_MAX
    assert ear.datagrams[: len(sent)] == sent
    assert {source for batch in ear.batches[:2] for _, source in batch} == {peer.address}
    for one in (receiver, peer, stranger):
        one.close()


async def test_a_peer_that_moved_is_heard_where_it_is_and_where_it_was() -> None:
    ear = Ear(2)
    receiver = await UdpEndpoint.open("127.0.0.1", 0, ear)
    before = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    after = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    receiver.hear(2, before.address)
    before.send(receiver.address, b"1")
    after.send(receiver.address, b"2")
    await ear.done.wait()
    ear.done.clear()
    ear.enough = 4
    receiver.hear(2, after.address)
    assert receiver.sources == {2: after.address}
    before.send(receiver.address, b"3")
    after.send(receiver.address, b"4")
    await ear.done.wait()
    assert sorted(ear.datagrams) == [b"1", b"2", b"3", b"4"]
    for one in (receiver, before, after):
        one.close()


async def test_a_socket_that_what_was_read_before_it_closes_is_not_drained() -> None:
    """A datagram of one peer can end with another one getting a new socket: a soak lost two servers by it."""
    read: list[bytes] = []

    def on_datagrams(batch: list[tuple[bytes, SocketAddress]]) -> None:
        read.extend(datagram for datagram, _ in batch)
        if b"first" in read:
            read.remove(b"first")
            receiver.hear(3, moved.address)

    receiver = await UdpEndpoint.open("127.0.0.1", 0, on_datagrams)
    first, second, moved = [await UdpEndpoint.open("127.0.0.1", 0, Ear(1)) for _ in range(3)]
    receiver.hear(2, first.address)
    receiver.hear(3, second.address)
    first.send(receiver.address, b"first")
    second.send(receiver.address, b"lost with its socket")
    assert receiver.drain() == 1
    assert not receiver.statistics().receive_errors
    moved.send(receiver.address, b"moved")
    assert receiver.drain() == 1
    assert read == [b"moved"]
    for one in (receiver, first, second, moved):
        one.close()


async def test_a_peer_that_was_down_for_a_moment_is_heard_when_it_speaks_again() -> None:
    """What was sent to it meanwhile was refused; uvloop, which servers run on, stops to watch a socket that had an error."""
    ear = Ear(1)
    receiver = await UdpEndpoint.open("127.0.0.1", 0, ear)
    peer = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    port = peer.address[1]
    receiver.hear(2, peer.address)
    peer.close()
    receiver.send(peer.address, b"is anybody there?")
    async with asyncio.timeout(10):
        while not receiver.statistics().receive_errors:  # noqa: ASYNC110  the counter is no event
            await asyncio.sleep(0.001)
        peer = await UdpEndpoint.open("127.0.0.1", port, Ear(1))
        peer.send(receiver.address, b"here again")
        await ear.done.wait()
    assert ear.datagrams == [b"here again"]
    for one in (receiver, peer):
        one.close()


async def test_nobody_else_gets_the_port_however_many_peers_have_sockets_on_it() -> None:
    endpoint = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    for n in range(3):
        endpoint.hear(n, ("127.0.0.1", 20_000 + n))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="Address already in use"):
            other.bind(endpoint.address)
    endpoint.close()
    assert endpoint.drain() == 0
    again = await UdpEndpoint.open("127.0.0.1", endpoint.address[1], Ear(1))
    again.close()


async def test_a_peer_that_cannot_have_a_socket_comes_through_the_common_one() -> None:
    ear = Ear(1)
    endpoint = await UdpEndpoint.open("127.0.0.1", 0, ear)
    endpoint.hear(2, ("::1", 1))
    assert endpoint.statistics().receive_errors
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.sendto(b"heard", endpoint.address)
        await ear.done.wait()
    endpoint.close()


async def test_the_granted_buffers_are_exposed() -> None:
    endpoint = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as untouched:
        default = untouched.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert endpoint.receive_buffer_bytes >= default
    assert endpoint.send_buffer_bytes > 0
    endpoint.close()


async def test_a_port_in_use_and_a_name_without_address_say_so() -> None:
    endpoint = await UdpEndpoint.open("127.0.0.1", 0, Ear(1))
    port = endpoint.address[1]
    with pytest.raises(
        AddressError, match=f"cannot listen at 127.0.0.1:{port} for datagrams: Address already"
    ):
        await UdpEndpoint.open("127.0.0.1", port, Ear(1))
    with pytest.raises(AddressError, match="this machine has no such address") as elsewhere:
        await UdpEndpoint.open("192.0.2.1", port, Ear(1))
    assert "another" not in str(elsewhere.value)
    with pytest.raises(AddressError, match="expected a host name or address") as caught:
        await endpoint.resolve("not a host name", 1)
    assert caught.value.retriable
    assert await endpoint.resolve("127.0.0.1", port) == ("127.0.0.1", port)
    endpoint.close()
