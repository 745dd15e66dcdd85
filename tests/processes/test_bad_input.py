"""Whatever strangers send to a running server's ports, it stays up, bounded, and serves its clients."""

from __future__ import annotations

import random
import socket
import struct
from contextlib import suppress

import pytest

from tests.processes.clients import Sessions
from tests.processes.cluster import DEADLINE_S, Cluster
from tests.processes.quiet import QuietClient
from zraft_core.address import Address
from zraft_core.wire.client import ZkClientCodec

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

STRANGERS = 150
GROWTH_BYTES_MAX = 64 * 1024 * 1024
"""Far above what one connection's buffers and the log of a few writes take, far below what is sent here."""
FLOOD_BYTES = 256 * 1024 * 1024
FLOOD_GROWTH_BYTES_MAX = 160 * 1024 * 1024
"""Writes not yet applied (16 MiB), the log kept in memory (32 MiB), and each of them again on its way through."""


def _garbage(rng: random.Random) -> bytes:
    """The bytes of one connection that is not, or not for long, a client's."""
    greeting = ZkClientCodec().connect(timeout_ms=10_000)
    match rng.randrange(7):
        case 0:
            return rng.randbytes(rng.randrange(1, 4_096))
        case 1:
            return struct.pack(">i", rng.choice((-1, -(2**31), 2**31 - 1, 2**20))) + rng.randbytes(512)
        case 2:
            return greeting[: rng.randrange(len(greeting))]
        case 3:
            damaged = bytearray(greeting)
            damaged[rng.randrange(4, len(damaged))] ^= 1 << rng.randrange(8)
            return bytes(damaged)
        case 4:
            # A good greeting, then frames of rubbish.
            frames = [rng.randbytes(rng.randrange(64)) for _ in range(rng.randrange(1, 20))]
            return greeting + b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        case 5:
            # A good greeting, then known operations with rubbish for a body.
            bodies = [
                struct.pack(">ii", n, rng.choice((1, 2, 3, 4, 5, 8, 9, 12, 14, 15, 101)))
                + rng.randbytes(rng.randrange(48))
                for n in range(1, rng.randrange(2, 20))
            ]
            return greeting + b"".join(struct.pack(">i", len(body)) + body for body in bodies)
        case _:
            return rng.choice(
                (b"mntrmntr", b"ruok" * 100, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"srvr")
            )


def _send(address: Address, data: bytes, rng: random.Random) -> None:
    """One connection: send, perhaps in two parts, and leave, perhaps without a word."""
    cut = rng.randrange(len(data) + 1)
    leaves = rng.random() < 0.5
    # The server may close at any byte.
    with (
        socket.create_connection((address.host, address.port), timeout=DEADLINE_S) as stranger,
        suppress(ConnectionError),
    ):
        stranger.sendall(data[:cut])
        stranger.sendall(data[cut:])
        if leaves:
            return
        with suppress(OSError):  # not connected any more
            stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(65_536):
            pass


def test_garbage_on_the_client_port_disturbs_nobody(cluster: Cluster, sessions: Sessions, seed: int) -> None:
    rng = random.Random(seed)
    leader = cluster.wait_ready()
    client = sessions.open(first=leader)
    address = cluster.servers[leader].address
    client.create("/beside")
    pid = cluster.servers[leader].process
    before = cluster.resident_bytes(leader)
    for n in range(STRANGERS):
        _send(address, _garbage(rng), rng)
        if n % 10 == 0:
            assert client.set("/beside", str(n).encode()).version == n // 10 + 1
    assert cluster.servers[leader].process is pid
    assert cluster.leader() == leader, "the leader was disturbed"
    assert cluster.resident_bytes(leader) - before < GROWTH_BYTES_MAX
    assert sessions.lost == []
    cluster.wait_equal_digests()
    assert "Traceback" not in "".join(server.log_text() for server in cluster.servers.values())


def test_a_flood_of_frames_is_not_kept(cluster: Cluster, sessions: Sessions) -> None:
    """A client may send faster than anybody can replicate, and need not read: it waits in its own socket."""
    leader = cluster.wait_ready()
    client = sessions.open(first=leader)
    client.create("/flooded")
    before = cluster.resident_bytes(leader)
    big = 1_000_000
    set_data = struct.pack(">iii8sii", 1, 5, 8, b"/flooded", big, 0)[:-4] + bytes(big) + struct.pack(">i", -1)
    request = struct.pack(">i", len(set_data)) + set_data
    sent = 0
    with QuietClient(cluster.servers[leader].address, timeout_ms=40_000) as flood:
        flood.socket.settimeout(DEADLINE_S)
        while sent < FLOOD_BYTES:
            flood.socket.sendall(request)
            sent += len(request)
        peak = cluster.resident_bytes(leader)
        assert client.retry(client.set, "/flooded", b"").version > 0
    assert peak - before < FLOOD_GROWTH_BYTES_MAX
    print(f"{sent} bytes sent, {peak - before} bytes more in memory")
    assert cluster.leader() is not None
    assert sessions.lost == []


def test_garbage_on_the_peer_port_disturbs_nobody(cluster: Cluster, sessions: Sessions, seed: int) -> None:
    """Datagrams of strangers and damaged, cut and repeated ones: no key, no word (D-6)."""
    rng = random.Random(seed)
    leader = cluster.wait_ready()
    client = sessions.open(first=leader)
    client.create("/beside")
    before = {number: cluster.resident_bytes(number) for number in cluster.servers}
    kept: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for n in range(20 * STRANGERS):
            if kept and rng.random() < 0.3:
                datagram = bytearray(rng.choice(kept))
                datagram[rng.randrange(len(datagram))] ^= 1 << rng.randrange(8)
            else:
                datagram = bytearray(rng.randbytes(rng.choice((0, 1, 16, 64, 1_400, 60_000))))
                if datagram and rng.random() < 0.5:
                    # The first bytes are where a format says of itself what it is.
                    head = bytes(rng.randrange(4) for _ in range(8))
                    datagram[: len(head)] = head
                if datagram:
                    kept = [*kept[-50:], bytes(datagram)]
            for server in cluster.servers.values():
                stranger.sendto(bytes(datagram), (server.address.host, server.address.port))
            if n % 300 == 0:
                client.set("/beside", str(n).encode())
    assert cluster.wait_ready() in cluster.servers
    for number in cluster.servers:
        assert cluster.resident_bytes(number) - before[number] < GROWTH_BYTES_MAX
    assert sessions.lost == []
    cluster.wait_equal_digests()
    assert "Traceback" not in "".join(server.log_text() for server in cluster.servers.values())
