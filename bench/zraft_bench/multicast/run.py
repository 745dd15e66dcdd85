"""One cell of multicast after another: topics, load processes, what they saw, what the servers counted, the result."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve

from zraft_bench.cluster import Servers
from zraft_bench.load.generator import OVERTIME_S, LoadError, LoadProcesses
from zraft_bench.multicast.checks import BrokenOrderError, LogSummary, require_one_order
from zraft_bench.multicast.client import TopicsClient
from zraft_bench.multicast.counts import counts_between, server_values
from zraft_bench.multicast.load import TopicError
from zraft_bench.multicast.plan import Cell
from zraft_bench.multicast.process import LOG, TOPICS, MulticastOrder
from zraft_bench.multicast.results import CellResult, Consumed, Produced, combine, failed, sent_by_producer
from zraft_bench.processes import ServerError
from zraft_bench.records import from_plain

MODULE: Final = "zraft_bench.multicast.process"
START_S: Final = 0.05
SLOWEST_S: Final = 0.05
"""Seconds that a message takes at most on average, or the cell is given up."""


def default_processes() -> int:
    """Return half of the cores, as servers on the same machine have the others; at least a sender and a reader."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2, cores // 2)


def orders_for(
    cell: Cell, hosts: str, nonce: int, prefix: str, processes: int, target: str = TOPICS
) -> list[MulticastOrder]:
    """Return orders for producers and consumers in processes of their own, if there are several, and none without work."""
    producing = max(1, min(cell.producers, processes // 2))
    consuming = min(cell.places, processes - producing)
    sets: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        (tuple(range(n, cell.producers, producing)), ()) for n in range(producing)
    ]
    if consuming:
        sets += [((), tuple(range(n, cell.places, consuming))) for n in range(consuming)]
    else:
        sets[0] = (sets[0][0], tuple(range(cell.places)))
    return [
        MulticastOrder(
            hosts=hosts,
            cell=cell,
            nonce=nonce,
            prefix=prefix,
            producers=producers,
            places=places,
            target=target,
        )
        for producers, places in sets
    ]


async def run_cell(cell: Cell, servers: Servers, processes: int, target: str = TOPICS) -> CellResult:
    """Measure topics, or a log of znodes in their place; whatever goes wrong is in the result."""
    nonce = secrets.randbits(32)
    prefix = f"bench-{nonce:08x}-"
    orders = orders_for(cell, servers.hosts, nonce, prefix, processes, target)
    try:
        if target == LOG:
            return await _measured(cell, servers, orders)
        async with TopicsClient(servers.hosts, prefix, cell) as topics:
            await topics.create()
            try:
                return await _measured(cell, servers, orders)
            finally:
                await topics.delete()
    except (LoadError, ServerError, TopicError, BrokenOrderError) as error:
        return failed(cell, servers.count, str(error))


def limit_s(cell: Cell) -> float:
    """Return how long a cell takes at most, until its last answer."""
    each = SLOWEST_S + cell.sleep_ms / 1000
    return OVERTIME_S + cell.seconds + cell.deadline_s + cell.messages * each


async def _measured(cell: Cell, servers: Servers, orders: Sequence[MulticastOrder]) -> CellResult:
    async with LoadProcesses(MODULE, orders) as processes:
        await processes.prepare()
        before = await asyncio.to_thread(server_values, servers.hosts)
        cpu_before = servers.cpu_s()
        processes.say_to_all(start=START_S)
        try:
            async with asyncio.timeout(limit_s(cell)):
                await processes.expect_of_all("began")
                produced = [
                    from_plain(Produced, one, "produced") for one in await processes.expect_of_all("produced")
                ]
                cpu_sent = servers.cpu_s()
                processes.say_to_all(sent=sent_by_producer(cell, produced))
                told: list[dict[str, Any]] = await processes.expect_of_all("consumed")
        except TimeoutError:
            raise LoadError(f"not finished after {limit_s(cell):.0f} s, given up") from None
        cpu_after = cpu_sent if cell.reads_after else servers.cpu_s()
        after = await asyncio.to_thread(server_values, servers.hosts)
    consumed = [from_plain(Consumed, one["consumed"], "consumed") for one in told]
    logs = [from_plain(LogSummary, log, "logs") for one in told for log in one["logs"]]
    pairs, disagree = 0, ""
    try:
        if len(logs) == cell.places:
            pairs = require_one_order(logs)
    except BrokenOrderError as error:
        disagree = str(error)
    result = combine(
        cell,
        servers.count,
        [one for one in produced if one.producers],
        [one for one in consumed if one.places],
        counts=counts_between(before, after),
        pairs=pairs,
        servers_cpu_s=cpu_after - cpu_before if cpu_after is not None and cpu_before is not None else None,
    )
    return evolve(result, reason="; ".join(filter(None, (result.reason, disagree))))
