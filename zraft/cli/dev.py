"""The supervisor behind `zraft dev`: real server processes on a loopback address, started, watched and stopped.

It starts what an operator would start by hand and knows a server only by its process, its log file and its
four-letter words. A server that dies is reported, and started again only if the user asked for that: a developer should
see it.
"""

from __future__ import annotations

import os
import secrets
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from zraft.cli.dev_clusters import DevCluster, announced
from zraft.cli.status import LEADING_MODES, UnreachableError, ask, server_status
from zraft.program.listening import cannot_listen
from zraft_core.address import Address
from zraft_core.errors import ConfigError, ZraftError

HOST: Final = "127.0.0.1"
POLL_S: Final = 0.05
"""Seconds between two looks at servers that do not serve yet."""
ASK_TIMEOUT_S: Final = 1.0
READY_TIMEOUT_S: Final = 120.0
"""Seconds, enough to replay a large log on a slow machine; beyond it something is wrong that waiting does not mend."""
WAITING_NOTICE_S: Final = 10.0
GRACE_S: Final = 10.0
"""Seconds from SIGTERM to SIGKILL: a server has a log to sync and clients to close, both far below this."""
ADMIN_PORT_OFFSET: Final = 100
"""The distance from a server's client port to its admin port: 2281 for 2181."""
RESTART_S: Final = 1.0
"""Seconds from the first death of a server to its next start, with --restart; twice as many after each further one."""
RESTART_S_MAX: Final = 60.0
STEADY_S: Final = 60.0
"""A server that ran for so long before it died begins anew with the first pause."""
CONSOLE_TOKEN: Final = "ZRAFT_ADMIN__CONSOLE_TOKEN"
CONSOLE_TOKEN_BYTES: Final = 24
LOG_TAIL_LINES: Final = 20
LOG_TAIL_BYTES: Final = 16_384

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StartError(ZraftError):
    """A server died, or did not serve in time, before all were ready."""


class _Stopped(Exception):
    """The user asked to stop while the servers were still starting."""


class Child:
    """One server process that we started, and how to start it again by hand."""

    __slots__ = (
        "address",
        "admin",
        "command",
        "data",
        "environment",
        "log",
        "pause_s",
        "process",
        "server",
        "started",
    )

    def __init__(
        self,
        server: int,
        address: Address,
        admin: Address | None,
        data: Path,
        log: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        self.server = server
        self.address = address
        self.admin = admin
        self.data = data
        self.log = log
        self.command = list(command)
        self.environment = environment
        self.pause_s: float | None = None
        """The pause before its last restart; None if it never was restarted."""
        self.start()

    def start(self) -> None:
        """Start it, for the first time or again after it died."""
        # Each start has a fresh log; the one before is kept, because it may be why the user starts again.
        if self.log.exists():
            self.log.replace(self.log.with_name(self.log.name + ".1"))
        self.started = time.monotonic()
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                # It has its own process group: Ctrl-C in the terminal reaches us alone, and we stop the servers.
                process_group=0,
            )

    def line(self) -> str:
        """Return what `zraft dev` prints about it."""
        data = shlex.quote(str(self.data))
        admin = "-" if self.admin is None else f"http://{self.admin}/"
        return f"server {self.server} address={self.address} pid={self.process.pid} data={data} admin={admin}"

    def death(self) -> str | None:
        """Return how it ended, in words; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        if code < 0:
            return f"server {self.server} (pid {self.process.pid}) was ended by {signal.Signals(-code).name}"
        return f"server {self.server} (pid {self.process.pid}) exited with code {code}"

    def log_tail(self) -> str:
        """Return the last lines of its log, indented."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
            lines = log.read().decode("utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join(f"    {line}" for line in lines) or "    (empty)"


def restart_pause(before_s: float | None, ran_s: float) -> float:
    """Return how many seconds to wait before a server that died is started again: longer each time, unless it was steady.

    Args:
        before_s: the pause before its last restart; None if it never was restarted.
        ran_s: how long it ran until it died.
    """
    if before_s is None or ran_s >= STEADY_S:
        return RESTART_S
    return min(2 * before_s, RESTART_S_MAX)


ServeCommand = Callable[[int, Address, Address | None, Path, str, Path | None, Sequence[str]], list[str]]


def serve_command(
    server: int,
    address: Address,
    admin: Address | None,
    data: Path,
    cluster: str,
    key_file: Path | None,
    settings: Sequence[str],
) -> list[str]:
    """Return what starts one server, as its user would type it but for the interpreter."""
    command = [sys.executable, "-m", "zraft", "serve", "--id", str(server), "--data", str(data)]
    command += ["--address", str(address), "--cluster", cluster]
    if admin is not None:
        command += ["--admin", str(admin)]
    if key_file is not None:
        command += ["--key", str(key_file)]
    for setting in settings:
        command += ["--set", setting]
    return command


def run_dev(
    *,
    servers: int,
    port: int,
    data: Path,
    host: str = HOST,
    admin_port: int | None = None,
    settings: Sequence[str] = (),
    restart: bool = False,
    command: ServeCommand = serve_command,
) -> int:
    """Start `servers` servers from `port` on, say `ready` when all serve, wait for Ctrl-C, stop them.

    With `restart`, a server that dies after that is started again, after a pause that grows from time to time.

    `admin_port` is that of the first server's admin HTTP server, 0 for none; not given, it is `port` + 100, and a
    server whose port is taken there goes without.

    Returns:
        The exit code: 0 when the user stopped it, 1 when all servers died by themselves.

    Raises:
        ConfigError: the ports are taken, or the data directory is of a cluster of another size.
        StartError: a server died or did not serve in time; all others are stopped before it is raised.
    """
    if port + servers - 1 > 65_535:
        raise ConfigError(f"--port: found {port}, expected at most {65_536 - servers} for {servers} servers")
    addresses = {server: Address(host, port + server - 1) for server in range(1, servers + 1)}
    admins = _admin_addresses(addresses, port, admin_port)
    data = data.absolute()
    for address in addresses.values():
        _require_free(address)
    _prepare_data(data, servers)
    key_file = None
    if servers > 1:
        key_file = data / "cluster.key"
        if not key_file.exists():
            from zraft.transport.keys import create_key_file

            create_key_file(key_file)

    # It lives as long as this process and its children: other users of the machine cannot read their environment.
    token = secrets.token_urlsafe(CONSOLE_TOKEN_BYTES)
    environment = {CONSOLE_TOKEN: token, **os.environ}
    children: list[Child] = []
    cluster_made = DevCluster(tuple(addresses.values()), data, key_file)
    with announced(cluster_made, os.environ, _say), _signals() as woken:
        try:
            cluster = ",".join(f"{server}={address}" for server, address in addresses.items())
            for server, address in addresses.items():
                directory = data / f"server-{server}"
                admin = admins.get(server)
                start = command(server, address, admin, directory, cluster, key_file, settings)
                children.append(
                    Child(
                        server, address, admin, directory, data / f"server-{server}.log", start, environment
                    )
                )
                _say(children[-1].line())
            _wait_ready(children, woken)
            if admins:
                _say(
                    f"console, signed in: http://{min(admins.items())[1]}/#token={environment[CONSOLE_TOKEN]}"
                )
            _say("ready")
            return _watch(children, woken, restart=restart)
        except _Stopped:
            return 0
        finally:
            _stop(children)


def _say(text: str) -> None:
    # Flushed line by line: a program that starts `zraft dev` waits for `ready` on a pipe.
    print(text, flush=True)


def _number(name: str) -> int:
    """Return the number of a server's directory; 0 if it is none of ours."""
    digits = name.removeprefix("server-")
    return int(digits) if digits.isdecimal() else 0


def _prepare_data(data: Path, servers: int) -> None:
    try:
        present = {path.name for path in data.glob("server-*") if path.is_dir()}
        expected = {f"server-{server}" for server in range(1, servers + 1)}
        # A directory that is missing below the highest number was lost: its server joins again with an empty one.
        held = max(map(_number, present), default=servers)
        if held != servers:
            raise ConfigError(
                f"--servers: found {servers}, but {data} holds a cluster of {held} "
                f"({', '.join(sorted(present))}); pass --servers {held} or another --data"
            )
        for name in expected:
            (data / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--data: cannot use {data}: {error}") from error


def _admin_addresses(
    addresses: Mapping[int, Address], port: int, admin_port: int | None
) -> dict[int, Address]:
    """Return where each server's admin HTTP server is to listen; a server that is not in it has none."""
    if admin_port == 0:
        return {}
    first = port + ADMIN_PORT_OFFSET if admin_port is None else admin_port
    if admin_port is None and first + len(addresses) - 1 > 65_535:
        first = port - ADMIN_PORT_OFFSET
    if first + len(addresses) - 1 > 65_535:
        raise ConfigError(
            f"--admin-port: found {first}, expected at most {65_536 - len(addresses)} for {len(addresses)} servers"
        )
    admins = {server: Address(one.host, first + server - 1) for server, one in addresses.items()}
    both = set(admins.values()) & set(addresses.values())
    if both:
        raise ConfigError(f"--admin-port: {min(both)} is also where clients connect; choose other ports")
    for server, admin in list(admins.items()):
        taken = _taken(admin, socket.SOCK_STREAM)
        if taken is None:
            continue
        if admin_port is not None:
            raise ConfigError(f"--admin-port: cannot listen on {admin}: {taken}")
        _say(f"server {server} goes without an admin server, {admin} is taken; choose with --admin-port")
        del admins[server]
    return admins


def _require_free(address: Address) -> None:
    for kind, name in ((socket.SOCK_STREAM, "tcp"), (socket.SOCK_DGRAM, "udp")):
        taken = _taken(address, kind)
        if taken is not None:
            raise ConfigError(f"--port: cannot listen on {address} ({name}): {taken}")


def _taken(address: Address, kind: socket.SocketKind) -> str | None:
    """Return why nobody can listen there now, None if one can."""
    with socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET, kind) as probe:
        if kind == socket.SOCK_STREAM:
            # The server will do the same: connections of a cluster stopped a moment ago do not keep the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            return cannot_listen(error)
    return None


class _Woken:
    """Record of which signals came, which lets a wait end early when one does."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.stopping = False

    def wait(self, seconds: float | None) -> None:
        """Wait until a signal comes or the time is over; set `stopping` if it was a signal to stop."""
        readable, _, _ = select.select([self._descriptor], [], [], seconds)
        if readable:
            numbers = os.read(self._descriptor, 4_096)
            self.stopping = self.stopping or any(number in STOP_SIGNALS for number in numbers)


@contextmanager
def _signals() -> Iterator[_Woken]:
    """Turn signals into bytes on a pipe while inside, so that nothing is interrupted half-way (self-pipe)."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # A handler must exist for Python to write the byte, and it does nothing. Under nohup SIGHUP is ignored on
    # purpose and stays so.
    handled = [
        number
        for number in (*STOP_SIGNALS, signal.SIGCHLD)
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, lambda _number, _frame: None) for number in handled}
    wakeup_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield _Woken(reader)
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _wait_ready(children: Sequence[Child], woken: _Woken) -> None:
    """Wait until every server answers `ruok` and exactly one leads."""
    started = time.monotonic()
    noticed = started
    while True:
        for child in children:
            death = child.death()
            if death is not None:
                raise StartError(f"{death} before it served; the end of {child.log}:\n{child.log_tail()}")
        missing = _not_ready(children)
        if missing is None:
            return
        now = time.monotonic()
        if now - started > READY_TIMEOUT_S:
            tails = "\n".join(f"the end of {child.log}:\n{child.log_tail()}" for child in children)
            raise StartError(f"not ready after {READY_TIMEOUT_S:.0f} s: {missing}\n{tails}")
        if now - noticed > WAITING_NOTICE_S:
            noticed = now
            _say(f"waiting for {missing}")
        woken.wait(POLL_S)
        if woken.stopping:
            raise _Stopped


def _not_ready(children: Sequence[Child]) -> str | None:
    """Return what is still missing, in words; None when all serve."""
    leaders = 0
    for child in children:
        try:
            if ask(child.address, "ruok", ASK_TIMEOUT_S) != "imok":
                return f"server {child.server} to answer imok"
            status = server_status(child.address, ASK_TIMEOUT_S)
        except UnreachableError:
            return f"server {child.server} to listen"
        if status is None or status.mode not in (*LEADING_MODES, "follower"):
            return f"server {child.server} to serve"
        leaders += status.mode in LEADING_MODES
    return None if leaders == 1 else "one leader"


def _watch(children: Sequence[Child], woken: _Woken, *, restart: bool) -> int:
    """Report deaths until the user stops us (0) or nothing is left to watch (1); with `restart`, start the dead again."""
    alive = list(children)
    due: dict[Child, float] = {}
    while alive or due:
        for child in list(alive):
            death = child.death()
            if death is None:
                continue
            alive.remove(child)
            _say(f"{death}; the end of {child.log}:\n{child.log_tail()}")
            if restart:
                now = time.monotonic()
                child.pause_s = restart_pause(child.pause_s, now - child.started)
                due[child] = now + child.pause_s
                _say(f"server {child.server} is started again in {child.pause_s:g} s")
            else:
                _say(f"it is not restarted; to start it by hand:\n    {shlex.join(child.command)}")
        if not alive and not due:
            _say("no server is left")
            return 1
        now = time.monotonic()
        for child in [one for one, at in due.items() if at <= now]:
            del due[child]
            child.start()
            alive.append(child)
            _say(child.line())
        woken.wait(max(0.0, min(due.values()) - time.monotonic()) if due else None)
        if woken.stopping:
            _say("stopping")
            return 0
    return 1


def _stop(children: Sequence[Child]) -> None:
    """Send SIGTERM to each that runs, and SIGKILL to what is left after the grace period. Only pids we started."""
    for child in children:
        child.process.terminate()
    deadline = time.monotonic() + GRACE_S
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()
            _say(f"server {child.server} did not stop within {GRACE_S:g} s and was killed")
