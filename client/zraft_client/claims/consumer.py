"""A consumer as programs use it: the asyncio shell around `ConsumerCore`.

It owns one task, and one more per request under way; the core bounds how many there are (a few per claim).
Everything runs in the loop in which `start` was called.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Any

from zraft_client.claims.clock import uptime_ms
from zraft_client.claims.consumption import Consumption
from zraft_client.claims.core import ConsumerCore, ConsumerStatistics
from zraft_client.claims.errors import ClaimLostError, CommitsScatteredError, PortError
from zraft_client.claims.messages import CommitToken, Message, PartitionOffsets
from zraft_client.claims.options import ConsumerOptions
from zraft_client.claims.port import ClaimsPort
from zraft_client.claims.requests import Effect, Fetch, Look, Reply, Submit
from zraft_client.errors import BadArgumentsError, ClientError, ClosedError
from zraft_client.line import Line
from zraft_core.claims.values import Owner

TERMINATION_S: float = 10.0
"""The time that `terminate` and `flush` wait for the service before they give up."""


class Committing:
    """A commit on its way. Await it to know that it is durable: then nobody else gets the message, whoever dies.

    A program that does not await it loses only that knowledge; the commit is sent a moment later.
    """

    __slots__ = ("_consumer", "_offset", "_under")

    def __init__(self, consumer: Consumer, under: Consumption, offset: int) -> None:
        self._consumer = consumer
        self._under = under
        self._offset = offset

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until the commit is durable.

        Raises:
            ClaimLostError: the claim ended before: another consumer may get the message.
            CommitsScatteredError: there are too many gaps between commits; commit older messages first.
        """
        return self._consumer.until_durable(self._under, self._offset).__await__()


class Consumer:
    """`NewConsumer`: claims partitions of topics for a group and hands their messages out.

    ```
    async with marshaler.consumer(["orders"]) as consumer:
        async for message in consumer.consume():
            ...
            await consumer.commit(message)
    ```
    """

    def __init__(
        self,
        port: ClaimsPort,
        identity: Owner,
        group: str,
        topics: Iterable[str],
        options: ConsumerOptions | None = None,
        *,
        clock: Callable[[], int] = uptime_ms,
        rng: random.Random | None = None,
    ) -> None:
        self.identity = identity
        self.group = group
        self.options = options or ConsumerOptions()
        self._port = port
        self.topics = tuple(topics)
        self._clock = clock
        self._rng = rng or random.Random()
        self._core: ConsumerCore | None = None
        self._runner: asyncio.Task[None] | None = None
        self._performing: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self._line = Line(lambda count, _: self._stock() >= count)
        """Tasks that iterate, and wait for a message."""
        self._commits: dict[Consumption, list[tuple[int, asyncio.Future[None]]]] = {}
        """The waiters for each offset to be durable."""
        self._failure: BaseException | None = None
        self._closed = False

    async def start(self) -> None:
        """Begin to claim.

        Raises:
            BadArgumentsError: there is no topic, or one that does not exist.
            PortError: the service cannot be asked.
        """
        assert self._core is None, "a consumer is started once"
        counts = {topic: await self._port.partitions(topic) for topic in self.topics}
        missing = sorted(topic for topic, count in counts.items() if count == 0)
        if missing or not counts:
            raise BadArgumentsError(f"topics: expected some that exist, found {missing or 'none at all'}")
        self._core = ConsumerCore(self.identity, self.group, counts, self.options, self._rng, self._clock())
        self._runner = asyncio.create_task(self._run(), name=f"consumer {self.identity.client}")

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.terminate()

    # Messages ---------------------------------------------------------------------------------------------------

    async def consume(self) -> AsyncIterator[Message]:
        """`ConsumeChannel`: yield messages until the consumer is terminated.

        `commit` each when it is processed, also at most once: there it decides nothing about who gets it, but
        makes room in the queue and tells the progress. Several tasks may iterate; each message goes to the
        one that has waited longest.
        """
        while True:
            message = await self._next()
            if message is None:
                return
            yield message

    async def _next(self) -> Message | None:
        """Return the next message, None once the consumer is closed."""
        while not self._closed:
            core = self._running()
            await self._line.turn(1)
            # None if it was closed meanwhile, or a lease lapsed, which takes messages away.
            message = core.next_message(self._clock())
            if message is not None:
                # There is room for another one.
                self._wake.set()
                return message
        return None

    def _stock(self) -> int:
        return 0 if self._core is None else self._core.stock(self._clock())

    def commit(self, message: Message) -> Committing:
        """`Commit`: note that the message was processed, in any order.

        Await what is returned to know that it is durable.

        Raises:
            ClaimLostError: its claim is not ours any more.
        """
        return self.commit_by_token(message.token)

    def commit_by_token(self, token: CommitToken) -> Committing:
        """`CommitByToken`: commit where only the token was passed on.

        Raises:
            ClaimLostError: its claim is not ours any more.
        """
        under = self._running().commit(token, self._clock())
        if under is None:
            raise _lost(token.topic, token.partition, token.epoch, token.offset)
        self._wake.set()
        return Committing(self, under, token.offset)

    async def until_durable(self, under: Consumption, offset: int) -> None:
        """Wait until the commit is durable; for `Committing`.

        Raises:
            ClaimLostError: the claim ended before.
            CommitsScatteredError: there are too many gaps between commits.
        """
        while not under.is_durable(offset):
            self._running()
            error = self._error_of(under, offset)
            if error is not None:
                raise error
            under.flush(self._clock())
            self._wake.set()
            told = asyncio.get_running_loop().create_future()
            self._commits.setdefault(under, []).append((offset, told))
            await told

    def _error_of(self, under: Consumption, offset: int) -> ClientError | None:
        """Return why a commit will not be durable, or not soon."""
        place = under.topic, under.partition
        if under.ended is not None or self._closed:
            return _lost(*place, under.epoch, offset)
        if under.is_scattered:
            return CommitsScatteredError(
                f"{under.topic}/{under.partition}: offset {offset} is told when gaps between commits close: offset "
                f"{under.current} is the first without a commit, and the partition keeps no more gaps"
            )
        return None

    def _tell_commits(self) -> None:
        """Wake those whose commit is durable, or will not be."""
        for under, waiting in list(self._commits.items()):
            left = [one for one in waiting if not (under.is_durable(one[0]) or self._error_of(under, one[0]))]
            for one in waiting:
                if one not in left and not one[1].done():
                    one[1].set_result(None)
            if left:
                self._commits[under] = left
            else:
                del self._commits[under]

    async def flush(self) -> bool:
        """`Flush`: tell the service of all commits; return False if it did not answer within `TERMINATION_S`.

        Commits of claims that ended meanwhile are not waited for.
        """
        core = self._running()
        targets = core.flush(self._clock())
        return await self._until(lambda: core.is_flushed(targets))

    async def terminate(self, release: bool = True) -> bool:
        """`Terminate`: end; return False if the service did not answer in time: then the claims expire.

        With `release`, others may claim at once; without, a restart of this client id continues. At least
        once, somebody processes messages again that were handed out and not committed. At most once, messages
        that were claimed and not handed out are lost.
        """
        if self._closed or self._core is None:
            self._closed = True
            return True
        core = self._core
        targets = core.flush(self._clock())
        core.terminate(self._clock(), release=release)
        try:
            return await self._until(lambda: core.is_released if release else core.is_flushed(targets))
        finally:
            await self._close()

    # What it has ------------------------------------------------------------------------------------------------

    def claimed(self, topic: str, partition: int) -> bool:
        """`Claimed`: whether this consumer has a claim of the partition and may process it right now."""
        return self._running().holds((topic, partition))

    def current_lag(self) -> int:
        """`GetCurrentLag`: the number of existing messages that are not committed, over all claims, as last seen."""
        return sum(one.lag for one in self._running().consumptions())

    def current_load(self) -> float:
        """`GetCurrentLoad`: the number of messages that come into the claimed partitions per heartbeat interval."""
        return sum(one.health.partition_velocity for one in self._running().consumptions())

    def partition_offsets(self, topic: str) -> dict[int, PartitionOffsets]:
        """`GetPartitionOffsets`: the offsets of what is claimed, as known here, without asking the service."""
        found = {}
        for one in self._running().consumptions():
            if one.topic == topic:
                found[one.partition] = PartitionOffsets(one.current, one.claim.first, one.end, one.committed)
        return found

    def current_topic_claims(self) -> frozenset[str]:
        """`GetCurrentTopicClaims`: topics claimed entirely, of which partition 0 is ours."""
        core = self._running()
        if not self.options.claim_entire_topic:
            return frozenset()
        return frozenset(topic for topic in core.topics if core.holds((topic, 0)))

    async def topic_claims(self) -> AsyncIterator[frozenset[str]]:
        """`TopicClaims`: yield the topics claimed entirely, each time they change."""
        last: frozenset[str] | None = None
        while True:
            async with self._changed:
                while not self._closed and self.current_topic_claims() == last:
                    await self._changed.wait()
                if self._closed:
                    return
                last = self.current_topic_claims()
            yield last

    def statistics(self) -> ConsumerStatistics:
        """Return the counts of claims and messages so far.

        Raises:
            ClosedError: the consumer was not started.
            ClientError: the error that ended it.
        """
        return self._running().statistics()

    @property
    def is_closed(self) -> bool:
        """True if the consumer was terminated, or ended before it began."""
        return self._closed

    # The task ---------------------------------------------------------------------------------------------------

    def _running(self) -> ConsumerCore:
        """Run the consumer. What went wrong, if anything did, is raised."""
        if self._failure is not None:
            raise self._failure
        if self._core is None:
            raise ClosedError("the consumer was not started; use `async with`, or `await consumer.start()`")
        return self._core

    async def _run(self) -> None:
        core = self._running()
        while True:
            self._wake.clear()
            now = self._clock()
            core.on_time(now)
            for effect in core.take_effects():
                task = asyncio.create_task(self._perform(core, effect))
                self._performing.add(task)
                task.add_done_callback(self._performed)
            self._line.admit()
            self._tell_commits()
            async with self._changed:
                self._changed.notify_all()
            due = core.next_due_ms
            try:
                async with asyncio.timeout(None if due is None else max(0, due - self._clock()) / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _performed(self, task: asyncio.Task[None]) -> None:
        self._performing.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # An error of the port or of ours is raised in whatever iterates, not in a log that nobody reads.
            self._failure = task.exception()
            self._line.end()
        self._wake.set()

    async def _perform(self, core: ConsumerCore, effect: Effect) -> None:
        reply: Reply = None
        try:
            async with asyncio.timeout(self.options.request_timeout_ms / 1000):
                reply = await self._ask(effect)
        except (PortError, TimeoutError):
            pass
        core.on_reply(effect.number, reply, effect, self._clock())

    async def _ask(self, effect: Effect) -> Reply:
        match effect:
            case Submit(_, topic, partition, command):
                return await self._port.submit(topic, partition, command)
            case Look(_, topic, partition, group):
                return await self._port.look(topic, partition, group)
            case Fetch(_, topic, partition, first, count):
                return await self._port.fetch(topic, partition, first, count, self.options.message_bytes_max)

    async def _until(self, done: Callable[[], bool]) -> bool:
        """Wait until something is true; return False if it was not within `TERMINATION_S`."""
        self._wake.set()
        try:
            async with asyncio.timeout(TERMINATION_S), self._changed:
                await self._changed.wait_for(lambda: done() or self._failure is not None)
        except TimeoutError:
            return False
        return done()

    async def _close(self) -> None:
        self._closed = True
        tasks = [*self._performing, *([self._runner] if self._runner else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._line.end()
        self._tell_commits()
        async with self._changed:
            self._changed.notify_all()


def _lost(topic: str, partition: int, epoch: int, offset: int) -> ClaimLostError:
    return ClaimLostError(
        f"{topic}/{partition}: claim {epoch} is not ours any more; offset {offset} may be processed again by its next owner"
    )
