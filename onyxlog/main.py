"""The command `onyxlog`: reads the command line, puts the parts together, turns errors into messages.

A composition root: it may import anything and nothing imports it. What a command needs is imported inside it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from attrs import evolve

from onyxlog.errors import OnyxlogError
from onyxlog.ids import JobId
from onyxlog.peer.opening import SESSION_TIMEOUT_S, Service, opener
from zraft import __version__
from zraft.address import Address, parse_address
from zraft.command_group import CommandGroup
from zraft.errors import ConfigError

if TYPE_CHECKING:
    from onyxlog.api import Client
    from onyxlog.peer.log_port import OpenPort

R = TypeVar("R")
CONNECT: Final = "127.0.0.1:2181"
TENANCY: Final = "default"
Command = Callable[..., Any]


def _service_options(command: Command) -> Command:
    """Where the log is: the same for all commands."""
    for option in reversed(
        (
            click.option(
                "--connect",
                default=CONNECT,
                show_default=True,
                metavar="HOST:PORT,…",
                envvar="ONYXLOG_CONNECT",
                help="Servers of the service that holds the log; one is enough to begin with.",
            ),
            click.option(
                "--tenancy",
                default=TENANCY,
                show_default=True,
                envvar="ONYXLOG_TENANCY",
                help="Which log: one fleet of peers and its jobs.",
            ),
            click.option(
                "--service",
                default=Service.ZRAFT.value,
                show_default=True,
                type=click.Choice([service.value for service in Service]),
                envvar="ONYXLOG_SERVICE",
                help="What the servers are; `zookeeper` also goes with zraft.",
            ),
        )
    ):
        command = option(command)
    return command


def _import_option(command: Command) -> Command:
    """Where jobs' modules are: the same for who runs a job and for who submits or checks it."""
    return click.option(
        "--import-from",
        default=".",
        show_default=True,
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False, resolve_path=True),
        help="Where, besides Python's own path, modules of jobs are found.",
    )(command)


def _import_from(directory: str) -> None:
    """As `python -m` does, and an installed command does not: a job names its functions by import path."""
    if directory not in sys.path:
        sys.path.insert(0, directory)


@click.group(
    cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="onyxlog")
def main() -> None:
    """Masterless peers that play one totally ordered log.

    \b
    Try it, on the servers of `zraft dev`:
        onyxlog peer --peers 4 &
        onyxlog submit-job job.toml --wait
        onyxlog status
    """


@main.command()
@_service_options
@click.option(
    "--peers", default=1, show_default=True, type=click.IntRange(0, 1_000), help="Virtual peers per group."
)
@click.option(
    "--groups",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1_000),
    help="Groups, each with its own session.",
)
@click.option(
    "--tags", default="", metavar="TAG,…", help="What these virtual peers have that jobs may require."
)
@click.option("--name", help="What the groups' ids begin with.  [default: this machine's name]")
@click.option(
    "--join",
    default="direct",
    show_default=True,
    type=click.Choice(["direct", "ring"]),
    help="How groups come and go; the same for all peers of a log.",
)
@click.option(
    "--job-scheduler",
    default="balanced",
    show_default=True,
    type=click.Choice(["balanced", "greedy", "percentage"]),
    help="How virtual peers are divided between jobs; the same for all peers of a log.",
)
@click.option("--join-once", is_flag=True, help="Give up when a join is aborted.")
@click.option(
    "--address",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen for segments of other groups; port 0: any.",
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
    help="Get entries from other groups, by UDP at --address, and read the log for what is missing; the same for all.",
)
@_import_option
@click.option("--idle", is_flag=True, help="Take tasks but run nothing: to measure coordination alone.")
@click.option("--metrics", metavar="HOST:PORT", help="Where to serve Prometheus metrics, health and status.")
@click.option(
    "--digests-every",
    default=1_000,
    show_default=True,
    type=click.IntRange(1),
    help="Entries between published digests.",
)
@click.option(
    "--digest-after-quiet",
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0.05),
    help="When the newest digest is published although fewer entries came.",
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
    connect: str,
    tenancy: str,
    service: str,
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
    digests_every: int,
    digest_after_quiet: float,
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
    from zraft.logs import configure_logging

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
        )
    except ValueError as error:
        raise ConfigError(f"--name: found {name!r}, expected 1 to 64 of A-Z a-z 0-9 _ . : -") from error
    open_port = opener(Service(service), _hosts(connect), tenancy, session_timeout_s=session_timeout)
    if service == Service.ZOOKEEPER.value and join == "direct":
        raise ConfigError("--join: found direct with --service zookeeper, which has no wills; expected ring")
    site = _site(address)
    listen = None if metrics is None else parse_address(metrics, "--metrics")

    make_runner = runner_factory(
        tenancy,
        address=site,
        advertise=advertise,
        key_files=tuple(map(Path, key)),
        insecure=insecure_peers,
        hosts=connect,
        groups=groups,
        idle=idle,
    )
    make_source = source_factory(
        tenancy,
        gossip=gossip,
        address=site,
        advertise=advertise,
        key_files=tuple(map(Path, key)),
        insecure=insecure_peers,
    )
    _import_from(import_from)

    async def run() -> None:
        await _run_fleet(Fleet(open_port, make_runner, make_source=make_source), settings, groups, listen)

    _run(run())


async def _run_fleet(fleet: Any, settings: Any, groups: int, listen: Address | None) -> None:
    monitoring = None
    if listen is not None:
        from onyxlog.peer.monitoring import Monitoring

        monitoring = Monitoring(listen, fleet)
        try:
            await monitoring.start()
        except OSError as error:
            raise ConfigError(f"--metrics: cannot listen at {listen}: {error.strerror or error}") from error
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


@main.command("submit-job")
@click.argument("source", metavar="FILE|MODULE:NAME")
@_service_options
@click.option("--wait", is_flag=True, help="Until the job is over; exit code 1 unless it completed.")
@click.option("--timeout", metavar="SECONDS", type=click.FloatRange(0.1), help="Of --wait.")
@click.option(
    "--importing/--no-importing",
    default=True,
    help="Import the job's functions here, to see that they are there. Peers import them in any case.",
)
@_import_option
def submit_job(
    source: str,
    connect: str,
    tenancy: str,
    service: str,
    wait: bool,
    timeout: float | None,
    importing: bool,
    import_from: str,
) -> None:
    """Submit a job: from a file (.json, .toml), or from what a Python module holds under a name.

    One that cannot run is refused with all that is wrong with it. The same job again does nothing, so that a
    submission whose outcome is unknown can be repeated.
    """
    from onyxlog.jobs.job_files import load_job

    _import_from(import_from)
    job = load_job(source)

    async def run(client: Client) -> None:
        position = await client.submit_job(job, importing=importing)
        click.echo(f"{job.id}: submitted at position {position}")
        if wait:
            await _wait(client, job.id, timeout)

    _with_client(connect, tenancy, service, run)


@main.command("check-job")
@click.argument("source", metavar="FILE|MODULE:NAME")
@click.option(
    "--importing/--no-importing",
    default=True,
    help="Import the job's functions here, to see that they are there.",
)
@_import_option
def check_job(source: str, importing: bool, import_from: str) -> None:
    """Say what is wrong with a job, if anything is; needs no service. Exit code 2 if it cannot run."""
    from onyxlog.jobs.job_files import load_job
    from onyxlog.jobs.validation import check
    from onyxlog.plugins.plugin import INPUTS, OUTPUTS

    _import_from(import_from)
    job = load_job(source)
    check(job, importing=importing, inputs=INPUTS, outputs=OUTPUTS)
    least = sum(task.min_peers for task in job.catalog)
    click.echo(f"{job.id}: can run; {len(job.catalog)} tasks, on {least} virtual peers at least")


async def _wait(client: Client, job: JobId, timeout_s: float | None) -> None:
    from onyxlog.api import JobState

    try:
        async with asyncio.timeout(timeout_s):
            state = await client.await_job_completion(job)
    except TimeoutError:
        raise OnyxlogError(f"job {job}: not over after {timeout_s:g} s (--timeout)") from None
    click.echo(f"{job}: {state.value}")
    if state is not JobState.COMPLETED:
        reason = client.reason_of(job)
        raise OnyxlogError(f"job {job}: {state.value}{f': {reason}' if reason else ''}")


@main.command("await-job")
@click.argument("job")
@_service_options
@click.option("--timeout", metavar="SECONDS", type=click.FloatRange(0.1), help="How long at most.")
def await_job(job: str, connect: str, tenancy: str, service: str, timeout: float | None) -> None:
    """Wait until a job is over; exit code 1 unless it completed."""
    _with_client(connect, tenancy, service, lambda client: _wait(client, job, timeout))


@main.command("kill-job")
@click.argument("job")
@_service_options
@click.option("--reason", default="", help="For people: it stands in the log.")
def kill_job(job: str, connect: str, tenancy: str, service: str, reason: str) -> None:
    """Kill a job: its virtual peers are free for others."""

    async def run(client: Client) -> None:
        killed = await client.kill_job(job, reason)
        click.echo(f"{job}: {'killed' if killed else 'was over already'}")

    _with_client(connect, tenancy, service, run)


@main.command("clear-job")
@click.argument("job")
@_service_options
def clear_job(job: str, connect: str, tenancy: str, service: str) -> None:
    """Remove what a job that is over has left: its specification, checkpoints and positions.

    No other job can resume from it then. `gc` does it for completed jobs.
    """

    async def run(client: Client) -> None:
        await client.clear_job_data(job)
        click.echo(f"{job}: its data is removed")

    _with_client(connect, tenancy, service, run)


@main.command()
@_service_options
def gc(connect: str, tenancy: str, service: str) -> None:
    """Forget what is over, and truncate the log to begin with what all peers know now.

    Checkpoints of completed jobs are removed too, unless a job that is not over resumes from them. Those, and those
    of killed jobs, stay until `clear-job`.
    """

    async def run(client: Client) -> None:
        collected = await client.gc()
        stored = "is the origin now" if collected.stored else "is not the origin: another's is newer"
        click.echo(f"position {collected.position} {stored}; {len(collected.jobs)} jobs forgotten")

    _with_client(connect, tenancy, service, run)


@main.command()
@_service_options
@click.option("--watch", is_flag=True, help="Show it again as it changes, until Ctrl-C.")
@click.option("--json", "as_json_text", is_flag=True, help="For programs; with --watch one line each time.")
def status(connect: str, tenancy: str, service: str, watch: bool, as_json_text: bool) -> None:
    """Show the ring, allocations, the log, and per group its position and whether its replica is the same."""
    from rich.console import Console
    from rich.live import Live

    from onyxlog.observing import Observer
    from onyxlog.status import as_json
    from onyxlog.status_view import view

    async def run(client: Client) -> None:
        observer = Observer(client)
        found = observer.follow() if watch else _once(observer.look())
        if as_json_text:
            async for seen in found:
                click.echo(json.dumps(as_json(seen), indent=None if watch else 2))
        elif watch and sys.stdout.isatty():
            with Live(screen=True, auto_refresh=False) as live:
                async for seen in found:
                    live.update(view(seen), refresh=True)
        else:
            console = Console(width=None if sys.stdout.isatty() else 160)
            async for seen in found:
                console.print(view(seen))

    _with_client(connect, tenancy, service, run)


async def _once(awaited: Awaitable[R]) -> AsyncIterator[R]:
    yield await awaited


def _hosts(text: str) -> tuple[Address, ...]:
    return tuple(parse_address(part, "--connect") for part in text.split(","))


def _site(text: str) -> Address:
    """Where to listen; port 0 is whichever is free."""
    host, _, port = text.rpartition(":")
    if port == "0":
        return evolve(parse_address(f"{host}:1", "--address"), port=0)
    return parse_address(text, "--address")


def _with_client(connect: str, tenancy: str, service: str, run: Callable[[Client], Awaitable[None]]) -> None:
    from onyxlog.api import connect as connected

    open_port: OpenPort = opener(Service(service), _hosts(connect), tenancy)

    async def go() -> None:
        async with await connected(open_port) as client:
            await run(client)

    _run(go())


def _run(coroutine: Coroutine[Any, Any, R]) -> R:
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(coroutine)
    except KeyboardInterrupt:
        sys.exit(130)
