"""What every command does that connects, when nobody listens: it says so after one look at each server, and ends.

Times decide nothing here: what would wait is given an hour, and attempts are counted.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from onyxlog.access import NOBODY
from onyxlog.command_options import LogService
from onyxlog.errors import OnyxlogError
from onyxlog.main import main as onyxlog
from onyxlog.peer.log.opening import Service
from zraft.cli.main import main as zraft
from zraft.program.reaching import nobody_listens
from zraft_bench.main import main as zraft_bench
from zraft_core.address import Address

JOB = """\
id = "j"
workflow = [["in", "out"]]
catalog = [
    {name = "in", kind = "input", plugin = {name = "sequence"}},
    {name = "out", kind = "output", plugin = {name = "collect"}},
]
"""

COMMANDS = [
    (zraft, "status --connect {servers}"),
    (zraft, "shell --timeout 3600 --connect {servers} ls /"),
    (zraft, "shell --timeout 3600 -server {servers}"),
    (zraft, "member list --timeout 3600 --connect {servers}"),
    (zraft, "topic list --timeout 3600 --connect {servers}"),
    (zraft, "topic create t --timeout 3600 --connect {servers}"),
    (zraft, "settings show --timeout 3600 --connect {servers}"),
    (zraft, "snapshot save {directory}/saved.snap --timeout 3600 --connect {servers}"),
    (
        zraft,
        "import --from {servers} --timeout 3600 --data {directory}/data --id 1 --cluster 1=127.0.0.1:2999",
    ),
    *(
        (onyxlog, f"{command} --connect {{servers}} --service {service}")
        for service in ("zraft", "zookeeper")
        for command in (
            "status",
            "status --watch",
            "gc",
            "submit-job {directory}/job.toml --no-importing",
            "await-job j",
            "kill-job j",
            "clear-job j",
            "peer --join ring",
            "peer --join ring --groups 50",
        )
    ),
    (zraft_bench, "local --connect {servers}"),
    (zraft_bench, "multicast --connect {servers}"),
    (zraft_bench, "compare --system zraft --zookeeper {servers}"),
    (zraft_bench, "head --connect {servers}"),
]


class Attempts:
    """How often each address was dialed, by whichever way of dialing."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counted: Counter[tuple[str, int]] = Counter()
        dial, dial_async = socket.create_connection, asyncio.open_connection

        def counting(address: tuple[str, int], *arguments: Any, **named: Any) -> socket.socket:
            self.counted[address] += 1
            return dial(address, *arguments, **named)

        async def counting_async(host: str, port: int, **named: Any) -> Any:
            self.counted[host, port] += 1
            return await dial_async(host, port, **named)

        patch.setattr(socket, "create_connection", counting)
        patch.setattr(asyncio, "open_connection", counting_async)


@pytest.fixture
def refusing() -> Iterator[list[tuple[str, int]]]:
    """Two addresses that refuse: bound, so that nobody else takes them, and without a listener."""
    with socket.socket() as one, socket.socket() as two:
        for sock in (one, two):
            sock.bind(("127.0.0.1", 0))
        yield [one.getsockname(), two.getsockname()]


def run(main: click.Command, line: str, servers: list[tuple[str, int]], directory: Path) -> Result:
    (directory / "job.toml").write_text(JOB)
    text = ",".join(f"{host}:{port}" for host, port in servers)
    words = line.format(servers=text, directory=directory).split()
    return CliRunner().invoke(main, words, input="ls /\n")


@pytest.mark.parametrize(
    ("main", "line"), COMMANDS, ids=lambda one: one if isinstance(one, str) else one.name
)
def test_a_refused_connection_is_said_at_once_and_not_retried(
    main: click.Command,
    line: str,
    refusing: list[tuple[str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = Attempts(monkeypatch)
    monkeypatch.chdir(tmp_path)
    result = run(main, line, refusing, tmp_path)
    assert result.exit_code == 1, result.output
    assert "refused" in result.output
    for host, port in refusing:
        assert f"{host}:{port}" in result.output
    assert attempts.counted == dict.fromkeys(refusing, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.toml"], (
        "something was begun before the look"
    )


@pytest.mark.parametrize("service", list(Service))
def test_asked_to_wait_a_command_of_onyxlog_begins_without_a_look(
    refusing: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, service: Service
) -> None:
    attempts = Attempts(monkeypatch)
    hosts = ",".join(f"{host}:{port}" for host, port in refusing)
    assert callable(LogService(hosts, "tests", service, NOBODY, patient=True).opener())
    assert not attempts.counted
    with pytest.raises(
        OnyxlogError, match="refused; --connect names the servers, --wait-for-connection waits"
    ):
        LogService(hosts, "tests", service, NOBODY).opener()


def test_one_server_that_listens_is_enough_and_no_further_one_is_dialed(
    refusing: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = Attempts(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = listening.getsockname()
        assert nobody_listens([Address(*one) for one in (refusing[0], there, refusing[1])]) is None
    assert attempts.counted == {refusing[0]: 1, there: 1}


def test_an_address_that_does_not_answer_is_left_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", silent)
    assert nobody_listens([Address("192.0.2.1", 1)]) is None


def test_a_name_without_an_address_is_told() -> None:
    told = nobody_listens([Address("nobody.invalid", 1)])
    assert told is not None
    assert told.startswith("nobody.invalid:1: ")
