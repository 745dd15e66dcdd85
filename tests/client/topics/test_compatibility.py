"""Servers of the last release with this client: nothing is asked of them that they do not know, and all promises hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.topics.cluster import Group
from tests.client.topics.test_claims_port import FAST
from tests.client.topics.test_consumer import filled
from tests.client.topics.test_producer import running, values
from zraft_client.claims import ConsumerOptions, Marshaler
from zraft_client.topics import Order
from zraft_core.claims.codec import is_newer
from zraft_core.claims.commands import ClaimCommand
from zraft_core.ids import GroupId, ProducerId
from zraft_core.layout import Fields
from zraft_core.topics.commands import PartitionCommand, Stage, Start
from zraft_core.topics.messages import Answer, Reply
from zraft_core.topics.stamps import MessageId
from zraft_core.wire.native import requests, topic_answers, topic_pushes, topic_results
from zraft_core.wire.native.topic_results import TopicsResult

LAST_LEVEL = 4


@pytest.fixture
def last_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection's side knows no field of requests and answers, and no command, that came with level 5."""
    tables: tuple[tuple[Any, str, str], ...] = (
        (requests.SUBSCRIBE, "producer", "times"),
        (requests.REQUESTS, "produce", "staged"),
    )
    for table, kind, newer in tables:
        now = table[kind]
        older = {name: one for name, one in now.fields.items() if name != newer}
        monkeypatch.setitem(table, kind, Fields(now.called, now.made, older, skips="type"))
    packed = topic_results.TOPICS.pack_map

    def without_features(value: TopicsResult) -> dict[str, Any]:
        return {name: one for name, one in packed(value).items() if name != "features"}

    monkeypatch.setattr(topic_results.TOPICS, "pack_map", without_features)

    log = Group.log

    def only_known(self: Group, commands: tuple[PartitionCommand, ...]) -> None:
        assert not any(isinstance(one, Stage) for one in commands)
        assert not any(isinstance(one, Start) and one.message.round is not None for one in commands)
        log(self, commands)

    monkeypatch.setattr(Group, "log", only_known)
    claim = Group.claim

    def only_known_claims(self: Group, command: ClaimCommand) -> Any:
        assert not is_newer(command)
        return claim(self, command)

    monkeypatch.setattr(Group, "claim", only_known_claims)


@pytest.mark.usefixtures("last_release")
@pytest.mark.parametrize("order", [Order.FIFO, Order.CAUSAL])
async def test_ordered_messages_go_to_servers_of_the_last_release_one_behind_the_other(order: Order) -> None:
    async with running(orders=3) as (cluster, topics):
        cluster.features = LAST_LEVEL
        async with topics.producer(order=order) as producer:
            for number in range(60):
                await producer.send_soon(("orders", number % 3), b"%d" % number)
            await producer.flush()
        for partition in range(3):
            expected = [b"%d" % number for number in range(partition, 60, 3)]
            assert values(cluster.group("orders", partition)) == expected


@pytest.mark.usefixtures("last_release")
async def test_consumers_share_partitions_of_servers_of_the_last_release() -> None:
    async with running(orders=2) as (cluster, topics):
        cluster.features = LAST_LEVEL
        await filled(topics, 20)
        seen = []
        marshaler = Marshaler(topics.claims_port(), "a", "billing")
        async with marshaler.consumer(["orders"], ConsumerOptions(**FAST)) as consumer:
            async for message in consumer.consume():
                seen.append((message.partition, message.offset))
                await consumer.commit(message)
                if len(seen) == 20:
                    break
        assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(10)]


async def test_a_producer_uses_rounds_once_the_level_has_risen_and_stays_in_order() -> None:
    async with running(orders=2) as (cluster, topics):
        cluster.features = LAST_LEVEL
        async with topics.producer(order=Order.FIFO) as producer:
            for number in range(40):
                if number == 20:
                    await producer.flush()
                    assert producer._core is not None
                    assert producer._core.last == 20
                    cluster.features = LAST_LEVEL + 1
                    await topics.create("another")
                await producer.send_soon(("orders", number % 2), b"%d" % number)
            await producer.flush()
            assert producer._core is not None
            assert producer._core.last > 40, "rounds have numbers"
        for partition in range(2):
            expected = [b"%d" % number for number in range(partition, 40, 2)]
            assert values(cluster.group("orders", partition)) == expected


def test_a_client_of_the_last_release_is_answered_in_the_form_that_it_reads() -> None:
    """It asks for no times; its answers have as many columns as ever, and the numbers of answers are what they were."""
    reply = Reply(MessageId(ProducerId(1), 2), GroupId(3), Answer.DELIVERED, True, 4, 5, 6, 7)
    (row,) = topic_answers.reply_rows([reply], False)
    assert row == (
        2,
        3,
        list(Answer).index(Answer.DELIVERED),
        True,
        4,
        5,
        6,
    )
    assert topic_answers.reply_rows([reply], True)[0][-1] == 7
    assert [one.value for one in topic_pushes.ANSWERS][-2:] == ["busy", "staged"]
