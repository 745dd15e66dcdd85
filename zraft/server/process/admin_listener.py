"""Opening of the admin HTTP server without delaying the start.

Probes are answered at once, aiohttp is loaded afterwards.

Loading it takes a third of a second of CPU, which in a cluster on one machine is a third of the time until it
serves. So it waits until this server serves its clients, and is loaded in a thread; who asks for more than probes do
before that waits.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import structlog

from zraft.admin.early import EarlyConnections
from zraft.program.listening import cannot_listen
from zraft.server.operators.status import AdminReports
from zraft_core.address import Address
from zraft_core.errors import ConfigError

if TYPE_CHECKING:
    from zraft.admin.http import AdminServer
    from zraft.server.operators.inner_clients import InnerClients

BACKLOG: Final = 64
POLL_S: Final = 0.05
WAIT_S: Final = 2.0
"""A server that does not serve by then has something to tell, so it is not waited for any longer."""

Reach = tuple[str, str | None]
"""Who may use the console, and with which token (`admin.console`, `admin.console_token`)."""

log = structlog.get_logger()


def load_module(name: str) -> ModuleType:
    """Import a module in a thread, so that the loop goes on."""
    return importlib.import_module(name)


class AdminListener:
    """One admin address from the process's start to its end. `open`, then `stop`."""

    def __init__(
        self,
        address: Address,
        reports: AdminReports,
        on_failed: Callable[[Exception], None],
        hosts: Iterable[str] = (),
        console: Reach = ("off", None),
        clients: Callable[[], InnerClients] | None = None,
    ) -> None:
        """Prepare to listen.

        Args:
            address: where.
            reports: what operators see of this server.
            on_failed: called if the server cannot be loaded.
            hosts: names under which browsers may ask for pages (`admin.hosts`).
            console: values of `admin.console` and `admin.console_token`.
            clients: makes the console's way into the server, once that is loaded.
        """
        self._address = address
        self._console = console
        self._clients = clients
        self._hosts = tuple(hosts)
        self._reports = reports
        self._on_failed = on_failed
        self._early = EarlyConnections(reports)
        self._listening: list[asyncio.Server] = []
        self._server: AdminServer | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self, bound: Sequence[socket.socket]) -> None:
        """Listen at these sockets, which are closed at the end; what is more than a probe is answered a moment later.

        Raises:
            ConfigError: somebody else listens there.
        """
        loop = asyncio.get_running_loop()
        try:
            for one in bound:
                one.listen(BACKLOG)  # uvloop would not tell that it could not
                self._listening.append(await loop.create_server(self._connection, sock=one, backlog=BACKLOG))
        except OSError as error:
            raise ConfigError(f"admin: cannot listen at {self._address}: {cannot_listen(error)}") from error
        self._task = loop.create_task(self._load())

    def _connection(self) -> asyncio.BaseProtocol:
        return (self._early if self._server is None else self._server).connection()

    async def _load(self) -> None:
        try:
            for _ in range(round(WAIT_S / POLL_S)):
                if self._reports.serving:
                    break
                await asyncio.sleep(POLL_S)
            module: Any = await asyncio.to_thread(load_module, "zraft.admin.http")
            console = module.ConsoleSettings(*self._console, self._address.port)
            clients = None if self._clients is None else self._clients()
            server: AdminServer = module.AdminServer(self._reports, self._hosts, console, clients)
            await server.prepare()
            self._server = server
            self._early.hand_over(server.connection)
            log.info("admin server listening", url=f"http://{self._address}/")
        except Exception as error:
            self._on_failed(error)

    async def stop(self) -> None:
        """Stop listening and end what is under way."""
        for one in self._listening:
            one.close()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._early.close()
        if self._server is not None:
            await self._server.stop()
