"""What a server makes of what its links to the others tell."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.unit.server.nodes import Nodes
from zraft.raft.messages import Heartbeat
from zraft.transport import codec
from zraft.transport.messages import PeerMessage
from zraft.transport.routing import datagrams_max
from zraft_core.ids import COORDINATION_GROUP


async def test_d22_the_leader_heeds_which_paths_lose_too_much_as_peers_report_it(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        leader = nodes.leader
        links, raft = leader._peers._links, leader.driver.raft
        assert raft is not None
        follower = next(server for server in nodes.nodes if server != leader.config.id)
        progress = raft._replication.followers[follower]

        def heeds(most: int) -> bool:
            return progress.bulk_bytes_min == most

        for lossy in (True, False):
            # Too few datagrams cross here for reports to change it.
            links._peers[follower].loss.lossy = lossy
            most = links.capacity(follower, datagrams_max(lossy=lossy))
            await nodes.until(partial(heeds, most))


async def test_one_message_to_several_servers_is_encoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Nodes(tmp_path) as nodes:
        leader = nodes.leader
        encoded: list[PeerMessage] = []

        def encode(message: PeerMessage, encode: Callable[[PeerMessage], bytes] = codec.encode) -> bytes:
            encoded.append(message)
            return encode(message)

        monkeypatch.setattr(codec, "encode", encode)
        message = Heartbeat(COORDINATION_GROUP, 0, 0, 0)  # of a term that is over: nobody heeds it
        for server in nodes.nodes.keys() - {leader.config.id}:
            leader._peers.send(server, [message])
        assert encoded == [message]
