"""The algorithms that this multicast descends from, as published and with their clocks corrected: controls for the checks.

A node per topic reads one perfect log (no loss, no crash, no repeat); the only choice is who reads next. The published ones
still deliver in different orders, and the checks have to say so; with the corrected clock they must find nothing. They have
no fault tolerance at all, and nothing of the product uses them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from random import Random
from typing import Final

from attrs import frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.multicast.checks import cycle_in, disagreement

Topic = str


class Variant(Enum):
    """`ALL_TO_ALL`: every destination tells every other its time. `BY_ENTRY`: the entry node collects and decides."""

    ALL_TO_ALL = "first algorithm, as published: the clock is set to the final time, also backwards"
    BY_ENTRY = "second algorithm, as published: the clock is raised to the final time, not above it"
    PROGRAM = "the program that was measured: acknowledgements carry the asker's time"
    ALL_TO_ALL_CORRECTED = "first algorithm with a clock that is above every final time"
    BY_ENTRY_CORRECTED = "second algorithm with a clock that is above every final time"


PUBLISHED: Final = (Variant.ALL_TO_ALL, Variant.BY_ENTRY, Variant.PROGRAM)
CORRECTED: Final = (Variant.ALL_TO_ALL_CORRECTED, Variant.BY_ENTRY_CORRECTED)


class Kind(Enum):
    CLIENT = "client"
    NOTIFY = "notify"
    ACK = "ack"
    DECIDED = "decided"


@frozen
class Message:
    """`entry` is the destination that the client wrote it to."""

    number: int
    destinations: tuple[Topic, ...]
    entry: Topic


@frozen
class Record:
    """An item of a topic's log."""

    kind: Kind
    message: Message
    sender: Topic
    time: int = 0


class _Node:
    """The only reader of a topic's log. Queued messages are ordered by (time, number)."""

    def __init__(self, topic: Topic, variant: Variant, clock: int) -> None:
        self.topic = topic
        self.variant = variant
        self.clock = clock
        self.log: deque[Record] = deque()
        self.times: dict[int, int] = {}
        self.decided: set[int] = set()
        self.proposals: dict[int, dict[Topic, int]] = {}
        self.delivered: list[int] = []

    @property
    def _all_to_all(self) -> bool:
        return self.variant in (Variant.ALL_TO_ALL, Variant.ALL_TO_ALL_CORRECTED)

    def read(self) -> list[tuple[Topic, Record]]:
        """Take the next record; gives what it appends to other logs."""
        record = self.log.popleft()
        match record.kind:
            case Kind.CLIENT:
                out = self._on_client(record.message)
            case Kind.NOTIFY:
                out = self._on_notify(record)
            case Kind.ACK:
                out = self._on_ack(record)
            case Kind.DECIDED:
                self._on_decided(record)
                out = []
        self._deliver()
        return out

    def _propose(self, message: Message) -> int:
        time = self.clock
        self.clock += 1
        self.times[message.number] = time
        self.proposals.setdefault(message.number, {})[self.topic] = time
        return time

    def _others(self, message: Message) -> list[Topic]:
        return [topic for topic in message.destinations if topic != self.topic]

    def _on_client(self, message: Message) -> list[tuple[Topic, Record]]:
        time = self._propose(message)
        if message.destinations == (self.topic,):
            self.decided.add(message.number)
        return [(topic, Record(Kind.NOTIFY, message, self.topic, time)) for topic in self._others(message)]

    def _on_notify(self, record: Record) -> list[tuple[Topic, Record]]:
        message = record.message
        if self.variant is Variant.PROGRAM:
            self.clock = max(self.clock, record.time)
        time = self._propose(message)
        if not self._all_to_all:
            told = record.time if self.variant is Variant.PROGRAM else time
            return [(record.sender, Record(Kind.ACK, message, self.topic, told))]
        self.proposals[message.number][record.sender] = record.time
        self._complete(message)
        return [(topic, Record(Kind.ACK, message, self.topic, time)) for topic in self._others(message)]

    def _on_ack(self, record: Record) -> list[tuple[Topic, Record]]:
        message = record.message
        self.proposals.setdefault(message.number, {})[record.sender] = record.time
        if self.variant is Variant.PROGRAM and self.clock <= record.time:
            self.clock = record.time + 1
        if not self._complete(message) or self._all_to_all:
            return []
        final = self.times[message.number]
        return [(topic, Record(Kind.DECIDED, message, self.topic, final)) for topic in self._others(message)]

    def _complete(self, message: Message) -> bool:
        proposals = self.proposals[message.number]
        known = message.number in self.times and message.number not in self.decided
        if not known or len(proposals) < len(message.destinations):
            return False
        self._decide(message, max(proposals.values()))
        return True

    def _on_decided(self, record: Record) -> None:
        if self.variant is Variant.PROGRAM and self.clock < record.time:
            self.clock = record.time + 1
        self._decide(record.message, record.time)

    def _decide(self, message: Message, final: int) -> None:
        self.times[message.number] = final
        self.decided.add(message.number)
        match self.variant:
            case Variant.ALL_TO_ALL:
                self.clock = final
            case Variant.BY_ENTRY:
                self.clock = max(self.clock, final)
            case Variant.PROGRAM:
                pass
            case Variant.ALL_TO_ALL_CORRECTED | Variant.BY_ENTRY_CORRECTED:
                self.clock = max(self.clock, final + 1)

    def _deliver(self) -> None:
        while self.times:
            first = min(self.times, key=lambda number: (self.times[number], number))
            if first not in self.decided:
                return
            del self.times[first]
            self.delivered.append(first)


class Nodes:
    """All topics' nodes, driven step by step."""

    def __init__(self, variant: Variant, clocks: Mapping[Topic, int]) -> None:
        self.nodes = {topic: _Node(topic, variant, clock) for topic, clock in clocks.items()}
        self.messages: list[Message] = []

    def write(self, message: Message) -> None:
        """A client appends a message to its entry topic's log."""
        self.messages.append(message)
        self.nodes[message.entry].log.append(Record(Kind.CLIENT, message, message.entry))

    def read(self, *topics: Topic) -> None:
        """Let these nodes take a record each, in this order."""
        for topic in topics:
            for to, record in self.nodes[topic].read():
                self.nodes[to].log.append(record)

    def readable(self) -> list[Topic]:
        return [topic for topic, node in self.nodes.items() if node.log]

    def orders(self) -> dict[Topic, list[int]]:
        return {topic: node.delivered for topic, node in self.nodes.items()}

    def judge(self) -> None:
        """Raises:
        BrokenPromiseError: a message is not delivered, or two topics do not agree on the order.
        """
        orders = self.orders()
        for message in self.messages:
            missing = [topic for topic in message.destinations if message.number not in orders[topic]]
            if missing:
                raise BrokenPromiseError("agreement", f"{message} is not delivered at {missing}")
        topics = sorted(orders)
        for at, first in enumerate(topics):
            for second in topics[at + 1 :]:
                found = disagreement(orders[first], orders[second])
                if found is not None:
                    raise BrokenPromiseError("order", f"{first} has {found[0]}, {second} has {found[1]}")
        cycle = cycle_in(orders.values())
        if cycle is not None:
            raise BrokenPromiseError("order", f"cycle {cycle}")


def random_run(variant: Variant, rng: Random, topics: Sequence[Topic], count: int) -> Nodes:
    """`count` messages to random destinations, read in a random order to the end."""
    nodes = Nodes(variant, {topic: rng.choice([0, 0, 1, 3]) for topic in topics})
    numbers = list(range(1, count + 1))
    rng.shuffle(numbers)
    waiting: list[Message] = []
    for number in numbers:
        size = rng.choice([1, 2, 2, len(topics)])
        destinations = tuple(sorted(rng.sample(topics, size)))
        waiting.append(Message(number, destinations, rng.choice(destinations)))
    while (readable := nodes.readable()) or waiting:
        choice = rng.randrange(len(readable) + len(waiting))
        if choice < len(readable):
            nodes.read(readable[choice])
        else:
            nodes.write(waiting.pop(choice - len(readable)))
    return nodes


def violations(variant: Variant, seeds: int, topics: Sequence[Topic], count: int) -> int:
    """In how many of so many random runs the checks find something."""
    found = 0
    for seed in range(seeds):
        try:
            random_run(variant, Random(seed), topics, count).judge()
        except BrokenPromiseError:
            found += 1
    return found
