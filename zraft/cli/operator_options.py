"""Options of all commands for operators: the servers and the key, and how errors end a command."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from zraft.cli.connection_options import connect_option
from zraft.cli.dev_clusters import DevCluster, Note, notes, running_at, touched_by
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError
from zraft_core.ids import SERVER_ID_MAX, SERVER_ID_MIN

if TYPE_CHECKING:
    from zraft.operator.client import OperatorClient
    from zraft.operator.requests import OperatorRequest

EXIT_UNCERTAIN: Final = 3
LOOK_S: Final = 0.1

SERVER_ID: Final = click.IntRange(SERVER_ID_MIN, SERVER_ID_MAX)

F = TypeVar("F", bound=Callable[..., Any])


class Uncertain(click.ClickException):
    """The request may have been carried out, or not."""

    exit_code = EXIT_UNCERTAIN


def asks_cluster(command: F) -> F:
    """Give a click command the options of all operators' commands, and a `client` made of them."""

    @connect_option("The servers to ask: the first that answers names the leader.")
    @click.option(
        "--key",
        metavar="FILE",
        envvar="ZRAFT_KEY",
        help="The cluster key; left out for servers without one, and for those of a running `zraft dev`, whose key is "
        "found.  [env: ZRAFT_KEY]",
    )
    @click.option(
        "--timeout",
        metavar="SECONDS",
        default=30.0,
        show_default=True,
        type=click.FloatRange(0.1, 3600),
        help="How long all attempts together may take.",
    )
    @functools.wraps(command)
    def with_client(connect: str, key: str | None, timeout: float, **arguments: Any) -> Any:
        from zraft.operator.errors import UncertainError

        source = click.get_current_context().get_parameter_source("connect")
        chosen = source is not click.core.ParameterSource.DEFAULT
        with make_client(connect, key, timeout, chosen=chosen) as client:
            try:
                return command(client=client, **arguments)
            except UncertainError as error:
                raise Uncertain(str(error)) from error

    return with_client  # type: ignore[return-value]


def do(client: OperatorClient, request: OperatorRequest) -> None:
    """Request a change, and print what was done."""
    from zraft.operator.requests import Done

    click.echo(client.call(request, Done).text)


def wait_done(client: OperatorClient, unfinished: Callable[[], str]) -> None:
    """Look again until `unfinished` returns nothing. What it returns when the client's time is over ends the command.

    Raises:
        Uncertain: the time is over.
    """
    until = time.monotonic() + client.timeout_s
    while why := unfinished():
        if time.monotonic() >= until:
            raise Uncertain(why)
        time.sleep(LOOK_S)


def make_client(connect: str, key: str | None, timeout_s: float, *, chosen: bool) -> OperatorClient:
    """Return a client for these servers, with the given key, otherwise that of a `zraft dev` that runs them.

    Args:
        connect: HOST:PORT,… of the servers.
        key: the key file, if one was given.
        timeout_s: for one call, all attempts together.
        chosen: whether the user named the servers. If not, only those of a smaller `zraft dev` are asked.

    Raises:
        ConfigError: an address or the key file cannot be used.
    """
    from zraft.operator.client import OperatorClient
    from zraft.transport.keys import key_ring, read_keys

    addresses: Sequence[Address] = [parse_address(part, "--connect") for part in connect.split(",")]
    known = notes(os.environ)
    if key is not None:
        if not key.strip():
            raise ConfigError("--key: found nothing, expected the name of a file")
        # A server's setting may name two files while the key is changed; both are good, the first one seals.
        keys = read_keys([Path(part.strip()) for part in key.split(",")])
        return OperatorClient(
            addresses,
            key_ring(keys, False),
            timeout_s=timeout_s,
            key_hint=f"The key is that of {key} (--key, ZRAFT_KEY){_elsewhere(addresses, known, key)}.",
        )
    addresses, cluster = servers_and_cluster(addresses, known, chosen=chosen)
    if cluster is None or cluster.key is None:
        return OperatorClient(
            addresses,
            key_ring(None, True),
            timeout_s=timeout_s,
            key_hint=f"Give the file of the key with --key or ZRAFT_KEY{_elsewhere(addresses, known) or _AS_SERVERS}.",
        )
    try:
        keys = read_keys([cluster.key])
    except ConfigError as error:
        raise ConfigError(
            f"{error}; `zraft dev` made it for the servers asked, --key names another"
        ) from error
    hint = f"The key is that of {cluster.key}, which `zraft dev` made for these servers."
    return OperatorClient(addresses, key_ring(keys, False), timeout_s=timeout_s, key_hint=hint)


def servers_and_cluster(
    addresses: Sequence[Address], known: Sequence[Note], *, chosen: bool
) -> tuple[Sequence[Address], DevCluster | None]:
    """Return the servers to ask, and the running `zraft dev` that all of them belong to, if there is one.

    Servers that the user did not choose are those of a usual `zraft dev`; if it has fewer servers, only these
    are asked.
    """
    cluster = running_at(addresses, known)
    if cluster is None and not chosen:
        smaller = running_at(addresses[:1], known)
        if smaller is not None and {*smaller.servers} <= {*addresses}:
            return smaller.servers, smaller
    return addresses, cluster


_AS_SERVERS: Final = ": a copy of the one that the servers were started with (their --key)"


def _elsewhere(addresses: Sequence[Address], known: Sequence[Note], given: str = "") -> str:
    """Return where the right key probably is, as the end of a sentence; empty if nothing is better than what was `given`."""
    cluster = touched_by(addresses, known)
    if cluster is None or cluster.key is None or str(cluster.key) == given:
        return ""
    servers = ",".join(map(str, cluster.servers))
    return f"; it is probably {cluster.key}, which `zraft dev` made for {servers}"
