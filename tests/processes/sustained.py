"""Measures long full load: `python -m tests.processes.sustained [--minutes 60] [--sessions 64] [--under-way 16]`.

Three servers as they come, and sessions that overwrite znodes as fast as they are answered. Prints a line per minute, and
at the end how many elections there were. Any but the first is false: no server ends, and no network fails.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

import click

from tests.processes.members import GrowingCluster
from zraft_bench.load.generator import Generator
from zraft_bench.load.measure import Spread, orders_for
from zraft_bench.load.workload import Operation, Workload
from zraft_bench.results import TestResult, combine

TARGET: Final = "zraft-zookeeper"


async def _load(cluster: GrowingCluster, workload: Workload) -> TestResult:
    orders = orders_for(workload, target=TARGET, hosts=cluster.hosts(), place="sustained", spread=Spread(1))
    async with Generator(orders) as generator:
        await generator.prepare()
        parts = await generator.run(0.05)
        await generator.finish()
    return combine(
        number=1,
        target=TARGET,
        servers=len(cluster.servers),
        workload=workload,
        machines=[parts],
    )


def measure(directory: Path, minutes: float, sessions: int, under_way: int) -> None:
    """Put load on three servers, in pieces of a minute, and look at their terms and their memory after each."""
    with GrowingCluster(directory, env={"ZRAFT_CLIENT__FOUR_LETTER_WORDS": "*"}) as cluster:
        cluster.start_all()
        first_term, answered, failed = cluster.term(), 0, 0
        ends = time.monotonic() + minutes * 60
        while (left := ends - time.monotonic()) > 0:
            workload = Workload(
                operation=Operation.WRITE,
                workers=sessions * under_way,
                under_way=under_way,
                seconds_min=min(60.0, left),
            )
            result = asyncio.run(_load(cluster, workload))
            answered += result.acknowledged
            failed += result.failed + result.unknown
            latency = result.latency
            waits = "none answered"
            if latency is not None:
                named = latency.percentiles
                waits = f"p50 {named['50']:.1f}, p99 {named['99']:.1f}, longest {latency.max_ms:.0f} ms"
            stalls = {n: (cluster.mntr(n) or {}).get("loop_stall_ms_max", "?") for n in cluster.running()}
            memory = {n: cluster.resident_bytes(n) >> 20 for n in cluster.running()}
            print(
                f"{minutes - (ends - time.monotonic()) / 60:.0f} min: {result.per_second:.0f} writes/s, {waits}; "
                f"longest stall so far, ms: {stalls}; MiB: {memory}; {cluster.term() - first_term} elections",
                flush=True,
            )
        cluster.wait_equal_digests()
        print(f"{answered} writes, {failed} failed; {cluster.term() - first_term} elections under load")


@click.command()
@click.option("--minutes", default=60.0, show_default=True, type=click.FloatRange(min=0.01))
@click.option("--sessions", default=64, show_default=True, type=click.IntRange(min=1))
@click.option("--under-way", default=16, show_default=True, type=click.IntRange(min=1))
def main(minutes: float, sessions: int, under_way: int) -> None:
    """Measure whether servers under full load keep their leader."""
    with tempfile.TemporaryDirectory(prefix="zraft-sustained-") as directory:
        measure(Path(directory), minutes, sessions, under_way)


if __name__ == "__main__":
    main()
