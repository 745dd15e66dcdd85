"""The tree of a real ZooKeeper, imported: the same for its clients, and a cluster that they follow (D-15)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

from tests.compat.install import MissingError, java_jars, program
from tests.compat.zookeeper import ZooKeepers
from tests.processes.cluster import Cluster, wait_until

pytestmark = [pytest.mark.compat, pytest.mark.processes, pytest.mark.timeout(300)]

SUPER = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
"""Of the password "test"."""


def connected(hosts: str, identity: str) -> KazooClient:
    client = KazooClient(hosts=hosts, timeout=20, auth_data=[("digest", identity)])
    client.start(timeout=90)
    return client


def tree(client: KazooClient, path: str = "/") -> dict[str, Any]:
    found: dict[str, Any] = {}
    if path in ("/zookeeper/config", "/zookeeper"):
        return tree(client, "/zookeeper/quota") if path == "/zookeeper" else found
    data, stat = client.get(path)
    acl, _ = client.get_acls(path)
    found[path] = (data, stat, sorted(map(repr, acl)))
    for name in client.get_children(path):
        found |= tree(client, f"{path.rstrip('/')}/{name}")
    return found


def test_d15_trap16_a_zookeepers_clients_find_the_same_tree_ahead_of_them(tmp_path: Path) -> None:
    try:
        program("java", "default-jre-headless")
        java_jars()
    except MissingError as error:
        pytest.skip(str(error))
    zookeepers = ZooKeepers(tmp_path / "zk", "3.9.3", super_digest=SUPER)
    with Cluster(tmp_path, servers=1) as cluster:
        with zookeepers:
            hosts = ",".join(f"{host}:{port}" for host, port in zookeepers.addresses)
            client = connected(hosts, "u:p")
            client.create("/secret", b"s", acl=[make_digest_acl("u", "p", all=True)])
            client.create("/hidden", b"h", acl=[make_digest_acl("v", "q", all=True)])
            client.create("/queue", b"q")
            for _ in range(5):
                client.create("/queue/n-", b"", sequence=True)
            client.delete("/queue/n-0000000002")
            client.set("/queue", b"changed")
            client.create("/ephemeral", b"", ephemeral=True)
            for n in range(500):
                client.create(f"/queue/m{n}", b"x" * n)
            client.ensure_path("/zookeeper/quota/queue")
            client.create("/zookeeper/quota/queue/zookeeper_limits", b"count=9999,bytes=-1")
            client.create("/zookeeper/quota/queue/zookeeper_stats", b"count=0,bytes=0")
            client.stop()
            client.close()
            client = connected(hosts, "super:test")
            before = tree(client)
            seen = client.last_zxid
            client.stop()
            client.close()
            (tmp_path / "auth").write_text("digest:super:test\n")
            server = cluster.servers[1]
            options = [
                "--from",
                hosts,
                "--data",
                str(server.data),
                "--id",
                "1",
                "--address",
                str(server.address),
            ]
            refused = run("import", *options)
            assert refused.returncode == 1
            assert "/hidden" in refused.stderr
            done = run("import", *options, "--auth-file", str(tmp_path / "auth"))
            assert done.returncode == 0, done.stderr
        cluster.start(1)
        wait_until(lambda: "Mode: " in (cluster.ask(1, "srvr") or ""), "the new cluster to serve")
        client = connected(cluster.hosts(), "u:p")
        assert client.get("/secret")[0] == b"s", "the identity of an ACL is the same"
        with pytest.raises(NoAuthError):
            client.get("/hidden")
        client.stop()
        client.close()
        client = connected(cluster.hosts(), "v:q")
        assert client.get("/hidden")[0] == b"h"
        assert client.create("/queue/n-", b"", sequence=True) == "/queue/n-0000000505"
        assert client.last_zxid > seen
        client.delete("/queue/n-0000000505")
        found = {path: client.get(path) for path in before if path not in ("/secret",)}
        for path in set(found) - {"/", "/queue"}:
            assert found[path] == before[path][:2], path
        assert found["/queue"][0] == b"changed"
        client.stop()
        client.close()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zraft", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
