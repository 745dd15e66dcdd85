"""The published algorithms this one descends from: the checks find their mistakes, and none with the clocks corrected."""

from __future__ import annotations

import pytest

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.multicast.stage import Stage
from tests.simulation.multicast.thesis import CORRECTED, PUBLISHED, Message, Nodes, Variant, violations
from zraft_core.topics.message import Message as Multicast
from zraft_core.topics.stamps import MessageId

RUNS = 400


@pytest.mark.parametrize("variant", [Variant.ALL_TO_ALL, Variant.PROGRAM])
@pytest.mark.parametrize(("topics", "count"), [("AB", 2), ("AB", 3), ("ABC", 4)])
def test_random_runs_of_the_published_algorithms_are_caught(
    variant: Variant, topics: str, count: int
) -> None:
    assert violations(variant, RUNS, topics, count) > RUNS // 100


def test_random_runs_of_the_second_algorithm_are_caught_with_three_topics() -> None:
    assert violations(Variant.BY_ENTRY, 1500, "ABC", 4) > 0


@pytest.mark.parametrize("variant", CORRECTED)
@pytest.mark.parametrize(("topics", "count"), [("AB", 3), ("ABC", 4)])
def test_with_a_corrected_clock_nothing_is_found(variant: Variant, topics: str, count: int) -> None:
    assert violations(variant, RUNS, topics, count) == 0


def first_algorithm(variant: Variant) -> Nodes:
    """The clock goes back: A proposes the same time for two messages, having delivered one of them."""
    nodes = Nodes(variant, {"A": 3, "B": 0})
    nodes.write(Message(2, ("A", "B"), "B"))
    nodes.write(Message(1, ("A", "B"), "B"))
    nodes.read("B", "B", "A", "A", "B", "B")
    return nodes


def second_algorithm(variant: Variant) -> Nodes:
    """Off by one, and only with ties: B stamps m2 with the final time of m3, which it has not heard of."""
    nodes = Nodes(variant, {"A": 0, "B": 0, "C": 1})
    nodes.write(Message(3, ("A", "B", "C"), "C"))
    nodes.read("C", "A", "B")
    nodes.write(Message(2, ("A", "B"), "B"))
    nodes.read("C", "C", "A", "B", "A", "B", "B")
    return nodes


def program(variant: Variant) -> Nodes:
    """Acknowledgements carry the asker's own time, so that the final time is below what the other had proposed."""
    nodes = Nodes(variant, {"A": 0, "B": 3})
    nodes.write(Message(1, ("A", "B"), "A"))
    nodes.write(Message(2, ("A", "B"), "B"))
    nodes.read("A", "B", "B", "A", "A", "B", "B")
    while nodes.readable():
        nodes.read(*nodes.readable())
    return nodes


SCHEDULES = {
    Variant.ALL_TO_ALL: first_algorithm,
    Variant.BY_ENTRY: second_algorithm,
    Variant.PROGRAM: program,
}


@pytest.mark.parametrize("variant", PUBLISHED)
def test_each_published_algorithm_fails_on_its_schedule(variant: Variant) -> None:
    nodes = SCHEDULES[variant](variant)
    while nodes.readable():
        nodes.read(*nodes.readable())
    with pytest.raises(BrokenPromiseError, match="order"):
        nodes.judge()


@pytest.mark.parametrize(
    ("variant", "schedule"),
    [(CORRECTED[0], Variant.ALL_TO_ALL), (CORRECTED[1], Variant.BY_ENTRY), (CORRECTED[1], Variant.PROGRAM)],
)
def test_the_corrected_clock_passes_the_same_schedule(variant: Variant, schedule: Variant) -> None:
    nodes = SCHEDULES[schedule](variant)
    while nodes.readable():
        nodes.read(*nodes.readable())
    nodes.judge()


# -- the same situations on the product


def finish(stage: Stage, *messages: Multicast) -> None:
    stage.settle("not all is delivered", lambda: len(stage.ended) == len(messages))
    stage.check()


def common(stage: Stage, *mids: MessageId) -> list[list[MessageId]]:
    """The order of these messages, wherever all of them are delivered."""
    orders = ([mid for mid in stage.order(group) if mid in mids] for group in stage.ids)
    return [order for order in orders if len(order) == len(mids)]


def test_the_clock_never_goes_back() -> None:
    """The schedule of the first algorithm: A's clock is ahead, both messages are begun at B first."""
    stage = Stage(2)
    a, b = stage.ids
    ahead = stage.producer()
    for _ in range(3):
        other = ahead.multicast([a], depends=1)
        stage.start(ahead, other)
    stage.commit(a)
    p = stage.producer()
    m2, m1 = p.multicast([a, b]), p.multicast([a, b])
    stage.start(p, m2, b)
    stage.start(p, m1, b)
    stage.commit(b)
    stage.carry()
    stage.commit(a)
    stage.carry()
    stage.commit(b)
    finish(stage, m1, m2, *[other] * 3)
    first, second = common(stage, m1.mid, m2.mid)
    assert first == second
    clocks = [stage.groups[group].partition.clock for group in (a, b)]
    assert clocks[0] >= 5


def test_nothing_is_proposed_the_time_of_what_is_delivered() -> None:
    """The schedule of the second algorithm: A delivers m3 before it hears of m2, B begins m2 before m3 is final there."""
    stage = Stage(3)
    a, b, c = stage.ids
    p, q = stage.producer(), stage.producer()
    m3 = p.multicast([a, b, c])
    stage.start(p, m3, c)
    stage.commit(c)
    stage.carry(to=a)
    stage.commit(a)
    m2 = q.multicast([a, b])
    stage.start(q, m2, b)
    stage.commit(b)
    stage.carry(sender=c, to=b)
    stage.commit(b)
    stage.carry(sender=b, to=a)
    stage.carry(sender=b, to=c)
    stage.commit(a, c)
    finish(stage, m2, m3)
    first, second = common(stage, m2.mid, m3.mid)
    assert first == second


def test_the_final_time_is_no_destination_s_before_it_was_proposed() -> None:
    """The schedule of the measured program: B proposed more for m1 than A did, and A delivers by the larger."""
    stage = Stage(2)
    a, b = stage.ids
    p, q = stage.producer(), stage.producer()
    m1, m2 = p.multicast([a, b]), q.multicast([a, b])
    stage.start(p, m1, a)
    stage.start(q, m2, b)
    stage.commit()
    stage.carry(to=b)
    stage.commit(b)
    stage.carry()
    stage.commit()
    finish(stage, m1, m2)
    first, second = common(stage, m1.mid, m2.mid)
    assert first == second
    stamps = {d.message.mid: d.stamp for d in stage.groups[a].delivered}
    assert stamps == {d.message.mid: d.stamp for d in stage.groups[b].delivered}


def test_a_rebuilt_leader_knows_what_was_pending_before_the_last_deliveries() -> None:
    """x is proposed a time and pending on a slow destination; what came later is delivered; then the leader is rebuilt."""
    stage = Stage(2)
    a, slow = stage.ids
    p = stage.producer()
    x = p.multicast([a, slow])
    stage.start(p, x, a)
    stage.commit(a)
    proposal = stage.groups[a].partition.pending.entries[x.mid].time
    stage.drop(to=slow)
    singles = [p.multicast([a]) for _ in range(2)]
    for single in singles:
        stage.start(p, single)
    stage.commit(a)
    assert stage.order(a) == [single.mid for single in singles]
    stage.groups[a].change_leader(0, from_snapshot=True)
    assert stage.groups[a].partition.pending.entries[x.mid].time == proposal
    later = p.multicast([a, slow])
    stage.start(p, later, a)
    stage.commit(a)
    assert stage.groups[a].partition.pending.entries[later.mid].time > proposal
    finish(stage, x, later, *singles)
    assert stage.order(slow) == [x.mid, later.mid]


def test_mergers_of_two_topics_agree_whatever_arrives_first() -> None:
    """m1 by the first partitions of two topics, m2 by the second ones: on arrival, each topic would have its own order."""
    stage = Stage(4, partitions=2)
    first_a, first_b, second_a, second_b = stage.ids
    p, q = stage.producer(), stage.producer()
    m1 = p.multicast([first_a, second_a])
    m2 = q.multicast([first_b, second_b])
    stage.start(p, m1)
    stage.start(q, m2)
    finish(stage, m1, m2)
    arrivals = [stage.order(first_a) + stage.order(first_b), stage.order(second_b) + stage.order(second_a)]
    assert arrivals[0] != arrivals[1], "what mergers that emit on arrival would have"
    for group in stage.ids:
        stage.need(group, 99)
    assert stage.merged([first_a, first_b]) == stage.merged([second_b, second_a])
    assert len(stage.merged([first_a, first_b])) == 2
