"""What the commands of `onyxlog` share: where the log is, where jobs' modules are, the event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import click

from onyxlog.peer.opening import Service
from zraft.address import Address, parse_address

R = TypeVar("R")
CONNECT: Final = "127.0.0.1:2181"
TENANCY: Final = "default"
Command = Callable[..., Any]


def service_options(command: Command) -> Command:
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


def import_option(command: Command) -> Command:
    """Where jobs' modules are: the same for who runs a job and for who submits or checks it."""
    return click.option(
        "--import-from",
        default=".",
        show_default=True,
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False, resolve_path=True),
        help="Where, besides Python's own path, modules of jobs are found.",
    )(command)


def import_from_directory(directory: str) -> None:
    """As `python -m` does, and an installed command does not: a job names its functions by import path."""
    if directory not in sys.path:
        sys.path.insert(0, directory)


def hosts_of(text: str) -> tuple[Address, ...]:
    return tuple(parse_address(part, "--connect") for part in text.split(","))


def run_in_loop(coroutine: Coroutine[Any, Any, R]) -> R:
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(coroutine)
    except KeyboardInterrupt:
        sys.exit(130)
