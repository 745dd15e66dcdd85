"""A cluster whose members change while it runs: places for more servers, and what an operator asks it to do.

The `--cluster` of a server is what it was first started with and is never touched again, as in a unit file that
nobody edits: the founders list the founders, a later server lists those who were members when it was placed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster, Server, free_ports, wait_until
from tests.processes.workload import Adder, Sequencer, Setter, Worker, Workers
from zraft.operator.client import OperatorClient
from zraft.operator.requests import (
    Done,
    MemberAdd,
    MemberLine,
    MemberList,
    MemberListing,
    MemberPromote,
    MemberRemove,
    OperatorReply,
    OperatorRequest,
    Transfer,
)
from zraft.transport.keys import key_ring, read_keys
from zraft_core.address import Address
from zraft_core.ids import ServerId

OPERATOR_S: Final = 60.0

R = TypeVar("R", bound=OperatorReply)


class GrowingCluster(Cluster):
    """Servers that come and go; `servers` holds those that are, or are to be, members."""

    def __init__(self, directory: Path, *, servers: int = 3, env: Mapping[str, str] | None = None) -> None:
        self._lists: dict[int, str] = {}
        self._admin_ports: dict[int, int] = {}
        self.retired: dict[int, Server] = {}
        super().__init__(directory, servers=servers, env=env)

    def _place(self, count: int) -> None:
        super()._place(count)
        self._lists = dict.fromkeys(self.servers, self._list(self.servers))
        self._admin_ports = dict(zip(self.servers, free_ports(count, self.host), strict=True))

    def _list(self, servers: Mapping[int, Server]) -> str:
        return ",".join(f"{n}={s.address}" for n, s in servers.items())

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        command = super().command(number, data=data)
        command[command.index("--cluster") + 1] = self._lists[number]
        return [*command, "--admin", str(self._admin(number))]

    def _admin(self, number: int) -> Address:
        return Address(self.host, self._admin_ports[number])

    def place(self, number: int, *, note: str = "") -> Server:
        """Room for another server; `note` follows its own entry of `--cluster` (":observer")."""
        assert number not in self.servers
        (address,), (self._admin_ports[number],) = self.free_addresses(1), free_ports(1, self.host)
        self.servers[number] = server = Server(number, self.directory, address)
        shutil.rmtree(server.data, ignore_errors=True)
        self._lists[number] = self._list(self.servers) + note
        return server

    def move(self, number: int) -> Address:
        """Server `number`, which does not run, starts at another address from now on; where it was."""
        server = self.servers[number]
        assert not server.running, f"server {number} runs"
        before, (server.address,) = server.address, self.free_addresses(1)
        self._lists[number] = self._lists[number].replace(f"{number}={before}", f"{number}={server.address}")
        return before

    def retire(self, number: int) -> Server:
        """It is no member any more; it may go on running."""
        server = self.retired[number] = self.servers.pop(number)
        return server

    def end(self, server: Server) -> None:
        """Kill a retired server."""
        assert server.process is not None
        server.process.kill()
        server.process.wait()

    def __exit__(self, *args: object) -> None:
        for server in self.retired.values():
            if server.process is not None:
                server.process.kill()
                server.process.wait()
        super().__exit__(*args)

    def run_at(self, server: Server) -> subprocess.Popen[bytes]:
        """Run a server that shows the number of a member at a place of its own; `server.log` is its log."""
        founders = self.servers | {server.number: server}
        command = [
            *(sys.executable, "-m", "zraft", "serve", "--id", str(server.number), "--data", str(server.data)),
            *("--address", str(server.address), "--cluster", self._list(founders), "--key", str(self.key)),
        ]
        with server.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(7),
            )
        self._extra.append(process)
        return process

    # -- what servers say

    def status(self, number: int) -> dict[str, Any]:
        """`/status.json` of server `number`, member or not."""
        url = f"http://{self._admin(number)}/status.json"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    # -- operators

    def operate(self, request: OperatorRequest, reply: type[R]) -> R:
        """What `zraft member …` does, without starting an interpreter for it."""
        addresses: list[Address] = [server.address for server in self.servers.values() if server.running]
        with OperatorClient(
            addresses, key_ring(read_keys([self.key]), False), timeout_s=OPERATOR_S
        ) as client:
            return client.call(request, reply)

    def listing(self) -> dict[int, MemberLine]:
        return {line.server: line for line in self.operate(MemberList(), MemberListing).members}

    def add(self, number: int, *, observer: bool = False) -> None:
        self.operate(MemberAdd(ServerId(number), str(self.servers[number].address), observer), Done)

    def remove(self, number: int) -> None:
        self.operate(MemberRemove(ServerId(number)), Done)

    def promote(self, number: int) -> None:
        self.operate(MemberPromote(ServerId(number)), Done)

    def transfer(self, number: int | None = None) -> None:
        self.operate(Transfer(ServerId(number) if number is not None else None), Done)

    def roles(self) -> dict[int, str]:
        """Every member's part, {} while a change is under way."""
        listing = self.operate(MemberList(), MemberListing)
        return {} if listing.changing else {line.server: line.role for line in listing.members}

    def wait_roles(self, *, voters: Sequence[int], observers: Sequence[int] = ()) -> None:
        """Until exactly these are members, each with its part, and all of them serve."""
        expected = dict.fromkeys(voters, "voter") | dict.fromkeys(observers, "observer")
        found: dict[int, str] = {}

        def as_expected() -> bool:
            nonlocal found
            found = self.roles()
            return found == expected

        try:
            wait_until(as_expected, f"members {expected}")
        except AssertionError as error:
            raise AssertionError(f"{error}; found {found}") from error
        self.wait_ready(expected)

    def wait_replaced(self, number: int, before: bytes) -> None:
        """Until server `number` votes with another disk than `before`."""

        def is_replaced() -> bool:
            line = self.listing().get(number)
            return line is not None and line.instance not in (before, b"")

        wait_until(is_replaced, f"another disk of server {number}")
        self.wait_roles(voters=sorted(self.servers))

    def zraft(
        self, *arguments: str, only: int | None = None, timeout_s: float = OPERATOR_S
    ) -> subprocess.CompletedProcess[str]:
        """The real command, with this cluster's key and addresses, or that of server `only`."""
        asked = [s for n, s in self.servers.items() if s.running and only in (None, n)]
        connect = ",".join(str(server.address) for server in asked)
        return subprocess.run(
            [sys.executable, "-m", "zraft", *arguments, "--key", str(self.key), "--connect", connect],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=self.environment(0),
            check=False,
        )

    def shell(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command of `zraft shell`, at any of the servers."""
        return subprocess.run(
            [sys.executable, "-m", "zraft", "shell", "--connect", self.hosts(), *words],
            capture_output=True,
            text=True,
            timeout=OPERATOR_S,
            env=self.environment(0),
            check=False,
        )

    def term(self) -> int:
        """The term of the leader."""
        leader = wait_until(self.leader, "a leader")
        shown = wait_until(lambda: self.mntr(leader), "the leader's numbers")
        return int(shown["raft_term"])


class Load(Workers):
    """Clients that write all the time through changes, and are told of new servers as Curator's are."""

    def __init__(self, cluster: GrowingCluster, sessions: Sessions, *, sequencers: int = 2) -> None:
        setup = sessions.open(name="set-up")
        for path in ("/sequences", "/sets"):
            setup.ensure_path(path)
        sessions.close_one(setup)
        numbers = sorted(cluster.servers)

        def client(place: int, name: str) -> KazooClient:
            return sessions.open(first=numbers[place % len(numbers)], name=name)

        workers: list[Worker] = [
            *(Sequencer(client(n, f"sequencer-{n}"), f"sequencer-{n}") for n in range(sequencers)),
            Setter(client(sequencers, "setter"), "setter"),
            Adder(client(sequencers + 1, "adder"), "adder"),
        ]
        super().__init__(cluster, sessions, workers)
        self.start()
        self.wait_progress()

    def follow(self) -> None:
        """The clients know today's servers from their next connection on."""
        for worker in self.workers:
            worker.client.set_hosts(self.cluster.hosts())
