"""Figures of the AtomicKafka thesis (tables 5.1 to 5.6), and its algorithms' numbers of records.

Pure.

Five topics, five nodes, messages of two clients with 20,000 each and 5 ms of sleep after each; replicated by Kafka on
twelve machines. The order of destinations is decided by single nodes, whose failure nothing survives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import frozen

from onyxlog.theses.figures import FIGURES

SINGLE_RECORDS: Final = 3
"""The records of a message to one topic: written by the client, delivered, and the delivery read."""

HEADLINE: Final[Mapping[str, float]] = FIGURES["atomic_kafka"]["headline"]
"""Deliveries per second as its conclusion names them; they do not follow from its tables."""


@frozen
class NodeRates:
    """Records per second in and out of a node, and deliveries per second of its topic."""

    incoming: float
    outgoing: float
    delivered: float


@frozen
class Scenario:
    """One of the tables, and what follows from its own figures.

    Attributes:
        share: of the messages that are addressed to all topics, as the text says.
        headline: deliveries per second as the conclusion has them, if it does.
    """

    table: str
    share: float
    producers: int
    messages: int
    seconds: int
    records: int
    nodes: tuple[NodeRates, ...]
    headline: float | None

    @property
    def mean_delivered(self) -> float:
        """Deliveries per second, mean of the nodes."""
        return sum(node.delivered for node in self.nodes) / len(self.nodes)

    @property
    def several(self) -> float:
        """Messages to all topics that make up the records; no whole number where the records cannot be all."""
        return implied_multicasts(self.messages, self.records, len(self.nodes))

    @property
    def implied_share(self) -> float:
        """The share that the counted records imply."""
        return self.several / self.messages

    @property
    def of_rates(self) -> float:
        """Records by the nodes' rates and the run's length."""
        return self.seconds * sum(node.incoming + node.outgoing for node in self.nodes)


def _scenario(plain: dict[str, Any]) -> Scenario:
    nodes = tuple(NodeRates(*rates) for rates in plain["nodes"])
    headline = HEADLINE[plain["headline"]] if "headline" in plain else None
    return Scenario(**{**plain, "nodes": nodes, "headline": headline})


def multicast_records(destinations: int) -> int:
    """Return the number of records that one message takes by the optimised algorithm.

    3 for one destination, 35 for five.
    """
    others = destinations - 1
    return 1 + 3 * 2 * others + 2 * destinations


def total_records(sizes: Iterable[tuple[int, int]]) -> int:
    """Return the number of records of a mix of (number of destinations, number of messages)."""
    return sum(multicast_records(destinations) * count for destinations, count in sizes)


def implied_multicasts(messages: int, records: int, destinations: int) -> float:
    """Return how many of the messages went to `destinations` topics, given the number of all records."""
    return (records - SINGLE_RECORDS * messages) / (multicast_records(destinations) - SINGLE_RECORDS)


SCENARIOS: Final = tuple(_scenario(plain) for plain in FIGURES["atomic_kafka"]["tables"])
TOPICS: Final = len(SCENARIOS[0].nodes)


def published(share: float, *, five_producers: bool) -> Scenario | None:
    """Return the table for a cell, None if there is none.

    0 % was published with five producers, the others with two.
    """
    for scenario in SCENARIOS:
        if abs(scenario.share - share) < 1e-9 and (scenario.producers == TOPICS) == five_producers:
            return scenario
    return None
