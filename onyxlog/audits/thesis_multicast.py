"""The AtomicKafka thesis' tables 5.1 to 5.6 beside raw results. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from onyxlog.audits.measured_multicast import MeasuredCell, MeasuredSends
from onyxlog.audits.rules.published_multicast import records_of
from onyxlog.theses.atomic_kafka import TOPICS, published


@frozen
class Mix:
    """A cell of ours, from its counts.

    Attributes:
        table: of the thesis, "" if none of its tables is of that mix.
        times: deliveries per second and topic to the mean of the thesis' nodes.
    """

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
        """The number of messages per second."""
        return self.messages / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def formula(self) -> int:
        """3 for each message and 32 more for each that goes to five topics: 120,000 + 32 x of 40,000."""
        return 3 * self.messages + 32 * self.several


def mixes(cells: Iterable[MeasuredCell], sends: Iterable[MeasuredSends]) -> list[Mix]:
    """Return the cells of five topics whose messages go to one or to all: tables 5.1 to 5.6 are about these."""
    by_cell: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for one in sends:
        by_cell.setdefault((one.file, one.run, one.name), []).append((one.destinations, sum(one.counts)))
    found = []
    for cell in cells:
        sizes = by_cell.get((cell.file, cell.run, cell.name), [])
        if cell.reason or cell.topics != TOPICS or not {d for d, _ in sizes} <= {1, TOPICS}:
            continue
        theirs = published(cell.share, five_producers=cell.producers == TOPICS)
        if theirs is not None and theirs.producers != cell.producers:
            theirs = None
        rates = [0.0] * cell.topics
        for place, delivered in enumerate(cell.delivered):
            rates[place // cell.partitions] += delivered / cell.elapsed_s
        mean = sum(rates) / len(rates)
        found.append(
            Mix(
                run=cell.run,
                name=cell.name,
                table=theirs.table if theirs else "",
                messages=sum(count for _, count in sizes),
                several=sum(count for d, count in sizes if d > 1),
                records=records_of(sizes),
                deliveries=sum(cell.delivered),
                elapsed_s=cell.elapsed_s,
                per_topic=tuple(rates),
                times=mean / theirs.mean_delivered if theirs else None,
            )
        )
    return found
