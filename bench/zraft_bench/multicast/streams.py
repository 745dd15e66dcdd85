"""Throughput of one topic, and of a log of znodes under the same load: cells of multicast with one topic."""

from __future__ import annotations

from zraft_bench.cluster import Servers
from zraft_bench.multicast.plan import Cell
from zraft_bench.multicast.process import LOG, TOPICS
from zraft_bench.multicast.results import CellResult, StreamResult
from zraft_bench.multicast.run import run_cell


def targets_of(cell: Cell) -> tuple[str, ...]:
    """Return the targets of a cell. A log has no partitions; it is compared with the topic with one."""
    return (LOG, TOPICS) if cell.partitions == 1 else (TOPICS,)


async def run_stream(cell: Cell, servers: Servers, processes: int, target: str) -> StreamResult:
    """Measure; whatever goes wrong is in the result."""
    return stream_of(await run_cell(cell, servers, processes, target), target)


def stream_of(found: CellResult, target: str) -> StreamResult:
    """Return the result of a stream from that of its cell, which has one topic."""
    cell = found.cell
    return StreamResult(
        target=target,
        partitions=cell.partitions,
        value_bytes=cell.value_bytes,
        messages=found.messages,
        elapsed_s=found.elapsed_s,
        per_second=found.per_second,
        mb_per_second=found.per_second * cell.value_bytes / 1e6,
        latency=found.latency.get("1"),
        reason=found.reason,
    )
