"""Topics of a zraft cluster as the benchmark needs them, through the client library.

Only this module knows its calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from zraft_bench.multicast.checks import Read
from zraft_bench.multicast.load import TopicError
from zraft_bench.multicast.plan import Cell, Destinations
from zraft_client.client import Client
from zraft_client.errors import ClientError
from zraft_client.topics.admin import Topics
from zraft_client.topics.consumer import Consumer
from zraft_client.topics.options import Destination
from zraft_client.topics.producer import Producer

CREATE_S: Final = 60.0
"""Seconds until all partitions of a topic have leaders, on a busy machine."""

READ_WAIT_S: Final = 0.5
READ_MAX: Final = 2000


class TopicsClient:
    """A client of its own, with the topics of a cell.

    `prefix` and a number name each topic. Use the client in an `async with` statement.
    """

    def __init__(self, hosts: str, prefix: str, cell: Cell) -> None:
        self._client = Client(hosts, timeout_s=CREATE_S)
        self._topics = Topics(self._client)
        self._prefix = prefix
        self._cell = cell

    async def __aenter__(self) -> Self:
        try:
            await self._client.connect()
        except ClientError as error:
            await self._client.close()
            raise TopicError(f"cannot connect: {error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._topics.close()
        await self._client.close()

    def name(self, topic: int) -> str:
        """Return the name of the topic with this number."""
        return f"{self._prefix}{topic}"

    async def create(self) -> None:
        """Create all topics of the cell, and wait until their partitions take messages.

        Raises:
            TopicError: one cannot be created.
        """
        with _told("create topics"):
            for topic in range(self._cell.topics):
                await self._topics.create(self.name(topic), self._cell.partitions, timeout_s=CREATE_S)

    async def delete(self) -> None:
        """Delete all topics of the cell.

        Raises:
            TopicError: one cannot be deleted.
        """
        with _told("delete topics"):
            for topic in range(self._cell.topics):
                await self._topics.delete(self.name(topic))

    async def groups(self) -> list[int]:
        """Return the group of each place.

        Raises:
            TopicError: the topics cannot be described.
        """
        with _told("look at topics"):
            known = await self._topics.metadata()
            return [group for n in range(self._cell.topics) for group in known.topic(self.name(n)).partitions]

    async def replicas(self) -> dict[int, tuple[int, ...]]:
        """Return the servers that have each group.

        Raises:
            TopicError: the topics cannot be described.
        """
        with _told("look at topics"):
            known = await self._topics.metadata()
            return {group: tuple(placement.servers) for group, placement in known.placements.items()}

    @contextlib.asynccontextmanager
    async def sender(self) -> AsyncIterator[TopicSender]:
        """Return a producer.

        Raises:
            TopicError: it cannot be registered.
        """
        with _told("register a producer"):
            # Messages of a cell without batches have each its own place in the order of all.
            producer = self._topics.producer(
                window=self._cell.window, order=self._cell.order, batch_bytes_max=self._cell.batch_bytes
            )
            await producer.open()
        try:
            yield TopicSender(producer, self._place_names())
        finally:
            with contextlib.suppress(ClientError):
                await producer.close(flush=False)

    @contextlib.asynccontextmanager
    async def reader(self, places: Sequence[int]) -> AsyncIterator[TopicReader]:
        """Return a consumer of some places.

        Raises:
            TopicError: it cannot be opened.
        """
        names = self._place_names()
        with _told("begin to consume"):
            consumer = Consumer(self._topics.directory, [names[place] for place in places], skip_gone=False)
            await consumer.open()
        try:
            yield TopicReader(consumer, {name: place for place, name in enumerate(names)})
        finally:
            with contextlib.suppress(ClientError):
                await consumer.close()

    def _place_names(self) -> list[tuple[str, int]]:
        cell = self._cell
        return [(self.name(topic), n) for topic in range(cell.topics) for n in range(cell.partitions)]


class TopicSender:
    """One producer; `id` is the service's name for it."""

    def __init__(self, producer: Producer, names: Sequence[tuple[str, int]]) -> None:
        self._producer = producer
        self._names = names
        self._to: dict[Destinations, Destination | list[Destination]] = {}
        self.id = int(producer.id)

    async def send(self, places: Destinations, payload: bytes) -> Outcome:
        """Send a message; wait only for room, and await what is returned until it is delivered at all places.

        Raises:
            TopicError: the service refused it.
        """
        to = self._to.get(places)
        if to is None:
            several: list[Destination] = [self._names[place] for place in places]
            to = self._to[places] = several if len(several) > 1 else several[0]
        try:
            return Outcome(await self._producer.send_soon(to, payload))
        except ClientError as error:
            raise TopicError(f"{type(error).__name__}: {error}") from error


class Outcome:
    """Outcome of a message; awaiting it raises TopicError if it was not delivered."""

    __slots__ = ("_sent",)

    def __init__(self, sent: Awaitable[object]) -> None:
        self._sent = sent

    def __await__(self) -> Generator[Any, None, object]:
        try:
            return (yield from self._sent.__await__())
        except ClientError as error:
            raise TopicError(f"{type(error).__name__}: {error}") from error


class TopicReader:
    """One consumer of several partitions."""

    def __init__(self, consumer: Consumer, places: Mapping[tuple[str, int], int]) -> None:
        self._consumer = consumer
        self._places = places

    async def read(self) -> dict[int, list[Read]]:
        """Return the next messages of each place, after a short wait if there are none.

        Raises:
            TopicError: no replica answered.
        """
        try:
            records = await self._consumer.poll(READ_WAIT_S, limit=READ_MAX)
        except ClientError as error:
            raise TopicError(f"{type(error).__name__}: {error}") from error
        found: dict[int, list[Read]] = {}
        for one in records:
            reads = found.setdefault(self._places[one.topic, one.partition], [])
            reads.append(Read(one.offset, one.stamp, one.id, one.value, one.index))
        return found


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise TopicError(f"cannot {what}: {type(error).__name__}: {error}") from error
