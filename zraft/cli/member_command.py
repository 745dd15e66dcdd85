"""The command `zraft member`: lists and changes the members of the running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from zraft.cli.listings.listing import Column, Grid, Listing
from zraft.cli.listings.listing_options import lists
from zraft.cli.operator_options import SERVER_ID, asks_cluster, do, wait_done
from zraft_core.ids import ServerId

if TYPE_CHECKING:
    from zraft.operator.client import OperatorClient
    from zraft.operator.requests import MemberLine, MemberListing


@click.group()
def member() -> None:
    """List the members of a cluster, and change them while it runs.

    \b
    Add a fourth and a fifth server, one after the other, while the cluster goes on:
        zraft member add 4 10.0.0.4:2181 --key cluster.key --connect 10.0.0.1:2181
        zraft serve --id 4 …                      # on that machine, with the same key
        zraft member list --key cluster.key --connect 10.0.0.1:2181
    \b
    Replace a machine that is gone for good by another one, which is server 2 from now on:
        zraft member move 2 10.0.0.9:2181 …
        zraft serve --id 2 …                      # on the new machine, with an empty directory

    Whoever has the cluster key may do this; ACLs are for clients. The exit code is 0 on success, 1 if the request was
    refused or no server could be asked, 2 if the command is wrong, and 3 if it is not known whether it was done.
    """


@member.command("list")
@asks_cluster
@lists
def list_(client: OperatorClient) -> Listing:
    """Show all members, as the leader knows them.

    \b
    role      voter: counts in majorities. learner: catches up, then votes. observer: follows, never votes.
              leaving: is to go, when partitions of topics on its disk have moved and its removal is committed.
    behind    entries of the log that it is not known to have on disk.
    silent    milliseconds since the leader heard of it.
    disk      the beginning of its disk's identity; empty if it never showed up.
    """
    from zraft.operator.requests import MemberList, MemberListing

    listing = client.call(MemberList(), MemberListing)
    return Listing((_as_json(listing),), _shown(listing))


@member.command()
@click.argument("server", metavar="ID", type=SERVER_ID)
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--observer", is_flag=True, help="Let it follow and answer reads, but never vote: for more readers."
)
@asks_cluster
def add(client: OperatorClient, server: int, address: str, observer: bool) -> None:
    """Add server ID, which clients and servers reach at HOST:PORT.

    Start it before or after with `zraft serve --id ID …`, the same key, and an empty data directory. It gets a
    copy of everything first and votes once it has caught up, so that adding it never makes the cluster weaker.

    Adding a server that is there already, at this address, is a success. At another address it is refused: `zraft member
    move` changes where a server is.

    \b
        zraft member add 4 10.0.0.4:2181 --key cluster.key
        zraft member add 5 10.0.0.5:2181 --observer --key cluster.key
    """
    from zraft.operator.requests import MemberAdd

    do(client, MemberAdd(ServerId(server), _reachable(address), observer))


@member.command()
@click.argument("server", metavar="ID", type=SERVER_ID)
@click.argument("address", metavar="HOST:PORT")
@asks_cluster
def move(client: OperatorClient, server: int, address: str) -> None:
    """Change where server ID is: clients and servers reach it at HOST:PORT from now on.

    It stays what it is, voter or observer. Stop it at its old address, and start it at the new one with the data directory
    that it has, or with an empty one if its disk was lost. Moving it to where it is already is a success.

    \b
        zraft member move 2 10.0.0.9:2181 --key cluster.key --connect 10.0.0.1:2181
    """
    from zraft.operator.requests import MemberMove

    do(client, MemberMove(ServerId(server), _reachable(address)))


@member.command()
@click.argument("server", metavar="ID", type=SERVER_ID)
@click.option(
    "--no-wait", is_flag=True, help="Do not wait until it has left. Do not touch its disk before it has."
)
@asks_cluster
def remove(client: OperatorClient, server: int, no_wait: bool) -> None:
    """Remove server ID, dead or alive, leader or not.

    If the server answers, the partitions of topics on its disk move to others first, and then it leaves. This command
    waits for that as long as --timeout says; it goes on without the command. Stop the server only when it has left; it
    serves no clients then. To use its machine again, empty the data directory and add it. The last voter cannot be removed.
    """
    from zraft.operator.requests import MemberRemove

    do(client, MemberRemove(ServerId(server)))
    if not no_wait:
        _wait_until_gone(client, server)


@member.command()
@click.argument("server", metavar="ID", type=SERVER_ID)
@asks_cluster
def promote(client: OperatorClient, server: int) -> None:
    """Make an observer, or a learner that has caught up, a voter."""
    from zraft.operator.requests import MemberPromote

    do(client, MemberPromote(ServerId(server)))


@member.command(short_help="Hand the leadership to server ID, or to the furthest voter.")
@click.argument("server", metavar="[ID]", required=False, type=SERVER_ID)
@asks_cluster
def transfer(client: OperatorClient, server: int | None) -> None:
    """Hand the leadership to server ID, or to the voter that is the furthest.

    Do this before a machine is taken down for maintenance: writes then pause for a few round trips instead of an
    election timeout.
    """
    from zraft.operator.requests import Transfer

    do(client, Transfer(ServerId(server) if server is not None else None))


def _reachable(address: str) -> str:
    """Return HOST:PORT as other servers will reach it; it is checked before any server is asked."""
    from zraft_core.address import parse_address

    return str(parse_address(address, "HOST:PORT"))


def _wait_until_gone(client: OperatorClient, server: int) -> None:
    """Wait until the member belongs to no configuration any more."""
    from zraft.operator.errors import OperatorError
    from zraft.operator.requests import MemberList, MemberListing

    def unfinished() -> str:
        why = ""
        try:
            listing = client.call(MemberList(), MemberListing)
        except OperatorError as error:
            # The server that was asked may be the one that has just left.
            why = f" ({error})"
        else:
            if not listing.changing and all(line.server != server for line in listing.members):
                return ""
        return (
            f"server {server} is to leave, and was not seen to have left after {client.timeout_s:g} s{why}; it goes on "
            "without this command. Keep its disk until `zraft member list` does not show it any more"
        )

    wait_done(client, unfinished)
    click.echo(f"server {server} has left; stop it")


COLUMNS: Final = (
    Column("server", right=True),
    Column("address"),
    Column("role"),
    Column("leader"),
    Column("behind", right=True),
    Column("silent ms", right=True),
    Column("features", right=True, spare=2),
    Column("disk", spare=1),
)


def _shown(listing: MemberListing) -> tuple[Grid | str, ...]:
    rows = tuple(
        (
            str(line.server),
            line.address or "?",
            line.role,
            "yes" if line.leads else "",
            _behind(line, listing.last_index),
            "-" if line.silent_ms is None else str(line.silent_ms),
            "-" if line.features is None else str(line.features),
            line.instance.hex()[:8],
        )
        for line in listing.members
    )
    about = f"cluster {listing.cluster.hex()}, configuration of entry {listing.index}"
    changing = ["a change is under way: the next one has to wait for it"] if listing.changing else []
    return (Grid(COLUMNS, rows), about, *changing)


def _behind(line: MemberLine, last_index: int) -> str:
    return "-" if line.match_index is None else str(max(0, last_index - line.match_index))


def _as_json(listing: MemberListing) -> dict[str, object]:
    return {
        "cluster": listing.cluster.hex(),
        "index": listing.index,
        "last_index": listing.last_index,
        "changing": listing.changing,
        "members": [
            {
                "server": line.server,
                "address": line.address,
                "role": line.role,
                "disk": line.instance.hex(),
                "leads": line.leads,
                "match_index": line.match_index,
                "silent_ms": line.silent_ms,
                "features": line.features,
            }
            for line in listing.members
        ],
    }
