"""Three real servers on loopback, with faults: kill, stop, continue, wipe, restart.

Knows a server by its process, its log file and its four-letter words, as an operator does. Ends only processes
that it started, by their ids. Everything waited for has a generous deadline; none of them decides a test.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

from zraft.cli.status import UnreachableError, ask
from zraft.transport.keys import create_key_file
from zraft_core.address import Address

HOST: Final = "127.0.0.1"
ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 60.0
POLL_S: Final = 0.05
ASK_TIMEOUT_S: Final = 5.0
LOG_TAIL_BYTES: Final = 8_192
START_ATTEMPTS: Final = 5
PORTS: Final = (10_000, 32_000)
"""Below the range that Linux takes client ports from: nobody's outgoing connection may sit on a stopped server's port."""


def ports_of(worker: str, workers: int) -> range:
    """The ports of one of the workers that run tests at the same time ("gw0", …; empty: the only one).

    Each has its own, or one worker's server would sit on the port of another's that is stopped for a while.
    """
    share = (PORTS[1] - PORTS[0]) // workers
    first = PORTS[0] + share * int(worker.removeprefix("gw") or 0)
    return range(first, first + share)


OWN_PORTS: Final = ports_of(
    os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
)

T = TypeVar("T")


class ServerDiedError(AssertionError):
    """A server ended that nobody ended; the message carries the end of its log."""


def wait_until(condition: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Poll until `condition` gives something true, and give that.

    Raises:
        AssertionError: it did not within the deadline; says `what` was waited for.
    """
    deadline = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {deadline_s:g} s in vain for {what}"
        time.sleep(POLL_S)
    return found


def free_ports(count: int, host: str = HOST) -> list[int]:
    """Ports of ours that are free for TCP and UDP now; another program may still take one before its server does."""
    rng = random.SystemRandom()
    held: list[socket.socket] = []
    ports: list[int] = []
    try:
        while len(ports) < count:
            port = rng.choice(OWN_PORTS)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            pair = [socket.socket(family, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
            held += pair
            try:
                for one in pair:
                    one.bind((host, port))
            except OSError:
                continue
            ports.append(port)
        return ports
    finally:
        for one in held:
            one.close()


def read_mntr(answer: str) -> dict[str, str] | None:
    """What a server answered to `mntr`, without the prefix zk_; None if nothing."""
    found = dict(line.partition("\t")[::2] for line in answer.splitlines() if line.startswith("zk_"))
    return {name.removeprefix("zk_"): value for name, value in found.items()} or None


class Server:
    """One server's place: its directory, its log, and its process while it runs."""

    def __init__(self, number: int, directory: Path, address: Address) -> None:
        self.number = number
        self.data = directory / f"server-{number}"
        self.log = directory / f"server-{number}.log"
        self.address = address
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._log_offset = 0

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def begin_log(self) -> None:
        """The next start's lines begin here; those before it stay in the file."""
        self._log_offset = self.log.stat().st_size if self.log.exists() else 0

    def log_text(self) -> str:
        """What the server has logged since its last start."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[self._log_offset :].decode(errors="replace")

    def wait_says(self, *texts: str) -> None:
        """Until each of `texts` is in `log_text`: lines are written a moment after what they tell of can be seen."""
        for text in texts:
            wait_until(partial(self._says, text), f"server {self.number} to log {text!r}")

    def _says(self, text: str) -> bool:
        return text in self.log_text()

    def log_tail(self) -> str:
        """The end of its log, earlier starts included."""
        return self.log.read_text(errors="replace")[-LOG_TAIL_BYTES:] if self.log.exists() else ""


class Cluster:
    """Servers 1 to n with one key. Use as a context manager: leaving it ends every process.

    Attributes:
        host: where they listen; a loopback address.
    """

    host = HOST

    def __init__(self, directory: Path, *, servers: int = 3, env: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self._env = dict(env or {})
        self.key = directory / "cluster.key"
        create_key_file(self.key)
        self.servers: dict[int, Server] = {}
        self._extra: list[subprocess.Popen[bytes]] = []
        self._place(servers)

    def _place(self, count: int) -> None:
        addresses = self.free_addresses(count)
        self.servers = {n: Server(n, self.directory, address) for n, address in enumerate(addresses, 1)}

    def free_addresses(self, count: int) -> list[Address]:
        """Return where so many more servers can listen."""
        return [Address(self.host, port) for port in free_ports(count, self.host)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [s.process for s in self.servers.values() if s.process is not None] + self._extra:
            if process.poll() is None:
                process.kill()  # also ends a stopped process
            process.wait()

    # -- processes

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        """What starts server `number`."""
        server = self.servers[number]
        cluster = ",".join(f"{n}={s.address}" for n, s in self.servers.items())
        return [
            *(sys.executable, "-X", "faulthandler", "-m", "zraft", "serve", "--id", str(number)),
            *("--data", str(data or server.data), "--address", str(server.address)),
            *("--cluster", cluster, "--key", str(self.key)),
        ]

    def environment(self, hash_seed: int) -> dict[str, str]:
        """Ours, without the caller's own zraft settings; sets and dicts of strings differ in order per server."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ZRAFT_")}
        # All of this tree, wherever another one is installed.
        path = os.pathsep.join(map(str, (ROOT, ROOT / "client", ROOT / "bench")))
        return inherited | {"PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed)} | self._env

    def start(self, number: int) -> None:
        """Start server `number`; does not wait for anything."""
        server = self.servers[number]
        assert not server.running, f"server {number} runs already"
        server.starts += 1
        server.begin_log()
        with server.log.open("ab") as log:
            server.process = subprocess.Popen(
                self.command(number),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(100 * number + server.starts),
                cwd=self.directory,
            )

    def start_all(self) -> None:
        """Start all servers and wait until they serve; other ports if somebody took one in between."""
        for attempt in range(START_ATTEMPTS):
            for number in self.servers:
                self.start(number)
            try:
                self.wait_ready()
                return
            except ServerDiedError as error:
                if "cannot listen" not in str(error) or attempt == START_ATTEMPTS - 1:
                    raise
                for number, server in self.servers.items():
                    self.kill(number)
                    shutil.rmtree(server.data, ignore_errors=True)
                    server.log.unlink(missing_ok=True)
                self._place(len(self.servers))

    def run_beside(self, number: int, *, data: Path, elsewhere: bool = False) -> subprocess.Popen[bytes]:
        """A second process with the identity of server `number`, on the directory `data`; its log is on stdout.

        `elsewhere`: it listens at another port, since the first one is running.
        """
        command = self.command(number, data=data)
        if elsewhere:
            here, there = self.servers[number].address, Address(self.host, *free_ports(1, self.host))
            command = [word.replace(str(here), str(there)) for word in command]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment(number),
            cwd=self.directory,
        )
        self._extra.append(process)
        return process

    def kill(self, number: int, how: signal.Signals = signal.SIGKILL) -> int:
        """End server `number` and wait for its end; the exit code. Nothing happens if it has ended."""
        process = self.servers[number].process
        assert process is not None, f"server {number} was never started"
        if process.poll() is None:
            process.send_signal(how)
        return process.wait(DEADLINE_S)

    def wait_exit(self, number: int) -> int:
        """The exit code of a server that ends by itself."""
        process = self.servers[number].process
        assert process is not None, f"server {number} was never started"
        return process.wait(DEADLINE_S)

    def stop(self, number: int) -> None:
        """SIGSTOP: the process stands still, its sockets stay."""
        self._signal(number, signal.SIGSTOP)

    def cont(self, number: int) -> None:
        self._signal(number, signal.SIGCONT)

    def _signal(self, number: int, what: signal.Signals) -> None:
        process = self.servers[number].process
        assert process is not None, f"server {number} was never started"
        assert process.poll() is None, f"server {number} does not run"
        process.send_signal(what)

    def wipe(self, number: int) -> None:
        """Empty the directory of a server that does not run."""
        server = self.servers[number]
        assert not server.running, f"server {number} runs"
        shutil.rmtree(server.data)
        server.data.mkdir()

    def cpu_s(self) -> dict[int, float]:
        """Processor time that each running server has used, in seconds."""
        found = {}
        for number, server in self.servers.items():
            if server.running and server.process is not None:
                fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
                found[number] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return found

    def resident_bytes(self, number: int) -> int:
        """Memory of server `number` (VmRSS)."""
        process = self.servers[number].process
        assert process is not None, f"server {number} was never started"
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"server {number}: the kernel shows no VmRSS")

    # -- what servers say

    def hosts(self, first: int | None = None) -> str:
        """A ZooKeeper connection string, server `first` in front."""
        numbers = sorted(self.servers, key=lambda n: (n != first, n))
        return ",".join(str(self.servers[n].address) for n in numbers)

    def ask(self, number: int, word: str) -> str | None:
        """The answer to a four-letter word, None if nobody answers.

        Raises:
            ServerDiedError: because the process has ended by itself.
        """
        server = self.servers[number]
        if server.process is not None and server.process.poll() is not None:
            raise ServerDiedError(
                f"server {number} ended with code {server.process.returncode}:\n{server.log_tail()}"
            )
        try:
            return ask(server.address, word, ASK_TIMEOUT_S)
        except UnreachableError:
            return None

    def mntr(self, number: int) -> dict[str, str] | None:
        """`mntr` without the prefix zk_; None while the server does not serve."""
        return read_mntr(self.ask(number, "mntr") or "")

    def running(self) -> list[int]:
        return [number for number, server in self.servers.items() if server.running]

    def leader(self) -> int | None:
        """The one running server that says it leads; None if none or, for a moment, two do."""
        leaders = [n for n in self.running() if "Mode: leader" in (self.ask(n, "srvr") or "")]
        return leaders[0] if len(leaders) == 1 else None

    def _ready(self, numbers: Iterable[int]) -> int | None:
        leaders = []
        for number in numbers:
            answer = self.ask(number, "srvr") or ""
            if self.ask(number, "ruok") != "imok" or "Mode: " not in answer:
                return None
            if "Mode: leader" in answer or "Mode: standalone" in answer:
                leaders.append(number)
        return leaders[0] if len(leaders) == 1 else None

    def wait_ready(self, numbers: Iterable[int] | None = None) -> int:
        """Until all `numbers` (all servers) answer `ruok` and serve, and exactly one leads; which one."""
        expected = sorted(self.servers if numbers is None else numbers)
        return wait_until(lambda: self._ready(expected), f"servers {expected} to serve with one leader")

    def wait_equal_digests(self) -> tuple[int, str]:
        """Until all servers show the same index; (index, digest), which must then be the same, too (D-26).

        Nobody may write meanwhile.
        """

        def same_index() -> list[dict[str, str]] | None:
            found = [self.mntr(number) for number in self.servers]
            shown = [one for one in found if one is not None]
            # A server with much undigested, such as after a start, shows a digest some moments later.
            indexes = {one.get("state_digest_index", "pending") for one in shown}
            commits = {one["raft_commit_index"] for one in shown}
            return (
                shown
                if len(shown) == len(self.servers) and indexes == commits and len(indexes) == 1
                else None
            )

        shown = wait_until(same_index, "all servers to have applied the same index")
        digests = {one["state_digest"] for one in shown}
        assert len(digests) == 1, f"states differ at index {shown[0]['state_digest_index']}: {digests}"
        return int(shown[0]["state_digest_index"]), shown[0]["state_digest"]
