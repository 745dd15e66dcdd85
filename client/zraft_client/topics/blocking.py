"""Topics for threads: `Topics`, its producers and consumers without await, over a `BlockingClient`.

Everything runs in the client's own thread, and any number of threads may call. A producer takes calls in the order in which
they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from zraft_client.blocking import BlockingClient
from zraft_client.errors import ClosedError, ForkedError
from zraft_client.topics.admin import Topics
from zraft_client.topics.consumer import Consumer, Partition
from zraft_client.topics.merged import MergedConsumer
from zraft_client.topics.options import Consumed, Destination
from zraft_client.topics.producer import Producer
from zraft_client.topics.sent import Sent
from zraft_client.topics.values import Receipt, Record
from zraft_core.topics.stamps import MessageId


class _Closable(Protocol):
    async def close(self) -> None: ...


class _Openable(_Closable, Protocol):
    async def open(self) -> None: ...


P = ParamSpec("P")
T = TypeVar("T")
A_co = TypeVar("A_co", bound=_Closable, covariant=True)
Opened = TypeVar("Opened", bound=_Openable)


class _Blocking(Generic[A_co]):
    """The blocking version of an object that lives in the client's thread."""

    def __init__(self, client: BlockingClient, asyncio_version: A_co) -> None:
        self._client = client
        self._asyncio_version = asyncio_version
        self._closed = False

    def close(self) -> None:
        """End it, once or more; nothing to do after the client was closed."""
        if not self._closed:
            self._closed = True
            try:
                self._client.run(lambda _: self._asyncio_version.close())
            except (ClosedError, ForkedError):
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def blocking(
    method: Callable[Concatenate[A_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocking[A_co], P], T]:
    """Return the blocking version of a coroutine method, with its name, parameters and docstring."""

    @wraps(method)
    def waits(twin: _Blocking[A_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return twin._client.run(lambda _: method(twin._asyncio_version, *args, **kwargs))

    return waits


def in_its_thread(
    method: Callable[Concatenate[A_co, P], T],
) -> Callable[Concatenate[_Blocking[A_co], P], T]:
    """Return the blocking version of a plain method, which may be called in the client's thread only."""

    @wraps(method)
    def waits(twin: _Blocking[A_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return twin._client.run_soon(lambda _: method(twin._asyncio_version, *args, **kwargs))

    return waits


class BlockingSent:
    """A record on its way."""

    def __init__(self, client: BlockingClient, sent: Sent, why_waiting: Callable[[Sent], str]) -> None:
        self._client = client
        self._sent = sent
        self._why_waiting = why_waiting

    @property
    def id(self) -> MessageId | None:
        """The id of its message; None while the message may get more records."""
        return self._sent.id

    @property
    def sent(self) -> Sent:
        """The record as the asyncio producer knows it."""
        return self._sent

    def done(self) -> bool:
        """Return whether the outcome is known, so that `receipt` does not wait."""
        return self._sent.done()

    def result(self, timeout_s: float | None = None) -> Receipt:
        """Wait for the record's outcome, and return its receipt.

        Raises:
            ClientError: its message failed.
            TimeoutError: there is no outcome in time; the record is still sent. It says what the record waits for.
        """

        async def wait() -> Receipt:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._sent
            except TimeoutError as error:
                why = self._why_waiting(self._sent)
                raise TimeoutError(f"no outcome within {timeout_s} s: {why}") from error

        return self._client.run(lambda _: wait())


class BlockingProducer(_Blocking[Producer]):
    """Blocking version of `Producer`; every method waits for the result."""

    def send(
        self,
        to: Destination | Iterable[Destination],
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: int | None = None,
        after: BlockingSent | None = None,
        consumed: Consumed | None = None,
    ) -> Receipt:
        """Multicast a record and wait until it is delivered."""
        before = None if after is None else after.sent
        return self._client.run(
            lambda _: self._asyncio_version.send(
                to,
                value,
                key=key,
                headers=headers,
                timestamp=timestamp,
                after=before,
                consumed=consumed,
            )
        )

    def send_soon(
        self,
        to: Destination | Iterable[Destination],
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: int | None = None,
        after: BlockingSent | None = None,
        consumed: Consumed | None = None,
    ) -> BlockingSent:
        """Multicast a record; wait only for room."""
        before = None if after is None else after.sent
        sent = self._client.run(
            lambda _: self._asyncio_version.send_soon(
                to,
                value,
                key=key,
                headers=headers,
                timestamp=timestamp,
                after=before,
                consumed=consumed,
            )
        )
        return BlockingSent(self._client, sent, self._asyncio_version.why_waiting)

    def send_many(
        self,
        to: Destination | Iterable[Destination],
        values: Iterable[bytes],
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> list[BlockingSent]:
        """Multicast a record of each value, in one step; wait only for room."""
        sent = self._client.run(
            lambda _: self._asyncio_version.send_many(to, values, key=key, headers=headers)
        )
        why_waiting = self._asyncio_version.why_waiting
        return [BlockingSent(self._client, one, why_waiting) for one in sent]

    saw = in_its_thread(Producer.saw)
    flush = blocking(Producer.flush)


class BlockingConsumer(_Blocking[Consumer]):
    """Blocking version of `Consumer`; every method waits for the result."""

    poll = blocking(Consumer.poll)
    seek = in_its_thread(Consumer.seek)
    positions = in_its_thread(Consumer.positions)
    lag = in_its_thread(Consumer.lag)
    commit = blocking(Consumer.commit)
    committed = blocking(Consumer.committed)

    def __iter__(self) -> Iterator[Record]:
        """Yield records for ever."""
        while True:
            yield from self.poll(60.0)


class BlockingMergedConsumer(_Blocking[MergedConsumer]):
    """Blocking version of `MergedConsumer`; every method waits for the result."""

    poll = blocking(MergedConsumer.poll)
    position = in_its_thread(MergedConsumer.position)


class BlockingTopics(_Blocking[Topics]):
    """Blocking version of `Topics`; producers and consumers come opened. Close it before the client."""

    def __init__(self, client: BlockingClient) -> None:
        super().__init__(client, client.run_soon(Topics))

    @property
    def topics(self) -> Topics:
        """The asyncio version, which runs in the client's thread; use it through `BlockingClient.run`."""
        return self._asyncio_version

    list = blocking(Topics.list)
    describe = blocking(Topics.describe)
    create = blocking(Topics.create)
    retain = blocking(Topics.retain)
    ensure = blocking(Topics.ensure)
    alter = blocking(Topics.alter)
    delete = blocking(Topics.delete)
    bounds = blocking(Topics.bounds)
    offsets_at = blocking(Topics.offsets_at)

    def producer(self, **options: Any) -> BlockingProducer:
        """Return an open producer; options are those of `Producer`."""
        return BlockingProducer(self._client, self._opened(lambda: self.topics.producer(**options)))

    def consumer(self, what: str | Partition | Iterable[str | Partition], **options: Any) -> BlockingConsumer:
        """Return an open consumer; options are those of `Consumer`."""
        return BlockingConsumer(self._client, self._opened(lambda: self.topics.consumer(what, **options)))

    def merged(self, topic: str, **options: Any) -> BlockingMergedConsumer:
        """Return an open merged consumer; options are those of `MergedConsumer`."""
        return BlockingMergedConsumer(
            self._client, self._opened(lambda: self.topics.merged(topic, **options))
        )

    def _opened(self, make: Callable[[], Opened]) -> Opened:
        async def opened() -> Opened:
            made = make()
            await made.open()
            return made

        return self._client.run(lambda _: opened())
