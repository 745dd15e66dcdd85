"""Measures starts of one server with a large state: `python -m tests.processes.starting [--znodes N] [--times T]`.

The server is filled and killed, and started: then its newest snapshot has a part of the state, and the log has the rest.
Afterwards a snapshot of everything is taken, and it is killed and started again. A start takes until a four-letter word
shows all znodes.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

import click
from kazoo.client import KazooClient

from tests.processes.cluster import wait_until
from tests.processes.filling import DATA_BYTES, PATIENCE_S, fill
from tests.processes.members import GrowingCluster
from zraft.operator.requests import SnapshotFile, SnapshotTake

PER_DIRECTORY: Final = 10_000


def _count(cluster: GrowingCluster) -> int:
    return int((cluster.mntr(1) or {}).get("znode_count", "0"))


def _start(cluster: GrowingCluster, count: int, what: str) -> None:
    """Kill the server, start it, and print how long it takes until it has `count` znodes."""
    cluster.kill(1)
    began = time.monotonic()
    cluster.start(1)
    wait_until(lambda: _count(cluster) >= count, "all znodes", PATIENCE_S)
    took, cpu, memory = time.monotonic() - began, cluster.cpu_s()[1], cluster.resident_bytes(1)
    print(f"{what}: {took:.2f} s, CPU {cpu:.2f} s, memory {memory / 1e6:.0f} MB", flush=True)


def measure(directory: Path, znodes: int, times: int) -> None:
    """Fill one server, and start it again and again."""
    with GrowingCluster(directory, servers=1, env={"ZRAFT_CLIENT__FOUR_LETTER_WORDS": "*"}) as cluster:
        cluster.start_all()
        empty = cluster.resident_bytes(1)
        client = KazooClient(hosts=str(cluster.servers[1].address), timeout=40.0)
        client.start(timeout=60)
        client.create("/m", b"")
        for number in range(0, znodes, PER_DIRECTORY):
            client.create(f"/m/{number // PER_DIRECTORY}", b"")
        fill(client, (f"/m/{number // PER_DIRECTORY}/{number}" for number in range(znodes)))
        client.stop()
        client.close()
        count, memory = _count(cluster), cluster.resident_bytes(1)
        print(
            f"{count} znodes of {DATA_BYTES} bytes: memory {memory / 1e6:.0f} MB, empty {empty / 1e6:.0f} MB, "
            f"{(memory - empty) / count:.0f} bytes per znode",
            flush=True,
        )
        for _ in range(times):
            _start(cluster, count, "a start with what is in the snapshot and in the log")
        cluster.operate(SnapshotTake(), SnapshotFile)
        for _ in range(times):
            _start(cluster, count, "a start with all of it in the snapshot")


@click.command()
@click.option("--znodes", default=1_000_000, show_default=True, type=click.IntRange(min=1))
@click.option("--times", default=3, show_default=True, type=click.IntRange(min=1))
def main(znodes: int, times: int) -> None:
    """Measure starts of one server with a large state."""
    with tempfile.TemporaryDirectory(prefix="zraft-starting-") as directory:
        measure(Path(directory), znodes, times)


if __name__ == "__main__":
    main()
