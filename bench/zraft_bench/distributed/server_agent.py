"""A server machine of a distributed benchmark: joins, starts a server, and restarts and stops it as the head says."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from zraft.cli.status import UnreachableError, server_status
from zraft_bench.cluster import ASK_TIMEOUT_S, server_environment, wait_until, zraft_command
from zraft_bench.distributed.board import Board
from zraft_bench.distributed.membership import HEAD
from zraft_bench.distributed.messages import END, RUN, End, Membership, Restart, RunInfo, ServerClaim
from zraft_bench.processes import ServerError, ServerProcess, free_ports
from zraft_bench.results import Machine
from zraft_core.address import Address

RUN_TIMEOUT_S: Final = 60.0


class RunningServer(Protocol):
    """One server. Its calls block."""

    def start(self) -> None:
        """Start the server and wait until it serves."""

    def restart(self) -> None:
        """Restart the server, and wait until it serves.

        Raises:
            ServerError: it does not.
        """

    def stop(self) -> None:
        """End the server."""


MakeServer = Callable[[int, Address, Membership], RunningServer]


class OwnServer:
    """A `zraft serve` process of this machine, with its data in `directory`."""

    def __init__(self, directory: Path, number: int, address: Address, member: Membership) -> None:
        self._address = address
        key = directory / "cluster.key"
        # The file is made with its mode: nobody else can read it at any moment.
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(member.key)
        command = zraft_command("serve", "--id", str(number), "--data", str(directory / f"server-{number}"))
        command += ["--address", str(address), "--cluster", member.cluster, "--key", str(key)]
        for setting in member.settings:
            command += ["--set", setting]
        self.process = ServerProcess(command, directory / f"server-{number}.log", server_environment())

    def start(self) -> None:
        """Start the process."""
        self.process.start()

    def wait_serving(self) -> None:
        """Wait until the server serves.

        Raises:
            ServerError: it ended, or does not serve in time.
        """

        def serving() -> bool | None:
            self.process.require_running()
            try:
                return server_status(self._address, ASK_TIMEOUT_S) is not None
            except UnreachableError:
                return None

        wait_until(serving, f"the server at {self._address} to serve")

    def restart(self) -> None:
        """End the process, start it again, and wait until it serves."""
        self.process.end()
        self.process.start()
        self.wait_serving()

    def stop(self) -> None:
        """End the process."""
        self.process.end()


class ServerAgent:
    """Agent of a server machine, which takes part with one server until the head ends the run."""

    def __init__(
        self,
        board: Board,
        address: Address,
        machine: Machine,
        make: MakeServer,
        *,
        say: Callable[[str], None],
    ) -> None:
        self._board = board
        self._address = address
        self._machine = machine
        self._make = make
        self._say = say

    async def run(self) -> str:
        """Take part; return why it ended.

        Raises:
            BoardError: the board was lost.
            ServerError: the server does not serve.
        """
        board = self._board
        await board.wait(lambda view: view.get(RunInfo, RUN), "a head that runs a benchmark", RUN_TIMEOUT_S)
        claim = ServerClaim(address=str(self._address), machine=self._machine)
        number = await board.claim("server", claim, first=HEAD + 1)
        self._say(f"server {number} at {self._address}, waiting to be let in")
        found: Membership | End = await board.wait(partial(_told, number), "the head to let this server in")
        if isinstance(found, End):
            return found.reason
        server = self._make(number, self._address, found)
        await asyncio.to_thread(server.start)
        try:
            return await self._serve(number, server)
        finally:
            await asyncio.to_thread(server.stop)

    async def _serve(self, number: int, server: RunningServer) -> str:
        self._say(f"server {number} runs")
        generation = 0
        while True:
            wish: Restart | End = await self._board.wait(
                partial(_wished, number, generation), "the head's next wish"
            )
            if isinstance(wish, End):
                await self._board.take_leave(f"bye/server/{number}", wish)
                return wish.reason
            generation = wish.generation
            self._say(f"restart {generation}")
            error = ""
            try:
                await asyncio.to_thread(server.restart)
            except ServerError as failure:
                error = str(failure)
            await self._board.put(f"restarted/{number}", Restart(generation=generation, error=error))


def _told(number: int, board: Board) -> Membership | End | None:
    return board.get(Membership, f"member/{number}") or board.get(End, END)


def _wished(number: int, generation: int, board: Board) -> Restart | End | None:
    end = board.get(End, END)
    if end is not None:
        return end
    wish = board.get(Restart, f"restart/{number}")
    return wish if wish is not None and wish.generation > generation else None


def address_towards(head: Address) -> Address:
    """Return where others reach this machine: its address towards the head, and a port that is free here."""
    family, kind, _, _, place = socket.getaddrinfo(head.host, head.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(place)  # sends nothing; it only asks for the route
        host = probe.getsockname()[0]
    return Address(host, free_ports(1, host)[0])
