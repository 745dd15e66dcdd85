"""S17: all logs together have one order, found from the deliveries alone, without trusting a stamp. Pure.

Only messages that are delivered by several groups can be on a cycle through several logs; an edge leads from
each to the next one of the same log. A log of all of them is cut into epochs: each log at places of its own,
so that every message is on the same side of a cut in all of its logs. Then no cycle crosses a cut, and epochs
are judged separately, each in linear time. Stamps only propose where to cut; a cut that some message would
cross is not made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Final

from attrs import frozen

from onyxlog.audits.rules.check import Check, Derived, Input, Rule, Tables
from onyxlog.audits.rules.cycles import graph_of, shortest_cycle
from onyxlog.audits.rules.violation import Violation, violation_at

RULE: Final = "S17"
ACYCLIC: Final = "deliveries of all logs have one order"
EPOCH_ROWS: Final = 50_000
"""The number of deliveries that an epoch should have: what one task holds in memory."""


@frozen(kw_only=True)
class CrossingRow:
    """A delivery of a message that several groups delivered. `epoch`: between which cuts."""

    epoch: int
    server: int
    instance: str
    group: int
    offset: int
    producer: int
    number: int
    file: str
    file_offset: int


def _acyclic(rows: Iterator[CrossingRow]) -> Iterator[Violation]:
    """Judge one epoch, log by log in order of offsets."""
    orders: list[list[tuple[int, int]]] = []
    evidence: dict[tuple[tuple[int, int], tuple[int, int]], CrossingRow] = {}
    for _, log in groupby(rows, key=lambda row: (row.group, row.server, row.instance)):
        delivered = list(log)
        orders.append(
            [(row.producer, row.number) for row in delivered]
        )  # one message twice in a row is no order: S18 sees it
        for before, after in pairwise(delivered):
            edge = (before.producer, before.number), (after.producer, after.number)
            evidence.setdefault(edge, after)
    cycle = shortest_cycle(graph_of(orders))
    if cycle:
        edges = [evidence[edge] for edge in pairwise([*cycle, cycle[0]])]
        first = edges[0]
        steps = "; ".join(
            f"{cycle[n][0]}:{cycle[n][1]} before {row.producer}:{row.number} at group {row.group}, offset {row.offset}, "
            f"server {row.server}"
            for n, row in enumerate(edges)
        )
        yield violation_at(
            first,
            rule=RULE,
            promise=ACYCLIC,
            subject=f"a cycle of {len(cycle)} messages",
            index=first.offset,
            expected="one order of all messages that agrees with every log",
            found=steps,
        )


def _crossing(tables: Tables) -> list[CrossingRow]:
    """Do what the SQL below does, step by step."""
    deliveries = tables.get("deliveries", ())
    groups: dict[tuple[int, int], set[int]] = defaultdict(set)
    for row in deliveries:
        groups[row.producer, row.number].add(row.group)
    crossing = [row for row in deliveries if len(groups[row.producer, row.number]) > 1]
    if not crossing:
        return []
    times = [row.time for row in crossing]
    width = -(-(max(times) - min(times) + 1) // (len(crossing) // EPOCH_ROWS + 1))
    crossing.sort(key=lambda row: (row.server, row.instance, row.group, row.offset))
    levels: list[int] = []
    for _, log in groupby(crossing, key=lambda row: (row.server, row.instance, row.group)):
        level = 0
        for row in log:
            level = max(level, (row.time - min(times)) // width)
            levels.append(level)
    spans: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, level in zip(crossing, levels, strict=True):
        spans[row.producer, row.number].append(level)
    crossed = {cut for span in spans.values() for cut in range(min(span) + 1, max(span) + 1)}
    return [
        CrossingRow(
            epoch=level - sum(cut <= level for cut in crossed),
            server=row.server,
            instance=row.instance,
            group=row.group,
            offset=row.offset,
            producer=row.producer,
            number=row.number,
            file=row.file,
            file_offset=row.file_offset,
        )
        for row, level in zip(crossing, levels, strict=True)
    ]


CROSSING: Final = Derived(
    name="crossing_deliveries",
    row=CrossingRow,
    needs=("deliveries",),
    sql=(
        (
            "crossing_only",
            "SELECT d.* FROM deliveries d LEFT SEMI JOIN (SELECT producer, number FROM deliveries GROUP BY ALL "
            "HAVING min(`group`) != max(`group`)) m ON d.producer = m.producer AND d.number = m.number",
        ),
        (
            "crossing_times",
            "SELECT min(time) AS earliest, CAST(ceil((max(time) - min(time) + 1) / "
            f"(count(*) DIV {EPOCH_ROWS} + 1)) AS BIGINT) AS width FROM crossing_only",
        ),
        (
            "crossing_levels",
            "SELECT d.*, max((time - earliest) DIV width) OVER (PARTITION BY server, instance, `group` ORDER BY offset) "
            "AS level FROM crossing_only d CROSS JOIN crossing_times",
        ),
        (
            "crossed_cuts",
            "SELECT DISTINCT explode(sequence(low + 1, high)) AS cut FROM (SELECT min(level) AS low, max(level) AS high "
            "FROM crossing_levels GROUP BY producer, number) WHERE low < high",
        ),
        (
            "crossing_epochs",
            "SELECT l.level, l.level - count(c.cut) AS epoch FROM (SELECT DISTINCT level FROM crossing_levels) l "
            "LEFT JOIN crossed_cuts c ON c.cut <= l.level GROUP BY l.level",
        ),
        (
            "crossing_deliveries",
            "SELECT e.epoch, d.server, d.instance, d.`group`, d.offset, d.producer, d.number, d.file, d.file_offset "
            "FROM crossing_levels d JOIN crossing_epochs e ON d.level = e.level",
        ),
    ),
    rows=_crossing,
)

ACYCLICITY: Final = Rule(
    id=RULE,
    title="One order of all deliveries",
    claim="there is one order of all messages that every log of every replica agrees with, whatever stamps say",
    checks=(
        Check(
            ACYCLIC,
            (Input("crossing_deliveries", ("epoch",), ("group", "server", "offset")),),
            _acyclic,
            derived=(CROSSING,),
        ),
    ),
)
