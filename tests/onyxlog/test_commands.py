"""The commands on a real server: a job that runs, status, gc; and the monitoring of a peer process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.onyxlog.peer_processes import ROOT, PeerProcess, Processes
from tests.processes.cluster import free_ports, wait_until
from tests.processes.conftest import StartCluster, start_cluster

__all__ = ["start_cluster"]  # a fixture

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

JOB = """
id = "double"
workflow = [["in", "double"], ["double", "out"]]
[[catalog]]
name = "in"
kind = "input"
max_peers = 1
plugin = { name = "sequence", options = { segments = [{ n = 1 }, { n = 2 }, { n = 3 }] } }
[[catalog]]
name = "double"
function = "arithmetic:double"
[[catalog]]
name = "out"
kind = "output"
max_peers = 1
plugin = { name = "lines", options = { path = "out" } }
"""


INSTALLED = (sys.executable, "-P", "-c", "from onyxlog.main import main; main(prog_name='onyxlog')")
"""As an installed command is run: the present directory is not in Python's path."""


def environment(hosts: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "ONYXLOG_CONNECT": hosts}


class Console:
    """`onyxlog` as people call it."""

    def __init__(self, directory: Path, hosts: str) -> None:
        self._directory = directory
        self._hosts = hosts

    def __call__(self, *arguments: str, code: int = 0) -> str:
        found = subprocess.run(
            [*INSTALLED, *arguments],
            env=environment(self._hosts),
            cwd=self._directory,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert found.returncode == code, found.stdout + found.stderr
        return found.stdout + found.stderr

    def watched(self, *arguments: str, lines: int) -> list[Any]:
        """The first looks of a command with --watch, which Ctrl-C then ends without an error."""
        with subprocess.Popen(
            [*INSTALLED, *arguments],
            env=environment(self._hosts),
            cwd=self._directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            assert running.stdout is not None
            found = [json.loads(running.stdout.readline()) for _ in range(lines)]
            running.send_signal(signal.SIGINT)
            _, told = running.communicate(timeout=60)
            assert running.returncode == 0, told
            assert not told
        return found

    def succeeds(self, *arguments: str) -> bool:
        try:
            self(*arguments)
        except AssertionError:
            return False
        return True


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_a_job_from_a_file_runs_on_peers_and_everything_can_be_seen(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(servers=1)
    (tmp_path / "arithmetic.py").write_text("def double(segment):\n    return {'n': 2 * segment['n']}\n")
    (tmp_path / "job.toml").write_text(JOB)
    onyxlog = Console(tmp_path, cluster.hosts())
    assert "no peer was ever started" in onyxlog("status", code=1)
    (port,) = free_ports(1)
    with Processes(
        tmp_path, cluster.hosts(), ["--peers", "2", "--digest-after-quiet", "0.2", "--report-every", "0.2"]
    ) as processes:
        first: PeerProcess = processes.start("first", ["--metrics", f"127.0.0.1:{port}"])
        processes.start("second")
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: get(f"{url}/readyz")[0] == 200 or None, "the first peer to join")

        def both() -> bool:
            return len(json.loads(onyxlog("status", "--json"))["groups"]) == 2

        wait_until(both, "both peers to join")
        heard = [group["heard_s_ago"] for group in json.loads(onyxlog("status", "--json"))["groups"]]
        assert all(isinstance(seconds, float) and seconds >= 0 for seconds in heard), heard
        needy = JOB.replace('id = "double"', 'id = "large"').replace(':double"', ':double"\nmin_peers = 9')
        (tmp_path / "large.toml").write_text(needy)
        waits = "needs 11 virtual peers, 4 are there"
        assert f"large: waiting: {waits}" in onyxlog("submit-job", "large.toml")
        assert waits in onyxlog("status")
        (large,) = json.loads(onyxlog("status", "--json"))["jobs"]
        assert (large["state"], large["reason"]) == ("waiting", waits)
        assert abs(large["since_ms"] - time.time() * 1000) < 120_000

        def reported() -> bool:
            groups = json.loads(onyxlog("status", "--output", "json"))["groups"]
            return all(group["reported_ms"] is not None and group["behind"] == 0 for group in groups)

        wait_until(reported, "both to report of themselves")
        assert onyxlog.watched("status", "--watch", "--interval", "0.1", "--json", lines=2)
        assert f"it waits: {waits}" in onyxlog("await-job", "large", "--timeout", "0.1", code=1)
        onyxlog("kill-job", "large")
        assert "double: completed" in onyxlog("submit-job", "job.toml", "--wait", "--timeout", "100")
        written = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
        assert sorted(json.loads(line)["n"] for line in written.splitlines()) == [2, 4, 6]
        assert "is over" in onyxlog("submit-job", "job.toml", code=1)
        assert "knows no such job; known are double, large" in onyxlog("kill-job", "nothing", code=1)
        assert "double: completed" in onyxlog("await-job", "double")

        def agreed() -> bool:
            status = json.loads(onyxlog("status", "--json"))
            assert status["agreed"]
            return all(group["agreement"] == "same" for group in status["groups"])

        wait_until(agreed, "both to publish a digest of what status has played")
        assert "2 jobs forgotten" in onyxlog("gc")
        assert json.loads(onyxlog("status", "--json"))["jobs"] == []
        shown = onyxlog("status")
        assert "2 groups" in shown
        assert "REPLICAS DIFFER" not in shown

        metrics = get(f"{url}/metrics")[1]
        assert 'onyxlog_zookeeper_read_log_entry_total{kind="submit-job"} 2.0' in metrics
        assert 'onyxlog_zookeeper_write_log_entry_total{kind="join-direct"} 1.0' in metrics
        assert "onyxlog_replica_groups 2.0" in metrics
        (group,) = json.loads(get(f"{url}/status.json")[1])["groups"]
        assert first.owns(group["group"])
        assert group["joined"]

        assert first.stop() == 0
        processes.peers.pop("first")
        wait_until(
            lambda: len(json.loads(onyxlog("status", "--json"))["groups"]) == 1 or None,
            "the first to have left, at once",
            deadline_s=9,  # its session would take 10 s to expire
        )


def test_peers_with_other_parameters_are_refused_and_say_which(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(servers=1)
    with Processes(tmp_path, cluster.hosts(), ["--idle"]) as processes:
        ring = processes.start("ring", ["--join", "ring"])
        wait_until(lambda: "group joined" in ring.log_text() or None, "the first peer to join")
        other = processes.start("other", ["--join", "direct"])
        assert other.process.wait(60) == 2
        assert "the log was begun with join ring, not direct" in other.log_text()
