"""ACLs of topics on real servers: the command line grants, programs use what is granted, and ZooKeeper's clients look."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError as ZooKeeperNoAuthError

from tests.processes.cluster import DEADLINE_S, Cluster
from tests.processes.conftest import StartCluster
from zraft.server.clients.authentication.proofs import digest_id
from zraft_client import Client, NoAuthError
from zraft_client.topics import Start, Topics

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

ALICE = b"alice:wonderland"
ID = f"digest:{digest_id(ALICE)}"
AS_ALICE = ("--auth", f"digest:{ALICE.decode()}")
AS_BOB = ("--auth", "sasl:bob:builder")


def topic(cluster: Cluster, *words: str, lines: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `zraft topic …` and return its result; commands of operators get the key."""
    connect = ("--connect", ",".join(str(server.address) for server in cluster.servers.values()))
    key = () if words[0] in ("produce", "consume") else ("--key", str(cluster.key))
    command = [sys.executable, "-m", "zraft", "topic", *words, *connect, *key]
    return subprocess.run(command, input=lines, capture_output=True, check=False)


def done(cluster: Cluster, *words: str, lines: bytes = b"") -> str:
    found = topic(cluster, *words, lines=lines)
    assert found.returncode == 0, found.stderr
    return found.stdout.decode()


async def reading(cluster: Cluster) -> None:
    """Alice reads and commits, waits for more, and hears that her right is taken away meanwhile."""
    hosts = ",".join(str(server.address) for server in cluster.servers.values())
    async with (
        Client(hosts, auth=[("digest", ALICE)]) as client,
        Topics(client) as topics,
        topics.consumer("orders", name="billing", start=Start.EARLIEST) as consumer,
    ):
        assert [record.value for record in await consumer.poll(DEADLINE_S)] == [b"one"]
        await consumer.commit()
        waiting = asyncio.create_task(consumer.poll(DEADLINE_S))
        await asyncio.to_thread(done, cluster, "acl", "remove", "orders", ID)
        with pytest.raises(NoAuthError):
            await waiting


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A file of users with bob."""
    file = tmp_path / "users"
    command = [sys.executable, "-m", "zraft", "user", "add", str(file), "bob"]
    subprocess.run(command, input=b"builder\n", check=True, capture_output=True)
    return file


def test_a_closed_cluster_serves_those_to_whom_something_is_granted(
    start_cluster: StartCluster, users: Path
) -> None:
    cluster = start_cluster(servers=3, ZRAFT_AUTH__SASL_USERS_FILE=str(users))
    done(cluster, "create", "orders")
    done(cluster, "acl", "close")
    refused = topic(cluster, "produce", "orders", lines=b"no\n")
    assert refused.returncode != 0
    assert b"none of this name" in refused.stderr, "nobody learns which topics there are"

    done(cluster, "acl", "add", "orders", f"{ID}:rw", "sasl:bob:w")
    done(cluster, "acl", "add", "--consumer", "billing", f"{ID}:r")
    assert done(cluster, "acl", "get", "orders") == f"{ID}:rw\nsasl:bob:w\n"
    done(cluster, "produce", "orders", *AS_BOB, lines=b"one\n")
    assert b"READ of topic 'orders' is missing" in topic(cluster, "consume", "orders", *AS_BOB).stderr

    zookeeper = KazooClient(
        str(cluster.servers[2].address), timeout=10.0, auth_data=[("digest", ALICE.decode())]
    )
    zookeeper.start(timeout=DEADLINE_S)
    try:
        acls, _ = zookeeper.get_acls("/zookeeper/topics/orders")
        assert [(one.perms, one.id.scheme) for one in acls] == [(3, "digest"), (2, "sasl")]
        with pytest.raises(ZooKeeperNoAuthError):
            zookeeper.create("/zookeeper/topics/mine")
        with pytest.raises(ZooKeeperNoAuthError):
            zookeeper.set_acls("/zookeeper/topics/orders", acls)
        with pytest.raises(ZooKeeperNoAuthError):
            zookeeper.delete("/zookeeper/topics/orders")
    finally:
        zookeeper.stop()
        zookeeper.close()

    asyncio.run(reading(cluster))
    assert done(cluster, "acl", "get", "orders") == "sasl:bob:w\n"
    done(cluster, "acl", "remove", "orders")
    done(cluster, "acl", "open")
    done(cluster, "produce", "orders", lines=b"two\n")
    assert done(cluster, "consume", "orders", "--limit", "2") == "one\ntwo\n"
    cluster.wait_equal_digests()
