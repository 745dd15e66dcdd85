"""The cluster key changed under real servers and under load, and large znodes between them (D-22)."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster, wait_until
from tests.processes.conftest import StartCluster
from zraft.cli.main import main
from zraft.transport.keys import read_key_file

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

Open = Callable[[Cluster], Sessions]


class KeyPerServer(Cluster):
    """Each server has a copy of the key, as on machines of their own."""

    def key_of(self, number: int) -> Path:
        copy = self.directory / f"cluster-{number}.key"
        if not copy.exists():
            copy.touch(0o600)
            copy.write_bytes(self.key.read_bytes())
        return copy

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        command = super().command(number, data=data)
        command[command.index("--key") + 1] = str(self.key_of(number))
        return command


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyPerServer]:
    """Three servers whose tests leave members, data and keys as they found them."""
    with KeyPerServer(tmp_path_factory.mktemp("keys")) as cluster:
        cluster.start_all()
        yield cluster


def zraft_key(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "zraft", "key", *map(str, arguments)], check=True, timeout=60)


def sealing(cluster: Cluster, number: int) -> tuple[str, str]:
    found = cluster.mntr(number) or {}
    return found.get("cluster_key_sealing", ""), found.get("cluster_keys_valid", "")


def test_the_key_is_changed_on_running_servers_without_a_failed_write_or_an_election(
    start_cluster: StartCluster, open_sessions: Open, tmp_path: Path
) -> None:
    cluster = start_cluster(kind=KeyPerServer)
    assert isinstance(cluster, KeyPerServer)
    sessions = open_sessions(cluster)
    client = sessions.open()
    client.create("/written", b"")
    stop = threading.Event()
    failures: list[BaseException] = []
    written = 0

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            try:
                client.set("/written", str(written).encode())
                written += 1
            except BaseException as error:
                failures.append(error)
                return

    def seals(number: int, wanted: object) -> bool:
        return sealing(cluster, number) == wanted

    def written_since(before: int) -> bool:
        return written > before + 20 or bool(failures)

    terms = {(cluster.mntr(n) or {})["raft_term"] for n in cluster.servers}
    assert len(terms) == 1
    writer = threading.Thread(target=write)
    writer.start()
    try:
        fresh = tmp_path / "next.key"
        zraft_key("new", fresh)
        [old], [new] = read_key_file(cluster.key_of(1)), read_key_file(fresh)
        order = list(cluster.servers)
        for arguments, expected in (
            (("add", fresh), (old, "2")),
            (("swap",), (new, "2")),
            (("drop",), (new, "1")),
        ):
            random.Random(str(arguments)).shuffle(order)
            for number in order:
                step, *more = arguments
                zraft_key(step, cluster.key_of(number), *more)
                if number != order[0]:
                    cluster._signal(number, signal.SIGHUP)  # the first one finds out by itself
                wanted = (expected[0].key_id.hex(), expected[1])
                wait_until(partial(seals, number, wanted), f"server {number}: {step}")
                before = written
                wait_until(partial(written_since, before), "writes to go on")
    finally:
        stop.set()
        writer.join()
    assert failures == []
    assert sessions.lost == []
    assert {(cluster.mntr(n) or {})["raft_term"] for n in cluster.servers} == terms, (
        "nobody had to be elected"
    )
    cluster.wait_equal_digests()
    for number, server in cluster.servers.items():
        text = server.log.read_text()
        assert "cluster keys taken" in text
        assert not [key for key in (old, new) if key.secret.hex() in text], f"server {number} logged a key"


def test_a_server_keeps_its_keys_when_the_file_cannot_be_used(unchanged: KeyPerServer) -> None:
    unchanged.key_of(1).chmod(0o644)
    try:
        unchanged._signal(1, signal.SIGHUP)
        failed = "cluster_key_reloads_failed_total"
        wait_until(lambda: (unchanged.mntr(1) or {}).get(failed) == "1", "the reload")
        unchanged.servers[1].wait_says("reload failed", "mode 0644")
    finally:
        unchanged.key_of(1).chmod(0o600)
    assert sealing(unchanged, 1)[1] == "1"
    unchanged.wait_ready()


def test_a_znode_of_a_megabyte_reaches_all_servers_over_small_datagrams(
    start_cluster: StartCluster, open_sessions: Open
) -> None:
    cluster = start_cluster(ZRAFT_PEER__DATAGRAM_BYTES="1400")
    client = open_sessions(cluster).open()
    content = random.Random(1).randbytes(1_000_000)
    client.create("/large", content)
    for number in range(5):
        client.set("/large", content[number:])
    for number in cluster.servers:
        reader = open_sessions(cluster).open(only=number)
        reader.sync("/large")
        assert reader.get("/large")[0] == content[4:]
    leader = cluster.mntr(cluster.leader() or 0) or {}
    assert int(leader["peer_stream_messages_sent_total"]) >= 2 * 6
    assert int(leader["peer_stream_bytes_sent_total"]) > 12_000_000
    cluster.wait_equal_digests()


def test_no_secret_is_in_the_arguments_of_a_process_nor_in_a_file_others_can_read(
    unchanged: KeyPerServer,
) -> None:
    secret = read_key_file(unchanged.key_of(1))[0].secret
    for server in unchanged.servers.values():
        assert server.process is not None
        arguments = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        assert secret.hex().encode() not in arguments
    for path in unchanged.directory.rglob("*"):
        if path.is_file() and path.stat().st_mode & 0o077:
            content = path.read_bytes()
            assert secret not in content, path
            assert secret.hex().encode() not in content, path
    for server in unchanged.servers.values():
        open_to_others = [path for path in server.data.rglob("*") if path.stat().st_mode & 0o077]
        assert not open_to_others, "what clients store is nobody else's business"
        assert not server.data.stat().st_mode & 0o077


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_an_operator_with_a_wrong_key_is_told_what_it_reached(
    unchanged: KeyPerServer, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.key"
    zraft_key("new", wrong)
    result = run("member", "list", "--connect", str(unchanged.servers[1].address), "--key", str(wrong))
    assert result.exit_code == 1
    assert "a zraft server" in result.output
    assert read_key_file(wrong)[0].key_id.hex() in result.output
    unchanged.servers[1].wait_says("stream refused", "unknown_key")
