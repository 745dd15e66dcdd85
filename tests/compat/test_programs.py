"""Programs that keep their leader in ZooKeeper, against servers of ours: Spark's Master, and Patroni's way with kazoo."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from tests.compat.install import MissingError, java_jars, program
from tests.processes.cluster import HOST, Cluster, free_ports, wait_until

pytestmark = [pytest.mark.compat, pytest.mark.processes, pytest.mark.timeout(600)]

ELECTED: Final = "I have been elected leader! New state: ALIVE"
OPENED: Final = ("java.base/sun.nio.ch", "java.base/java.nio", "java.base/java.lang", "java.base/java.util")
MASTER_S: Final = 120.0


class Master:
    """A Spark master that looks for its state and its leader in ZooKeeper."""

    def __init__(self, name: str, directory: Path, java: str, jars: Path, hosts: str) -> None:
        self.log = directory / f"{name}.log"
        self.port, web_port = free_ports(2)
        (directory / "log4j2.properties").write_text(
            "rootLogger.level = info\nrootLogger.appenderRef.a.ref = A\n"
            "appender.a.type = Console\nappender.a.name = A\n"
        )
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(java, "-Xmx512m", "-cp", f"{jars}/*"),
                    *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
                    f"-Dlog4j2.configurationFile={directory}/log4j2.properties",
                    "-Dspark.deploy.recoveryMode=ZOOKEEPER",
                    f"-Dspark.deploy.zookeeper.url={hosts}",
                    "-Dspark.deploy.zookeeper.dir=/spark",
                    *("org.apache.spark.deploy.master.Master", "--host", HOST),
                    *("--port", str(self.port), "--webui-port", str(web_port)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
            )

    def leads(self) -> bool:
        text = self.log.read_text(errors="replace")
        assert self.process.poll() is None, f"the master ended by itself:\n{text[-4000:]}"
        return ELECTED in text

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def masters() -> Iterator[list[Master]]:
    """Those in the list are ended with the test."""
    started: list[Master] = []
    yield started
    for one in started:
        one.kill()


def client_of(cluster: Cluster) -> KazooClient:
    client = KazooClient(cluster.hosts(), timeout=10)
    client.start(timeout=60)
    return client


def test_sparks_masters_elect_a_leader_and_the_standby_takes_over(
    cluster: Cluster, masters: list[Master], tmp_path: Path
) -> None:
    try:
        java, jars = program("java", "default-jre-headless"), java_jars()
    except MissingError as error:
        pytest.skip(str(error))
    masters.append(Master("first", tmp_path, java, jars, cluster.hosts()))
    wait_until(masters[0].leads, "the first master to lead", MASTER_S)
    masters.append(Master("second", tmp_path, java, jars, cluster.hosts()))
    client = client_of(cluster)
    wait_until(
        lambda: len(client.get_children("/spark/leader_election")) == 2, "both in the election", MASTER_S
    )
    assert not masters[1].leads()
    leader = cluster.leader()
    assert leader is not None
    cluster.kill(leader)
    cluster.wait_ready([n for n in cluster.servers if n != leader])
    client.retry(client.get_children, "/spark/master_status")
    assert masters[0].leads(), "a server's death costs no master its place"
    masters[0].kill()
    wait_until(masters[1].leads, "the second master to take over", MASTER_S)
    client.stop()
    client.close()


def test_leader_key_as_patroni_keeps_it_changes_hands_only_when_its_session_ends(cluster: Cluster) -> None:
    """Members race for an ephemeral key, keep it fresh by compare and set, and watch it; a killed server changes nothing."""
    one, two = client_of(cluster), client_of(cluster)
    one.ensure_path("/service/batman/members")
    two.sync("/service")
    one.create("/service/batman/members/one", b"{}", ephemeral=True)
    two.create("/service/batman/members/two", b"{}", ephemeral=True)
    one.create("/service/batman/leader", b"one", ephemeral=True)
    with pytest.raises(NodeExistsError):
        two.create("/service/batman/leader", b"two", ephemeral=True)
    seen: list[bytes | None] = []
    two.DataWatch("/service/batman/leader", lambda data, stat: seen.append(data))
    data, stat = two.get("/service/batman/leader")
    assert data == b"one"
    assert stat.owner_session_id == one.client_id[0]
    leader = cluster.leader()
    assert leader is not None
    cluster.kill(leader)
    cluster.wait_ready([n for n in cluster.servers if n != leader])
    status = one.retry(one.create, "/service/batman/status", b"0")
    assert status == "/service/batman/status"
    _, status_stat = one.retry(one.get, "/service/batman/status")
    for value in range(1, 6):
        status_stat = one.retry(
            one.set, "/service/batman/status", str(value).encode(), version=status_stat.version
        )
    assert two.retry(two.get, "/service/batman/leader")[0] == b"one"
    members = two.retry(two.get_children, "/service/batman/members")
    assert sorted(members) == ["one", "two"]
    assert set(seen) == {b"one"}
    one.stop()
    one.close()
    wait_until(lambda: None in seen, "the second member to be told that the key is gone")

    def taken() -> bool:
        try:
            two.retry(two.create, "/service/batman/leader", b"two", ephemeral=True)
        except NodeExistsError:
            return False
        return True

    wait_until(taken, "the second member to take the key")
    assert two.retry(two.get_children, "/service/batman/members") == ["two"]
    with pytest.raises(NoNodeError):
        two.retry(two.get, "/service/batman/members/one")
    two.stop()
    two.close()
