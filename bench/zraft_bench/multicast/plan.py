"""Plan of a multicast cell: each message's destinations and content, and its number of messages.

Pure.

A message's destinations follow from the cell, its producer and its number, so that a reader of a log knows
what must be in it without being told. A *place* is a partition of a topic, numbered through: topic *
partitions + partition.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from enum import Enum
from typing import Final

from attrs import evolve, field, frozen, validators

from zraft_client.topics.options import Order
from zraft_core.errors import ZraftError

PERIOD: Final = 1000
"""Shares of messages are exact over so many, so that no cell depends on luck."""

HEADER: Final = struct.Struct(">IIQQ")
"""Nonce of the cell, producer, number of the message, when it was sent (us, monotonic clock of the machine)."""

MESSAGES_UNDECIDED_MAX: Final = 1_024
"""Servers keep this many undecided messages of a producer."""

BURST: Final = 128
"""Messages that share one task of the load generator where they share batches."""

TOPICS_MAX: Final = 64
MESSAGES_MAX: Final = 1_000_000
THESIS_TOPICS: Final = 5
THESIS_PRODUCERS: Final = 2
THESIS_MESSAGES: Final = 20_000
THESIS_SLEEP_MS: Final = 5.0
SHARES: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


class Singles(Enum):
    """Places for messages that are addressed to one topic only."""

    OWN = "own"
    """Each producer has a topic of its own, as in the thesis."""
    EVEN = "even"
    """Singles go to all topics in equal shares."""


@frozen(kw_only=True)
class Cell:
    """One test of multicast.

    Attributes:
        share: of the messages that are addressed to `fanout` topics, 0 to 1.
        fanout: how many topics such a message is addressed to; chosen at random if not all.
        messages: each producer sends at least so many.
        seconds: and goes on so long, unless `messages_max` of all producers together were sent before.
        window: messages of one producer that may be undecided: the loop is closed.
        batch_bytes: messages to the same topics travel together, in batches of up to so many bytes; 0: each alone.
        in_a_row: so many messages of a producer go to the same partition before the next one's turn comes, as where
            producers choose partitions themselves; a divisor of `PERIOD`.
        reads_after: consumers begin when everything was sent, so that both have a rate of their own.
        order: what the messages of one producer promise among each other.
        sleep_ms: after each message; then rates say nothing, and only latency is compared.
        deadline_s: for the last messages to arrive once everything was sent.
    """

    name: str
    share: float = field(default=0.0, validator=[validators.ge(0.0), validators.le(1.0)])
    fanout: int = field(default=THESIS_TOPICS, validator=validators.ge(1))
    topics: int = field(default=THESIS_TOPICS, validator=[validators.ge(1), validators.le(TOPICS_MAX)])
    partitions: int = field(default=1, validator=[validators.ge(1), validators.le(TOPICS_MAX)])
    producers: int = field(default=THESIS_PRODUCERS, validator=[validators.ge(1), validators.le(64)])
    singles: Singles = Singles.OWN
    messages: int = field(default=THESIS_MESSAGES, validator=validators.ge(1))
    seconds: float = field(default=20.0, validator=validators.ge(0.0))
    messages_max: int = field(default=MESSAGES_MAX, validator=validators.ge(1))
    window: int = field(default=256, validator=[validators.ge(1), validators.le(65_536)])
    batch_bytes: int = field(default=0, validator=validators.ge(0))
    in_a_row: int = field(default=1, validator=validators.ge(1))
    reads_after: bool = False
    order: Order = Order.PARTITION
    value_bytes: int = field(default=100, validator=[validators.ge(HEADER.size), validators.le(900_000)])
    sleep_ms: float = field(default=0.0, validator=validators.ge(0.0))
    deadline_s: float = field(default=60.0, validator=validators.gt(0.0))
    seed: int = 1

    def __attrs_post_init__(self) -> None:
        if self.fanout > self.topics:
            raise ValueError(
                f"fanout: found {self.fanout}, expected at most the {self.topics} topics there are"
            )
        if PERIOD % self.in_a_row:
            raise ValueError(f"in_a_row: found {self.in_a_row}, expected a divisor of {PERIOD}")

    @property
    def burst(self) -> int:
        """The number of messages that are sent one after the other before their answers are waited for."""
        return min(BURST, self.window) if self.batch_bytes else 1

    @property
    def places(self) -> int:
        """The number of partitions of all topics."""
        return self.topics * self.partitions

    def limit_of(self, producer: int) -> int:
        """Return how many messages a producer sends at most."""
        share = self.messages_max // self.producers + (producer < self.messages_max % self.producers)
        return max(self.messages, share)

    def is_enough(self, producer: int, sent: int, elapsed_s: float) -> bool:
        """Return whether the producer has sent as many messages for as long as the cell wants."""
        return sent >= self.limit_of(producer) or (sent >= self.messages and elapsed_s >= self.seconds)


Destinations = tuple[int, ...]
"""Places, ascending."""


class Deck:
    """Destinations of one producer's messages: message n goes to `of[n % len(of)]`."""

    def __init__(self, cell: Cell, producer: int) -> None:
        rng = random.Random(f"{cell.seed} {producer}")
        several = round(cell.share * PERIOD)
        own = producer * cell.topics // cell.producers
        topics: list[Sequence[int]] = []
        for n in range(PERIOD):
            if n < several:
                chosen = rng.sample(range(cell.topics), cell.fanout) if cell.fanout < cell.topics else None
                topics.append(sorted(chosen) if chosen is not None else range(cell.topics))
            else:
                topics.append((own if cell.singles is Singles.OWN else n % cell.topics,))
        rng.shuffle(topics)
        # Partitions take turns, the same one of each topic; so a deck is as many times as long.
        self.of: tuple[Destinations, ...] = tuple(
            tuple(
                topic * cell.partitions + n // cell.in_a_row % cell.partitions for topic in topics[n % PERIOD]
            )
            for n in range(PERIOD * cell.partitions)
        )

    def destinations(self, number: int) -> Destinations:
        """Return the destinations of a message."""
        return self.of[number % len(self.of)]

    def multicasts(self, count: int) -> int:
        """Return how many of the first `count` messages go to more than one place."""
        full, rest = divmod(count, len(self.of))
        several = [len(one) > 1 for one in self.of]
        return full * sum(several) + sum(several[:rest])

    def deliveries(self, count: int) -> list[tuple[int, int]]:
        """Return (number of destinations, how many of the first `count` messages have so many), ascending."""
        full, rest = divmod(count, len(self.of))
        found: dict[int, int] = {}
        for n, one in enumerate(self.of):
            found[len(one)] = found.get(len(one), 0) + full + (n < rest)
        return sorted(found.items())


class ForeignPayloadError(ZraftError):
    """Error of a message that this cell does not send, or that was changed on its way."""


@frozen
class Header:
    """Header at the beginning of every message."""

    producer: int
    number: int
    sent_us: int


class Payloads:
    """Contents of a cell's messages; `nonce` (32 bits) tells runs apart."""

    def __init__(self, cell: Cell, nonce: int) -> None:
        self._nonce = nonce
        self._filler = random.Random(f"{cell.seed} payload").randbytes(cell.value_bytes - HEADER.size)

    def make(self, producer: int, number: int, sent_us: int) -> bytes:
        """Return a message's bytes."""
        return HEADER.pack(self._nonce, producer, number, sent_us) + self._filler

    def read(self, payload: bytes) -> Header:
        """Read the header of a payload.

        Raises:
            ForeignPayloadError: the payload is not of this cell, or was changed.
        """
        if len(payload) < HEADER.size or payload[HEADER.size :] != self._filler:
            raise ForeignPayloadError(f"a payload of {len(payload)} bytes is not what was sent")
        nonce, producer, number, sent_us = HEADER.unpack_from(payload)
        if nonce != self._nonce:
            raise ForeignPayloadError(
                f"expected messages of run {self._nonce:08x}, found one of run {nonce:08x}"
            )
        return Header(producer, number, sent_us)


def thesis_cells(base: Cell) -> list[Cell]:
    """Return the scenarios of tables 5.1 to 5.6, in their order, after the one that was published as their baseline.

    The published baseline had five producers, the mixes two; so what 50 % cost there cannot be read from the
    tables. Here both have a cell of 0 %.
    """
    cells = [
        evolve(base, name="baseline, five producers", share=0.0, producers=base.topics, singles=Singles.OWN)
    ]
    return cells + [evolve(base, name=f"{share:.0%}", share=share) for share in SHARES]


def latency_cells(base: Cell) -> list[Cell]:
    """Return cells with one message under way at a time, to one, two, and all topics: latency without queues."""
    wanted = sorted({1, min(2, base.topics), base.topics})
    return [
        evolve(
            base,
            name=f"alone, to {count}",
            share=0.0 if count == 1 else 1.0,
            fanout=count,
            producers=1,
            singles=Singles.EVEN,
            window=1,
            messages=min(base.messages, 200),
            seconds=min(base.seconds, 10.0),
        )
        for count in wanted
    ]


STREAM_BYTES: Final = (100, 1000)
STREAM_PARTITIONS: Final = (1, 8)


def stream_cells(base: Cell) -> list[Cell]:
    """Return cells of one topic with a producer and a consumer: values of 100 bytes and of 1 KB, over 1 and 8 partitions."""
    return [
        evolve(
            base,
            name=f"stream, {partitions} x {value_bytes} B",
            share=0.0,
            fanout=1,
            topics=1,
            partitions=partitions,
            producers=1,
            value_bytes=value_bytes,
        )
        for value_bytes in STREAM_BYTES
        for partitions in STREAM_PARTITIONS
    ]


BATCHED_WINDOW: Final = 8_192
"""Records under way of a producer whose records travel in batches: more than fifty batches of 16 KiB."""
RECORDS_MAX: Final = 10_000_000
IN_A_ROW: Final = 125
"""Records of 100 bytes that fill a batch of 16 KiB; in orders FIFO and CAUSAL one to another partition ends the batch."""


def records_cells(base: Cell) -> list[Cell]:
    """Return cells of one producer of records that travel in batches, beside one whose records travel alone.

    Consumers begin when it is done.
    """
    one = evolve(
        base,
        share=0.0,
        fanout=1,
        topics=1,
        producers=1,
        batch_bytes=16 * 1024,
        window=BATCHED_WINDOW,
        messages_max=RECORDS_MAX,
        reads_after=True,
    )
    return [
        evolve(one, name="100 B, batches of 16 KiB", value_bytes=100),
        evolve(one, name="1,000 B, batches of 64 KiB", value_bytes=1000, batch_bytes=64 * 1024),
        evolve(one, name="100 B, each alone", value_bytes=100, batch_bytes=0, window=256),
        evolve(one, name="100 B, eight partitions", value_bytes=100, partitions=8),
        evolve(one, name="100 B, 64 partitions", value_bytes=100, partitions=64),
        evolve(one, name="100 B, eight partitions, FIFO", value_bytes=100, partitions=8, order=Order.FIFO),
        evolve(
            one, name="100 B, eight partitions, CAUSAL", value_bytes=100, partitions=8, order=Order.CAUSAL
        ),
    ]


ORDER_PARTITIONS: Final = 4
ORDER_RUNS: Final = 3


def order_cells(base: Cell) -> list[Cell]:
    """Return cells with one producer to each of four partitions in turn, under every order.

    The orders take turns, too, so that noise meets all.
    """
    return [
        evolve(
            base,
            name=f"{order.value}, {run + 1}",
            share=0.0,
            fanout=1,
            topics=1,
            partitions=ORDER_PARTITIONS,
            producers=1,
            order=order,
        )
        for run in range(ORDER_RUNS)
        for order in Order
    ]
