"""The HTTP server of a peer process, asked through real sockets on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp

from onyxlog.peer.fleet import Fleet
from onyxlog.peer.idle_runner import run_nothing
from onyxlog.peer.log.port import LogPort, OpenPort
from onyxlog.peer.monitoring import Monitoring
from onyxlog.peer.settings import GroupSettings
from tests.onyxlog.simulation.memory_log import MemoryLog
from zraft.program.http_places import CONNECTIONS_MAX
from zraft_core.address import Address

Get = Callable[[str], Awaitable[tuple[int, str]]]


@asynccontextmanager
async def monitored(open_port: OpenPort | None = None) -> AsyncIterator[tuple[Fleet, Get, Address]]:
    """A fleet that has no group yet, a function that gets a path, and where its HTTP server is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = Address(*probe.getsockname())

    async with Fleet(open_port or MemoryLog().opened, run_nothing) as fleet:
        monitoring = Monitoring(address, fleet)
        await monitoring.start()
        async with aiohttp.ClientSession(f"http://{address}") as session:

            async def get(path: str) -> tuple[int, str]:
                async with session.get(path) as answer:
                    return answer.status, await answer.text()

            yield fleet, get, address
        await monitoring.stop()


async def test_a_process_is_ready_when_all_its_groups_have_joined() -> None:
    log, may_open = MemoryLog(), asyncio.Event()

    async def opened() -> LogPort:
        await may_open.wait()
        return log.open()

    async with monitored(opened) as (fleet, get, _):
        fleet.start(GroupSettings())
        assert await get("/readyz") == (503, "group 0 has not joined\n")
        assert await get("/livez") == (200, "ok\n")
        may_open.set()
        await fleet.joined()
        assert await get("/readyz") == (200, "ok\n")
        assert "onyxlog_replica_groups 1.0" in (await get("/metrics"))[1]


async def test_connections_are_bounded_so_that_the_session_keeps_its_descriptors() -> None:
    async with monitored() as (_, _, address):
        streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        while len(streams) < CONNECTIONS_MAX + 3:
            streams.append(await asyncio.open_connection(address.host, address.port))
            await asyncio.sleep(0)
        assert await streams[0][0].read() == b"", "the one that was idle for longest gives way"
        for _, writer in streams:
            writer.close()


async def test_a_failing_request_is_a_500_without_its_details() -> None:
    async with monitored() as (fleet, get, _):
        fleet.groups.append("the secret detail")  # type: ignore[arg-type]
        status, text = await get("/status.json")
        assert status == 500
        assert "secret" not in text
        fleet.groups.clear()
        assert (await get("/status.json"))[0] == 200
