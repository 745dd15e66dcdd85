"""`zraft recover`: a new cluster out of the directory of one server, when the others are lost for good.

A composition root below `zraft.main`, imported by nobody else.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from zraft.errors import ConfigError
from zraft.offline_options import Place, founds_cluster, progress, tell_founded
from zraft.raft.messages import UNKNOWN_INSTANCE

if TYPE_CHECKING:
    from zraft.offline.replay import Replayed
    from zraft.storage.directory import DataDirectory

CONFIRMED_CHARACTERS: Final = 8
"""Of the old cluster's id, to be typed."""

LOUD: Final = """\
THIS CAN LOSE WRITES THAT WERE ACKNOWLEDGED, and nobody can tell which.

Do it only if a majority of the voters above is lost FOR GOOD. If enough of them can be started again, even from the
disk of a dead machine, do that instead: then nothing is lost.

 - What the lost servers had and this one has not is gone. What this one has in its log and no majority ever agreed on
   becomes part of the data.
 - With several directories left, recover the one whose last entry is the newest: the higher term, then the higher index.
   Run this command on each and answer no.
 - A NEW cluster begins, with an identity of its own. No other server of the old one may go on: stop them, and empty their
   directories before they are started again. One that comes back by mistake is not let in.
"""


@click.command(short_help="Make a new cluster out of one server of a cluster that lost its majority.")
@founds_cluster
@click.option(
    "--yes-i-lose-writes",
    "confirmed",
    metavar="CHARACTERS",
    help=f"For scripts: the first {CONFIRMED_CHARACTERS} characters of the old cluster's id, instead of typing them.",
)
def recover(place: Place, confirmed: str | None) -> None:
    """Make a new cluster out of one server of a cluster that lost its majority for good. CAN LOSE WRITES.

    Shows what the directory of the stopped server holds, and asks. The new cluster begins with its newest snapshot and
    all of its log; the old contents are moved to aside-<instance> inside of DIR, never removed. Zxids begin 2^20 epochs
    above (D-15), so clients of the old cluster find themselves behind and reconnect, with their sessions.

    \b
        zraft recover --data /var/lib/zraft --id 3 \\
            --cluster 1=10.0.0.1:2181,2=10.0.0.2:2181,3=10.0.0.3:2181

    Afterwards start this server as always, then the others with EMPTY directories and the same --cluster. See
    docs/RECOVERY.md, also for what to try before.
    """
    from zraft.offline.founding import claimed, found
    from zraft.offline.replay import replay
    from zraft.storage.directory import DataDirectory, read_meta
    from zraft.storage.filesystem import RealFileSystem

    fs = RealFileSystem()
    path, data, founders = place.path, place.data, place.founders
    if not data.is_dir():
        raise ConfigError(f"--data: {data} is no directory, expected that of the server to recover")
    with claimed(fs, path):
        # Takes back what an earlier attempt has moved, and must not make a directory where there was none.
        read_meta(fs, path)
    directory = DataDirectory.open(fs, path, server=founders.server, entropy=os.urandom)
    try:
        with progress("applying the log") as advance:
            replayed = replay(fs, directory, advance)
        _show(directory, replayed, data)
        _confirm(directory, confirmed)
        with progress("writing") as advance:
            founded = found(
                fs,
                path,
                replayed.machine,
                founders,
                replayed.origin,
                replaces=directory.instance,
                entropy=os.urandom,
                wall_ms=time.time_ns() // 1_000_000,
                on_progress=advance,
            )
    finally:
        directory.close()
    tell_founded(founded, place)


def _show(directory: DataDirectory, replayed: Replayed, data: Path) -> None:
    machine, origin = replayed.machine, replayed.origin
    click.echo(f"directory:    {data}, server {directory.server}, instance {directory.instance.hex()}")
    click.echo(f"cluster:      {directory.cluster.hex() if directory.cluster is not None else 'unknown'}")
    click.echo(f"term:         {origin.hard_term}")
    click.echo(
        f"last entry:   index {origin.index}, term {origin.term}; {replayed.entries} entries after the snapshot of "
        f"{replayed.snapshot_index}"
        if replayed.snapshot_index
        else f"last entry:   index {origin.index}, term {origin.term}; all of the log, no snapshot"
    )
    click.echo(f"last write:   {_age(machine.wall_time)}, zxid {machine.last_zxid:#x}")
    click.echo(f"state:        {len(machine.nodes)} znodes, {len(machine.sessions)} sessions")
    click.echo("members:")
    members = replayed.membership.members if replayed.membership is not None else {}
    for server, member in members.items():
        instance = "never showed up" if member.instance == UNKNOWN_INSTANCE else member.instance.hex()
        this = " <- this directory" if member.instance == directory.instance else ""
        click.echo(
            f"  {server:<4}{member.role.name.lower():<10}{member.address or 'address unknown':<24}{instance}{this}"
        )
    if not any(member.instance == directory.instance for member in members.values()):
        click.echo("  (this directory is not among them: it was replaced or removed, or never caught up)")
    click.echo("")


def _age(wall_ms: int) -> str:
    if not wall_ms:
        return "none"
    seconds = max(0, int(time.time() - wall_ms / 1000))
    days, rest = divmod(seconds, 86_400)
    ago = f"{days} d {rest // 3600} h" if days else f"{rest // 3600} h {rest % 3600 // 60} min {rest % 60} s"
    return f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(wall_ms / 1000))} ({ago} ago)"


def _confirm(directory: DataDirectory, confirmed: str | None) -> None:
    """
    Raises:
        click.ClickException: not confirmed; nothing was changed.
    """
    expected = (directory.cluster or directory.instance).hex()[:CONFIRMED_CHARACTERS]
    what = "cluster id" if directory.cluster is not None else "instance (the cluster's id is unknown)"
    click.secho(LOUD, fg="red", bold=True, err=True)
    if confirmed is None:
        if not _somebody_is_there():
            raise click.ClickException(
                f"not confirmed, nothing was changed: in a script, add --yes-i-lose-writes with the first "
                f"{CONFIRMED_CHARACTERS} characters of the {what} above"
            )
        confirmed = click.prompt(
            f"To go on, type the first {CONFIRMED_CHARACTERS} characters of the {what} above",
            default="",
            err=True,
        )
    if confirmed.strip().lower() != expected:
        raise click.ClickException(
            f"not confirmed, nothing was changed: found {confirmed.strip()!r}, expected the first "
            f"{CONFIRMED_CHARACTERS} characters of the {what}, {expected!r}"
        )


def _somebody_is_there() -> bool:
    return sys.stdin.isatty()
