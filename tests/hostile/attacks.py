"""What a hostile client can do without a key or a right: every attack, in the size of an ordinary run and at its worst.

An attack takes a `Target` and a number of connections, lasts `target.seconds`, and ends with all its connections closed. To
add one, write a function and list it in `ATTACKS`.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import msgpack
from attrs import frozen

from tests.hostile import messages
from tests.hostile.besieged import DIRECTORY, LARGE, LARGE_BYTES, LOG, WATCHED
from tests.hostile.horde import Horde
from tests.hostile.siege import Target
from zraft.transport.bulk import MAGIC
from zraft_core.wire.client import ZkClientCodec
from zraft_core.wire.client_requests import AddWatch, RestoreWatches
from zraft_core.wire.framing import frame
from zraft_core.wire.jute import INT, encode_ustring
from zraft_core.wire.opcodes import Opcode
from zraft_core.wire.requests import HEADER, MULTI_END, MULTI_HEADER
from zraft_core.znodes.events import AddWatchMode
from zraft_core.znodes.txn import CREATE, FLAG_SEQUENTIAL, SET_DATA, Command

TIMEOUT_MS: Final = 40_000
WORDS: Final = ("cons", "mntr", "stat", "wchs", "wchc", "wchp", "dump", "hash", "dirs", "envi")
ADMIN_REQUESTS: Final = ("/metrics", "/status.json", "/commands/connections", "/commands/monitor")
MANY_PATHS: Final = 20_000
COME_IN_S_MAX: Final = 5.0
HEALTH_S_MAX: Final = 2.0
"""A health check gives up after this long in many a kubelet's settings."""


@frozen
class Attack:
    """One way to attack.

    Attributes:
        name: of the report's line.
        run: the attack: (target, connections).
        small: (connections, seconds) in an ordinary run of the tests.
        full: the same at its worst.
    """

    name: str
    run: Callable[[Target, int], None]
    small: tuple[int, float]
    full: tuple[int, float]


# -- bytes that clients say


def greeting() -> bytes:
    """Asks for a session of ZooKeeper's protocol."""
    return ZkClientCodec().connect(timeout_ms=TIMEOUT_MS)


def asking(opcode: Opcode, path: str, times: int) -> bytes:
    """So many reads of a path in ZooKeeper's protocol, in a row."""
    codec = ZkClientCodec()
    return b"".join(codec.read(opcode, path)[1] for _ in range(times))


def writing(command: Command, times: int) -> bytes:
    """So many writes in a row."""
    codec = ZkClientCodec()
    return b"".join(codec.write(command)[1] for _ in range(times))


def native(*messages: dict[str, Any]) -> bytes:
    """Messages of the native protocol, with ids from 1 on."""
    return b"".join(
        msgpack.packb({"id": number, **message}) for number, message in enumerate(messages, start=1)
    )


def unfinished_frame(size: int) -> bytes:
    """A request of ZooKeeper's protocol that lacks its last byte."""
    return INT.pack(size) + bytes(size - 1)


def unfinished_map(size: int) -> bytes:
    """A message of the native protocol that lacks its last byte."""
    return b"\x81\xa4data\xc6" + INT.pack(size) + bytes(size - 1)


# -- ZooKeeper's protocol


def silent_readers(target: Target, connections: int) -> None:
    """Pipelined reads of a large znode whose answers are never read: 58,800 bytes in, 2.3 GB out."""
    with target.horde(connections) as horde:
        horde.send(greeting() + asking(Opcode.GET_DATA, LARGE, 64))
        horde.push(target.seconds)


def silent_readers_behind_writes(target: Target, connections: int) -> None:
    """The same behind a write each, so that all of them are due when the write is applied."""
    with target.horde(connections) as horde:
        horde.send(greeting())
        horde.push(target.seconds / 4)
        horde.send(writing((SET_DATA, WATCHED, b"", -1), 1) + asking(Opcode.GET_DATA, LARGE, 64))
        horde.push(target.seconds * 3 / 4)


def silent_watchers(target: Target, connections: int) -> None:
    """Recursive watches of a znode that is changed all the time; nobody reads the events."""
    codec = ZkClientCodec()
    watch = codec.ask(AddWatch(WATCHED, AddWatchMode.PERSISTENT_RECURSIVE))[1]
    with target.horde(connections) as horde, target.horde(1) as writer:
        horde.send(greeting() + watch)
        horde.push(target.seconds / 4)
        some = writing((SET_DATA, WATCHED, b"", -1), 100)
        writer.send(greeting() + some)
        writer.push(target.seconds * 3 / 4, reading=True, again=some)


def unfinished_frames(target: Target, connections: int) -> None:
    """Each connection sends a request of a megabyte, but for its last byte."""
    with target.horde(connections) as horde:
        horde.send(greeting() + unfinished_frame(1_000_000))
        horde.push(target.seconds)


def unfinished_frames_of_strangers(target: Target, connections: int) -> None:
    """The same without a session: the unfinished request is the one for a session."""
    with target.horde(connections) as horde:
        horde.send(unfinished_frame(1_000_000))
        horde.push(target.seconds)


def slow_senders(target: Target, connections: int) -> None:
    """Requests that arrive byte by byte."""
    with target.horde(connections) as horde:
        horde.send(greeting() + asking(Opcode.EXISTS, WATCHED, 100))
        horde.push(target.seconds, reading=True, chunk=1)


def large_writes(target: Target, connections: int) -> None:
    """Pipelined writes of nearly a megabyte each, as fast as the server takes them."""
    write = writing((SET_DATA, LARGE, bytes(LARGE_BYTES), -1), 1)
    with target.horde(connections) as horde:
        horde.send(greeting() + write)
        horde.push(target.seconds, reading=True, again=write)


def small_writes(target: Target, connections: int) -> None:
    """Pipelined small writes, as fast as the server takes them; nobody reads the answers."""
    some = writing((SET_DATA, WATCHED, b"", -1), 2_000)
    with target.horde(connections) as horde:
        horde.send(greeting() + some)
        horde.push(target.seconds, again=some)


def listings(target: Target, connections: int) -> None:
    """Lists of a huge directory, again and again, and all of them are read."""
    some = asking(Opcode.GET_CHILDREN2, DIRECTORY, 20)
    with target.horde(connections) as horde:
        horde.send(greeting() + some)
        horde.push(target.seconds, reading=True, again=some)


def silent_listings(target: Target, connections: int) -> None:
    """The same behind a write, and none of them is read."""
    with target.horde(connections) as horde:
        horde.send(greeting())
        horde.push(target.seconds / 4)
        horde.send(
            writing((SET_DATA, WATCHED, b"", -1), 1) + asking(Opcode.GET_CHILDREN2, DIRECTORY, 60),
        )
        horde.push(target.seconds * 3 / 4)


def multi_reads(target: Target, connections: int) -> None:
    """Requests of half a megabyte that read thousands of znodes each."""
    part = MULTI_HEADER.pack(Opcode.GET_DATA, 0, -1) + encode_ustring(WATCHED) + b"\x00"
    request = frame(HEADER.pack(1, Opcode.MULTI_READ) + part * (MANY_PATHS // 2) + MULTI_END)
    with target.horde(connections) as horde:
        horde.send(greeting() + request)
        horde.push(target.seconds, reading=True, again=request)


def set_watches(target: Target, connections: int) -> None:
    """Requests of nearly a megabyte that restore thousands of watches each."""
    paths = tuple(f"{WATCHED}/{n:020}" for n in range(MANY_PATHS))
    request = ZkClientCodec().ask(RestoreWatches(0, data=paths))[1]
    with target.horde(connections) as horde:
        horde.send(greeting() + request)
        horde.push(target.seconds, reading=True, again=request)


def connects(target: Target, connections: int) -> None:
    """Connections that ask for a session and leave at once, over and over."""
    until = time.monotonic() + target.seconds
    while time.monotonic() < until:
        with target.horde(connections) as horde:
            horde.send(greeting())
            horde.push(0.05)


def words(target: Target, connections: int) -> None:
    """Four-letter words whose answers nobody reads, over and over."""
    until = time.monotonic() + target.seconds
    with ExitStack() as stack:
        while time.monotonic() < until:
            horde = stack.enter_context(target.horde(connections))
            horde.send(lambda number: WORDS[number % len(WORDS)].encode())
            horde.push(0.05)


# -- the native protocol


def silent_native_readers(target: Target, connections: int) -> None:
    """Pipelined local reads of a large znode whose answers are never read."""
    reads = [{"type": "read", "path": LARGE, "consistency": "local"}] * 64
    with target.horde(connections) as horde:
        horde.send(native(*reads))
        horde.push(target.seconds)


def unfinished_maps(target: Target, connections: int) -> None:
    """Each connection sends a message of a megabyte, but for its last byte."""
    with target.horde(connections) as horde:
        horde.send(native({"type": "ping"}) + unfinished_map(1_000_000))
        horde.push(target.seconds)


def slow_native_senders(target: Target, connections: int) -> None:
    """Messages that arrive byte by byte."""
    pings = native(*[{"type": "ping"}] * 100)
    with target.horde(connections) as horde:
        horde.send(pings)
        horde.push(target.seconds, reading=True, chunk=1)


def silent_subscribers(target: Target, connections: int) -> None:
    """Tails of a log and subscriptions to a path and to a dictionary, with all credit there is; nobody reads them."""
    credit = 16 * 1024 * 1024
    subscribe = native(
        {"type": "subscribe", "path": "/hostile", "recursive": True},
        {"type": "subscribe", "log": LOG, "prefix": "e-", "first": 0, "credit": credit},
        {"type": "subscribe", "dictionary": "hostile", "credit": credit},
    )
    appends = writing((CREATE, f"{LOG}/e-", bytes(10_000), None, FLAG_SEQUENTIAL, -1), 10)
    puts = native(
        *[{"type": "put", "dictionary": "hostile", "key": n, "value": bytes(1_000)} for n in range(9)]
    )
    with target.horde(connections) as horde, target.horde(1) as writer, target.horde(1) as putter:
        horde.send(subscribe)
        horde.push(target.seconds / 4)
        writer.send(greeting() + appends)
        putter.send(puts)
        until = time.monotonic() + target.seconds * 3 / 4
        while time.monotonic() < until:
            writer.push(0.05, reading=True, again=appends)
            putter.push(0.05, reading=True, again=puts)


def silent_consumers(target: Target, connections: int) -> None:
    """Fetches of a partition's messages, many at a time, of which no answer is ever read."""
    fetches = [
        {"type": "fetch", "partitions": [[target.cluster.partition, offset % 16, 1 << 20]]}
        for offset in range(64)
    ]
    with target.horde(connections) as horde:
        horde.send(native(*fetches))
        horde.push(target.seconds)


# -- TLS


def client_hello() -> bytes:
    """The first bytes of a TLS client."""
    outgoing = ssl.MemoryBIO()
    one = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        one.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake was done without a server")


def unfinished_handshakes(target: Target, connections: int) -> None:
    """Half of a handshake's first message, and not a byte more; an honest TLS client comes in nevertheless."""
    hello = client_hello()
    with target.horde(connections) as horde:
        horde.send(hello[: len(hello) // 2])
        horde.push(target.seconds / 2)
        _come_in(target)
        horde.push(target.seconds / 2)


def _come_in(target: Target) -> None:
    """An honest TLS client tries, as libraries do, until it is in."""
    until = time.monotonic() + COME_IN_S_MAX
    while True:
        try:
            with tls_connection(target):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def tls_connection(target: Target) -> ssl.SSLSocket:
    """An honest TLS client."""
    context = ssl.create_default_context(cafile=str(target.cluster.ca))
    plain = socket.create_connection((target.address.host, target.address.port), timeout=30.0)
    try:
        return context.wrap_socket(plain, server_hostname=target.address.host)
    except BaseException:
        plain.close()
        raise


def silent_tls_readers(target: Target, connections: int) -> None:
    """Pipelined reads of a large znode through TLS; no answer is ever read."""
    with ExitStack() as stack:
        until = time.monotonic() + target.seconds
        for _ in range(connections):
            one = stack.enter_context(tls_connection(target))
            one.sendall(greeting() + asking(Opcode.GET_DATA, LARGE, 64))
        time.sleep(max(0.0, until - time.monotonic()))


# -- admin HTTP


def check_health(target: Target) -> None:
    """A health check is answered in time."""
    status, took = target.health()
    assert status == 200, f"a health check was answered with HTTP {status} after {took:.2f} s"
    assert took < HEALTH_S_MAX, f"a health check took {took:.2f} s"


def _admin(target: Target, connections: int) -> Horde:
    return Horde(target.admin, connections)


def idle_admin_connections(target: Target, connections: int) -> None:
    """Connections to the admin port that say nothing."""
    with _admin(target, connections) as horde:
        horde.push(target.seconds / 2)
        check_health(target)
        horde.push(target.seconds / 2)


def slow_admin_heads(target: Target, connections: int) -> None:
    """Requests whose heads arrive byte by byte, and never end."""
    with _admin(target, connections) as horde:
        horde.send(
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Header: " + bytes(2_000).replace(b"\0", b"a")
        )
        horde.push(target.seconds / 2, chunk=1)
        check_health(target)
        horde.push(target.seconds / 2, chunk=1)


def large_admin_bodies(target: Target, connections: int) -> None:
    """Requests with bodies of a gigabyte, which nobody asked for."""
    head = b"GET /status.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    with _admin(target, connections) as horde:
        horde.send(head)
        horde.push(target.seconds / 2, again=bytes(100_000))
        check_health(target)
        horde.push(target.seconds / 2, again=bytes(100_000))


def admin_floods(target: Target, connections: int) -> None:
    """Pipelined questions, the dear ones first, whose answers nobody reads."""
    some = b"".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in ADMIN_REQUESTS)
    with _admin(target, connections) as horde:
        horde.send(20 * some)
        horde.push(target.seconds / 2)
        check_health(target)
        horde.push(target.seconds / 2)


def malformed_admin_requests(target: Target, connections: int) -> None:
    """Requests that are none, over and over; the server's log stays short."""
    server = target.cluster.servers[target.number]
    before = server.log.stat().st_size
    rng = random.Random(1)
    until = time.monotonic() + target.seconds
    while time.monotonic() < until:
        with _admin(target, connections) as horde:
            horde.send(lambda _: b"GET " + rng.randbytes(20).replace(b"\n", b"") + b" HTTP/9.9\r\n\r\n")
            horde.push(0.05, reading=True)
    check_health(target)
    check_log(target, before)


def check_log(target: Target, before: int) -> None:
    """The attack wrote no line per connection or request."""
    server = target.cluster.servers[target.number]
    grown = server.log.stat().st_size - before
    assert grown < 64 * 1024, f"the log grew by {grown} bytes, and ends so:\n{server.log_tail()}"


# -- strangers on the port of clients and peers


def refused_connections(target: Target, connections: int) -> None:
    """Connections that are refused, each for another reason, over and over; the server's log stays short."""
    before = target.cluster.servers[target.number].log.stat().st_size
    rng = random.Random(1)
    beginnings: tuple[Callable[[], bytes], ...] = (
        lambda: INT.pack(rng.randrange(1 << 21, 1 << 24)) + b"x",
        lambda: INT.pack(5) + rng.randbytes(5),
        lambda: greeting() + INT.pack(3) + rng.randbytes(3),
        lambda: b"\x81" + rng.randbytes(20),
        lambda: b"\x16\x03\x01\x02\x00" + rng.randbytes(512),
        lambda: MAGIC + rng.randbytes(200),
    )
    until = time.monotonic() + target.seconds
    while time.monotonic() < until:
        with target.horde(connections) as horde:
            horde.send(lambda number: beginnings[number % len(beginnings)]())
            horde.push(0.05, reading=True)
    check_log(target, before)


def unproved_streams(target: Target, connections: int) -> None:
    """Connections that begin as another server's or an operator's, and go no further."""
    rng = random.Random(1)
    with target.horde(connections) as horde:
        horde.send(lambda _: MAGIC + rng.randbytes(20))
        horde.push(target.seconds)


def datagrams(target: Target, connections: int) -> None:
    """Junk on the peers' port, as fast as it goes."""
    junk = [os.urandom(size) for size in (1, 16, 64, 129, 500, 1_400, 9_000, 60_000)]
    until = time.monotonic() + target.seconds
    with Horde(target.address, connections, kind=socket.SOCK_DGRAM) as horde:
        number = 0
        while time.monotonic() < until:
            for one in horde.sockets:
                number += 1
                try:
                    one.send(junk[number % len(junk)])
                except OSError:
                    time.sleep(0.001)


ATTACKS: Final = (
    Attack("reads that nobody reads", silent_readers, (40, 2.0), (500, 20.0)),
    Attack("the same behind writes", silent_readers_behind_writes, (40, 2.0), (500, 20.0)),
    Attack("watches that nobody reads", silent_watchers, (40, 2.0), (1_000, 20.0)),
    Attack("unfinished frames", unfinished_frames, (150, 2.0), (1_000, 20.0)),
    Attack("unfinished frames of strangers", unfinished_frames_of_strangers, (150, 1.0), (1_000, 8.0)),
    Attack("slow senders", slow_senders, (100, 1.0), (1_000, 20.0)),
    Attack("pipelined large writes", large_writes, (16, 2.0), (100, 20.0)),
    Attack("pipelined small writes", small_writes, (16, 2.0), (200, 20.0)),
    Attack("lists of a huge directory", listings, (16, 2.0), (200, 20.0)),
    Attack("such lists behind writes, unread", silent_listings, (40, 2.0), (500, 20.0)),
    Attack("multi-reads", multi_reads, (16, 2.0), (100, 20.0)),
    Attack("restored watches", set_watches, (16, 2.0), (100, 20.0)),
    Attack("connections that ask and leave", connects, (200, 2.0), (1_000, 20.0)),
    Attack("four-letter words", words, (100, 1.0), (1_000, 10.0)),
    Attack("native reads that nobody reads", silent_native_readers, (40, 2.0), (500, 20.0)),
    Attack("unfinished maps", unfinished_maps, (150, 2.0), (1_000, 20.0)),
    Attack("slow native senders", slow_native_senders, (100, 1.0), (1_000, 20.0)),
    Attack("subscriptions that nobody reads", silent_subscribers, (20, 3.0), (200, 20.0)),
    Attack("fetches that nobody reads", silent_consumers, (40, 2.0), (500, 20.0)),
    Attack("keys that hash alike", messages.keys_that_hash_alike, (4, 2.0), (32, 20.0)),
    Attack("integers that crowd a dict", messages.keys_that_crowd, (4, 2.0), (32, 20.0)),
    Attack("few keys that hash alike", messages.few_keys_that_hash_alike, (4, 2.0), (32, 20.0)),
    Attack("wide messages", messages.wide_messages, (4, 2.0), (32, 20.0)),
    Attack("wide keys", messages.wide_keys, (4, 2.0), (32, 20.0)),
    Attack("deep messages", messages.deep_messages, (4, 1.0), (32, 20.0)),
    Attack("commands that promise much", messages.promising_commands, (4, 1.0), (32, 20.0)),
    Attack("stored values that hash alike", messages.values_that_hash_alike, (2, 2.0), (8, 20.0)),
    Attack("unfinished TLS handshakes", unfinished_handshakes, (300, 1.0), (2_000, 20.0)),
    Attack("TLS reads that nobody reads", silent_tls_readers, (20, 2.0), (200, 20.0)),
    Attack("idle admin connections", idle_admin_connections, (100, 1.0), (1_000, 20.0)),
    Attack("slow admin heads", slow_admin_heads, (100, 1.0), (1_000, 20.0)),
    Attack("large admin bodies", large_admin_bodies, (60, 1.0), (1_000, 20.0)),
    Attack("admin floods", admin_floods, (60, 1.0), (1_000, 20.0)),
    Attack("malformed admin requests", malformed_admin_requests, (50, 1.0), (200, 20.0)),
    Attack("refused connections", refused_connections, (60, 1.0), (500, 20.0)),
    Attack("streams without proof", unproved_streams, (200, 1.0), (2_000, 20.0)),
    Attack("junk datagrams", datagrams, (8, 2.0), (64, 20.0)),
)
