"""Real ZooKeeper servers on loopback, as the reference: Debian's 3.8.0, or the 3.9.3 inside PySpark's jars."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.compat.install import MissingError, java_jars, program
from tests.processes.cluster import HOST, free_ports

DEBIAN_JARS: Final = Path("/usr/share/java")
VERSIONS: Final = ("3.9.3", "3.8.0")
HEAP: Final = "-Xmx256m"
NEVER_MS: Final = (1 << 31) - 1
"""The most that the property takes; with more it is the default again, a minute."""

LOG4J: Final = """\
log4j.rootLogger=WARN, A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.layout=org.apache.log4j.SimpleLayout
"""
"""What 3.8.0 logs with."""
LOG4J2: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.a.ref = A
appender.a.type = Console
appender.a.name = A
"""
"""What is beside 3.9.3 in PySpark."""


class ZooKeepers:
    """`count` servers of one ensemble. Use as a context manager: leaving it ends them."""

    def __init__(self, directory: Path, version: str, *, count: int = 3, super_digest: str = "") -> None:
        self.version = version
        self._directory = directory
        self._super_digest = super_digest
        self._processes: list[subprocess.Popen[bytes]] = []
        ports = free_ports(3 * count)
        self.ports, self._peer_ports = ports[:count], ports[count:]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(HOST, port) for port in self.ports]

    def __enter__(self) -> ZooKeepers:
        for number in range(1, len(self.ports) + 1):
            self._processes.append(self._start(number))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _classpath(self) -> str:
        if self.version == "3.8.0":
            if not (DEBIAN_JARS / "zookeeper-3.8.0.jar").exists():
                raise MissingError(f"no ZooKeeper 3.8.0 in {DEBIAN_JARS}: apt-get install zookeeper")
            return f"{DEBIAN_JARS}/zookeeper-3.8.0.jar:{DEBIAN_JARS}/zookeeper-jute.jar:{DEBIAN_JARS}/*"
        jars = java_jars()
        return f"{jars}/zookeeper-{self.version}.jar:{jars}/*"

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        place = self._directory / f"zookeeper-{number}"
        shutil.rmtree(place, ignore_errors=True)
        (place / "data").mkdir(parents=True)
        (place / "data" / "myid").write_text(f"{number}\n")
        servers = [
            f"server.{n}={HOST}:{self._peer_ports[2 * n - 2]}:{self._peer_ports[2 * n - 1]}"
            for n in range(1, len(self.ports) + 1)
        ]
        (place / "zoo.cfg").write_text("\n".join((*self._settings(number, place), *servers, "")))
        (place / "log4j.properties").write_text(LOG4J)
        (place / "log4j2.properties").write_text(LOG4J2)
        with (place / "log").open("wb") as log:
            return subprocess.Popen(
                [
                    *(
                        program("java", "default-jre-headless"),
                        HEAP,
                        "-XX:+UseSerialGC",
                        "-cp",
                        self._classpath(),
                    ),
                    "-Dfile.encoding=UTF-8",
                    f"-Dlog4j.configuration=file:{place}/log4j.properties",
                    f"-Dlog4j2.configurationFile={place}/log4j2.properties",
                    f"-Dzookeeper.DigestAuthenticationProvider.superDigest={self._super_digest}",
                    # Garbage collection of containers would strike at a time of its own.
                    f"-Dznode.container.checkIntervalMs={NEVER_MS}",
                    # With threads, an answer to sync may pass a write that was committed before it.
                    "-Dzookeeper.commitProcessor.numWorkerThreads=0",
                    "-Dzookeeper.extendedTypesEnabled=true",
                    *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(place / "zoo.cfg")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=place,
            )

    def _settings(self, number: int, place: Path) -> Sequence[str]:
        return (
            *("tickTime=2000", "initLimit=10", "syncLimit=5", "maxClientCnxns=0"),
            *(f"dataDir={place}/data", f"clientPort={self.ports[number - 1]}", f"clientPortAddress={HOST}"),
            *("admin.enableServer=false", "4lw.commands.whitelist=*"),
        )
