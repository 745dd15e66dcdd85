"""The command `onyxlog`: reads the command line, asks the log, and turns errors into messages.

This is a composition root: it may import anything and nothing imports it. Each command imports what it needs
when it is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from onyxlog.audit_command import audit
from onyxlog.audit_follow_command import audit_follow
from onyxlog.command_options import (
    LogService,
    import_from_directory,
    import_option,
    run_in_loop,
    service_options,
)
from onyxlog.errors import OnyxlogError
from onyxlog.ids import JobId
from onyxlog.peer_command import peer
from onyxlog.status_command import status
from zraft import __version__
from zraft.program.command_group import CommandGroup

if TYPE_CHECKING:
    from onyxlog.api import Client


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


main.add_command(peer)
main.add_command(audit)
main.add_command(audit_follow)
main.add_command(status)


@main.command("submit-job")
@click.argument("source", metavar="FILE|MODULE:NAME")
@service_options
@click.option(
    "--wait", is_flag=True, help="Wait until the job is over; the exit code is 1 unless it completed."
)
@click.option(
    "--timeout", metavar="SECONDS", type=click.FloatRange(0.1), help="How long --wait waits at most."
)
@click.option(
    "--importing/--no-importing",
    default=True,
    help="Import the job's functions here, to see that they are there. Peers import them in any case.",
)
@import_option
def submit_job(
    source: str,
    log: LogService,
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

    import_from_directory(import_from)
    job = load_job(source)

    async def run(client: Client) -> None:
        position = await client.submit_job(job, importing=importing)
        click.echo(f"{job.id}: submitted at position {position}")
        status = await client.job_state(job.id)
        if status.reason:
            click.echo(f"{job.id}: {status.state.value}: {status.reason}")
        if wait:
            await _wait(client, job.id, timeout)

    _with_client(log, run)


@main.command("check-job")
@click.argument("source", metavar="FILE|MODULE:NAME")
@click.option(
    "--importing/--no-importing",
    default=True,
    help="Import the job's functions here, to see that they are there.",
)
@import_option
def check_job(source: str, importing: bool, import_from: str) -> None:
    """Say what is wrong with a job, if anything is; needs no service. Exit code 2 if it cannot run."""
    from onyxlog.jobs.job_files import load_job
    from onyxlog.jobs.validation import check
    from onyxlog.plugins.plugin import INPUTS, OUTPUTS

    import_from_directory(import_from)
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
        reason = (await client.job_state(job)).reason
        raise OnyxlogError(
            f"job {job}: not over after {timeout_s:g} s (--timeout){f'; it waits: {reason}' if reason else ''}"
        ) from None
    click.echo(f"{job}: {state.value}")
    if state is not JobState.COMPLETED:
        reason = client.reason_of(job)
        raise OnyxlogError(f"job {job}: {state.value}{f': {reason}' if reason else ''}")


@main.command("await-job")
@click.argument("job")
@service_options
@click.option("--timeout", metavar="SECONDS", type=click.FloatRange(0.1), help="How long to wait at most.")
def await_job(job: str, log: LogService, timeout: float | None) -> None:
    """Wait until a job is over; exit code 1 unless it completed."""
    _with_client(log, lambda client: _wait(client, job, timeout))


@main.command("kill-job")
@click.argument("job")
@service_options
@click.option("--reason", default="", help="The reason, for people who read the log.")
def kill_job(job: str, log: LogService, reason: str) -> None:
    """Kill a job: its virtual peers are free for others."""

    async def run(client: Client) -> None:
        killed = await client.kill_job(job, reason)
        click.echo(f"{job}: {'killed' if killed else 'was over already'}")

    _with_client(log, run)


@main.command("clear-job")
@click.argument("job")
@service_options
def clear_job(job: str, log: LogService) -> None:
    """Remove what a job that is over has left: its specification, checkpoints and positions.

    No other job can resume from it then. `gc` does it for completed jobs.
    """

    async def run(client: Client) -> None:
        await client.clear_job_data(job)
        click.echo(f"{job}: its data is removed")

    _with_client(log, run)


@main.command()
@service_options
def gc(log: LogService) -> None:
    """Forget what is over, and truncate the log to begin with what all peers know now.

    Checkpoints of completed jobs are removed too, unless a job that is not over resumes from them. Those, and those
    of killed jobs, stay until `clear-job`.
    """

    async def run(client: Client) -> None:
        collected = await client.gc()
        stored = "is the origin now" if collected.stored else "is not the origin: another's is newer"
        count = len(collected.jobs)
        click.echo(
            f"position {collected.position} {stored}; {count} job{'' if count == 1 else 's'} forgotten"
        )

    _with_client(log, run)


def _with_client(log: LogService, run: Callable[[Client], Awaitable[None]]) -> None:
    from onyxlog.api import connect as connected

    open_port = log.opener()

    async def go() -> None:
        async with await connected(open_port) as client:
            await run(client)

    run_in_loop(go())
