"""Options and steps that the commands that create a cluster share: founder, directory, questions, outcome."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from attrs import frozen

from zraft.offline.founders import Founders
from zraft.raft.messages import UNKNOWN_INSTANCE
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError
from zraft_core.ids import EPOCHS_SKIPPED, SERVER_ID_MAX, SERVER_ID_MIN, ServerId

if TYPE_CHECKING:
    from zraft.offline.founding import Founded
    from zraft.offline.replay import Replayed
    from zraft.storage.directory import DataDirectory

F = TypeVar("F", bound=Callable[..., Any])

Advance = Callable[[int, int], None]
"""A function that is told how far the work is: (done, of how many)."""

_PROGRESS_WIDTH: Final = 40

CONFIRMED_CHARACTERS: Final = 8
"""The number of characters of the old cluster's id that are typed before writes are given up."""


def founds_cluster(command: F) -> F:
    """Give a click command the options of the new cluster, as `place`."""

    @click.option(
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The settings file that `zraft serve` of this server is given, TOML or zoo.cfg; says all of the following.",
    )
    @click.option(
        "--data",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="The data directory of the server.",
    )
    @click.option(
        "--id",
        "server",
        metavar="N",
        type=click.IntRange(SERVER_ID_MIN, SERVER_ID_MAX),
        help="The number of the server that begins the new cluster.",
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
    def with_place(
        config: Path | None,
        data: Path | None,
        server: int | None,
        address: str | None,
        cluster: str | None,
        **arguments: Any,
    ) -> Any:
        if config is not None:
            place = _configured(config, data, server, address, cluster)
        elif data is None or server is None:
            raise ConfigError(
                f"{'--data' if data is None else '--id'}: missing, expected the server's, or --config with its settings"
            )
        else:
            place = Place(data, make_founders(ServerId(server), address, cluster))
        return command(place=place, **arguments)

    return with_place  # type: ignore[return-value]


@frozen
class Place:
    """The directory in which a new cluster begins, and its servers; `config`: the file that says so, if one does."""

    data: Path
    founders: Founders
    config: Path | None = None

    @property
    def path(self) -> str:
        """The directory as the file system takes it."""
        return str(self.data).rstrip("/") or "/"


def _configured(
    file: Path, data: Path | None, server: int | None, address: str | None, cluster: str | None
) -> Place:
    """Return where `zraft serve --config FILE` will look, if it gets the same flags.

    Raises:
        ConfigError: the file does not say where, or an address cannot be used.
    """
    from zraft.config.knobs import load_values
    from zraft.config.server import ClusterList

    flags = {"data": data, "id": server, "address": address, "cluster": cluster}
    given: dict[str, object] = {name: value for name, value in flags.items() if value is not None}
    # The key and whatever else a server needs is not asked for.
    values = load_values(flags=given, file=file)
    for name in ("data", "id", "cluster"):
        if name not in values:
            raise ConfigError(f"--{name}: missing, and {file} does not say it")
    listed = values["cluster"]
    observers = listed.observers if isinstance(listed, ClusterList) else frozenset()
    founders = _founders(
        values["id"],
        listed,
        observers,
        values.get("address"),
        f"cluster (in {file})",
        may_listen_everywhere=True,
    )
    return Place(values["data"], founders, file)


def make_founders(server: ServerId, address: str | None, cluster: str | None) -> Founders:
    """Return the founders of the new cluster.

    Raises:
        ConfigError: an address cannot be used, or the list does not name the server.
    """
    from zraft.config.knobs import parse_cluster
    from zraft.config.server import ClusterList

    if address is None and cluster is None:
        raise ConfigError("--address: missing, expected HOST:PORT, or --cluster with all servers")
    own = parse_address(address, "--address") if address is not None else None
    if cluster is None:
        assert own is not None
        return _founders(server, {server: own}, frozenset(), own, "--address")
    listed = parse_cluster(cluster, "--cluster")
    observers = listed.observers if isinstance(listed, ClusterList) else frozenset[ServerId]()
    return _founders(server, listed, observers, own, "--cluster")


def _founders(
    server: ServerId,
    listed: Mapping[ServerId, Address],
    observers: frozenset[ServerId],
    own: Address | None,
    label: str,
    *,
    may_listen_everywhere: bool = False,
) -> Founders:
    """Return the founders of this list; `may_listen_everywhere`: as for `serve`, its own address may be a wildcard."""
    founders = Founders(server, {number: str(found) for number, found in listed.items()}, observers)
    for number, found in listed.items():
        if found.is_wildcard and not (may_listen_everywhere and number == server):
            raise ConfigError(
                f"{label}: server {number} is at {found}, an address that nobody can send to; name the one under which "
                "others reach it"
            )
    if own is not None and own.port != listed[server].port:
        raise ConfigError(
            f"--address: {own} and {label}: {server}={listed[server]} have different ports; a server listens at its port "
            "of the list"
        )
    return founders


@contextmanager
def progress(what: str, *, shown: bool = True) -> Iterator[Advance]:
    """Show a bar on standard error if that is a terminal."""
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


def tell_founded(founded: Founded, place: Place) -> None:
    """Print what was made, and what to do next."""
    founders = place.founders
    others = [number for number in sorted(founders.addresses) if number != founders.server]
    click.echo(f"cluster:   {founded.cluster.hex()} (new)")
    click.echo(f"server:    {founders.server}, instance {founded.instance.hex()} (new)")
    click.echo(f"items:     {founded.items}, digest {founded.digest:032x}")
    click.echo(
        f"last zxid: {founded.zxid:#x}: {EPOCHS_SKIPPED} epochs above the old one, so whatever a client has seen of the old "
        "cluster, it is behind this one (D-15)"
    )
    if place.config is not None:
        click.echo(f"directory: {place.data}")
    if founded.aside is not None:
        click.echo(f"old data:  {place.data}/{founded.aside}; remove it when you no longer need it")
    click.echo(f"next:      zraft serve {_as_served(place)}")
    if others:
        click.echo(
            f"           then start {', '.join(f'server {number}' for number in others)} the same way, each with its own "
            "number and an EMPTY directory: they are let in and vote, but for observers, when they have caught up"
        )


def _as_served(place: Place) -> str:
    """Return the arguments of `zraft serve` for the server that begins the cluster."""
    from zraft.config.server import OBSERVER_MARK

    if place.config is not None:
        return f"--config {place.config}"
    founders = place.founders
    listed = ",".join(
        f"{number}={address}{OBSERVER_MARK if number in founders.observers else ''}"
        for number, address in sorted(founders.addresses.items())
    )
    return (
        f"--id {founders.server} --data {place.data} --address {founders.addresses[founders.server]} --cluster {listed}"
        f"{' --key FILE' if len(founders.addresses) > 1 else ''}"
    )


def asks_before_loss(command: F) -> F:
    """Give a click command the option that answers `confirm_loss`, as `confirmed`."""
    option = click.option(
        "--yes-i-lose-writes",
        "confirmed",
        metavar="CHARACTERS",
        help=f"The first {CONFIRMED_CHARACTERS} characters of the old cluster's id, for scripts, instead of typing them.",
    )
    return option(command)


def show_replayed(directory: DataDirectory, replayed: Replayed, data: Path) -> None:
    """Show what a stopped server's directory holds."""
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
    if replayed.cut is not None:
        cut = replayed.cut
        click.echo(f"log:          CUT SHORT: {cut.file} has {cut.size} bytes of {cut.made}; {cut.known}")
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


def confirm_loss(directory: DataDirectory, warning: str, confirmed: str | None) -> None:
    """Warn, and ask for the beginning of the old cluster's id, unless `confirmed` gives it.

    Raises:
        click.ClickException: not confirmed; nothing was changed.
    """
    expected = (directory.cluster or directory.instance).hex()[:CONFIRMED_CHARACTERS]
    what = "cluster id" if directory.cluster is not None else "instance (the cluster's id is unknown)"
    click.secho(warning, fg="red", bold=True, err=True)
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
