"""Measures many sessions: `python -m tests.processes.many_sessions [--sessions N] [--storm S] [--watches W]`.

Three servers have N sessions that only ping. S of them lose their connections at the same moment and come back to other
servers. Then W of them watch one znode, which is changed. A steady client writes and reads beside. Clients are
processes of their own, one for each server, as a process has a bounded number of files. What is printed is of everything
together on this machine: how soon the last one was served says as much of the clients as of the servers.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import click
import uvloop
from attrs import define
from kazoo.client import KazooClient

from tests.processes.cluster import Cluster
from tests.processes.storm import Latencies, Sample, Session, SteadyProcess, Storm
from zraft_core.address import Address, parse_address
from zraft_core.wire.opcodes import Opcode

TIMEOUT_MS: Final = 40_000
IDLE_S: Final = 20.0
SETTLE_S: Final = 3.0
BACK_S_MAX: Final = 60.0
NOTICED_S: Final = 0.1
"""Until this process has noticed that it cut its own connections."""
WATCHED: Final = "/steady-1"
"""The znode that is watched. The first steady client makes it, and has ended before anybody watches."""

SPARE_FILES: Final = 200


@define(eq=False)
class WatchingSession(Session):
    """A session that may watch `WATCHED`, once."""

    told_at: float | None = None

    def watch(self) -> None:
        assert self.transport is not None
        path = WATCHED.encode()
        body = struct.pack(">iii", 1, Opcode.GET_DATA, len(path)) + path + b"\1"
        self.transport.write(struct.pack(">i", len(body)) + body)

    def _reply(self, body: bytes) -> None:
        (xid,) = struct.unpack_from(">i", body)
        if xid == -1:
            self.told_at = time.monotonic()
        elif xid == -2:
            super()._reply(body)


class WatchingStorm(Storm):
    """Its sessions can watch."""

    def fresh(self, server: int) -> Session:
        return WatchingSession(self, server)


async def _clients(addresses: dict[int, Address], server: int, count: int, seed: int) -> None:
    """Serve the orders of the process above, a line each, and answer each by a line.

    They are `drop N`, `watch N`, `told`, `expired` and `stop`.
    """
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    storm = WatchingStorm(addresses, TIMEOUT_MS, random.Random(seed))
    alive = loop.create_task(storm.keep_alive())
    await storm.attach(count, server)
    print(json.dumps(count), flush=True)
    watching: list[WatchingSession] = []
    while (order := (await orders.readline()).decode().split()) and order[0] != "stop":
        answer: object = None
        if order[0] == "drop":
            dropped = storm.sessions[: int(order[1])]
            for session in dropped:
                assert session.transport is not None
                session.transport.abort()
            await asyncio.sleep(NOTICED_S)
            if storm.reconnecting:
                await asyncio.wait(storm.reconnecting, timeout=BACK_S_MAX)
            answer = [s.back_after_s for s in dropped]
        elif order[0] == "watch":
            watching = [s for s in storm.sessions[: int(order[1])] if isinstance(s, WatchingSession)]
            for session in watching:
                session.watch()
            answer = len(watching)
        elif order[0] == "told":
            answer = [s.told_at for s in watching]
        elif order[0] == "expired":
            answer = sum(s.expired or not s.attached for s in storm.sessions)
        print(json.dumps(answer), flush=True)
    alive.cancel()
    await asyncio.gather(alive, return_exceptions=True)
    await storm.stop()


class Clients:
    """One process of clients, at one server."""

    def __init__(self, cluster: Cluster, server: int, count: int) -> None:
        addresses = json.dumps({n: str(s.address) for n, s in cluster.servers.items()})
        command = [
            sys.executable,
            "-m",
            "tests.processes.many_sessions",
            "--clients",
            addresses,
            str(server),
            str(count),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def order(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "a process of clients ended; its error is above"
        return json.loads(line)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def _steady(samples: list[Sample], what: str, since: float, until: float) -> None:
    for kind in ("write", "read"):
        took = [seconds for found, at, seconds in samples if found == kind and since <= at < until]
        if took:
            print(f"  {kind}s of the steady client {what}: {Latencies.of(took)}", flush=True)


def measure(cluster: Cluster, sessions: int, storm: int, watches: int) -> None:
    """Begin the sessions, and print what each phase came to."""
    cluster.start_all()
    before = {n: cluster.resident_bytes(n) for n in cluster.servers}
    count = len(cluster.servers)
    began = time.monotonic()
    crowds = [Clients(cluster, number, sessions // count) for number in cluster.servers]
    steady = [SteadyProcess(cluster.servers[1].address, WATCHED)]
    try:
        for clients in crowds:
            clients.answer()
        print(f"{sessions} sessions begun in {time.monotonic() - began:.1f} s", flush=True)
        for number in cluster.servers:
            grown = (cluster.resident_bytes(number) - before[number]) / (sessions // count)
            print(
                f"  server {number}: {grown / 1e3:.1f} kB per connection with its share of all sessions",
                flush=True,
            )

        time.sleep(SETTLE_S)
        idle, cpu = time.monotonic(), cluster.cpu_s()
        time.sleep(IDLE_S)
        used = sum(cluster.cpu_s().values()) - sum(cpu.values())
        print(
            f"idle for {IDLE_S:g} s: {used / IDLE_S * 100:.0f} % of a core on three servers, steady client included"
        )

        struck = time.monotonic()
        for clients in crowds:
            clients.order(f"drop {storm // count}")
        back = [seconds for clients in crowds for seconds in clients.answer()]
        waits = [seconds for seconds in back if seconds is not None]
        print(
            f"{len(back)} reconnect at once: {Latencies.of(waits)}; {len(back) - len(waits)} did not come back",
            flush=True,
        )
        stormed = time.monotonic()

        time.sleep(SETTLE_S)
        # The steady client would fire the watches one by one while they are set: it ends before.
        samples = steady[0].finish()
        _steady(samples, "before", idle, struck)
        _steady(samples, "in the storm", struck, stormed)
        for clients in crowds:
            clients.order(f"watch {watches // count}")
        set_up = sum(clients.answer() for clients in crowds)
        time.sleep(SETTLE_S)
        steady.append(SteadyProcess(cluster.servers[1].address, "/other"))
        client = KazooClient(hosts=str(cluster.servers[1].address))
        client.start(timeout=60)
        time.sleep(SETTLE_S)
        changed = time.monotonic()
        client.set(WATCHED, b"changed")
        client.stop()
        client.close()
        time.sleep(SETTLE_S)
        for clients in crowds:
            clients.order("told")
        told = [at for clients in crowds for at in clients.answer()]
        late = [at - changed for at in told if at is not None]
        print(f"{set_up} watches fire: {Latencies.of(late)}; {len(told) - len(late)} did not", flush=True)
        _steady(steady[1].finish(), "in the second of the change", changed, changed + 1)
        for clients in crowds:
            clients.order("expired")
        print(
            f"sessions that expired or are not attached: {sum(clients.answer() for clients in crowds)}",
            flush=True,
        )
    finally:
        for process in steady:
            process.kill()
        for clients in crowds:
            clients.end()


@click.command()
@click.option("--sessions", default=50_000, show_default=True, type=click.IntRange(min=30))
@click.option("--storm", default=10_000, show_default=True, type=click.IntRange(min=3))
@click.option("--watches", default=10_000, show_default=True, type=click.IntRange(min=3))
@click.option("--clients", nargs=3, type=(str, int, int), hidden=True)
def main(sessions: int, storm: int, watches: int, clients: tuple[str, int, int] | None) -> None:
    """Measure idle sessions, a storm of reconnections, and a change that many watch."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = sessions // 3 + SPARE_FILES
    if hard < needed:
        raise click.ClickException(
            f"a process may have {hard} files (ulimit -Hn), {sessions} sessions need {needed}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if clients is not None:
        where, server, count = clients
        addresses = {int(n): parse_address(one, "clients") for n, one in json.loads(where).items()}
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_clients(addresses, server, count, server))
        return
    env = {
        "ZRAFT_CLIENT__FOUR_LETTER_WORDS": "*",
        "ZRAFT_CLIENT__CONNECTIONS_MAX": str(sessions),
        "ZRAFT_CLIENT__CONNECTIONS_PER_ADDRESS_MAX": str(sessions),
    }
    with (
        tempfile.TemporaryDirectory(prefix="zraft-sessions-") as directory,
        Cluster(Path(directory), env=env) as cluster,
    ):
        measure(cluster, sessions, storm, watches)


if __name__ == "__main__":
    main()
