"""The command `zraft settings`: shows and changes what all servers must agree on, while the cluster runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from zraft.cli.operator_options import asks_cluster, console

if TYPE_CHECKING:
    from zraft.operator.client import OperatorClient
    from zraft.operator.requests import SettingsListing


@click.group()
def settings() -> None:
    """Show and change the settings that all servers must agree on, and the feature level.

    They are part of the replicated state: the configuration of the servers that founded the cluster gave them their
    first values, and since then a changed configuration file only causes a warning. Change them here; it takes effect
    on all servers at the same point of the log.

    \b
        zraft settings show --key cluster.key --connect 10.0.0.1:2181
        zraft settings set session_timeout_ms_max 60000 --key cluster.key
        zraft settings raise-features --key cluster.key      # after the last server was upgraded

    The exit code is 0 on success, 1 if the request was refused or no server could be asked, 2 if the command is wrong,
    and 3 if it is not known whether it was done.
    """


@settings.command()
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON, for scripts.")
@asks_cluster
def show(client: OperatorClient, as_json: bool) -> None:
    """Show the settings in force. The value in the asked server's configuration is beside one that differs."""
    from zraft.operator.requests import SettingsListing, SettingsShow

    listing = client.call(SettingsShow(), SettingsListing)
    if as_json:
        click.echo(json.dumps(_as_json(listing)))
    else:
        _show(listing)


@settings.command("set")
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="VALUE", type=int)
@asks_cluster
def set_(client: OperatorClient, name: str, value: int) -> None:
    """Change setting NAME to VALUE, a whole number: sizes in bytes, times in milliseconds, 0 or 1 for no or yes."""
    from zraft.operator.requests import Done, SettingsSet

    click.echo(client.call(SettingsSet(name, value), Done).text)


@settings.command("raise-features")
@click.argument("level", metavar="[LEVEL]", required=False, type=click.IntRange(1))
@asks_cluster
def raise_features(client: OperatorClient, level: int | None) -> None:
    """Raise the feature level to LEVEL, or to the highest that every member can do.

    What a release does differently when it applies writes is switched on here, on all servers at once, after the
    last of them was upgraded. It never goes back: older releases cannot join any more.
    """
    from zraft.operator.requests import Done, FeatureRaise

    click.echo(client.call(FeatureRaise(level), Done).text)


def _show(listing: SettingsListing) -> None:
    from rich.table import Column, Table

    table = Table(Column("setting", no_wrap=True), Column("in force", justify="right"), Column("configured"))
    for line in listing.settings:
        differs = line.configured is not None and line.configured != line.value
        table.add_row(line.name, str(line.value), str(line.configured) if differs else "")
    out = console()
    out.print(table)
    level, possible = listing.feature_level, listing.feature_level_possible
    more = f"; all members can do {possible}: `zraft settings raise-features`" if possible > level else ""
    out.print(f"feature level {level}{more}", soft_wrap=True)


def _as_json(listing: SettingsListing) -> dict[str, object]:
    return {
        "settings": {
            line.name: {"value": line.value, "configured": line.configured} for line in listing.settings
        },
        "feature_level": listing.feature_level,
        "feature_level_possible": listing.feature_level_possible,
    }
