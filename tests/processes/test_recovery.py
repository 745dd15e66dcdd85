"""Disasters and the way out: backups through the running service, clusters that begin anew, quorums that are lost."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster, wait_until
from tests.processes.members import GrowingCluster
from zraft.transport.keys import create_key_file
from zraft_client import Client
from zraft_client.topics import Topics
from zraft_client.topics.reading_range import read_range
from zraft_core.ids import zxid_anew

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

StartCluster = Callable[..., GrowingCluster]
OpenSessions = Callable[[Cluster], Sessions]
Nodes = dict[str, tuple[bytes, object, object]]


def offline(cluster: Cluster, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A command that talks to no server."""
    return subprocess.run(
        [sys.executable, "-m", "zraft", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=cluster.environment(0),
        stdin=subprocess.DEVNULL,
        check=False,
    )


def listed(cluster: Cluster) -> str:
    return ",".join(f"{n}={s.address}" for n, s in cluster.servers.items())


def here(cluster: Cluster, number: int) -> list[str]:
    """The options of the server that begins anew."""
    return ["--data", str(cluster.servers[number].data), "--id", str(number), "--cluster", listed(cluster)]


def plant(client: KazooClient) -> None:
    """Some of everything."""
    client.create("/plain", b"data")
    client.set("/plain", b"more")
    client.create("/secret", b"s", acl=[make_digest_acl("u", "p", all=True)])
    client.create("/queue", b"")
    for _ in range(3):
        client.create("/queue/n-", b"q", sequence=True)
    client.delete("/queue/n-0000000001")
    client.create("/mine", b"", ephemeral=True)


def tree(client: KazooClient, path: str = "/") -> Nodes:
    """Everything below `path` but the ensemble's configuration, with stats and ACLs."""
    found: Nodes = {}
    if path == "/zookeeper":
        return found
    acl, _ = client.get_acls(path)
    data, stat = client.get(path)
    found[path] = (data, stat, tuple(acl))
    for name in client.get_children(path):
        found |= tree(client, f"{path.rstrip('/')}/{name}")
    return found


def reader(sessions: Sessions, number: int) -> KazooClient:
    client = sessions.open(only=number, name=f"reader of {number}")
    client.retry(client.sync, "/")
    client.add_auth("digest", "u:p")
    return client


def last_zxid(cluster: Cluster, number: int) -> int:
    srvr = cluster.ask(number, "srvr") or ""
    return next(int(line[6:], 16) for line in srvr.splitlines() if line.startswith("Zxid: "))


def test_d15_a_backup_of_a_follower_becomes_a_new_cluster_with_all_that_was_in_it(
    start_cluster: StartCluster, open_sessions: OpenSessions, tmp_path: Path
) -> None:
    """Saved while it runs; every directory is destroyed; the first server begins anew, the others join it empty."""
    cluster = start_cluster(kind=GrowingCluster)
    sessions = open_sessions(cluster)
    client = sessions.open()
    client.add_auth("digest", "u:p")
    plant(client)
    before = tree(client)
    follower = next(n for n in cluster.servers if n != cluster.leader())
    client.sync("/")
    with sessions.reading(follower):
        pass
    file = tmp_path / "backup.snap"
    saved = cluster.zraft("snapshot", "save", str(file), only=follower)
    assert saved.returncode == 0, saved.stderr
    assert f"from server {follower}" in saved.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    again = cluster.zraft("snapshot", "save", str(file), only=follower)
    assert again.returncode == 2
    assert "never overwritten" in again.stderr
    client.create("/after", b"lost")
    seen = client.last_zxid
    for number in cluster.servers:
        cluster.kill(number)
        cluster.wipe(number)
    restored = offline(cluster, "snapshot", "restore", file, *here(cluster, 1))
    assert restored.returncode == 0, restored.stderr
    assert "1048576 epochs above" in restored.stdout
    cluster.start(1)
    wait_until(lambda: "Mode: " in (cluster.ask(1, "srvr") or ""), "server 1 to serve alone")
    # Trap 16's other half: a client that has seen a higher zxid than the backup's is let in, with its session.
    assert wait_until(lambda: client.connected, "the client to come back")
    client.retry(client.get, "/plain")
    assert client.last_zxid > seen
    assert client.exists("/after") is None, "it was written after the backup"
    assert client.create("/queue/n-", b"", sequence=True) == "/queue/n-0000000003"
    client.delete("/queue/n-0000000003")
    cluster.start(2)
    cluster.start(3)
    cluster.wait_roles(voters=[1, 2, 3])
    for number in cluster.servers:
        one = reader(sessions, number)
        found = tree(one)
        assert set(found) == set(before)
        for path in set(before) - {"/queue"}:
            assert found[path] == before[path], path
        assert one.get("/zookeeper/config")[0].decode().splitlines()[:3] == [
            f"server.{n}={s.address}:0:participant;{s.address}" for n, s in cluster.servers.items()
        ]
        sessions.close_one(one)
    cluster.wait_equal_digests()
    cluster.kill(1)
    wait_until(lambda: cluster.leader() in (2, 3), "the others to go on without the founder")
    assert sessions.lost == []


def test_a_recovered_cluster_has_what_the_server_that_is_left_has_of_topics(
    start_cluster: StartCluster,
) -> None:
    """The way out when a partition has lost most of its disks; the old files stay readable aside."""
    cluster = start_cluster(kind=GrowingCluster)
    created = cluster.zraft(
        "topic", "create", "orders", "--partitions", "2", "--timeout", "60", timeout_s=120
    )
    assert created.returncode == 0, created
    assert created.stdout.splitlines()[-1] == "2 partitions take messages"
    # A message to all of them.
    altered = cluster.zraft("topic", "alter", "orders", "--partitions", "3", "--timeout", "60", timeout_s=120)
    assert altered.returncode == 0, altered
    places = [("orders", number) for number in range(3)]

    async def send(*values: bytes) -> None:
        async with Client(cluster.hosts()) as client, Topics(client) as topics, topics.producer() as producer:
            for value in values:
                await producer.send(places, value)

    async def read() -> list[list[bytes]]:
        found: list[list[bytes]] = []
        async with Client(cluster.hosts()) as client, Topics(client) as topics:
            for place in places:
                end = (await topics.bounds("orders"))[place[1]].end
                records = await read_range(topics.directory, *place, 0, end)
                found.append([record.value for record in records])
        return found

    def delivered_at(number: int) -> int:
        data = cluster.servers[number].data
        return len(offline(cluster, "log", "dump", data, "--deliveries").stdout.splitlines())

    asyncio.run(send(b"one", b"two", b"three"))
    wait_until(lambda: delivered_at(3) >= 12, "server 3 to deliver them")
    for number in cluster.servers:
        cluster.kill(number)
    for number in (1, 2):
        cluster.wipe(number)
    refused = offline(cluster, "recover", *here(cluster, 3))
    shown = refused.stdout
    assert "orders/0: offsets 0 to 4" in shown
    (characters,) = (
        line.split(":")[1].strip()[:8] for line in shown.splitlines() if line.startswith("cluster")
    )
    recovered = offline(cluster, "recover", *here(cluster, 3), "--yes-i-lose-writes", characters)
    assert recovered.returncode == 0, recovered.stderr
    (aside,) = cluster.servers[3].data.glob("aside-*")
    dumped = offline(cluster, "log", "dump", aside, "--deliveries")
    assert dumped.returncode == 0, dumped
    assert dumped.stdout
    cluster.start(3)
    wait_until(lambda: "Mode: " in (cluster.ask(3, "srvr") or ""), "server 3 to serve alone")
    assert asyncio.run(read()) == [[b"one", b"two", b"three"]] * 3
    for number in (1, 2):
        cluster.start(number)
    cluster.wait_roles(voters=[1, 2, 3])
    asyncio.run(send(b"four"))
    assert asyncio.run(read()) == [[b"one", b"two", b"three", b"four"]] * 3


def test_d1_one_server_of_three_is_recovered_and_old_ones_disturb_nobody(
    start_cluster: StartCluster, open_sessions: OpenSessions, tmp_path: Path
) -> None:
    cluster = start_cluster(kind=GrowingCluster)
    sessions = open_sessions(cluster)
    client = sessions.open(timeout_s=40)
    client.add_auth("digest", "u:p")
    plant(client)
    before = tree(client)
    leaver = sessions.open(timeout_s=4, name="leaver")
    leaver.create("/leavers", b"", ephemeral=True)
    zxid = last_zxid(cluster, cluster.leader() or 1)
    with sessions.reading(3):
        pass
    for number in cluster.servers:
        cluster.kill(number)
    sessions.close_one(leaver)  # nobody hears it
    old = tmp_path / "old-2"
    shutil.copytree(cluster.servers[2].data, old)
    cluster.wipe(1)
    cluster.wipe(2)
    instance_before = {path.name for path in cluster.servers[3].data.iterdir()}
    refused = offline(cluster, "recover", *here(cluster, 3))
    assert refused.returncode == 1
    assert "nothing was changed" in refused.stderr
    assert "CAN LOSE WRITES" in refused.stderr
    assert {path.name for path in cluster.servers[3].data.iterdir()} == instance_before
    shown = dict(line.split(":", 1) for line in refused.stdout.splitlines() if ":" in line)
    wrong = offline(cluster, "recover", *here(cluster, 3), "--yes-i-lose-writes", "00000000")
    assert wrong.returncode == 1
    characters = shown["cluster"].strip()[:8]
    recovered = offline(cluster, "recover", *here(cluster, 3), "--yes-i-lose-writes", characters)
    assert recovered.returncode == 0, recovered.stderr
    assert "<- this directory" in recovered.stdout
    (aside,) = cluster.servers[3].data.glob("aside-*")
    assert sorted(path.name for path in aside.iterdir()) == ["groups", "meta", "wal"]
    cluster.start(3)
    wait_until(lambda: "Mode: " in (cluster.ask(3, "srvr") or ""), "server 3 to serve alone")
    # It begins with that zxid exactly, and its own first entry is above it.
    wait_until(
        lambda: last_zxid(cluster, 3) > (zxid_anew(zxid) or 0), "the first write of what was recovered"
    )
    # A server of the old cluster comes back by mistake.
    cluster.servers[2].data.rmdir()
    shutil.copytree(old, cluster.servers[2].data)
    cluster.start(2)
    cluster.servers[2].wait_says("recovered without this disk")
    assert cluster.mntr(2) is None
    wait_until(lambda: client.connected, "the client to come back")
    client.retry(client.set, "/plain", b"more")
    term = cluster.term()
    cluster.kill(2)
    cluster.wipe(2)
    cluster.start(1)
    cluster.start(2)
    cluster.wait_roles(voters=[1, 2, 3])
    assert cluster.term() == term, "the old server has caused an election"
    for number in cluster.servers:
        one = reader(sessions, number)
        found = tree(one)
        for path in set(before) - {"/", "/plain"}:
            assert found[path] == before[path], path
        assert found["/plain"][0] == b"more"
        sessions.close_one(one)
    wait_until(lambda: client.exists("/leavers") is None, "the ephemeral of who does not come back to go")
    cluster.wait_equal_digests()
    assert sessions.lost == []


def test_d15_a_tree_is_imported_from_running_servers(
    start_cluster: StartCluster, open_sessions: OpenSessions, tmp_path: Path
) -> None:
    """Refused until everything can be read and nobody writes; then the same tree, and equal states everywhere."""
    cluster = start_cluster(kind=GrowingCluster)
    client = open_sessions(cluster).open()
    client.add_auth("digest", "u:p")
    plant(client)
    before = tree(client)
    del before["/mine"]
    for n in range(300):
        client.create(f"/queue/m-{n:03}", b"%d" % n)
    before |= tree(client, "/queue")
    (tmp_path / "new").mkdir()
    new = GrowingCluster(tmp_path / "new", servers=2)
    options = ["--from", cluster.hosts(), *here(new, 1)]
    refused = offline(cluster, "import", *options)
    assert refused.returncode == 1
    assert "/secret" in refused.stderr
    assert "--auth-file" in refused.stderr
    auths = tmp_path / "auths"
    auths.write_text("# who reads\ndigest:u:p\n")
    options += ["--auth-file", str(auths)]
    imported = offline(cluster, "import", *options)
    assert imported.returncode == 0, imported.stderr
    assert "left out:  1 ephemeral" in imported.stdout
    again = offline(cluster, "import", *options)
    assert again.returncode == 1
    assert "is not empty" in again.stderr
    seen = client.last_zxid
    with new:
        new.start_all()
        new.wait_roles(voters=[1, 2])
        sessions = open_sessions(new)
        for number in new.servers:
            one = reader(sessions, number)
            found = tree(one)
            assert set(found) == set(before)
            for path in set(before) - {"/"}:
                assert found[path] == before[path], path
            assert one.last_zxid > seen
            sessions.close_one(one)
        with sessions.reading(1) as one:
            assert one.create("/queue/n-", b"", sequence=True) == "/queue/n-0000000303"
        new.wait_equal_digests()


def test_trouble_of_the_commands_is_told_in_a_sentence(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(kind=GrowingCluster, servers=1)
    file = tmp_path / "backup.snap"
    assert cluster.zraft("snapshot", "save", str(file)).returncode == 0
    place = ["--data", str(tmp_path / "new"), "--id", "1", "--address", "127.0.0.1:2181"]

    def complaint(*arguments: object, code: int = 1) -> str:
        done = offline(cluster, *arguments)
        assert done.returncode == code, done
        assert "Traceback" not in done.stderr
        return done.stderr

    wrong = tmp_path / "wrong.snap"
    wrong.write_bytes(b"something else" * 100)
    assert "is no snapshot of zraft" in complaint("snapshot", "restore", wrong, *place, code=2)
    data = bytearray(file.read_bytes())
    data[-200] ^= 1
    wrong.write_bytes(data)
    assert "does not match its checksum" in complaint("snapshot", "restore", wrong, *place)
    newer = file.read_bytes()
    wrong.write_bytes(newer[:8] + b"\x09" + newer[9:])
    assert "snapshot of format 9, this release knows 1" in complaint("snapshot", "restore", wrong, *place)
    wrong.write_bytes(newer[:-30])
    assert "does not end with a footer" in complaint("snapshot", "restore", wrong, *place)
    listing = ["--cluster", "2=127.0.0.1:2182,3=127.0.0.1:2183"]
    assert "but not this one, --id 1" in complaint("snapshot", "restore", file, *place, *listing, code=2)
    assert "different ports" in complaint(
        "snapshot", "restore", file, *place, "--cluster", "1=127.0.0.1:2182", code=2
    )
    assert "nobody can send to" in complaint("snapshot", "restore", file, *place[:-1], "0.0.0.0:2181", code=2)
    running = ["--data", cluster.servers[1].data, *place[2:]]
    assert "uses this data directory" in complaint("snapshot", "restore", file, *running)
    assert "uses this data directory" in complaint("recover", *running)
    (tmp_path / "empty").mkdir()
    assert "is not a data directory" in complaint("recover", "--data", tmp_path / "empty", *place[2:])
    cluster.kill(1)
    assert "is not empty" in complaint("snapshot", "restore", file, *running)
    assert "of server 1, not of server 2" in complaint(
        "recover", "--data", cluster.servers[1].data, "--id", 2, "--address", "127.0.0.1:2181"
    )
    assert "no server can be read" in complaint("import", "--from", str(cluster.servers[1].address), *place)
    assert not list((tmp_path / "new").glob("[!l]*")), "something was left of an attempt"
    cluster.start(1)
    cluster.wait_ready()


def test_a_save_that_fails_leaves_no_file(tmp_path: Path, start_cluster: StartCluster) -> None:
    cluster = start_cluster(kind=GrowingCluster, servers=1)
    key = tmp_path / "other.key"
    create_key_file(key)
    done = offline(
        cluster,
        "snapshot",
        "save",
        tmp_path / "s.snap",
        "--connect",
        cluster.hosts(),
        "--key",
        key,
        "--timeout",
        3,
    )
    assert done.returncode == 1
    assert not list(tmp_path.glob("*s.snap*"))
    missing = cluster.zraft("snapshot", "save", str(tmp_path / "no" / "s.snap"))
    assert missing.returncode == 2
    assert "cannot be made" in missing.stderr
