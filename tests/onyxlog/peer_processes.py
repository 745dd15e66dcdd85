"""Real peer processes on real servers: started, killed, paused; ended by their ids only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 60.0
POLL_S: Final = 0.05
LOG_TAIL_BYTES: Final = 4_096
BEHIND_SERVERS: Final = ("nice", "-n", "5")
"""Fifty interpreters that start on two cores must not keep the servers from running: those have machines of their own."""


class Forked:
    """A process that the nursery has forked: not our child, so nobody knows how it ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            self.returncode = 0
        return self.returncode

    def send_signal(self, what: int) -> None:
        os.kill(self.pid, what)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = DEADLINE_S) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(POLL_S)
        return 0


class Nursery:
    """Forks peers from one process that has imported everything (`tests.onyxlog.nursery`)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.onyxlog.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment("nursery"),
            cwd=ROOT,
            text=True,
        )

    def start(self, arguments: Sequence[str], log: Path, directory: Path) -> Forked:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        wanted = {"arguments": list(arguments), "log": str(log), "directory": str(directory)}
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        return Forked(int(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate(timeout=DEADLINE_S)


class PeerProcess:
    """One `onyxlog peer`. The ids of its group begin with `name` and a dash."""

    def __init__(
        self, name: str, directory: Path, hosts: str, options: Sequence[str], nursery: Nursery | None = None
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.log.touch()
        # A fault may have stopped all servers when it starts.
        arguments = ["--connect", hosts, "--wait-for-connection", "--name", name, *options]
        self.process: subprocess.Popen[bytes] | Forked
        if nursery is not None:
            self.process = nursery.start(arguments, self.log, directory)
            return
        command = [*BEHIND_SERVERS, sys.executable, "-X", "faulthandler", "-m", "onyxlog", "peer"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(name),
                cwd=directory,
            )

    def signal(self, what: signal.Signals) -> None:
        assert self.process.poll() is None, f"{self.name} ended by itself:\n{self.tail()}"
        self.process.send_signal(what)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def owns(self, group: str) -> bool:
        """Whether this is a group of this process; the rest of an id is drawn."""
        return group.rpartition("-")[0] == self.name

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        return self.log_text()[-LOG_TAIL_BYTES:]


def environment(name: str) -> dict[str, str]:
    """Sets of strings have another order in each process (but for forked ones): nothing may hang on it."""
    seed = sum(name.encode()) % 1_000 + 1
    return os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "PYTHONHASHSEED": str(seed)}


class Processes:
    """All that a test starts; leaving the context ends what still runs."""

    def __init__(
        self, directory: Path, hosts: str, options: Sequence[str], *, nursery: Nursery | None = None
    ) -> None:
        self._nursery = nursery
        self._directory = directory
        self._hosts = hosts
        self._options = tuple(options)
        self.peers: dict[str, PeerProcess] = {}

    def start(self, name: str, options: Sequence[str] = ()) -> PeerProcess:
        given = [*self._options, *options]
        peer = self.peers[name] = PeerProcess(name, self._directory, self._hosts, given, self._nursery)
        return peer

    def kill(self, names: Sequence[str]) -> None:
        """All at once: none is waited for before the last was killed."""
        for name in names:
            self.peers[name].signal(signal.SIGKILL)
        for name in names:
            self.peers.pop(name).process.wait(DEADLINE_S)

    def check(self) -> None:
        """Raises AssertionError if one ended that nobody ended."""
        for peer in self.peers.values():
            assert peer.process.poll() is None, (
                f"{peer.name} ended with code {peer.process.returncode}:\n{peer.tail()}"
            )

    def mistakes(self) -> list[str]:
        """What any of them logged with a traceback, also those that were ended meanwhile."""
        return [
            f"{path.name}: {line}"
            for path in sorted(self._directory.glob("*.log"))
            for line in path.read_text(errors="replace").splitlines()
            if " exception=" in line
        ]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.peers.values():
            if peer.process.poll() is None:
                peer.process.kill()  # also ends a stopped one
        for peer in self.peers.values():
            peer.process.wait(DEADLINE_S)
        if self._nursery is not None:
            self._nursery.close()
