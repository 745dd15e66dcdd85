"""Unmodified clients in Java, C and JavaScript, and Curator's recipes, against three servers of ours.

Each program prints what held; the test gives it the servers' addresses and kills the server that it asks to be killed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.compat.install import MissingError, java_jars, node_modules, program
from tests.processes.cluster import Cluster

pytestmark = [pytest.mark.compat, pytest.mark.processes, pytest.mark.timeout(600)]

PROGRAMS: Final = Path(__file__).with_name("clients")
HEADER: Final = Path("/usr/include/zookeeper/zookeeper.h")
PROGRAM_S: Final = 240
BASIC: Final = ("watch", "transaction", "access", "lock", "election", "cache", "reconnect", "close")
JARS: Final = (
    *("zookeeper-[0-9]*", "zookeeper-jute-*", "curator-*", "guava-*", "failureaccess-*", "slf4j-api-*"),
    *("netty-*", "metrics-core-4*", "commons-io-*"),
)


def or_skip(make: Callable[[], str | Path]) -> str:
    """What `make` gives; the test is skipped with its reason if the client cannot be had here."""
    try:
        return str(make())
    except MissingError as error:
        pytest.skip(str(error))


def drive(command: Sequence[str], cluster: Cluster, env: dict[str, str]) -> list[str]:
    """Run a program to its end, doing what it asks; the claims that held."""
    held: list[str] = []
    with subprocess.Popen(
        [*command, cluster.hosts()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | env,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in process.stdout:
                match line.split(maxsplit=1):
                    case ["ok", claim]:
                        held.append(claim.strip())
                    case ["kill", port]:
                        (number,) = [n for n, s in cluster.servers.items() if s.address.port == int(port)]
                        cluster.kill(number)
                        process.stdin.write("killed\n")
                        process.stdin.flush()
                    case ["done"]:
                        break
            code = process.wait(PROGRAM_S)
        finally:
            process.kill()
        assert code == 0, (
            f"{command[0]} ended with code {code} after {held}:\n{process.stderr.read()[-6000:]}"
        )
    return held


def test_java_client_and_curator_recipes_work_and_move_to_another_server(
    cluster: Cluster, tmp_path: Path
) -> None:
    javac = or_skip(lambda: program("javac", "default-jdk-headless"))
    jars = Path(or_skip(java_jars))
    path = ":".join(str(jar) for pattern in JARS for jar in jars.glob(f"{pattern}.jar"))
    subprocess.run([javac, "-d", tmp_path, "-cp", path, PROGRAMS / "CuratorSmoke.java"], check=True)
    held = drive(["java", "-Xmx256m", "-cp", f"{tmp_path}:{path}", "CuratorSmoke"], cluster, {})
    assert sorted(held) == sorted((*BASIC, "persistent watch", "counter and barrier"))


def test_c_client_works_and_moves_to_another_server(cluster: Cluster, tmp_path: Path) -> None:
    gcc = or_skip(lambda: program("gcc", "gcc"))
    if not HEADER.exists():
        pytest.skip(f"no {HEADER}: apt-get install libzookeeper-mt-dev")
    built = tmp_path / "smoke"
    subprocess.run(
        [
            gcc,
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            built,
            PROGRAMS / "smoke.c",
            "-lzookeeper_mt",
            "-lpthread",
        ],
        check=True,
    )
    assert sorted(drive([str(built)], cluster, {})) == sorted(BASIC)


def test_node_client_works_and_moves_to_another_server(cluster: Cluster) -> None:
    node = or_skip(lambda: program("node", "nodejs"))
    modules = or_skip(node_modules)
    held = drive([node, str(PROGRAMS / "smoke.js")], cluster, {"NODE_PATH": modules})
    assert sorted(held) == sorted(BASIC)
