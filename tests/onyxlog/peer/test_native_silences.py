"""How long groups are silent, where the connected server does not know it of all: the leader is asked, if it can be."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from onyxlog.peer.log.port import Silence
from onyxlog.replica.replica import Parameters
from tests.client.fake import Refused
from tests.onyxlog.peer.places import Fake
from zraft_core.errors import Code


async def silences(leader: str | None, *, knows: bool = True) -> dict[str, Silence]:
    """Of group "a", asked of a server that does not lead, or does not know the request; `leader` is what it names."""
    async with asyncio.timeout(30), Fake() as place:
        cluster = place.cluster
        answer, asked = cluster.read, 0

        def follower_first(message: Mapping[str, Any]) -> dict[str, Any]:
            nonlocal asked
            if message["type"] != "owners":
                return answer(message)
            if not knows:
                raise Refused(Code.BAD_ARGUMENTS, "type: found 'owners', expected one of …")
            asked += 1
            found = answer(message)
            if asked > 1:
                return found
            rows = [[name, owner, None, timeout] for name, owner, _, timeout in found["owners"]]
            return {"owners": rows, "leads": False}

        cluster.read = follower_first  # type: ignore[method-assign]
        if leader is not None:
            named = leader or "{}:{}".format(*cluster.addresses[1])
            cluster.members = [{"server": 2, "address": named, "part": "voter", "leader": True}]
        port = await place.open()
        await port.begin(Parameters())
        await port.show_pulse("a")
        return dict(await port.silences())


async def test_the_leader_is_asked_by_who_is_connected_to_another_server() -> None:
    assert await silences("") == {"a": Silence(0.0, 10.0)}


@pytest.mark.parametrize("leader", [None, "no address", "closed"])
async def test_without_a_leader_that_can_be_reached_what_the_server_knows_is_told(leader: str | None) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        if leader == "closed":
            leader = f"127.0.0.1:{closed.getsockname()[1]}"
        assert await silences(leader) == {"a": Silence(None, 10.0)}


async def test_a_server_of_an_older_release_tells_nothing() -> None:
    assert await silences("", knows=False) == {}
