"""The command `onyxlog audit`: proves the rules from logs, or shows a witness. It imports Spark only when it runs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from onyxlog.command_options import LogService, run_in_loop, service_options
from zraft_core.errors import ZraftError

if TYPE_CHECKING:
    from onyxlog.audits.jobs.auditing import Progress
    from onyxlog.audits.report.findings import Findings
    from onyxlog.peer.log.port import OpenPort

EXIT_BROKEN: Final = 1
EXIT_FAILED: Final = 2
"""Nothing was proved either way: an option, a path or Java is wrong, or there was nothing to judge."""


class _Failed(click.ClickException):
    exit_code = EXIT_FAILED


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--rules",
    "names",
    metavar="S1,S4-S7,...",
    default="",
    help="Check only these rules. [default: all; `--list` shows them]",
)
@click.option("--list", "listing", is_flag=True, help="Show the rules and what each claims, and end.")
@click.option(
    "--results",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Recompute the published figures of these results of zraft-bench, a file or a directory of them.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("audit"),
    show_default=True,
    metavar="DIRECTORY",
    help="Write report.html, audit.json and violations.parquet here.",
)
@click.option(
    "--tables",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Keep the decoded tables here as Parquet, for queries of your own.",
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="MASTER",
    help="Where Spark runs: local[CORES] or spark://HOST:PORT, whose workers see the same paths.",
)
@click.option(
    "--memory",
    default="2g",
    show_default=True,
    metavar="SIZE",
    help="The memory of Spark's JVM, and of each executor.",
)
@click.option(
    "--costs", is_flag=True, help="Measure CPU time and memory of each table and check, on this machine."
)
@click.option(
    "--one-copy",
    is_flag=True,
    help="Decode one server's committed entries only, as S2 and S4 show that the others' are equal. Stop the servers first.",
)
@click.option(
    "--json", "as_json_text", is_flag=True, help="Print the findings for programs instead of a table."
)
@click.option(
    "--publish",
    is_flag=True,
    help="Store the verdicts in the tenancy at --connect, where consoles and `onyxlog status` show them. Nothing else is "
    "written there.",
)
@service_options
def audit(
    paths: tuple[str, ...],
    names: str,
    listing: bool,
    results: tuple[Path, ...],
    out: Path,
    tables: Path | None,
    master: str,
    memory: str,
    costs: bool,
    one_copy: bool,
    as_json_text: bool,
    publish: bool,
    log: LogService,
) -> None:
    """Check recorded logs and histories against the safety rules.

    Each PATH is a data directory, a recording of a peer, a history of a client, or a directory that holds some. A
    cluster may be running. Every rule that is broken is shown with its witness: server, group, index, file and
    offset, what was expected and what was found.

    Exit code 0: all rules hold that had something to judge; 1: some are broken; 2: nothing was judged, or the verdicts
    could not be published.
    """
    try:
        if listing:
            _list(names)
            return
        if not paths and not results:
            raise click.UsageError("nothing to audit: expected a PATH, or --results")
        place = log.opener() if publish else None
        broken = _audit(
            paths, names, results, out, tables, master, memory, costs, one_copy, as_json_text, place
        )
    except ZraftError as error:
        raise _Failed(str(error)) from error
    if broken:
        sys.exit(EXIT_BROKEN)


def _list(names: str) -> None:
    from onyxlog.audits.rules.catalogue import rules_named

    for rule in rules_named(_split(names)):
        click.echo(f"{rule.id:4}{rule.title}: {rule.claim}")
        for check in rule.checks:
            click.echo(f"      {check.promise} ({', '.join(check.tables)})")


def _audit(
    paths: tuple[str, ...],
    names: str,
    results: tuple[Path, ...],
    out: Path,
    tables: Path | None,
    master: str,
    memory: str,
    costs: bool,
    one_copy: bool,
    as_json_text: bool,
    place: OpenPort | None,
) -> bool:
    from onyxlog.audits.errors import AuditError
    from onyxlog.audits.rules.catalogue import rules_named

    rules = tuple(rules_named(_split(names)))  # check before a JVM is started for a typing error
    from rich.console import Console

    from onyxlog.audits.places import check_place
    from onyxlog.audits.report.files import write
    from onyxlog.audits.report.findings import as_json
    from onyxlog.audits.report.terminal import show
    from onyxlog.audits.running import Asked, is_small, look, run
    from onyxlog.audits.session import SessionSettings, close_session, open_session

    asked = Asked(paths=paths, rules=rules, results=results, tables=tables, costs=costs, one_copy=one_copy)
    check_place(out, "--out")
    measurements = look(asked)
    with _bar() as progress, ExitStack() as stack:
        spark = open_session(SessionSettings(master=master, memory=memory, brief=is_small(asked)))
        stack.callback(close_session, spark)
        findings = run(spark, asked, measurements, now=lambda: datetime.now(UTC), progress=progress)
    write(findings, out)
    if as_json_text:
        click.echo(json.dumps(as_json(findings), indent=1))
    else:
        show(findings, Console(width=None if sys.stdout.isatty() else 160, markup=False))
        click.echo(f"report: {out / 'report.html'}")
    if place is not None:
        _publish(findings, place)
    if not findings.judged:
        raise AuditError(
            f"{', '.join(findings.paths)}: no rule had anything to judge; give directories that have rows for "
            f"{', '.join(rule.id for rule in rules)} (--list)"
        )
    return findings.broken


def _publish(findings: Findings, place: OpenPort) -> None:
    from onyxlog.api import publish_audit
    from onyxlog.audits.report.published import summary_of

    run_in_loop(publish_audit(place, summary_of(findings, time.time_ns() // 1_000_000)))
    click.echo("published", err=True)


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


@contextmanager
def _bar() -> Iterator[Progress]:
    """Show a progress bar on stderr if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as shown:
        task = shown.add_task("starting Spark", total=None)
        yield lambda done, of, what: shown.update(task, completed=done, total=of, description=what)
