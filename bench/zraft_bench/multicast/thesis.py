"""What the AtomicKafka thesis measured (tables 5.1 to 5.6), and how many records its algorithms write. Pure.

Five topics, five nodes, messages of two clients with 20,000 each and 5 ms of sleep after each; replicated by Kafka on
twelve machines. The order of destinations is decided by single nodes, whose failure nothing survives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

SINGLE_RECORDS: Final = 3
"""Of a message to one topic: written by the client, delivered, and the delivery read."""

MESSAGES: Final = 40_000
"""Of the mixes; the baseline has 100,000, by five clients."""

HEADLINE: Final[Mapping[str, float]] = {"baseline": 83.6, "10%": 26.6, "50%": 15.25}
"""Deliveries per second as its conclusion names them; they do not follow from its tables."""

FACTOR_WANTED: Final = 100.0
"""Times its rates that ours should be."""


@frozen
class NodeRates:
    """Records per second in and out of a node, and deliveries per second of its topic."""

    incoming: float
    outgoing: float
    delivered: float


@frozen
class Scenario:
    """One of the tables. `share` of the messages is addressed to all five topics, as the text says."""

    table: str
    share: float
    messages: int
    seconds: int
    records: int
    nodes: tuple[NodeRates, ...]

    @property
    def mean_delivered(self) -> float:
        return sum(node.delivered for node in self.nodes) / len(self.nodes)

    @property
    def implied_share(self) -> float:
        """What the records that were counted say that the share was."""
        return implied_multicasts(self.messages, self.records, len(self.nodes)) / self.messages


def _scenario(table: str, share: float, messages: int, seconds: int, records: int, rates: str) -> Scenario:
    nodes = tuple(NodeRates(*map(float, node.split("/"))) for node in rates.split())
    return Scenario(table, share, messages, seconds, records, nodes)


SCENARIOS: Final = (
    _scenario(
        *("5.1", 0.0, 100_000, 270, 300_000),
        "180.8/90.7/90.9 198.3/99.4/99.1 156.5/78.3/78.1 166.6/83.3/83.0 201.0/93.5/93.4",
    ),
    _scenario(
        *("5.2", 0.1, MESSAGES, 810, 260_883),
        "57.6/42.9/18.0 15.5/11.7/3.7 65.6/44.6/17.6 15.7/11.9/3.8 15.9/12.1/3.9",
    ),
    _scenario(
        *("5.3", 0.2, MESSAGES, 1185, 361_769),
        "62.3/52.9/13.3 19.2/15.0/3.7 39.0/37.3/7.7 19.4/15.3/3.8 19.5/15.3/3.8",
    ),
    _scenario(
        *("5.4", 0.3, MESSAGES, 1215, 515_680),
        "50.9/53.5/9.4 23.8/18.8/4.8 45.4/49.6/8.5 23.9/18.9/4.8 24.0/19.0/4.8",
    ),
    _scenario(
        *("5.5", 0.4, MESSAGES, 1395, 644_928),
        "59.3/69.7/9.0 31.6/25.5/5.8 51.1/62.4/7.9 31.8/25.8/5.8 32.2/26.1/5.9",
    ),
    _scenario(
        *("5.6", 0.5, MESSAGES, 1980, 771_776),
        "65.7/76.5/10.1 30.7/24.3/5.4 35.3/51.6/5.3 30.9/24.9/5.5 31.0/24.6/5.4",
    ),
)


def multicast_records(destinations: int) -> int:
    """Of one message by the optimised algorithm, each notification, acknowledgement, decision and delivery written and read.

    3 for one destination, 35 for five.
    """
    others = destinations - 1
    return 1 + 3 * 2 * others + 2 * destinations


def total_records(sizes: Iterable[tuple[int, int]]) -> int:
    """Of a mix of (number of destinations, how many messages): for 40,000 of which x go to all five, 120,000 + 32 x."""
    return sum(multicast_records(destinations) * count for destinations, count in sizes)


def implied_multicasts(messages: int, records: int, destinations: int) -> float:
    """How many of the messages went to `destinations` topics, if so many records were counted in all."""
    return (records - SINGLE_RECORDS * messages) / (multicast_records(destinations) - SINGLE_RECORDS)


def published(share: float, *, five_producers: bool) -> Scenario | None:
    """The table for a cell, None if there is none: 0 % was published with five producers, the others with two."""
    for scenario in SCENARIOS:
        if abs(scenario.share - share) < 1e-9 and (scenario.share == 0.0) == five_producers:
            return scenario
    return None
