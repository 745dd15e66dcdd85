"""The process around a driver: what ends it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from zraft.address import Address
from zraft.config import ServerConfig
from zraft.ids import ServerId
from zraft.server.node import Node


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
