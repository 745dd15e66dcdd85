"""What clients find in running servers that were started on a golden directory, and what they write on."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from attrs import astuple

from tests.processes.cluster import Cluster, wait_until
from tests.processes.topics import created, groups_of, read_all
from tests.simulation.jute import Stat
from tests.traps.peer import connect_bytes
from tests.traps.protocol import auth, create, get_acl, get_data, set_data
from tests.traps.tcp import TcpPeer
from tests.upgrade.golden import Golden
from zraft_client import Client
from zraft_client.topics import Topics

ALICE: Final = auth("digest", b"alice:alice")
PATIENT_S: Final = 60.0
CHANGED_BY_OTHERS: Final = ("/", "/zookeeper", "/zookeeper/config")
"""Servers write the members' addresses into the configuration, and whoever writes on creates children of the root."""
OWNER: Final = 7
VERSION: Final = 4
"""Fields of a stat."""


def check(cluster: Cluster, kept: Golden) -> None:
    """Everything that is to be there is."""
    server = next(iter(cluster.servers.values()))
    with TcpPeer(server.address) as client:
        client.ask(ALICE)
        for path, (data, stat, acl) in kept.content["znodes"].items():
            if path not in CHANGED_BY_OTHERS:
                found, acls = client.ask(get_data(path), get_acl(path))
                assert found.data() == (None if data is None else data.encode(), Stat(*stat)), path
                assert acls.acl() == [tuple(one) for one in acl], path
    for number, (timeout_ms, password) in kept.content["sessions"].items():
        _check_session(cluster, kept, int(number, 16), timeout_ms, bytes.fromhex(password))
    check_deliveries(cluster, kept)


def check_deliveries(cluster: Cluster, kept: Golden) -> None:
    """Each partition delivers again what the log has of it after a start; then its log is what it was."""
    expected = kept.content["deliveries"]

    def whole() -> dict[str, list[Any]] | None:
        found = read_topics(cluster)
        return (
            found if all(len(found.get(place, ())) >= len(log) for place, log in expected.items()) else None
        )

    if expected:
        assert wait_until(whole, "partitions to deliver what they had") == expected


def _check_session(cluster: Cluster, kept: Golden, session: int, timeout_ms: int, password: bytes) -> None:
    """It goes on for who has its password, and owns what it owned; its ephemerals have another version afterwards."""
    server = next(iter(cluster.servers.values()))
    connect = connect_bytes(session=session, password=password, timeout_ms=timeout_ms)
    with TcpPeer(server.address, connect) as client:
        assert (client.session, client.password) == (session, password)
        for path, (data, stat, _) in kept.content["znodes"].items():
            if stat[OWNER] == session:
                (written,) = client.ask(set_data(path, data.encode(), stat[VERSION]))
                assert written.err == 0, path
                stat[:] = astuple(written.stat())
                assert stat[OWNER] == session


def write_on(cluster: Cluster, kept: Golden, name: str) -> None:
    """A znode and, where there are topics, a message to each partition and one to both; `kept` has them from now on."""
    server = next(iter(cluster.servers.values()))
    with TcpPeer(server.address) as client:
        made, found, acl = client.ask(
            create(f"/{name}", name.encode()), get_data(f"/{name}"), get_acl(f"/{name}")
        )
        data, stat = found.data()
        assert data == name.encode()
        kept.content["znodes"][made.path()] = [name, list(astuple(stat)), [list(one) for one in acl.acl()]]
    if kept.content["deliveries"]:
        asyncio.run(_produce(cluster, name))
        for place, log in read_topics(cluster).items():
            before = kept.content["deliveries"][place]
            assert log[: len(before)] == before, f"{place} is another one"
            assert [payload for *_, payload in log[len(before) :]] == [f"{name} {place}", f"{name} to all"]
            kept.content["deliveries"][place] = log


async def _produce(cluster: Cluster, name: str) -> None:
    places = [("orders", 0), ("orders", 1)]
    async with (
        Client(cluster.hosts(), timeout_s=PATIENT_S) as client,
        Topics(client) as topics,
        topics.producer() as producer,
    ):
        for topic, partition in places:
            await producer.send((topic, partition), f"{name} {topic}/{partition}".encode())
        await producer.send(places, f"{name} to all".encode())


def read_topics(cluster: Cluster) -> dict[str, list[Any]]:
    """Each partition's log, as the writer of golden directories describes it."""
    places = groups_of(asyncio.run(created(cluster, {})))
    return {
        "/".join(map(str, one.place)): [
            [read.offset, list(read.stamp), list(read.id), read.payload.decode()] for read in one.reads
        ]
        for one in asyncio.run(read_all(cluster, places, cluster.running()))
    }
