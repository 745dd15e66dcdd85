"""The process around a driver: what ends it, and what keeps it from starting."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from structlog.testing import capture_logs

from tests.ipv6 import has_ipv6
from tests.unit.server.asker import Asker
from tests.unit.server.nodes import Nodes
from zraft.config.sections import TlsConfig
from zraft.config.server import ServerConfig
from zraft.raft.role import Role
from zraft.server.clients.errands import Errand
from zraft.server.engine.driver import ERRAND_BYTES, Driver
from zraft.server.process.client_protocol import NOT_SENT
from zraft.server.process.listening_sockets import bound
from zraft.server.process.node import IDLE_CHORES_MS, Node, now_ms, run_server
from zraft.storage.directory import DataDirectory, read_meta
from zraft.storage.filesystem import RealFileSystem
from zraft.transport.keys import create_key_file
from zraft_core.address import Address
from zraft_core.errors import ConfigError
from zraft_core.ids import ServerId
from zraft_core.znodes.txn import CREATE


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _open_again(data: Path) -> None:
    """What a server closes last is its directory, with the lock that keeps a second one out."""
    DataDirectory.open(RealFileSystem(), str(data), server=ServerId(1), entropy=os.urandom).close()


class BrokenError(RuntimeError):
    """What nobody expected."""


async def test_chores_are_done_by_a_server_whose_turns_never_leave_it_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deadlines, its garbage and its operators must not wait for a moment at which nothing is left to do."""
    async with Nodes(tmp_path, servers=1) as nodes:
        (node,) = nodes.nodes.values()
        turn = node.driver.turn

        def busy(now_ms: int, wall_ms: int) -> Any:
            return evolve(turn(now_ms, wall_ms), wake_at=now_ms)

        monkeypatch.setattr(node.driver, "turn", busy)
        node.schedule()
        await nodes.until(lambda: node._wake_at > 0)
        done = node._chores_done
        await nodes.until(lambda: node._chores_done > done + 5)


@pytest.mark.parametrize("where", ["start", "turn", "callback", "tick"])
async def test_an_exception_that_nobody_expected_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """D-5: an entry may be applied in part; a loop that logs it and goes on would apply it again."""
    address = Address("127.0.0.1", _free_port())
    config = ServerConfig(id=ServerId(1), data=tmp_path, address=address, cluster={ServerId(1): address})

    def broken(*_: object) -> None:
        raise BrokenError

    with bound(config) as sockets:
        node = Node(config, sockets)
        if where == "start":
            monkeypatch.setattr(node._announcements, "begin", broken)
        elif where == "turn":
            monkeypatch.setattr(node.driver, "turn", broken)
        elif where == "callback":
            asyncio.get_running_loop().call_later(0.01, broken)
        else:
            monkeypatch.setattr(node._announcements, "show", broken)
        with pytest.raises(BrokenError):
            await node.run()
    await asyncio.to_thread(_open_again, tmp_path)


async def test_a_start_that_fails_when_it_listens_closes_everything_and_ends_with_its_exit_code(
    tmp_path: Path,
) -> None:
    """Two programs may bind one port at the same moment; the first that listens has it."""
    address = Address("127.0.0.1", _free_port())
    config = ServerConfig(id=ServerId(1), data=tmp_path, address=address, cluster={ServerId(1): address})
    with bound(config) as sockets, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((address.host, address.port))
        other.listen()
        with capture_logs() as logs:
            assert await Node(config, sockets).run() == 1
    (failed,) = [entry for entry in logs if entry["event"] == "server failed"]
    assert failed["error"].startswith("address: cannot listen for clients: ")
    await asyncio.to_thread(_open_again, tmp_path)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")
@pytest.mark.skipif(not NOT_SENT, reason="this system cannot bound what its kernel takes and does not send")
async def test_the_kernel_takes_little_for_each_client_that_connects(tmp_path: Path) -> None:
    async with Nodes(tmp_path, servers=1) as nodes, Asker(nodes.addresses[ServerId(1)]):
        (connection,) = nodes.leader.driver.clients.connections
        accepted = connection.handle._transport.get_extra_info("socket")
        assert [(*one, accepted.getsockopt(*one)) for one in (option[:2] for option in NOT_SENT)] == [
            *NOT_SENT
        ]


async def test_servers_that_listen_everywhere_form_one_cluster_over_ipv4_and_ipv6(tmp_path: Path) -> None:
    """Datagrams, streams for what is too long for them, and clients of both families at each server."""

    async def ask(host: str, port: int) -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"ruok")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async with Nodes(tmp_path, hosts=("127.0.0.1", "::1", "::1"), listen="::") as nodes:
        leader = nodes.leader
        long = bytes(500_000)
        done: list[object] = []
        leader.driver.origin.add(
            Errand(done.append), 0, (), [(CREATE, "/long", long, None, 0, 0)], ERRAND_BYTES
        )
        leader.schedule()
        await nodes.until(
            lambda: all(node.driver.machine.nodes.get("/long") for node in nodes.nodes.values())
        )
        for address in nodes.addresses.values():
            for host in ("127.0.0.1", "::1"):
                assert await ask(host, address.port) == b"imok"


Settings = dict[str, Any]
NOT_OURS = "192.0.2.1"
"""Of a range for documents, which no machine has."""


def _taken(kind: socket.SocketKind, knob: str) -> Callable[[Path], tuple[Settings, str, list[socket.socket]]]:
    def make(_: Path) -> tuple[Settings, str, list[socket.socket]]:
        other = socket.socket(socket.AF_INET, kind)
        other.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            other.listen()
        taken = Address("127.0.0.1", other.getsockname()[1])
        settings: Settings = {knob: taken}
        said = rf"^{knob}: cannot listen at {taken} .*Address already in use; .*another process"
        return settings, said, [other]

    return make


def _elsewhere(_: Path) -> tuple[Settings, str, list[socket.socket]]:
    settings: Settings = {"address": Address(NOT_OURS, 2999)}
    said = rf"^address: cannot listen at {NOT_OURS}:2999 .*Cannot assign requested address; this machine has no such"
    return settings, said, []


def _nameless(_: Path) -> tuple[Settings, str, list[socket.socket]]:
    return (
        {"address": Address("nobody.invalid", 2999)},
        r"^address: cannot listen at nobody\.invalid:2999",
        [],
    )


def _open_key(directory: Path) -> tuple[Settings, str, list[socket.socket]]:
    file = directory / "cluster.key"
    create_key_file(file)
    file.chmod(0o644)
    return {"key_files": (file,), "insecure_peers": False}, "found mode 0644; run `chmod 600", []


def _no_certificate(directory: Path) -> tuple[Settings, str, list[socket.socket]]:
    return {"tls": TlsConfig(certificate=directory / "absent.pem")}, r"^tls\.certificate: .*absent\.pem", []


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(_taken(socket.SOCK_STREAM, "address"), id="port of clients is taken"),
        pytest.param(_taken(socket.SOCK_DGRAM, "address"), id="port of servers is taken"),
        pytest.param(_taken(socket.SOCK_STREAM, "admin"), id="port of the admin server is taken"),
        pytest.param(_elsewhere, id="address of another machine"),
        pytest.param(_nameless, id="name without an address"),
        pytest.param(_open_key, id="key that others can read"),
        pytest.param(_no_certificate, id="no certificate"),
    ],
)
def test_a_server_that_cannot_start_makes_no_directory_and_counts_no_boot(
    tmp_path: Path, make: Callable[[Path], tuple[Settings, str, list[socket.socket]]]
) -> None:
    settings, said, held = make(tmp_path)
    data = tmp_path / "data"
    address = Address("127.0.0.1", _free_port())
    address = settings.pop("address", address)
    config = ServerConfig(
        **{
            "id": ServerId(1),
            "data": data,
            "address": address,
            "cluster": {ServerId(1): address, ServerId(2): Address("127.0.0.1", 2)},
            "insecure_peers": True,
            **settings,
        }
    )
    try:
        with pytest.raises(ConfigError, match=said):
            run_server(config)
        assert not data.exists()
        fs = RealFileSystem()
        DataDirectory.open(fs, str(data), server=ServerId(1), entropy=os.urandom).close()
        before = sorted(path.name for path in data.iterdir())
        with pytest.raises(ConfigError, match=said):
            run_server(config)
        assert read_meta(fs, str(data)).boot == 1
        assert sorted(path.name for path in data.iterdir()) == before
    finally:
        for one in held:
            one.close()


async def test_an_alarm_that_rings_while_what_a_client_said_waits_for_a_turn_is_set_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Nodes(tmp_path, servers=1) as nodes:
        (node,) = nodes.nodes.values()
        await nodes.until(
            lambda: node.driver.role is Role.LEADER and not (node._scheduled or node.driver.wants_turn)
        )
        monkeypatch.setattr(Driver, "on_clients", lambda driver: False)
        assert node._alarm is not None
        node._alarm.cancel()
        node._on_client()
        node._on_alarm()
        await asyncio.sleep(0)
        assert node._alarm is not None


async def test_what_happens_to_a_server_that_rested_is_in_its_journal_as_soon_as_on_a_busy_one(
    tmp_path: Path,
) -> None:
    """Its chores write the journal; a process that is killed loses what they have not written."""
    async with Nodes(tmp_path, servers=1) as nodes:
        (node,) = nodes.nodes.values()
        await nodes.until(lambda: node._chores_at - now_ms() > 2 * IDLE_CHORES_MS)
        done: list[object] = []
        node.driver.origin.add(Errand(done.append), 0, (), [(CREATE, "/a", b"", None, 0, 0)], ERRAND_BYTES)
        node.schedule()
        await asyncio.sleep(0)
        assert node._chores_at - now_ms() <= IDLE_CHORES_MS


async def test_a_server_that_has_no_cluster_yet_answers_every_four_letter_word(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, servers=2)
    node = nodes.start(1)
    await nodes.until(lambda: node._servers)
    address = nodes.addresses[ServerId(1)]
    async with asyncio.timeout(20):
        for _ in range(20):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(b"ruok")
            assert await reader.read() == b"imok"
            writer.close()
            await writer.wait_closed()
    await nodes.stop(1)
