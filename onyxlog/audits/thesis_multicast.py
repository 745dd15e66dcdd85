"""The AtomicKafka thesis' tables 5.1 to 5.6: beside raw results, and what its own figures say of each other. Pure.

F. R. Tvedt, Strict ordering guarantees for event-source systems, 2019: five topics, a node each; messages of two clients
with 20,000 each, but for 5.1; five milliseconds of sleep after each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import frozen

from onyxlog.audits.measured_multicast import MeasuredCell, MeasuredSends
from onyxlog.audits.rules.published_multicast import records, records_of

TOPICS: Final = 5
MIX_MESSAGES: Final = 40_000
HEADLINE: Final = {"5.1": 83.6, "5.2": 26.6, "5.6": 15.25}
"""Deliveries per second of its conclusion."""

_NODES = tuple[tuple[float, float, float], ...]
_PUBLISHED: Final[tuple[tuple[str, float, int, int, _NODES], ...]] = (
    # (table, share to all topics, seconds, records, (in, out, delivered per second) of each node)
    (
        *("5.1", 0.0, 270, 300_000),
        ((180.8, 90.7, 90.9), (198.3, 99.4, 99.1), (156.5, 78.3, 78.1), (166.6, 83.3, 83.0), (201.0, 93.5, 93.4)),
    ),
    (
        *("5.2", 0.1, 810, 260_883),
        ((57.6, 42.9, 18.0), (15.5, 11.7, 3.7), (65.6, 44.6, 17.6), (15.7, 11.9, 3.8), (15.9, 12.1, 3.9)),
    ),
    (
        *("5.3", 0.2, 1185, 361_769),
        ((62.3, 52.9, 13.3), (19.2, 15.0, 3.7), (39.0, 37.3, 7.7), (19.4, 15.3, 3.8), (19.5, 15.3, 3.8)),
    ),
    (
        *("5.4", 0.3, 1215, 515_680),
        ((50.9, 53.5, 9.4), (23.8, 18.8, 4.8), (45.4, 49.6, 8.5), (23.9, 18.9, 4.8), (24.0, 19.0, 4.8)),
    ),
    (
        *("5.5", 0.4, 1395, 644_928),
        ((59.3, 69.7, 9.0), (31.6, 25.5, 5.8), (51.1, 62.4, 7.9), (31.8, 25.8, 5.8), (32.2, 26.1, 5.9)),
    ),
    (
        *("5.6", 0.5, 1980, 771_776),
        ((65.7, 76.5, 10.1), (30.7, 24.3, 5.4), (35.3, 51.6, 5.3), (30.9, 24.9, 5.5), (31.0, 24.6, 5.4)),
    ),
)  # fmt: skip


@frozen
class PublishedMix:
    """One table, and what follows from its own figures.

    Attributes:
        messages: that make the records: all to one topic in 5.1, 40,000 in the mixes.
        several: messages to all topics that make up the records, not a whole number where those cannot have been all.
        of_rates: records by the nodes' rates and the run's length.
        node_mean: deliveries per second, mean of the nodes; `headline`: as the conclusion has them, if it does.
    """

    table: str
    share: float
    seconds: int
    records: int
    messages: int
    several: float
    of_rates: float
    node_mean: float
    headline: float | None

    @property
    def implied_share(self) -> float:
        return self.several / self.messages


def published_mixes() -> tuple[PublishedMix, ...]:
    """All six."""
    found = []
    for table, share, seconds, total, nodes in _PUBLISHED:
        # Of messages to one topic alone nothing is left over: so many there were.
        messages = total // records(1) if share == 0.0 else MIX_MESSAGES
        several = (total - records_of([(1, messages)])) / (records(TOPICS) - records(1))
        of_rates = seconds * sum(incoming + outgoing for incoming, outgoing, _ in nodes)
        mean = sum(delivered for *_, delivered in nodes) / len(nodes)
        found.append(
            PublishedMix(table, share, seconds, total, messages, several, of_rates, mean, HEADLINE.get(table))
        )
    return tuple(found)


@frozen
class Mix:
    """A cell of ours, from its counts. `times`: deliveries per second and topic to the mean of the thesis' nodes."""

    run: str
    name: str
    table: str
    messages: int
    several: int
    records: int
    deliveries: int
    elapsed_s: float
    per_topic: tuple[float, ...]
    times: float | None

    @property
    def per_second(self) -> float:
        return self.messages / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def formula(self) -> int:
        """3 for each message and 32 more for each that goes to five topics: 120,000 + 32 x of 40,000."""
        return 3 * self.messages + 32 * self.several


def mixes(cells: Iterable[MeasuredCell], sends: Iterable[MeasuredSends]) -> list[Mix]:
    """Cells of five topics whose messages go to one or to all of them: what tables 5.1 to 5.6 are about."""
    by_cell: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for one in sends:
        by_cell.setdefault((one.file, one.run, one.name), []).append((one.destinations, sum(one.counts)))
    theirs = {mix.table: mix for mix in published_mixes()}
    found = []
    for cell in cells:
        sizes = by_cell.get((cell.file, cell.run, cell.name), [])
        if cell.reason or cell.topics != TOPICS or not {d for d, _ in sizes} <= {1, TOPICS}:
            continue
        table = _table_of(cell)
        rates = [0.0] * cell.topics
        for place, delivered in enumerate(cell.delivered):
            rates[place // cell.partitions] += delivered / cell.elapsed_s
        mean = sum(rates) / len(rates)
        found.append(
            Mix(
                run=cell.run,
                name=cell.name,
                table=table,
                messages=sum(count for _, count in sizes),
                several=sum(count for d, count in sizes if d > 1),
                records=records_of(sizes),
                deliveries=sum(cell.delivered),
                elapsed_s=cell.elapsed_s,
                per_topic=tuple(rates),
                times=mean / theirs[table].node_mean if table else None,
            )
        )
    return found


def _table_of(cell: MeasuredCell) -> str:
    """ "" if none of the thesis' is of that mix: 5.1 has a producer per topic, the others two."""
    for table, share, *_ in _PUBLISHED:
        producers = TOPICS if table == "5.1" else 2
        if abs(cell.share - share) < 1e-9 and cell.producers == producers:
            return table
    return ""
