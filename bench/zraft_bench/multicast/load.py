"""Producers and consumers of one process: they send what a cell says, read what exists, and judge it as they go.

Their connections and clocks are handed in. The loop is closed: as many messages of a producer are under way
as its window says, each with a worker of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from zraft_bench.load.histogram import Histogram
from zraft_bench.multicast.checks import BrokenOrderError, LogCheck, LogSummary, Read
from zraft_bench.multicast.plan import Cell, Deck, Destinations, ForeignPayloadError, Payloads
from zraft_bench.multicast.results import Consumed, Produced
from zraft_core.errors import ZraftError

DRAIN_AT: Final = 16_384
FAILURES_MAX: Final = 10
FAILURE_TEXT_LENGTH: Final = 200

Clock = Callable[[], float]


class TopicError(ZraftError):
    """A message was not delivered, or a partition cannot be read."""


class Sender(Protocol):
    """One producer."""

    async def send(self, places: Destinations, payload: bytes) -> Awaitable[object]:
        """Send a message; wait only for room. Await what is returned until it is delivered at all places.

        Raises:
            TopicError: it is not taken; awaiting raises it if it was not delivered.
        """


class Reader(Protocol):
    """Reader of some places, each from its beginning."""

    async def read(self) -> Mapping[int, Sequence[Read]]:
        """Return the next messages by place; wait a while for the first one.

        Raises:
            TopicError: a partition cannot be read.
        """


class _Latencies:
    """Latencies by number of destinations; durations are sorted into histograms many at a time."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[float]] = {}
        self._sorted: dict[int, Histogram] = {}

    def add(self, destinations: int, seconds: float) -> None:
        waiting = self._waiting.setdefault(destinations, [])
        waiting.append(seconds)
        if len(waiting) >= DRAIN_AT:
            self._drain(destinations)

    def _drain(self, destinations: int) -> None:
        self._sorted.setdefault(destinations, Histogram()).add(self._waiting.pop(destinations))

    def histograms(self) -> dict[str, Histogram]:
        for destinations in list(self._waiting):
            self._drain(destinations)
        return {str(k): one for k, one in sorted(self._sorted.items())}


class Producing:
    """Some of a cell's producers."""

    def __init__(
        self,
        cell: Cell,
        nonce: int,
        senders: Mapping[int, Sender],
        *,
        clock: Clock = time.monotonic,
        cpu_clock: Clock = time.process_time,
    ) -> None:
        self._cell = cell
        self._senders = dict(senders)
        self._payloads = Payloads(cell, nonce)
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._sent = dict.fromkeys(senders, 0)
        self._latencies = _Latencies()
        self._failures: dict[str, int] = {}
        self._began = 0.0
        self._ended = 0.0

    async def run(self) -> Produced:
        """Send until each has sent enough and all of it is delivered, or something failed."""
        self._began = self._ended = self._clock()
        cpu = self._cpu_clock()
        await asyncio.gather(*(self._produce(producer) for producer in self._senders))
        return Produced(
            producers=tuple(self._sent),
            sent=tuple(self._sent.values()),
            began_s=self._began,
            ended_s=self._ended,
            latencies=self._latencies.histograms(),
            failures=dict(sorted(self._failures.items(), key=lambda one: -one[1])[:FAILURES_MAX]),
            cpu_s=self._cpu_clock() - cpu,
        )

    async def _produce(self, producer: int) -> None:
        deck = Deck(self._cell, producer)
        pace = _Pace(self._cell.sleep_ms / 1000, self._clock)
        workers = self._cell.window // self._cell.burst
        await asyncio.gather(*(self._work(producer, deck, pace) for _ in range(workers)))

    async def _work(self, producer: int, deck: Deck, pace: _Pace) -> None:
        while not self._failures and self._goes_on(producer):
            try:
                await self._burst(producer, deck, pace)
            except TopicError as error:
                text = str(error)[:FAILURE_TEXT_LENGTH]
                self._failures[text] = self._failures.get(text, 0) + 1

    def _goes_on(self, producer: int) -> bool:
        return not self._cell.is_enough(producer, self._sent[producer], self._clock() - self._began)

    async def _burst(self, producer: int, deck: Deck, pace: _Pace) -> None:
        """Send some messages, and wait for each; what is told out of its turn counts as told in its turn."""
        sender, clock = self._senders[producer], self._clock
        under_way: list[tuple[int, float, Awaitable[object]]] = []
        for _ in range(self._cell.burst):
            if under_way and not self._goes_on(producer):
                break
            number = self._sent[producer]
            self._sent[producer] += 1
            await pace.turn()
            places = deck.destinations(number)
            sent = clock()
            payload = self._payloads.make(producer, number, int(sent * 1_000_000))
            under_way.append((len(places), sent, await sender.send(places, payload)))
        for destinations, sent, told in under_way:
            await told
            self._ended = answered = clock()
            self._latencies.add(destinations, answered - sent)


class _Pace:
    """A sleep after each message of a producer, by whichever worker; none if it is 0."""

    def __init__(self, sleep_s: float, clock: Clock) -> None:
        self._sleep_s = sleep_s
        self._clock = clock
        self._next = 0.0

    async def turn(self) -> None:
        if not self._sleep_s:
            return
        now = self._clock()
        due = max(self._next, now)
        self._next = due + self._sleep_s
        if due > now:
            await asyncio.sleep(due - now)


class Consuming:
    """The consumers of some of a cell's places."""

    def __init__(
        self,
        cell: Cell,
        nonce: int,
        places: Sequence[int],
        reader: Reader | None,
        *,
        clock: Clock = time.monotonic,
        cpu_clock: Clock = time.process_time,
    ) -> None:
        self._cell = cell
        self._reader = reader
        self._checks = {place: LogCheck(cell, nonce, place) for place in places}
        self._last = dict.fromkeys(places, 0.0)
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._latencies = _Latencies()

    async def run(self, produced: asyncio.Future[list[int]]) -> tuple[Consumed, list[LogSummary]]:
        """Read until everything that was sent is read. `produced` returns messages by producer once sending is over.

        What is missing after the cell's deadline, or broken, is in the result.
        """
        cpu, began = self._cpu_clock(), self._clock()
        broken = ""
        summaries: list[LogSummary] = []
        try:
            await self._read_all(produced)
            counts = await produced
            summaries = [check.finish(counts) for check in self._checks.values()]
        except (TopicError, BrokenOrderError, ForeignPayloadError) as error:
            broken = str(error)
        found = Consumed(
            places=tuple(self._checks),
            delivered=tuple(check.delivered for check in self._checks.values()),
            began_s=began,
            last_s=tuple(self._last.values()),
            arrivals=self._latencies.histograms(),
            broken=broken,
            cpu_s=self._cpu_clock() - cpu,
        )
        return found, summaries

    async def _read_all(self, produced: asyncio.Future[list[int]]) -> None:
        if self._reader is None:
            return
        wanted: dict[int, int] = {}
        give_up = float("inf")
        while True:
            if produced.done():
                if not wanted:
                    counts = produced.result()
                    wanted = {place: check.expect(counts) for place, check in self._checks.items()}
                    give_up = self._clock() + self._cell.deadline_s
                missing = {
                    place: left
                    for place, check in self._checks.items()
                    if (left := wanted[place] - check.delivered) > 0
                }
                if not missing:
                    return
                if self._clock() >= give_up:
                    raise BrokenOrderError(
                        "; ".join(
                            f"place {place}: {n:,} messages did not come in time"
                            for place, n in missing.items()
                        )
                    )
            self._take(await self._reader.read())

    def _take(self, reads: Mapping[int, Sequence[Read]]) -> None:
        now_s = self._clock()
        for place, messages in reads.items():
            arrivals = self._checks[place].take(messages)
            self._last[place] = now_s
            for one in arrivals:
                self._latencies.add(one.destinations, now_s - one.sent_us / 1_000_000)
