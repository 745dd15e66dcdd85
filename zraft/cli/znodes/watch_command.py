"""The command `zraft watch`: a line per change of a znode, as it happens."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Final

import click

from zraft.cli.client_options import Access, is_client
from zraft.cli.listings.listing_options import output_option
from zraft.cli.znodes.znode_access import connected, require_listener, znode_path

if TYPE_CHECKING:
    from zraft_client.subscriptions import PathEvent

WATCHING: Final = "watching"


@click.command(short_help="Print a line for each change of a znode.")
@click.argument("path")
@click.option("--recursive", "-r", "-R", is_flag=True, help="Also changes of all znodes below it.")
@click.option("--count", "-n", metavar="N", type=click.IntRange(1), help="End after so many changes.")
@output_option("table", "json")
@is_client
def watch(access: Access, path: str, recursive: bool, count: int | None, output: str) -> None:
    """Print a line for each change of the znode PATH, until Ctrl-C or --count; it need not exist yet.

    \b
        zraft watch /config
        zraft watch -r /workers --output json
        zraft watch /ready --count 1 && ./start     # waits for the first change

    \b
    created   the znode was created.
    changed   its data was set.
    children  a znode below it was created or deleted; not with --recursive, which shows the znode itself.
    deleted   it was deleted.

    It says `watching PATH` on standard error when changes are seen from now on. It goes on with another server when a
    connection breaks, and says `resubscribed` then: what happened in between is not shown, so read the znode again.
    """
    path = znode_path(path)
    try:
        require_listener(access)
        asyncio.run(_watch(access, path, recursive=recursive, count=count, as_json=output == "json"))
    except KeyboardInterrupt:
        sys.exit(0)


async def _watch(access: Access, path: str, *, recursive: bool, count: int | None, as_json: bool) -> None:
    from zraft_client.subscriptions import RESUBSCRIBED

    async with connected(access) as client, client.subscribe_path(path, recursive=recursive) as events:
        click.echo(f"{WATCHING} {path}", err=True)
        seen = 0
        async for event in events:
            click.echo(event_line(event, as_json=as_json))
            sys.stdout.flush()
            seen += event.kind != RESUBSCRIBED
            if seen == count:
                return


def event_line(event: PathEvent, *, as_json: bool) -> str:
    """Return the line of one event."""
    if as_json:
        return json.dumps({"event": event.kind, "path": event.path, "zxid": event.zxid})
    from zraft.shell.render import show_hex, visible

    zxid = f"  zxid={show_hex(event.zxid)}" if event.zxid else ""
    return f"{event.kind:<8}  {visible(event.path)}{zxid}"
