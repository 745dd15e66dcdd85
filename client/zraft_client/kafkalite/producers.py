"""Kafka Lite's producer (K-5): messages to a partition that the program chooses, acknowledged when they are committed."""

from __future__ import annotations

from typing import Any

from zraft_client.client import Hosts
from zraft_client.kafkalite.errors import InvalidPartitionIdError, LeaderNotFoundError, translated
from zraft_client.kafkalite.mounting import TOPIC, Mounted
from zraft_client.topics.blocking import BlockingSent


class LiteProducer(Mounted):
    """A producer, from `mount_producer`; any number of threads may use it."""

    def __init__(
        self, server_addr: Hosts, topic: str, partitions: int | None, options: dict[str, Any]
    ) -> None:
        super().__init__(server_addr, topic, partitions, options)
        with translated():
            self._producer = self.topics.producer()

    def __enter__(self) -> LiteProducer:
        return self

    def add_message(self, partition_id: int, data: bytes) -> int:
        """`AddMessage`: append to a partition, and wait until it is committed; return its offset.

        However often it is repeated, it is in the partition once. The client's `timeout_s` bounds the wait.

        Raises:
            InvalidPartitionIdError: the topic has no such partition.
            LeaderNotFoundError: no leader answered in time; it may yet be appended.
            BrokerDisconnectError: the session ended; it is appended once or not at all.
        """
        return self.add_message_timeout(partition_id, data, self.client.timeout_s)

    def add_message_timeout(self, partition_id: int, data: bytes, timeout_s: float) -> int:
        """`AddMessageTimeout`: append as `add_message` does, within another time.

        Raises:
            InvalidPartitionIdError: the topic has no such partition.
            LeaderNotFoundError: no leader answered in time; or the message is appended, and no offset was
                told.
            BrokerDisconnectError: the session ended; it is appended once or not at all.
        """
        sent = self._send(partition_id, data)
        with translated():
            receipt = sent.result(timeout_s)
        offset = receipt.offsets.get((self.topic, partition_id))
        if (
            offset is None
        ):  # its answer was lost, and servers do not keep the offset of what is known everywhere
            raise LeaderNotFoundError(
                f"partition {partition_id}: the message is appended, at an offset that nobody told"
            )
        return offset

    def add_message_soon(self, partition_id: int, data: bytes) -> BlockingSent:
        """Append without waiting: many messages at a time are what makes it fast (K-10)."""
        return self._send(partition_id, data)

    def flush(self) -> None:
        """Wait until everything that was added is committed."""
        with translated():
            self._producer.flush()

    def _send(self, partition_id: int, data: bytes) -> BlockingSent:
        if partition_id < 0:
            raise InvalidPartitionIdError(f"partition {partition_id}: expected 0 or more")
        with translated():
            return self._producer.send_soon((self.topic, partition_id), data)

    def _end(self) -> None:
        self._producer.close()


def mount_producer(
    server_addr: Hosts, *, topic: str = TOPIC, partitions: int | None = None, **options: Any
) -> LiteProducer:
    """`MountProducer`: connect to any server; the others are learned from it.

    Args:
        server_addr: as `Client`'s `hosts`.
        topic: the one topic; it must exist unless `partitions` says how many to create it with.
        partitions: how many partitions to create the topic with.
        options: those of `Client`.
    """
    return LiteProducer(server_addr, topic, partitions, options)
