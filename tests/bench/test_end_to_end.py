"""Real servers, real load: one run of each kind, as short as it can be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zraft_bench.processes import HOST, free_ports
from zraft_bench.result_files import load_run
from zraft_bench.results import Run

pytestmark = pytest.mark.processes

REPOSITORY = Path(__file__).parents[2]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("ZRAFT_", "ZOO_"))},
    "PYTHONPATH": os.pathsep.join(str(REPOSITORY / part) for part in ("", "client", "bench")),
}
LIMIT_S = 280.0
"""For a machine that others use, too; on an idle one each of these takes less than fifteen seconds."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "zraft_bench", *arguments]


def only_run(directory: Path) -> Run:
    (path,) = directory.glob("result_*.json")
    return load_run(path)


@pytest.mark.timeout(300)
def test_a_local_run_writes_what_it_saw(tmp_path: Path) -> None:
    """Z-25: servers, clients, entries and size given; every request acknowledged and counted once."""
    done = subprocess.run(
        command(
            *("local", "-s", "3", "-c", "8", "-e", "200", "-d", "100", "--seconds", "0", "--warm-up", "0.1"),
            *("--out", str(tmp_path), "--comment", "a test"),
        ),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(tmp_path)
    (result,) = run.tests
    assert run.comment == "a test"
    assert (result.state, result.acknowledged, result.rounds) == ("ok", 200, result.sharing.processes)
    assert result.sharing.workers == 8
    assert result.servers_us is not None
    assert "8 workers in" in done.stdout


@pytest.mark.timeout(300)
def test_head_server_and_client_need_only_the_heads_address(tmp_path: Path) -> None:
    """Z-26: one head, one more server, two client machines, each a group of processes of its own."""
    head_at = f"{HOST}:{free_ports(1)[0]}"
    workload = ("-c", "4", "-e", "80", "--seconds", "0.5", "--warm-up", "0.1")
    arguments = (
        ("head", "--address", head_at, "-s", "2", "--machines", "2", *workload, "--out", str(tmp_path)),
        ("server", "--head", head_at),
        ("client", "--head", head_at),
        ("client", "--head", head_at),
    )
    processes = [
        subprocess.Popen(
            command(*one),
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        for one in arguments
    ]
    said = []
    try:
        for process in processes:
            said.append(process.communicate(timeout=LIMIT_S)[0])
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
                process.communicate()
    assert [process.returncode for process in processes] == [0, 0, 0, 0], "\n".join(said)
    run = only_run(tmp_path)
    (result,) = run.tests
    assert result.state == "ok"
    assert result.sharing.machines == 2
    assert result.sharing.workers == 8
    assert result.acknowledged >= 80
    assert result.acknowledged % 40 == 0  # whole rounds of 40 for each machine
    assert result.skew is not None
    assert [machine.name.rpartition(" (")[2] for machine in run.machines[1:]] == ["client 1)", "client 2)"]
    # The comment of a test has its place in the file, whether somebody made one or not.
    (path,) = tmp_path.glob("result_*.json")
    assert json.loads(path.read_text())["tests"][0]["comment"] == ""
    assert all("the benchmark is over: finished" in text for text in said[1:])


@pytest.mark.timeout(300)
def test_an_election_is_measured_from_both_beginnings(tmp_path: Path) -> None:
    """Z-31: the servers' own log lines say when they stood and when one led."""
    done = subprocess.run(
        command("election", "-s", "3", "--trials", "1", "--out", str(tmp_path)),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (trial,) = only_run(tmp_path).trials
    assert trial.winner not in (0, trial.killed)
    assert trial.stood_ms is not None
    assert trial.led_ms is not None
    assert 0 < trial.stood_ms <= trial.led_ms
    assert trial.campaigns >= 1


@pytest.mark.timeout(600)
def test_multicast_is_measured_judged_and_genuine(tmp_path: Path) -> None:
    """A-16, A-18 and 4.9 on real servers: deliveries, accounting, proposals; nobody else is touched."""
    done = subprocess.run(
        command(
            *("multicast", "-s", "3", "--part", "thesis", "--part", "genuine", "--share", "0.5"),
            *("--messages", "100", "--messages-max", "200", "--seconds", "0", "--window", "32"),
            *("--out", str(tmp_path)),
        ),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = only_run(tmp_path).multicast
    assert found is not None
    (cell,) = found.cells
    assert (cell.reason, cell.messages) == ("", 200)
    assert cell.delivered == cell.messages + 4 * cell.multicasts
    assert cell.thesis_records == 3 * cell.messages + 32 * cell.multicasts
    assert cell.pairs == 10
    assert cell.counts.commands is not None
    # To five: four proposals of others at each, and a START where none of these came first with the payload.
    assert cell.counts.commands >= cell.messages - cell.multicasts + 20 * cell.multicasts
    assert [(one.fanout, one.per_message, one.commits) for one in found.genuine] == [
        (1, 0, 1),
        (2, 2, 2),
        (5, 20, 2),
    ]
    for one in found.genuine:
        assert [group.addressed for group in one.groups] == [n < one.fanout for n in range(10)]
        assert all(group.addressed or group.starts + group.remotes == 0 for group in one.groups)


def children_of(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


@pytest.mark.timeout(300)
def test_a_benchmark_that_is_terminated_leaves_no_servers(tmp_path: Path) -> None:
    """Also where SIGINT is ignored, as in the background of a shell."""
    benchmark = subprocess.Popen(
        [
            "env",
            "--ignore-signal=INT",
            *command("local", "-s", "3", "--seconds", "200", "--out", str(tmp_path)),
        ],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 60
        while len(children := children_of(benchmark.pid)) < 4:  # three servers and the load
            assert time.monotonic() < end, children
            time.sleep(0.05)
    finally:
        benchmark.terminate()
        benchmark.wait(60)
    # The load process ends when its input does; with no one to cancel it, it once went on until its requests gave up.
    end = time.monotonic() + 20
    while left := [child for child in children if Path(f"/proc/{child}").exists()]:
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.05)
