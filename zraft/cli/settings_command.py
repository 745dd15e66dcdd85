"""The command `zraft settings`: shows and changes what all servers must agree on, while the cluster runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from zraft.cli.listings.listing import Column, Grid, Listing
from zraft.cli.listings.listing_options import lists
from zraft.cli.operator_options import asks_cluster

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
@asks_cluster
@lists
def show(client: OperatorClient) -> Listing:
    """Show the settings in force. The value in the asked server's configuration is beside one that differs."""
    from zraft.operator.requests import SettingsListing, SettingsShow

    listing = client.call(SettingsShow(), SettingsListing)
    return Listing((_as_json(listing),), _shown(listing))


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


COLUMNS: Final = (Column("setting"), Column("in force", right=True), Column("configured"))


def _shown(listing: SettingsListing) -> tuple[Grid | str, ...]:
    rows = []
    for line in listing.settings:
        differs = line.configured is not None and line.configured != line.value
        rows.append((line.name, str(line.value), str(line.configured) if differs else ""))
    level, possible = listing.feature_level, listing.feature_level_possible
    more = f"; all members can do {possible}: `zraft settings raise-features`" if possible > level else ""
    return (Grid(COLUMNS, tuple(rows)), f"feature level {level}{more}")


def _as_json(listing: SettingsListing) -> dict[str, object]:
    return {
        "settings": {
            line.name: {"value": line.value, "configured": line.configured} for line in listing.settings
        },
        "feature_level": listing.feature_level,
        "feature_level_possible": listing.feature_level_possible,
    }
