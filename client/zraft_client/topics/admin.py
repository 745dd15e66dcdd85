"""Topics of a cluster over one client: lists and changes them, and makes producers and consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from zraft_client.client import Client
from zraft_client.errors import BadArgumentsError, DeadlineError, FailedError, UnimplementedError
from zraft_client.topics import requests
from zraft_client.topics.bounds import bounds_of
from zraft_client.topics.claims_port import TopicsPort
from zraft_client.topics.consumer import Consumer, Partition
from zraft_client.topics.directory import Directory
from zraft_client.topics.merged import MergedConsumer
from zraft_client.topics.producer import Producer
from zraft_client.topics.values import FEATURES_OF_RECORDS, Bounds, ConsumerPlace, Metadata, Topic
from zraft_core.errors import Code
from zraft_core.layout import NUMBER_MAX

POLL_S: Final = 0.05
POLL_S_MAX: Final = 0.5


class Topics:
    """The topics of a cluster. Use it as an async context manager, or `close` it before the client."""

    def __init__(self, client: Client) -> None:
        self.directory = Directory(client)
        self._client = client

    async def __aenter__(self) -> Topics:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connections to servers; its producers and consumers cannot be used any more."""
        await self.directory.close()

    # -- what there is

    async def list(self) -> tuple[Topic, ...]:
        """Return all topics, by name."""
        metadata = await self.directory.refresh()
        return tuple(sorted(metadata.topics.values(), key=lambda topic: topic.name))

    async def describe(self, name: str) -> Topic:
        """Return one topic.

        Raises:
            NoTopicError: there is none of this name.
        """
        return (await self.directory.refresh()).topic(name)

    async def metadata(self) -> Metadata:
        """Return topics, and where the replicas of all partitions are."""
        return await self.directory.refresh()

    async def bounds(self, name: str, *, timeout_s: float | None = None) -> dict[int, Bounds]:
        """Return where each partition begins and ends: whatever was acknowledged before the call is in it.

        Raises:
            NoTopicError: there is no such topic.
            DeadlineError: a partition's leader did not answer in time.
        """
        topic = await self.directory.topic(name)
        timeout_s = self._client.timeout_s if timeout_s is None else timeout_s
        found = await asyncio.gather(
            *(bounds_of(self.directory, group, timeout_s) for group in topic.partitions)
        )
        return dict(enumerate(found))

    async def bounds_of(self, name: str, partition: int, *, timeout_s: float | None = None) -> Bounds:
        """Return where one partition of a topic begins and ends: whatever was acknowledged before the call is in it.

        Raises:
            NoTopicError: there is no such partition.
            NoAuthError: the topic may not be read.
            DeadlineError: the partition's leader did not answer in time.
        """
        group = (await self.directory.known()).group(name, partition)
        timeout_s = self._client.timeout_s if timeout_s is None else timeout_s
        try:
            return await bounds_of(self.directory, group, timeout_s)
        except DeadlineError as error:
            raise DeadlineError(f"{name}/{partition}: {error}") from error

    async def offsets_at(self, name: str, time_ms: int, *, timeout_s: float | None = None) -> dict[int, int]:
        """Return the offset of the first record of each partition that was delivered at a time or later.

        It is the end where there is none yet. Records count as delivered when the servers say so, whatever timestamps
        their producers gave them; the records of a batch are delivered together.

        Args:
            name: the topic.
            time_ms: milliseconds since 1970.

        Raises:
            NoTopicError: there is no such topic.
            BadArgumentsError: the time lies before 1970.
            NoAuthError: the topic may not be read.
            UnimplementedError: the servers' feature level is below 6.
            DeadlineError: a partition's leader did not answer in time.
        """
        if not 0 <= time_ms <= NUMBER_MAX:
            raise BadArgumentsError(f"time_ms: found {time_ms}, expected milliseconds since 1970")
        topic = await self.directory.topic(name)
        features = (await self.directory.known()).features
        if features < FEATURES_OF_RECORDS:
            features = (await self.directory.refresh()).features
        if features < FEATURES_OF_RECORDS:
            raise UnimplementedError(
                f"the servers' feature level is {features}: they find offsets by time from level {FEATURES_OF_RECORDS} on"
            )
        timeout_s = self._client.timeout_s if timeout_s is None else timeout_s
        found = await asyncio.gather(
            *(
                self.directory.ask_leader(group, requests.offset_at(group, time_ms), timeout_s)
                for group in topic.partitions
            )
        )
        return dict(enumerate(found))

    async def consumers(self, name: str, *, timeout_s: float | None = None) -> tuple[ConsumerPlace, ...]:
        """Return who consumes a topic, and how far each is: by partition, those first that store their offset themselves.

        Raises:
            NoTopicError: there is no such topic.
            DeadlineError: a partition's leader did not answer in time.
        """
        topic = await self.directory.topic(name)
        found = await asyncio.gather(
            *(
                self.consumers_of(name, partition, timeout_s=timeout_s)
                for partition in range(len(topic.partitions))
            )
        )
        return tuple(place for places in found for place in places)

    async def consumers_of(
        self, name: str, partition: int, *, timeout_s: float | None = None
    ) -> tuple[ConsumerPlace, ...]:
        """Return who consumes one partition of a topic, and how far each is.

        Raises:
            NoTopicError: there is no such partition.
            DeadlineError: the partition's leader did not answer in time.
        """
        group = (await self.directory.known()).group(name, partition)
        timeout_s = self._client.timeout_s if timeout_s is None else timeout_s
        try:
            found = await self.directory.ask_leader(group, requests.consumers(group), timeout_s)
        except DeadlineError as error:
            raise DeadlineError(f"{name}/{partition}: {error}") from error
        return tuple(
            ConsumerPlace(name, partition, consumer, offset, found.end or 0, owners)
            for consumer, offset, owners in found.consumers or ()
        )

    async def set_offset(
        self,
        name: str,
        partition: int,
        consumer: bytes,
        offset: int | None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Set the offset that a consumer continues with when it begins anew; None forgets the consumer.

        Raises:
            NoTopicError: there is no such partition.
            BadArgumentsError: the partition keeps no more names.
            DeadlineError: its leader did not answer in time.
        """
        await self.directory.topic(name)
        group = (await self.directory.known()).group(name, partition)
        timeout_s = self._client.timeout_s if timeout_s is None else timeout_s
        stored = await self.directory.ask_leader(group, requests.seek(group, consumer, offset), timeout_s)
        if stored is None and offset is not None:
            raise BadArgumentsError(
                f"{name}/{partition}: the partition keeps as many consumers' offsets as topics.consumers_max allows"
            )

    # -- changes

    async def create(
        self,
        name: str,
        partitions: int = 1,
        *,
        retention_bytes: int | None = None,
        retention_age_ms: int | None = None,
        wait: bool = True,
        timeout_s: float | None = None,
    ) -> Topic:
        """Create a topic; by default wait until all its partitions exist. Without a retention it keeps everything.

        Raises:
            NodeExistsError: there is one of this name.
            BadArgumentsError: the name, or the number of partitions, is not allowed.
            DeadlineError: it is created, and its partitions do not exist yet.
        """
        await self._client.ask(requests.create_topic(name, partitions, retention_bytes, retention_age_ms))
        return await self._until_complete(name, timeout_s) if wait else await self.describe(name)

    async def ensure(self, name: str, partitions: int = 1, *, timeout_s: float | None = None) -> Topic:
        """Return the topic, created if there is none. An existing one may have another number of partitions."""
        try:
            return await self.create(name, partitions, timeout_s=timeout_s)
        except FailedError as error:
            if error.code is not Code.NODE_EXISTS:
                raise
        return await self._until_complete(name, timeout_s)

    async def alter(
        self, name: str, partitions: int, *, wait: bool = True, timeout_s: float | None = None
    ) -> Topic:
        """Raise the number of partitions; by default wait until they take messages. It can never fall.

        Raises:
            NoNodeError: there is no such topic.
            BadArgumentsError: these are fewer partitions than there are.
            FailedError: with RECONFIG_IN_PROGRESS, its last change is not finished.
        """
        await self._client.ask(requests.alter_topic(name, partitions))
        return await self._until_complete(name, timeout_s) if wait else await self.describe(name)

    async def retain(
        self, name: str, *, retention_bytes: int | None = None, retention_age_ms: int | None = None
    ) -> None:
        """Set how much of each partition is kept from now on: more than so much, younger than that; None: everything.

        Raises:
            NoNodeError: there is no such topic.
        """
        await self._client.ask(requests.retain_topic(name, retention_bytes, retention_age_ms))

    async def delete(self, name: str) -> None:
        """Delete a topic: it takes no more messages; those that were begun are delivered.

        Raises:
            NoNodeError: there is no such topic.
        """
        await self._client.ask(requests.delete_topic(name))

    async def _until_complete(self, name: str, timeout_s: float | None) -> Topic:
        timeout_s = self._client.timeout_s if timeout_s is None else timeout_s
        pause = POLL_S
        topic: Topic | None = None
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    topic = (await self.directory.refresh()).topic(name)
                    if topic.is_complete:
                        return topic
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, POLL_S_MAX)
        except TimeoutError:
            found = "an answer" if topic is None else f"{len(topic.partitions)} of {topic.wanted} partitions"
            raise DeadlineError(f"topic {name!r}: found {found} after {timeout_s:g} s") from None

    # -- who uses them

    def producer(self, **options: Any) -> Producer:
        """Return a producer that is not open yet; options are those of `Producer`."""
        return Producer(self.directory, **options)

    def consumer(self, what: str | Partition | Iterable[str | Partition], **options: Any) -> Consumer:
        """Return a consumer that is not open yet; options are those of `Consumer`."""
        return Consumer(self.directory, what, **options)

    def claims_port(self, **options: Any) -> TopicsPort:
        """Return what `zraft_client.claims.Marshaler` needs: consumers that share partitions.

        Source: docs/explanation/claims.md.
        """
        return TopicsPort(self.directory, **options)

    def merged(self, topic: str, **options: Any) -> MergedConsumer:
        """Return one order over all partitions of a topic; options are those of `MergedConsumer`."""
        return MergedConsumer(self.directory, topic, **options)
