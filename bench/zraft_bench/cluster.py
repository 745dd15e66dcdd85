"""Clusters of real zraft servers on this machine for a benchmark, and their status."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from zraft.cli.status import sole_leader
from zraft.program.reaching import nobody_listens
from zraft_bench.processes import HOST, ServerError, ServerProcess, end_all, free_ports, total_cpu_s
from zraft_core.address import Address, parse_address

READY_TIMEOUT_S: Final = 120.0
ASK_TIMEOUT_S: Final = 2.0
POLL_S: Final = 0.02
START_ATTEMPTS: Final = 3

T = TypeVar("T")


class Servers(Protocol):
    """A running system that load can be put on. Its calls block."""

    @property
    def hosts(self) -> str:
        """The addresses for clients, as HOST:PORT,…."""

    @property
    def count(self) -> int:
        """The number of servers."""

    def start(self) -> None:
        """Start, and wait until the system serves.

        Raises:
            ServerError: it does not.
        """

    def restart(self) -> None:
        """Stop and start all of it, and wait until it serves again.

        Raises:
            ServerError: it does not.
        """

    def cpu_s(self) -> float | None:
        """Return the CPU time of all its processes so far, None if they are not on this machine."""

    def stop(self) -> None:
        """End everything that was started."""


def wait_until(condition: Callable[[], T | None], what: str, timeout_s: float = READY_TIMEOUT_S) -> T:
    """Poll until `condition` returns something true, and return that.

    Raises:
        ServerError: it did not in time; the message says `what` was waited for.
    """
    until = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() >= until:
            raise ServerError(f"waited {timeout_s:g} s in vain for {what}")
        time.sleep(POLL_S)
    return found


def zraft_command(*arguments: str) -> list[str]:
    """Return the command line of a `zraft` command in this Python."""
    return [sys.executable, "-m", "zraft", *arguments]


def server_environment() -> dict[str, str]:
    """Return our environment without settings of a zraft or ZooKeeper that the caller may have exported."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ZRAFT_", "ZOO_"))}


def new_key(path: Path) -> None:
    """Make a fresh cluster key, mode 0600.

    Raises:
        ServerError: `zraft key new` failed.
    """
    done = subprocess.run(
        zraft_command("key", "new", str(path)),
        capture_output=True,
        text=True,
        check=False,
        env=server_environment(),
    )
    if done.returncode != 0:
        raise ServerError(f"zraft key new {path}: {done.stderr.strip()}")


class LocalCluster:
    """Servers 1 to n on loopback, each a process of its own, with one key, below `directory`."""

    def __init__(self, directory: Path, servers: int, settings: Sequence[str] = ()) -> None:
        self._directory = directory
        self._settings = list(settings)
        self._count = servers
        self.addresses: dict[int, Address] = {}
        self.processes: dict[int, ServerProcess] = {}
        self._data: dict[int, Path] = {}

    @property
    def hosts(self) -> str:
        """The servers' addresses, separated by commas."""
        return ",".join(str(address) for address in self.addresses.values())

    def directories(self) -> list[Path]:
        """Return the servers' data directories."""
        return list(self._data.values())

    @property
    def count(self) -> int:
        """The number of servers."""
        return self._count

    def start(self) -> None:
        """Start all, and wait until they serve; try other ports if somebody took one in between."""
        self._directory.mkdir(parents=True, exist_ok=True)
        key = self._directory / "cluster.key"
        if self._count > 1 and not key.exists():
            new_key(key)
        for attempt in range(1, START_ATTEMPTS + 1):
            self._place(key)
            for process in self.processes.values():
                process.start()
            try:
                self.wait_serving()
                return
            except ServerError as error:
                self.stop()
                if "cannot listen" not in str(error) or attempt == START_ATTEMPTS:
                    raise

    def _place(self, key: Path) -> None:
        ports = free_ports(self._count)
        self.addresses = {n: Address(HOST, port) for n, port in enumerate(ports, 1)}
        cluster = ",".join(f"{n}={address}" for n, address in self.addresses.items())
        for n, address in self.addresses.items():
            # No attempt inherits another one's directory: it may be of a cluster at other ports.
            data = self._data[n] = self._directory / f"{ports[0]}-server-{n}"
            command = zraft_command("serve", "--id", str(n), "--data", str(data), "--address", str(address))
            command += ["--cluster", cluster, "--log-format", "json"]
            if self._count > 1:
                command += ["--key", str(key)]
            for setting in self._settings:
                command += ["--set", setting]
            log = self._directory / f"server-{n}.log"
            self.processes[n] = ServerProcess(command, log, server_environment())

    def wait_serving(self, numbers: Iterable[int] | None = None) -> int:
        """Wait until all of `numbers` (all servers) serve with one leader among them; return the leader.

        Raises:
            ServerError: one ended, or they do not in time.
        """
        expected = sorted(self.addresses if numbers is None else numbers)
        return wait_until(lambda: self._leader_of(expected), f"servers {expected} to serve with one leader")

    def _leader_of(self, numbers: Sequence[int]) -> int | None:
        for number in numbers:
            self.processes[number].require_running()
        return sole_leader({number: self.addresses[number] for number in numbers}, ASK_TIMEOUT_S)

    def restart(self) -> None:
        """End all and start them again on their directories; wait until they serve.

        Raises:
            ServerError: they do not.
        """
        self.stop()
        for process in self.processes.values():
            process.start()
        self.wait_serving()

    def cpu_s(self) -> float | None:
        """Return the CPU time of all servers so far, in seconds."""
        return total_cpu_s(self.processes.values())

    def stop(self) -> None:
        """End all servers."""
        end_all(list(self.processes.values()))


def given_servers(hosts: str, knob: str) -> GivenServers:
    """Return servers that run already. This blocks while it checks whether anybody listens there.

    Raises:
        ConfigError: `hosts` is not HOST:PORT,…; the message names `knob`.
        ServerError: nobody listens at any of them.
    """
    if (reasons := nobody_listens([parse_address(part, knob) for part in hosts.split(",")])) is not None:
        raise ServerError(f"{knob}: {reasons}; expected servers that run already")
    return GivenServers(hosts)


class GivenServers:
    """Servers that run already, on any machine."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts

    @property
    def hosts(self) -> str:
        """The servers' addresses, separated by commas."""
        return self._hosts

    @property
    def count(self) -> int:
        """The number of servers."""
        return len(self._hosts.split(","))

    def start(self) -> None:
        """Do nothing, since the servers run; connecting the load shows whether they serve."""

    def restart(self) -> None:
        """Refuse, as the servers were not started here.

        Raises:
            ServerError: always.
        """
        raise ServerError(f"{self._hosts}: servers that were not started here are not restarted")

    def cpu_s(self) -> float | None:
        """Return None, since the CPU time of servers on other machines is not known."""
        return None

    def stop(self) -> None:
        """Do nothing, since the servers were not started here."""
