"""The HTTP server of a peer process: Prometheus metrics, health, and what its groups are doing. No authentication.

Imported only where `--metrics` is given, because aiohttp takes a third of a second to load.
"""

from __future__ import annotations

from typing import Any, Final

import structlog
from aiohttp import web
from prometheus_client.exposition import choose_encoder

from onyxlog.peer.fleet import Fleet
from onyxlog.peer.group import PeerGroup
from zraft.address import Address

HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
LINE_BYTES_MAX: Final = 4_096

log = structlog.get_logger()


class Monitoring:
    """Answers from `start` to `stop`."""

    def __init__(self, address: Address, fleet: Fleet) -> None:
        self._address = address
        self._fleet = fleet
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Raises OSError: the address cannot be listened at."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/status.json", self._status)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, self._address.host, self._address.port).start()
        log.info("monitoring listens", url=f"http://{self._address}/metrics")

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(
            body=encode(self._fleet.metrics.registry), headers={**HEADERS, "Content-Type": content_type}
        )

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n", headers=HEADERS)

    async def _readyz(self, _: web.Request) -> web.Response:
        """Ready: all groups of this process are members."""
        waiting = [number for number, group in enumerate(self._fleet.groups) if not _joined(group)]
        if waiting:
            text = "".join(f"group {number} has not joined\n" for number in waiting)
            return web.Response(status=503, text=text, headers=HEADERS)
        return web.Response(text="ok\n", headers=HEADERS)

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"groups": [status_of(group) for group in self._fleet.groups]}, headers=HEADERS
        )


def _joined(group: PeerGroup) -> bool:
    incarnation = group.incarnation
    return incarnation is not None and incarnation.begun and incarnation.core.joined


def status_of(group: PeerGroup) -> dict[str, Any]:
    """Of one group, as JSON."""
    incarnation = group.incarnation
    if incarnation is None or not incarnation.begun:
        return {"group": None, "incarnations": group.incarnations, "joined": False}
    core = incarnation.core
    return {
        "group": core.group,
        "incarnations": group.incarnations,
        "joined": core.joined,
        "position": core.version,
        "chain": core.chain.hex(),
        "watches": incarnation.watched,
        "unseen": len(core.unseen),
        "tasks": {
            peer: {"job": task.job, "task": task.task, "slot": task.slot}
            for peer, task in sorted(incarnation.running.items())
        },
    }
