"""An HTTP server for operators on a process' own loop: how much it answers at a time is bounded, and failures stay inside.

There is no authentication: whoever reaches the address may ask. Imported only where an address is configured, and late,
because aiohttp takes a third of a second to load.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from zraft import __version__
from zraft.address import Address

CONNECTIONS_MAX: Final = 64
"""Further ones are closed at once: file descriptors belong to the clients."""
REQUESTS_MAX: Final = 8
"""Being answered at the same time; further ones are told to come back."""
KEEPALIVE_S: Final = 30.0
LINE_BYTES_MAX: Final = 4_096

HEADERS: Final = {
    "Server": f"zraft/{__version__}",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; frame-ancestors 'none'"
    ),
}
"""For every answer."""

log = structlog.get_logger()


class HttpService:
    """Answers at one address from `start` to `stop`. `routes`: what is asked by GET, by path."""

    def __init__(self, routes: Mapping[str, Handler]) -> None:
        self._routes = routes
        self._answering = 0
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def start(self, where: socket.socket | Address) -> None:
        """Answer at a socket that listens already, which stays its owner's to close, or listen at an address.

        Raises:
            OSError: the address cannot be listened at.
        """
        app = web.Application(middlewares=[self._guard])
        for path, handler in self._routes.items():
            app.router.add_get(path, handler)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEEPALIVE_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
        )
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        if isinstance(where, Address):
            self._server = await loop.create_server(self._new_connection, where.listening_hosts, where.port)
        else:
            self._server = await loop.create_server(self._new_connection, sock=where)

    async def stop(self) -> None:
        """Stop listening and end what is under way."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _new_connection(self) -> asyncio.BaseProtocol:
        assert self._runner is not None
        server = self._runner.server
        assert server is not None
        if len(server.connections) >= CONNECTIONS_MAX:
            return _Refuse()
        return server()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Bound what is answered at a time, and turn what nobody expected into a 500 without its inner details."""
        if self._answering >= REQUESTS_MAX:
            return text(503, f"busy: {REQUESTS_MAX} requests are being answered\n", {"Retry-After": "1"})
        self._answering += 1
        try:
            response = await handler(request)
        except (web.HTTPException, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("http request failed", path=request.path)
            return text(500, "this request failed; the server's log says why\n")
        finally:
            self._answering -= 1
        return response


class _Refuse(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def text(status: int, body: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status, text=body, content_type="text/plain", headers={**HEADERS, **(headers or {})}
    )


def exposition(request: web.Request, registry: CollectorRegistry) -> web.Response:
    """The metrics of a registry, in the format that the request prefers."""
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    body: bytes = encode(registry)
    return web.Response(body=body, headers={**HEADERS, "Content-Type": content_type})
