"""Ports of both kinds while the leader of three servers is killed: every record once, every tail whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onyxlog.peer.log.port import LogPort
from onyxlog.replica.commands import Entry
from tests.onyxlog.peer.places import Native, Place, Zookeeper
from tests.onyxlog.peer.test_log_contract import PARAMETERS, record, take
from tests.processes.cluster import Cluster, wait_until

RECORDS = 60
"""Of each port."""


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["native", "zookeeper"])
def test_no_record_is_lost_or_doubled_when_leaders_die(kind: str, tmp_path: Path) -> None:
    async def writes(port: LogPort, name: int, half: asyncio.Barrier) -> list[int]:
        positions = []
        for number in range(RECORDS):
            if number == RECORDS // 2:
                await half.wait()
            positions.append(await port.append(record(1_000 * name + number)))
        return positions

    async def test(place: Place, cluster: Cluster) -> None:
        ports = [await place.open() for _ in range(4)]
        await ports[0].begin(PARAMETERS)
        count = len(ports) * RECORDS
        tails = [asyncio.ensure_future(take(port, 0, count)) for port in ports]
        half = asyncio.Barrier(len(ports) + 1)
        writing = [asyncio.ensure_future(writes(port, n, half)) for n, port in enumerate(ports)]
        async with half:
            leader = await asyncio.to_thread(wait_until, cluster.leader, "a leader")
        cluster.kill(leader)
        positions = await asyncio.gather(*writing)
        assert sorted(at for mine in positions for at in mine) == list(range(count))
        seen: list[list[Entry]] = await asyncio.gather(*tails)
        assert all(one == seen[0] for one in seen)
        assert [entry.position for entry in seen[0]] == list(range(count))
        for name, mine in enumerate(positions):
            assert mine == sorted(mine)
            assert [seen[0][at].record for at in mine] == [record(1_000 * name + n) for n in range(RECORDS)]

    async def main(cluster: Cluster) -> None:
        place: Place = Native(cluster) if kind == "native" else Zookeeper(cluster.hosts())
        async with asyncio.timeout(50), place:
            await test(place, cluster)

    with Cluster(tmp_path) as cluster:
        cluster.start_all()
        asyncio.run(main(cluster))
