"""Unmodified clients in Java, C, Python and JavaScript follow the ensemble until every server they were told of is gone.

Members are added, moved to another address and removed while a client works; in the end nobody is where it was in the
beginning. Changes are made by `reconfig`: by the client under test if it can, by kazoo for the others.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

import pytest
from kazoo.protocol.states import WatchedEvent
from kazoo.security import ACL, Id, Permissions

from tests.compat.install import java_jars, node_modules, program
from tests.compat.test_clients import HEADER, JARS, PROGRAMS, or_skip
from tests.processes.clients import Sessions
from tests.processes.cluster import free_ports, wait_until
from tests.processes.conftest import StartCluster
from tests.processes.members import GrowingCluster
from zraft.server.clients.authentication.proofs import digest_id
from zraft_core.address import Address

pytestmark = [pytest.mark.compat, pytest.mark.processes, pytest.mark.timeout(600)]

PROGRAM_S: Final = 120
CONFIG: Final = "/zookeeper/config"
SUPER: Final = "super:test"

Change = Callable[[str | None, str | None], str]
"""Changes the members by (joining, leaving), and gives the configuration that was answered."""

Expect = Callable[[Sequence[Address]], None]
"""Waits until the client goes by exactly these servers, and uses it."""


class SpreadCluster(GrowingCluster):
    """No two servers have one IP address, and who moves gets another one.

    ZooKeeper's C library compares addresses without their ports: of the servers at one IP address it believes that they
    are where they were as long as their number stays the same.
    """

    def __init__(self, directory: Path, *, servers: int = 3, env: Mapping[str, str] | None = None) -> None:
        self._hosts = (f"127.0.0.{number}" for number in range(2, 255))
        super().__init__(directory, servers=servers, env=env)

    def free_addresses(self, count: int) -> list[Address]:
        return [Address(host, *free_ports(1, host)) for host in islice(self._hosts, count)]


@pytest.fixture
def cluster(start_cluster: StartCluster) -> GrowingCluster:
    cluster = start_cluster(
        kind=SpreadCluster,
        ZRAFT_CLIENT__RECONFIG_ENABLED="true",
        ZRAFT_AUTH__SUPER_DIGEST=digest_id(SUPER.encode()),
    )
    assert isinstance(cluster, GrowingCluster)
    return cluster


def line_of(number: int, address: Address) -> str:
    return f"server.{number}={address}:0:participant;{address}"


def move_everything(cluster: GrowingCluster, change: Change, expect: Expect) -> None:
    """Server 4 comes, 2 and 3 move with their disks, 1 goes; `expect` hears of every step."""

    def told() -> None:
        expect([server.address for _, server in sorted(cluster.servers.items())])

    def asked(joining: str | None, leaving: str | None) -> None:
        data = change(joining, leaving)
        assert [word for word in data.split() if word.startswith("server.")] == [
            line_of(number, server.address) for number, server in sorted(cluster.servers.items())
        ], "the answer is the new configuration"

    told()
    fourth = cluster.place(4)
    cluster.start(4)
    asked(line_of(4, fourth.address), None)
    told()
    cluster.wait_roles(voters=[1, 2, 3, 4])
    for number in (2, 3):
        cluster.kill(number)
        cluster.move(number)
        asked(line_of(number, cluster.servers[number].address), None)
        cluster.start(number)
        told()
        cluster.wait_roles(voters=[1, 2, 3, 4])
    first = cluster.retire(1)
    asked(None, "1")
    cluster.wait_roles(voters=[2, 3, 4])
    cluster.end(first)
    told()


class Program:
    """A client in another language, which is told what to expect on its input and says on its output that it holds."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self._command = command
        # A file: ZooKeeper's C library complains of each refused connection, and waits until a pipe is read.
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            env=os.environ | env,
        )

    def say(self, line: str) -> str:
        """What it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and said why
        answer = self._process.stdout.readline().strip()
        if not answer:
            self._process.communicate(timeout=PROGRAM_S)
            raise AssertionError(f"{self._command[0]} ended at {line!r}:\n{self._complaint()}")
        return answer

    def operate(self, joining: str | None, leaving: str | None) -> str:
        return self.say(f"operate {joining or '-'} {leaving or '-'}")

    def expect(self, servers: Sequence[Address]) -> None:
        assert self.say(f"expect {','.join(map(str, servers))}") == "ok"

    def finish(self) -> None:
        """It has kept its session."""
        output, _ = self._process.communicate(timeout=PROGRAM_S)
        assert (self._process.returncode, output.strip()) == (0, "done"), self._complaint()

    def _complaint(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read()[-6000:]

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._complaints.close()


@contextmanager
def operator(cluster: GrowingCluster, sessions: Sessions) -> Iterator[Change]:
    """kazoo, as the super user, at all servers of the moment."""
    client = sessions.open(name="operator")
    client.add_auth("digest", SUPER)

    def change(joining: str | None, leaving: str | None) -> str:
        client.set_hosts(cluster.hosts())
        data, stat = client.retry(client.reconfig, joining=joining, leaving=leaving, new_members=None)
        text: str = data.decode()
        assert int(text.rpartition("version=")[2], 16) == stat.mzxid
        return text

    yield change


def test_zookeepers_java_client_and_curator_follow(cluster: GrowingCluster, tmp_path: Path) -> None:
    javac = or_skip(lambda: program("javac", "default-jdk-headless"))
    jars = Path(or_skip(java_jars))
    path = ":".join(str(jar) for pattern in JARS for jar in jars.glob(f"{pattern}.jar"))
    subprocess.run([javac, "-d", tmp_path, "-cp", path, PROGRAMS / "FollowEnsemble.java"], check=True)
    command = ["java", "-Xmx256m", "-cp", f"{tmp_path}:{path}", "FollowEnsemble"]
    with Program([*command, str(cluster.servers[1].address)], {}) as java:
        move_everything(cluster, java.operate, java.expect)
        java.finish()


def test_the_c_client_follows(cluster: GrowingCluster, tmp_path: Path) -> None:
    gcc = or_skip(lambda: program("gcc", "gcc"))
    if not HEADER.exists():
        pytest.skip(f"no {HEADER}: apt-get install libzookeeper-mt-dev")
    built = tmp_path / "follow"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    libraries = ["-lzookeeper_mt", "-lpthread"]
    subprocess.run([gcc, *flags, "-o", built, PROGRAMS / "follow.c", *libraries], check=True)
    with Program([str(built), str(cluster.servers[1].address)], {}) as client:
        move_everything(cluster, client.operate, client.expect)
        client.finish()


def test_the_node_client_follows(
    cluster: GrowingCluster, open_sessions: Callable[[GrowingCluster], Sessions]
) -> None:
    node = or_skip(lambda: program("node", "nodejs"))
    command = [node, str(PROGRAMS / "follow.js"), str(cluster.servers[1].address)]
    with (
        Program(command, {"NODE_PATH": or_skip(node_modules)}) as client,
        operator(cluster, open_sessions(cluster)) as change,
    ):
        move_everything(cluster, change, client.expect)
        client.finish()


def test_kazoo_follows(cluster: GrowingCluster, open_sessions: Callable[[GrowingCluster], Sessions]) -> None:
    """What an application does with `set_hosts` and a watch: kazoo itself does not follow."""
    sessions = open_sessions(cluster)
    client = sessions.open(only=1, name="follower")
    client.add_auth("digest", SUPER)
    session = client.client_id[0]
    client.create("/kazoo", ephemeral=True)
    followed: list[str] = []

    @client.DataWatch(CONFIG)  # type: ignore[untyped-decorator]
    def on_configuration(data: bytes | None, _: object, event: WatchedEvent | None) -> None:
        lines = (data or b"").decode().splitlines()
        servers = [line.partition(";")[2] for line in lines if line.startswith("server.")]
        if servers:
            followed[:] = servers
            client.set_hosts(",".join(servers))

    def change(joining: str | None, leaving: str | None) -> str:
        data, _ = client.retry(client.reconfig, joining=joining, leaving=leaving, new_members=None)
        return str(data.decode())

    def expect(servers: Sequence[Address]) -> None:
        expected = [str(server) for server in servers]
        wait_until(lambda: followed == expected, f"{expected} in place of {followed}")
        client.retry(client.set, "/kazoo", repr(expected).encode())
        assert client.retry(client.get, "/kazoo")[0] == repr(expected).encode()

    move_everything(cluster, change, expect)
    assert client.client_id[0] == session
    assert client.exists("/kazoo").owner_session_id == session
    assert not sessions.lost


def test_zkcli_shows_and_changes_the_members(
    cluster: GrowingCluster, open_sessions: Callable[[GrowingCluster], Sessions]
) -> None:
    """ZooKeeper's own: it reads what it is given, and what it is answered, by the classes of the server."""
    java, jars = or_skip(lambda: program("java", "default-jre-headless")), or_skip(java_jars)
    client = open_sessions(cluster).open(name="administrator")
    client.add_auth("digest", SUPER)
    client.set_acls(CONFIG, [ACL(Permissions.ALL, Id("world", "anyone"))])  # for who has one command only
    running = cluster.hosts()  # the command is lost with the first connection that is refused

    def zkcli(*words: str) -> list[str]:
        command = [java, "-Xmx128m", "-cp", f"{jars}/*", "org.apache.zookeeper.ZooKeeperMain"]
        done = subprocess.run(
            [*command, "-server", running, *words],
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-6000:]
        assert "ConfigException" not in done.stdout + done.stderr
        return done.stdout.splitlines()

    def lines() -> list[str]:
        return [line_of(number, server.address) for number, server in sorted(cluster.servers.items())]

    def members(shown: list[str]) -> list[str]:
        return [line for line in shown if line.startswith("server.")]

    assert members(zkcli("config")) == lines()
    known = zkcli("config", "-c")[-1].split(" ")[1]
    assert sorted(known.split(",")) == sorted(running.split(","))
    fourth = cluster.place(4)
    assert members(zkcli("reconfig", "-add", line_of(4, fourth.address))) == lines()
    everybody = ",".join(lines())
    cluster.retire(4)
    assert members(zkcli("reconfig", "-remove", "4")) == lines()
    assert members(zkcli("reconfig", "-members", everybody)) == everybody.split(",")
    assert members(zkcli("reconfig", "-members", ",".join(lines()))) == lines()
    classic = [f"server.{n}={s.address.host}:2888:3888;{s.address.port}" for n, s in cluster.servers.items()]
    assert members(zkcli("reconfig", "-members", ",".join(classic))) == lines()
