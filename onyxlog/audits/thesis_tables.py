"""The headline tables of the theses, recomputed from what was measured (rule S22's other half). Pure.

Published figures (`onyxlog.theses`) stand beside what comes of our raw results, cell by cell; where a cell was not
measured, nothing does. Zatt's are compared here, those of the other theses in modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from onyxlog.audits.measurements import OK, MeasuredTest, Measurements
from onyxlog.audits.rules.published_figures import Elections, elections
from onyxlog.audits.thesis_gossip import CopyRow, PoolRow, copy_rows, pool_rows
from onyxlog.audits.thesis_multicast import Mix, mixes
from onyxlog.theses import zatt
from onyxlog.theses.atomic_kafka import SCENARIOS, Scenario


@frozen
class Cell:
    """One cell of Zatt's tables. `stable`: every attempt at it succeeded at once; `times`: ours to its best."""

    target: str
    servers: int
    workers: int
    entries: int
    value_bytes: int
    tests: int
    seconds_per_entry: float
    per_second: float
    kb_per_second: float
    stable: bool
    published_best: int | None

    @property
    def times(self) -> float | None:
        """The factor between our figure and the thesis' best one; None without a published figure."""
        return self.per_second / self.published_best if self.published_best else None


def cells(tests: Iterable[MeasuredTest]) -> list[Cell]:
    """Return the closed-loop writes by cell; time and requests of several tests of one cell are summed."""
    found: dict[tuple[str, int, int, int, int], list[MeasuredTest]] = {}
    for test in tests:
        if test.operation == "write" and test.rate is None:
            key = (test.target, test.servers, test.workers, test.entries, test.value_bytes)
            found.setdefault(key, []).append(test)
    return [_cell(key, some) for key, some in sorted(found.items())]


def _cell(key: tuple[str, int, int, int, int], tests: Sequence[MeasuredTest]) -> Cell:
    target, servers, workers, entries, size = key
    good = [test for test in tests if test.state == OK and not test.superseded]
    seconds, count = sum(test.elapsed_s for test in good), sum(test.acknowledged for test in good)
    return Cell(
        target=target,
        servers=servers,
        workers=workers,
        entries=entries,
        value_bytes=size,
        tests=len(tests),
        seconds_per_entry=seconds / count if count else 0.0,
        per_second=count / seconds if seconds else 0.0,
        kb_per_second=count * size / 1000 / seconds if seconds else 0.0,
        stable=all(test.state == OK for test in tests),
        published_best=zatt.best_of(workers, entries, size),
    )


@frozen
class ThesisTables:
    """Tables of the theses beside our measurements."""

    cells: tuple[Cell, ...]
    elections: Elections | None
    """The elections of runs that measured some; None if no run did."""
    published_mixes: tuple[Scenario, ...] = ()
    mixes: tuple[Mix, ...] = ()
    pools: tuple[PoolRow, ...] = ()
    copies: tuple[CopyRow, ...] = ()


def thesis_tables(measured: Measurements) -> ThesisTables:
    """Return all that can be recomputed: of raw results, and of the theses' own figures."""
    of_elections = [trial for trial in measured.trials if trial.kind == "election"]
    limits = tuple(limit for limit, _ in zatt.ELECTION_SHARES)
    return ThesisTables(
        tuple(cells(measured.tests)),
        elections(of_elections, limits) if of_elections else None,
        SCENARIOS,
        tuple(mixes(measured.cells, measured.sends)),
        tuple(pool_rows(measured.pools)),
        tuple(copy_rows(measured.copies)),
    )
