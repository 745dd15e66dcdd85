"""The command `zraft log`: shows a server's write-ahead log and delivery segments, and whether they are whole.

It works beside a running server, but for `accept-loss`. This is a composition root below `zraft.cli.main`,
imported by nobody else.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Final

import click

from zraft.cli.accept_loss_command import accept_loss
from zraft.cli.log_report import delivery_line, delivery_value, record_lines, record_value
from zraft.server.partitions.machine import mark_of_image
from zraft.storage.delivery.inspection import groups_with_deliveries, read_group, verify_deliveries
from zraft.storage.errors import CorruptionError, CutShortError
from zraft.storage.filesystem import ReadOnlyFileSystem
from zraft.storage.inspection import SnapshotFinding, find_snapshots, read_records, verify_log
from zraft.storage.records import BaseRecord, EntryRecord, Record, RestoreRecord, TruncateRecord
from zraft.storage.recovery import Replay
from zraft.storage.segments import MISSING_ADVICE, SegmentSpan, segment_path
from zraft.storage.snapshot_format import SnapshotFileReader
from zraft_core.errors import ProtocolError, StorageError
from zraft_core.ids import COORDINATION_GROUP, GroupId

EXIT_DAMAGED: Final = 1
PROGRESS_INTERVAL_S: Final = 1.0

_directory = click.argument(
    "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


@click.group()
def log() -> None:
    """Show a server's write-ahead log and its partitions' deliveries, and check whether they are whole.

    DIR is a server's data directory. The server may be running: dump and verify lock nothing and change nothing.
    """


@log.command(short_help="Print the records of a data directory's log.")
@_directory
@click.option(
    "--from",
    "first",
    metavar="INDEX",
    type=click.IntRange(0),
    help="Print only entries from this index on; with --deliveries, from this offset on.",
)
@click.option(
    "--to",
    "last",
    metavar="INDEX",
    type=click.IntRange(0),
    help="Print only entries up to this index; with --deliveries, up to this offset.",
)
@click.option(
    "--group",
    metavar="N",
    type=click.IntRange(0),
    help="Print only this Raft group; 0 is that of the znodes.",
)
@click.option("--deliveries", is_flag=True, help="Print what partitions delivered, instead of the log.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
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
    """Return, with a range, the entries in it, and what drops some of them."""
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

    look = _Look(str(directory).rstrip("/") or "/")
    replayed = look.at_log()
    look.at_snapshots()
    look.at_deliveries()
    if replayed is not None:
        look.at_groups(replayed)
    Console(width=None if sys.stdout.isatty() else 160, soft_wrap=True, markup=False).print(look.table)
    for said in look.notes:
        click.echo(said)
    for problem in look.problems:
        click.echo(problem, err=True)
    if look.problems:
        sys.exit(EXIT_DAMAGED)
    click.echo("everything is whole")


class _Look:
    """One reading of a directory: a row for every file, what is worth knowing, and what is wrong."""

    def __init__(self, path: str) -> None:
        from rich.table import Table

        self._fs = ReadOnlyFileSystem()
        self._path = path
        self._said = time.monotonic()
        self.table = Table("file", "holds", "bytes", "state", box=None, pad_edge=False)
        self.notes: list[str] = []
        self.problems: list[str] = []
        self._newest: dict[GroupId, SnapshotFinding] = {}
        self._leftovers: list[int] = []

    def _progress(self, what: str) -> None:
        if time.monotonic() - self._said >= PROGRESS_INTERVAL_S:
            self._said = time.monotonic()
            click.echo(f"{what} ...", err=True)

    def at_log(self) -> Replay | None:
        """Return what the log holds; None: it cannot be read to its end.

        Raises:
            click.ClickException: this is no data directory, or it cannot be read.
        """
        spans: dict[int, SegmentSpan] = {}
        replayed = None

        def on_segment(span: SegmentSpan) -> None:
            spans[span.number] = span
            self._progress(f"{segment_path(f'{self._path}/wal', span.number)}: {span.frames} frames")

        try:
            replayed, self._leftovers = verify_log(self._fs, self._path, on_segment=on_segment)
        except CorruptionError as error:
            self.problems.append(str(error))
        except StorageError as error:
            raise click.ClickException(str(error)) from error
        cut = replayed.cut if replayed is not None else None
        for span in spans.values():
            name = f"wal/{span.number:010d}.seg"
            whole = cut is None or not cut.file.endswith(name)
            holds = f"frames {span.first_frame} and {span.frames} more"
            self.table.add_row(name, holds, str(span.end), "good" if whole else "CUT SHORT")
        if replayed is None:
            return None
        if cut is not None:
            self.problems.append(str(CutShortError(cut)))
        if replayed.torn_tail is not None:
            torn = replayed.torn_tail
            self.notes.append(_torn(torn.file, torn.offset, torn.size))
        if replayed.unrecorded is not None:
            self.notes.append(
                f"{replayed.unrecorded}: how long it was made is not recorded, so that it was cut could not be told from an "
                "interrupted write"
            )
        return replayed

    def at_snapshots(self) -> None:
        """Read all files of all groups."""
        for finding in find_snapshots(
            self._fs, self._path, on_bytes=lambda done: self._progress(f"snapshot, {done} bytes")
        ):
            name = finding.path.removeprefix(self._path + "/")
            info = finding.info
            if info is None:
                self.problems.append(str(finding.damage))
                self.table.add_row(name, "", "", "DAMAGED")
                continue
            self._newest[finding.group] = finding  # they come in order
            holds = f"up to entry {info.meta.index}, {info.items} items"
            self.table.add_row(name, holds, str(info.size), "good")

    def at_deliveries(self) -> None:
        """Read all segments of all partitions; check that they reach as far as the partition's newest image needs."""
        ends: dict[GroupId, int] = {}
        for group in groups_with_deliveries(self._fs, self._path):
            for segment in verify_deliveries(
                self._fs,
                self._path,
                group,
                on_bytes=lambda done: self._progress(f"deliveries, {done} bytes"),
            ):
                name = segment.path.removeprefix(self._path + "/")
                ends[group] = max(ends.get(group, 0), segment.end)
                if segment.damage is not None:
                    self.problems.append(str(segment.damage))
                    self.table.add_row(name, "", "", "DAMAGED")
                    continue
                holds = (
                    f"deliveries {segment.first} to {segment.end - 1}"
                    if segment.end > segment.first
                    else "nothing yet"
                )
                self.table.add_row(name, holds, str(segment.size), "good")
                if segment.torn is not None:
                    self.notes.append(_torn(segment.torn.file, segment.torn.offset, segment.torn.size))
        for group, finding in self._newest.items():
            if group != COORDINATION_GROUP:
                self._compare(group, finding, ends.get(group, 0))

    def _compare(self, group: GroupId, finding: SnapshotFinding, end: int) -> None:
        try:
            with SnapshotFileReader(self._fs, finding.path) as file:
                mark = mark_of_image(group, b"".join(file.blocks()), 0)
        except (ProtocolError, CorruptionError) as error:
            self.problems.append(f"{finding.path}: {error}")
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            # A newer one has replaced it since we looked.
        else:
            if mark.offset > end:
                self.problems.append(
                    f"{self._path}/groups/{group}/deliveries: end at {end}, the newest snapshot of group {group} needs them "
                    f"up to {mark.offset}; {MISSING_ADVICE}"
                )

    def at_groups(self, replayed: Replay) -> None:
        """Read where each group's log begins and ends, and whether a snapshot holds what precedes it."""
        lacking = []
        for id, group in sorted(replayed.groups.items()):
            base, last = group.log.base.index, group.log.last_index
            self.table.add_row(
                f"group {id}", f"entries {base + 1} to {last}", "", f"term {group.log.hard_state.term}"
            )
            finding = self._newest.get(id)
            reached = finding.info.meta.index if finding is not None and finding.info is not None else 0
            if base > reached:
                lacking.append(
                    f"{self._path}: the log of group {id} begins after entry {base}, and no good snapshot reaches there"
                )
        self.problems += lacking
        if self._leftovers and replayed.segments:
            first, last = self._leftovers[-1] + 1, replayed.segments[0].number - 1
            gone = f"{self._path}/wal: segment{'s' * (last > first)} {first}"
            gone += f" to {last} are missing" if last > first else " is missing"
            if lacking:
                self.problems.append(f"{gone}, and with it what the groups above lack; {MISSING_ADVICE}")
            else:
                self.notes.append(
                    f"{gone}, which snapshots cover, as after a compaction that was interrupted: a start removes the older "
                    "segments, too"
                )


def _torn(file: str, offset: int, size: int) -> str:
    return (
        f"{file}: {size} bytes after the last whole frame at {offset}: "
        "being written, or cut short by a crash; a start cuts them off"
    )


log.add_command(accept_loss)
