"""Base of mounted producers and consumer groups: their client, and Kafka Lite's one topic."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final

from zraft_client.blocking import BlockingClient
from zraft_client.client import Hosts
from zraft_client.kafkalite.errors import translated
from zraft_client.topics.blocking import BlockingTopics

TOPIC: Final = "kafka-lite"


class Mounted:
    """A client and the topic; `unmount` ends both. It is also a context manager."""

    def __init__(
        self, server_addr: Hosts, topic: str, partitions: int | None, options: dict[str, Any]
    ) -> None:
        with translated():
            self.client = BlockingClient(server_addr, **options)
            try:
                self.topics = BlockingTopics(self.client)
                self.topic = topic
                if partitions is None:
                    self.partitions = len(self.topics.describe(topic).partitions)
                else:
                    self.partitions = len(self.topics.ensure(topic, partitions).partitions)
            except BaseException:
                self.client.close()
                raise

    def _end(self) -> None:
        """Do what must be done before the client closes."""

    def unmount(self) -> None:
        """`Unmount`: end the connections. It may be called again."""
        try:
            self._end()
            self.topics.close()
        finally:
            self.client.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unmount()
