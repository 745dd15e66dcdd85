"""Server processes that a benchmark starts on this machine: ports, the CPU they used, their end.

It ends only what it started, by its id.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from zraft_core.errors import ZraftError

HOST: Final = "127.0.0.1"
PORTS: Final = (10_000, 32_000)
"""Below the range of Linux's ephemeral ports: no outgoing connection may use a stopped server's port."""

GRACE_S: Final = 15.0
LOG_TAIL_BYTES: Final = 4096


class ServerError(ZraftError):
    """A server that the benchmark started died, or does not serve."""


def free_ports(count: int, host: str = HOST) -> list[int]:
    """Return ports that are free for TCP and UDP now; another process may still take one before its server does."""
    rng = random.SystemRandom()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        while len(ports) < count:
            port = rng.randrange(*PORTS)
            tcp = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
            udp = held.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            try:
                tcp.bind((host, port))
                udp.bind((host, port))
            except OSError:
                continue
            ports.append(port)
    return ports


class ServerProcess:
    """One process and its log file; may be started several times."""

    def __init__(self, command: Sequence[str], log: Path, env: dict[str, str] | None = None) -> None:
        self.command = list(command)
        self.log = log
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        self._cpu_before_s = 0.0

    @property
    def pid(self) -> int:
        """The id of the process that was started last."""
        assert self._process is not None, "never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; its log continues where it ended."""
        assert not self.running
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                process_group=0,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        if self.running:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        if self._process is not None and self.running:
            self._cpu_before_s += cpu_seconds(self.pid)
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """Send SIGTERM, and SIGKILL if that is not enough."""
        if self._process is None or not self.running:
            return
        self._cpu_before_s += cpu_seconds(self.pid)
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def cpu_s(self) -> float:
        """Return CPU time of all its starts, user and system."""
        return self._cpu_before_s + (cpu_seconds(self.pid) if self.running else 0.0)

    def require_running(self) -> None:
        """Check that the process runs.

        Raises:
            ServerError: it has ended; the message has the end of its log.
        """
        if self._process is not None and not self.running:
            raise ServerError(
                f"a server (pid {self.pid}) ended with code {self._process.returncode}; the end of {self.log}:\n"
                f"{self.log_tail()}"
            )

    def log_tail(self) -> str:
        """Return the end of the process's log, empty if there is none."""
        try:
            return self.log.read_text(errors="replace")[-LOG_TAIL_BYTES:]
        except OSError:
            return ""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far, user and system; 0 if it is gone or the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    # The name, in parentheses, may hold anything; fields are counted after it.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def total_cpu_s(processes: Iterable[ServerProcess]) -> float:
    """Return the CPU time of these processes, in seconds."""
    return sum(process.cpu_s() for process in processes)


def end_all(processes: Sequence[ServerProcess]) -> None:
    """Send SIGTERM to all at once, then wait for each."""
    for process in processes:
        process.signal(signal.SIGCONT)
        process.signal(signal.SIGTERM)
    for process in processes:
        process.end()
