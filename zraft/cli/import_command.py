"""The command `zraft import`: creates a new cluster from a running ZooKeeper's data.

This is a composition root below `zraft.cli.main`, imported by nobody else.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from zraft.cli.connection_options import tls_options
from zraft.cli.offline_options import Place, founds_cluster, progress, tell_founded
from zraft_core.address import parse_address
from zraft_core.errors import ConfigError

if TYPE_CHECKING:
    from zraft.offline.walking import Walk


@click.command("import", short_help="Create a cluster from a running ZooKeeper's data.")
@click.option(
    "--from",
    "source",
    metavar="HOST:PORT,…",
    required=True,
    help="Servers of the ZooKeeper, or of a zraft; the first that answers is read.",
)
@founds_cluster
@click.option(
    "--auth-file",
    metavar="FILE",
    type=click.File("r", encoding="utf-8"),
    help="Log in as these users: lines of SCHEME:CREDENTIALS, such as digest:super:password; - is the standard input.",
)
@click.option(
    "--exclude", metavar="PATH", multiple=True, help="Leave out PATH and all below it; may be repeated."
)
@click.option(
    "--skip-unreadable", is_flag=True, help="Leave out what may not be read, with all below it, and say so."
)
@click.option(
    "--while-written",
    is_flag=True,
    help="Accept that clients write meanwhile, so that the copy is not of one moment.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="How long to wait for an answer.",
)
@tls_options("Speak TLS, and trust these authorities.")
def import_(
    source: str,
    place: Place,
    auth_file: TextIO | None,
    exclude: tuple[str, ...],
    skip_unreadable: bool,
    while_written: bool,
    timeout: float,
    tls_ca: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
) -> None:
    """Create a new cluster from a running ZooKeeper's data, in an empty or missing directory.

    Data, ACLs, versions, zxids and times of all znodes are kept. Sequences go on where they were, and zxids begin
    2^20 epochs above the highest one seen, so clients of the old service find themselves behind and reconnect (D-15).
    Quotas are copied; sessions and their ephemeral znodes are not. A ZooKeeper does not show which znodes are containers
    or have a time to live: they become ordinary ones. Replicated settings are those of the first server's configuration.

    Stop the writers first: unless --while-written is given, a tree that changes while it is read is not imported.

    \b
        zraft import --from zk1:2181,zk2:2181 --auth-file super.auth --config /etc/zookeeper/zoo.cfg
        zraft import --from zk1:2181,zk2:2181 --auth-file super.auth --data /var/lib/zraft --id 1 \\
            --cluster 1=10.0.0.1:2181,2=10.0.0.2:2181,3=10.0.0.3:2181

    Then start this server as always, and the others with empty directories. See docs/how-to/migration.md.
    """
    from zraft.offline.founding import Origin, check_empty, claimed, found
    from zraft.offline.source import Source
    from zraft.offline.walking import Walk
    from zraft.shell.secure import client_context, proofs
    from zraft.storage.filesystem import RealFileSystem
    from zraft_core.wire.client_requests import Auth

    servers = [parse_address(part, "--from") for part in source.split(",")]
    for path in exclude:
        if not path.startswith("/") or path == "/" or path.endswith("/"):
            raise ConfigError(f"--exclude: found {path!r}, expected the path of a znode, such as /tmp")
    shown = proofs(auth_file, "--auth-file") if auth_file is not None else []
    auths = [Auth(scheme, credentials) for scheme, credentials in shown]
    tls = None
    if tls_ca is not None or tls_certificate is not None:
        tls = client_context(ca=tls_ca, certificate=tls_certificate, key=tls_key)
    fs = RealFileSystem()
    directory = place.path
    wall_ms = time.time_ns() // 1_000_000
    # The source comes first: if nobody answers there, no directory is made.
    with (
        Source(servers, auths, timeout_s=timeout, tls=tls) as opened,
        claimed(fs, directory),
    ):
        check_empty(fs, directory)
        walk = Walk(exclude=exclude, skip_unreadable=skip_unreadable, wall_ms=wall_ms)
        with progress("reading") as advance:
            opened.read(walk, advance)
        opened.close()
        server = opened.server
        machine = walk.finish()
        _check_rest(walk, while_written)
        with progress("writing") as advance:
            founded = found(
                fs,
                directory,
                machine,
                place.founders,
                # This entry never existed; the log needs something to begin after.
                Origin(index=1, term=1, next_position=1, hard_term=1),
                replaces=None,
                entropy=os.urandom,
                wall_ms=wall_ms,
                on_progress=advance,
            )
    _tell(walk, server)
    tell_founded(founded, place)


def _check_rest(walk: Walk, while_written: bool) -> None:
    if walk.first_zxid == walk.last_zxid:
        return
    text = (
        f"the tree was written to, or sessions came and went, while it was read: zxid {walk.first_zxid:#x} became "
        f"{walk.last_zxid:#x}, and {walk.counts.vanished} znodes vanished"
    )
    if not while_written:
        raise click.ClickException(
            f"{text}; nothing was made. Stop the clients and run the command again, or accept a copy of no one moment with "
            "--while-written"
        )
    click.secho(f"Warning: {text}; the copy is of no one moment", fg="yellow", err=True)


def _tell(walk: Walk, server: str) -> None:
    counts = walk.counts
    click.echo(f"from:      {server}, at zxid {walk.last_zxid:#x}")
    click.echo(f"read:      {counts.znodes} znodes, {counts.data_bytes} bytes of data")
    left_out = [
        f"{count} {what}"
        for count, what in (
            (counts.ephemerals, "ephemeral"),
            (counts.excluded, "excluded, with all below"),
            (counts.unreadable_total, f"unreadable, with all below ({', '.join(counts.unreadable)})"),
            (counts.vanished, "vanished meanwhile"),
        )
        if count
    ]
    click.echo(f"left out:  {'; '.join(left_out) or 'nothing'}")
