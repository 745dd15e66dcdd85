"""XOR trees: a root is done when all that came of it is, not before, and what is lost is sent again."""

from __future__ import annotations

from collections import Counter, deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onyxlog.jobs.acking import AckBatch, Frontier, Lineage, Overdue, Roots, owner_of
from tests.so_far import so_far


def roots(owner: int = 3, timeout_ticks: int = 10, pending_max: int = 100) -> Roots[str]:
    return Roots(owner, Random(1), timeout_ticks=timeout_ticks, pending_max=pending_max)


def test_a_root_names_its_owner() -> None:
    assert owner_of(roots(owner=65_535).begin("a", 0).root) == 65_535
    assert owner_of(roots(owner=0).begin("a", 0).root) == 0


def test_a_root_of_which_nothing_was_made_is_done_when_it_was_worked_on() -> None:
    of, worker = roots(), AckBatch(Random(2))
    assert worker.settle(of.begin("a", 0), 0) == []
    assert of.settle(worker.take()) == ["a"]
    assert len(of) == 0


def test_a_root_is_done_when_the_last_segment_of_its_tree_is() -> None:
    of, first, second = roots(), AckBatch(Random(2)), AckBatch(Random(3))
    children = first.settle(of.begin("a", 0), 2)
    assert of.settle(first.take()) == []
    second.settle(children[1], 0)
    assert of.settle(second.take()) == []
    second.settle(children[0], 0)
    assert of.settle(second.take()) == ["a"]


def test_what_children_tell_may_come_before_what_their_parent_tells() -> None:
    of, first, second = roots(), AckBatch(Random(2)), AckBatch(Random(3))
    children = first.settle(of.begin("a", 0), 2)
    for child in children:
        second.settle(child, 0)
    assert of.settle(second.take()) == []
    assert of.settle(first.take()) == ["a"]


def test_a_batch_tells_one_number_for_each_root_and_nothing_of_what_cancels_out() -> None:
    of, worker = roots(), AckBatch(Random(2))
    a, b = of.begin("a", 0), of.begin("b", 0)
    (child,) = worker.settle(a, 1)
    worker.settle(child, 0)
    worker.settle(b, 3)
    told = worker.take()
    assert [root for root, _ in told] == [a.root, b.root]
    assert worker.take() == []
    (child,) = worker.settle(a, 1)
    assert worker.take() != []
    assert of.settle(told[:1]) == ["a"]


def test_a_root_that_is_not_done_in_time_is_given_up_and_what_comes_late_counts_for_nothing() -> None:
    of, worker = roots(timeout_ticks=10), AckBatch(Random(2))
    late = of.begin("a", 0)
    of.begin("b", 5)
    assert of.overdue(9) == []
    assert of.overdue(10) == [Overdue("a", 1)]
    again = of.begin("a", 10, attempt=2)
    assert again.root != late.root
    worker.settle(late, 0)
    assert of.settle(worker.take()) == []
    assert of.overdue(15) == [Overdue("b", 1)]
    assert of.overdue(20) == [Overdue("a", 2)]


def test_a_flow_condition_can_give_a_root_up_at_once() -> None:
    of = roots()
    root = of.begin("a", 0, attempt=4).root
    assert of.retry(root) == Overdue("a", 4)
    assert of.retry(root) is None
    assert len(of) == 0


def test_no_more_roots_are_under_way_than_allowed() -> None:
    of = roots(pending_max=2)
    of.begin("a", 0)
    assert not so_far(of.is_full)
    of.begin("b", 0)
    assert so_far(of.is_full)
    of.overdue(10)
    assert not of.is_full


def test_a_message_that_is_told_twice_finishes_nothing_early() -> None:
    of, first, second = roots(), AckBatch(Random(2)), AckBatch(Random(3))
    (child,) = first.settle(of.begin("a", 0), 1)
    told = first.take()
    assert of.settle(told) == []
    assert of.settle(told) == []
    second.settle(child, 0)
    assert of.settle(second.take()) == []
    assert of.overdue(10) == [Overdue("a", 1)]


class Zeros(Random):
    def getrandbits(self, k: int) -> int:
        return 0


def test_acks_are_never_zero_as_that_would_hide_a_segment() -> None:
    of: Roots[str] = Roots(1, Zeros(), timeout_ticks=1, pending_max=1)
    root = of.begin("a", 0)
    (child,) = AckBatch(Zeros()).settle(root, 1)
    assert root.ack != 0 != child.ack


def test_a_number_that_is_under_way_is_not_given_again() -> None:
    class Repeats(Random):
        draws = iter([1, 7, 1, 2, 7])

        def getrandbits(self, k: int) -> int:
            return next(self.draws)

    of: Roots[str] = Roots(0, Repeats(), timeout_ticks=1, pending_max=9)
    assert [of.begin("a", 0).root, of.begin("b", 0).root] == [1, 2]


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.floats(0, 0.3))
def test_every_root_is_done_after_every_segment_of_one_of_its_trees_and_lost_ones_are_sent_again(
    seed: int, loss: float
) -> None:
    """Trees of random shape over several workers, in any order, some segments and some acks lost."""
    random = Random(seed)
    of: Roots[int] = Roots(1, random, timeout_ticks=50, pending_max=1000)
    workers = [AckBatch(random) for _ in range(3)]
    # of each attempt (its root): what it has to do, and what of it is done
    open_segments: Counter[int] = Counter()
    lossy: set[int] = set()
    token_of: dict[int, int] = {}
    under_way: deque[tuple[Lineage, int]] = deque()
    acks: list[list[tuple[int, int]]] = []
    finished: Counter[int] = Counter()

    def send(token: int, now: int, attempt: int) -> None:
        lineage = of.begin(token, now, attempt)
        token_of[lineage.root] = token
        open_segments[lineage.root] += 1
        under_way.append((lineage, 0))

    for token in range(10):
        send(token, 0, 1)
    for now in range(1, 5_000):
        loss_now = loss if now < 1_000 else 0.0
        if under_way:
            under_way.rotate(random.randrange(len(under_way)))
            lineage, depth = under_way.popleft()
            if random.random() < loss_now:
                lossy.add(lineage.root)
            else:
                worker = random.choice(workers)
                children = worker.settle(lineage, random.randrange(3) if depth < 3 else 0)
                open_segments[lineage.root] += len(children) - 1
                under_way.extend((child, depth + 1) for child in children)
        if random.random() < 0.3:
            acks.append(random.choice(workers).take())
        if acks and random.random() < 0.5:
            told = acks.pop(random.randrange(len(acks)))
            if random.random() < loss_now:
                lossy.update(root for root, _ in told)
                continue
            before = {root for root in token_of if root in of._trees}
            for token in of.settle(told):
                finished[token] += 1
            for root in before - of._trees.keys():
                assert open_segments[root] == 0, "done although segments of it are under way"
                assert root not in lossy, "done although something of it was lost"
        for overdue in of.overdue(now):
            send(overdue.token, now, overdue.attempt + 1)
        if len(of) == 0:
            break
    assert finished == Counter(range(10)), "each token is told as done once"


def test_a_frontier_is_the_first_position_that_is_not_done() -> None:
    of = Frontier(5)
    assert of.position == 5
    for position in (5, 6, 8):
        of.begin(position)
    of.done(6)
    assert of.position == 5
    of.done(5)
    assert of.position == 8
    of.done(8)
    assert of.position == 9
    of.begin(20)
    assert of.position == 20


@settings(max_examples=100)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_a_frontier_never_passes_what_is_under_way_and_reaches_the_end(
    gaps: list[int], random: Random
) -> None:
    of, position = Frontier(), 0
    under_way: list[int] = []
    before = 0
    pending = list(gaps)
    while pending or under_way:
        if pending and (not under_way or random.random() < 0.5):
            position += pending.pop()
            of.begin(position)
            under_way.append(position)
        else:
            of.done(under_way.pop(random.randrange(len(under_way))))
        assert of.position == (min(under_way) if under_way else position + 1)
        assert of.position >= before
        before = of.position


def test_a_segment_that_is_never_done_does_not_make_a_frontier_remember_all_that_come_after_it() -> None:
    of = Frontier()
    of.begin(0)
    for position in range(1, 10_000):
        of.begin(position)
        of.done(position)
        assert len(of._lowest) <= 70
    assert of.position == 0
    of.done(0)
    assert of.position == 10_000


def test_a_position_is_done_only_once() -> None:
    of = Frontier()
    of.begin(0)
    of.done(0)
    with pytest.raises(KeyError):
        of.done(0)


def test_a_frontier_goes_on_where_the_source_says() -> None:
    of = Frontier()
    of.begin(10)
    of.go_on_from(25)
    assert of.position == 10
    of.done(10)
    assert of.position == 25
    of.go_on_from(40)
    assert of.position == 40
    of.begin(40)
    assert of.position == 40
