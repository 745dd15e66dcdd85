"""A multicast costs what it must, touches its destinations only, and survives a crash at each of its steps.

Source: docs/explanation/topics.md, "Costs".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from attrs import evolve

from tests.simulation.multicast.stage import Stage
from zraft.topics.leader_settings import Exchange, LeaderSettings
from zraft_core.ids import GroupId
from zraft_core.topics.message import Message
from zraft_core.topics.producer import Ending, ProducerCore, Reach

SLOW = LeaderSettings(resend_ticks=1000, resend_ticks_max=1000, floor_ticks=1000, report_ticks=1000)


def one(stage: Stage, count: int, reach: Reach = Reach.ALL) -> tuple[ProducerCore, Message]:
    producer = stage.producer(reach)
    return producer, producer.multicast(stage.ids[:count], b"x" * 2000)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_without_faults_k_destinations_take_k_squared_minus_k_messages_and_two_entries_each(
    count: int,
) -> None:
    stage = Stage(10, settings=SLOW)
    stage.sent.clear()
    entries = {group: len(stage.groups[group].log) for group in stage.ids}
    producer, message = one(stage, count)
    stage.start(producer, message)
    stage.commit()
    stage.carry()
    stage.commit()
    stage.answer()
    assert stage.ended[message.mid].ending is Ending.DELIVERED
    sent = Counter(kind for kind, _, _ in stage.sent.elements())
    assert sent == {"Propose": count * (count - 1)}
    for at, group in enumerate(stage.ids):
        added = len(stage.groups[group].log) - entries[group]
        assert added == (2 if at < count else 0), "genuine: who is not addressed logs nothing"


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("reach", Reach)
def test_through_one_destination_messages_grow_with_k_and_not_with_its_square(
    count: int, reach: Reach
) -> None:
    """The thesis' second algorithm as a mode: to the entry and back, and once more if the producer told only one."""
    stage = Stage(6, settings=evolve(SLOW, exchange=Exchange.ENTRY))
    stage.sent.clear()
    producer, message = one(stage, count, reach)
    stage.start(producer, message)
    bundles = 0
    for _ in range(4):
        stage.commit()
        bundles += len(stage.letters)
        stage.carry()
    stage.commit()
    assert [len(stage.order(group)) for group in stage.ids[:count]] == [1] * count
    assert bundles <= (2 if reach is Reach.ALL else 4) * (count - 1)
    stage.check()


def test_without_its_entry_a_message_is_delivered_by_what_is_repeated() -> None:
    stage = Stage(3, settings=LeaderSettings(exchange=Exchange.ENTRY, resend_ticks=1, floor_ticks=1))
    producer, message = one(stage, 3)
    for group in stage.ids:
        stage.start(producer, message, group)
    stage.commit()
    stage.drop()
    stage.settle("the message is not delivered", lambda: message.mid in stage.ended)
    stage.check()


def test_a_single_destination_takes_one_entry_and_no_message() -> None:
    stage = Stage(3, settings=SLOW)
    stage.sent.clear()
    producer, message = one(stage, 1)
    stage.start(producer, message)
    stage.commit()
    stage.answer()
    assert stage.ended[message.mid].ending is Ending.DELIVERED
    assert not stage.sent


def test_many_messages_share_entries() -> None:
    stage = Stage(2, settings=SLOW)
    a, b = stage.ids
    producer = stage.producer()
    messages = [producer.multicast([a, b]) for _ in range(8)]
    before = len(stage.groups[b].log)
    for message in messages:
        stage.start(producer, message, a)
    assert len(stage.groups[a].tail) == 8, "one turn per request here"
    stage.commit(a)
    stage.carry()
    stage.commit(b)
    assert len(stage.groups[b].delivered) == 8
    assert len(stage.groups[b].log) - before <= 8


@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("step", range(8))
@pytest.mark.parametrize("reach", Reach)
def test_a_leader_may_be_lost_at_each_step_with_all_it_said_and_had_not_committed(
    step: int, victim: int, reach: Reach
) -> None:
    stage = Stage(3)
    producer, message = one(stage, 3, reach)
    steps: list[Callable[[], object]] = [
        lambda: stage.start(producer, message),
        stage.commit,
        stage.carry,
        stage.commit,
        stage.answer,
        stage.tick,
        stage.carry,
        stage.commit,
    ]
    lost = stage.ids[victim]
    for at, take in enumerate(steps):
        take()
        if at == step:
            stage.groups[lost].change_leader(0, from_snapshot=True)
            stage.drop(sender=lost)
            stage.drop(to=lost)
            stage.replies.clear()
    stage.settle("the message is not delivered", lambda: message.mid in stage.ended)
    assert stage.ended[message.mid].ending is Ending.DELIVERED
    assert [len(stage.order(group)) for group in stage.ids] == [1, 1, 1]
    stage.check()


def test_a_producer_that_dies_after_one_destination_has_told_all() -> None:
    stage = Stage(3)
    producer, message = one(stage, 3)
    stage.start(producer, message, stage.ids[1])
    stage.commit(stage.ids[1])
    del stage.producers[producer.producer]
    stage.replies.clear()
    for _ in range(6):
        stage.tick()
        stage.carry()
        stage.commit()
        stage.replies.clear()
    assert [stage.order(group) for group in stage.ids] == [[message.mid]] * 3


def test_a_group_without_quorum_holds_up_only_what_is_behind_messages_to_it() -> None:
    stage = Stage(4)
    a, b, c, stuck = stage.ids

    def turn(groups: list[GroupId]) -> None:
        stage.commit(*groups)
        stage.tick(*groups)
        stage.drop(to=stuck)
        stage.carry()
        stage.commit(*groups)

    p, q = stage.producer(), stage.producer()
    blocked = p.multicast([a, stuck])
    stage.start(p, blocked, a)
    turn([a, b, c])
    behind, single, elsewhere = q.multicast([a, b]), q.multicast([a]), q.multicast([b, c])
    stage.start(q, behind)
    stage.start(q, single)
    stage.start(q, elsewhere)
    for _ in range(3):
        turn([a, b, c])
    assert stage.order(a) == [single.mid], "the bypass waits for nobody"
    assert stage.order(b) == [behind.mid, elsewhere.mid], "what does not share the destination goes on"
    seen = stage.groups[a].leader.statistics(stage.groups[a].partition.log_time_ms)
    assert seen.awaited == {stuck: 1}
    assert seen.pending_age_ms > 0
    stage.settle("not drained after healing", lambda: len(stage.ended) == 4 and len(stage.order(a)) == 3)
    stage.check()


def test_an_idle_partition_holds_a_merged_consumer_up_for_one_advance() -> None:
    stage = Stage(2, partitions=2)
    busy, idle = stage.ids
    producer = stage.producer()
    messages = [producer.multicast([busy], depends=1) for _ in range(3)]
    for message in messages:
        stage.start(producer, message)
    stage.commit(busy)
    assert stage.merged(stage.ids) == []
    entries = len(stage.groups[idle].log)
    stage.need(idle, stage.groups[busy].delivered[-1].stamp.time + 1)
    assert stage.merged(stage.ids) == [message.mid for message in messages]
    assert len(stage.groups[idle].log) == entries + 1
