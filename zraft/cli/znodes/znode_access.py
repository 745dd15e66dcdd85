"""Parts that the commands for znodes share: checked paths, and a client that says at once that nobody listens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from zraft.cli.client_options import Access
from zraft.cli.operator_options import Uncertain
from zraft_core.errors import ConfigError, ZraftError

if TYPE_CHECKING:
    from zraft_client.client import Client
    from zraft_core.wire.stat import Stat

ROOT: Final = "/"


def znode_path(text: str, *, sequential: bool = False) -> str:
    """Return a path that servers accept.

    Raises:
        ConfigError: none would.
    """
    from zraft.shell.errors import UsageError
    from zraft.shell.paths import checked_path

    try:
        return checked_path(text, sequential=sequential)
    except UsageError as error:
        raise ConfigError(f"PATH: {error}") from error


def require_listener(access: Access) -> None:
    """Return if somebody listens at one of the servers. Blocks for a second at most.

    Raises:
        ZraftError: nobody does; there is no use in trying until the time is over.
    """
    from zraft.program.reaching import nobody_listens
    from zraft_client.pacing import parse_hosts

    if (reasons := nobody_listens(parse_hosts(access.connect))) is not None:
        raise ZraftError(f"{reasons}; --connect names the servers, `zraft dev` starts some to try")


@asynccontextmanager
async def connected(access: Access, *, session: bool = False) -> AsyncIterator[Client]:
    """Give a connected client; with a `session` if it needs one, for exactly-once writes.

    Raises:
        Uncertain: as `connected_with`.
    """
    async with connected_with(access.client(session=session)) as client:
        yield client


@asynccontextmanager
async def connected_with(client: Client) -> AsyncIterator[Client]:
    """Connect a client, and close it in the end.

    Raises:
        Uncertain: a write may have been done or not; the command ends with an exit code of its own.
    """
    from zraft_client.errors import UnknownOutcomeError

    try:
        async with client:
            yield client
    except UnknownOutcomeError as error:
        raise Uncertain(str(error)) from error


def stat_value(stat: Stat) -> dict[str, Any]:
    """Return a stat with ZooKeeper's names, as `zraft shell --json` prints it."""
    from zraft.shell import render

    return render.stat_value(stat)
