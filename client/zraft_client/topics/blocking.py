"""Topics for threads: `Topics`, its producers and consumers without await, over a `BlockingClient`.

Everything runs in the client's own thread, and any number of threads may call. A producer takes calls in the order in which
they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

from zraft_client.blocking import BlockingClient
from zraft_client.errors import ClosedError, ForkedError
from zraft_client.topics.admin import Topics
from zraft_client.topics.consumer import Consumer, Partition
from zraft_client.topics.merged import MergedConsumer
from zraft_client.topics.options import Consumed, Destination
from zraft_client.topics.polling import RECORDS_MAX
from zraft_client.topics.producer import Producer
from zraft_client.topics.sent import Sent
from zraft_client.topics.values import Bounds, Receipt, Record, Topic
from zraft_core.topics.merger import MergePosition
from zraft_core.topics.stamps import MessageId, Stamp

T = TypeVar("T")


class _Blocking:
    """Something of the client's thread, and how it is called and closed."""

    def __init__(self, client: BlockingClient, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._client = client
        self._close = close
        self._closed = False

    def _run(self, use: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._client.run(lambda _: use())

    def close(self) -> None:
        """End it, once or more; nothing to do after the client was closed."""
        if not self._closed:
            self._closed = True
            try:
                self._run(self._close)
            except (ClosedError, ForkedError):
                return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BlockingSent:
    """A message on its way."""

    def __init__(self, client: BlockingClient, sent: Sent) -> None:
        self._client = client
        self._sent = sent

    @property
    def id(self) -> MessageId:
        return self._sent.id

    @property
    def sent(self) -> Sent:
        """For `after` of a later message."""
        return self._sent

    def done(self) -> bool:
        return self._sent.done()

    def result(self, timeout_s: float | None = None) -> Receipt:
        """Wait for it. Raises what it ended in; TimeoutError if it has not, which stops nothing."""

        async def wait() -> Receipt:
            async with asyncio.timeout(timeout_s):
                return await self._sent

        return self._client.run(lambda _: wait())


class BlockingProducer(_Blocking):
    """As `Producer`."""

    def __init__(self, client: BlockingClient, producer: Producer) -> None:
        super().__init__(client, producer.close)
        self._producer = producer

    def __enter__(self) -> BlockingProducer:
        return self

    def send(
        self,
        to: Destination | Iterable[Destination],
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        after: BlockingSent | None = None,
        consumed: Consumed | None = None,
    ) -> Receipt:
        """Multicast a message and wait until it is delivered."""
        before = None if after is None else after.sent
        return self._run(
            lambda: self._producer.send(to, value, key=key, headers=headers, after=before, consumed=consumed)
        )

    def send_soon(
        self,
        to: Destination | Iterable[Destination],
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        after: BlockingSent | None = None,
        consumed: Consumed | None = None,
    ) -> BlockingSent:
        """Multicast a message; waits only for room."""
        before = None if after is None else after.sent
        sent = self._run(
            lambda: self._producer.send_soon(
                to, value, key=key, headers=headers, after=before, consumed=consumed
            )
        )
        return BlockingSent(self._client, sent)

    def saw(self, record: Record | Stamp) -> None:
        """In order CAUSAL: what is sent from now on has stamps above this record's."""
        self._client.run_soon(lambda _: self._producer.saw(record))

    def flush(self) -> None:
        """Until everything that was sent before is decided."""
        self._run(self._producer.flush)


class BlockingConsumer(_Blocking):
    """As `Consumer`."""

    def __init__(self, client: BlockingClient, consumer: Consumer) -> None:
        super().__init__(client, consumer.close)
        self._consumer = consumer

    def __enter__(self) -> BlockingConsumer:
        return self

    def poll(self, timeout_s: float = 0.0, *, limit: int = RECORDS_MAX) -> list[Record]:
        """Records that are here; waits so long for the first."""
        return self._run(lambda: self._consumer.poll(timeout_s, limit=limit))

    def __iter__(self) -> Iterator[Record]:
        """Records for ever."""
        while True:
            yield from self.poll(60.0)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._client.run_soon(lambda _: self._consumer.seek(topic, partition, offset))

    def positions(self) -> dict[Partition, int]:
        return self._client.run_soon(lambda _: self._consumer.positions())

    def lag(self) -> dict[Partition, int]:
        return self._client.run_soon(lambda _: self._consumer.lag())

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """Keep offsets under the consumer's name."""
        self._run(lambda: self._consumer.commit(offsets))

    def committed(self) -> dict[Partition, int | None]:
        return self._run(self._consumer.committed)


class BlockingMergedConsumer(_Blocking):
    """As `MergedConsumer`."""

    def __init__(self, client: BlockingClient, consumer: MergedConsumer) -> None:
        super().__init__(client, consumer.close)
        self._consumer = consumer

    def __enter__(self) -> BlockingMergedConsumer:
        return self

    def poll(self, timeout_s: float = 0.0, *, limit: int = RECORDS_MAX) -> list[Record]:
        """The next records of the topic's order; waits so long for the first."""
        return self._run(lambda: self._consumer.poll(timeout_s, limit=limit))

    def position(self) -> MergePosition:
        """Where another one goes on."""
        return self._client.run_soon(lambda _: self._consumer.position())


class BlockingTopics(_Blocking):
    """As `Topics`; producers and consumers come opened. Close it before the client."""

    def __init__(self, client: BlockingClient) -> None:
        self._topics = client.run_soon(Topics)
        super().__init__(client, self._topics.close)

    @property
    def topics(self) -> Topics:
        """What runs in the client's thread, for `BlockingClient.run`."""
        return self._topics

    def __enter__(self) -> BlockingTopics:
        return self

    def list(self) -> tuple[Topic, ...]:
        return self._run(self._topics.list)

    def describe(self, name: str) -> Topic:
        return self._run(lambda: self._topics.describe(name))

    def create(self, name: str, partitions: int = 1, **options: Any) -> Topic:
        """Options are those of `Topics.create`."""
        return self._run(lambda: self._topics.create(name, partitions, **options))

    def retain(
        self, name: str, *, retention_bytes: int | None = None, retention_age_ms: int | None = None
    ) -> None:
        self._run(
            lambda: self._topics.retain(
                name, retention_bytes=retention_bytes, retention_age_ms=retention_age_ms
            )
        )

    def ensure(self, name: str, partitions: int = 1) -> Topic:
        return self._run(lambda: self._topics.ensure(name, partitions))

    def alter(self, name: str, partitions: int, *, wait: bool = True) -> Topic:
        return self._run(lambda: self._topics.alter(name, partitions, wait=wait))

    def delete(self, name: str) -> None:
        self._run(lambda: self._topics.delete(name))

    def bounds(self, name: str) -> dict[int, Bounds]:
        return self._run(lambda: self._topics.bounds(name))

    def producer(self, **options: Any) -> BlockingProducer:
        """Options are those of `Producer`."""

        async def opened() -> Producer:
            producer = self._topics.producer(**options)
            await producer.open()
            return producer

        return BlockingProducer(self._client, self._run(opened))

    def consumer(self, what: str | Partition | Iterable[str | Partition], **options: Any) -> BlockingConsumer:
        """Options are those of `Consumer`."""

        async def opened() -> Consumer:
            consumer = self._topics.consumer(what, **options)
            await consumer.open()
            return consumer

        return BlockingConsumer(self._client, self._run(opened))

    def merged(self, topic: str, **options: Any) -> BlockingMergedConsumer:
        """Options are those of `MergedConsumer`."""

        async def opened() -> MergedConsumer:
            consumer = self._topics.merged(topic, **options)
            await consumer.open()
            return consumer

        return BlockingMergedConsumer(self._client, self._run(opened))
