"""`--docker`: what is asked of the engine, checked by an engine that records; no container runs here."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from zraft.cli.status import ServerStatus
from zraft_bench.local import containers
from zraft_bench.local.containers import LABEL, ContainerCluster
from zraft_bench.processes import ServerError

KEY = b"a key\n"


class FakeContainer:
    def __init__(self, engine: FakeEngine, image: str, command: list[str], given: dict[str, Any]) -> None:
        self.engine = engine
        self.image, self.command, self.given = image, command, given
        self.name = given["name"]
        self.status = "created"
        self.attrs: dict[str, Any] = {}
        self.archives: list[tuple[str, bytes]] = []

    def put_archive(self, path: str, data: bytes) -> bool:
        assert self.status == "created", "the key must be there before the server is"
        self.archives.append((path, data))
        return True

    def start(self) -> None:
        assert self.archives
        self.status = "running"
        self.engine.ports += 1
        self.port = self.engine.ports

    def restart(self, timeout: int) -> None:
        self.start()

    def reload(self) -> None:
        # As the real one: the ports are known only after a reload.
        bound = [{"HostIp": "127.0.0.1", "HostPort": str(self.port)}]
        self.attrs = {"NetworkSettings": {"Ports": {"2181/tcp": bound}}}

    def logs(self, tail: int) -> bytes:
        return b"Error: data: something is wrong"

    def stats(self, stream: bool) -> dict[str, Any]:
        assert not stream
        return {"cpu_stats": {"cpu_usage": {"total_usage": 2_500_000_000}}}

    def remove(self, force: bool, v: bool) -> None:
        assert force
        assert v
        self.status = "removed"


class FakeNetwork:
    def __init__(self, name: str, given: dict[str, Any]) -> None:
        self.name, self.given, self.removed = name, given, False

    def remove(self) -> None:
        self.removed = True


class FakeEngine:
    """`images`, `networks` and `containers` of the Docker SDK's client, as far as they are used."""

    def __init__(self, has_image: bool = True) -> None:
        self.images = self.networks = self.containers = self
        self.has_image = has_image
        self.built: list[dict[str, Any]] = []
        self.made: list[FakeContainer] = []
        self.nets: list[FakeNetwork] = []
        self.ports = 40_000

    def list(self, name: str) -> list[str]:
        return [name] if self.has_image else []

    def build(self, **given: Any) -> None:
        self.built.append(given)

    def create(self, first: str, command: Any = None, **given: Any) -> Any:
        if command is None:
            self.nets.append(FakeNetwork(first, given))
            return self.nets[-1]
        self.made.append(FakeContainer(self, first, command, given))
        return self.made[-1]


@pytest.fixture(autouse=True)
def serving(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first port asked leads, the others follow."""

    def status(address: Any, timeout_s: float) -> ServerStatus:
        mode = "leader" if address.port % 10 == 1 else "follower"
        return ServerStatus("zraft", mode, 1, 1, 1)

    monkeypatch.setattr("zraft.cli.status.server_status", status)
    monkeypatch.setattr(containers, "new_key", lambda path: path.write_bytes(KEY))


def test_each_server_gets_its_name_its_place_and_a_port_of_loopback() -> None:
    engine = FakeEngine()
    cluster = ContainerCluster(engine, "zraft", 3, ["raft.heartbeat_ticks=40"])
    cluster.start()
    (network,) = engine.nets
    assert network.given["driver"] == "bridge"
    names = [made.name for made in engine.made]
    listed = ",".join(f"{n}={name}:2181" for n, name in enumerate(names, 1))
    for number, made in enumerate(engine.made, 1):
        assert made.image == "zraft"
        assert made.command == ["serve", "--set", "raft.heartbeat_ticks=40"]
        assert made.given["environment"] == {
            "ZRAFT_ID": str(number),
            "ZRAFT_ADDRESS": "0.0.0.0:2181",
            "ZRAFT_CLUSTER": listed,
            "ZRAFT_KEY": "/keys/cluster.key",
        }
        assert made.given["ports"] == {"2181/tcp": ("127.0.0.1", None)}
        assert made.given["network"] == network.name
        assert made.given["labels"][LABEL] in made.name
    assert cluster.hosts == "127.0.0.1:40001,127.0.0.1:40002,127.0.0.1:40003"
    assert cluster.cpu_s() == 7.5
    assert engine.built == []


def test_the_key_is_the_images_users_alone_and_in_no_environment() -> None:
    engine = FakeEngine()
    ContainerCluster(engine, "zraft", 3).start()
    archives = {made.archives[0] for made in engine.made}
    ((path, data),) = archives
    assert path == "/keys"
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        (entry,) = tar.getmembers()
    assert (entry.name, entry.mode, entry.uid, entry.gid, entry.size) == (
        "cluster.key",
        0o400,
        10_001,
        10_001,
        len(KEY),
    )
    assert all(KEY.decode().strip() not in str(made.given) for made in engine.made)


def test_everything_that_was_made_is_removed() -> None:
    engine = FakeEngine()
    cluster = ContainerCluster(engine, "zraft", 3)
    cluster.start()
    cluster.stop()
    assert {made.status for made in engine.made} == {"removed"}
    assert engine.nets[0].removed
    cluster.stop()  # a second time there is nothing left


def test_after_a_restart_the_ports_are_read_again() -> None:
    cluster = ContainerCluster(FakeEngine(), "zraft", 1)
    cluster.start()
    assert cluster.hosts == "127.0.0.1:40001"
    cluster._docker.ports = 40_010
    cluster.restart()
    assert cluster.hosts == "127.0.0.1:40011"


def test_an_absent_image_is_built_from_the_checkout() -> None:
    engine = FakeEngine(has_image=False)
    ContainerCluster(engine, "zraft", 1).start()
    (built,) = engine.built
    assert (Path(built["path"]) / "Dockerfile").exists()
    assert built["tag"] == "zraft"


def test_without_a_checkout_an_absent_image_is_an_error_that_says_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(containers, "checkout", lambda: None)
    engine = FakeEngine(has_image=False)
    with pytest.raises(ServerError, match=r"docker build -t zraft \."):
        ContainerCluster(engine, "zraft", 1).start()
    assert engine.made == []


def test_a_container_that_ends_is_told_with_the_end_of_its_log() -> None:
    engine = FakeEngine()
    cluster = ContainerCluster(engine, "zraft", 1)
    cluster.start()
    engine.made[0].status = "exited"
    with pytest.raises(ServerError, match=r"has ended:\nError: data: something"):
        cluster._leader()


def test_without_an_engine_the_command_says_so(tmp_path: Path) -> None:
    """With the SDK: no engine answers. Without it: install it. Either way before anything is started."""
    # In a process of its own: the SDK leaves sockets open when there is no engine.
    answer = subprocess.run(
        [sys.executable, "-m", "zraft_bench", "local", "--docker", "--out", str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "DOCKER_HOST": f"unix://{tmp_path}/none.sock",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2, answer.stderr
    assert re.search(r"--docker: (no engine answers|the Docker SDK is not installed)", answer.stderr)
