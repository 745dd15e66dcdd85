"""Measures a cluster that grows under load: `python -m tests.processes.growing [--znodes N] [--servers S]`.

One server with N znodes takes in others, one after the other, while a client writes 100 times a second. Prints a line per
phase: how long it took, how long writes waited, and how long the loop of each server stood still at worst.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import click
from kazoo.client import KazooClient

from tests.processes.filling import DATA_BYTES, fill
from tests.processes.members import GrowingCluster
from zraft.cli.status import ask

WRITES_PER_S: Final = 100
QUIET_S: Final = 3.0
AFTERWARDS_S: Final = 1.0
"""A phase goes on for so long behind its end: what follows from a change belongs to it."""


class Writer:
    """A client that writes at a steady rate, one write after the other, in a thread of its own."""

    def __init__(self, client: KazooClient, path: str) -> None:
        self._client = client
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.waits: list[float] = []
        """Seconds that each write waited for its answer."""
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            began = time.monotonic()
            self._client.set(self._path, bytes(DATA_BYTES))
            self.waits.append(time.monotonic() - began)
            due = max(due + 1 / WRITES_PER_S, began)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def _term(cluster: GrowingCluster) -> int:
    """The newest term that a server names; one alone names no leader."""
    return max(int((cluster.mntr(number) or {}).get("raft_term", "0")) for number in cluster.running())


def _phase(cluster: GrowingCluster, writer: Writer, name: str, change: Callable[[], None]) -> None:
    for number in cluster.running():
        ask(cluster.servers[number].address, "srst", 60)
    before, first, began = _term(cluster), len(writer.waits), time.monotonic()
    change()
    took = time.monotonic() - began
    time.sleep(AFTERWARDS_S)
    waits = sorted(wait * 1000 for wait in writer.waits[first:])
    stalls = {n: (cluster.mntr(n) or {}).get("loop_stall_ms_max", "?") for n in cluster.running()}
    print(
        f"{name}: {took:.1f} s; {len(waits)} writes waited p50 {waits[len(waits) // 2]:.1f} ms, longest "
        f"{', '.join(f'{wait:.0f}' for wait in waits[-3:])} ms; worst stall of the loop, ms: {stalls}; "
        f"{_term(cluster) - before} elections",
        flush=True,
    )


def _take_in(cluster: GrowingCluster, number: int) -> None:
    cluster.place(number)
    cluster.start(number)
    cluster.add(number)
    cluster.wait_roles(voters=range(1, number + 1))


def measure(directory: Path, znodes: int, servers: int) -> None:
    """Fill one server, and take in the others under load."""
    env = {"ZRAFT_CLIENT__FOUR_LETTER_WORDS": "*"}
    with GrowingCluster(directory, servers=1, env=env) as cluster:
        cluster.start_all()
        client = KazooClient(hosts=str(cluster.servers[1].address), timeout=20.0)
        client.start(timeout=60)
        client.create("/g", b"")
        fill(client, map("/g/{}".format, range(znodes)))
        writer = Writer(client, "/g/0")
        _phase(cluster, writer, f"one server with {znodes} znodes", lambda: time.sleep(QUIET_S))
        for number in range(2, servers + 1):
            _phase(cluster, writer, f"server {number} is taken in", partial(_take_in, cluster, number))
        _phase(cluster, writer, f"{servers} servers", lambda: time.sleep(QUIET_S))
        writer.stop()
        client.stop()
        client.close()
        cluster.wait_equal_digests()


@click.command()
@click.option("--znodes", default=80_000, show_default=True, type=click.IntRange(min=1))
@click.option("--servers", default=3, show_default=True, type=click.IntRange(2, 9))
def main(znodes: int, servers: int) -> None:
    """Measure how long writes wait while a cluster grows."""
    with tempfile.TemporaryDirectory(prefix="zraft-growing-") as directory:
        measure(Path(directory), znodes, servers)


if __name__ == "__main__":
    main()
