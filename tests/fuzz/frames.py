"""Fuzzes what clients send: every reply must be the documented one, and nothing may be kept beyond its bound.

In process: the shipped driver of a one-server cluster. Several hostile connections speak at a time, in random
pieces, beside one well-behaved client whose requests must be answered rightly all the while.
"""

from __future__ import annotations

import random
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from attrs import evolve, frozen

from tests.fuzz.documented import (
    ENDS,
    WORDS,
    Answer,
    Expected,
    connect_is_malformed,
    expected_answer,
    frames_of,
)
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.native import FIRST_BYTES
from tests.fuzz.one_server import FRAME_BYTES_MAX, OUTPUT_BYTES_MAX, Client, OneServer
from tests.fuzz.outcome import PROMISE, Outcome, Progress, Stopwatch
from tests.fuzz.requests import NAMES, valid_request
from tests.simulation import jute
from tests.simulation.broken import BrokenPromiseError
from zraft.server.clients.connection import ANSWERS_BYTES_MAX, BACKLOG_BYTES_MAX
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft_core.errors import Code
from zraft_core.wire.client import Reply, ZkClientCodec
from zraft_core.wire.connect import ConnectResponse
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.txn import CREATE, DELETE, SET_DATA

REQUESTS_PER_STREAM: Final = 24
STREAMS_PER_SERVER: Final = 1_000
"""Then a new server is started: its tree and its sessions are what fuzzing made of them."""

TURNS_MAX: Final = 500
CHUNK_BYTES: Final = 256 * 1024
"""What one read of a socket brings at most, as in the shell."""

HELD_BYTES_MAX: Final = 3 * (BACKLOG_BYTES_MAX + CHUNK_BYTES)
"""What one connection may hold, its own objects counted as Python counts them: each kept request has its header
of some hundred bytes, for which the server's own account allows a flat rate."""

HONEST: Final = "/honest"

_CODES: Final = frozenset(int(code) for code in Code)


def held_bytes(connection: ZooKeeperConnection) -> int:
    """Memory that hostile input occupies on one connection."""
    size = connection._reader.buffered
    size += sum(map(sys.getsizeof, connection._backlog)) + sys.getsizeof(connection._backlog)
    size += sum(map(sys.getsizeof, connection.out))
    for waiting in connection.queue:
        size += sys.getsizeof(waiting)
        if isinstance(waiting, tuple):
            size += sum(map(sys.getsizeof, waiting))
        elif not isinstance(waiting, bytes):
            size += sum(sys.getsizeof(getattr(waiting, name)) for name in waiting.__slots__)
    return size


@frozen
class _Judged:
    """What a stream of bytes must be answered with: `word`, or a handshake and then `answers` in order."""

    word: bytes | None
    attaches: bool
    answers: tuple[Expected, ...]
    prefix: bool
    """Only the beginning of `answers` may come: a refusal cuts off what was not written yet."""
    closes: bool


def judge(stream: bytes, frame_bytes_max: int = FRAME_BYTES_MAX) -> _Judged:
    """The documented answer to everything that a client says on one connection."""
    if stream[:4] in WORDS:
        return _Judged(stream[:4], False, (), False, True)
    frames, impossible = frames_of(stream, frame_bytes_max)
    if not frames:
        return _Judged(None, False, (), True, impossible)
    if connect_is_malformed(frames[0]):
        return _Judged(None, False, (), True, True)
    answers: list[Expected] = []
    ended = False
    dropped = impossible
    for frame in frames[1:]:
        expected = expected_answer(frame)
        dropped = dropped or expected.answer is Answer.DROPPED
        if not ended and expected.answer is not Answer.DROPPED:
            answers.append(expected)
        ended = ended or expected.answer in ENDS
    return _Judged(None, True, tuple(answers), dropped, ended or impossible)


def check(client: Client, judged: _Judged, tally: Counter[str]) -> None:
    """Compare what came with what had to come.

    Raises:
        BrokenPromiseError: they differ; says how.
    """
    received = bytes(client.received)
    if judged.closes and not client.closed:
        raise BrokenPromiseError(PROMISE, f"the connection should have been closed: {judged}")
    if judged.word is not None:
        tally["four-letter word"] += 1
        _require(received == judged.word, f"{judged.word!r} was answered with {received!r}")
        return
    frames, impossible = frames_of(received, OUTPUT_BYTES_MAX)
    _require(not impossible and sum(len(f) + 4 for f in frames) == len(received), "replies are no frames")
    if not judged.attaches or not frames:
        _require(not frames, f"{len(frames)} replies to what is no connect request")
        # A session may also be refused without a word: this server is behind what the client has seen.
        _require(client.closed or not judged.attaches, "a connect request was not answered")
        tally["no session"] += 1
        return
    _check_session(frames, judged, client.closed, tally)


def check_beginning(received: bytes, stream: bytes, frame_bytes_max: int, tally: Counter[str]) -> None:
    """The same for what was read of a real socket so far: how much that is, is the network's affair.

    Raises:
        BrokenPromiseError: it is not the beginning of what had to come.
    """
    if stream[:1] and stream[0] in FIRST_BYTES:
        return  # by chance it is a native connection, whose answers are no frames
    judged = evolve(judge(stream, frame_bytes_max), prefix=True, closes=False)
    if judged.word is not None:
        return
    frames, impossible = frames_of(received, OUTPUT_BYTES_MAX)
    _require(not impossible, "a reply is no frame")
    if frames:
        _require(judged.attaches, f"{len(frames)} replies to what is no connect request")
        _check_session(frames, judged, False, tally)


def _check_session(frames: list[bytes], judged: _Judged, closed: bool, tally: Counter[str]) -> None:
    """A greeting, and the replies behind it."""
    timeout_ms, session, _, _ = jute.Reader(frames[0]).connect_response()
    if timeout_ms <= 0:
        _require(session == 0 and len(frames) == 1 and (closed or judged.prefix), "a refused session went on")
        tally["session refused"] += 1
        return
    _check_replies(list(_replies(frames[1:])), judged, closed, tally)


def _replies(frames: list[bytes]) -> Iterator[tuple[int, int, int]]:
    """(xid, err, bytes of body) of the replies, pongs and events left out."""
    for frame in frames:
        xid, _, err = jute.Reader(frame).header()
        _require(err in _CODES, f"error code {err} is none of ZooKeeper's")
        if xid not in (jute.XID_PING, jute.XID_EVENT):
            yield xid, err, len(frame) - 16


def _check_replies(
    replies: list[tuple[int, int, int]], judged: _Judged, closed: bool, tally: Counter[str]
) -> None:
    # A request may bear the xid of events or pongs; its reply then cannot be told from theirs.
    expected = [
        e
        for e in judged.answers
        if e.answer is not Answer.PONG and e.xid not in (jute.XID_PING, jute.XID_EVENT)
    ]
    if judged.prefix or closed != judged.closes:
        # Refused, or its session was taken over by a connection that another stream copied.
        _require(len(replies) <= len(expected), f"{len(replies)} replies to {len(expected)} requests")
    else:
        _require(len(replies) == len(expected), f"{len(replies)} replies to {len(expected)} requests")
    for (xid, err, body), want in zip(replies, expected, strict=False):
        tally[want.answer.value] += 1
        _require(xid == want.xid, f"reply to {xid}, expected {want.xid}")
        match want.answer:
            case Answer.MALFORMED:
                right = err == Code.MARSHALLING_ERROR
            case Answer.AUTH_FAILED:
                right = err == Code.AUTH_FAILED
            case Answer.UNKNOWN:
                right = err == Code.UNIMPLEMENTED
            case Answer.BAD_ARGUMENTS:
                right = err == Code.BAD_ARGUMENTS
            case _:
                right = err not in (Code.MARSHALLING_ERROR, Code.UNIMPLEMENTED)
        _require(right and (not err or not body), f"request {xid}, to be {want.answer.value}, got {err}")
    if judged.prefix:
        tally[Answer.DROPPED.value] += 1


def _require(fact: bool, otherwise: str) -> None:
    if not fact:
        raise BrokenPromiseError(PROMISE, otherwise)


class HonestClient:
    """A client that does nothing wrong, on its own connection, and looks at every answer."""

    def __init__(self, server: OneServer) -> None:
        self._server = server
        self._codec = ZkClientCodec()
        self._client = server.connect(0)
        self._seen = 0
        self._number = 0
        self._feed(self._codec.connect(timeout_ms=30_000))
        (greeting,) = self._receive(1)
        _require(isinstance(greeting, ConnectResponse) and greeting.timeout_ms > 0, "no session")
        # Below a znode of its own: the others may change the ACL of any that they know.
        self._feed(self._codec.write((CREATE, HONEST, b"", None, 0, 0))[1])
        (created,) = self._receive(1)
        _require(isinstance(created, Reply) and created.code == Code.OK, f"{HONEST} was not created")

    def work(self) -> None:
        """Create, change, read, sync and delete a znode; every answer must be right."""
        self._number += 1
        path = f"{HONEST}/{self._number}"
        data = b"%d" % self._number
        codec = self._codec
        self._feed(
            b"".join(
                (
                    codec.write((CREATE, path, b"", None, 1, 0))[1],
                    codec.write((SET_DATA, path, data, 0))[1],
                    codec.read(Opcode.GET_DATA, path)[1],
                    codec.sync(path)[1],
                    codec.write((DELETE, path, 1))[1],
                )
            )
        )
        replies = [reply for reply in self._receive(5) if isinstance(reply, Reply)]
        _require(
            [reply.code for reply in replies] == [Code.OK] * 5
            and replies[0].value == path
            and replies[2].value[0] == data,
            f"a well-behaved client was answered {replies}",
        )

    def _feed(self, data: bytes) -> None:
        self._client.connection.data_received(data)

    def _receive(self, count: int) -> list[object]:
        found: list[object] = []
        for _ in range(TURNS_MAX):
            self._server.turn()
            _require(not self._client.closed, "the connection of a well-behaved client was closed")
            chunk = bytes(self._client.received[self._seen :])
            self._seen += len(chunk)
            found += self._codec.receive(chunk)
            if len(found) >= count:
                del self._client.received[: self._seen]
                self._seen = 0
                return found
        raise BrokenPromiseError(PROMISE, f"a well-behaved client got {len(found)} of {count} answers")


class FrameFuzz:
    """One run; the same seed, count and connections give the same bytes."""

    def __init__(self, seed: int, connections: int) -> None:
        self._seed = seed
        self._rng = random.Random(f"zraft/fuzz/frames/{seed}")
        self._connections = connections
        self.names = NAMES
        """The paths that requests are about; a run against one server for long moves on to others."""
        self._number = 0
        self._peak_bytes = 0
        self._tally: Counter[str] = Counter()
        self._watch = Stopwatch()

    def run(self, count: int, progress: Progress) -> Outcome:
        """Feed `count` frames.

        Raises:
            BrokenPromiseError: an answer is not the documented one, or a bound is broken.
        """
        done = 0
        while done < count:
            server = OneServer(self._rng)
            honest = HonestClient(server)
            self._flood(server, honest)
            streams = 0
            while done < count and streams < STREAMS_PER_SERVER:
                number = min(self._connections, STREAMS_PER_SERVER)
                fed = self._round(server, number)
                honest.work()
                streams += number
                done += fed
                progress(fed)
            self._tally["servers"] += 1
        return Outcome(
            *("frames", self._seed, done, self._peak_bytes, self._tally),
            *(self._watch.slowest, self._watch.longest_s),
        )

    def stream(self) -> tuple[bytes, int]:
        """(everything one hostile client says, number of frames in it)."""
        rng = self._rng
        connect = jute.connect_request(0, rng.choice((0, 4_000, 30_000, -1, 2**31 - 1)), 0, bytes(16))
        if rng.random() < 0.05:
            connect = _spoiled(connect, rng)
        frames = [connect]
        for xid in range(1, REQUESTS_PER_STREAM):
            frame = valid_request(xid, rng, self.names)
            chance = rng.random()
            if chance < 0.6:
                frame = _spoiled(frame, rng)
            elif chance < 0.605:
                frame = mutate_bytes(frame, rng)
            frames.append(frame)
        stream = b"".join(frames)
        chance = rng.random()
        if chance < 0.03:
            stream = mutate_bytes(stream, rng)
        elif chance < 0.04:
            stream = rng.randbytes(rng.randrange(200))
        return stream, len(frames)

    def _round(self, server: OneServer, connections: int) -> int:
        rng = self._rng
        talking = []
        fed = 0
        for _ in range(connections):
            stream, frames = self.stream()
            fed += frames
            self._number += 1
            talking.append((server.connect(self._number), stream, judge(stream)))
        unsaid = [(client, stream) for client, stream, _ in talking]
        spent: defaultdict[Client, float] = defaultdict(float)
        server.stalled = rng.random() < 0.2
        while unsaid:
            at = rng.randrange(len(unsaid))
            client, stream = unsaid[at]
            size = rng.choice((1, 3, 50, 400, 4_000, len(stream)))
            spent[client] += self._watch.step(
                "what one read of a socket brought", client.connection.data_received, stream[:size]
            )
            unsaid[at] = client, stream[size:]
            if size >= len(stream):
                unsaid.pop(at)
            if rng.random() < 0.1:
                self._watch.step("a turn", server.turn)
                server.stalled = False
        server.stalled = False
        self._settle(server)
        for client, stream, judged in talking:
            self._watch.count(stream, spent[client])
            self._look_at(client.connection)
            try:
                check(client, judged, self._tally)
            except (BrokenPromiseError, struct.error) as error:
                found = (
                    error.found if isinstance(error, BrokenPromiseError) else f"a reply ends early: {error}"
                )
                raise BrokenPromiseError(PROMISE, f"{found}; client said {stream.hex()}") from error
            client.connection.connection_lost()
        _require(len(server.driver.clients) == 1, f"{len(server.driver.clients) - 1} connections are kept")
        return fed

    def _settle(self, server: OneServer) -> None:
        for _ in range(TURNS_MAX):
            self._watch.step("a turn", server.turn)
            if server.idle:
                server.turn()
                return
        raise BrokenPromiseError(PROMISE, f"not done with its clients after {TURNS_MAX} turns")

    def _look_at(self, connection: ZooKeeperConnection) -> None:
        held = held_bytes(connection)
        self._peak_bytes = max(self._peak_bytes, held)
        _require(held <= HELD_BYTES_MAX + OUTPUT_BYTES_MAX, f"one connection holds {held} bytes")

    def _flood(self, server: OneServer, honest: HonestClient) -> None:
        """Streams made to be kept: the shell stops reading when told, so what is held stays bounded.

        Nothing becomes durable meanwhile, as on a full disk; then everything must be answered or closed.
        """
        rng = self._rng
        large = jute.request(1, jute.SET_DATA, jute.set_body("/", b"z" * (FRAME_BYTES_MAX // 2), -1))
        write = jute.request(1, jute.SET_DATA, jute.set_body("/", b"", -1))
        read = jute.request(2, jute.GET_DATA, jute.watch_body("/", False))
        floods = {
            "empty frames": (b"", struct.pack(">i", 0)),
            "reads behind a write": (write, read),
            "malformed behind a write": (write, jute.request(2, jute.GET_DATA)),
            "syncs": (write, jute.request(2, jute.SYNC, jute.text("/"))),
            "pings": (write, jute.request(7, jute.PING, bytes(4))),
            "large reads behind a write": (large, read),
            "large reads": (b"", read),
            "writes": (b"", large),
        }
        name = rng.choice(sorted(floods))
        first, again = floods[name]
        self._tally[f"flood of {name}"] += 1
        self._number += 1
        client = server.connect(self._number)
        connection = client.connection
        attached = name != "empty frames"
        server.stalled = not attached
        connection.data_received(jute.connect_request(0, 30_000, 0, bytes(16)))
        if attached:
            self._settle(server)
        server.stalled = name != "large reads"
        if first:
            connection.data_received(first)
        chunk = again * max(1, CHUNK_BYTES // len(again))
        for _ in range(100):
            if client.closed or not connection.wants_read:
                break
            connection.data_received(chunk)
            self._look_at(connection)
            server.turn()
        server.stalled = False
        for _ in range(TURNS_MAX):
            size = server.turn()
            self._peak_bytes = max(self._peak_bytes, size)
            bound = OUTPUT_BYTES_MAX + ANSWERS_BYTES_MAX
            _require(size <= bound, f"flood of {name}: {size} bytes of answers in one turn")
            client.received.clear()
        connection.connection_lost()
        honest.work()


def _spoiled(frame: bytes, rng: random.Random) -> bytes:
    """A mutated frame behind a right length, so that what comes after it is still read as frames.

    Mostly its body: a spoiled header mostly ends the connection. The xid is never made that of events or
    pongs, which its reply would look like.
    """
    if rng.random() < 0.97:
        return jute.frame(frame[4:12] + mutate_bytes(frame[12:], rng))
    body = mutate_bytes(frame[4:], rng)
    if body[:4] in _NOT_XIDS:
        body = b"\0\0\0\7" + body[4:]
    return jute.frame(body)


_NOT_XIDS: Final = (struct.pack(">i", jute.XID_EVENT), struct.pack(">i", jute.XID_PING))
