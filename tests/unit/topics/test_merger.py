"""One order over all partitions of a topic (D-17d)."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.unit.topics.groups import A, B, C, message
from zraft_core.ids import GroupId
from zraft_core.topics.merger import MergeError, MergePosition, Merger
from zraft_core.topics.message import COORDINATOR, Delivery, Message
from zraft_core.topics.stamps import AFTER_ALL_GROUPS, Stamp


def multi(time: int, group: GroupId = A) -> Stamp:
    return Stamp(time, group, 0, GroupId(0))


def at(offset: int, stamp: Stamp, m: Message) -> Delivery:
    return Delivery(offset, stamp, m, offset)


def merger(*groups: GroupId) -> Merger:
    return Merger(MergePosition(dict.fromkeys(groups, 0)))


def seqs(found: list[Delivery]) -> list[int]:
    return [delivery.message.mid.seq for delivery in found]


def test_nothing_comes_out_before_every_partition_has_passed_it() -> None:
    m = merger(A, B)
    m.feed(A, [at(0, multi(5), message(1, A))], multi(5))
    assert m.take(9) == []
    assert m.needed() == {B: 6}
    m.feed(B, [], Stamp(4, AFTER_ALL_GROUPS, 0, GroupId(0)))
    assert m.take(9) == []
    m.feed(B, [at(0, multi(4, B), message(2, B))], multi(5))
    assert seqs(m.take(9)) == [2, 1]
    assert m.needed() == {}


def test_a_message_to_several_partitions_comes_out_once() -> None:
    m = merger(A, B)
    both = message(1, A, B)
    m.feed(A, [at(0, multi(5), both)], multi(5))
    assert m.take(9) == []
    m.feed(B, [at(0, multi(5), both)], multi(5))
    assert seqs(m.take(9)) == [1]
    assert m.position() == MergePosition({A: 1, B: 1}, multi(5))


def test_a_partition_that_is_added_begins_with_the_change() -> None:
    m = merger(A)
    change = message(1, A, C, producer=COORDINATOR, partitions=(A, C))
    m.feed(A, [at(0, multi(5), change), at(1, multi(7), message(2, A, number=2))], multi(7))
    assert seqs(m.take(9)) == [1]
    assert m.groups() == (A, C)
    assert m.needed() == {C: 8}
    m.feed(C, [at(0, multi(5), change), at(1, multi(6, C), message(3, C))], multi(9, C))
    assert seqs(m.take(9)) == [3, 2]


def test_a_consumer_goes_on_where_it_was() -> None:
    m = merger(A, B)
    both = message(1, A, B)
    m.feed(A, [at(0, multi(5), both), at(1, multi(6), message(2, A))], multi(6))
    m.feed(B, [at(0, multi(5), both)], multi(9, B))
    assert seqs(m.take(1)) == [1]
    position = m.position()
    assert position.offsets == {A: 1, B: 0}
    again = Merger(position)
    again.feed(A, [at(1, multi(6), message(2, A))], multi(6))
    again.feed(B, [at(0, multi(5), both)], multi(9, B))
    assert seqs(again.take(9)) == [2]


def test_a_gap_is_an_error() -> None:
    with pytest.raises(MergeError, match="expected offset 0, found 1"):
        merger(A).feed(A, [at(1, multi(5), message(1, A))], multi(5))


def test_stamps_that_do_not_ascend_are_an_error() -> None:
    with pytest.raises(MergeError, match="not above"):
        merger(A).feed(A, [at(0, multi(5), message(1, A)), at(1, multi(5), message(2, A))], multi(5))


def test_a_delivery_behind_a_frontier_is_an_error() -> None:
    m = merger(A, B)
    m.feed(A, [at(0, multi(5), message(1, A))], multi(5))
    m.feed(B, [], multi(6))
    assert seqs(m.take(9)) == [1]
    m.feed(B, [at(0, multi(4, B), message(2, B))], multi(6))
    m.feed(A, [], multi(9))
    with pytest.raises(MergeError, match="is behind"):
        m.take(9)


def test_room_is_what_is_left_of_the_bound() -> None:
    m = Merger(MergePosition({A: 0}), buffered_max=3)
    m.feed(A, [at(0, multi(5), message(1, A)), at(1, multi(6), message(2, A))], multi(6))
    assert m.room(A) == 1
    m.take(1)
    assert m.room(A) == 2


def test_bytes_bound_what_is_read_ahead_and_an_empty_partition_always_has_room() -> None:
    m = Merger(MergePosition({A: 0}), buffered_bytes_max=100)
    assert m.room(A) > 0
    large = evolve(message(1, A), payload=bytes(150))
    m.feed(A, [at(0, multi(5), large)], multi(6))
    assert m.room(A) == 0
    m.take(1)
    assert m.room(A) > 0


def test_the_next_delivery_may_be_looked_at_before_it_is_taken_and_offsets_follow_its_records() -> None:
    m = merger(A, B)
    assert m.next() is None
    both = evolve(message(1, A, B), payload=b"x", records=4)
    m.feed(A, [at(0, multi(5), both)], multi(5))
    assert m.next() is None, "B may deliver something before it"
    m.feed(B, [at(0, multi(5), both)], multi(5))
    for _ in range(2):
        assert m.next() == at(0, multi(5), both)
        assert m.position() == MergePosition({A: 0, B: 0})
    m.take(1)
    assert m.next() is None
    assert m.position() == MergePosition({A: 4, B: 4}, multi(5))
    m.feed(A, [at(4, multi(7), message(2, A, number=1))], multi(7))
    m.feed(B, [], multi(9))
    assert seqs(m.take(9)) == [2]
