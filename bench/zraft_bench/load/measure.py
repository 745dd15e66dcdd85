"""One test of one system: the orders for the load processes, the run, and the result; several tests, one after the other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from zraft_bench.cluster import Servers
from zraft_bench.load.generator import Generator, LoadError
from zraft_bench.load.process import Order
from zraft_bench.load.workload import Workload, process_shares
from zraft_bench.processes import ServerError
from zraft_bench.result_files import ResultFile
from zraft_bench.results import TestResult, combine, nothing
from zraft_bench.show import Display, result_line


@frozen
class Spread:
    """Spread of a machine's workers: over so many processes, each with so many connections.

    `connections` None: one to each server.
    """

    processes: int
    connections: int | None = None


def default_spread() -> Spread:
    """Return half of the cores as processes, so that servers on the same machine have the other half."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Spread(max(1, cores // 2))


def orders_for(
    workload: Workload,
    *,
    target: str,
    hosts: str,
    place: str,
    spread: Spread,
    machine: int = 0,
    machines: int = 1,
) -> list[Order]:
    """Return the orders for the processes of machine number `machine` (from 0) of `machines`."""
    return [
        Order(
            target=target,
            hosts=hosts,
            place=place,
            workload=workload,
            share=share,
            connections=spread.connections or len(hosts.split(",")),
        )
        for share in process_shares(
            workload.workers, machine, machines, spread.processes, workload.under_way or 1
        )
    ]


async def run_test(
    number: int,
    workload: Workload,
    *,
    target: str,
    servers: Servers,
    spread: Spread,
    attempt: int = 1,
    notes: Sequence[str] = (),
) -> TestResult:
    """Measure; whatever goes wrong is in the result."""
    place = f"bench-{number}-{attempt}"
    orders = orders_for(workload, target=target, hosts=servers.hosts, place=place, spread=spread)
    before: list[float | None] = []
    try:
        async with Generator(orders) as generator:
            await generator.prepare()
            parts = await generator.run(0.05, on_began=lambda _: before.append(servers.cpu_s()))
            after = servers.cpu_s()
            await generator.finish()
    except (LoadError, ServerError) as error:
        return nothing(
            number=number,
            attempt=attempt,
            target=target,
            servers=servers.count,
            workload=workload,
            reason=str(error),
        )
    began_cpu = before[0] if before else None
    return combine(
        number=number,
        attempt=attempt,
        target=target,
        servers=servers.count,
        workload=workload,
        machines=[parts],
        servers_cpu_s=after - began_cpu if after is not None and began_cpu is not None else None,
        notes=notes,
    )


@frozen
class Side:
    """A system that takes part in a comparison. `notes` is what a reader must know about how it was run."""

    target: str
    servers: Servers
    spread: Spread
    notes: tuple[str, ...] = ()


async def run_tests(
    tests: Sequence[Workload],
    sides: Sequence[Side],
    file: ResultFile,
    display: Display,
    *,
    repeats: int = 1,
    before_each: Callable[[], None] = lambda: None,
) -> list[TestResult]:
    """Run every test on every side in turn, so that all meet the same noise. The file is written after each.

    Args:
        repeats: how often all of it is done; the sides begin in another order each time.
        before_each: runs, blocking, before each test but the first one.
    """
    results: list[TestResult] = []
    for attempt in range(1, repeats + 1):
        first = (attempt - 1) % len(sides)
        for number, workload in enumerate(tests, 1):
            if results:
                await asyncio.to_thread(before_each)
            for side in (*sides[first:], *sides[:first]):
                async with display.test(
                    f"{side.target}: {workload.title()}", workload.seconds_min + workload.warm_up_s
                ):
                    result = await run_test(
                        number,
                        workload,
                        target=side.target,
                        servers=side.servers,
                        spread=side.spread,
                        attempt=attempt,
                        notes=side.notes,
                    )
                results.append(result)
                display.console.print(result_line(result), highlight=False)
                display.advance()
                file.save(evolve(file.run, tests=tuple(results)))
    return results
