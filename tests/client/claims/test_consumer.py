"""`Consumer` and `Marshaler` as programs use them, on a service in memory and a clock that jumps (M-10)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from zraft_client.claims import (
    ClaimLostError,
    Consumer,
    ConsumerOptions,
    Marshaler,
    Message,
    Mode,
    PartitionOffsets,
    PortError,
)
from zraft_client.claims.clock import uptime_ms
from zraft_client.claims.memory import MemoryService
from zraft_client.errors import BadArgumentsError, ClosedError, FailedError
from zraft_core.claims.answers import ClaimAnswer
from zraft_core.claims.commands import ClaimCommand
from zraft_core.claims.values import Owner

pytestmark = pytest.mark.loops("virtual")

HB = 8_000
TOPIC, GROUP = "orders", "billing"


def loop_ms() -> int:
    return 1_000_000 + int(asyncio.get_running_loop().time() * 1_000)


def service(partitions: int = 1, messages: int = 0) -> MemoryService:
    made = MemoryService(HB, clock=loop_ms)
    made.create_topic(TOPIC, partitions)
    for number in range(partitions * messages):
        made.append(TOPIC, number % partitions, b"%d" % number)
    return made


def consumer(port: MemoryService, client: str = "x", instance: str = "i", **options: Any) -> Consumer:
    given = ConsumerOptions(**({"claim_interval_ms": 100, "heartbeat_ms": HB} | options))
    return Consumer(port, Owner(client, instance), GROUP, [TOPIC], given, clock=loop_ms, rng=random.Random(1))


async def take(one: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    async for message in one.consume():
        found.append(message)
        if len(found) == count:
            break
    return found


async def eventually(true: Callable[[], bool]) -> None:
    """In time that jumps: an hour of it is an eternity."""
    for _ in range(36_000):
        if true():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it never came true")


async def test_a_program_consumes_commits_and_hands_on() -> None:
    port = service(messages=10)
    async with consumer(port) as x:
        for message in await take(x, 6):
            assert message.value == b"%d" % message.offset
            x.commit(message)
        assert x.claimed(TOPIC, 0)
        assert x.current_lag() == 4
    async with consumer(port, "y") as y:
        assert [message.offset for message in await take(y, 4)] == [6, 7, 8, 9]


async def test_iterating_waits_for_messages_that_come_later() -> None:
    port = service()
    async with consumer(port) as x:
        waiting = asyncio.create_task(take(x, 1))
        await asyncio.sleep(60)
        assert not waiting.done()
        port.append(TOPIC, 0, b"late")
        assert [message.value for message in await waiting] == [b"late"]


async def test_waiting_costs_no_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer and whoever iterates must not wake each other for ever."""
    port = service()
    looks = 0
    fetch = port.fetch

    async def counted(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return await fetch(*arguments)

    monkeypatch.setattr(port, "fetch", counted)
    async with consumer(port, poll_ms=1_000) as x:
        waiting = asyncio.create_task(take(x, 1))
        await asyncio.sleep(60)
        assert 50 <= looks <= 70
        waiting.cancel()


async def test_several_tasks_share_the_messages() -> None:
    async with consumer(service(messages=20)) as x:
        parts = await asyncio.gather(*(take(x, 5) for _ in range(4)))
        assert sorted(message.offset for part in parts for message in part) == list(range(20))


async def test_iterating_ends_when_the_consumer_is_terminated() -> None:
    x = consumer(service(messages=2))
    await x.start()
    waiting = asyncio.create_task(take(x, 100))
    await asyncio.sleep(1)
    assert await x.terminate()
    assert [message.offset for message in await waiting] == [0, 1]
    assert await x.terminate()


async def test_terminate_releases_or_leaves_the_claims_to_a_restart() -> None:
    """M-10: and tells what was committed in both cases."""
    port = service(messages=4)
    for release in (True, False):
        x = consumer(port)
        await x.start()
        for message in await take(x, 2):
            x.commit(message)
        assert await x.terminate(release)
        view = port.partition(TOPIC, 0).claims.view(GROUP)
        assert (view.whole is None) == release
        assert view.start == (2 if release else 4)


async def test_flush_tells_the_service_of_all_commits() -> None:
    port = service(messages=4)
    async with consumer(port) as x:
        for message in await take(x, 3):
            x.commit(message)
        assert await x.flush()
        assert port.partition(TOPIC, 0).claims.view(GROUP).start == 3


class Silent(MemoryService):
    """A service that can stop answering."""

    silent = False

    async def submit(self, topic: str, partition: int, command: ClaimCommand) -> ClaimAnswer:
        if self.silent:
            await asyncio.sleep(10**6)
        return await super().submit(topic, partition, command)


@pytest.mark.parametrize("call", [Consumer.flush, Consumer.terminate])
async def test_nothing_waits_for_ever_for_a_service_that_does_not_answer(call: Any) -> None:
    port = Silent(HB, clock=loop_ms)
    port.create_topic(TOPIC, 1)
    port.append(TOPIC, 0, b"")
    x = consumer(port)
    await x.start()
    (message,) = await take(x, 1)
    x.commit(message)
    port.silent = True
    assert not await call(x)
    await x.terminate()
    assert x.is_closed


async def test_a_commit_after_the_claim_was_lost_says_so() -> None:
    port = Silent(HB, clock=loop_ms)
    port.create_topic(TOPIC, 1)
    port.append(TOPIC, 0, b"")
    x = consumer(port)
    await x.start()
    (message,) = await take(x, 1)
    port.silent = True
    await asyncio.sleep(4 * HB / 1_000)
    port.tick()
    for _ in range(40):
        await asyncio.sleep(1)
        port.tick()
    port.silent = False
    await eventually(lambda: x.statistics().lost == 1)
    with pytest.raises(ClaimLostError, match=r"orders/0: claim 1 is not ours any more; offset 0"):
        x.commit_by_token(message.token)
    await x.terminate()


async def test_a_mistake_of_the_port_reaches_who_iterates(monkeypatch: pytest.MonkeyPatch) -> None:
    port = service(messages=1)

    async def broken(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(port, "fetch", broken)
    x = consumer(port)
    await x.start()
    with pytest.raises(RuntimeError, match="a bug"):
        await take(x, 1)
    await x.terminate()


async def test_a_port_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    port = service(messages=1)
    failures = [PortError("once"), PortError("twice")]
    fetch = port.fetch

    async def failing(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return await fetch(*arguments)

    monkeypatch.setattr(port, "fetch", failing)
    async with consumer(port) as x:
        assert len(await take(x, 1)) == 1


async def test_a_topic_that_does_not_exist_is_an_error_at_the_start() -> None:
    one = Consumer(service(), Owner("x", "i"), GROUP, [TOPIC, "nowhere"])
    with pytest.raises(BadArgumentsError, match="nowhere"):
        await one.start()
    with pytest.raises(BadArgumentsError, match="none at all"):
        await Consumer(service(), Owner("x", "i"), GROUP, []).start()
    with pytest.raises(ClosedError, match="not started"):
        one.current_lag()


async def test_topic_claims_tell_what_is_claimed_entirely() -> None:
    """M-10: TopicClaims and GetCurrentTopicClaims."""
    port = service(partitions=3)
    async with consumer(port, claim_entire_topic=True) as x:
        told: list[frozenset[str]] = []

        async def listen() -> None:
            async for topics in x.topic_claims():
                told.append(topics)

        listening = asyncio.create_task(listen())
        await eventually(lambda: bool(told) and told[-1] == {TOPIC})
        assert x.current_topic_claims() == {TOPIC}
    await listening
    assert told == [frozenset(), frozenset({TOPIC}), frozenset()]
    async with consumer(port, "y") as y:
        assert y.current_topic_claims() == frozenset()


async def test_load_is_what_comes_in() -> None:
    """M-10: GetCurrentLoad, in messages per heartbeat interval."""
    port = service()
    async with consumer(port) as x:
        for _ in range(80):
            port.append(TOPIC, 0, b"")
            await asyncio.sleep(HB / 1_000 / 4)
            for message in await take(x, 1):
                x.commit(message)
        assert 3 <= x.current_load() <= 5
        assert x.partition_offsets(TOPIC)[0].current == 80


async def test_a_message_carries_a_token_that_rises_with_the_owner() -> None:
    """Flaw 5: what is downstream can refuse what a zombie writes."""
    port = service(messages=2)
    epochs = []
    for client in ("x", "y"):
        async with consumer(port, client) as one:
            epochs.append((await take(one, 1))[0].epoch)
    assert epochs == sorted(set(epochs))


# Marshaler ----------------------------------------------------------------------------------------------------------


async def test_a_marshaler_shows_claims_and_offsets() -> None:
    port = service(partitions=2, messages=5)
    m = Marshaler(port, "x", GROUP)
    assert not await m.claimed(TOPIC, 0)
    assert await m.last_partition_claim(TOPIC, 0) is None
    one = m.consumer([TOPIC], ConsumerOptions(greedy_claims=True, mode=Mode.AT_MOST_ONCE))
    one._clock = loop_ms
    await one.start()
    for message in await take(one, 10):
        one.commit(message)
    await one.flush()
    assert await m.claimed(TOPIC, 0)
    claim = await m.partition_claim(TOPIC, 0)
    assert claim is not None
    assert claim.owner == m.identity
    assert await m.partition_offsets(TOPIC, 0) == PartitionOffsets(5, 0, 5, 5)
    report = await m.state_report([TOPIC])
    assert "orders/1: 0 to 5, consumed to 5" in report
    assert "all: x (" in report
    assert "fresh" in report
    await m.terminate()
    assert await m.partition_claim(TOPIC, 0) is None
    last = await m.last_partition_claim(TOPIC, 0)
    assert last is not None
    assert last.epoch == claim.epoch


async def test_a_group_is_paused_resumed_and_forgotten() -> None:
    port = service(partitions=2, messages=2)
    m = Marshaler(port, "admin", GROUP)
    await m.pause_group([TOPIC], HB)
    assert "paused for" in await m.state_report([TOPIC])
    async with consumer(port) as x:
        await asyncio.sleep(1)
        assert x.statistics().claims == 0
        await m.resume_group([TOPIC])
        assert len(await take(x, 4)) == 4
        with pytest.raises(FailedError, match="Forget was refused: HELD"):
            await m.forget_group([TOPIC])
    await m.forget_group([TOPIC])
    assert list(port.partition(TOPIC, 0).claims.groups()) == []


async def test_a_process_consumes_a_topic_once() -> None:
    m = Marshaler(service(), "x", GROUP)
    first = m.consumer([TOPIC])
    with pytest.raises(BadArgumentsError, match="another consumer of this process"):
        m.consumer([TOPIC])
    await first.terminate()
    m.consumer([TOPIC])


async def test_range_claims_are_shown() -> None:
    port = service()
    m = Marshaler(port, "x", GROUP)
    async with consumer(port, range_messages=10) as x:
        await eventually(lambda: x.statistics().claims == 2)
        assert [(claim.first, claim.upto) for claim in await m.range_claims(TOPIC, 0)] == [
            (0, 10),
            (10, 20),
        ]
        assert "0 to 10: x" in await m.state_report([TOPIC])


@pytest.mark.parametrize(("client", "group"), [("", "g"), ("x" * 256, "g"), ("x", "")])
def test_names_are_checked_before_anything_is_sent(client: str, group: str) -> None:
    with pytest.raises(BadArgumentsError, match="expected 1 to 255 bytes"):
        Marshaler(MemoryService(), client, group)


def test_processes_of_one_client_have_instances_of_their_own() -> None:
    """M-2."""
    port = MemoryService()
    assert Marshaler(port, "x", GROUP).identity != Marshaler(port, "x", GROUP).identity


def test_the_clock_of_leases_does_not_go_back() -> None:
    assert 0 < uptime_ms() <= uptime_ms()
