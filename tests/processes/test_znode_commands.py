"""The verbs of `zraft` for znodes as people and scripts use them, against a real server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from select import select
from typing import Any

import pytest
from click.testing import CliRunner

from tests.processes.cluster import Cluster, wait_until
from zraft.cli.main import main

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server for this module: each test has znodes of its own."""
    with Cluster(tmp_path_factory.mktemp("znodes"), servers=1) as cluster:
        cluster.start_all()
        yield cluster


def command(cluster: Cluster, name: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "zraft", name, "--connect", str(cluster.servers[1].address), *words]


def run(cluster: Cluster, name: str, *words: str, data: bytes = b"") -> tuple[int, bytes, str]:
    """Exit code, output, and what it said on standard error; in this process, which saves its start."""
    arguments = [name, "--connect", str(cluster.servers[1].address), *words]
    done = CliRunner().invoke(main, arguments, input=data)
    return done.exit_code, done.stdout_bytes, done.stderr


def locked(cluster: Cluster, *words: str) -> tuple[int, bytes, str]:
    """The same of `zraft lock`, which takes over signals, in a process of its own."""
    done = subprocess.run(command(cluster, "lock", *words), capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


def test_put_creates_then_sets_and_get_prints_the_very_bytes(running: Cluster) -> None:
    raw = bytes(range(256))
    assert run(running, "put", "/app/raw", data=raw)[0::2] == (
        1,
        "Error: /app: there is no such znode to create /app/raw in; --parents makes it\n",
    )
    assert run(running, "put", "/app/raw", "-", "--parents", data=raw)[:2] == (
        0,
        b"created /app/raw (version 0)\n",
    )
    assert run(running, "get", "/app/raw")[:2] == (0, raw)
    assert run(running, "put", "/app/raw", "text")[:2] == (0, b"set /app/raw (version 1)\n")
    code, printed, _ = run(running, "get", "/app/raw", "--output", "json")
    found = json.loads(printed)
    assert (code, found["data"], found["version"], found["dataLength"]) == (0, "text", 1, 4)
    code, _, said = run(running, "put", "/app/raw", "late", "--version", "0")
    assert (code, said) == (1, "Error: /app/raw: expected version 0, it is at 1; nothing was changed\n")
    code, _, said = run(running, "put", "/app/raw", "mine", "--create")
    assert (code, "exists" in said) == (1, True)
    code, printed, _ = run(running, "put", "/app/task-", "job", "--sequential", "-o", "json")
    assert json.loads(printed)["path"].startswith("/app/task-00000")


def test_ls_lists_children_or_all_below_and_rm_deletes_what_it_says(running: Cluster) -> None:
    for path in ("/tree/b/2", "/tree/b/1/deep", "/tree/a"):
        assert run(running, "put", path, "x", "-p")[0] == 0
    assert run(running, "ls", "/tree")[:2] == (0, b"a\nb\n")
    listed = run(running, "ls", "-R", "/tree")[1].decode().split()
    assert listed == ["/tree/a", "/tree/b", "/tree/b/1", "/tree/b/1/deep", "/tree/b/2"]
    rows = [json.loads(line) for line in run(running, "ls", "/tree", "-o", "json")[1].splitlines()]
    assert [(row["path"], row["numChildren"]) for row in rows] == [("/tree/a", 0), ("/tree/b", 2)]
    assert b"2 znodes in /tree\n" in run(running, "ls", "-l", "/tree")[1]
    code, _, said = run(running, "rm", "/tree")
    assert (code, "--recursive deletes" in said) == (1, True)
    assert run(running, "rm", "-r", "/tree")[:2] == (0, b"deleted /tree and 5 below it\n")
    assert run(running, "rm", "/tree")[0] == 1
    assert run(running, "rm", "-f", "/tree")[0] == 0
    assert run(running, "ls", "/tree")[0] == 1


def test_a_wrong_path_is_refused_before_anybody_is_asked(running: Cluster) -> None:
    code, _, said = run(running, "get", "app")
    assert (code, "must start with /" in said) == (2, True)
    done = CliRunner().invoke(main, ["get", "/a", "--connect", "127.0.0.1:1"])
    assert (done.exit_code, "Connection refused" in done.stderr) == (1, True)


def test_watch_prints_a_line_per_change_and_ends_after_so_many_or_by_ctrl_c(running: Cluster) -> None:
    for limit in (("--count", "2"), ()):
        words = command(running, "watch", "/seen", "-r", "--output", "json", *limit)
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            assert watching.stderr is not None
            assert watching.stderr.readline() == "watching /seen\n"
            assert run(running, "put", "/seen", "1")[0] == 0
            assert run(running, "rm", "/seen")[0] == 0
            events = [json.loads(watching.stdout.readline()) for _ in range(2)]
            assert [(one["event"], one["path"]) for one in events] == [
                ("created", "/seen"),
                ("deleted", "/seen"),
            ]
            if not limit:
                watching.send_signal(signal.SIGINT)
            assert watching.wait(60) == 0


@contextlib.contextmanager
def held_by_cat(cluster: Cluster, *lock: str) -> Iterator[subprocess.Popen[bytes]]:
    """Hold a lock by a `zraft lock` in a session of its own, whose command is `cat`; it has echoed a line then."""
    words = command(cluster, "lock", *lock, "cat")
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(b"held\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == b"held\n"
        yield holder


SAY = "import os, sys; print(os.environ['ZRAFT_LOCK_TOKEN']); sys.exit(7)"


def test_lock_passes_the_exit_code_and_makes_others_wait(running: Cluster) -> None:
    code, first, _ = locked(running, "/locks/a", sys.executable, "-c", SAY)
    assert code == 7
    code, second, _ = locked(running, "/locks/a", sys.executable, "-c", SAY)
    assert int(first) < int(second)
    assert locked(running, "/locks/a", "no-such-command")[0] == 127
    with held_by_cat(running, "/locks/a") as holder:
        code, _, said = locked(running, "--timeout", "0", "/locks/a", "true")
        assert (code, f"pid {holder.pid}" in said) == (124, True)
        # SIGTERM is passed on, and the lock is given back.
        holder.terminate()
        assert holder.wait(60) == 128 + signal.SIGTERM
    assert locked(running, "--timeout", "0", "/locks/a", "true")[0] == 0


TELL = """
import signal
for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(one, lambda *_: (print("told", flush=True), exit(9)))
print("held", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_to_lock_reach_the_command_which_decides_how_it_ends(
    running: Cluster, sent: signal.Signals
) -> None:
    words = command(running, "lock", "/locks/c", sys.executable, "-c", TELL)
    # In a session of its own it has no terminal, which would send the signals of its keyboard to both.
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(sent)
        try:
            assert select([holder.stdout], [], [], 60)[0], "the command was not told"
            assert holder.stdout.readline() == "told\n"
            assert holder.wait(60) == 9
        finally:
            end_group(holder)
    assert locked(running, "--timeout", "0", "/locks/c", "true")[0] == 0


def test_a_lock_that_is_terminated_while_it_waits_leaves_nothing_for_others_to_wait_for(
    running: Cluster,
) -> None:
    with held_by_cat(running, "/locks/e") as holder:
        assert holder.stdin is not None
        with subprocess.Popen(command(running, "lock", "/locks/e", "true")) as waiter:
            wait_until(lambda: contenders(running) == 2, "the second one to wait")
            waiter.terminate()
            assert waiter.wait(60) == 128 + signal.SIGTERM
        assert contenders(running) == 1
        holder.stdin.close()
        assert holder.wait(60) == 0


def contenders(cluster: Cluster) -> int:
    """The number of those that hold or want a lock."""
    return len(run(cluster, "ls", "/locks/e")[1].splitlines())


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ends the children of a process that is killed"
)
def test_the_command_of_a_lock_that_is_killed_is_ended_by_the_kernel(running: Cluster) -> None:
    with held_by_cat(running, "--session-timeout", "4", "/locks/d") as holder:
        assert holder.stdout is not None
        holder.kill()
        try:
            # Its standard input is still open, so `cat` ends only if it is ended. Then nobody holds its output.
            assert select([holder.stdout], [], [], 60)[0]
            assert holder.stdout.read() == b""
        finally:
            end_group(holder)


def end_group(leader: subprocess.Popen[Any]) -> None:
    """End what a process of a session of its own started, if anything is left of it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)


def test_a_lock_that_no_server_confirms_is_given_up_and_the_command_is_told(running: Cluster) -> None:
    words = command(running, "lock", "--session-timeout", "4", "/locks/b", sys.executable, "-c", TELL)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        running.stop(1)
        try:
            assert holder.wait(60) == 125
        finally:
            running.cont(1)
            holder.terminate()
        assert holder.stdout.read() == "told\n"


def test_doctor_looks_at_a_running_server_and_finds_what_a_single_one_lacks(running: Cluster) -> None:
    code, printed, said = run(running, "doctor", "--json")
    checks = {json.loads(line)["check"] for line in printed.splitlines()}
    # A slow disk is a warning, and one that this machine may deserve.
    assert code == (4 if "disk-slow" in checks else 0), said
    assert {"one-voter", "plain-text", "open-root", "open-topics"} <= checks
    assert not checks & {"unreachable", "not-serving", "no-leader", "disk-full"}
