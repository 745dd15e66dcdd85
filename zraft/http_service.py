"""An HTTP server for operators on a process' own loop: how much it answers at a time is bounded, and failures stay inside.

There is no authentication: whoever reaches the address may ask. Imported only where an address is configured, and late,
because aiohttp takes a third of a second to load.
"""

from __future__ import annotations

import asyncio
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
SHUTDOWN_S: Final = 1.0
"""What is still being answered at the end may take this long."""
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
    """Answers what is asked by GET (`routes`, by path), from `start` to `stop`, or from `prepare` if another listens."""

    def __init__(self, routes: Mapping[str, Handler]) -> None:
        self._routes = routes
        self._answering = 0
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def prepare(self) -> None:
        """From here on `connection` may be called."""
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
            shutdown_timeout=SHUTDOWN_S,
        )
        await self._runner.setup()

    async def start(self, address: Address) -> None:
        """Prepare, and listen at an address.

        Raises:
            OSError: the address cannot be listened at.
        """
        await self.prepare()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.connection, address.listening_hosts, address.port)

    async def stop(self) -> None:
        """Stop listening and end what is under way."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def connection(self) -> asyncio.BaseProtocol:
        """What answers one connection."""
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
