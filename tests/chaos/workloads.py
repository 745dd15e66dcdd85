"""What clients do in a chaos run: one class per kind of work, each a step that is repeated until the run ends.

Every value written is unique and names who wrote it, which is what makes the histories cheap to judge.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from tests.chaos.client import Client, ConnectionEndedError
from zraft.checkers.history import Kind, Operation, Outcome

REGISTERS: Final = tuple(f"/r/{n}" for n in range(24))
PAIRS: Final = tuple((f"/m/{n}-a", f"/m/{n}-b") for n in range(4))
COUNTERS: Final = tuple(f"/c/{n}" for n in range(4))
TOGGLES: Final = tuple(f"/t/{n}" for n in range(8))
WATCHED: Final = tuple(f"/w/{n}" for n in range(6))
WATCHED_TOP: Final = "/w"
QUEUE: Final = "/q"
EXCLUSIVE: Final = tuple(f"/x/{n}" for n in range(2))
FENCED: Final = tuple(f"/f/{n}" for n in range(2))

FIRST: Final = "first"
"""What the set-up writes; later values are never like it."""

SET_UP: Final = (
    *("/r", "/m", "/c", "/t", "/w", "/q", "/x", "/f"),
    *REGISTERS,
    *(path for pair in PAIRS for path in pair),
    *COUNTERS,
    *WATCHED,
    *EXCLUSIVE,
    *FENCED,
    *(f"{path}/fence" for path in FENCED),
    *(f"{path}/queue" for path in FENCED),
)
"""Made before the clients begin, with FIRST as data."""

ROOTS: Final = ("/r", "/m", "/c", "/t", "/w", "/q", "/x", "/f")
LOCK_TRIES: Final = 40
WATCHERS_READS: Final = 12
QUEUE_LENGTH_MAX: Final = 40


class Worker:
    """One client and its work."""

    def __init__(self, client: Client, rng: random.Random, pause_s: float) -> None:
        self.client = client
        self.rng = rng
        self.pause_s = pause_s
        self.written = 0
        self._stop = False

    @property
    def stopping(self) -> bool:
        return self._stop

    def stop(self) -> None:
        """Let the step under way end."""
        self._stop = True

    def value(self) -> str:
        self.written += 1
        return f"{self.client.number}.{self.written}"

    async def run(self) -> None:
        """Until `stopping`: connected, step after step."""
        while not self.stopping:
            try:
                await self.client.connect()
                await self.step()
            except ConnectionEndedError:
                pass
            await asyncio.sleep(self.rng.expovariate(1 / self.pause_s))

    async def step(self) -> None:
        raise NotImplementedError


class RegisterWorker(Worker):
    """Sets, compares and sets, reads with sync and without, on shared znodes."""

    async def step(self) -> None:
        path, roll = self.rng.choice(REGISTERS), self.rng.random()
        client = self.client
        if roll < 0.3:
            await client.set(path, self.value())
        elif roll < 0.5:
            found = await (client.sync_get(path) if self.rng.random() < 0.3 else client.get(path))
            if found.version is not None:
                await client.set(path, self.value(), found.version)
        elif roll < 0.75:
            await client.sync_get(path)
        elif roll < 0.98:
            await client.get(path)
        else:
            await client.move()


class CounterWorker(Worker):
    """Adds to a counter by compare and set, and writes pairs of znodes by multi."""

    async def step(self) -> None:
        if self.rng.random() < 0.5:
            path = self.rng.choice(COUNTERS)
            found = await self.client.sync_get(path)
            if found.value is not None and found.version is not None:
                count = 0 if found.value.startswith(FIRST) else int(found.value.partition(" ")[0])
                await self.client.set(path, f"{count + 1} {self.value()}", found.version)
        else:
            one, other = self.rng.choice(PAIRS)
            found = await self.client.get(one)
            if self.rng.random() < 0.4:
                await self.client.get(other)
            elif found.version is not None:
                await self.client.multi_set(one, (other,), self.value(), found.version)


class ToggleWorker(Worker):
    """Creates and deletes znodes, and looks at them."""

    async def step(self) -> None:
        path, roll = self.rng.choice(TOGGLES), self.rng.random()
        if roll < 0.3:
            await self.client.create(path, self.value())
        elif roll < 0.5:
            await self.client.delete(path)
        elif roll < 0.8:
            await self.client.sync_get(path)
        else:
            await self.client.get(path)


class QueueWorker(Worker):
    """Puts unique items into a queue, and takes the oldest."""

    async def step(self) -> None:
        listed = await (
            self.client.sync_children(QUEUE) if self.rng.random() < 0.3 else self.client.children(QUEUE)
        )
        if len(listed.names) < QUEUE_LENGTH_MAX and self.rng.random() < 0.55:
            await self.client.create(f"{QUEUE}/item-", self.value(), sequential=True)
        elif listed.names:
            path = f"{QUEUE}/{listed.names[0]}"
            if (await self.client.get(path)).outcome is Outcome.OK:
                await self.client.delete(path)


class ExclusiveWorker(Worker):
    """Takes a lock that is one ephemeral znode; sometimes walks away with it, so that its session expires."""

    async def step(self) -> None:
        path = self.rng.choice(EXCLUSIVE) + "/lock"
        generation = self.client.generation
        if (await self.client.create(path, self.value(), ephemeral=True)).outcome is not Outcome.OK:
            if (await self.client.sync_get(path)).owner == self.client.session:
                await self.client.delete(path)  # a create that was not answered had made it
            return
        await asyncio.sleep(self.rng.random() * 0.05)
        await self.client.sync_get(path)
        if self.rng.random() < 0.03:
            await self.client.abandon()
            await asyncio.sleep(self.rng.random() * 12)
            return
        if self.rng.random() < 0.05:
            await self.client.close()
            return
        if generation == self.client.generation:
            await self.client.delete(path)


class FencedWorker(Worker):
    """ZooKeeper's lock recipe: the lowest sequential ephemeral holds, and writes to the fence while it does."""

    async def step(self) -> None:
        prefix = f"n{self.client.number}-"
        for top in FENCED:
            for name in (await self.client.children(f"{top}/queue")).names:
                if name.startswith(prefix):
                    # Of a create or a delete that was not answered, or of a session that is about to expire.
                    await self.client.delete(f"{top}/queue/{name}")
        top = self.rng.choice(FENCED)
        holding = self.value()
        mine = await self.client.create(f"{top}/queue/{prefix}", holding, ephemeral=True, sequential=True)
        if mine.outcome is not Outcome.OK or mine.created is None:
            return
        name = mine.created.rpartition("/")[2]
        for _ in range(LOCK_TRIES):
            names = sorted((await self.client.children(f"{top}/queue")).names, key=lambda one: one[-10:])
            if name not in names:
                return
            if names[0] == name:
                for place in range(self.rng.randint(1, 4)):
                    # No reconnect comes between: losing the connection ends the step.
                    await self.client.set(f"{top}/fence", f"{holding} {place}")
                break
            await asyncio.sleep(0.02 + self.rng.random() * 0.05)
        await self.client.delete(mine.created)


class WatchedWriter(Worker):
    """Changes what watchers watch: data, and children that come and go."""

    async def step(self) -> None:
        path = self.rng.choice(WATCHED)
        if self.rng.random() < 0.7:
            await self.client.set(path, self.value())
            return
        child = f"{path}/{self.client.number}-{self.value()}"
        made = await self.client.create(child, self.value())
        if made.outcome is Outcome.OK and self.rng.random() < 0.8:
            await self.client.delete(child)


class Watcher(Worker):
    """Reads what it watches without a pause: only an answer on the heels of an event shows which came first."""

    async def read_on(self) -> None:
        for _ in range(WATCHERS_READS):
            await self.client.get(self.rng.choice(WATCHED))


class RecursiveWatcher(Watcher):
    """A persistent recursive watch on everything that is written there, and reads beside it."""

    def __init__(self, client: Client, rng: random.Random, pause_s: float) -> None:
        super().__init__(client, rng, pause_s)
        self._watching = 0

    async def step(self) -> None:
        if self._watching != self.client.connections:
            # Before anything else: of a watch that is there already it is not known what it told meanwhile.
            added = await self.client.watch_recursively(WATCHED_TOP)
            if added.outcome is Outcome.OK:
                self._watching = self.client.connections
        elif self.rng.random() < 0.02:
            await self.client.move()
        else:
            await self.read_on()


class OnceWatcher(Watcher):
    """One-shot watches, set again after they fired; the session moves with them."""

    async def step(self) -> None:
        if self.rng.random() < 0.03:
            await self.client.move()
        else:
            await self.client.get(self.rng.choice(WATCHED), watch=self.rng.random() < 0.5)
            await self.read_on()


Maker = Callable[[Client, random.Random, float], Worker]

MIX: Final[tuple[tuple[Maker, int], ...]] = (
    (RegisterWorker, 8),
    (CounterWorker, 3),
    (ToggleWorker, 2),
    (QueueWorker, 3),
    (ExclusiveWorker, 3),
    (FencedWorker, 3),
    (WatchedWriter, 2),
    (RecursiveWatcher, 2),
    (OnceWatcher, 2),
)
"""How many clients of each kind a run has."""

TIMEOUTS_MS: Final = (2_000, 4_000, 8_000)


def acknowledged(operation: Operation) -> bool:
    """Whether it is a write that a majority has."""
    return operation.outcome is Outcome.OK and operation.kind in (
        Kind.CREATE,
        Kind.SET,
        Kind.DELETE,
        Kind.MULTI_SET,
    )
