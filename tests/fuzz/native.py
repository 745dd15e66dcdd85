"""Fuzzes the native protocol: every answer must be of a documented form, each request answered once, nothing kept for ever.

In process, as for frames: hostile connections speak in random pieces beside a client that does nothing wrong. Messages are
valid, or have a spoiled field (the stream can be followed, so that each is still answered once), or are spoiled as bytes.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from typing import Any, Final

import msgpack

from tests.fuzz.costly import costly_message
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.native_answers import REFUSED, compare
from tests.fuzz.native_messages import STREAM, spoiled_message, stream_of, valid_message
from tests.fuzz.one_server import OUTPUT_BYTES_MAX, Client, OneServer
from tests.fuzz.outcome import PROMISE, Outcome, Progress, Stopwatch
from tests.fuzz.topics import FuzzedPartitions
from tests.simulation.broken import BrokenPromiseError
from zraft.config.features import LEVEL_OF_TOPICS
from zraft.server.clients.connection import ANSWERS_BYTES_MAX, BACKLOG_BYTES_MAX, Phase
from zraft.server.clients.native.connection import NativeConnection
from zraft_core.errors import Code, ProtocolError

FIRST_BYTES: Final = frozenset({*range(0x81, 0x90), 0xDE, 0xDF})
"""What a native connection begins with, as documented."""

MESSAGES_PER_STREAM: Final = 24
STREAMS_PER_SERVER: Final = 1_000
TURNS_MAX: Final = 6_000
"""More than a read waits for its floor, unless it says for how long."""
FLOOD_TURNS_MAX: Final = 500
CHUNK_BYTES: Final = 256 * 1024
FLOOD_CHUNKS: Final = 20
"""A few more than a connection may keep."""

HELD_BYTES_MAX: Final = 3 * (BACKLOG_BYTES_MAX + CHUNK_BYTES)
HONEST: Final = "honest"

_ANSWERS: Final = frozenset({"result", *REFUSED})
"""What answers a request, and is not pushed."""


class NativeFuzz:
    """One run; the same seed, count and connections give the same bytes."""

    def __init__(self, seed: int, connections: int) -> None:
        self._seed = seed
        self._rng = random.Random(f"zraft/fuzz/native/{seed}")
        self._connections = connections
        self._number = 0
        self._peak_bytes = 0
        self._tally: Counter[str] = Counter()
        self._watch = Stopwatch()
        self._partitions = FuzzedPartitions(self._rng)

    def run(self, count: int, progress: Progress) -> Outcome:
        """Feed `count` messages.

        Raises:
            BrokenPromiseError: an answer is not a documented one, or a bound is broken.
        """
        done = 0
        while done < count:
            server = OneServer(self._rng)
            while server.driver.machine.feature_level < LEVEL_OF_TOPICS:
                server.turn()
            server.driver.clients.topics = self._partitions = FuzzedPartitions(self._rng)
            honest = _Honest(server)
            self._flood(server)
            honest.work()
            streams = 0
            while done < count and streams < STREAMS_PER_SERVER:
                fed = self._round(server)
                honest.work()
                streams += self._connections
                done += fed
                progress(fed)
            self._tally["servers"] += 1
            self._tally["requests of partitions"] += self._partitions.asked
        return Outcome(
            *("native", self._seed, done, self._peak_bytes, self._tally),
            *(self._watch.slowest, self._watch.longest_s),
        )

    def stream(self, producer: int | None = None) -> tuple[bytes, list[dict[str, Any]] | None]:
        """(everything one hostile client says, the requests that must be answered; None: nobody can tell).

        Args:
            producer: one that the client's session has registered.
        """
        rng = self._rng
        messages: list[dict[str, Any]] = []
        if producer is not None:
            messages = stream_of(producer, rng)
        elif rng.random() < 0.5:
            messages = [{"id": 0, "type": "hello", "timeout_ms": 30_000}]
        costly = rng.random() < 0.1
        if rng.random() < 0.03:
            zatt = rng.choice(("get", "diagnostic", "append", "nonsense", "config"))
            return msgpack.packb({"type": zatt, "data": {"action": "delete", "key": 1}}), None
        for number in range(1, MESSAGES_PER_STREAM):
            message = valid_message(number, rng)
            messages.append(spoiled_message(message, rng) if rng.random() < 0.5 else message)
        packed = [msgpack.packb(message) for message in messages]
        if costly:
            at = rng.choice([at for at, message in enumerate(messages) if at and message["id"] != STREAM])
            packed[at] = costly_message(messages[at]["id"], rng)
            messages[at] = {"id": messages[at]["id"]}
        stream = b"".join(packed)
        chance = rng.random()
        if chance < 0.2:
            return mutate_bytes(stream, rng), None
        if chance < 0.22:
            return bytes([rng.choice(sorted(FIRST_BYTES))]) + rng.randbytes(rng.randrange(200)), None
        if any(message.get("type") in ("auth", "close") for message in messages):
            return stream, None  # a lie ends the connection
        return stream, messages

    def _round(self, server: OneServer) -> int:
        rng = self._rng
        talking = []
        for _ in range(self._connections):
            self._number += 1
            client = _connect(server, self._number)
            stream, due = self.stream(self._producer(server, client) if rng.random() < 0.2 else None)
            talking.append((client, stream, due))
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
        self._settle(server, [client for client, _, _ in talking])
        for client, stream, due in talking:
            self._watch.count(stream, spent[client])
            self._look_at(client.connection)
            try:
                self._check(client, due)
            except BrokenPromiseError as error:
                raise BrokenPromiseError(PROMISE, f"{error.found}; client said {stream.hex()}") from error
            client.connection.connection_lost()
        clients = server.driver.clients
        _require(len(clients) == 1, f"{len(clients) - 1} connections are kept")
        _require(not clients.feeds and not clients.watches, "subscriptions of nobody are kept")
        return self._connections * MESSAGES_PER_STREAM

    def _producer(self, server: OneServer, client: Client) -> int:
        """The producer that a client registers for its new session; it has heard the answers then."""
        hello = {"id": 0, "type": "hello", "timeout_ms": 30_000}
        messages = hello, {"id": 1, "type": "register_producer"}
        client.connection.data_received(b"".join(map(msgpack.packb, messages)))
        self._settle(server, [client])
        decoder = msgpack.Unpacker(use_list=False)
        decoder.feed(bytes(client.received))
        client.received.clear()
        for message, request in zip(decoder, messages, strict=True):
            self._look_at_fields(message, request)
        return int(message["created"])

    def _check(self, client: Client, due: list[dict[str, Any]] | None) -> None:
        answered: Counter[int] = Counter()
        decoder = msgpack.Unpacker(use_list=False, strict_map_key=False)
        decoder.feed(bytes(client.received))
        zatts = client.received[:1] != b"" and due is None
        # Messages of a stream come behind the request that began it, under whose id they are answered.
        requests = {request["id"]: request for request in reversed(due or ())}
        for message in decoder:
            kind = message.get("type") if isinstance(message, dict) else None
            if zatts and (kind not in _ANSWERS or "id" not in message):
                self._tally["a map in Zatt's form"] += (
                    1  # a state, a diagnostic, or what nobody can tell it from
                )
                continue
            if due is not None or kind in REFUSED:
                self._look_at_fields(message, requests.get(message.get("id"), {}))
            if kind == "error":
                _require(bool(message["error"]) and message["success"] is False, "an error that says nothing")
                _require(message["code"] != Code.SYSTEM_ERROR.name, f"an error of the server: {message}")
                self._tally[message["code"]] += 1
            else:
                self._tally[str(kind)] += 1
            if kind in _ANSWERS and "id" in message:
                answered[message["id"]] += 1
        if due is None:
            return
        _require(not client.closed, "the connection was closed although its stream could be followed")
        asked: Counter[int] = Counter()
        for request in due:
            number = request["id"]
            if number == STREAM and request["type"] == "produce":
                continue  # what becomes of it is pushed
            # Credit and messages of producers are answered only if they cannot be understood.
            if request.get("type") not in ("credit", "produce"):
                asked[number] += 1
            elif answered[number] == 1:
                del answered[number]
        _require(
            answered == asked, f"answered {sorted(answered.elements())}, expected {sorted(asked.elements())}"
        )

    def _look_at_fields(self, message: dict[str, Any], request: dict[str, Any]) -> None:
        try:
            compare(message, request)
        except ProtocolError as error:
            raise BrokenPromiseError(PROMISE, f"{error}, in {message} to {request}") from error

    def _settle(self, server: OneServer, clients: list[Client]) -> None:
        for _ in range(TURNS_MAX):
            self._partitions.turn()
            self._watch.step("a turn", server.turn)
            waits = any(
                client.connection.phase is not Phase.CLOSED
                and (client.connection.outstanding or client.connection._decoder is not None)  # type: ignore[attr-defined]
                for client in clients
            )
            if server.idle and not waits and not server.driver.clients.feeds.pending:
                server.turn()
                return
        raise BrokenPromiseError(PROMISE, f"not done with its clients after {TURNS_MAX} turns")

    def _look_at(self, connection: Any) -> None:
        held = held_bytes(connection)
        self._peak_bytes = max(self._peak_bytes, held)
        _require(held <= HELD_BYTES_MAX + OUTPUT_BYTES_MAX, f"one connection holds {held} bytes")

    def _flood(self, server: OneServer) -> None:
        """A client that only sends, while nothing becomes durable: the shell is told to stop reading it."""
        rng = self._rng
        floods = {
            "writes": {"type": "put", "id": 1, "key": "flood", "value": b"x" * 3_000},
            "reads": {"type": "get", "id": 1, "key": "flood"},
            "floors": {"type": "get", "id": 1, "key": "k", "consistency": "local", "floor": 2**40, "timeout_ms": 0},
            "pings": {"type": "ping", "id": 1},
            "states": {"type": "get", "id": 1},
        }  # fmt: skip
        name = rng.choice(sorted(floods))
        self._tally[f"flood of {name}"] += 1
        self._number += 1
        client = _connect(server, self._number)
        connection: Any = client.connection
        server.stalled = True
        message = msgpack.packb(floods[name])
        chunk = message * min(3_000, CHUNK_BYTES // len(message))
        for _ in range(FLOOD_CHUNKS):
            if client.closed or not connection.wants_read:
                break
            connection.data_received(chunk)
            self._look_at(connection)
            server.turn()
        server.stalled = False
        for _ in range(FLOOD_TURNS_MAX):
            size = server.turn()
            bound = OUTPUT_BYTES_MAX + ANSWERS_BYTES_MAX
            _require(size <= bound, f"flood of {name}: {size} bytes of answers in one turn")
            client.received.clear()
            if client.closed or not (connection.outstanding or connection.backlog_bytes):
                break
        connection.connection_lost()


def held_bytes(connection: Any) -> int:
    """Memory that hostile input occupies on one connection."""
    size: int = 2 * connection._reader.buffered + 2 * connection.backlog_bytes
    size += sum(map(sys.getsizeof, connection.out))
    for waiting in connection.queue:
        size += sys.getsizeof(waiting) + sum(map(sys.getsizeof, waiting[2]))
    size += 500 * connection._subscriptions.outstanding
    size += 200 * len(connection._reads)
    return size


class _Honest:
    """A client that does nothing wrong, on its own connection, and looks at every answer."""

    def __init__(self, server: OneServer) -> None:
        self._server = server
        self._client = _connect(server, 0)
        self._number = 0

    def work(self) -> None:
        """Put, read, increment and delete; every answer must be right."""
        self._number += 1
        number = self._number
        about = {"dictionary": HONEST, "key": number}
        messages = [
            {"id": 1, "type": "put", **about, "value": number},
            {"id": 2, "type": "increment", **about},
            {"id": 4, "type": "delete", **about, "version": 1},
        ]
        answers = self._ask(messages)
        _require(
            [answers[n].get("success") for n in (1, 2, 4)] == [True] * 3
            and answers[2]["value"] == number + 1,
            f"a well-behaved client was answered {answers}",
        )
        found = self._ask([{"id": 5, "type": "get", **about}])[5]
        _require(found.get("found") is False, f"a linearizable read was answered {found}")

    def _ask(self, messages: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        self._client.connection.data_received(b"".join(map(msgpack.packb, messages)))
        for _ in range(TURNS_MAX):
            self._server.turn()
            _require(not self._client.closed, "the connection of a well-behaved client was closed")
            decoder = msgpack.Unpacker(use_list=False, strict_map_key=False)
            decoder.feed(bytes(self._client.received))
            answers = {answer["id"]: answer for answer in decoder}
            if len(answers) == len(messages):
                self._client.received.clear()
                return answers
        raise BrokenPromiseError(PROMISE, "a well-behaved client was not answered")


def _connect(server: OneServer, number: int) -> Client:
    client = server.connect(number)
    native: NativeConnection = server.driver.clients.native(client.connection)
    client.connection = native  # type: ignore[assignment]
    return client


def _require(fact: bool, otherwise: str) -> None:
    if not fact:
        raise BrokenPromiseError(PROMISE, otherwise)
