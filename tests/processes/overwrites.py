"""Measures the disk that overwrites take: `python -m tests.processes.overwrites [--minutes 60]`.

Three servers as they come, one session that overwrites the same znodes at a steady rate. Prints a line per minute with
what the log and the snapshots of each server take, and at the end the least and the most of both. The figures need no
quiet machine: what is asked is whether the disk fills up, not how fast.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

import click
from kazoo.client import KazooClient

from tests.processes.members import GrowingCluster

ZNODES: Final = 1_000
DATA_BYTES: Final = 1_024
AHEAD_MAX: Final = 64
LOOK_S: Final = 2.0
PATIENCE_S: Final = 60.0


def _bytes(directory: Path) -> int:
    total = 0
    for file in directory.rglob("*"):
        # Segments and snapshots go while we look.
        with contextlib.suppress(FileNotFoundError):
            total += file.stat().st_size if file.is_file() else 0
    return total


def _taken(data: Path) -> tuple[int, int]:
    """Bytes of (snapshots, everything else) in one server's directory."""
    everything = _bytes(data)
    snapshots = sum(_bytes(one) for one in data.rglob("snap") if one.is_dir())
    return snapshots, everything - snapshots


def _mib(values: list[int]) -> str:
    return f"{min(values) / (1 << 20):.1f} to {max(values) / (1 << 20):.1f} MiB"


def measure(directory: Path, minutes: float, rate: float) -> None:
    """Overwrite, and look at the directories meanwhile."""
    with GrowingCluster(directory) as cluster:
        cluster.start_all()
        client = KazooClient(hosts=cluster.hosts(), timeout=40.0)
        client.start(timeout=60)
        client.create("/o")
        for n in range(ZNODES):
            client.create(f"/o/{n}", b"")
        rng = random.Random(0)
        waiting: deque[tuple[float, Any]] = deque()
        longest, written = 0.0, 0
        seen: dict[int, list[tuple[int, int]]] = {n: [] for n in cluster.servers}
        began = time.monotonic()
        look_at, say_at = began + LOOK_S, began + 60
        while (now := time.monotonic()) < began + minutes * 60:
            while waiting and (waiting[0][1].ready() or len(waiting) >= AHEAD_MAX):
                sent, one = waiting.popleft()
                one.get(timeout=PATIENCE_S)
                longest = max(longest, time.monotonic() - sent)
                written += 1
            due = int((now - began) * rate) - written - len(waiting)
            for _ in range(min(due, AHEAD_MAX - len(waiting))):
                path = f"/o/{rng.randrange(ZNODES)}"
                waiting.append((time.monotonic(), client.set_async(path, rng.randbytes(DATA_BYTES))))
            if now >= look_at:
                look_at = now + LOOK_S
                for n, server in cluster.servers.items():
                    seen[n].append(_taken(server.data))
            if now >= say_at:
                say_at += 60
                last = {n: f"{(rows[-1][0] + rows[-1][1]) / (1 << 20):.1f}" for n, rows in seen.items()}
                print(
                    f"{(now - began) / 60:.0f} min: {written} writes, longest {longest:.2f} s, MiB: {last}",
                    flush=True,
                )
            time.sleep(0.002)
        while waiting:
            waiting.popleft()[1].get(timeout=PATIENCE_S)
            written += 1
        took = time.monotonic() - began
        index, digest = cluster.wait_equal_digests()
        print(
            f"{written} writes of {DATA_BYTES} bytes in {took:.0f} s, {written / took:.0f} a second, none failed"
        )
        print(f"longest write {longest:.2f} s; equal digests at {index}: {digest}")
        for n, rows in seen.items():
            print(
                f"server {n}: log {_mib([log for _, log in rows])}, snapshots {_mib([snaps for snaps, _ in rows])}"
            )
        client.stop()
        client.close()


@click.command()
@click.option("--minutes", default=60.0, show_default=True, type=click.FloatRange(min=0.1))
@click.option("--rate", default=400.0, show_default=True, help="Writes a second.")
def main(minutes: float, rate: float) -> None:
    """Measure the disk that overwrites take."""
    with tempfile.TemporaryDirectory(prefix="zraft-overwrites-") as directory:
        measure(Path(directory), minutes, rate)


if __name__ == "__main__":
    main()
