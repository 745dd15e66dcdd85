"""An input that reads as far as a test lets it: what happens before and after is then no matter of speed."""

from __future__ import annotations

from typing import Any

from onyxlog.plugins.plugin import Chunk, PluginContext, Reader
from onyxlog.plugins.sequence import GeneratedInput


class Gate:
    """`limit`: how many segments of each partition may be read; None: all."""

    def __init__(self, limit: int | None = 0) -> None:
        self.limit = limit

    def open(self) -> None:
        self.limit = None


_gates: dict[str, Gate] = {}


def gate(name: str) -> Gate:
    """The one of all inputs `GatedInput` of that name in this process."""
    return _gates.setdefault(name, Gate())


def forget(name: str) -> None:
    _gates.pop(name, None)


class GatedReader:
    def __init__(self, reader: Reader, position: int, gate: Gate) -> None:
        self._reader = reader
        self._position = position
        self._gate = gate

    async def read(self, count: int) -> Chunk:
        limit = self._gate.limit
        chunk = await self._reader.read(
            count if limit is None else max(0, min(count, limit - self._position))
        )
        self._position = chunk.next_position
        return chunk

    @property
    def exhausted(self) -> bool:
        return self._reader.exhausted

    async def close(self) -> None:
        await self._reader.close()


class GatedInput:
    """`generated`, behind the gate of that name."""

    def __init__(self, context: PluginContext, gate: str, **options: Any) -> None:
        self._source = GeneratedInput(context, **options)
        self._gate = gate

    async def partitions(self) -> int:
        return await self._source.partitions()

    async def reader(self, partition: int, position: int) -> GatedReader:
        return GatedReader(await self._source.reader(partition, position), position, gate(self._gate))

    async def close(self) -> None:
        await self._source.close()
