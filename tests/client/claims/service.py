"""A service in memory with a clock of the test's, and a consumer's core that is driven step by step."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any, TypeVar

from zraft_client.claims.core import ConsumerCore
from zraft_client.claims.errors import PortError
from zraft_client.claims.memory import MemoryService
from zraft_client.claims.messages import Message
from zraft_client.claims.options import ConsumerOptions
from zraft_client.claims.requests import Effect, Fetch, Look, Reply, Submit
from zraft_core.claims.values import Mode, Owner

T = TypeVar("T")
HB = 8_000
TOPIC, GROUP = "orders", "billing"
LEAST, ONCE = Mode.AT_LEAST_ONCE, Mode.AT_MOST_ONCE


def done(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        found: T = stop.value
        return found
    raise AssertionError("it waits")


class World:
    """Time, and a service in which all consumers meet."""

    def __init__(self, partitions: int = 1, messages: int = 0) -> None:
        self.now_ms = 1_000_000
        self.service = MemoryService(HB, clock=lambda: self.now_ms)
        self.service.create_topic(TOPIC, partitions)
        for partition in range(partitions):
            self.add(messages, partition)
        self.consumers: list[Driven] = []

    def add(self, messages: int, partition: int = 0) -> None:
        for _ in range(messages):
            self.service.append(TOPIC, partition, b"message")

    def consumer(self, client: str = "x", instance: str = "i", **options: Any) -> Driven:
        """One that has begun; `options` as in `ConsumerOptions`."""
        driven = Driven(
            self,
            Owner(client, instance),
            ConsumerOptions(**({"claim_interval_ms": 100, "heartbeat_ms": HB} | options)),
        )
        self.consumers.append(driven)
        return driven

    def run(self, ms: int) -> None:
        """Let so much time pass, in small steps; everybody who is not stopped gets answers at once."""
        until = self.now_ms + ms
        while self.now_ms < until:
            for one in self.consumers:
                one.step()
            self.now_ms += min(50, until - self.now_ms)
            self.service.tick()
        for one in self.consumers:
            one.step()

    def live(self, partition: int = 0) -> list[str]:
        claims = self.service.partition(TOPIC, partition).claims.view(GROUP).claims
        return [f"{claim.owner.client}/{claim.owner.instance}" for claim in claims]


class Driven:
    """A core whose effects are carried out when the test says so."""

    def __init__(
        self, world: World, identity: Owner, options: ConsumerOptions, rng: random.Random | None = None
    ) -> None:
        self.world = world
        self.stopped = False
        self.cut_off = False
        """What it asks gets no answer, and is not carried out."""
        self.effects: list[Effect] = []
        """All that it ever asked for."""
        count = done(world.service.partitions(TOPIC))
        self.core = ConsumerCore(
            identity, GROUP, {TOPIC: count}, options, rng or random.Random(1), world.now_ms
        )

    def step(self) -> None:
        if self.stopped:
            return
        self.core.on_time(self.world.now_ms)
        for _ in range(100):
            effects = self.core.take_effects()
            if not effects:
                return
            self.effects += effects
            for effect in effects:
                if not self.cut_off:
                    self.core.on_reply(effect.number, self.answer(effect), effect, self.world.now_ms)
        raise AssertionError("a consumer asks without end")

    def answer(self, effect: Effect) -> Reply:
        service = self.world.service
        try:
            match effect:
                case Submit(_, topic, partition, command):
                    return done(service.submit(topic, partition, command))
                case Look(_, topic, partition, group):
                    return done(service.look(topic, partition, group))
                case Fetch(_, topic, partition, first, count):
                    return done(service.fetch(topic, partition, first, count, 1_000_000))
        except PortError:
            return None

    def take(self, count: int = 1_000_000) -> list[Message]:
        """Messages that it hands out now, not committed."""
        found: list[Message] = []
        while len(found) < count:
            message = self.core.next_message(self.world.now_ms)
            if message is None:
                self.step()
                message = self.core.next_message(self.world.now_ms)
            if message is None:
                break
            found.append(message)
        return found

    def process(self, count: int = 1_000_000) -> list[int]:
        """Take and commit; the offsets."""
        offsets = []
        for message in self.take(count):
            assert self.core.commit(message.token, self.world.now_ms)
            offsets.append(message.offset)
        return offsets

    def terminate(self, *, release: bool) -> None:
        self.core.terminate(self.world.now_ms, release=release)
        self.step()
