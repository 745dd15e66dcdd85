"""A cut through partitions for a backup: a message is below it everywhere or nowhere, whoever has delivered it when."""

from __future__ import annotations

from tests.unit.topics.groups import A, B, apply, message, partition, remote, start
from zraft.topics.partition import Partition
from zraft_core.topics.commands import Advance, Seek
from zraft_core.topics.cut import Cut, after_conditions
from zraft_core.topics.message import Condition, Delivery
from zraft_core.topics.stamps import Stamp


def delivered_by(state: Partition, *commands: object) -> list[Delivery]:
    return list(apply(state, *commands).delivered)  # type: ignore[arg-type]


def seqs(deliveries: object) -> list[int]:
    return [one.message.mid.seq for one in deliveries]  # type: ignore[attr-defined]


def test_a_multicast_that_only_one_partition_has_delivered_is_below_the_cut_at_both() -> None:
    a, b = partition(A), partition(B)
    m = message(1, A, B)
    apply(a, start(m))
    apply(b, start(m))
    at_a = delivered_by(a, remote(m, B, 1))
    assert seqs(at_a) == [1]
    cut = Cut.above([a.frontier(), b.frontier()])
    at_b = delivered_by(b, Advance(cut.needed))
    assert not cut.passed(b.frontier()), "it has not delivered everything below the cut"
    at_b += delivered_by(b, remote(m, A, 1), Advance(cut.needed))
    at_a += delivered_by(a, Advance(cut.needed))
    assert cut.passed(a.frontier())
    assert cut.passed(b.frontier())
    assert seqs(cut.below(at_a)) == seqs(cut.below(at_b)) == [1]


def test_a_multicast_that_began_before_the_cut_and_gets_a_later_time_is_below_it_nowhere() -> None:
    a, b = partition(A), partition(B)
    apply(a, start(message(1, A, number=1)), Advance(5))
    m = message(2, A, B)
    apply(a, start(m))
    cut = Cut.above([a.frontier(), b.frontier()])
    assert cut.time == 5
    apply(b, Advance(cut.needed))
    apply(a, Advance(cut.needed))
    assert cut.passed(b.frontier())
    assert not cut.passed(a.frontier()), (
        "what is pending there may still be delivered below the cut, for all it knows"
    )
    apply(b, start(m))
    at_a, at_b = delivered_by(a, remote(m, B, 7)), delivered_by(b, remote(m, A, 6))
    assert seqs(at_a) == seqs(at_b) == [2]
    assert cut.passed(a.frontier())
    assert not cut.below(at_a)
    assert not cut.below(at_b)


def test_what_takes_the_bypass_at_the_time_of_the_cut_is_below_it_and_waited_for() -> None:
    a = partition(A)
    cut = Cut.above([Stamp(5, B, 0, A)])
    found = delivered_by(a, Advance(5), start(message(1, A, number=1)))
    assert not cut.passed(a.frontier())
    found += delivered_by(a, start(message(2, A, number=2)), Advance(cut.needed))
    found += delivered_by(a, start(message(3, A, number=3)))
    assert cut.passed(a.frontier())
    assert seqs(cut.below(found)) == [1, 2]


def test_a_cut_of_nothing_is_at_the_beginning() -> None:
    assert Cut.above([]).time == 0


def test_a_consumers_offset_follows_the_conditions_that_are_below_the_cut() -> None:
    """A result and the step that made it are saved together, though the offset was read before."""
    a = partition(A)
    step = Condition(A, b"worker", 0, 4)
    further = Condition(A, b"worker", 4, 9)
    found = delivered_by(
        a, start(message(1, A, number=1, condition=step)), start(message(2, A, number=2, condition=further))
    )
    offsets = {b"other": 2}
    after_conditions(offsets, A, found)
    assert offsets == {b"other": 2, b"worker": 9}
    assert a.offsets[b"worker"] == 9
    apply(a, Seek(b"worker", 1))
    reset = {b"worker": 1}
    after_conditions(reset, A, found)
    assert reset == {b"worker": 1}, "it was moved by somebody, and no condition fits"
    elsewhere: dict[bytes, int] = {}
    after_conditions(elsewhere, B, found)
    assert not elsewhere
