"""`zraft snapshot`: looks at snapshot files. A composition root below `zraft.main`, imported by nobody else."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import click

from zraft.log_report import membership_value
from zraft.storage.filesystem import ReadOnlyFileSystem
from zraft.storage.snapshot_format import SnapshotFile

PROGRESS_INTERVAL_S: Final = 1.0


@click.group()
def snapshot() -> None:
    """Snapshots of the cluster's state."""


@snapshot.command(short_help="Show what a snapshot file is of, and verify it.")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def inspect(file: Path, as_json: bool) -> None:
    """Show what a snapshot file is of, and verify every block of it; exit with 1 if it is damaged.

    \b
        zraft snapshot inspect /var/lib/zraft/groups/0/snap/0000000000000c1a-0000000000000003.snap
    """
    size = blocks = 0
    said = time.monotonic()
    with SnapshotFile(ReadOnlyFileSystem(), str(file)) as opened:
        for block in opened.blocks():
            blocks += 1
            size += len(block)
            if time.monotonic() - said >= PROGRESS_INTERVAL_S:
                said = time.monotonic()
                click.echo(f"{size} of {opened.footer.size} bytes ...", err=True)
        info = opened.info
    header = info.header
    value: dict[str, Any] = {
        "group": header.group,
        "index": info.meta.index,
        "term": info.meta.term,
        "next_position": info.meta.next_position,
        "zxid": f"{info.zxid:#x}",
        "items": info.items,
        "digest": f"{info.digest:032x}",
        "feature_level": header.feature_level,
        "cluster": header.cluster.hex(),
        "server": header.server,
        "instance": header.instance.hex(),
        "id": header.id.hex(),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(header.wall_time_ms / 1000)),
        "members": membership_value(info.meta.membership),
        "blocks": blocks,
        "bytes": size,
        "file_bytes": info.size,
        "whole": True,
    }
    if as_json:
        click.echo(json.dumps(value))
        return
    for name, item in value.items():
        if name == "members":
            item = (
                ", ".join(f"{row['server']}{'' if row['voter'] else ' (no vote)'}" for row in item) or "none"
            )
        click.echo(f"{name + ':':<16}{'yes' if item is True else item}")
