"""A line of callers: first come, first served, with many thousands of them."""

from __future__ import annotations

import asyncio
import random

from zraft_client.line import Line

CALLERS = 20_000
ROOM = 1_000
BYTES = 50_000


class Shop:
    """Room for a thousand callers and some bytes at a time."""

    def __init__(self) -> None:
        self.line = Line(self._has_room)
        self.inside: dict[int, int] = {}
        self._bytes = 0
        self.served: list[int] = []
        self.asked = 0

    def _has_room(self, count: int, size: int) -> bool:
        self.asked += 1
        return len(self.inside) + count <= ROOM and self._bytes + size <= BYTES

    async def enter(self, number: int, size: int) -> None:
        await self.line.turn(size)
        assert len(self.inside) < ROOM
        self.inside[number] = size
        self._bytes += size
        self.served.append(number)

    def leave_some(self, count: int, rng: random.Random) -> None:
        for number in rng.sample(sorted(self.inside), min(count, len(self.inside))):
            self._bytes -= self.inside.pop(number)
        self.line.admit()


async def _served(shop: Shop, tasks: list[asyncio.Task[None]], rng: random.Random) -> None:
    while not all(task.done() for task in tasks):
        shop.leave_some(rng.randint(1, ROOM), rng)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_20_000_callers_have_their_turn_in_the_order_in_which_they_came(seed: int) -> None:
    rng, shop = random.Random(seed), Shop()
    sizes = [rng.choice((1, 10, 50, 100)) for _ in range(CALLERS)]
    tasks = [asyncio.create_task(shop.enter(number, size)) for number, size in enumerate(sizes)]
    await asyncio.sleep(0)
    await _served(shop, tasks, rng)
    assert shop.served == list(range(CALLERS))
    assert shop.asked < 4 * CALLERS, "each was looked at a few times, however many waited"


async def test_who_leaves_a_long_line_costs_nobody_anything_and_gives_back_what_was_kept_for_him(
    seed: int,
) -> None:
    rng, shop = random.Random(seed), Shop()
    tasks = [asyncio.create_task(shop.enter(number, 10)) for number in range(CALLERS)]
    await asyncio.sleep(0)
    leaving = [task for place, task in enumerate(tasks) if place >= ROOM and place % 2]
    for task in reversed(leaving[100:]):
        task.cancel()
    shop.leave_some(ROOM, rng)
    for task in leaving[:100]:
        task.cancel()  # the turn of these has just come
    await _served(shop, tasks, rng)
    assert shop.served == [*range(ROOM), *range(ROOM, CALLERS, 2)]


async def test_the_end_of_a_line_lets_everybody_go() -> None:
    line = Line(lambda count, size: False)
    tasks = [asyncio.create_task(line.turn(1)) for _ in range(10)]
    tasks.append(asyncio.create_task(line.passed()))
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    line.end()
    await asyncio.gather(*tasks, line.turn(1), line.passed())
