"""Servers for tests: one or several in this process, with faults that a test can cause.

Each server is the one that `zraft serve` runs, with its own thread and event loop, listening on 127.0.0.1 at a port that
the kernel chose. Its data is in a temporary directory that is not synced: it survives `kill` and `restart`, and is removed
at the end.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from zraft.config.knobs import load_config
from zraft.program.listening import bind_tcp, bind_udp
from zraft.raft.role import Role
from zraft.server.process.listening_sockets import ListeningSockets
from zraft.server.process.node import Node
from zraft.server.process.surroundings import Surroundings
from zraft.storage.filesystem import UnsyncedFileSystem
from zraft.testing.errors import ZraftTestError
from zraft.testing.logs import release_logger, use_logger
from zraft.testing.network import ServerNetwork
from zraft.testing.server_thread import ServerThread
from zraft_core.address import Address
from zraft_core.errors import Code, ConfigError
from zraft_core.ids import ServerId
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.registry_commands import DeleteTopic
from zraft_core.znodes.txn import CREATE, DELETE, TOPICS, Command

if TYPE_CHECKING:
    from zraft.config.server import ServerConfig
    from zraft_client import BlockingClient

T = TypeVar("T")
S = TypeVar("S", bound="_Servers")

HOST: Final = "127.0.0.1"
WITHIN_S: Final = 30.0
"""The time after which `start` and everything that waits give up and say what is missing."""
POLL_S: Final = 0.001
PORT_TRIES: Final = 50
EXPIRE_AGAIN_S: Final = 0.1
"""The time after which the end of a session is proposed again, if it did not come."""
SERVERS_MAX: Final = 9
DICTIONARIES: Final = "/zraft/dictionaries"
"""The directory of the dictionaries of `zraft_client` (docs/reference/protocol-native.md)."""
CLEANING_ROUNDS: Final = 5
"""How often what a test left is looked for and removed, while its clients may still create more."""

SETTINGS: Final[Mapping[str, object]] = {
    "tick_time_ms": 500,
    "session_timeout_ms_max": 600_000,
    "wal.segment_bytes_max": 4_194_304,
    "deliveries.segment_bytes_max": 4_194_304,
    "client.four_letter_words": "*",
}
"""The settings of servers inside a test that differ from the defaults: short sessions, small files, all words."""

OURS: Final = frozenset({"id", "data", "address", "cluster", "key", "insecure_peers", "founds"})
"""The settings that no test chooses."""

ALONE: Final[Mapping[str, object]] = {
    "session_timeout_ms_min": 1_000,
    "raft.election_timeout_ticks": 150,
    "raft.heartbeat_ticks": 20,
}
"""The same of one server, which elects itself. A turn counts at most 100 ms, so one that comes late ends no leadership."""

TOGETHER: Final[Mapping[str, object]] = {"session_timeout_ms_min": 2_000}
"""The same of several servers. A third of it is longer than most elections, so clients keep their connections (D-14)."""


class _Member:
    """One server of the test: where it is, what it keeps, and the thread in which it runs, if it does."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.network = ServerNetwork()
        self.thread: ServerThread | None = None
        self.sockets: tuple[socket.socket, socket.socket] | None = _any_port()
        """The sockets for the next start, for TCP and UDP. They hold the port while the server does not run."""
        self.port: Final[int] = self.sockets[0].getsockname()[1]

    @property
    def running(self) -> bool:
        return self.thread is not None and self.thread.running

    @property
    def alive(self) -> bool:
        """True if the server runs and is not paused."""
        return self.thread is not None and self.thread.running and not self.thread.paused

    @property
    def node(self) -> Node | None:
        return self.thread.node if self.thread is not None and self.thread.running else None

    def hold_port(self) -> None:
        """Bind the port again, so that nobody else gets it until the server is started again."""
        address = Address(HOST, self.port)
        (tcp,) = bind_tcp("address", address)
        try:
            self.sockets = tcp, bind_udp("address", address)
        except ConfigError:
            tcp.close()
            raise

    def release_port(self) -> None:
        if self.sockets is not None:
            for one in self.sockets:
                one.close()
            self.sockets = None


def _any_port() -> tuple[socket.socket, socket.socket]:
    """Return a TCP and a UDP socket at the same port, which was free for both."""
    for _ in range(PORT_TRIES):
        (tcp,) = bind_tcp("address", Address(HOST, 0))
        try:
            return tcp, bind_udp("address", Address(HOST, tcp.getsockname()[1]))
        except ConfigError:
            tcp.close()
    raise ZraftTestError(f"no port of {HOST} is free for TCP and UDP alike, after {PORT_TRIES} tries")


class _Servers:
    """What one server and several have in common."""

    def __init__(self, count: int, settings: Mapping[str, object] | None) -> None:
        if not 1 <= count <= SERVERS_MAX:
            raise ValueError(f"servers: found {count}, expected 1 to {SERVERS_MAX}")
        for name in OURS.intersection(settings or ()):
            raise ConfigError(f"{name} (in settings): is chosen by the test's servers themselves")
        self._count = count
        self._settings = {**SETTINGS, **(TOGETHER if count > 1 else ALONE), **(settings or {})}
        self._members: dict[int, _Member] = {}
        self._data: Path | None = None
        self._process = os.getpid()
        self._shares = 0
        self._lock = threading.RLock()

    # -- life

    def start(self) -> Self:
        """Start all servers and wait until they serve clients.

        Raises:
            ConfigError: a setting is unknown or has an impossible value.
            ZraftTestError: the servers run already, or do not come to serve.
        """
        with self._lock:
            if self._data is not None:
                raise ZraftTestError(
                    "the servers have been started already; use another object to start others"
                )
            self._process = os.getpid()
            use_logger()
            self._data = Path(tempfile.mkdtemp(prefix="zraft-test-"))
            atexit.register(self.stop)
            try:
                self._members = {number: _Member(number) for number in range(1, self._count + 1)}
                for number in self._members:
                    self._begin(number)
                for number in self._members:
                    self._made(number)
                self.wait_ready()
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Stop all servers and remove their data. Clients that are still connected lose their connections."""
        if os.getpid() != self._process:
            return  # in a forked child: the servers are the parent's
        with self._lock:
            if self._data is None:
                return
            threads = [one.thread for one in self._members.values() if one.thread is not None]
            for thread in threads:
                thread.begin_kill()
            for thread in threads:
                thread.join()
            for one in self._members.values():
                one.release_port()
                one.thread = None
            shutil.rmtree(self._data, ignore_errors=True)
            self._data = None
            self._members = {}
            atexit.unregister(self.stop)
            release_logger()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _config(self, number: int) -> ServerConfig:
        assert self._data is not None
        cluster = {ServerId(one.number): Address(HOST, one.port) for one in self._members.values()}
        flags = {
            "id": number,
            "data": self._data / str(number),
            "address": cluster[ServerId(number)],
            "cluster": cluster,
            "insecure_peers": True,
        }
        return load_config(flags={**self._settings, **flags}, environ={}, flags_source="in settings")

    def _begin(self, number: int) -> None:
        member = self._members[number]
        config = self._config(number)
        config.data.mkdir(mode=0o700, exist_ok=True)
        if member.sockets is None:
            member.hold_port()
        assert member.sockets is not None
        tcp, udp = member.sockets
        member.sockets = None
        with ExitStack() as stack:
            stack.enter_context(tcp)
            stack.enter_context(udp)
            opened = stack.pop_all()
        surroundings = Surroundings(
            fs=UnsyncedFileSystem(),
            endpoint=member.network.endpoint,
            dial=member.network.dial,
            owns_process=False,
        )
        member.thread = ServerThread(config, ListeningSockets(udp, (tcp,)), opened, surroundings)

    def _made(self, number: int) -> None:
        thread = self._members[number].thread
        assert thread is not None
        thread.wait_made()

    def wait_ready(self, within_s: float = WITHIN_S) -> None:
        """Wait until a server leads, and all that can be in touch with it serve clients.

        Servers that were killed, are paused, or are cut off from the majority are not waited for.

        Raises:
            ZraftTestError: a server has ended, or the time is over; the message says what is missing.
        """
        self._wait(lambda: self._missing() is None, within_s, lambda: self._missing() or "nothing")

    def _missing(self) -> str | None:
        """Return what clients would have to wait for, in words."""
        if self._leader() is None:
            return "no server leads"
        for node in self._in_touch():
            if not node.driver.serving:
                return f"server {node.config.id} does not serve"
            level = node.driver.machine.feature_level
            if level < node.config.features_max:
                return f"server {node.config.id} is at feature level {level}, expected {node.config.features_max}"
        return None

    def _leads(self, member: _Member) -> bool:
        """Return whether a server leads and reaches a majority; one that was just cut off may not know that it does not."""
        node = member.node
        return (
            node is not None
            and node.driver.role is Role.LEADER
            and node.driver.leadership is not None
            and node.driver.serving
            and self._is_in_touch(member)
        )

    def _is_in_touch(self, member: _Member) -> bool:
        """Return whether a server runs, is not paused, and reaches a majority, itself included."""
        others = [one for one in self._members.values() if one.port not in member.network.unreachable]
        return member.alive and 2 * sum(one.alive for one in others) > self._count

    def _in_touch(self) -> list[Node]:
        return [one.node for one in self._members.values() if one.node is not None and self._is_in_touch(one)]

    def _wait(self, holds: Callable[[], bool], within_s: float, why: Callable[[], str]) -> None:
        give_up_at = time.monotonic() + within_s
        while not holds():
            self._raise_failures()
            if time.monotonic() >= give_up_at:
                raise ZraftTestError(f"waited {within_s:g} s: {why()}")
            time.sleep(POLL_S)

    @property
    def serves(self) -> bool:
        """True if all servers run, serve clients, and are neither paused nor cut off."""
        return bool(self._members) and self._missing() is None and len(self._in_touch()) == self._count

    def _raise_failures(self) -> None:
        """Raise if a server ended that nobody killed."""
        for one in self._members.values():
            if one.thread is not None and one.thread.failure is not None:
                error = one.thread.failure
                raise ZraftTestError(f"server {one.number} ended: {error}") from error

    # -- where clients connect

    @property
    def hosts(self) -> str:
        """The addresses of all servers, as clients of ZooKeeper and of zraft take them: `127.0.0.1:40001,…`."""
        return ",".join(f"{HOST}:{one.port}" for one in self._started())

    def _started(self) -> Collection[_Member]:
        if not self._members:
            raise ZraftTestError("the servers do not run: use `with`, or call start()")
        return self._members.values()

    def client(self, **options: Any) -> BlockingClient:
        """Return a connected client of `zraft_client`, which the caller closes.

        Args:
            options: arguments of `zraft_client.BlockingClient`, such as `timeout_s`.
        """
        from zraft_client import BlockingClient

        return BlockingClient(self.hosts, **options)

    # -- a part for one test

    @contextmanager
    def share(self, name: str = "test") -> Iterator[ServerShare[Self]]:
        """Return a part of the servers for one test, and remove what is in it at the end.

        Args:
            name: is part of the names, for whoever looks at the data.
        """
        with self._lock:
            self._shares += 1
            word = f"{re.sub(r'[^A-Za-z0-9]+', '-', name)[:60].strip('-') or 'test'}-{self._shares}"
        share = ServerShare(self, f"/{word}", f"{word}-")
        result = self._execute((CREATE, share.chroot, b"", None, 0, 0))
        if isinstance(result, Code):
            raise ZraftTestError(f"{share.chroot} cannot be created: {result.name}")
        try:
            yield share
        finally:
            if self._leader() is not None:
                self._clean(share)

    def _clean(self, share: ServerShare[Any]) -> None:
        for _ in range(CLEANING_ROUNDS):
            paths, topics = self._on_leader(partial(_left, share=share))
            if not paths and not topics:
                return
            results = self._execute_all(
                [
                    *((TOPICS, encode_registry(DeleteTopic(name))) for name in topics),
                    *((DELETE, path, -1) for path in paths),
                ]
            )
            if not topics and Code.NOT_EMPTY not in results:
                return

    def _on_leader(self, function: Callable[[Node], T]) -> T:
        """Return what `function` returns in the thread of the server that leads."""
        self._wait(lambda: self._leader() is not None, WITHIN_S, lambda: "no server leads")
        member = self._leader()
        if member is None or member.thread is None:
            raise ZraftTestError("no server leads any more")
        return member.thread.call(function)

    def _leader(self) -> _Member | None:
        """Return the server that leads: of two that believe it, the one that was elected later."""
        leaders = [one for one in self._members.values() if self._leads(one)]
        return max(leaders, key=_term, default=None)

    def _execute(self, command: Command) -> object:
        return self._execute_all([command])[0]

    def _execute_all(self, commands: list[Command]) -> list[object]:
        """Return the results of commands that were put into the log with all rights."""
        results: list[object] = []
        done = threading.Event()

        def on_result(result: object) -> None:
            results.append(result)
            if len(results) == len(commands):
                done.set()

        def submit(node: Node) -> None:
            for command in commands:
                node.driver.submit_as_super(command, on_result, 0)
            node.schedule()

        if commands:
            self._on_leader(submit)
            if not done.wait(WITHIN_S):
                raise ZraftTestError(
                    f"waited {WITHIN_S:g} s for {len(commands)} writes; is there a majority?"
                )
        return results

    # -- faults

    def expire(self, session_id: int) -> None:
        """Expire a session at once, as if its client had been silent: its ephemerals and connection end everywhere.

        The client reconnects and learns that its session has expired.

        Raises:
            ZraftTestError: there is no such session.
        """
        proposed = None
        while proposed is None:
            proposed = self._on_leader(partial(_expire, session_id=session_id))
        if not proposed:
            raise ZraftTestError(f"session 0x{session_id:x} does not exist, or has expired already")
        again_at = time.monotonic() + EXPIRE_AGAIN_S
        while not self._is_over(session_id):
            # A proposal is void if the client writes before it is applied, and the leader may have changed.
            if time.monotonic() >= again_at:
                again_at = time.monotonic() + EXPIRE_AGAIN_S
                self._on_leader(partial(_expire, session_id=session_id))
            time.sleep(POLL_S)

    def _is_over(self, session_id: int) -> bool:
        """Return whether no server that is in touch knows the session any more."""
        self._raise_failures()
        return not any(session_id in node.driver.machine.sessions for node in self._in_touch())

    def _member(self, number: int) -> _Member:
        self._started()
        if number not in self._members:
            raise ValueError(f"server: found {number}, expected 1 to {self._count}")
        return self._members[number]

    def _running(self, number: int) -> ServerThread:
        member = self._member(number)
        if member.thread is None or not member.thread.running:
            raise ZraftTestError(f"server {number} does not run; start it with restart")
        return member.thread

    def _kill(self, number: int) -> None:
        with self._lock:
            thread = self._running(number)
            thread.begin_kill()
            thread.join()
            member = self._members[number]
            member.thread = None
            member.hold_port()

    def _restart(self, number: int) -> None:
        with self._lock:
            if self._member(number).running:
                self._kill(number)
            self._begin(number)
            self._made(number)


def _term(member: _Member) -> int:
    node = member.node
    return node.driver.raft.term if node is not None and node.driver.raft is not None else 0


def _expire(node: Node, session_id: int) -> bool | None:
    """Propose the end of a session; return False if there is none, None if this server does not lead any more."""
    if node.driver.leadership is None:
        return None
    known = node.driver.expire(session_id)
    node.schedule()
    return known


def _left(node: Node, share: ServerShare[Any]) -> tuple[list[str], list[str]]:
    """Return the znodes of a share, children before their parents, and the names of its topics."""
    machine = node.driver.machine
    beginnings = (share.chroot + "/", f"{DICTIONARIES}/{share.prefix}")
    paths = [path for path, _ in machine.nodes.items() if path == share.chroot or path.startswith(beginnings)]
    topics = [name for name in machine.registry.names if name.startswith(share.prefix)]
    return sorted(paths, key=lambda path: path.count("/"), reverse=True), topics


class ServerShare(Generic[S]):
    """One test's part of a server, or of a cluster, that many tests use.

    Attributes:
        servers: the `TestServer` or `TestCluster` itself.
        chroot: a znode of this test alone, such as `/test-lock-3`.
        prefix: to begin the names of this test's topics and dictionaries with, which have no chroot.
    """

    def __init__(self, servers: S, chroot: str, prefix: str) -> None:
        self.servers = servers
        self.chroot = chroot
        self.prefix = prefix

    @property
    def hosts(self) -> str:
        """The addresses with the chroot, for clients of ZooKeeper: `127.0.0.1:40001/test-lock-3`."""
        return self.servers.hosts + self.chroot

    @property
    def addresses(self) -> str:
        """The addresses alone, for `zraft_client`, which has no chroots: use `prefix` in names, `path` for znodes."""
        return self.servers.hosts

    def path(self, path: str) -> str:
        """Return a path below the chroot as clients without one name it: `/a` is `/test-lock-3/a`."""
        return self.chroot + path if path != "/" else self.chroot

    def client(self, **options: Any) -> BlockingClient:
        """Return a connected client of `zraft_client`, which the caller closes.

        Args:
            options: arguments of `zraft_client.BlockingClient`, such as `timeout_s`.
        """
        return self.servers.client(**options)

    def expire(self, session_id: int) -> None:
        """Expire a session at once; see `TestServer.expire`."""
        self.servers.expire(session_id)


class TestServer(_Servers):
    """One server inside a test.

    Used by `with`, `async with`, or `start` and `stop`. It may be used in any thread, and in asyncio: the server has a
    thread of its own, so a call that blocks for some milliseconds holds up no server.

    Args:
        settings: settings of the server, by the names of docs/reference/configuration.md, such as `{"tick_time_ms": 100}`.
    """

    __test__ = False  # no class of tests for pytest

    def __init__(self, *, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(1, settings)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 at which clients connect."""
        self._started()
        return self._members[1].port

    @property
    def host(self) -> str:
        """The address at which clients connect."""
        return HOST

    def kill(self) -> None:
        """End the server as SIGKILL would: connections break, nothing is handed over. `restart` starts it again."""
        self._kill(1)

    def restart(self) -> None:
        """Start the server again at the same port with the data it had, and wait until it serves; kill it if it runs."""
        self._restart(1)
        self.wait_ready()

    def pause(self) -> None:
        """Stop the server as SIGSTOP would: connections are accepted and stay, and nobody is answered."""
        self._running(1).pause()

    def resume(self) -> None:
        """Let a paused server go on."""
        self._running(1).resume()


class TestCluster(_Servers):
    """Several servers inside a test, numbered from 1.

    Used as `TestServer` is. Nothing is encrypted between the servers.

    Args:
        servers: how many, 1 to 9.
        settings: settings of every server, by the names of docs/reference/configuration.md.
    """

    __test__ = False  # no class of tests for pytest

    def __init__(self, servers: int = 3, *, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(servers, settings)

    @property
    def servers(self) -> tuple[int, ...]:
        """The numbers of all servers."""
        return tuple(range(1, self._count + 1))

    @property
    def leader(self) -> int:
        """The number of the server that leads; waits until one does.

        Raises:
            ZraftTestError: none does, such as without a majority.
        """
        self._started()
        self._wait(lambda: self._leader() is not None, WITHIN_S, lambda: "no server leads")
        member = self._leader()
        return member.number if member is not None else self.leader

    def hosts_of(self, *numbers: int) -> str:
        """Return the addresses of some servers, for clients that are to know no others."""
        return ",".join(f"{HOST}:{self._member(number).port}" for number in numbers)

    def kill(self, number: int) -> None:
        """End a server as SIGKILL would: connections break, nothing is handed over. `restart` starts it again."""
        self._kill(number)

    def restart(self, number: int) -> None:
        """Start a server again with the data it had; kill it if it runs. `wait_ready` waits until it serves."""
        self._restart(number)

    def pause(self, number: int) -> None:
        """Stop a server as SIGSTOP would: connections are accepted and stay, and nobody is answered."""
        self._running(number).pause()

    def resume(self, number: int) -> None:
        """Let a paused server go on."""
        self._running(number).resume()

    def partition(self, *groups: Collection[int]) -> None:
        """Cut the servers of different groups off from each other, until `heal` or the next `partition`.

        Clients reach every server all the time. Servers in no group are a further group: `partition([1])` isolates 1.

        Raises:
            ValueError: there is no such server, or one is in two groups.
        """
        named = [number for group in groups for number in group]
        for number in named:
            self._member(number)
        if len(set(named)) < len(named):
            raise ValueError(
                f"groups: found {list(map(list, groups))}, expected every server in one of them at most"
            )
        rest = [number for number in self.servers if number not in named]
        for group in (*groups, rest):
            unreachable = frozenset(one.port for one in self._started() if one.number not in group)
            for number in group:
                self._members[number].network.cut(unreachable)

    def heal(self) -> None:
        """Let all servers reach each other again."""
        for one in self._started():
            one.network.cut(frozenset())
