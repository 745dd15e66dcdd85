"""Real peer processes on real servers: started, killed, paused; ended by their ids only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 60.0
LOG_TAIL_BYTES: Final = 4_096


class PeerProcess:
    """One `onyxlog peer`. The ids of its group begin with `name` and a dash."""

    def __init__(self, name: str, directory: Path, hosts: str, options: Sequence[str]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        command = [sys.executable, "-X", "faulthandler", "-m", "onyxlog", "peer"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--connect", hosts, "--name", name, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ
                | {"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "PYTHONHASHSEED": str(hash_seed(name))},
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


def hash_seed(name: str) -> int:
    """Sets of strings have another order in each process: nothing may hang on it."""
    return sum(name.encode()) % 1_000 + 1


class Processes:
    """All that a test starts; leaving the context ends what still runs."""

    def __init__(self, directory: Path, hosts: str, options: Sequence[str]) -> None:
        self._directory = directory
        self._hosts = hosts
        self._options = tuple(options)
        self.peers: dict[str, PeerProcess] = {}

    def start(self, name: str, options: Sequence[str] = ()) -> PeerProcess:
        peer = self.peers[name] = PeerProcess(name, self._directory, self._hosts, [*self._options, *options])
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

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.peers.values():
            if peer.process.poll() is None:
                peer.process.kill()  # also ends a stopped one
        for peer in self.peers.values():
            peer.process.wait()
