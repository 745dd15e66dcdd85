"""One audit from paths to findings: reads, judges, draws figures. The session, clocks and directories are handed in."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen

from onyxlog.audits.costs import ProcessMeter
from onyxlog.audits.figures import figures_of
from onyxlog.audits.jobs.auditing import VIOLATIONS_MAX, Progress, audit, no_progress
from onyxlog.audits.jobs.loading import load
from onyxlog.audits.measurements import Measurements, read_measurements
from onyxlog.audits.places import check_place
from onyxlog.audits.report.findings import Findings, rule_results
from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.check import Rule
from onyxlog.audits.source.directories import Found, find
from onyxlog.audits.thesis_tables import thesis_tables
from zraft import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SMALL_BYTES: Final = 64 << 20
"""The size of some 600,000 commands as three servers log them."""


@frozen(kw_only=True)
class Asked:
    """Request for an audit.

    Attributes:
        paths: data directories, recordings of peers and histories of clients, or directories that hold
            some.
        results: results files of benchmarks.
        one_copy: committed entries are decoded of one server each: three times as fast with three.
        costs: whether what each table and check costs is measured.
        tables: where decoded tables go and stay; None: into a directory that is removed again.
    """

    paths: tuple[str, ...]
    rules: tuple[Rule, ...]
    results: tuple[Path, ...] = ()
    tables: Path | None = None
    violations_max: int = VIOLATIONS_MAX
    costs: bool = False
    one_copy: bool = False


def look(asked: Asked) -> Measurements:
    """Return what can be read and refused without Spark: the measurements that are asked about.

    Raises:
        AuditError: a path does not exist, or holds nothing that can be audited; or a place cannot be
            written to.
    """
    if asked.paths:
        find(asked.paths, damaged_too=True)
    if asked.tables is not None:
        check_place(asked.tables, "--tables")
    return read_measurements(asked.results) if asked.results else Measurements()


def is_small(asked: Asked) -> bool:
    """Return whether all that is read is so little that starting takes longer than reading.

    The newest segment of each log does not count: as long as its server runs, most of it is reserved and not written.
    """
    found = find(asked.paths, damaged_too=True) if asked.paths else Found()
    of_servers = (
        os.path.join(folder, name)
        for one in found.servers
        for folder, _, names in os.walk(one.path)
        for name in (sorted(names)[:-1] if folder == os.path.join(one.path, "wal") else names)
    )
    left = SMALL_BYTES
    for file in chain(of_servers, found.recordings, found.histories):
        with suppress(FileNotFoundError):  # a running server has removed it
            left -= os.stat(file).st_size
        if left < 0:
            return False
    return True


def run(
    spark: SparkSession,
    asked: Asked,
    measurements: Measurements,
    *,
    now: Callable[[], datetime],
    progress: Progress = no_progress,
    clock: Callable[[], float] = time.perf_counter,
) -> Findings:
    """Run the audit; `measurements` are those of `look`.

    Raises:
        AuditError: something that `look` saw does not exist any more.
    """
    began, started = clock(), now()
    with ExitStack() as stack:
        directory = asked.tables or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="onyxlog-audit-"))
        )
        # Without a choice of rules everything is decoded: tables stay for queries, and figures are computed
        # from all.
        chosen = asked.tables is None and len(asked.rules) < len(RULES)
        wanted = {name for rule in asked.rules for check in rule.checks for name in check.tables}
        meter = ProcessMeter() if asked.costs else None
        loaded = load(
            spark,
            asked.paths,
            measurements,
            directory,
            wanted=wanted if chosen else None,
            one_copy=asked.one_copy,
            progress=progress,
            meter=meter,
        )
        checks = audit(
            spark,
            loaded.frames,
            loaded.counts,
            asked.rules,
            violations_max=asked.violations_max,
            progress=progress,
            clock=clock,
            meter=meter,
        )
        figures = figures_of(spark, loaded.counts)
    return Findings(
        title=_title(asked.paths or tuple(map(str, asked.results))),
        began=started.isoformat(sep=" ", timespec="seconds"),
        seconds=clock() - began,
        paths=(*asked.paths, *map(str, asked.results)),
        version=__version__,
        counts=loaded.counts,
        read=loaded.read,
        rules=rule_results(asked.rules, checks),
        figures=figures,
        thesis=thesis_tables(measurements) if asked.results else None,
    )


def _title(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
