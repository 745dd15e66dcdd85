"""The admin HTTP server: AdminServer's commands, health, Prometheus metrics and the console, on the server's own loop.

It is imported only where `admin` is configured, and late (see `zraft.program.http_service`). Every request
does a bounded piece of work at a time; long answers are encoded in slices with the loop's other work in
between. There is no authentication but the console's: whoever reaches the address may ask, and reset statistics. A browser
may do less for the pages of other sites: see `HttpService`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector

from zraft.admin.commands import COMMAND_NAMES, changes_something, run_command
from zraft.admin.console.console import OFF, Console, ConsoleSettings
from zraft.admin.exposed import text_of
from zraft.admin.metrics import StatusCollector
from zraft.admin.partition_metrics import PARTITIONS
from zraft.admin.summary import summary
from zraft.program.http_service import HEADERS, HttpService, exposition, text
from zraft.server.operators.inner_clients import InnerClients
from zraft.server.operators.status import AdminReports, readiness

SLICE_ITEMS: Final = 250
"""Items of a list that are encoded before the loop gets its turn: about a millisecond."""


class AdminServer:
    """Admin server that answers the connections that it gets, from `prepare` to `stop`."""

    def __init__(
        self,
        reports: AdminReports,
        hosts: Iterable[str] = (),
        console: ConsoleSettings | None = None,
        clients: InnerClients | None = None,
    ) -> None:
        """Prepare to answer.

        Args:
            reports: what operators see of this server.
            hosts: names under which browsers may ask for pages, beside addresses and localhost.
            console: what the operator says of the console; None: it is off.
            clients: the console's way into the server; without it there is no more of it than the overview.
        """
        self._reports = reports
        self._console = Console(console or ConsoleSettings(OFF, None, 0), reports, clients)
        self._collector = StatusCollector()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._collector)
        ProcessCollector(registry=self._registry)
        self._service = HttpService(
            {
                **self._console.routes,
                "/status.json": self._show_status,
                "/commands": self._list_commands,
                "/commands/{name}": self._run_command,
                "/livez": self._livez,
                "/readyz": self._readyz,
                "/metrics": self._metrics,
            },
            checks=("/livez", "/readyz"),
            pages=(*self._console.routes, "/commands"),
            hosts=hosts,
            posts=self._console.posts,
            patient=self._console.patient,
            streams=self._console.streams,
        )
        self._console.belongs_to(self._service)

    async def prepare(self) -> None:
        """Prepare; `connection` may be called from here on."""
        await self._service.prepare()

    def connection(self) -> asyncio.BufferedProtocol:
        """Return what answers one connection."""
        return self._service.connection()

    async def stop(self) -> None:
        """End what is under way."""
        await self._console.stop()
        await self._service.stop()

    # -- the answers

    async def _show_status(self, _: web.Request) -> web.Response:
        return await _json(summary(self._reports.status()))

    async def _list_commands(self, request: web.Request) -> web.Response:
        if _wants_json(request):
            return await _json({"commands": list(COMMAND_NAMES)})
        links = "".join(f'<a href="/commands/{escape(n)}">{escape(n)}</a><br/>\n' for n in COMMAND_NAMES)
        return web.Response(text=links, content_type="text/html", headers=HEADERS)

    async def _run_command(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if changes_something(name):
            refusal = self._service.refusal(request)
            if refusal is not None:
                return refusal
        return await _json(run_command(name, self._reports, dict(request.query)))

    async def _livez(self, _: web.Request) -> web.Response:
        # That this line runs is the answer: the loop that serves the clients runs.
        return text(200, "ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        reasons = self._reports.reasons()
        code, said = readiness(reasons)
        if _wants_json(request):
            return await _json({"ready": not reasons, "reasons": list(reasons)}, code)
        return text(code, said)

    async def _metrics(self, request: web.Request) -> web.Response:
        partitions = self._reports.partitions()
        self._collector.current = self._reports.status()
        try:
            return exposition(
                request, self._registry, lambda is_open: text_of(PARTITIONS, partitions, openmetrics=is_open)
            )
        finally:
            self._collector.current = None


def _wants_json(request: web.Request) -> bool:
    return "application/json" in request.headers.get("Accept", "")


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
    """Yield the object, a field a line, in pieces that each cost little."""
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
