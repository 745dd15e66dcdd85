"""`zraft log`: what a server's write-ahead log and delivery segments say, and whether they are whole. Works beside a
running server.

A composition root below `zraft.main`, like it imported by nobody else.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Final

import click

from zraft.errors import StorageError
from zraft.ids import GroupId
from zraft.log_report import delivery_line, delivery_value, record_lines, record_value
from zraft.storage.delivery.inspection import groups_with_deliveries, read_group, verify_deliveries
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import ReadOnlyFileSystem
from zraft.storage.inspection import find_snapshots, read_records, verify_log
from zraft.storage.records import BaseRecord, EntryRecord, Record, RestoreRecord, TruncateRecord
from zraft.storage.segments import SegmentSpan, segment_path

EXIT_DAMAGED: Final = 1
PROGRESS_INTERVAL_S: Final = 1.0

_directory = click.argument(
    "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


@click.group()
def log() -> None:
    """What a server's write-ahead log and its partitions' deliveries say, and whether they are whole.

    DIR is a server's data directory. The server may be running: nothing is locked or changed.
    """


@log.command(short_help="Print the records of a data directory's log.")
@_directory
@click.option(
    "--from",
    "first",
    metavar="INDEX",
    type=click.IntRange(0),
    help="Only entries from this index on; with --deliveries an offset.",
)
@click.option(
    "--to",
    "last",
    metavar="INDEX",
    type=click.IntRange(0),
    help="Only entries up to this index; with --deliveries an offset.",
)
@click.option("--group", metavar="N", type=click.IntRange(0), help="Only this Raft group; 0 is the znodes.")
@click.option("--deliveries", is_flag=True, help="What partitions delivered, instead of the log.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--data", is_flag=True, help="Show the data of znodes, too, in hexadecimal.")
def dump(
    directory: Path,
    first: int | None,
    last: int | None,
    group: int | None,
    deliveries: bool,
    as_json: bool,
    data: bool,
) -> None:
    """Print what is in the log, in the order in which it was written, up to the last whole frame.

    Entries that were truncated later are printed as well; the truncation comes after them. Passwords and digests
    are never shown, the data of znodes only with --data.

    \b
        zraft log dump /var/lib/zraft --from 1000 --to 1010
        zraft log dump /var/lib/zraft --json | jq 'select(.record == "entry") | .index'
        zraft log dump /var/lib/zraft --deliveries --group 4294967299 --from 500
    """
    if deliveries:
        _dump_deliveries(str(directory).rstrip("/") or "/", first, last, group, as_json=as_json, data=data)
        return
    for placed in read_records(ReadOnlyFileSystem(), str(directory).rstrip("/") or "/"):
        if group is not None and placed.record.group != group:
            continue
        if not _wanted(placed.record, first, last):
            continue
        value = record_value(placed.record, data=data)
        if as_json:
            click.echo(
                json.dumps(
                    {"segment": placed.segment, "offset": placed.offset, "frame": placed.frame, **value}
                )
            )
            continue
        for line in record_lines(value):
            click.echo(f"{placed.segment}:{placed.offset:<9} {line}" if line[0] != " " else line)


def _dump_deliveries(
    path: str, first: int | None, last: int | None, group: int | None, *, as_json: bool, data: bool
) -> None:
    fs = ReadOnlyFileSystem()
    for id in groups_with_deliveries(fs, path) if group is None else [GroupId(group)]:
        for placed in read_group(fs, path, id, first=first or 0, last=last):
            value = delivery_value(placed.delivery, id, placed.chain, data=data)
            if as_json:
                click.echo(json.dumps({"file": placed.path, "position": placed.position, **value}))
            else:
                click.echo(delivery_line(value))


def _wanted(record: Record | BaseRecord, first: int | None, last: int | None) -> bool:
    """With a range: the entries in it, and what drops some of them."""
    if first is None and last is None:
        return True
    low, high = first or 1, last or sys.maxsize
    match record:
        case EntryRecord(_, entry):
            return low <= entry.index <= high
        case TruncateRecord(_, from_index):
            return from_index <= high
        case RestoreRecord():
            return True
    return False


@log.command(short_help="Check every frame of a data directory's log, its snapshots and its deliveries.")
@_directory
def verify(directory: Path) -> None:
    """Read the whole log, all snapshots and all deliveries, and say what is there. Exit with 1 if something is damaged.

    \b
        zraft log verify /var/lib/zraft
    """
    from rich.console import Console
    from rich.table import Table

    fs, path = ReadOnlyFileSystem(), str(directory).rstrip("/") or "/"
    problems: list[str] = []
    said = time.monotonic()
    spans: dict[int, SegmentSpan] = {}

    def progress(what: str) -> None:
        nonlocal said
        if time.monotonic() - said >= PROGRESS_INTERVAL_S:
            said = time.monotonic()
            click.echo(f"{what} ...", err=True)

    def on_segment(span: SegmentSpan) -> None:
        spans[span.number] = span
        progress(f"{segment_path(f'{path}/wal', span.number)}: {span.frames} frames")

    table = Table("file", "holds", "bytes", "state", box=None, pad_edge=False)
    replayed = None
    try:
        _, replayed = verify_log(fs, path, on_segment=on_segment)
    except CorruptionError as error:
        problems.append(str(error))
    except StorageError as error:
        raise click.ClickException(str(error)) from error
    for span in spans.values():
        table.add_row(
            f"wal/{span.number:010d}.seg",
            f"frames {span.first_frame} and {span.frames} more",
            str(span.end),
            "good",
        )
    newest: dict[int, int] = {}
    for finding in find_snapshots(fs, path, on_bytes=lambda done: progress(f"snapshot, {done} bytes")):
        name = finding.path.removeprefix(path + "/")
        if finding.info is None:
            problems.append(str(finding.damage))
            table.add_row(name, "", "", "DAMAGED")
            continue
        info = finding.info
        newest[finding.group] = max(newest.get(finding.group, 0), info.meta.index)
        table.add_row(name, f"up to entry {info.meta.index}, {info.items} items", str(info.size), "good")
    for found in groups_with_deliveries(fs, path):
        for segment in verify_deliveries(
            fs, path, found, on_bytes=lambda done: progress(f"deliveries, {done} bytes")
        ):
            name = segment.path.removeprefix(path + "/")
            if segment.damage is not None:
                problems.append(str(segment.damage))
                table.add_row(name, "", "", "DAMAGED")
                continue
            holds = (
                f"deliveries {segment.first} to {segment.end - 1}"
                if segment.end > segment.first
                else "nothing yet"
            )
            table.add_row(name, holds, str(segment.size), "good")
            if segment.torn is not None:
                _say_torn(segment.torn.file, segment.torn.offset, segment.torn.size)
    if replayed is not None:
        for id, group in sorted(replayed.groups.items()):
            base = group.log.base.index
            table.add_row(
                f"group {id}",
                f"entries {base + 1} to {group.log.last_index}",
                "",
                f"term {group.log.hard_state.term}",
            )
            if base > newest.get(id, 0):
                problems.append(
                    f"{path}: the log of group {id} begins after entry {base}, and no good snapshot reaches there"
                )
        if replayed.torn_tail is not None:
            torn = replayed.torn_tail
            _say_torn(torn.file, torn.offset, torn.size)
    Console(width=None if sys.stdout.isatty() else 160, soft_wrap=True, markup=False).print(table)
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        sys.exit(EXIT_DAMAGED)
    click.echo("everything is whole")


def _say_torn(file: str, offset: int, size: int) -> None:
    click.echo(
        f"{file}: {size} bytes after the last whole frame at {offset}: "
        "being written, or cut short by a crash; a start cuts them off"
    )
