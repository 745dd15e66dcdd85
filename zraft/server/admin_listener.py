"""Opens the admin HTTP server without delaying the start: its port listens at once, aiohttp is loaded afterwards.

Loading it takes a third of a second of CPU, which in a cluster on one machine is a third of the time until it
serves. So it waits until this server serves its clients, and is loaded in a thread; who connects earlier waits.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from zraft.address import Address
from zraft.admin.status import AdminReports
from zraft.errors import ConfigError
from zraft.listening import cannot_listen

if TYPE_CHECKING:
    from zraft.admin.http import AdminServer

BACKLOG: Final = 64
POLL_S: Final = 0.05
WAIT_S: Final = 2.0
"""A server that does not serve by then has something to tell, so it is not waited for any longer."""


class AdminListener:
    """One admin address from the process's start to its end. `open`, then `stop`."""

    def __init__(
        self, address: Address, reports: AdminReports, on_failed: Callable[[Exception], None]
    ) -> None:
        self._address = address
        self._reports = reports
        self._on_failed = on_failed
        self._socket: socket.socket | None = None
        self._server: AdminServer | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self, bound: socket.socket) -> None:
        """Listen at this socket, which is closed at the end; questions are answered a moment later.

        Raises:
            ConfigError: somebody else listens there.
        """
        self._socket = bound
        try:
            bound.listen(BACKLOG)
        except OSError as error:
            raise ConfigError(f"admin: cannot listen at {self._address}: {cannot_listen(error)}") from error
        bound.setblocking(False)
        self._task = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        assert self._socket is not None
        try:
            for _ in range(round(WAIT_S / POLL_S)):
                if self._reports.serving:
                    break
                await asyncio.sleep(POLL_S)
            module: Any = await asyncio.to_thread(importlib.import_module, "zraft.admin.http")
            self._server = module.AdminServer(self._address, self._reports)
            await self._server.start(self._socket)
        except Exception as error:
            self._on_failed(error)

    async def stop(self) -> None:
        """Stop listening and end what is under way."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._server is not None:
            await self._server.stop()
        if self._socket is not None:
            self._socket.close()
