"""Producers and consumers of a cell against topics in memory; a broken service is noticed, and so are failures."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest
from attrs import evolve

from tests.onyxlog.simulation.virtual_time import run_virtually
from zraft_bench.multicast import process as multicast_process
from zraft_bench.multicast.checks import Read, require_one_order
from zraft_bench.multicast.load import Consuming, Producing, TopicError
from zraft_bench.multicast.plan import BURST, Cell, Deck, Destinations, Singles
from zraft_bench.multicast.process import MulticastOrder
from zraft_bench.multicast.results import CellResult, Consumed, Produced, combine
from zraft_bench.records import from_plain, to_plain

NONCE = 5
CELL = Cell(
    name="x",
    share=0.5,
    topics=3,
    fanout=3,
    singles=Singles.EVEN,
    messages=300,
    seconds=0,
    messages_max=600,
    window=8,
    value_bytes=40,
    deadline_s=5,
)


class Service:
    """Topics in memory: a message gets its place at once, and its answer after `takes_s`."""

    def __init__(self, cell: Cell, takes_s: float = 0.004) -> None:
        self.logs: list[list[Read]] = [[] for _ in range(cell.places)]
        self.changed = asyncio.Event()
        self.takes_s = takes_s
        self.under_way = [0] * cell.producers
        self.most = [0] * cell.producers
        self.time = 0

    def deliver(self, producer: int, number: int, places: Destinations, payload: bytes) -> None:
        self.time += 1
        for place in places:
            log = self.logs[place]
            log.append(Read(len(log), (self.time, 1, 0, 0), (70 + producer, number), payload))
        self.changed.set()
        self.changed = asyncio.Event()


class MemorySender:
    def __init__(self, service: Service, producer: int) -> None:
        self.service = service
        self.producer = producer
        self.number = 0
        self.fails_at = 0

    async def send(self, places: Destinations, payload: bytes) -> Awaitable[object]:
        service, producer = self.service, self.producer
        self.number += 1
        number = self.number
        service.under_way[producer] += 1
        service.most[producer] = max(service.most[producer], service.under_way[producer])
        if number == self.fails_at:
            raise TopicError("the producer's session expired")
        service.deliver(producer, number, places, payload)
        return asyncio.ensure_future(self._told())

    async def _told(self) -> None:
        await asyncio.sleep(self.service.takes_s)
        self.service.under_way[self.producer] -= 1


class MemoryReader:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.offsets = [0] * len(service.logs)
        self.hides: set[int] = set()
        self.breaks = False

    async def read(self) -> dict[int, Sequence[Read]]:
        """Of place 1 without what is to be hidden."""
        if all(len(log) == offset for log, offset in zip(self.service.logs, self.offsets, strict=True)):
            try:
                async with asyncio.timeout(0.5):
                    await self.service.changed.wait()
            except TimeoutError:
                return {}
        found: dict[int, Sequence[Read]] = {}
        for place, log in enumerate(self.service.logs):
            reads = log[self.offsets[place] : self.offsets[place] + 20]
            self.offsets[place] += len(reads)
            found[place] = [one for one in reads if place != 1 or one.offset not in self.hides]
        if self.breaks and self.offsets[1] > 100:
            raise TopicError("retention removed offset 100")
        return {place: reads for place, reads in found.items() if reads}


class Cellmates:
    """All producers and consumers of a cell in this process."""

    def __init__(self, cell: Cell, takes_s: float = 0.004) -> None:
        self.cell = cell
        self.service = Service(cell, takes_s)
        self.senders = {p: MemorySender(self.service, p) for p in range(cell.producers)}
        self.reader = MemoryReader(self.service)

    async def run(self) -> tuple[Produced, Consumed, CellResult]:
        clock = asyncio.get_running_loop().time
        producing = Producing(self.cell, NONCE, self.senders, clock=clock, cpu_clock=lambda: 0.0)
        consuming = Consuming(
            self.cell, NONCE, range(self.cell.places), self.reader, clock=clock, cpu_clock=lambda: 0.0
        )
        sent: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        reading = asyncio.ensure_future(consuming.run(sent))
        produced = await producing.run()
        sent.set_result(list(produced.sent))
        consumed, logs = await reading
        pairs = require_one_order(logs) if logs else 0
        return produced, consumed, combine(self.cell, 3, [produced], [consumed], pairs=pairs)


def run(
    mates_of: Cell, *, takes_s: float = 0.004, **changes: object
) -> tuple[Produced, Consumed, CellResult, Service]:
    async def main() -> tuple[Produced, Consumed, CellResult, Service]:
        mates = Cellmates(mates_of, takes_s)
        for name, value in changes.items():
            who, _, attribute = name.partition("__")
            setattr(mates.senders[0] if who == "sender" else mates.reader, attribute, value)
        return *(await mates.run()), mates.service

    return run_virtually(main())


def test_every_message_is_sent_once_and_read_everywhere() -> None:
    produced, consumed, result, service = run(CELL)
    assert produced.sent == (300, 300)
    assert result.reason == ""
    assert result.messages == 600
    assert result.multicasts == Deck(CELL, 0).multicasts(300) + Deck(CELL, 1).multicasts(300)
    assert result.delivered == sum(map(len, service.logs)) == 600 + 2 * result.multicasts
    assert result.pairs == 3
    assert result.thesis_records == 3 * (600 - result.multicasts) + 19 * result.multicasts
    assert set(result.latency) == set(result.arrival) == {"1", "3"}
    assert result.latency["1"].count + result.latency["3"].count == 600
    assert result.arrival["3"].count == 3 * result.latency["3"].count
    assert consumed.broken == ""


def test_messages_that_share_batches_are_sent_in_bursts_and_the_loop_stays_closed() -> None:
    cell = evolve(CELL, batch_bytes=1_000, window=300, messages=2_000, messages_max=4_000)
    produced, _, result, service = run(cell)
    assert cell.burst == BURST
    assert produced.sent == (2_000, 2_000)
    assert result.reason == ""
    assert service.most == [2 * BURST, 2 * BURST]
    assert sum(one.count for one in result.latency.values()) == 4_000


def test_what_is_read_afterwards_has_a_rate_of_its_own() -> None:
    produced, consumed, _, _ = run(CELL)
    cell = evolve(CELL, reads_after=True)
    consumed = evolve(consumed, began_s=10.0, last_s=(10.5, 12.0, 11.0))
    found = combine(cell, 3, [evolve(produced, began_s=1.0, ended_s=4.0)], [consumed])
    assert (found.elapsed_s, found.read_s) == (3.0, 2.0)
    assert found.per_second == found.messages / 3.0
    assert sum(found.per_topic()) == pytest.approx(found.delivered / 2.0)


def test_the_loop_is_closed_by_the_window() -> None:
    *_, service = run(CELL)
    assert service.most == [8, 8]
    *_, service = run(evolve(CELL, window=1))
    assert service.most == [1, 1]


def test_rates_are_deliveries_read_over_the_time_from_the_first_message_to_the_last_read() -> None:
    _, _, result, _ = run(evolve(CELL, window=1, share=0.0), takes_s=0.01)
    assert result.elapsed_s == pytest.approx(3.0)
    assert result.per_second == pytest.approx(200)
    assert sum(result.per_topic()) == pytest.approx(200)
    assert result.latency["1"].percentiles["50"] == pytest.approx(10, rel=0.02)


def test_a_sleep_after_each_message_is_kept() -> None:
    """A-16: 5 ms."""
    _, _, result, _ = run(evolve(CELL, sleep_ms=5.0), takes_s=0.001)
    assert result.elapsed_s == pytest.approx(300 * 0.005, abs=0.02)


def test_a_cell_goes_on_for_its_time_until_its_most_messages() -> None:
    _, _, timed, _ = run(evolve(CELL, seconds=2.0, messages_max=10**6))
    assert timed.elapsed_s == pytest.approx(2.0, abs=0.02)
    assert timed.messages > 600
    _, _, counted, _ = run(evolve(CELL, seconds=1e6, messages_max=2000))
    assert counted.messages == 2000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"reader__hides": {40}}, "expected offset"),
        ({"reader__breaks": True}, "retention removed"),
        ({"sender__fails_at": 50}, "1 messages failed, most often: the producer's session expired"),
    ],
)
def test_what_goes_wrong_is_in_the_result(change: dict[str, Any], reason: str) -> None:
    _, _, result, _ = run(CELL, **change)
    assert not result.ok
    assert reason in result.reason


def test_messages_that_do_not_come_in_time_are_missed() -> None:
    _, consumed, result, _ = run(CELL, reader__hides=set(range(150, 10**4)))
    assert "place 1: " in consumed.broken
    assert "did not come in time" in consumed.broken
    assert not result.ok


def test_the_accounting_must_come_out_exactly() -> None:
    """A consumer that stops early, without anybody noticing, is found by counting."""
    produced, consumed, result, _ = run(CELL)
    short = evolve(consumed, delivered=(consumed.delivered[0] - 1, *consumed.delivered[1:]))
    again = combine(CELL, 3, [produced], [short])
    assert result.ok
    assert f"{result.delivered:,} deliveries were told to producers" in again.reason


def test_what_processes_say_to_each_other_survives_the_pipe() -> None:
    produced, consumed, _, _ = run(CELL)
    assert to_plain(from_plain(Produced, json.loads(json.dumps(to_plain(produced))))) == to_plain(produced)
    assert to_plain(from_plain(Consumed, json.loads(json.dumps(to_plain(consumed))))) == to_plain(consumed)
    order = MulticastOrder(hosts="h:1", cell=CELL, nonce=1, prefix="p", producers=(0,), places=(1, 2))
    assert from_plain(MulticastOrder, json.loads(json.dumps(to_plain(order)))) == order


async def test_a_process_produces_then_consumes_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    mates: list[Cellmates] = []

    class Connected:
        async def __aenter__(self) -> tuple[object, object]:
            mates.append(Cellmates(CELL, 0.0005))
            return mates[0].senders, mates[0].reader

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(multicast_process, "connected", lambda order: Connected())
    order = MulticastOrder(
        hosts="h:1", cell=CELL, nonce=NONCE, prefix="p", producers=(0, 1), places=(0, 1, 2)
    )

    lines, output = asyncio.StreamReader(), io.BytesIO()
    for message in (to_plain(order), {"start": 0}, {"sent": [300, 300]}):
        lines.feed_data(json.dumps(message).encode() + b"\n")
    await multicast_process.serve(lines, output)
    said = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [next(iter(one)) for one in said] == ["ready", "began", "produced", "consumed"]
    done = said[3]["consumed"]
    assert isinstance(done, dict)
    assert from_plain(Consumed, done["consumed"]).broken == ""
    assert len(done["logs"]) == 3


async def test_a_process_tells_what_it_cannot_do() -> None:
    lines, output = asyncio.StreamReader(), io.BytesIO()
    lines.feed_data(b'{"hosts": "x"}\n')
    lines.feed_eof()
    await multicast_process.serve(lines, output)
    assert "RecordError" in json.loads(output.getvalue())["error"]
