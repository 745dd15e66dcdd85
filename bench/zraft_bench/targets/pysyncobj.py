"""A connection to `pysyncobj_node`, and nodes of it on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgpack

from zraft_bench.cluster import wait_until
from zraft_bench.processes import HOST, ServerProcess, end_all, free_ports, total_cpu_s
from zraft_bench.targets.target import RequestFailedError
from zraft_core.address import Address, parse_address

PIPELINED: Final = 200
FIRST_WRITE_TIMEOUT_S: Final = 30.0
RETRY_S: Final = 0.2

NOTES: Final = (
    "PySyncObj: its journal is written without fsync; reads are of the asked node's own memory, never linearizable; each "
    "request passes a socket of the benchmark's, because PySyncObj has none for clients",
)


def importable() -> bool:
    """Return whether PySyncObj is installed."""
    return importlib.util.find_spec("pysyncobj") is not None


class PySyncObjTarget:
    """One connection to one of the nodes."""

    _spread = 0

    def __init__(self, hosts: str, place: str, linearizable: bool, deadline_s: float) -> None:
        addresses = [parse_address(part, "hosts") for part in hosts.split(",")]
        self._address: Address = addresses[PySyncObjTarget._spread % len(addresses)]
        PySyncObjTarget._spread += 1
        self._place = place
        self._deadline_s = deadline_s
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._number = 0
        self._waiting: dict[int, asyncio.Future[str | None]] = {}

    async def open(self) -> None:
        """Connect to the node and wait until its cluster has a leader.

        Raises:
            RequestFailedError: the node does not listen.
        """
        try:
            reader, self._writer = await asyncio.open_connection(self._address.host, self._address.port)
        except OSError as error:
            raise RequestFailedError(f"{self._address}: {error}") from error
        self._reading = asyncio.get_running_loop().create_task(self._read(reader))
        await self._until_led()

    async def _until_led(self) -> None:
        """Wait for a leader: PySyncObj refuses writes until it has one, and does not say when that is."""
        try:
            async with asyncio.timeout(FIRST_WRITE_TIMEOUT_S):
                while True:
                    with contextlib.suppress(RequestFailedError):
                        await self._ask(["first", b""])
                        return
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise RequestFailedError(f"PySyncObj took no write within {FIRST_WRITE_TIMEOUT_S:g} s") from None

    async def prepare(self, keys: Sequence[int], value: bytes) -> None:
        """Write a value to each key."""
        for first in range(0, len(keys), PIPELINED):
            await asyncio.gather(*(self.write(key, value) for key in keys[first : first + PIPELINED]))

    async def write(self, key: int, value: bytes) -> None:
        """Write a value to a key."""
        await self._ask([f"{self._place}/{key}", value])

    async def read(self, key: int) -> None:
        """Read a key's value."""
        await self._ask([f"{self._place}/{key}"])

    async def close(self) -> None:
        """Close the connection."""
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()

    async def _ask(self, request: list[object]) -> None:
        if self._writer is None:
            raise RequestFailedError("not connected")
        self._number += 1
        waiting: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = waiting
        self._writer.write(msgpack.packb([self._number, *request]))
        try:
            async with asyncio.timeout(self._deadline_s):
                error = await waiting
        except TimeoutError:
            raise RequestFailedError(f"no answer within {self._deadline_s:g} s", unknown=True) from None
        if error is not None:
            raise RequestFailedError(error)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        unpacker = msgpack.Unpacker()
        while data := await reader.read(65_536):
            unpacker.feed(data)
            for number, error in unpacker:
                waiting = self._waiting.pop(number)
                if not waiting.done():
                    waiting.set_result(error)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(RequestFailedError("the connection was lost", unknown=True))


class PySyncObjServers:
    """Nodes on loopback, their journals below `directory`."""

    def __init__(self, directory: Path, servers: int) -> None:
        ports = free_ports(2 * servers)
        self._client_ports, peers = ports[:servers], [f"{HOST}:{port}" for port in ports[servers:]]
        self._processes = []
        for n, port in enumerate(self._client_ports):
            addresses = ",".join([peers[n], *peers[:n], *peers[n + 1 :]])
            self._processes.append(
                ServerProcess(
                    [
                        *(sys.executable, "-m", "zraft_bench.targets.pysyncobj_node"),
                        *(addresses, str(port), str(directory / f"pysyncobj-{n}.journal")),
                    ],
                    directory / f"pysyncobj-{n}.log",
                )
            )

    @property
    def hosts(self) -> str:
        """The nodes' addresses, separated by commas."""
        return ",".join(f"{HOST}:{port}" for port in self._client_ports)

    @property
    def count(self) -> int:
        """The number of nodes."""
        return len(self._processes)

    def start(self) -> None:
        """Start all nodes and wait until they listen."""
        for process in self._processes:
            process.start()
        wait_until(self._listen, "PySyncObj's nodes to listen")

    def restart(self) -> None:
        """End all nodes and start them again."""
        self.stop()
        self.start()

    def _listen(self) -> bool | None:
        for process, port in zip(self._processes, self._client_ports, strict=True):
            process.require_running()
            with socket.socket() as probe:
                if probe.connect_ex((HOST, port)) != 0:
                    return None
        return True

    def cpu_s(self) -> float | None:
        """Return the CPU time of all nodes so far, in seconds."""
        return total_cpu_s(self._processes)

    def stop(self) -> None:
        """End all nodes."""
        end_all(self._processes)
