"""What every command for operators has in common: whom to ask, with which key, and how errors end it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from zraft.address import parse_address
from zraft.errors import ConfigError
from zraft.ids import SERVER_ID_MAX, SERVER_ID_MIN

if TYPE_CHECKING:
    from rich.console import Console

    from zraft.operator.client import OperatorClient
    from zraft.operator.requests import OperatorRequest

EXIT_UNCERTAIN: Final = 3
LOOK_S: Final = 0.1
PLAIN_WIDTH: Final = 140
"""Columns when the output is no terminal: wide enough that no cell is cut in a log or a pipe."""

SERVER_ID: Final = click.IntRange(SERVER_ID_MIN, SERVER_ID_MAX)

F = TypeVar("F", bound=Callable[..., Any])


class Uncertain(click.ClickException):
    """It may have happened, or not."""

    exit_code = EXIT_UNCERTAIN


def asks_cluster(command: F) -> F:
    """Gives a click command the options of all operators' commands, and a `client` made of them."""

    @click.option(
        "--connect",
        metavar="HOST:PORT,…",
        default="127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183",
        show_default=True,
        help="Servers to ask, the first that answers; the leader is found from there.",
    )
    @click.option(
        "--key",
        metavar="FILE",
        envvar="ZRAFT_KEY",
        help="The cluster key; left out for servers without one.  [env: ZRAFT_KEY]",
    )
    @click.option(
        "--timeout",
        metavar="SECONDS",
        default=30.0,
        show_default=True,
        type=click.FloatRange(0.1, 3600),
        help="For all attempts together.",
    )
    @functools.wraps(command)
    def with_client(connect: str, key: str | None, timeout: float, **arguments: Any) -> Any:
        from zraft.operator.errors import UncertainError

        with make_client(connect, key, timeout) as client:
            try:
                return command(client=client, **arguments)
            except UncertainError as error:
                raise Uncertain(str(error)) from error

    return with_client  # type: ignore[return-value]


def do(client: OperatorClient, request: OperatorRequest) -> None:
    """Ask for something to be done, and print what was."""
    from zraft.operator.requests import Done

    click.echo(client.call(request, Done).text)


def wait_done(client: OperatorClient, unfinished: Callable[[], str]) -> None:
    """Look again until `unfinished` has nothing to say; what it says when the client's time is over ends the command."""
    until = time.monotonic() + client.timeout_s
    while why := unfinished():
        if time.monotonic() >= until:
            raise Uncertain(why)
        time.sleep(LOOK_S)


def make_client(connect: str, key: str | None, timeout_s: float) -> OperatorClient:
    """A client for these servers.

    Raises:
        ConfigError: an address or the key file cannot be used.
    """
    from zraft.operator.client import OperatorClient
    from zraft.transport.keys import key_ring, read_keys

    addresses = [parse_address(part, "--connect") for part in connect.split(",")]
    if key is not None and not key.strip():
        raise ConfigError("--key: found nothing, expected the name of a file")
    # A server's setting may name two files while the key is changed; both are good, the first one seals.
    keys = read_keys([Path(part.strip()) for part in key.split(",")]) if key is not None else None
    return OperatorClient(addresses, key_ring(keys, keys is None), timeout_s=timeout_s)


def console() -> Console:
    """Where tables go, as they are: to the library, `[fd00::1]` would be markup."""
    from rich.console import Console

    made = Console(highlight=False, markup=False)
    return made if made.is_terminal else Console(highlight=False, markup=False, width=PLAIN_WIDTH)
