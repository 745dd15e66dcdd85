"""The command `zraft recover`: a new cluster from the directory of one server, when the others are lost for good.

This is a composition root below `zraft.cli.main`, imported by nobody else.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import click

from zraft.cli.offline_options import (
    Place,
    asks_before_loss,
    confirm_loss,
    founds_cluster,
    progress,
    show_replayed,
    tell_founded,
)
from zraft_core.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from zraft.offline.topics_anew import TopicsToKeep

LOUD: Final = """\
THIS CAN LOSE WRITES THAT WERE ACKNOWLEDGED, and nobody can tell which.

Do it only if a majority of the voters above is lost FOR GOOD. If enough of them can be started again, even from the
disk of a dead machine, do that instead: then nothing is lost.

 - What the lost servers had and this one has not is gone. What this one has in its log and no majority ever agreed on
   becomes part of the data.
 - Records of topics that only the lost servers had are gone. A partition that has no replica here begins EMPTY, at
   offset 0; consumers that were further have to be set back.
 - With several directories left, recover the one whose last entry is the newest: the higher term, then the higher index.
   Run this command on each and answer no.
 - A NEW cluster begins, with an identity of its own. No other server of the old one may go on: stop them, and empty their
   directories before they are started again. One that comes back by mistake is not let in.
"""


@click.command(short_help="Make a new cluster out of one server of a cluster that lost its majority.")
@click.option("--no-topics", is_flag=True, help="Leave the topics out.")
@founds_cluster
@asks_before_loss
def recover(place: Place, confirmed: str | None, no_topics: bool) -> None:
    """Make a new cluster out of one server of a cluster that lost its majority for good. CAN LOSE WRITES.

    This command shows what the directory of the stopped server holds, and asks. The new cluster begins with its newest
    snapshot and all of its log; the old contents are moved to aside-<instance> inside of DIR, never removed. Zxids begin
    2^20 epochs above (D-15), so clients of the old cluster find themselves behind and reconnect, with their sessions.
    Topics keep what the partitions in DIR have delivered; partitions that are not in DIR begin empty.

    \b
        zraft recover --data /var/lib/zraft --id 3 \\
            --cluster 1=10.0.0.1:2181,2=10.0.0.2:2181,3=10.0.0.3:2181

    Afterwards start this server as always, then the others with EMPTY directories and the same --cluster. See
    docs/how-to/recovery.md, also for what to try before.
    """
    from zraft.cli.recovered_topics import recovered_topics
    from zraft.offline.founding import claimed, found
    from zraft.offline.replay import replay
    from zraft.storage.directory import DataDirectory, read_meta
    from zraft.storage.filesystem import RealFileSystem

    fs = RealFileSystem()
    path, data, founders = place.path, place.data, place.founders
    if not data.is_dir():
        raise ConfigError(f"--data: {data} is no directory, expected that of the server to recover")
    with claimed(fs, path):
        # This takes back what an earlier attempt has moved, and must not make a directory where there was none.
        read_meta(fs, path)
    directory = DataDirectory.open(fs, path, server=founders.server, entropy=os.urandom)
    try:
        with progress("applying the log") as advance:
            replayed = replay(fs, directory, advance)
        show_replayed(directory, replayed, data)
        topics: TopicsToKeep | None = None
        if not no_topics:
            try:
                with progress("reading partitions") as advance:
                    recovered = recovered_topics(fs, directory, replayed.machine, advance)
            except StorageError as error:
                raise StorageError(f"{error}. Or leave the topics out: --no-topics") from error
            if recovered is not None:
                topics = recovered.topics
                click.echo("\n".join(("topics:", *(f"  {line}" for line in recovered.lines), "")))
        confirm_loss(directory, LOUD, confirmed)
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
                topics=topics,
                on_topics=advance,
            )
    finally:
        directory.close()
    tell_founded(founded, place)
