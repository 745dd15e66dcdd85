"""What a cell of multicast sends, and what the thesis' algorithms would have written for it."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from onyxlog.theses import atomic_kafka
from zraft_bench.multicast.plan import (
    HEADER,
    PERIOD,
    SHARES,
    Cell,
    Deck,
    ForeignPayloadError,
    Header,
    Payloads,
    Singles,
    latency_cells,
    thesis_cells,
)


def test_a_message_to_one_topic_takes_3_records_and_one_to_five_takes_35() -> None:
    """A-18: 1 + 4*2 notifications + 4*2 acknowledgements + 4*2 decisions + 5*2 deliveries."""
    assert atomic_kafka.multicast_records(1) == 3
    assert atomic_kafka.multicast_records(5) == 35


def test_the_accounting_explains_the_published_totals() -> None:
    """A-18: the implied shares, and a baseline of 100,000 messages, which five producers sent."""
    assert [round(one.implied_share, 3) for one in atomic_kafka.SCENARIOS[1:]] == [
        0.110,
        0.189,
        0.309,
        0.410,
        0.509,
    ]
    assert atomic_kafka.SCENARIOS[0].implied_share == 0
    for several in (0, 4000, 20_000):
        assert atomic_kafka.total_records([(1, 40_000 - several), (5, several)]) == 120_000 + 32 * several


def test_the_tables_means_are_not_the_headline() -> None:
    """A-17."""
    means = [
        round(one.mean_delivered, 1)
        for one in (atomic_kafka.SCENARIOS[0], atomic_kafka.SCENARIOS[1], atomic_kafka.SCENARIOS[5])
    ]
    assert means == [88.9, 9.4, 6.3]
    assert [len(one.nodes) for one in atomic_kafka.SCENARIOS] == [5] * 6


def test_the_baseline_was_published_for_five_producers_and_the_mixes_for_two() -> None:
    assert atomic_kafka.published(0.0, five_producers=True) is atomic_kafka.SCENARIOS[0]
    assert atomic_kafka.published(0.0, five_producers=False) is None
    assert atomic_kafka.published(0.3, five_producers=False) is atomic_kafka.SCENARIOS[3]
    assert atomic_kafka.published(0.35, five_producers=False) is None


@pytest.mark.parametrize("share", [*SHARES, 1.0])
def test_shares_are_exact(share: float) -> None:
    cell = Cell(name="x", share=share)
    for producer in range(2):
        deck = Deck(cell, producer)
        assert deck.multicasts(PERIOD) == round(share * PERIOD)
        assert deck.multicasts(20_000) == 20_000 * share
        assert sum(count for _, count in deck.deliveries(1234)) == 1234
        assert dict(deck.deliveries(20_000)) == {
            k: n for k, n in ((1, 20_000 - round(20_000 * share)), (5, round(20_000 * share))) if n
        }


def test_singles_go_to_the_producers_own_topic_as_published_or_to_all_alike() -> None:
    """The thesis' two clients of the mixes wrote to topics 1 and 3, the five of the baseline to one each."""
    cell = Cell(name="x")
    assert [Deck(cell, p).of[0] for p in range(2)] == [(0,), (2,)]
    five = evolve(cell, producers=5)
    assert [Deck(five, p).of[0] for p in range(5)] == [(0,), (1,), (2,), (3,), (4,)]
    even = Deck(evolve(cell, singles=Singles.EVEN), 0)
    assert sorted(even.of).count((3,)) == PERIOD // 5


def test_where_a_message_goes_is_the_same_for_whoever_asks() -> None:
    cell = Cell(name="x", share=0.4, fanout=2, partitions=3)
    one, other = Deck(cell, 1), Deck(cell, 1)
    assert one.of == other.of != Deck(cell, 0).of
    assert one.destinations(5) == one.destinations(5 + len(one.of))
    for n, places in enumerate(one.of):
        assert list(places) == sorted(set(places))
        assert {place % 3 for place in places} == {n % 3}
        assert len(places) in (1, 2)
    assert len(set(one.of)) > 20, "which two topics is drawn anew each time"


def test_messages_in_a_row_go_to_one_partition_and_all_partitions_have_their_turn() -> None:
    cell = Cell(name="x", topics=1, fanout=1, partitions=8, producers=1, in_a_row=125)
    deck = Deck(cell, 0)
    assert [deck.destinations(n) for n in range(0, 2_000, 125)] == [(n,) for n in range(8)] * 2
    assert all(deck.destinations(n) == deck.destinations(n + 124) for n in range(0, 16_000, 125))
    assert dict(deck.deliveries(8_000)) == {1: 8_000}
    with pytest.raises(ValueError, match="divisor of 1000"):
        evolve(cell, in_a_row=3)


def test_a_cell_ends_after_its_messages_and_its_time_or_after_its_most_messages() -> None:
    cell = Cell(name="x", messages=100, seconds=20, messages_max=1001)
    assert not cell.is_enough(0, 99, 30)
    assert not cell.is_enough(0, 100, 19.9)
    assert cell.is_enough(0, 100, 20)
    assert not cell.is_enough(0, 500, 1)
    assert cell.is_enough(0, 501, 1)
    assert cell.is_enough(1, 500, 1)


def test_payloads_are_recognised_and_others_refused() -> None:
    cell = Cell(name="x", value_bytes=100)
    payloads = Payloads(cell, 7)
    packed = payloads.make(1, 42, 5)
    assert len(packed) == 100
    assert payloads.read(packed) == Header(1, 42, 5)
    for wrong in (packed[:-1], packed[:-1] + b"x", b"", Payloads(cell, 8).make(1, 42, 5)):
        with pytest.raises(ForeignPayloadError):
            payloads.read(wrong)
    assert len(Payloads(evolve(cell, value_bytes=HEADER.size), 7).make(0, 0, 0)) == HEADER.size


def test_the_schedule_has_the_published_scenarios_and_messages_that_are_alone() -> None:
    """A-16: 5 topics, 2 producers of 20,000 messages each, 0 to 50 %; ours: 1, 2 and 5 destinations."""
    cells = thesis_cells(Cell(name="base"))
    assert [(one.share, one.producers, one.messages) for one in cells] == [
        (0.0, 5, 20_000),
        *((share, 2, 20_000) for share in SHARES),
    ]
    alone = latency_cells(Cell(name="base"))
    assert [(one.fanout, one.window, one.producers) for one in alone] == [(1, 1, 1), (2, 1, 1), (5, 1, 1)]
    assert [Deck(one, 0).deliveries(10) for one in alone] == [[(1, 10)], [(2, 10)], [(5, 10)]]


def test_impossible_cells_are_refused() -> None:
    impossible: list[dict[str, Any]] = [
        {"share": 1.1},
        {"fanout": 6},
        {"value_bytes": HEADER.size - 1},
        {"window": 0},
    ]
    for wrong in impossible:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Cell(name="x", **wrong)
