"""The command `onyxlog peer`: assembles the groups of a process, and runs them until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import evolve

from onyxlog.command_options import (
    LogService,
    import_from_directory,
    import_option,
    run_in_loop,
    service_options,
)
from onyxlog.peer.log.opening import SESSION_TIMEOUT_S, Service
from onyxlog.peer.settings import REPORT_EVERY_S
from zraft.program.listening import cannot_listen
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError

if TYPE_CHECKING:
    from onyxlog.peer.fleet import Fleet
    from onyxlog.peer.recording import Recordings
    from onyxlog.peer.settings import GroupSettings


@click.command()
@service_options
@click.option(
    "--peers",
    default=1,
    show_default=True,
    type=click.IntRange(0, 1_000),
    help="How many virtual peers each group has.",
)
@click.option(
    "--groups",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1_000),
    help="How many groups to run, each with its own session.",
)
@click.option(
    "--tags", default="", metavar="TAG,…", help="The tags of these virtual peers, which jobs may require."
)
@click.option("--name", help="The beginning of the groups' ids.  [default: this machine's name]")
@click.option(
    "--join",
    default="direct",
    show_default=True,
    type=click.Choice(["direct", "ring"]),
    help="How groups come and go; it must be the same for all peers of a log.",
)
@click.option(
    "--job-scheduler",
    default="balanced",
    show_default=True,
    type=click.Choice(["balanced", "greedy", "percentage"]),
    help="How virtual peers are divided between jobs; it must be the same for all peers of a log.",
)
@click.option("--join-once", is_flag=True, help="Give up when a join is aborted.")
@click.option(
    "--address",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen for segments of other groups; port 0 means any port.",
)
@click.option("--advertise", metavar="HOST[:PORT]", help="Where others reach --address, if it is not that.")
@click.option(
    "--key", metavar="FILE", multiple=True, help="The cluster key that seals segments between groups."
)
@click.option("--insecure-peers", is_flag=True, help="Listen beyond this machine without a key.")
@click.option(
    "--gossip",
    default="off",
    show_default=True,
    type=click.Choice(["off", "pool", "plumtree"]),
    help="Get entries from other groups, by UDP at --address, and read the log for what is missing; the same for all peers.",
)
@import_option
@click.option("--idle", is_flag=True, help="Take tasks but run nothing: to measure coordination alone.")
@click.option("--metrics", metavar="HOST:PORT", help="Where to serve Prometheus metrics, health and status.")
@click.option(
    "--record",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Record for audits every entry that is applied and all that gossip brings, in a file per group.",
)
@click.option(
    "--digests-every",
    default=1_000,
    show_default=True,
    type=click.IntRange(1),
    help="How many entries are between two published digests.",
)
@click.option(
    "--digest-after-quiet",
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0.05),
    help="After this time the newest digest is published, although fewer entries came.",
)
@click.option(
    "--report-every",
    default=REPORT_EVERY_S,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0.05),
    help="How often to report progress for `onyxlog status` and consoles, while tasks run.",
)
@click.option(
    "--session-timeout",
    default=SESSION_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0.1),
    help="How long the others wait before a silent group is gone.",
)
@click.option("--log-format", default="console", show_default=True, type=click.Choice(["console", "json"]))
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning", "error"])
)
def peer(
    log: LogService,
    peers: int,
    groups: int,
    tags: str,
    name: str | None,
    join: str,
    job_scheduler: str,
    join_once: bool,
    address: str,
    advertise: str | None,
    key: tuple[str, ...],
    insecure_peers: bool,
    gossip: str,
    import_from: str,
    idle: bool,
    metrics: str | None,
    record: Path | None,
    digests_every: int,
    digest_after_quiet: float,
    report_every: float,
    session_timeout: float,
    log_format: str,
    log_level: str,
) -> None:
    """Run peer groups until SIGTERM or SIGINT; then they leave.

    \b
    Eight workers with a GPU each:
        onyxlog peer --connect zk1:2181,zk2:2181 --peers 8 --tags gpu --address 10.0.0.7:0 --key cluster.key
    """
    from onyxlog.peer.fleet import Fleet
    from onyxlog.peer.settings import GroupSettings
    from onyxlog.replica.replica import JoinMode, Parameters
    from onyxlog.running import runner_factory, source_factory
    from onyxlog.scheduling.requirements import JobScheduler
    from zraft.program.logs import configure_logging

    configure_logging(format=log_format, level=log_level)
    offer = tuple(sorted({tag.strip() for tag in tags.split(",")} - {""}))
    try:
        settings = GroupSettings(
            name=socket.gethostname()[:64] if name is None else name,
            offers=(offer,) * peers,
            parameters=Parameters(JobScheduler(job_scheduler), JoinMode(join)),
            join_once=join_once,
            digests_every=digests_every,
            digest_after_quiet_s=digest_after_quiet,
            report_every_s=report_every,
        )
    except ValueError as error:
        raise ConfigError(f"--name: found {name!r}, expected 1 to 64 of A-Z a-z 0-9 _ . : -") from error
    if log.service is Service.ZOOKEEPER and join == "direct":
        raise ConfigError("--join: found direct with --service zookeeper, which has no wills; expected ring")
    site = _site(address)
    told = None if advertise is None else _advertised(advertise)
    listen = None if metrics is None else parse_address(metrics, "--metrics")

    make_runner = runner_factory(
        log.tenancy,
        address=site,
        advertise=told,
        key_files=tuple(map(Path, key)),
        insecure=insecure_peers,
        hosts=log.hosts,
        access=log.access,
        groups=groups,
        idle=idle,
    )
    recordings = _recordings(record, log.tenancy)
    make_source = source_factory(
        log.tenancy,
        gossip=gossip,
        address=site,
        advertise=told,
        key_files=tuple(map(Path, key)),
        insecure=insecure_peers,
        recordings=recordings,
    )
    import_from_directory(import_from)
    open_port = log.opener(session_timeout_s=session_timeout)

    async def run() -> None:
        await _run_fleet(
            Fleet(open_port, make_runner, make_source=make_source, recordings=recordings),
            settings,
            groups,
            listen,
        )

    run_in_loop(run())


async def _run_fleet(fleet: Fleet, settings: GroupSettings, groups: int, listen: Address | None) -> None:
    monitoring = None
    if listen is not None:
        from onyxlog.peer.monitoring import Monitoring

        monitoring = Monitoring(listen, fleet)
        try:
            await monitoring.start()
        except OSError as error:
            raise ConfigError(f"--metrics: cannot listen at {listen}: {cannot_listen(error)}") from error
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    for _ in range(groups):
        fleet.start(settings)
    running = asyncio.create_task(fleet.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        stopping.cancel()
        if monitoring is not None:
            await monitoring.stop()
        await fleet.stop()


def _recordings(directory: Path | None, tenancy: str) -> Recordings | None:
    if directory is None:
        return None
    from onyxlog.peer.recording import Recordings

    try:
        return Recordings(directory, tenancy)
    except OSError as error:
        raise ConfigError(f"--record: {directory} cannot be made: {error.strerror or error}") from error


def _advertised(text: str) -> Address:
    """Return the HOST or HOST:PORT that others are told. Without a port, 0 stands for the socket's own."""
    if ":" in text and not text.endswith("]"):
        return parse_address(text, "--advertise")
    return evolve(parse_address(f"{text}:1", "--advertise"), port=0)


def _site(text: str) -> Address:
    """Return where to listen; port 0 means any free one."""
    host, _, port = text.rpartition(":")
    if port == "0":
        return evolve(parse_address(f"{host}:1", "--address"), port=0)
    return parse_address(text, "--address")
