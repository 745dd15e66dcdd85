"""Connections of the servers: one that remembers, and a program that produces what a test says."""

from __future__ import annotations

import random

from tests.simulation.partitions import programs as simulated
from tests.unit.server.partitions.cluster import Cluster
from zraft.topics.service import Consumers, Fetched, Offset, TopicRefusal
from zraft_core.claims.answers import ClaimAnswer, ClaimsView
from zraft_core.ids import GroupId
from zraft_core.topics.message import Message
from zraft_core.topics.messages import Reply
from zraft_core.topics.producer import ProducerCore, Reach
from zraft_core.topics.registry_values import Table


class Client:
    """A connection that remembers what it was answered."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, Reply]] = []
        self.fetched: list[tuple[int, Fetched]] = []
        self.claims: list[tuple[int, ClaimAnswer | ClaimsView]] = []
        self.offsets: list[tuple[int, Offset]] = []
        self.consumers: list[tuple[int, Consumers]] = []
        self.refused: list[tuple[int, TopicRefusal]] = []

    def on_reply(self, id: int, reply: Reply) -> None:
        self.replies.append((id, reply))

    def on_fetched(self, id: int, fetched: Fetched) -> None:
        self.fetched.append((id, fetched))

    def on_claim(self, id: int, answer: ClaimAnswer | ClaimsView) -> None:
        self.claims.append((id, answer))

    def on_offset(self, id: int, offset: Offset) -> None:
        self.offsets.append((id, offset))

    def on_consumers(self, id: int, consumers: Consumers) -> None:
        self.consumers.append((id, consumers))

    def on_refused(self, id: int, refusal: TopicRefusal) -> None:
        self.refused.append((id, refusal))


class Producing(simulated.Producing):
    """A producer's library that sends what a test says to all destinations, and keeps what it is told."""

    def __init__(self, cluster: Cluster) -> None:
        coordinator = cluster.coordinator
        producer = ProducerCore(coordinator.register(), coordinator.registry.table())
        super().__init__(producer, random.Random(0), cluster.service_of, cluster.now)
        producer.reach = Reach.ALL
        self.cluster = cluster
        self.told: list[Reply] = []

    def say(self, *destinations: GroupId, payload: bytes = b"") -> Message:
        """Multicast one message."""
        message = self.producer.multicast(destinations, payload or b"m%d" % (self.producer.last + 1))
        self._say(message)
        return message

    def work(self, table: Table | None = None) -> None:
        super().work(table or self.cluster.coordinator.registry.table())

    def on_reply(self, id: int, reply: Reply) -> None:
        self.told.append(reply)
        super().on_reply(id, reply)
