"""The supervisor of `zraft dev`, over fake server processes: start, report, stop."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ipv6 import has_ipv6
from zraft.cli.dev import ADMIN_PORT_OFFSET, CONSOLE_TOKEN, HOST, restart_pause, run_dev, serve_command
from zraft_core.address import Address
from zraft_core.errors import ConfigError

pytestmark = pytest.mark.processes
needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")

DRIVER = Path(__file__).with_name("drive_dev.py")
LINE = re.compile(r"server (\d+) address=(\S+) pid=(\d+) data=(\S+) admin=(\S+)\n")


class Dev:
    """A running supervisor and what it has printed."""

    def __init__(self, port: int, data: Path, behaviours: tuple[str, ...]) -> None:
        self.data = data
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(port), str(data), *behaviours],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def read_until(self, pattern: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if re.search(pattern, line):
                return line
        pytest.fail(f"ended without {pattern!r}; printed:\n{''.join(self.lines)}")

    def finish(self) -> int:
        assert self.process.stdout is not None
        self.lines += self.process.stdout
        return self.process.wait()

    def pids(self) -> dict[int, int]:
        return {int(m[1]): int(m[3]) for m in map(LINE.fullmatch, self.lines) if m}


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Callable[..., Dev]]:
    started: list[Dev] = []

    def start(*behaviours: str, port: int | None = None) -> Dev:
        started.append(Dev(port or free_ports(len(behaviours)), tmp_path, behaviours))
        return started[-1]

    yield start
    for each in started:
        # Only SIGTERM lets it stop its own children, whatever the test did.
        each.process.terminate()
        each.process.wait()
        assert each.process.stdout is not None
        each.process.stdout.close()


def free_ports(count: int) -> int:
    """The first of `count` ports in a row that nobody uses now."""
    for port in range(21_000 + os.getpid() * 37 % 9_000, 32_000, count):
        probes = [socket.socket() for _ in range(count)]
        try:
            for offset, probe in enumerate(probes):
                probe.bind((HOST, port + offset))
        except OSError:
            continue
        else:
            return port
        finally:
            for probe in probes:
                probe.close()
    raise AssertionError("no free ports")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_line_per_server_and_ready_once_exactly_one_leads(dev: Callable[..., Dev]) -> None:
    running = dev("serve", "serve", "serve")
    running.read_until(r"^ready$")
    *lines, link, _ = running.lines
    servers = [LINE.fullmatch(line) for line in lines]
    assert len(servers) == 3
    assert link.startswith(f"console, signed in: {servers[0] and servers[0][5]}#token=")
    for number, found in enumerate(servers, start=1):
        assert found is not None
        assert int(found[1]) == number
        assert is_running(int(found[3]))
        assert found[4] == str(running.data / f"server-{number}")
        port = int(found[2].rpartition(":")[2])
        assert found[5] == f"http://{HOST}:{port + ADMIN_PORT_OFFSET}/"


def test_the_token_of_the_console_is_another_at_each_start_and_no_argument(dev: Callable[..., Dev]) -> None:
    tokens = set()
    for _ in range(2):
        running = dev("serve", "serve")
        running.read_until(r"^ready$")
        token = running.lines[-2].rstrip().partition("#token=")[2]
        for pid in running.pids().values():
            assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
            assert f"{CONSOLE_TOKEN}={token}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        tokens.add(token)
    assert len(tokens) == 2
    assert all(len(token) >= 16 for token in tokens)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_every_server_and_the_exit_code_is_zero(
    dev: Callable[..., Dev], number: signal.Signals
) -> None:
    running = dev("serve", "serve")
    running.read_until(r"^ready$")
    pids = running.pids()
    assert len(pids) == 2
    running.process.send_signal(number)
    assert running.finish() == 0
    assert not any(map(is_running, pids.values()))


def test_a_single_server_is_ready_when_it_stands_alone(dev: Callable[..., Dev]) -> None:
    dev("standalone").read_until(r"^ready$")


def test_a_server_that_dies_at_start_is_shown_with_its_last_words_and_stops_the_others(
    dev: Callable[..., Dev],
) -> None:
    running = dev("serve", "die")
    assert running.finish() == 9
    printed = "".join(running.lines)
    assert re.search(r"server 2 \(pid \d+\) exited with code 3 before it served", printed)
    assert "    server 2: the disk is on fire" in printed
    assert "ready\n" not in running.lines
    assert len(running.pids()) == 2
    assert not any(map(is_running, running.pids().values()))


def test_a_death_is_reported_with_the_command_to_start_it_again_and_the_others_live_on(
    dev: Callable[..., Dev],
) -> None:
    running = dev("serve", "serve")
    running.read_until(r"^ready$")
    pids = running.pids()
    os.kill(pids[2], signal.SIGKILL)
    assert f"server 2 (pid {pids[2]}) was ended by SIGKILL" in running.read_until("was ended by")
    running.read_until("not restarted")
    assert "fake_server.py 2 127.0.0.1:" in running.read_until("fake_server")
    assert running.process.poll() is None
    assert is_running(pids[1])


def test_with_restart_a_server_that_dies_is_started_again_after_a_pause_that_grows(
    dev: Callable[..., Dev],
) -> None:
    running = dev("standalone", "restart")
    running.read_until("^ready$")
    for pause in ("0.1", "0.2"):
        pid = running.pids()[1]
        os.kill(pid, signal.SIGKILL)
        running.read_until(rf"^server 1 is started again in {pause} s$")
        running.read_until(r"^server 1 address=")
        assert running.pids()[1] != pid
    running.process.send_signal(signal.SIGINT)
    assert running.finish() == 0
    assert not any("not restarted" in line for line in running.lines)


def test_the_pause_before_a_restart_doubles_up_to_a_minute_and_begins_anew_after_a_steady_run() -> None:
    pauses = []
    before: float | None = None
    for _ in range(8):
        before = restart_pause(before, 3.0)
        pauses.append(before)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert restart_pause(32.0, 60.0) == 1


def test_the_exit_code_is_one_when_no_server_is_left(dev: Callable[..., Dev]) -> None:
    running = dev("standalone")
    running.read_until(r"^ready$")
    os.kill(running.pids()[1], signal.SIGKILL)
    assert running.finish() == 1
    assert running.lines[-1] == "no server is left\n"


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace_period(dev: Callable[..., Dev]) -> None:
    running = dev("deaf")
    running.read_until("^ready$")
    pid = running.pids()[1]
    running.process.terminate()
    assert running.finish() == 0
    assert running.lines[-1] == "server 1 did not stop within 0.5 s and was killed\n"
    assert not is_running(pid)


def test_the_log_of_the_start_before_is_kept_and_no_older_one(dev: Callable[..., Dev]) -> None:
    for _ in range(3):
        assert dev("die").finish() == 9
    data = dev("die").data
    assert {path.name for path in data.glob("*.log*")} >= {"server-1.log", "server-1.log.1"}
    assert not list(data.glob("*.log.2"))


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@pytest.mark.parametrize("host", [HOST, pytest.param("::1", marks=needs_ipv6)])
def test_a_busy_port_is_named_with_the_option_to_change(
    tmp_path: Path, kind: socket.SocketKind, host: str
) -> None:
    port = free_ports(2)
    busy = Address(host, port + 1)
    with socket.socket(socket.AF_INET6 if host == "::1" else socket.AF_INET, kind) as other:
        other.bind((host, port + 1))
        if kind == socket.SOCK_STREAM:
            other.listen()
        with pytest.raises(ConfigError, match=f"^--port: cannot listen on {re.escape(str(busy))} "):
            run_dev(servers=2, port=port, data=tmp_path, host=host)


def test_ports_beyond_the_last_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--port: found 65534, expected at most 65533 for 3 servers"):
        run_dev(servers=3, port=65_534, data=tmp_path)


def test_a_directory_of_a_cluster_of_another_size_is_refused(tmp_path: Path) -> None:
    """D-1: a server that finds its roster changed would wait for ever; it is better told here."""
    (tmp_path / "server-1").mkdir()
    with pytest.raises(ConfigError, match=r"^--servers: found 3, but .* holds a cluster of 1 \(server-1\)"):
        run_dev(servers=3, port=free_ports(3), data=tmp_path)


def test_a_server_is_started_by_the_command_its_user_would_type() -> None:
    command = serve_command(
        2,
        Address(HOST, 2182),
        Address(HOST, 2282),
        Path("/data/server-2"),
        "1=127.0.0.1:2181,2=127.0.0.1:2182",
        Path("/data/cluster.key"),
        ["raft.heartbeat_ticks=9"],
    )
    assert command[:4] == [sys.executable, "-m", "zraft", "serve"]
    assert " ".join(command[4:]) == (
        "--id 2 --data /data/server-2 --address 127.0.0.1:2182 --cluster 1=127.0.0.1:2181,2=127.0.0.1:2182 "
        "--admin 127.0.0.1:2282 --key /data/cluster.key --set raft.heartbeat_ticks=9"
    )


def test_an_admin_port_that_is_taken_is_told_and_done_without(dev: Callable[..., Dev]) -> None:
    port = free_ports(1)
    with socket.create_server((HOST, port + ADMIN_PORT_OFFSET)):
        started = dev("standalone", port=port)
        started.read_until(r"^ready$")
    assert started.lines[0] == (
        f"server 1 goes without an admin server, {HOST}:{port + ADMIN_PORT_OFFSET} is taken; "
        "choose with --admin-port\n"
    )
    match = LINE.fullmatch(started.lines[1])
    assert match is not None
    assert match[5] == "-"


def test_an_admin_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        admin_port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^--admin-port: cannot listen on {HOST}:{admin_port}: "):
            run_dev(servers=1, port=free_ports(1), data=tmp_path, admin_port=admin_port)


@pytest.mark.parametrize(("port", "admin_port"), [(2181, 2182), (2181, 65_534), (2181, 2179)])
def test_admin_ports_that_cannot_be_are_an_error(tmp_path: Path, port: int, admin_port: int) -> None:
    with pytest.raises(ConfigError, match=r"^--admin-port: "):
        run_dev(servers=3, port=port, data=tmp_path, admin_port=admin_port)
