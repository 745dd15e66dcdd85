"""An ensemble of real ZooKeeper servers on this machine, if a package of the system has installed it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from zraft.cli.status import sole_leader
from zraft_bench.cluster import ASK_TIMEOUT_S, wait_until
from zraft_bench.processes import HOST, ServerError, ServerProcess, end_all, free_ports, total_cpu_s
from zraft_core.address import Address

JARS: Final = (Path("/usr/share/java"), Path("/usr/share/zookeeper/lib"), Path("/opt/zookeeper/lib"))
_JAR: Final = re.compile(r"zookeeper-(\d+\.\d+\.\d+)\.jar")
LOG4J: Final = """\
log4j.rootLogger=WARN, A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.layout=org.apache.log4j.SimpleLayout
"""


def installed(jars: Sequence[Path] = JARS) -> tuple[Path, str] | None:
    """Return (directory with ZooKeeper's jars, its version) if there is Java, and ZooKeeper in one of the directories."""
    if shutil.which("java") is None:
        return None
    for directory in jars:
        found = sorted(
            match[1] for path in directory.glob("zookeeper-*.jar") if (match := _JAR.fullmatch(path.name))
        )
        if found:
            return directory, found[-1]
    return None


class ZooKeeperServers:
    """Servers 1 to n on loopback, fsync on, snapshots and heap as by default; below `directory`."""

    def __init__(self, directory: Path, servers: int, jars: Path, version: str) -> None:
        self._directory = directory
        self._jars = jars
        self.version = version
        ports = free_ports(3 * servers)
        self._ports, self._peer_ports = ports[:servers], ports[servers:]
        self._processes: list[ServerProcess] = []

    @property
    def hosts(self) -> str:
        """The servers' addresses, separated by commas."""
        return ",".join(f"{HOST}:{port}" for port in self._ports)

    @property
    def count(self) -> int:
        """The number of servers."""
        return len(self._ports)

    def start(self) -> None:
        """Start all servers and wait until one of them leads."""
        for number in range(1, self.count + 1):
            self._processes.append(self._prepare(number))
            self._processes[-1].start()
        wait_until(self._leader, "ZooKeeper to serve with one leader")

    def restart(self) -> None:
        """End all servers, start them again, and wait until one of them leads."""
        self.stop()
        for process in self._processes:
            process.start()
        wait_until(self._leader, "ZooKeeper to serve with one leader")

    def _prepare(self, number: int) -> ServerProcess:
        place = self._directory / f"zookeeper-{number}"
        (place / "data").mkdir(parents=True)
        (place / "data" / "myid").write_text(f"{number}\n")
        (place / "log4j.properties").write_text(LOG4J)
        lines = [
            *("tickTime=2000", "initLimit=10", "syncLimit=5", "maxClientCnxns=0", "admin.enableServer=false"),
            *(f"dataDir={place}/data", f"clientPort={self._ports[number - 1]}", f"clientPortAddress={HOST}"),
            "4lw.commands.whitelist=*",
        ]
        if self.count > 1:
            lines += [
                f"server.{n}={HOST}:{self._peer_ports[2 * n - 2]}:{self._peer_ports[2 * n - 1]}"
                for n in range(1, self.count + 1)
            ]
        (place / "zoo.cfg").write_text("\n".join((*lines, "")))
        classpath = (
            f"{self._jars}/zookeeper-{self.version}.jar:{self._jars}/zookeeper-jute.jar:{self._jars}/*"
        )
        return ServerProcess(
            [
                *("java", "-cp", classpath, f"-Dlog4j.configuration=file:{place}/log4j.properties"),
                *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(place / "zoo.cfg")),
            ],
            place / "log",
        )

    def _leader(self) -> int | None:
        for process in self._processes:
            process.require_running()
        return sole_leader({n: Address(HOST, port) for n, port in enumerate(self._ports, 1)}, ASK_TIMEOUT_S)

    def cpu_s(self) -> float | None:
        """Return the CPU time of all servers so far, in seconds."""
        return total_cpu_s(self._processes)

    def stop(self) -> None:
        """End all servers."""
        end_all(self._processes)


def require_installed(jars: Sequence[Path] = JARS) -> tuple[Path, str]:
    """Check that there is a ZooKeeper in one of the directories.

    Raises:
        ServerError: there is none; the message says where it was searched.
    """
    found = installed(jars)
    if found is None:
        places = ", ".join(map(str, jars))
        raise ServerError(
            f"ZooKeeper: found no java, or no zookeeper-VERSION.jar in {places}; or give --zookeeper"
        )
    return found
