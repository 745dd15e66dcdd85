"""The command `zraft log accept-loss`: a lone server whose log was cut short continues with what is left.

This is a composition root below `zraft.cli.main`, imported by `zraft.cli.log_command` alone.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from zraft.cli.offline_options import (
    Place,
    asks_before_loss,
    confirm_loss,
    progress,
    show_replayed,
    tell_founded,
)

if TYPE_CHECKING:
    from zraft.offline.founders import Founders
    from zraft.offline.replay import Replayed
    from zraft.storage.directory import DataDirectory

LOUD: Final = """\
THIS GIVES UP WRITES THAT WERE ACKNOWLEDGED: all that stood in what is missing of the log. Nobody can tell which.

 - If you have the whole file somewhere, put it back instead, and start the server: then nothing is lost.
 - What is left becomes a NEW cluster of this one server. Zxids begin far above the old ones (D-15), so that none means two
   things; clients come back with their sessions.
 - Topics are not carried over: create them again. What their partitions held stays readable, in the directory named below.
"""


@click.command(
    "accept-loss", short_help="Continue with what is left of a log that was cut; for a lone server."
)
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@asks_before_loss
def accept_loss(directory: Path, confirmed: str | None) -> None:
    """Continue with what is left of a log that was cut, on a stopped server that is alone in its cluster. LOSES WRITES.

    A server refuses to start when the last file of its log is shorter than it was made. This command shows what is left
    and what is known to be lost, and asks. What is left becomes a new cluster of this server, as `zraft recover` makes
    one; the old contents are moved to aside-<instance> inside of DIR, with a note in wal/accepted-loss of what was
    accepted.

    Do not use it for a server of a larger cluster, because the others have what it lost: move its directory aside, and
    let it join again with an empty one. See docs/how-to/recovery.md.

    \b
        zraft log accept-loss /var/lib/zraft
    """
    from zraft.offline.founding import claimed, found
    from zraft.offline.loss import note_accepted
    from zraft.offline.replay import replay
    from zraft.storage.directory import DataDirectory, read_meta
    from zraft.storage.filesystem import RealFileSystem

    fs, path = RealFileSystem(), str(directory).rstrip("/") or "/"
    with claimed(fs, path):
        # This takes back what an earlier attempt has moved, and must not make a directory where there was none.
        meta = read_meta(fs, path)
    opened = DataDirectory.open(fs, path, server=meta.server, entropy=os.urandom)
    try:
        with progress("applying what is left of the log") as advance:
            replayed = replay(fs, opened, advance)
        show_replayed(opened, replayed, directory)
        if replayed.cut is None:
            raise click.ClickException(
                f"{path}/wal: the log is not cut short, there is no loss to accept; nothing was changed"
            )
        founders = _alone(opened, replayed)
        confirm_loss(opened, LOUD, confirmed)
        wall_ms = time.time_ns() // 1_000_000
        note_accepted(fs, path, replayed.cut, replayed.origin, wall_ms)
        with progress("writing") as advance:
            founded = found(
                fs,
                path,
                replayed.machine,
                founders,
                replayed.origin,
                replaces=opened.instance,
                entropy=os.urandom,
                wall_ms=wall_ms,
                on_progress=advance,
            )
    finally:
        opened.close()
    tell_founded(founded, Place(directory, founders))


def _alone(directory: DataDirectory, replayed: Replayed) -> Founders:
    """Return this server as the founder of a cluster of its own.

    Raises:
        click.ClickException: it is not alone, or nothing says that it is; nothing was changed.
    """
    from zraft.offline.founders import Founders

    members = replayed.membership.members if replayed.membership is not None else {}
    this = members.get(directory.server)
    others = sorted(server for server in members if server != directory.server)
    if others:
        raise click.ClickException(
            f"{directory.path}: the cluster has other members ({', '.join(f'server {server}' for server in others)}), which "
            "have what is missing here; nothing was changed. Move this directory aside and start the server with an empty "
            "one: it joins again and gets the data from them. If a majority of them is lost for good, see `zraft recover`"
        )
    if this is None or this.instance != directory.instance or not this.address:
        raise click.ClickException(
            f"{directory.path}: what is left does not say that this server is a cluster alone, and at which address; "
            "nothing was changed. `zraft recover` makes a new cluster with the address that it is given"
        )
    return Founders(directory.server, {directory.server: this.address})
