"""Results files of the benchmark as rows: what was counted, and the figures that the counting program made of it.

This is not the benchmark's own reader, as rule S22 checks whether figures follow from counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from onyxlog.audits.errors import AuditError
from onyxlog.audits.measured_gossip import (
    MEASURED_COPIES,
    MEASURED_POOLS,
    MeasuredCopies,
    MeasuredPools,
    copies_of,
    pools_of,
)
from onyxlog.audits.measured_multicast import (
    MEASURED_CELLS,
    MEASURED_SENDS,
    MeasuredCell,
    MeasuredSends,
    cells_of,
    sends_of,
)
from onyxlog.audits.tables.table import OF_RESULTS, Table

FORMAT: Final = 1
BYTES_MAX: Final = 256 << 20
OK: Final = "ok"


@frozen
class MeasuredTest:
    """One test of a run: counts, the time they took, and the figures that were published of them.

    `buckets` and `counts` are the histogram of durations; `percentile_names` are "50" to "99.99". A figure is
    None where the file has none.
    """

    file: str
    run: str
    number: int
    attempt: int
    target: str
    servers: int
    machines: int
    operation: str
    workers: int
    entries: int
    value_bytes: int
    read_share: float
    rate: float | None
    state: str
    superseded: bool
    acknowledged: int
    elapsed_s: float
    per_second: float
    seconds_per_entry: float
    write_kb_per_s: float
    buckets: tuple[int, ...]
    counts: tuple[int, ...]
    total_ms: float
    longest_ms: float
    mean_ms: float | None
    percentile_names: tuple[str, ...]
    percentiles_ms: tuple[float, ...]
    file_offset: int = 0


@frozen
class MeasuredTrial:
    """One loss of a leader. Times are milliseconds after the loss, None if it was not seen."""

    file: str
    run: str
    kind: str
    number: int
    state: str
    killed: int
    winner: int
    term: int
    stood_ms: float | None
    candidate_ms: float | None
    led_ms: float | None
    served_ms: float | None
    file_offset: int = 0


MEASURED_TESTS: Final = Table(
    "measured_tests",
    MeasuredTest,
    "tests of benchmarks: what was counted, and what was published",
    streams=False,
    comes_from=OF_RESULTS,
)
MEASURED_TRIALS: Final = Table(
    "measured_trials", MeasuredTrial, "elections that were measured", streams=False, comes_from=OF_RESULTS
)


MEASURED: Final = (
    *(MEASURED_TESTS, MEASURED_TRIALS, MEASURED_CELLS, MEASURED_SENDS, MEASURED_POOLS, MEASURED_COPIES),
)


@frozen
class Measurements:
    """All rows of results files."""

    tests: tuple[MeasuredTest, ...] = ()
    trials: tuple[MeasuredTrial, ...] = ()
    cells: tuple[MeasuredCell, ...] = ()
    sends: tuple[MeasuredSends, ...] = ()
    pools: tuple[MeasuredPools, ...] = ()
    copies: tuple[MeasuredCopies, ...] = ()

    def by_table(self) -> dict[str, tuple[Any, ...]]:
        """Return rows by the names of their tables."""
        return {
            "measured_tests": self.tests,
            "measured_trials": self.trials,
            "measured_cells": self.cells,
            "measured_sends": self.sends,
            "measured_pools": self.pools,
            "measured_copies": self.copies,
        }


def read_measurements(paths: Iterable[Path]) -> Measurements:
    """Read all results files among `paths`, and in the directories among them.

    Raises:
        AuditError: a path does not exist, or a file is no results file of this format.
    """
    tests: list[MeasuredTest] = []
    trials: list[MeasuredTrial] = []
    cells: list[MeasuredCell] = []
    sends: list[MeasuredSends] = []
    pools: list[MeasuredPools] = []
    copies: list[MeasuredCopies] = []
    for path in _files(paths):
        plain = _load(path)
        try:
            run = str(plain["id"])
            tests += [_test(path.name, run, one) for one in plain.get("tests", ())]
            trials += [_trial(path.name, run, str(plain["kind"]), one) for one in plain.get("trials", ())]
            cells += cells_of(path.name, run, plain)
            sends += sends_of(path.name, run, plain)
            pools += pools_of(path.name, run, plain)
            copies += copies_of(path.name, run, plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise AuditError(
                f"{path}: expected a results file of format {FORMAT}, a field is missing or of another type: {error!r}"
            ) from error
    return Measurements(tuple(tests), tuple(trials), tuple(cells), tuple(sends), tuple(pools), tuple(copies))


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(path.rglob("result_*.json"))
            if not found:
                raise AuditError(f"{path}: expected results files (result_*.json), found none (--results)")
            yield from found
        elif path.is_file():
            yield path
        else:
            raise AuditError(f"{path}: no such file or directory (--results)")


def _load(path: Path) -> dict[str, Any]:
    if path.stat().st_size > BYTES_MAX:
        raise AuditError(f"{path}: larger than {BYTES_MAX} bytes, which no results file is")
    try:
        plain = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise AuditError(f"{path}: expected JSON, found {error}") from error
    found = plain.get("format") if isinstance(plain, dict) else None
    if found != FORMAT:
        raise AuditError(f"{path}: expected a results file of format {FORMAT}, found format {found!r}")
    return plain  # type: ignore[no-any-return]


def _test(file: str, run: str, plain: Mapping[str, Any]) -> MeasuredTest:
    load, histogram = plain["workload"], plain.get("histogram") or {}
    counted = sorted((int(bucket), int(count)) for bucket, count in histogram.get("counts", {}).items())
    latency = plain.get("latency") or {}
    rate, percentiles = load.get("rate"), latency.get("percentiles", {})
    return MeasuredTest(
        file=file,
        run=run,
        number=int(plain["number"]),
        attempt=int(plain.get("attempt", 1)),
        target=str(plain["target"]),
        servers=int(plain["servers"]),
        machines=int(plain.get("sharing", {}).get("machines", 0)),
        operation=str(load["operation"]),
        workers=int(load["workers"]),
        entries=int(load["entries"]),
        value_bytes=int(load["value_bytes"]),
        read_share=float(load.get("read_share", 0.0)),
        rate=None if rate is None else float(rate),
        state=str(plain["state"]),
        superseded=bool(plain.get("superseded", False)),
        acknowledged=int(plain["acknowledged"]),
        elapsed_s=float(plain["elapsed_s"]),
        per_second=float(plain["per_second"]),
        seconds_per_entry=float(plain["seconds_per_entry"]),
        write_kb_per_s=float(plain["write_kb_per_s"]),
        buckets=tuple(bucket for bucket, _ in counted),
        counts=tuple(count for _, count in counted),
        total_ms=float(histogram.get("total", 0.0)),
        longest_ms=float(histogram.get("largest", 0.0)),
        mean_ms=None if not latency.get("count") else float(latency["mean_ms"]),
        percentile_names=tuple(map(str, percentiles)),
        percentiles_ms=tuple(map(float, percentiles.values())),
    )


def _trial(file: str, run: str, kind: str, plain: Mapping[str, Any]) -> MeasuredTrial:
    def ms(name: str) -> float | None:
        found = plain.get(name)
        return None if found is None else float(found)

    return MeasuredTrial(
        file=file,
        run=run,
        kind=kind,
        number=int(plain["number"]),
        state=str(plain["state"]),
        killed=int(plain["killed"]),
        winner=int(plain.get("winner", 0)),
        term=int(plain.get("term", 0)),
        stood_ms=ms("stood_ms"),
        candidate_ms=ms("candidate_ms"),
        led_ms=ms("led_ms"),
        served_ms=ms("served_ms"),
    )
