"""The HTTP server of a peer process, asked through real sockets on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import aiohttp

from onyxlog.peer.fleet import Fleet
from onyxlog.peer.monitoring import Monitoring
from onyxlog.peer.settings import GroupSettings
from onyxlog.testing.idle_runner import run_nothing
from onyxlog.testing.memory_log import MemoryLog
from zraft.address import Address
from zraft.http_places import CONNECTIONS_MAX

Get = Callable[[str], Awaitable[tuple[int, str]]]


def with_monitoring(scenario: Callable[[Fleet, Get, Address], Awaitable[None]]) -> None:
    """Run `scenario` with a fleet that has no group yet, and a function that gets a path."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = Address(*probe.getsockname())

    async def run() -> None:
        async with Fleet(MemoryLog().opened, run_nothing) as fleet:
            monitoring = Monitoring(address, fleet)
            await monitoring.start()
            async with aiohttp.ClientSession(f"http://{address}") as session:

                async def get(path: str) -> tuple[int, str]:
                    async with session.get(path) as answer:
                        return answer.status, await answer.text()

                await scenario(fleet, get, address)
            await monitoring.stop()

    asyncio.run(run())


def test_a_process_is_ready_when_all_its_groups_have_joined() -> None:
    async def scenario(fleet: Fleet, get: Get, _: Address) -> None:
        fleet.start(GroupSettings())
        assert await get("/readyz") == (503, "group 0 has not joined\n")
        assert await get("/livez") == (200, "ok\n")
        await fleet.joined()
        assert await get("/readyz") == (200, "ok\n")
        assert "onyxlog_replica_groups 1.0" in (await get("/metrics"))[1]

    with_monitoring(scenario)


def test_connections_are_bounded_so_that_the_session_keeps_its_descriptors() -> None:
    async def scenario(_: Fleet, get: Get, address: Address) -> None:
        streams = []
        while len(streams) < CONNECTIONS_MAX + 3:
            streams.append(await asyncio.open_connection(address.host, address.port))
            await asyncio.sleep(0)
        assert await streams[0][0].read() == b"", "the one that was idle for longest gives way"
        for _, writer in streams:
            writer.close()

    with_monitoring(scenario)


def test_a_failing_request_is_a_500_without_its_details() -> None:
    async def scenario(fleet: Fleet, get: Get, _: Address) -> None:
        fleet.groups.append("the secret detail")  # type: ignore[arg-type]
        status, text = await get("/status.json")
        assert status == 500
        assert "secret" not in text
        fleet.groups.clear()
        assert (await get("/status.json"))[0] == 200

    with_monitoring(scenario)
