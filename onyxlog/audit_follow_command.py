"""The command `onyxlog audit-follow`: judges what running servers and peers write, and reports when they diverge."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from zraft_core.errors import ZraftError

if TYPE_CHECKING:
    from onyxlog.audits.rules.violation import Violation

EXIT_BROKEN: Final = 1
EXIT_FAILED: Final = 2


class _Failed(click.ClickException):
    exit_code = EXIT_FAILED


@click.command("audit-follow")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("audit-checkpoint"),
    show_default=True,
    metavar="DIRECTORY",
    help="Note here how far everything was judged, and what was found, to go on there later.",
)
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0.1),
    help="How long to wait between two looks at what is new.",
)
@click.option("--once", is_flag=True, help="Judge what is there now, and end.")
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="MASTER",
    help="Where Spark runs: local[CORES] or spark://HOST:PORT, whose workers see the same paths.",
)
@click.option(
    "--memory",
    default="1g",
    show_default=True,
    metavar="SIZE",
    help="The memory of Spark's JVM, and of each executor.",
)
def audit_follow(
    paths: tuple[str, ...], checkpoint: Path, interval: float, once: bool, master: str, memory: str
) -> None:
    """Follow running servers and peers, and say at once where they contradict each other.

    Each PATH is a data directory, a recording of a peer, or a directory that holds some. Ctrl-C ends it; the same
    command goes on where it ended. A violation is one line, and stays under the checkpoint as Parquet.

    Exit code 1 if there is a violation, now or from before; 2 if it cannot go on.
    """
    try:
        broken = _follow(paths, checkpoint, interval, once, master, memory)
    except ZraftError as error:
        raise _Failed(str(error)) from error
    if broken:
        sys.exit(EXIT_BROKEN)


def _follow(
    paths: tuple[str, ...], checkpoint: Path, interval: float, once: bool, master: str, memory: str
) -> bool:
    from onyxlog.audits.errors import AuditError
    from onyxlog.audits.followed import OPEN_ROWS_MAX
    from onyxlog.audits.session import SessionSettings, close_session, open_session
    from onyxlog.audits.source.directories import find
    from onyxlog.audits.streaming import (
        Live,
        check_checkpoint,
        follow,
        followed_tables,
        violations_so_far,
    )

    found = find(paths, damaged_too=True)
    tables = followed_tables(len(found.servers), len(found.recordings))
    if not tables:
        for one in found.unreadable:
            raise AuditError(
                f"{one.path}: damaged at offset {one.offset}: {one.found}; nothing else is there to follow"
            )
        raise AuditError(
            f"{', '.join(paths)}: histories of clients only; expected directories of servers or recordings"
        )

    check_checkpoint(checkpoint, paths)

    def alarm(violations: list[Violation]) -> None:
        for one in violations:
            click.secho(one.line(), fg="red", err=True)

    tables_given_up: set[str] = set()

    def given_up(table: str, rows: int) -> None:
        if table not in tables_given_up:
            tables_given_up.add(table)
            click.secho(
                f"{table}: more than {OPEN_ROWS_MAX:,} rows wait for servers that have not told of them; from now on "
                f"the oldest are given up ({rows:,} just now). What those servers tell later of them is judged by "
                "`onyxlog audit`",
                fg="yellow",
                err=True,
            )

    spark = open_session(SessionSettings(master=master, memory=memory))
    from pyspark.errors import StreamingQueryException

    try:
        live = Live(
            paths=paths,
            checkpoint=checkpoint.absolute(),
            on_violations=alarm,
            on_given_up=given_up,
            tables=tables,
            interval_s=interval,
            once=once,
        )
        queries = follow(spark, live, servers=len(found.servers), recordings=len(found.recordings))
        click.echo(
            f"following {len(found.servers)} servers and {len(found.recordings)} recordings; "
            f"{'until all that is there was judged' if once else 'Ctrl-C ends it'}"
        )
        try:
            for query in queries:
                query.awaitTermination()
        except KeyboardInterrupt:
            click.echo("ended; the same command goes on from here")
        except StreamingQueryException as error:
            raise AuditError(f"cannot go on: {error}") from error
        finally:
            for query in queries:
                query.stop()
        before = violations_so_far(checkpoint)
        click.echo(f"{len(before)} violation{'' if len(before) == 1 else 's'} so far")
        return bool(before)
    finally:
        close_session(spark)
