"""Three real servers that know each other, and are known, by IPv6 addresses alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, Id, Permissions

from tests.ipv6 import has_ipv6
from tests.processes.clients import Sessions
from tests.processes.cluster import wait_until
from tests.processes.java import curator_at
from tests.processes.members import GrowingCluster
from zraft_client import Client
from zraft_client.topics import Topics

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1"),
]

PATIENT_S = 60.0


class OverIPv6(GrowingCluster):
    host = "::1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OverIPv6]:
    """One for all tests; what changes its members is last."""
    with OverIPv6(tmp_path_factory.mktemp("ipv6")) as cluster:
        cluster.start_all()
        yield cluster


@pytest.fixture
def sessions(cluster: OverIPv6) -> Iterator[Sessions]:
    opened = Sessions(cluster)
    yield opened
    opened.close()


def config_of(client: KazooClient) -> list[str]:
    """The lines of /zookeeper/config without the version."""
    data: bytes = client.get("/zookeeper/config")[0]
    return data.decode().splitlines()[:-1]


def lines_of(cluster: OverIPv6) -> list[str]:
    return [f"server.{n}={s.address}:0:participant;{s.address}" for n, s in sorted(cluster.servers.items())]


def test_zookeepers_clients_work_at_every_server_and_an_acl_names_their_address(
    cluster: OverIPv6, sessions: Sessions
) -> None:
    mine = [ACL(Permissions.ALL, Id("ip", "::1"))]

    def written_down(client: KazooClient) -> bool:
        return config_of(client) == lines_of(cluster)

    for number in cluster.servers:
        client = sessions.open(only=number)
        client.create(f"/of-{number}", b"x" * 100_000, acl=mine)
        assert len(client.get(f"/of-{number}")[0]) == 100_000
        with pytest.raises(NoAuthError):
            client.set_acls("/zookeeper/config", mine)
        wait_until(partial(written_down, client), "the members to be written down")


async def test_native_clients_find_the_leaders_of_partitions(cluster: OverIPv6) -> None:
    """Servers tell them host and port of another one to connect to."""
    async with Client(cluster.hosts(), timeout_s=PATIENT_S) as client, Topics(client) as topics:
        await topics.create("orders", 3)
        async with topics.producer() as producer:
            for number in range(9):
                await producer.send(("orders", number % 3), b"%d" % number)
        found: set[bytes] = set()
        async with topics.consumer("orders") as consumer:
            while len(found) < 9:
                found |= {record.value for record in await consumer.poll(PATIENT_S)}
        await topics.delete("orders")


def test_operators_commands_and_pages_take_and_show_the_addresses(cluster: OverIPv6) -> None:
    addresses = [str(server.address) for server in cluster.servers.values()]
    assert all(address.startswith("[::1]:") for address in addresses)

    def said(done: subprocess.CompletedProcess[str]) -> str:
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = said(cluster.zraft("member", "list"))
    shown = said(cluster.shell("config", "-c"))
    assert all(address in listed for address in addresses)
    assert shown.split()[1].split(",") == addresses
    configuration = cluster.ask(1, "conf") or ""
    assert [line for line in configuration.splitlines() if line.startswith("server.")] == lines_of(cluster)
    assert {member["address"] for member in cluster.status(1)["members"]} == set(addresses)


def test_curator_follows_the_members(java: Any, cluster: OverIPv6) -> None:
    with curator_at(java, cluster.servers[1].address) as known:
        wait_until(lambda: known() == set(cluster.hosts().split(",")), "Curator to know all members")


def test_a_server_is_added_and_removed(cluster: OverIPv6, sessions: Sessions) -> None:
    client = sessions.open(first=1)
    fourth = cluster.place(4)
    cluster.start(4)
    cluster.add(4)
    cluster.wait_roles(voters=[1, 2, 3, 4])
    assert config_of(client) == lines_of(cluster)
    cluster.remove(4)
    cluster.retire(4)
    cluster.wait_roles(voters=[1, 2, 3])
    assert config_of(client) == lines_of(cluster)
    cluster.end(fourth)
