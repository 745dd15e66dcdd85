"""A client of the log's service for plugins that read or write there: one per plugin, with a session of its own."""

from __future__ import annotations

from onyxlog.errors import WorkflowError
from onyxlog.plugins.plugin import PluginContext
from zraft_client import Client


async def open_client(context: PluginContext, hosts: str | None) -> Client:
    """A connected one. `hosts`: of another cluster than the one that the log is in.

    Raises:
        WorkflowError: nobody said where the servers are.
    """
    where = hosts or context.hosts
    if not where:
        raise WorkflowError(
            f"{context.where}: plugin: options: expected `hosts`, such as 127.0.0.1:2181, found none, and this group "
            f"was not told where zraft's servers are either"
        )
    client = Client(where)
    try:
        await client.connect()
    except BaseException:
        await client.close()
        raise
    return client
