"""What the commands that found a cluster have in common: who founds it, where, and how it is told."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from zraft.address import parse_address
from zraft.errors import ConfigError
from zraft.ids import EPOCHS_SKIPPED, SERVER_ID_MAX, SERVER_ID_MIN, ServerId
from zraft.offline.founders import Founders

if TYPE_CHECKING:
    from zraft.offline.founding import Founded

F = TypeVar("F", bound=Callable[..., Any])

Advance = Callable[[int, int], None]
"""How far the work is: (done, of how many)."""

_PROGRESS_WIDTH: Final = 40


def founds_cluster(command: F) -> F:
    """Gives a click command the options of the new cluster, as `data` and `founders`."""

    @click.option(
        "--data",
        metavar="DIR",
        required=True,
        type=click.Path(file_okay=False, path_type=Path),
        help="Data directory of the server.",
    )
    @click.option(
        "--id",
        "server",
        metavar="N",
        required=True,
        type=click.IntRange(SERVER_ID_MIN, SERVER_ID_MAX),
        help="Number of the server that begins the new cluster.",
    )
    @click.option(
        "--address",
        metavar="HOST:PORT",
        help="Where this server is reached; may be left out if --cluster says so.",
    )
    @click.option(
        "--cluster",
        metavar="1=HOST:PORT,…",
        help="All servers of the new cluster, as `zraft serve` will be given, observers marked as there; the others join "
        "with empty directories. "
        "Left out: this server alone.",
    )
    @functools.wraps(command)
    def with_founders(
        data: Path, server: int, address: str | None, cluster: str | None, **arguments: Any
    ) -> Any:
        founders = make_founders(ServerId(server), address, cluster)
        return command(data=data, founders=founders, **arguments)

    return with_founders  # type: ignore[return-value]


def make_founders(server: ServerId, address: str | None, cluster: str | None) -> Founders:
    """
    Raises:
        ConfigError: an address cannot be used, or the list does not name the server.
    """
    from zraft.config import ClusterList
    from zraft.knobs import parse_cluster

    if address is None and cluster is None:
        raise ConfigError("--address: missing, expected HOST:PORT, or --cluster with all servers")
    own = parse_address(address, "--address") if address is not None else None
    if cluster is None:
        assert own is not None
        listed, observers = {server: own}, frozenset[ServerId]()
    else:
        parsed = parse_cluster(cluster, "--cluster")
        listed = dict(parsed)
        observers = parsed.observers if isinstance(parsed, ClusterList) else frozenset()
    founders = Founders(server, {number: str(found) for number, found in listed.items()}, observers)
    for number, found in listed.items():
        if found.is_wildcard:
            raise ConfigError(
                f"{'--address' if cluster is None else '--cluster'}: server {number} is at {found}, an address that nobody "
                "can send to; name the one under which others reach it"
            )
    if own is not None and own.port != listed[server].port:
        raise ConfigError(
            f"--address: {own} and --cluster: {server}={listed[server]} have different ports; a server listens at its port "
            "of the list"
        )
    return founders


@contextmanager
def progress(what: str, *, shown: bool = True) -> Iterator[Advance]:
    """A bar on the terminal's standard error; nothing if it is none."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    out = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=_PROGRESS_WIDTH),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=out,
        disable=not (shown and out.is_terminal),
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def tell_founded(founded: Founded, founders: Founders, data: Path) -> None:
    """What was made, and what to do next."""
    from zraft.config import OBSERVER_MARK

    others = [number for number in sorted(founders.addresses) if number != founders.server]
    listed = ",".join(
        f"{number}={address}{OBSERVER_MARK if number in founders.observers else ''}"
        for number, address in sorted(founders.addresses.items())
    )
    click.echo(f"cluster:   {founded.cluster.hex()} (new)")
    click.echo(f"server:    {founders.server}, instance {founded.instance.hex()} (new)")
    click.echo(f"items:     {founded.items}, digest {founded.digest:032x}")
    click.echo(
        f"last zxid: {founded.zxid:#x}: {EPOCHS_SKIPPED} epochs above the old one, so whatever a client has seen of the old "
        "cluster, it is behind this one (D-15)"
    )
    if founded.aside is not None:
        click.echo(f"old data:  {data}/{founded.aside}; remove it when you no longer need it")
    click.echo(
        f"next:      zraft serve --id {founders.server} --data {data} --address {founders.addresses[founders.server]} "
        f"--cluster {listed}{' --key FILE' if others else ''}"
    )
    if others:
        click.echo(
            f"           then start {', '.join(f'server {number}' for number in others)} the same way, each with its own "
            "--id and an EMPTY directory: they are let in and vote, but for observers, when they have caught up"
        )
