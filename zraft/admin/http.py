"""The admin HTTP server: AdminServer's commands, health, Prometheus metrics and a page, on the server's own loop.

Imported only where `admin` is configured, and late, because aiohttp takes a third of a second to load. Every request
does a bounded piece of work at a time; long answers are encoded in slices with the loop's other work in between.
There is no authentication: whoever reaches the address may ask, and reset statistics.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from html import escape
from importlib import resources
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from zraft import __version__
from zraft.address import Address
from zraft.admin.commands import COMMAND_NAMES, run_command
from zraft.admin.metrics import StatusCollector
from zraft.admin.status import AdminReports
from zraft.admin.summary import summary

CONNECTIONS_MAX: Final = 64
"""Further ones are closed at once: file descriptors belong to the clients."""
REQUESTS_MAX: Final = 8
"""Being answered at the same time; further ones are told to come back."""
SLICE_ITEMS: Final = 250
"""Items of a list encoded before the loop gets its turn: about a millisecond."""
KEEPALIVE_S: Final = 30.0
LINE_BYTES_MAX: Final = 4_096

log = structlog.get_logger()

HEADERS: Final = {
    "Server": f"zraft/{__version__}",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; frame-ancestors 'none'"
    ),
}


class AdminServer:
    """Answers at one address from `start` to `stop`."""

    def __init__(self, address: Address, reports: AdminReports) -> None:
        self._address = address
        self._reports = reports
        self._answering = 0
        self._page = resources.files("zraft.admin").joinpath("page.html").read_text(encoding="utf-8")
        self._collector = StatusCollector()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._collector)
        ProcessCollector(registry=self._registry)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Answer at a socket that listens already; it stays its owner's to close."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", self._show_page)
        app.router.add_get("/status.json", self._show_status)
        app.router.add_get("/commands", self._list_commands)
        app.router.add_get("/commands/{name}", self._run_command)
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEEPALIVE_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
        )
        await self._runner.setup()
        self._server = await asyncio.get_running_loop().create_server(self._new_connection, sock=listening)
        log.info("admin server listening", url=f"http://{self._address}/")

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

    # -- around every request

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Bound what is answered at a time, and turn what nobody expected into a 500 without its inner details."""
        if self._answering >= REQUESTS_MAX:
            return _text(503, f"busy: {REQUESTS_MAX} requests are being answered\n", {"Retry-After": "1"})
        self._answering += 1
        try:
            response = await handler(request)
        except (web.HTTPException, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("admin request failed", path=request.path)
            return _text(500, "this request failed; the server's log says why\n")
        finally:
            self._answering -= 1
        return response

    # -- what is answered

    async def _show_page(self, _: web.Request) -> web.Response:
        return web.Response(text=self._page, content_type="text/html", headers=HEADERS)

    async def _show_status(self, _: web.Request) -> web.Response:
        return await _json(summary(self._reports.status()))

    async def _list_commands(self, request: web.Request) -> web.Response:
        if _wants_json(request):
            return await _json({"commands": list(COMMAND_NAMES)})
        links = "".join(f'<a href="/commands/{escape(n)}">{escape(n)}</a><br/>\n' for n in COMMAND_NAMES)
        return web.Response(text=links, content_type="text/html", headers=HEADERS)

    async def _run_command(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return await _json(run_command(name, self._reports, dict(request.query)))

    async def _livez(self, _: web.Request) -> web.Response:
        # That this line runs is the answer: the loop that serves the clients turns.
        return _text(200, "ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        status = self._reports.status()
        code = 200 if status.ready else 503
        if _wants_json(request):
            return await _json({"ready": status.ready, "reasons": list(status.reasons)}, code)
        return _text(code, "ok\n" if status.ready else "".join(f"{reason}\n" for reason in status.reasons))

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        self._collector.current = self._reports.status()
        try:
            body: bytes = encode(self._registry)
        finally:
            self._collector.current = None
        return web.Response(body=body, headers={**HEADERS, "Content-Type": content_type})


class _Refuse(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _wants_json(request: web.Request) -> bool:
    return "application/json" in request.headers.get("Accept", "")


def _text(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status, text=text, content_type="text/plain", headers={**HEADERS, **(headers or {})}
    )


async def _json(value: dict[str, Any], status: int = 200) -> web.Response:
    parts = []
    for number, part in enumerate(_encoded(value)):
        parts.append(part)
        if number and number % 2 == 0:
            await asyncio.sleep(0)
    return web.Response(
        status=status, body="".join(parts).encode(), content_type="application/json", headers=HEADERS
    )


def _encoded(value: dict[str, Any]) -> Iterator[str]:
    """The object, a field a line, in pieces that each cost little."""
    before = "{\n  "
    for name, field in value.items():
        yield f"{before}{json.dumps(name)}: "
        before = ",\n  "
        if isinstance(field, list) and len(field) > SLICE_ITEMS:
            yield "["
            for start in range(0, len(field), SLICE_ITEMS):
                inner = json.dumps(field[start : start + SLICE_ITEMS])[1:-1]
                yield inner if not start else ", " + inner
            yield "]"
        elif isinstance(field, dict) and len(field) > SLICE_ITEMS:
            items = list(field.items())
            yield "{"
            for start in range(0, len(items), SLICE_ITEMS):
                inner = json.dumps(dict(items[start : start + SLICE_ITEMS]))[1:-1]
                yield inner if not start else ", " + inner
            yield "}"
        else:
            yield json.dumps(field)
    yield "\n}\n" if value else "{}\n"
