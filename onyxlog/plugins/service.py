"""A client of the log's service for plugins that read or write there: one per plugin, with a session of its own."""

from __future__ import annotations

from onyxlog.access import NOBODY
from onyxlog.errors import WorkflowError
from onyxlog.plugins.plugin import PluginContext
from zraft_client import Client


class Service:
    """A connection to a service.

    With `hosts` it goes to another cluster than the log's, and does not show it this group's identity.
    """

    def __init__(self, context: PluginContext, hosts: str | None) -> None:
        self._context = context
        self._hosts = hosts or context.hosts
        self._access = NOBODY if hosts else context.access
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The connected client. Valid between `open` and `close`."""
        assert self._client is not None, "it is open"
        return self._client

    async def open(self) -> Client:
        """Connect to the service.

        Raises:
            WorkflowError: nobody said where the servers are.
        """
        if not self._hosts:
            raise WorkflowError(
                f"{self._context.where}: plugin: options: expected `hosts`, such as 127.0.0.1:2181, found none, and this "
                f"group was not told where zraft's servers are either"
            )
        self._client = Client(self._hosts, auth=self._access.auth, tls=self._access.context())
        await self._client.connect()
        return self._client

    async def close(self) -> None:
        """Close the connection, also if it could not be opened."""
        if self._client is not None:
            await self._client.close()
            self._client = None
