"""A Spark cluster of processes, on loopback: equal results, with our packages shipped to its workers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.onyxlog.audits.diverged import diverged

pyspark = pytest.importorskip("pyspark", reason="needs the extra `audits`")

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1_800)]

REPOSITORY = Path(__file__).parents[3]
WITHIN_S = 300.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
    }


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A master and two workers of one core each."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [
        [spark_class, "org.apache.spark.deploy.master.Master", *common, "--port", str(port)],
        *(
            [
                *(spark_class, "org.apache.spark.deploy.worker.Worker", *common, "--cores", "1"),
                *("--memory", "1g", "--work-dir", str(tmp_path / f"worker-{number}"), url),
            ]
            for number in (1, 2)
        ),
    ]
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path / "cluster.log").open("wb"))
        for command in commands:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=tmp_path, env=environment(), start_new_session=True
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        give_up_at = time.monotonic() + WITHIN_S
        while (tmp_path / "cluster.log").read_bytes().count(b"Registering worker") < 2:
            assert time.monotonic() < give_up_at, (tmp_path / "cluster.log").read_text()
            time.sleep(0.2)
        yield url


def made_of(master: str, directory: Path) -> dict[str, Any]:
    said = subprocess.run(
        [sys.executable, "-m", "tests.onyxlog.audits.cluster_read", master, str(directory)],
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def test_two_workers_make_of_logs_what_one_process_does(master: str, generated: Path) -> None:
    there, here = made_of(master, generated), made_of("local[2]", generated)
    assert "zraft_audits.zip" in there.pop("shipped")[0]
    here.pop("shipped")
    assert there == here
    assert here["entries"][0] > 400


def audited(master: str, directory: Path, out: Path) -> tuple[int, dict[str, Any]]:
    """The exit code of `onyxlog audit`, and what it found, without what differs from run to run."""
    command = [sys.executable, "-m", "onyxlog", "audit", str(directory), "--master", master]
    said = subprocess.run(
        [*command, "--memory", "512m", "--out", str(out)],
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode in (0, 1), said.stderr
    found: dict[str, Any] = json.loads((out / "audit.json").read_text())
    for name in ("began", "seconds"):
        del found[name]
    for one in [*found["read"], *(check for rule in found["rules"] for check in rule["checks"])]:
        del one["seconds"]
    return said.returncode, found


@pytest.mark.parametrize("index", [None, 40], ids=["sound", "diverged"])
def test_an_audit_on_two_workers_finds_what_one_process_does(
    master: str, generated: Path, tmp_path: Path, index: int | None
) -> None:
    path = generated
    if index is not None:
        path = tmp_path / "diverged"
        diverged(generated, path, {index})
    there, here = (audited(one, path, tmp_path / one[:5]) for one in (master, "local[2]"))
    assert there == here
    assert here[0] == (index is not None)
    assert {one["rule"] for one in here[1]["violations"]} >= ({"S2", "S4"} if index is not None else set())
