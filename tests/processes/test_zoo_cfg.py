"""A server that is started with nothing but ZooKeeper's own files and environment, and its audit log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from tests.processes.cluster import DEADLINE_S, HOST, ROOT, free_ports, wait_until
from zraft.cli.status import UnreachableError, ask
from zraft_core.address import Address

pytestmark = pytest.mark.processes


@contextmanager
def serving(
    directory: Path, port: int, *arguments: str, mode: str = "Mode: standalone", **environ: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`zraft serve` that answers; ended by SIGTERM, which must succeed."""

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return mode in ask(Address(HOST, port), "srvr", 5.0)
        except UnreachableError:
            return False

    inherited = {n: v for n, v in os.environ.items() if not n.startswith(("ZRAFT_", "ZOO_"))}
    log = directory / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "zraft", "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=inherited | {"PYTHONPATH": str(ROOT)} | environ,
            cwd=directory,
        )
    try:
        wait_until(answers, "the server to serve")
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_zoo_cfg_starts_a_server_whose_audit_log_tells_who_wrote_what(tmp_path: Path) -> None:
    [port] = free_ports(1)
    audit = tmp_path / "state" / "zraft" / "audit.log"
    (tmp_path / "zoo.cfg").write_text(
        f"dataDir=state\nclientPort={port}\nclientPortAddress={HOST}\naudit.enable=true\nmystery=1\nforceSync=no\n"
    )
    with serving(tmp_path, port, "zoo.cfg") as process:
        client = KazooClient(hosts=f"{HOST}:{port}")
        client.start(timeout=DEADLINE_S)
        client.create("/a", b"nobody's business")
        with pytest.raises(NodeExistsError):
            client.create("/a", b"")
        wait_until(lambda: audit.read_text().count("znode=/a") == 2, "both lines")
        audit.rename(audit.with_name("old"))
        process.send_signal(signal.SIGHUP)
        wait_until(audit.exists, "the audit log to be opened again")
        client.create("/e", ephemeral=True)
        client.stop()
        client.close()
    old, new = (
        # The leader writes down who founded the cluster at a moment of its own.
        "".join(
            line for line in file.read_text().splitlines(keepends=True) if "operation=reconfig" not in line
        )
        for file in (audit.with_name("old"), audit)
    )
    assert old.splitlines()[0].endswith("Z\tuser=zraft\toperation=serverStart\tresult=success")
    assert all(line.startswith("time=20") for line in (old + new).splitlines())
    assert [line.split("\t")[-1] for line in old.splitlines()[1:]] == ["result=success", "result=failure"]
    assert "business" not in old
    assert [line.split("operation=")[1].split("\t")[0] for line in new.splitlines()] == [
        "create",
        "ephemeralZNodeDeleteOnSessionClose",
        "serverStop",
    ]
    log = (tmp_path / "log").read_text()
    assert "key=mystery" in log
    assert "key=forceSync" in log


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "zraft", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={n: v for n, v in os.environ.items() if not n.startswith(("ZRAFT_", "ZOO_"))}
        | {"PYTHONPATH": str(ROOT)},
        cwd=directory,
        check=False,
    )


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[str]:
    """The address of what is imported: a service with a znode."""
    [port] = free_ports(1)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "zoo.cfg").write_text(f"dataDir=state\nclientPort={port}\nclientPortAddress={HOST}\n")
    with serving(tmp_path / "old", port, "zoo.cfg"):
        client = KazooClient(hosts=f"{HOST}:{port}")
        client.start(timeout=DEADLINE_S)
        client.create("/mine", b"of years")
        client.stop()
        client.close()
        yield f"{HOST}:{port}"


def test_beside_zookeepers_data_nothing_is_founded_and_an_import_puts_the_tree_where_serve_looks(
    tmp_path: Path, zookeeper: str
) -> None:
    """An empty cluster was founded on the production port, and the import of the guide went to another directory."""
    [port] = free_ports(1)
    state = tmp_path / "state"
    (state / "version-2").mkdir(parents=True)
    (tmp_path / "zoo.cfg").write_text(f"dataDir=state\nclientPort={port}\nclientPortAddress={HOST}\n")
    refused = run(tmp_path, "serve", "zoo.cfg")
    assert refused.returncode == 2, refused
    assert "founds" in refused.stderr
    assert "`zraft import" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert os.listdir(state) == ["version-2"]
    nowhere = run(tmp_path, "import", "--config", "zoo.cfg", "--from", f"{HOST}:{port}", "--timeout", "1")
    assert nowhere.returncode == 1, nowhere
    assert os.listdir(state) == ["version-2"], "a refused import leaves nothing behind"
    imported = run(tmp_path, "import", "--config", "zoo.cfg", "--from", zookeeper)
    assert imported.returncode == 0, imported.stderr
    assert "next:      zraft serve --config zoo.cfg" in imported.stdout
    with serving(tmp_path, port, "--config", "zoo.cfg"):
        client = KazooClient(hosts=f"{HOST}:{port}")
        client.start(timeout=DEADLINE_S)
        assert client.get("/mine")[0] == b"of years"
        client.stop()
        client.close()


def test_servers_beside_zookeepers_data_join_the_imported_tree_and_warn_of_nothing(
    tmp_path: Path, zookeeper: str
) -> None:
    """They were told that they begin with no znodes; and that they join was an error."""
    ports = free_ports(2)
    assert run(tmp_path, "key", "new", "cluster.key").returncode == 0
    lines = "".join(f"server.{n}={HOST}:2888:3888;{port}\n" for n, port in enumerate(ports, 1))
    for number in (1, 2):
        place = tmp_path / f"server-{number}"
        (place / "state" / "version-2").mkdir(parents=True)
        (place / "state" / "myid").write_text(f"{number}\n")
        (place / "zoo.cfg").write_text(f"dataDir=state\nzraft.key=../cluster.key\n{lines}")
    one, two = tmp_path / "server-1", tmp_path / "server-2"
    imported = run(one, "import", "--config", "zoo.cfg", "--from", zookeeper)
    assert imported.returncode == 0, imported.stderr
    with (
        serving(one, ports[0], "zoo.cfg", mode="Mode: "),
        serving(two, ports[1], "zoo.cfg", mode="Mode: "),
    ):
        client = KazooClient(hosts=f"{HOST}:{ports[1]}")
        client.start(timeout=DEADLINE_S)
        assert client.get("/mine")[0] == b"of years"
        client.stop()
        client.close()
    said = (two / "log").read_text()
    assert "waiting until the leader" in said
    assert "level=error" not in said
    assert "znodes" not in said


def test_the_images_environment_starts_a_server(tmp_path: Path) -> None:
    [port] = free_ports(1)
    environ = {
        "ZOO_DATA_DIR": str(tmp_path / "data"),
        "ZOO_MY_ID": "7",
        "ZOO_SERVERS": f"server.7={HOST}:2888:3888;{port}",
        "ZOO_MAX_CLIENT_CNXNS": "1",
        "ZOO_CFG_EXTRA": "audit.enable=true maxSessionTimeout=60000",
    }
    with serving(tmp_path, port, **environ):
        client = KazooClient(hosts=f"{HOST}:{port}")
        client.start(timeout=DEADLINE_S)
        with pytest.raises(UnreachableError):
            ask(Address(HOST, port), "ruok", 5.0)
        client.stop()
        client.close()
        wait_until(lambda: _answers(port), "the address to have room again")
    assert (tmp_path / "data" / "zraft" / "audit.log").is_file()


def _answers(port: int) -> bool:
    try:
        return ask(Address(HOST, port), "ruok", 5.0) == "imok"
    except UnreachableError:
        return False
