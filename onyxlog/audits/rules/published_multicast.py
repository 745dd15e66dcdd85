"""S22: published figures of multicast and gossip follow from what was counted.

Pure; shares nothing with the counting.

Records of the AtomicKafka thesis' optimised algorithm: its client writes a message to d topics once. From the
topic it enters by there are d - 1 notifications, acknowledgements and decisions, each written and read, and d
deliveries, each written and read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from onyxlog.audits.measured_multicast import MeasuredCell, MeasuredSends
from onyxlog.audits.rules.check import Check, Input
from onyxlog.audits.rules.published_figures import RULE, TOLERANCE, percentile_ms
from onyxlog.audits.rules.violation import Violation

ACCOUNTS: Final = "multicast is accounted for"


def records(destinations: int) -> int:
    """Return the records of one message, written and read: 3 to one topic, 35 to five."""
    if destinations == 1:
        return 1 + 1 + 1
    client = 1
    notified = acknowledged = decided = 2 * (destinations - 1)
    return client + notified + acknowledged + decided + 2 * destinations


def records_of(sizes: Iterable[tuple[int, int]]) -> int:
    """Return the records of (destinations, messages): 120,000 + 32 x of 40,000 messages of which x go to five topics."""
    return sum(records(destinations) * messages for destinations, messages in sizes)


def _figures(cell: MeasuredCell, sends: list[MeasuredSends]) -> Iterator[tuple[str, float, float]]:
    """Yield (figure, recomputed, published)."""
    sizes = [(one.destinations, sum(one.counts)) for one in sends]
    yield "messages", sum(count for _, count in sizes), cell.messages
    yield "messages to several", sum(count for d, count in sizes if d > 1), cell.multicasts
    yield "deliveries", sum(d * count for d, count in sizes), sum(cell.delivered)
    yield "records of the thesis' algorithm", records_of(sizes), cell.thesis_records
    for place, (delivered, rate) in enumerate(zip(cell.delivered, cell.per_second, strict=True)):
        yield f"deliveries per second of place {place}", delivered / cell.elapsed_s, rate
    for one in sends:
        to = f"of messages to {one.destinations}"
        yield f"count {to}", sum(one.counts), one.published
        yield f"mean ms {to}", one.total_ms / max(1, sum(one.counts)), one.mean_ms
        for name, published in zip(one.percentile_names, one.percentiles_ms, strict=True):
            yield f"p{name} ms {to}", percentile_ms(one, float(name)), published


def _cells(rows: Iterator[MeasuredCell | MeasuredSends]) -> Iterator[Violation]:
    cell: MeasuredCell | None = None
    sends: list[MeasuredSends] = []
    for row in rows:
        if isinstance(row, MeasuredCell):
            cell = row
        else:
            sends.append(row)
    if cell is None or cell.reason:
        return  # the file says itself that its figures do not count
    for figure, recomputed, published in _figures(cell, sends):
        if not math.isclose(recomputed, published, rel_tol=TOLERANCE, abs_tol=1e-9):
            yield Violation(
                rule=RULE,
                promise=ACCOUNTS,
                subject=f"{figure}, cell {cell.name} of run {cell.run}",
                file=cell.file,
                expected=f"{recomputed:.6g}, from "
                + ", ".join(f"{sum(one.counts)} messages to {one.destinations}" for one in sends),
                found=f"{published:.6g}",
            )


MULTICAST_FIGURES: Final = Check(
    ACCOUNTS,
    (
        Input("measured_cells", ("file", "run", "name"), (0,)),
        Input("measured_sends", ("file", "run", "name"), ("destinations",)),
    ),
    _cells,
    needed=("measured_cells",),
)
