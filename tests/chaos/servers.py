"""Real servers for a chaos run: processes, their disks and shims, their logs, what they answer to four-letter words.

Ends only processes that it started. A server that ended without being told to, a traceback or an error in a log that
no fault accounts for: each is noted as a violation here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.chaos.shim import Control
from zraft.checkers.history import Violation
from zraft.transport.keys import create_key_file
from zraft_core.address import Address
from zraft_core.errors import ConfigError, ZraftError

REPOSITORY: Final = Path(__file__).parents[2]
HOST: Final = "127.0.0.1"
PORTS: Final = (32_800, 60_000)
READY_S: Final = 90.0
EXIT_S: Final = 30.0
ASK_S: Final = 3.0
POLL_S: Final = 0.1
TMPFS_BYTES: Final = 2 * 1024**3
LOG_TAIL_LINES: Final = 30
FILLER_CHUNK_BYTES: Final = 1 << 20

SETTINGS: Final = {
    "tick_time_ms": 1_000,
    "wal.segment_bytes_max": 131_072,
    "wal.tail_bytes_max": 131_072,
    "snapshot.log_bytes_min": 262_144,
    "snapshot.commands_min": 2_000,
    "snapshot.retain_bytes": 65_536,
    "snapshot.retain_bytes_max": 524_288,
    "log_format": "json",
}
"""Short sessions, so that some expire; small segments, so that a full disk is met soon; a snapshot every some seconds,
and little kept before it, so that who was away needs it."""

DISK_FULL: Final = "disk is full, nothing is acknowledged until there is room"
DELIVERIES_FULL: Final = "the disk of deliveries is full, partitions wait until there is room"
SNAPSHOT_FAILED: Final = "snapshot failed"
NO_ROOM: Final = "no space left"
"""What a snapshot that failed says if the disk was full, which is the one reason that a fault accounts for."""

FAILED: Final = "server failed"

SERVER_STARTING: Final = b'"server starting"'
"""Logged once a boot is written down."""


class NotReadyError(ZraftError):
    """Servers do not serve within the time they have."""


def free_ports(count: int, rng: random.Random) -> list[int]:
    """Ports that are free now for TCP and UDP on loopback."""
    held: list[socket.socket] = []
    ports: list[int] = []
    try:
        while len(ports) < count:
            port = rng.randrange(*PORTS)
            pair = (
                socket.socket(socket.AF_INET, socket.SOCK_STREAM),
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            )
            held += pair
            try:
                for one in pair:
                    one.bind((HOST, port))
            except OSError:
                continue
            ports.append(port)
        return ports
    finally:
        for one in held:
            one.close()


class Server:
    """One server's place: directory, log, shim, and its process while it runs."""

    def __init__(self, number: int, directory: Path, address: Address, control: Control | None) -> None:
        self.number = number
        self.data = directory / f"server-{number}"
        self.log = directory / f"server-{number}.log"
        self.address = address
        self.control = control
        self.process: subprocess.Popen[bytes] | None = None
        self.tmpfs = False
        self.namespace: tuple[str, ...] = ()
        """Words in front of its command that put it elsewhere, such as into a network namespace."""
        self.may_end = False
        """A fault ends it, or is about to."""
        self.may_log: set[str] = set()
        """Events of level error that faults which struck this server account for."""
        self.disk_full = False
        """As far as a fault made it so."""
        self.starts = 0
        self.log_began = 0
        """Bytes of `log` that are of earlier starts."""

    @property
    def silent(self) -> bool:
        """Whether this start has logged nothing: Python may not have come to a server's code yet."""
        return not self.log.exists() or self.log.stat().st_size <= self.log_began

    @property
    def may_refuse_to_start(self) -> bool:
        """A boot has to be written down before it counts (D-1): without room for that, a start ends with an error."""
        if not self.disk_full or self.silent:
            return self.disk_full
        with self.log.open("rb") as log:
            log.seek(self.log_began)
            return SERVER_STARTING not in log.read()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def alive(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, f"server {self.number} was never started"
        return self.process


class Servers:
    """All servers of a run. `close` ends the processes and takes the file systems away again."""

    def __init__(
        self,
        directory: Path,
        addresses: Mapping[int, Address],
        peers: Mapping[int, Mapping[int, Address]],
        shim: Path | None,
        settings: Mapping[str, object],
        planted: str | None = None,
    ) -> None:
        """`peers`: by server, where it is told that each of the others lives. `planted`: a bug that all have."""
        self.directory = directory
        self.key = directory / "cluster.key"
        if not self.key.exists():
            create_key_file(self.key)
        self._peers = peers
        self._settings = {**SETTINGS, **settings}
        self._program = ("zraft",) if planted is None else ("tests.chaos.planted_server", planted)
        self.all = {
            number: Server(
                number,
                directory,
                address,
                Control(shim, directory / f"control-{number}") if shim is not None else None,
            )
            for number, address in addresses.items()
        }
        self.violations: list[Violation] = []

    # -- file systems

    def mount_small_disk(self, number: int) -> bool:
        """Put a server's directory on a file system of its own that can be filled; False if that is not allowed."""
        server = self.all[number]
        server.data.mkdir(exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES},mode=0700", "zraft-chaos", str(server.data)],
            capture_output=True,
            check=False,
        )
        server.tmpfs = done.returncode == 0
        return server.tmpfs

    def fill_disk(self, number: int) -> bool:
        """Until `free_disk` there is no room; False if neither a small disk nor a shim can do that."""
        server = self.all[number]
        server.may_log |= {DISK_FULL, DELIVERIES_FULL, SNAPSHOT_FAILED}
        server.disk_full = True
        if server.tmpfs:
            with (server.data / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
                free = os.statvfs(server.data)
                os.posix_fallocate(
                    file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - FILLER_CHUNK_BYTES)
                )
                file.seek(0, os.SEEK_END)
                while True:
                    file.write(bytes(4096))
            return True
        if server.control is not None:
            server.control.fill_disk(True)
            return True
        server.disk_full = False
        return False

    def free_disk(self, number: int) -> None:
        server = self.all[number]
        server.disk_full = False
        if server.tmpfs:
            (server.data / "filler").unlink(missing_ok=True)
        if server.control is not None:
            server.control.fill_disk(False)

    def wipe(self, number: int) -> None:
        """Empty the directory of a server that does not run."""
        server = self.all[number]
        assert not server.running, f"server {number} runs"
        for entry in server.data.iterdir() if server.data.exists() else ():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    # -- processes

    def command(self, number: int) -> list[str]:
        server = self.all[number]
        where = {**self._peers[number], number: server.address}
        cluster = ",".join(f"{n}={address}" for n, address in sorted(where.items()))
        settings = [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        return [
            *server.namespace,
            *(sys.executable, "-X", "faulthandler", "-m", *self._program, "serve", "--id", str(number)),
            *("--data", str(server.data), "--address", str(server.address)),
            *("--cluster", cluster, "--key", str(self.key), *settings),
        ]

    @property
    def environment(self) -> Mapping[str, str]:
        """The caller's, without its own zraft settings, and with this very code."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ZRAFT_")}
        return {**inherited, "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "client")))}

    def start(self, number: int) -> None:
        server = self.all[number]
        if server.running:
            return
        server.starts += 1
        server.may_end = False
        shim = server.control.environment if server.control is not None else {}
        with server.log.open("ab") as log:
            server.log_began = log.tell()
            server.process = subprocess.Popen(
                self.command(number),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **self.environment,
                    **shim,
                    "PYTHONHASHSEED": str(100 * number + server.starts),
                },
                cwd=self.directory,
                start_new_session=True,
            )

    async def end(self, number: int, how: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal that ends the process, and wait for that; SIGKILL if it takes too long, which is a violation."""
        server = self.all[number]
        server.may_end = True
        if server.process is None:
            return 0
        if server.running:
            server.alive.send_signal(how)
        return await self.wait_end(number)

    async def wait_end(self, number: int, within_s: float = EXIT_S) -> int:
        """The exit code of a process that ends, or else is killed."""
        server = self.all[number]
        deadline = asyncio.get_running_loop().time() + within_s
        while server.running:
            if asyncio.get_running_loop().time() > deadline:
                self._violation(f"server {number} did not end within {within_s:g} s", server)
                server.alive.kill()
            await asyncio.sleep(0.02)
        return server.alive.wait()

    def signal(self, number: int, what: signal.Signals) -> None:
        if self.all[number].running:
            self.all[number].alive.send_signal(what)

    async def watch(self) -> None:
        """Until cancelled: note servers that end by themselves, and start them again so that the run goes on."""
        while True:
            for number, server in self.all.items():
                if server.process is not None and not server.running and not server.may_end:
                    if not server.may_refuse_to_start:
                        code = server.alive.returncode
                        self._violation(f"server {number} ended by itself with code {code}", server)
                    self.start(number)
            await asyncio.sleep(POLL_S)

    def _violation(self, what: str, server: Server) -> None:
        lines = server.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        self.violations.append(Violation("server", what + "; its log ends:\n  " + "\n  ".join(lines)))

    def close(self) -> None:
        """End every process, and unmount what was mounted."""
        for server in self.all.values():
            if server.process is not None:
                if server.process.poll() is None:
                    server.process.kill()  # also ends a stopped one
                server.process.wait()
            if server.control is not None:
                server.control.close()
            if server.tmpfs:
                subprocess.run(["umount", str(server.data)], capture_output=True, check=False)
                server.tmpfs = False

    # -- what servers say

    async def ask(self, number: int, word: str) -> str:
        """The answer to a four-letter word, "" if there is none."""
        address = self.all[number].address
        try:
            async with asyncio.timeout(ASK_S):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                try:
                    writer.write(word.encode())
                    return (await reader.read(-1)).decode(errors="replace")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return ""

    async def mntr(self, number: int) -> Mapping[str, str]:
        """`mntr` without the prefix zk_, empty while the server does not serve."""
        rows = (line.partition("\t")[::2] for line in (await self.ask(number, "mntr")).splitlines())
        return {name.removeprefix("zk_"): value for name, value in rows if name.startswith("zk_")}

    async def leader(self) -> int | None:
        """A server that says it leads; the greatest term decides if two do."""
        found: list[tuple[int, int]] = []
        for number, server in self.all.items():
            if server.running:
                shown = await self.mntr(number)
                if shown.get("server_state") == "leader":
                    found.append((int(shown.get("raft_term", "0")), number))
        return max(found)[1] if found else None

    async def wait_ready(self, within_s: float = READY_S) -> None:
        """Until all serve and exactly one leads. Raises NotReadyError."""
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            for number, server in self.all.items():
                if server.process is not None and not server.running and not server.may_end:
                    tail = "\n".join(server.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
                    raise NotReadyError(f"server {number} ended with {server.alive.returncode}: {tail}")
            states = {number: (await self.mntr(number)).get("server_state", "") for number in self.all}
            if all(states.values()) and sum(state == "leader" for state in states.values()) == 1:
                return
            if asyncio.get_running_loop().time() > deadline:
                raise NotReadyError(f"not all servers serve with one leader after {within_s:g} s: {states}")
            await asyncio.sleep(POLL_S)

    async def digests(self, within_s: float = READY_S) -> Mapping[int, str]:
        """ "INDEX DIGEST" of each, once all show the same index; what they show, if that does not come."""
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            shown = {number: await self.mntr(number) for number in self.all}
            indexes = {one.get("state_digest_index", "pending") for one in shown.values()}
            commits = {one.get("raft_commit_index") for one in shown.values()}
            if (len(indexes) == 1 and indexes == commits) or asyncio.get_running_loop().time() > deadline:
                return {
                    n: f"{one.get('state_digest_index')} {one.get('state_digest')}"
                    for n, one in shown.items()
                }
            await asyncio.sleep(POLL_S)

    # -- logs

    def check_logs(self) -> tuple[Sequence[Violation], Counter[str]]:
        """Violations found in the logs, and how often each event was logged."""
        found = list(self.violations)
        events: Counter[str] = Counter()
        for server in self.all.values():
            for line in _lines(server.log):
                try:
                    row = json.loads(line)
                    event, level = str(row["event"]), str(row["level"])
                except (ValueError, KeyError, TypeError):
                    if line.startswith(("Traceback", "Fatal Python error")):
                        found.append(
                            Violation("log", f"server {server.number}: {line}; see {server.log.name}")
                        )
                    continue
                events[event] += 1
                accounted = event in server.may_log and (event != SNAPSHOT_FAILED or NO_ROOM in line)
                if level in ("error", "critical") and not accounted:
                    found.append(Violation("log", f"server {server.number} logged {line}"))
        return found, events


def _lines(path: Path) -> Iterator[str]:
    if path.exists():
        with path.open(errors="replace") as file:
            yield from (line.rstrip("\n") for line in file)


def require_program(name: str) -> str:
    """Its path. Raises ConfigError: it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise ConfigError(f"this run needs the program {name}, and it is not installed")
    return found
