"""Measures a large state on real servers: `python -m tests.processes.million [--znodes N] [--partitions P]`.

Prints a line per phase: how long it took, how long the loop of each server stood still at worst, the processor time
of each server, and what clients saw of it. Say what else the machine did: the numbers are of everything together.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from kazoo.client import KazooClient

from tests.processes.cluster import wait_until
from tests.processes.filling import DATA_BYTES, PATIENCE_S, fill
from tests.processes.members import GrowingCluster
from tests.processes.topics import created
from zraft.cli.status import ask
from zraft.operator.requests import SnapshotFile, SnapshotTake

PER_DIRECTORY: Final = 10_000
WRITERS_AHEAD: Final = 16
RETRY: Final = {"max_tries": -1, "delay": 0.05, "backoff": 1}
"""Clients ask again at once: kazoo doubles its pauses otherwise, and what is measured is the pause."""


class Load:
    """Overwrites of random znodes, a few in flight, from one client in a thread of its own."""

    def __init__(self, cluster: GrowingCluster, server: int, znodes: int) -> None:
        self._client = _client(cluster, server)
        self._znodes = znodes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.latencies: list[float] = []
        self._thread.start()

    def _run(self) -> None:
        rng = random.Random(1)
        while not self._stop.is_set():
            began = time.monotonic()
            paths = [_path(rng.randrange(self._znodes)) for _ in range(WRITERS_AHEAD)]
            for one in [self._client.set_async(path, rng.randbytes(DATA_BYTES)) for path in paths]:
                one.get(timeout=PATIENCE_S)
            self.latencies.append(time.monotonic() - began)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._client.stop()
        self._client.close()


def _path(n: int) -> str:
    return f"/m/{n // PER_DIRECTORY}/{n}"


def _client(cluster: GrowingCluster, server: int) -> KazooClient:
    address = str(cluster.servers[server].address)
    client = KazooClient(hosts=address, timeout=40.0, connection_retry=RETRY, command_retry=RETRY)
    client.start(timeout=60)
    return client


@contextmanager
def _phase(cluster: GrowingCluster, name: str, load: Load | None = None) -> Iterator[None]:
    for number in cluster.running():
        ask(cluster.servers[number].address, "srst", 60)
    before, began = cluster.cpu_s(), time.monotonic()
    first = len(load.latencies) if load is not None else 0
    yield
    took = time.monotonic() - began
    stalls = {n: (cluster.mntr(n) or {}).get("loop_stall_ms_max", "?") for n in cluster.running()}
    cpu = {n: round(used - before.get(n, 0.0), 1) for n, used in cluster.cpu_s().items()}
    line = f"{name}: {took:.1f} s; worst stall of the loop, ms: {stalls}; CPU s: {cpu}"
    if load is not None and len(load.latencies) > first:
        seen = sorted(load.latencies[first:])
        line += (
            f"; {len(seen) * WRITERS_AHEAD / took:.0f} writes/s, rounds of {WRITERS_AHEAD} took p50 "
            f"{seen[len(seen) // 2] * 1000:.0f} ms, p99 {seen[len(seen) * 99 // 100] * 1000:.0f} ms, max "
            f"{seen[-1] * 1000:.0f} ms"
        )
    print(line, flush=True)


def _fill(cluster: GrowingCluster, server: int, znodes: int) -> None:
    client = _client(cluster, server)
    client.create("/m", b"")
    for directory in range(0, znodes, PER_DIRECTORY):
        client.create(f"/m/{directory // PER_DIRECTORY}", b"")
    fill(client, map(_path, range(znodes)))
    client.stop()
    client.close()


def _serves(cluster: GrowingCluster, number: int, commit: int) -> bool:
    found = cluster.mntr(number) or {}
    return int(found.get("raft_applied_index", "0")) >= commit


def _commit(cluster: GrowingCluster, number: int) -> int:
    return int((cluster.mntr(number) or {})["raft_commit_index"])


def _cut_power(cluster: GrowingCluster, server: int) -> None:
    """Kill all servers at once, start them, and print how long it takes until a client's write is answered."""
    for number in cluster.servers:
        cluster.kill(number)
    began = time.monotonic()
    for number in cluster.servers:
        cluster.start(number)
    client = _client(cluster, server)
    client.retry(client.set, _path(0), bytes(DATA_BYTES))
    written = time.monotonic() - began
    commit = _commit(cluster, server)
    wait_until(lambda: all(_serves(cluster, n, commit) for n in cluster.servers), "all to serve", PATIENCE_S)
    print(
        f"after the death of all servers: a write is answered after {written:.1f} s, all serve after "
        f"{time.monotonic() - began:.1f} s; CPU s: {cluster.cpu_s()}",
        flush=True,
    )
    client.stop()
    client.close()


def measure(directory: Path, znodes: int, partitions: int) -> None:
    """Fill, snapshot, restart, rejoin, power cut."""
    env = {"ZRAFT_CLIENT__FOUR_LETTER_WORDS": "*", "ZRAFT_RAFT__ELECTION_TIMEOUT_TICKS": "1000"}
    with GrowingCluster(directory, env=env) as cluster:
        cluster.start_all()
        leader = wait_until(cluster.leader, "a leader")
        follower, other = [n for n in cluster.servers if n != leader]
        print(f"servers: {leader} leads, {other} has the clients", flush=True)
        if partitions:
            asyncio.run(created(cluster, {"million": partitions}))
        with _phase(cluster, f"{znodes} znodes of {DATA_BYTES} bytes created"):
            _fill(cluster, other, znodes)
        memory = {n: cluster.resident_bytes(n) >> 20 for n in cluster.servers}
        print(f"memory, MiB: {memory}", flush=True)
        load = Load(cluster, other, znodes)
        with _phase(cluster, "load alone", load):
            threading.Event().wait(20)
        with _phase(cluster, "a snapshot on one server, under load", load):
            file = cluster.operate(SnapshotTake(), SnapshotFile)
        print(f"snapshot file: {file.size / 1e6:.1f} MB", flush=True)
        cluster.kill(follower, signal.SIGTERM)
        with _phase(cluster, "restart of a server from its snapshot, under load", load):
            commit = _commit(cluster, other)
            cluster.start(follower)
            wait_until(lambda: _serves(cluster, follower, commit), "it to serve", PATIENCE_S)
        print(*_lines(cluster, follower, "snapshot read"), sep="\n", flush=True)
        cluster.kill(follower)
        cluster.wipe(follower)
        with _phase(cluster, "a wiped server rejoins, under load", load):
            commit = _commit(cluster, other)
            cluster.start(follower)
            wait_until(lambda: _serves(cluster, follower, commit), "it to rejoin", PATIENCE_S)
        load.stop()
        index, digest = cluster.wait_equal_digests()
        print(f"equal digests at {index}: {digest}")
        stored = {
            n: sum(one.stat().st_size for one in s.data.rglob("*") if one.is_file()) >> 20
            for n, s in cluster.servers.items()
        }
        print(f"data directories, MiB: {stored}")
        _cut_power(cluster, other)


def _lines(cluster: GrowingCluster, number: int, what: str) -> list[str]:
    return [line for line in cluster.servers[number].log_text().splitlines() if what in line]


@click.command()
@click.option("--znodes", default=1_000_000, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--partitions", default=0, show_default=True, type=click.IntRange(min=0), help="Of a topic beside."
)
def main(znodes: int, partitions: int) -> None:
    """Measure snapshots, restarts and joins with a large state."""
    with tempfile.TemporaryDirectory(prefix="zraft-million-") as directory:
        measure(Path(directory), znodes, partitions)


if __name__ == "__main__":
    main()
