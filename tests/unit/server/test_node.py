"""The process around a driver: what ends it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.ipv6 import has_ipv6
from tests.unit.server.nodes import Nodes
from zraft.address import Address
from zraft.config import ServerConfig
from zraft.ids import ServerId
from zraft.server.driver import ERRAND_BYTES
from zraft.server.errands import Errand
from zraft.server.node import Node
from zraft.tree.txn import CREATE


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class BrokenError(RuntimeError):
    """What nobody expected."""


@pytest.mark.parametrize("where", ["turn", "callback", "tick"])
def test_an_exception_that_nobody_expected_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """D-5: an entry may be applied in part; a loop that logs it and goes on would apply it again."""
    address = Address("127.0.0.1", _free_port())
    config = ServerConfig(id=ServerId(1), data=tmp_path, address=address, cluster={ServerId(1): address})

    def broken(*_: object) -> None:
        raise BrokenError

    async def run() -> None:
        node = Node(config)
        if where == "turn":
            monkeypatch.setattr(node.driver, "turn", broken)
        elif where == "callback":
            asyncio.get_running_loop().call_later(0.01, broken)
        else:
            monkeypatch.setattr(node._announcements, "show", broken)
        await node.run()

    with pytest.raises(BrokenError):
        asyncio.run(run())


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")
def test_servers_that_listen_everywhere_form_one_cluster_over_ipv4_and_ipv6(tmp_path: Path) -> None:
    """Datagrams, streams for what is too long for them, and clients of both families at each server."""

    async def ask(host: str, port: int) -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"ruok")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def run() -> None:
        async with Nodes(tmp_path, hosts=("127.0.0.1", "::1", "::1"), listen="::") as nodes:
            leader = nodes.leader
            long = bytes(500_000)
            done: list[object] = []
            leader.driver.origin.add(
                Errand(done.append), 0, (), [(CREATE, "/long", long, None, 0, 0)], ERRAND_BYTES
            )
            leader.schedule()
            await nodes.until(
                lambda: all(node.driver.machine.nodes.get("/long") for node in nodes.nodes.values())
            )
            for address in nodes.addresses.values():
                for host in ("127.0.0.1", "::1"):
                    assert await ask(host, address.port) == b"imok"

    asyncio.run(run())
