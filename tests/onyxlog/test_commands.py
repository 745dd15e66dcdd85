"""The commands on a real server: a job that runs, status, gc; and the monitoring of a peer process."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

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
    with Processes(tmp_path, cluster.hosts(), ["--peers", "2", "--digest-after-quiet", "0.2"]) as processes:
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


def test_the_first_steps_of_the_documentation_work_as_they_are_written(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / "ONYXLOG.md").read_text(encoding="utf-8")
    steps = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[0].splitlines()
    prepare, peer, submit, watch, gc = (shlex.split(step, comments=True) for step in steps)
    (tmp_path / "job.toml").write_text(re.findall(r"```toml\n(# job.toml.*?)```", text, re.DOTALL)[0])
    (tmp_path / "words.py").write_text(re.findall(r"```python\n(# words.py.*?)```", text, re.DOTALL)[0])
    assert (prepare[0], prepare[2]) == ("echo", ">")
    (tmp_path / prepare[3]).write_text(prepare[1] + "\n")
    assert {command[0] for command in (peer, submit, watch, gc)} == {"onyxlog"}

    cluster = start_cluster(servers=1)
    onyxlog = Console(tmp_path, cluster.hosts())
    running = subprocess.Popen([*INSTALLED, *peer[1:]], env=environment(cluster.hosts()), cwd=tmp_path)
    try:
        wait_until(lambda: onyxlog.succeeds("status") or None, "the peer to begin the log")
        assert "words-1: completed" in onyxlog(*submit[1:])
        counted = [
            json.loads(line)
            for file in (tmp_path / "counts").iterdir()
            for line in file.read_text().splitlines()
        ]
        assert {row["group"]: row["result"] for row in counted} == {"to": 2, "be": 2, "or": 1, "not": 1}
        watching = subprocess.Popen(
            [*INSTALLED, *watch[1:]], env=environment(cluster.hosts()), stdout=subprocess.PIPE, text=True
        )
        try:
            assert watching.stdout is not None
            shown = [watching.stdout.readline() for _ in range(12)]
        finally:
            watching.kill()
            watching.communicate()
        assert sum("1 groups   4 virtual peers" in line for line in shown) >= 2, shown
        assert "1 jobs forgotten" in onyxlog(*gc[1:])
    finally:
        running.terminate()
        assert running.wait(30) == 0


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
