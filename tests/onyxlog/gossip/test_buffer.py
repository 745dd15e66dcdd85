"""The ordering buffer: what the thesis never had, so that none of its gossiped events was applied (3.2-1)."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from onyxlog.gossip.buffer import Mismatch, Offered, OrderingBuffer, Ready, Source
from onyxlog.gossip.messages import Event


def chain(position: int) -> bytes:
    return b"chain %d" % position


def event(position: int, previous: bytes | None = None) -> Event:
    return Event(position, b"entry %d" % position, chain(position - 1) if previous is None else previous)


def buffer(applied: int = -1, window: int = 8, history: int = 4, history_bytes: int = 1000) -> OrderingBuffer:
    return OrderingBuffer(
        applied, chain(applied), window=window, history=history, history_bytes=history_bytes
    )


def drain(of: OrderingBuffer) -> list[int]:
    applied = []
    while isinstance(ready := of.ready(), Ready):
        applied.append(ready.event.position)
        of.advance(chain(ready.event.position))
    return applied


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_whatever_the_order_of_arrival_entries_are_applied_once_and_in_the_order_of_positions(
    seed: int, count: int
) -> None:
    random = Random(seed)
    arriving = [position for position in range(count) for _ in range(random.randint(1, 3))]
    random.shuffle(arriving)
    of, applied = buffer(window=count), list[int]()
    for position in arriving:
        known = position in applied or position in of._waiting
        assert (of.offer(event(position), Source.GOSSIP) is Offered.KNOWN) == known
        applied += drain(of)
    assert applied == list(range(count))


def test_nothing_is_applied_over_a_gap_and_the_gap_is_told() -> None:
    of = buffer()
    for position in (0, 3, 4, 6):
        of.offer(event(position), Source.GOSSIP)
    assert drain(of) == [0]
    assert of.missing() == (1, 3)
    of.offer(event(1), Source.PEER)
    of.offer(event(2), Source.PEER)
    assert drain(of) == [1, 2, 3, 4]
    assert of.missing() == (5, 6)


def test_that_there_are_later_entries_makes_a_gap_without_any_event() -> None:
    of = buffer(applied=9)
    assert of.missing() is None
    of.heard_of(12)
    assert of.missing() == (10, 13)


def test_what_is_too_far_ahead_is_not_kept_but_known_to_exist() -> None:
    of = buffer(window=8)
    assert of.offer(event(8), Source.GOSSIP) is Offered.BEYOND
    assert not of._waiting
    assert of.missing() == (0, 8), "as far as the window reaches"
    assert of.offer(event(7), Source.GOSSIP) is Offered.NEW


def test_an_event_on_another_chain_is_told_once_and_only_the_log_can_mend_it() -> None:
    of = buffer()
    of.offer(event(0, b"another"), Source.GOSSIP)
    assert of.ready() == Mismatch(0, "")
    assert of.ready() is None
    assert of.must_come_from_log()
    assert of.offer(event(0), Source.GOSSIP) is Offered.KNOWN
    assert of.ready() is None, "gossip is not believed about this entry any more"
    assert of.missing() == (0, 1)
    assert of.offer(Event(0, b"the log's", b""), Source.LOG) is Offered.NEW
    ready = of.ready()
    assert isinstance(ready, Ready)
    assert ready.event.payload == b"the log's"


def test_what_the_log_says_replaces_what_gossip_said() -> None:
    of = buffer()
    of.offer(event(0, b"another"), Source.GOSSIP)
    of.offer(Event(0, b"the log's", b""), Source.LOG)
    of.offer(event(0), Source.GOSSIP)
    ready = of.ready()
    assert isinstance(ready, Ready)
    assert (ready.source, ready.event.payload) == (Source.LOG, b"the log's")
    assert of.advance(chain(0)).previous == chain(-1), "others get it with the chain that it has here"


def test_applied_events_are_kept_for_others_within_bounds_with_the_chain_before_them() -> None:
    of = buffer(history=4)
    for position in range(10):
        of.offer(event(position), Source.GOSSIP)
        drain(of)
    assert [kept.position for kept in of.kept(0, 100)] == [6, 7, 8, 9]
    assert of.kept(0, 6) == ()
    assert [of.chain_at(position) for position in (4, 5, 8, 9, 10)] == [
        None,
        chain(5),
        chain(8),
        chain(9),
        None,
    ]
    small = buffer(history=4, history_bytes=len(b"entry 0") * 2)
    for position in range(5):
        small.offer(event(position), Source.GOSSIP)
        drain(small)
    assert [kept.position for kept in small.kept(0, 100)] == [3, 4]


def test_an_origin_ahead_takes_over_and_what_waits_beyond_it_stays() -> None:
    of = buffer()
    for position in (2, 5, 6):
        of.offer(event(position), Source.GOSSIP)
    of.begin(4, chain(4))
    assert drain(of) == [5, 6]
    assert of.kept(0, 100) == of.kept(5, 7)
    assert of.offer(event(3), Source.GOSSIP) is Offered.KNOWN
