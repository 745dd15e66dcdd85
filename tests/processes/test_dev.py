"""`zraft dev` as its user has it: real servers, and commands that find the key which it made."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.processes.cluster import DEADLINE_S, HOST, free_ports
from zraft.cli.main import main

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

SERVERS = 2


def _ports_in_a_row() -> int:
    """The first of so many ports that nobody uses now."""
    while True:
        (first,) = free_ports(1)
        with ExitStack() as held:
            try:
                for port in range(first, first + SERVERS):
                    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                        held.enter_context(socket.socket(socket.AF_INET, kind)).bind((HOST, port))
            except OSError:
                continue
            return first


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory, state: Path) -> Iterator[str]:
    """`zraft dev` in a directory of its own; gives its servers' addresses as --connect takes them."""
    directory = tmp_path_factory.mktemp("dev")
    port = _ports_in_a_row()
    command = [sys.executable, "-m", "zraft", "dev", "--servers", str(SERVERS), "--port", str(port)]
    with subprocess.Popen(
        [*command, "--admin-port", "0"],
        cwd=directory,
        env=os.environ | {"XDG_STATE_HOME": str(state), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            printed = []
            for line in process.stdout:
                printed.append(line)
                if line == "ready\n":
                    break
            else:
                pytest.fail("".join(printed))
            yield ",".join(f"{HOST}:{port + n}" for n in range(SERVERS))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(DEADLINE_S)
    assert not list(state.rglob("*.json")), "the note of a cluster that has ended stays"
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    "command",
    [
        "topic create orders",
        "topic list",
        "topic describe orders",
        "member list",
        "settings show",
        "snapshot save {directory}/saved.snap",
    ],
)
def test_commands_after_zraft_dev_need_no_option_for_the_key(
    dev: str, state: Path, tmp_path: Path, command: str
) -> None:
    words = command.format(directory=tmp_path).split()
    environment = {"XDG_STATE_HOME": str(state), "ZRAFT_KEY": None}
    result = CliRunner(env=environment).invoke(main, [*words, "--connect", dev])
    assert result.exit_code == 0, result.output


def test_asked_for_one_server_more_the_key_is_not_used_and_said_where_it_is(dev: str, state: Path) -> None:
    other = free_ports(1)[0]
    environment = {"XDG_STATE_HOME": str(state), "ZRAFT_KEY": None}
    result = CliRunner(env=environment).invoke(main, ["topic", "list", "--connect", f"{dev},{HOST}:{other}"])
    assert result.exit_code == 1
    assert result.output.count("zraft-data/cluster.key") == 1, result.output
