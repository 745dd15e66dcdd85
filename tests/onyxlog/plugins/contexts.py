"""Contexts of plugins without a worker."""

from __future__ import annotations

import asyncio

from onyxlog.access import NOBODY, Access
from onyxlog.jobs.grouping import adopts
from onyxlog.plugins.plugin import Chunk, Input, PluginContext


def context(
    slot: int = 0, slots: tuple[int, ...] = (0,), hosts: str = "", access: Access = NOBODY
) -> PluginContext:
    return PluginContext(
        "job",
        "task",
        "a.1",
        slot,
        "job 'job': catalog: task 'task'",
        asyncio.to_thread,
        hosts,
        access,
        lambda other: adopts(slot, slots, other),
    )


async def everything(source: Input, count: int = 3) -> list[list[tuple[int, object]]]:
    """(position, segment) of all partitions, each read from its beginning to its end."""
    found = []
    for partition in range(await source.partitions()):
        reader = await source.reader(partition, 0)
        items: list[tuple[int, object]] = []
        while not reader.exhausted:
            chunk: Chunk = await reader.read(count)
            assert len(chunk.segments) == len(chunk.positions) <= count
            items += zip(chunk.positions, chunk.segments, strict=True)
        await reader.close()
        found.append(items)
    return found
