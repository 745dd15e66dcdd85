"""Kafka Lite's consumers (K-4): ranges of partitions from any replica, shared by some consumers, and new messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen

from zraft_client.client import Client, Hosts
from zraft_client.errors import BadArgumentsError
from zraft_client.kafkalite.errors import InvalidPartitionIdError, translated
from zraft_client.kafkalite.mounting import TOPIC, Mounted
from zraft_client.topics.blocking import BlockingConsumer
from zraft_client.topics.reading_range import read_range


@frozen
class ConsumerRecord:
    """Result of one poll of one partition; `last_offset` is that of the last of `messages`."""

    partition_id: int
    messages: tuple[bytes, ...]
    last_offset: int


class ConsumerGroup(Mounted):
    """A consumer group, from `mount_consumer_group`; any number of threads may use it."""

    def __init__(
        self,
        server_addr: Hosts,
        num_consumers: int,
        topic: str,
        partitions: int | None,
        options: dict[str, Any],
    ) -> None:
        if num_consumers < 1:
            raise BadArgumentsError(f"num_consumers: found {num_consumers}, expected 1 or more")
        super().__init__(server_addr, topic, partitions, options)
        self.num_consumers = num_consumers
        self._consumer: BlockingConsumer | None = None

    def __enter__(self) -> ConsumerGroup:
        return self

    def consume(self, partition_ids: Iterable[int], offset: int, n: int) -> dict[int, list[bytes]]:
        """`Consume`: return up to `n` committed messages of each partition from `offset` on.

        There are fewer if the partition ends before. The partitions are split evenly among the group's
        consumers, which read at the same time.

        Raises:
            InvalidPartitionIdError: the topic has no such partition.
            LeaderNotFoundError: no replica of one of them answered within the client's `timeout_s`.
        """
        if offset < 0 or n < 0:
            raise BadArgumentsError(f"consume: found offset {offset} and n {n}, expected 0 or more")
        wanted = list(dict.fromkeys(partition_ids))
        for partition in wanted:
            if partition < 0:
                raise InvalidPartitionIdError(f"partition {partition}: expected 0 or more")
        directory = self.topics.topics.directory
        shares = split_evenly(wanted, self.num_consumers)

        async def consumer(share: Sequence[int]) -> dict[int, list[bytes]]:
            found: dict[int, list[bytes]] = {}
            for partition in share:
                records = await read_range(directory, self.topic, partition, offset, n)
                found[partition] = [record.value for record in records]
            return found

        async def everybody(_: Client) -> list[dict[int, list[bytes]]]:
            return await asyncio.gather(*(consumer(share) for share in shares))

        with translated():
            found: dict[int, list[bytes]] = {}
            for share in self.client.run(everybody):
                found |= share
            return {partition: found[partition] for partition in wanted}

    def poll(self, timeout_s: float) -> list[ConsumerRecord]:
        """`Poll`: return what is new in all partitions since the last poll, and wait so long for it.

        The first poll begins at offset 0.
        """
        with translated():
            if self._consumer is None:
                self._consumer = self.topics.consumer(self.topic)
            messages: dict[int, list[bytes]] = {}
            last: dict[int, int] = {}
            for record in self._consumer.poll(timeout_s):
                messages.setdefault(record.partition, []).append(record.value)
                last[record.partition] = record.offset
            return [
                ConsumerRecord(partition, tuple(values), last[partition])
                for partition, values in sorted(messages.items())
            ]

    def seek(self, partition_id: int, offset: int) -> None:
        """Let the next poll of a partition continue at this offset."""
        with translated():
            if self._consumer is None:
                self._consumer = self.topics.consumer(self.topic)
            self._consumer.seek(self.topic, partition_id, offset)

    def _end(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def split_evenly(partitions: Sequence[int], consumers: int) -> list[Sequence[int]]:
    """Return shares that differ by one partition at most; empty ones are left out."""
    shares = [partitions[start::consumers] for start in range(consumers)]
    return [share for share in shares if share]


def mount_consumer_group(
    server_addr: Hosts,
    num_consumers: int = 1,
    *,
    topic: str = TOPIC,
    partitions: int | None = None,
    **options: Any,
) -> ConsumerGroup:
    """`MountConsumerGroup`: connect to any server; the others are learned from it. Arguments are `mount_producer`'s."""
    return ConsumerGroup(server_addr, num_consumers, topic, partitions, options)
