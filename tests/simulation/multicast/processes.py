"""Programs that multicast and that consume, around the shipped `ProducerCore` and `Merger`. They may die at any step."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Mapping, Sequence
from operator import attrgetter
from random import Random

from tests.simulation.multicast.hosted import HostedGroup
from zraft_core.ids import GroupId
from zraft_core.topics.merger import MergePosition, Merger
from zraft_core.topics.message import Condition, Message
from zraft_core.topics.messages import Reply, StartRequest
from zraft_core.topics.producer import Ended, ProducerCore
from zraft_core.topics.registry_values import Table
from zraft_core.topics.stamps import MessageId, Stamp

CONSUMERS = (b"one", b"two")


def records_of(seq: int) -> int:
    """Return how many records a producer's message of this number has: every third one is a batch."""
    return 0 if seq % 3 else 1 + seq // 3 % 4


class Producing:
    """A program with `left` messages to send. `eager` programs take "accepted" for an answer."""

    def __init__(
        self,
        producer: ProducerCore,
        left: int,
        rng: Random,
        groups: Mapping[GroupId, HostedGroup],
        *,
        causal: float,
        ordered: bool = False,
        avoided: Callable[[], Container[GroupId]] = frozenset,
    ) -> None:
        """`avoided`: groups to which nothing is sent."""
        self._avoided = avoided
        self.producer = producer
        self.ordered = producer.rounds = ordered
        """Everything comes behind all that was sent before; with `stamps_ascend` in the order of stamps, too."""
        self.stamps_ascend = ordered and producer.producer % 2 == 0
        self._round_destinations_max = 64 if producer.producer % 3 else 2
        self.left = left
        self.alive = True
        self.causal = causal
        self.eager = rng.random() < 0.5
        self._rng = rng
        self._groups = groups
        self._sent: list[Message] = []

    @property
    def is_done(self) -> bool:
        return not self.alive or self.producer.expired or not (self.left or self.producer.undecided())

    def produce(self) -> Message | None:
        """Perhaps one more message."""
        producer, rng = self.producer, self._rng
        undecided = producer.undecided()
        if not self.left or not producer.has_room or (undecided and rng.random() < 0.5):
            return None
        avoided = self._avoided()
        known = sorted(group for group in producer.table.groups if group not in avoided)
        if not known:
            return None
        self.left -= 1
        destinations = rng.sample(known, min(len(known), rng.choice([1, 1, 2, 2, 3])))
        after, condition, depends = None, None, 0
        earlier = [
            m for m in self._sent[-3:] if set(m.destinations) & set(destinations) or rng.random() < 0.2
        ]
        if earlier and rng.random() < 0.4:
            after = earlier[-1]
        if rng.random() < 0.2:
            home = rng.choice(sorted(destinations))
            consumer = rng.choice(CONSUMERS)
            consumed = self._groups[home].partition.offsets.get(consumer, 0)
            condition = Condition(home, consumer, consumed, consumed + 1)
        if rng.random() < self.causal:
            seen = [g.delivered[-1].stamp.time for g in self._groups.values() if g.delivered]
            depends = max(seen, default=0)
        payload = b"%d/%d" % (producer.producer, producer.last + 1)
        records = records_of(producer.last + 1)
        if self.ordered:
            message = producer.multicast(
                destinations,
                payload,
                condition=condition,
                depends=depends,
                ordered=True,
                causal=self.stamps_ascend,
                records=records,
            )
        else:
            message = producer.multicast(
                destinations, payload, after=after, condition=condition, depends=depends, records=records
            )
        self._sent = [*self._sent[-2:], message]
        return message

    def take_round(self) -> Message | None:
        return self.producer.take_round(self._round_destinations_max) if self.alive else None

    def requests(self) -> list[tuple[GroupId, StartRequest]]:
        """What to send now, for a few of what is undecided."""
        undecided = self.producer.undecided()
        chosen = self._rng.sample(undecided, min(len(undecided), 2))
        return [request for seq in chosen for request in self.producer.requests(seq)]

    def on_reply(self, reply: Reply) -> list[Ended]:
        return self.producer.on_reply(reply) if self.alive else []

    def on_table(self, table: Table) -> list[Ended]:
        return self.producer.on_table(table) if self.alive else []


class Consuming:
    """A program that reads all partitions of a topic in the merged order; `out` is what it got."""

    def __init__(
        self,
        partitions: Sequence[GroupId],
        rng: Random,
        groups: Mapping[GroupId, HostedGroup],
        lost: Callable[[], Container[GroupId]] = frozenset,
        present: Callable[[], Sequence[GroupId]] = tuple,
    ) -> None:
        """`lost`: the partitions that are given up and replaced. `present`: those that the topic has."""
        self._lost, self._present = lost, present
        self.merger = Merger(MergePosition(dict.fromkeys(partitions, 0)))
        self.out: list[tuple[Stamp, MessageId]] = []
        self._rng = rng
        self._groups = groups

    def step(self, partitions: Sequence[GroupId]) -> dict[GroupId, int]:
        """Read some of `partitions`; gives who has to advance, and to what time."""
        lost = self._lost()
        for group in self.merger.groups():
            if group in lost and self._rng.random() < 0.5:
                self.merger.lose(group)
        self._begin_again()
        for group in partitions:
            if group in self.merger.groups() and group not in lost:
                self._read(group)
        while found := self.merger.take(self._rng.choice([1, 3, 100])):
            for delivery in found:
                self.out.append((delivery.stamp, delivery.message.mid))
        return self.merger.needed()

    def _read(self, group: GroupId) -> None:
        hosted = self._groups[group]
        self.merger.begin(group, hosted.first_offset)
        first = self.merger.next_offset(group)
        at = bisect_left(hosted.delivered, first, key=attrgetter("offset"))
        rest = hosted.delivered[at:]
        if rest and self._rng.random() < 0.3:
            some = rest[: self._rng.randint(1, len(rest))]
        else:
            some = rest
        frontier = hosted.partition.frontier() if len(some) == len(rest) else some[-1].stamp
        self.merger.feed(group, some, frontier)

    def restart(self) -> None:
        """Another process goes on where this one was."""
        self.merger = Merger(self.merger.position())
        self._begin_again()

    def _begin_again(self) -> None:
        """If no partition is left to tell of those in their places, read what the topic has now."""
        if not self.merger.groups():
            self.merger.add(self._present())
