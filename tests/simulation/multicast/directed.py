"""Schedules for planted bugs that a random one seldom meets. Each passes on the product and fails with its bug."""

from __future__ import annotations

from typing import Final

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.directed_registry import Directed
from tests.simulation.multicast.stage import Stage
from zraft_core.ids import COORDINATION_GROUP
from zraft_core.topics.producer import Ending


def _expect(holds: bool, checker: str, found: str) -> None:
    if not holds:
        raise BrokenPromiseError(checker, found)


def after_a_message_that_never_was() -> None:
    """The earlier message is refused for good; the later one's only destination has never heard of its producer."""
    stage = Stage(2)
    a, x = stage.ids
    producer = stage.producer()
    first = producer.multicast([a, x])
    second = producer.multicast([a], after=first)
    stage.messages.update({first.mid: first, second.mid: second})
    stage.delete(x)
    stage.settle("the second message is not delivered", lambda: len(stage.ended) == 2)
    _expect(stage.ended[first.mid].ending is Ending.NEVER, "answers", f"{stage.ended[first.mid]}")
    _expect(stage.ended[second.mid].ending is Ending.DELIVERED, "answers", f"{stage.ended[second.mid]}")
    stage.check()


def a_refusal_that_arrives_two_epochs_late() -> None:
    """Both destinations refuse under epoch 0, one takes the repeat under epoch 1; then the old refusals arrive again."""
    stage = Stage(4)
    a, b, c, _ = stage.ids
    producer = stage.producer()
    message = producer.multicast([a, b])
    stage.delete(c)
    stage.view()
    stage.start(producer, message)
    refusals = list(stage.replies)
    stage.answer()
    stage.tables()
    stage.start(producer, message, a)
    stage.commit(a)
    stage.replies.clear()
    stage.delete(b)
    stage.tables()
    for refusal in refusals:
        stage.reply(refusal)
    stage.settle("the message is not decided", lambda: bool(stage.ended) and not stage.letters)
    stage.check()


def refusals_of_those_who_are_left() -> None:
    """Two destinations refuse, the third begins the message and is removed; then a refusal is repeated."""
    stage = Stage(3)
    a, b, x = stage.ids
    producer = stage.producer()
    message = producer.multicast([a, b, x])
    stage.delete(x)
    stage.view(a, b)
    stage.start(producer, message, a, b)
    refusals = list(stage.replies)
    stage.tables()
    stage.answer()
    stage.start(producer, message, x)
    stage.commit(x)
    stage.replies.clear()
    for _ in range(12):
        running = stage.running()
        stage.carry()
        stage.commit(*running)
        stage.tick(*running)
        stage.view(*running)
    stage.replies.clear()
    _expect(x in stage.gone, "progress", "the third destination is not removed")
    stage.tables()
    for refusal in refusals:
        stage.reply(refusal)
    stage.settle("the message is not decided", lambda: bool(stage.ended))
    stage.check()


def a_removed_group_that_owes_a_floor() -> None:
    """A group says that it is clear, learns a message to the doomed group from another one, and never hears its floor."""
    stage = Stage(3)
    g, h, x = stage.ids
    producer = stage.producer()
    message = producer.multicast([g, h, x])
    stage.delete(x)
    stage.view(g)
    stage.tick(g)
    stage.carry(to=COORDINATION_GROUP)  # nothing of x is left at g
    stage.start(producer, message, h)
    stage.commit(h)
    for _ in range(12):
        running = stage.running()
        stage.drop(sender=x, to=g) if stage.order(g) else None
        stage.carry()
        stage.commit(*running)
        stage.tick(*running)
        if stage.order(g):
            stage.view(*running)
    _expect(x in stage.gone, "progress", "the doomed group is not removed")
    stage.drop(sender=x)
    stage.settle("the message is kept for a removed group", lambda: not stage.groups[g].partition.settled)
    stage.check()


def _blocked(*, from_snapshot: bool) -> None:
    """At a, a message to a and b is pending, one that depends on it must wait behind, and then comes one that need not."""
    stage = Stage(2)
    a, b = stage.ids
    producer = stage.producer()
    both = producer.multicast([a, b])
    depending = producer.multicast([a], depends=5)
    plain = producer.multicast([a])
    stage.start(producer, both, a)
    stage.start(producer, depending)
    stage.commit(a)
    if from_snapshot:
        stage.groups[a].change_leader(0, from_snapshot=True)
    stage.start(producer, plain)
    stage.commit(a)
    stage.settle("not all is delivered", lambda: len(stage.ended) == 3)
    stage.check()
    order = stage.order(a)
    _expect(order == [both.mid, depending.mid, plain.mid], "producer order", f"{order}")


def a_message_behind_one_that_depends() -> None:
    """The bypass is not for a message whose producer's earlier one waits."""
    _blocked(from_snapshot=False)


def a_snapshot_of_one_that_depends() -> None:
    """The same, with a snapshot in between."""
    _blocked(from_snapshot=True)


def a_round_without_a_deleted_destination() -> None:
    """Of three staged messages the second one is given up, because a destination is deleted; the round is of the others."""
    stage = Stage(3)
    a, b, x = stage.ids
    producer = stage.producer(rounds=True)
    first = producer.multicast([b], ordered=True)
    stage.start(producer, first)
    staged = [producer.multicast(to, ordered=True) for to in ([a], [a, x], [a, b])]
    for message in staged:
        stage.start(producer, message)
    stage.commit()
    stage.delete(x)
    stage.tables()
    stage.view()
    stage.settle("the round is not done", lambda: len(stage.ended) == 5)
    _expect(stage.ended[staged[1].mid].ending is Ending.NEVER, "answers", f"{stage.ended[staged[1].mid]}")
    stage.check()
    order = stage.order(a)
    _expect(order == [staged[0].mid, staged[2].mid], "ordered", f"{order}")


def a_message_is_staged_when_its_producer_is_closed() -> None:
    """One destination has begun the round; at the other one the producer's end is logged before it hears of it."""
    stage = Stage(2)
    a, b = stage.ids
    producer = stage.producer(rounds=True)
    for to in ([a], [b], [a]):
        stage.start(producer, producer.multicast(to, ordered=True))
    stage.commit()
    stage.answer()
    round_ = stage.round(producer)
    _expect(round_ is not None, "progress", "no round")
    assert round_ is not None
    stage.start(producer, round_, a)
    stage.commit(a)
    stage.close(producer)
    stage.view(b)
    del stage.producers[producer.producer]
    stage.replies.clear()
    stage.settle("the round is not done", lambda: len(stage.order(b)) == 1)
    stage.settle("the producer is not forgotten", lambda: not stage.groups[b].partition.rows)
    _expect(len(stage.order(a)) == 2, "agreement", f"{stage.order(a)}")


DIRECTED: Final[dict[str, Directed]] = {
    "after_blind_to_floor": Directed(after_a_message_that_never_was, BrokenPromiseError),
    "late_refusal_counts": Directed(a_refusal_that_arrives_two_epochs_late, BrokenPromiseError),
    "refusals_before_removal_count": Directed(refusals_of_those_who_are_left, BrokenPromiseError),
    "removed_still_awaited": Directed(a_removed_group_that_owes_a_floor, BrokenPromiseError),
    "queued_overtaken": Directed(a_message_behind_one_that_depends, BrokenPromiseError),
    "snapshot_without_queue": Directed(a_snapshot_of_one_that_depends, BrokenPromiseError),
    "removed_in_a_round": Directed(a_round_without_a_deleted_destination, BrokenPromiseError),
    "staged_dropped_at_close": Directed(a_message_is_staged_when_its_producer_is_closed, BrokenPromiseError),
}
"""The schedule of each planted bug that has one."""
