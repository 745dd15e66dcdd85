"""What a crash of a consumer costs: how long its partitions stand still, and which messages come again."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.client.claims.service import GROUP, TOPIC, Driven, World
from zraft_client.claims import ClaimLostError, Consumer, ConsumerOptions, Message
from zraft_client.claims.memory import MemoryService
from zraft_core.claims.values import Owner
from zraft_core.errors import ConfigError

pytestmark = pytest.mark.loops("virtual")

PARTITIONS = 16


def loop_ms() -> int:
    return 1_000_000 + int(asyncio.get_running_loop().time() * 1_000)


def driven(world: World, client: str, **options: Any) -> Driven:
    """A consumer with the options that it has by default, and those given."""
    one = Driven(world, Owner(client, "i"), ConsumerOptions(**options), rng=random.Random(client))
    world.consumers.append(one)
    return one


def owners(world: World) -> list[str]:
    return sorted({owner for partition in range(PARTITIONS) for owner in world.live(partition)})


def waited(world: World, survivor: str) -> int:
    """Milliseconds until one consumer has everything."""
    began = world.now_ms
    while [world.live(partition) for partition in range(PARTITIONS)] != [[f"{survivor}/i"]] * PARTITIONS:
        world.run(50)
        assert world.now_ms < began + 600_000
    return world.now_ms - began


@pytest.mark.parametrize("later_ms", [0, 500, 1_000, 1_500, 2_000])
def test_what_a_consumer_had_that_was_killed_is_taken_over_within_ten_seconds(later_ms: int) -> None:
    """All of it, with default options; it stood still for two minutes, and a second longer per partition."""
    world = World(partitions=PARTITIONS)
    x = driven(world, "x")
    while owners(world) != ["x/i"] or len(x.core._consumptions) < PARTITIONS:
        world.run(1_000)
    driven(world, "y")
    world.run(30_000 + later_ms)
    assert owners(world) == ["x/i"]
    x.stopped = True
    assert waited(world, "y") < 9_000


def test_how_soon_a_consumer_is_replaced_is_for_it_to_choose() -> None:
    world = World(partitions=PARTITIONS)
    quick, slow = driven(world, "x", heartbeat_ms=500), driven(world, "z", heartbeat_ms=20_000)
    while len(quick.core._consumptions) + len(slow.core._consumptions) < PARTITIONS:
        world.run(1_000)
    driven(world, "y")
    world.run(10_000)
    quick.stopped = slow.stopped = True
    world.run(4_000)
    assert owners(world) == ["y/i", "z/i"]
    world.run(30_000)
    assert owners(world) == ["y/i", "z/i"]
    world.run(10_000)
    assert owners(world) == ["y/i"]


@pytest.mark.parametrize("interval", [0, 99, 3_600_001, True, "3000"])
def test_an_interval_out_of_its_bounds_is_refused_before_anything_is_asked(interval: int) -> None:
    with pytest.raises(ConfigError, match=r"heartbeat_ms: found .*, expected .* from 100 to 3600000"):
        ConsumerOptions(heartbeat_ms=interval)


def test_consumers_that_start_together_still_share_evenly() -> None:
    """Only what somebody had who is gone is claimed in a hurry."""
    world = World(partitions=PARTITIONS)
    consumers = [driven(world, client) for client in "xyzw"]
    world.run(60_000)
    counts = [len(one.core._consumptions) for one in consumers]
    assert sum(counts) == PARTITIONS
    assert max(counts) <= 2 * PARTITIONS // len(counts)


# Commits ------------------------------------------------------------------------------------------------------------


def service(messages: int) -> MemoryService:
    made = MemoryService(60_000, clock=loop_ms)
    made.create_topic(TOPIC, 1)
    for number in range(messages):
        made.append(TOPIC, 0, b"%d" % number)
    return made


def consumer(port: MemoryService, client: str) -> Consumer:
    return Consumer(port, Owner(client, "i"), GROUP, [TOPIC], clock=loop_ms, rng=random.Random(1))


async def take(one: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    async for message in one.consume():
        found.append(message)
        if len(found) == count:
            break
    return found


async def kill(one: Consumer) -> None:
    """As by SIGKILL: it says nothing any more."""
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task() and (task is one._runner or task in one._performing):
            task.cancel()
    await asyncio.sleep(0)


async def test_after_a_crash_only_what_was_not_committed_comes_again() -> None:
    """All that had been committed in the last minute came again: commits were told with heartbeats only."""
    port = service(messages=20)
    x = consumer(port, "x")
    await x.start()
    for message in (await take(x, 12))[:7]:
        await x.commit(message)
    await kill(x)
    async with consumer(port, "y") as y:
        assert [message.offset for message in await take(y, 13)] == list(range(7, 20))


async def test_what_was_committed_out_of_order_does_not_come_again_either() -> None:
    port = service(messages=20)
    x = consumer(port, "x")
    await x.start()
    messages = await take(x, 20)
    for number in (9, 3, 0, 4, 15, 8):
        await x.commit(messages[number])
    await kill(x)
    async with consumer(port, "y") as y:
        expected = [number for number in range(20) if number not in (0, 3, 4, 8, 9, 15)]
        assert [message.offset for message in await take(y, 14)] == expected
        await asyncio.sleep(10)
        assert y.statistics().handed_out == 14


async def test_commit_returns_when_the_service_has_it_and_not_before() -> None:
    port = service(messages=2)
    async with consumer(port, "x") as x:
        first, second = await take(x, 2)
        port.fail_next(carried_out=False)
        port.fail_next(carried_out=False)
        await x.commit(first)
        claim = port.partition(TOPIC, 0).claims.view(GROUP).whole
        assert claim is not None
        assert claim.committed == 1
        before = loop_ms()
        await x.commit_by_token(second.token)
        assert loop_ms() - before < 100, "at once, and not with the next heartbeat"


async def test_a_commit_that_nobody_awaits_is_told_a_moment_later() -> None:
    port = service(messages=5)
    async with consumer(port, "x") as x:
        for message in await take(x, 3):
            x.commit(message)
        await asyncio.sleep(0.2)
        claim = port.partition(TOPIC, 0).claims.view(GROUP).whole
        assert claim is not None
        assert claim.committed == 3


async def test_many_commits_at_once_travel_together() -> None:
    port = service(messages=500)
    async with consumer(port, "x") as x:
        messages = await take(x, 500)
        random.Random(5).shuffle(messages)
        before = port.partition(TOPIC, 0).claims.position
        await asyncio.gather(*(x.commit(message) for message in messages))
        assert port.partition(TOPIC, 0).claims.position - before < 10


async def test_a_commit_under_a_claim_that_is_lost_meanwhile_says_so() -> None:
    port = service(messages=3)
    x = consumer(port, "x")
    await x.start()
    first, second, _ = await take(x, 3)
    await x.commit(first)
    again = Consumer(port, Owner("x", "another"), GROUP, [TOPIC], clock=loop_ms, rng=random.Random(2))
    async with again:
        await take(again, 1)
        with pytest.raises(ClaimLostError, match="may be processed again"):
            await x.commit(second)
        with pytest.raises(ClaimLostError):
            x.commit(second)
    await x.terminate()
