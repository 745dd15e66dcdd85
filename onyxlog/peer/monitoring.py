"""The HTTP server of a peer process: Prometheus metrics, health, and what its groups are doing. No authentication.

It is imported only where `--metrics` is given (see `zraft.program.http_service`).
"""

from __future__ import annotations

from typing import Any

import structlog
from aiohttp import web

from onyxlog.peer.fleet import Fleet
from onyxlog.peer.group import PeerGroup
from zraft.program.http_service import HEADERS, HttpService, exposition, text
from zraft_core.address import Address

log = structlog.get_logger()


class Monitoring:
    """The HTTP server. It answers from `start` to `stop`."""

    def __init__(self, address: Address, fleet: Fleet) -> None:
        self._address = address
        self._fleet = fleet
        self._service = HttpService(
            {
                "/metrics": self._metrics,
                "/livez": self._livez,
                "/readyz": self._readyz,
                "/status.json": self._status,
            },
            checks=("/livez", "/readyz"),
        )

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be listened at.
        """
        await self._service.start(self._address)
        log.info("monitoring listens", url=f"http://{self._address}/metrics")

    async def stop(self) -> None:
        """Stop answering."""
        await self._service.stop()

    async def _metrics(self, request: web.Request) -> web.Response:
        return exposition(request, self._fleet.metrics.registry)

    async def _livez(self, _: web.Request) -> web.Response:
        # That this line runs is the answer: the groups' loop runs.
        return text(200, "ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        """Answer whether all groups of this process are members."""
        waiting = [number for number, group in enumerate(self._fleet.groups) if not _joined(group)]
        if waiting:
            return text(503, "".join(f"group {number} has not joined\n" for number in waiting))
        return text(200, "ok\n")

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"groups": [status_of(group) for group in self._fleet.groups]}, headers=HEADERS
        )


def _joined(group: PeerGroup) -> bool:
    incarnation = group.incarnation
    return incarnation is not None and incarnation.begun and incarnation.core.joined


def status_of(group: PeerGroup) -> dict[str, Any]:
    """Return the status of one group, as JSON."""
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
