"""What is wrong with a log is found: each promise broken once. What is right is not complained about."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from attrs import evolve

from zraft_bench.multicast.checks import (
    MARK_EVERY,
    BrokenOrderError,
    LogCheck,
    LogSummary,
    Read,
    require_one_order,
)
from zraft_bench.multicast.plan import Cell, Deck, Payloads, Singles
from zraft_client.topics.options import Order
from zraft_core.errors import ZraftError

NONCE = 99
CELL = Cell(name="x", share=0.5, fanout=2, topics=4, singles=Singles.EVEN, value_bytes=40)
SENT = [1500, 1700]


def logs_of(cell: Cell = CELL, sent: list[int] | None = None, seed: int = 1) -> dict[int, list[Read]]:
    """Logs as one sequencer would make them: each producer's messages in order, the producers mixed."""
    rng = Random(seed)
    counts = list(SENT if sent is None else sent)
    decks = [Deck(cell, p) for p in range(cell.producers)]
    payloads = Payloads(cell, NONCE)
    order = [p for p, count in enumerate(counts) for _ in range(count)]
    rng.shuffle(order)
    numbers = [0] * cell.producers
    logs: dict[int, list[Read]] = {place: [] for place in range(cell.places)}
    for time, producer in enumerate(order, 1):
        number = numbers[producer]
        numbers[producer] += 1
        places = decks[producer].destinations(number)
        for place in places:
            stamp = (time, places[0] + 1, 0, 0) if len(places) > 1 else (time, places[0] + 1, 1, place + 1)
            log = logs[place]
            log.append(
                Read(len(log), stamp, (100 + producer, number + 1), payloads.make(producer, number, time))
            )
    return logs


def judge(logs: dict[int, list[Read]], cell: Cell = CELL, sent: list[int] | None = None) -> list[LogSummary]:
    summaries = []
    for place, log in logs.items():
        check = LogCheck(cell, NONCE, place)
        for at in range(0, len(log), 7):
            check.take(log[at : at + 7])
        summaries.append(check.finish(SENT if sent is None else sent))
        assert check.expect(SENT if sent is None else sent) == check.delivered
    return summaries


@pytest.mark.parametrize(
    "cell", [CELL, evolve(CELL, fanout=4), evolve(CELL, share=0.0), evolve(CELL, partitions=2)]
)
def test_logs_of_one_order_pass(cell: Cell) -> None:
    summaries = judge(logs_of(cell), cell)
    assert sum(one.delivered for one in summaries) == sum(
        k * n for p in range(2) for k, n in Deck(cell, p).deliveries(SENT[p])
    )
    pairs = require_one_order(summaries)
    assert pairs == (0 if cell.share == 0 else 6 * cell.partitions)


def renumbered(log: list[Read]) -> list[Read]:
    """Dense offsets again, and stamps where they were: what is wrong is the order, or what is there."""
    stamps = sorted(one.stamp for one in log)
    return [
        evolve(one, offset=n, stamp=stamp) for n, (one, stamp) in enumerate(zip(log, stamps, strict=True))
    ]


def duplicate(log: list[Read]) -> None:
    log[50:50] = [evolve(log[40], stamp=(log[49].stamp[0], 10**6, 0, 0))]
    log[:] = [evolve(one, offset=n) for n, one in enumerate(log)]


def lose(log: list[Read]) -> None:
    del log[50]
    log[:] = [evolve(one, offset=n) for n, one in enumerate(log)]


def gap(log: list[Read]) -> None:
    del log[50]


def swap_stamps(log: list[Read]) -> None:
    log[50], log[51] = evolve(log[51], offset=50), evolve(log[50], offset=51)


def change_payload(log: list[Read]) -> None:
    log[50] = evolve(log[50], payload=log[50].payload[:-1] + b"\xff")


def another_producer(log: list[Read]) -> None:
    log[50] = evolve(log[50], id=(999, log[50].id[1]))


def strange_address(log: list[Read]) -> None:
    number = next(n for n in range(SENT[0]) if 0 not in Deck(CELL, 0).destinations(n))
    at = next(n for n, one in enumerate(log) if n >= 50 and one.id[0] == 100)
    log[at] = evolve(log[at], payload=Payloads(CELL, NONCE).make(0, number, 0))


def unsent(log: list[Read]) -> None:
    number = next(n for n in range(SENT[0], SENT[0] + 5000) if 0 in Deck(CELL, 0).destinations(n))
    last = log[-1]
    log.append(
        Read(
            len(log),
            (last.stamp[0] + 1, 1, 0, 0),
            (100, number + 1),
            Payloads(CELL, NONCE).make(0, number, 0),
        )
    )


def singles_swapped(log: list[Read]) -> None:
    deck = Deck(CELL, 0)
    places = [
        n for n, one in enumerate(log) if one.id[0] == 100 and len(deck.destinations(one.id[1] - 1)) == 1
    ]
    a, b = places[3], places[4]
    log[a], log[b] = log[b], log[a]
    log[:] = renumbered(log)


@pytest.mark.parametrize(
    ("breaks", "complaint"),
    [
        (duplicate, "came twice|does not come after"),
        (lose, "are not there"),
        (gap, "expected offset 50"),
        (swap_stamps, "does not come after"),
        (change_payload, "is not what was sent"),
        (another_producer, "by somebody else"),
        (strange_address, "it was sent to"),
        (unsent, "which sent"),
        (singles_swapped, "th came behind"),
    ],
)
def test_a_broken_log_is_found(breaks: Callable[[list[Read]], None], complaint: str) -> None:
    log = logs_of()[0]
    breaks(log)
    with pytest.raises(ZraftError, match=complaint):
        judge({0: log})


def test_in_fifo_order_also_messages_to_several_are_not_overtaken() -> None:
    """Without an order of all messages a producer may have them on the way at once."""
    log = logs_of()[0]
    places = [n for n, one in enumerate(log) if one.id[0] == 100]
    several = [n for n in places if len(Deck(CELL, 0).destinations(log[n].id[1] - 1)) > 1]
    a, b = several[3], several[4]
    log[a], log[b] = log[b], log[a]
    log[:] = renumbered(log)
    LogCheck(CELL, NONCE, 0).take(log)
    with pytest.raises(BrokenOrderError, match="th came behind"):
        LogCheck(evolve(CELL, order=Order.FIFO), NONCE, 0).take(log)
    judge(logs_of(), evolve(CELL, order=Order.CAUSAL))


def batched(log: list[Read], size: int = 3) -> list[Read]:
    """The log of a cell without multicasts with messages of each producer in batches, which share id and stamp."""
    batches: dict[int, list[list[Read]]] = {}
    for one in log:
        of = batches.setdefault(one.id[0], [[]])
        if len(of[-1]) == size:
            of.append([])
        of[-1].append(one)
    made: list[Read] = []
    for batch in sorted((batch for of in batches.values() for batch in of), key=lambda batch: batch[0].stamp):
        stamp, id = batch[0].stamp, batch[0].id
        for index, one in enumerate(batch):
            made.append(evolve(one, offset=len(made), stamp=stamp, id=id, index=index))
    return made


def batch_without_its_second(log: list[Read]) -> None:
    del log[1]
    log[:] = [evolve(one, offset=n) for n, one in enumerate(log)]


def batch_torn_apart(log: list[Read]) -> None:
    log.insert(5, log.pop(1))
    log[:] = [evolve(one, offset=n) for n, one in enumerate(log)]


def batch_with_two_stamps(log: list[Read]) -> None:
    log[2] = evolve(log[2], stamp=(log[2].stamp[0] + 1, *log[2].stamp[1:]))


def test_records_of_a_batch_share_its_place_in_the_order() -> None:
    cell = evolve(CELL, share=0.0, batch_bytes=1_000)
    for order in Order:
        judge({place: batched(log) for place, log in logs_of(cell).items()}, evolve(cell, order=order))


@pytest.mark.parametrize("breaks", [batch_without_its_second, batch_torn_apart, batch_with_two_stamps])
def test_a_batch_that_is_not_whole_is_found(breaks: Callable[[list[Read]], None]) -> None:
    cell = evolve(CELL, share=0.0, batch_bytes=1_000)
    log = batched(logs_of(cell)[0])
    breaks(log)
    with pytest.raises(BrokenOrderError, match="of its batch, without the one before"):
        judge({0: log}, cell)


def test_a_message_that_comes_twice_with_ascending_stamps_is_found() -> None:
    log = logs_of()[0]
    log.append(evolve(log[3], offset=len(log), stamp=(log[-1].stamp[0] + 1, 1, 0, 0)))
    check = LogCheck(CELL, NONCE, 0)
    with pytest.raises(BrokenOrderError, match="came twice"):
        check.take(log)


def test_two_logs_that_differ_in_the_order_of_common_messages_are_found() -> None:
    """Each log alone is fine: stamps ascend in both."""
    logs = logs_of()
    log, decks = logs[1], [Deck(CELL, p) for p in range(2)]
    common = [n for n, one in enumerate(log) if decks[one.id[0] - 100].destinations(one.id[1] - 1) == (1, 2)]
    a, b = common[2], common[3]
    log[a], log[b] = log[b], log[a]
    logs[1] = renumbered(log)
    with pytest.raises(BrokenOrderError, match=r"places (1 and 2|2 and 1): of \d+ and \d+ common messages"):
        require_one_order(judge(logs))


def test_a_stamp_that_is_not_the_same_everywhere_is_found() -> None:
    logs = logs_of()
    decks = [Deck(CELL, p) for p in range(2)]
    at = next(
        n
        for n, one in enumerate(logs[3])
        if n > 5 and len(decks[one.id[0] - 100].destinations(one.id[1] - 1)) > 1
    )
    stamp = logs[3][at].stamp
    logs[3][at] = evolve(logs[3][at], stamp=(stamp[0], stamp[1] + 1, 0, 0))
    with pytest.raises(BrokenOrderError, match="order differs behind the first 0"):
        require_one_order(judge(logs))


def test_about_where_two_logs_begin_to_differ_is_told() -> None:
    cell, sent = evolve(CELL, share=1.0, fanout=2, topics=2), [1500, 1500]
    logs = logs_of(cell, sent)
    last = logs[0][-1]
    logs[0][-1] = evolve(last, stamp=(last.stamp[0] + 1, 1, 0, 0))
    with pytest.raises(BrokenOrderError, match=f"behind the first {2 * MARK_EVERY}$"):
        require_one_order(judge(logs, cell, sent))


def test_a_log_that_was_not_read_is_missed() -> None:
    with pytest.raises(BrokenOrderError, match="the log of 3 was not read"):
        require_one_order(judge(logs_of())[:3])
