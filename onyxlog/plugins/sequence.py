"""Inputs that need nothing outside of the job: segments written in it, or computed from their numbers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from onyxlog.errors import WorkflowError
from onyxlog.jobs.functions import resolve_callable
from onyxlog.plugins.plugin import Chunk, PluginContext


class StrideReader:
    """Reader of every `stride`th of the numbers below `count`, beginning with `first`.

    Positions count those.
    """

    def __init__(
        self, get: Callable[[range], Awaitable[list[Any]]], first: int, stride: int, count: int, position: int
    ) -> None:
        self._get = get
        self._first = first
        self._stride = stride
        self._length = len(range(first, count, stride))
        self._position = position

    async def read(self, count: int) -> Chunk:
        """Return up to `count` segments and their positions."""
        begin = self._position
        end = self._position = max(begin, min(self._length, begin + count))
        first, stride = self._first, self._stride
        segments = await self._get(range(first + begin * stride, first + end * stride, stride))
        return Chunk(segments, range(begin, end), end)

    @property
    def exhausted(self) -> bool:
        """True when all segments were read."""
        return self._position >= self._length

    @property
    def extent(self) -> tuple[int, int]:
        """The numbers of the segments in this partition."""
        return 0, self._length

    async def close(self) -> None:
        """Do nothing."""


class SequenceInput:
    """Input of `segments`, which are dealt to `partitions` in turn.

    All of them are in the job itself, so there should be few.
    """

    def __init__(self, context: PluginContext, segments: Sequence[Any], partitions: int = 1) -> None:
        self._segments = segments
        self._partitions = _checked(context, partitions)

    async def partitions(self) -> int:
        """Return the number of partitions from the options."""
        return self._partitions

    async def reader(self, partition: int, position: int) -> StrideReader:
        """Return a reader of every nth of the given segments."""
        segments = self._segments

        async def get(numbers: range) -> list[Any]:
            return [segments[number] for number in numbers]

        return StrideReader(get, partition, self._partitions, len(segments), position)

    async def close(self) -> None:
        """Do nothing."""


class GeneratedInput:
    """Input of segments 0 to `count` - 1 by `function`, "package.module:function" of the number and `params`."""

    def __init__(
        self,
        context: PluginContext,
        function: str,
        count: int,
        partitions: int = 1,
        params: dict[str, Any] | None = None,
    ) -> None:
        self._context = context
        self._path = function
        self._function = resolve_callable(function, f"{context.where}: plugin: function")
        self._params = params or {}
        self._count = count
        self._partitions = _checked(context, partitions)

    async def partitions(self) -> int:
        """Return the number of partitions from the options."""
        return self._partitions

    async def reader(self, partition: int, position: int) -> StrideReader:
        """Return a reader that computes segments, in a thread."""

        async def get(numbers: range) -> list[Any]:
            return await self._context.in_thread(lambda: [self._generate(number) for number in numbers])

        return StrideReader(get, partition, self._partitions, self._count, position)

    async def close(self) -> None:
        """Do nothing."""

    def _generate(self, number: int) -> Any:
        try:
            return self._function(number, **self._params)
        except Exception as error:
            raise WorkflowError(
                f"{self._context.where}: plugin: function: {self._path!r} raised {type(error).__name__} on {number}: {error}"
            ) from error


def _checked(context: PluginContext, partitions: int) -> int:
    if partitions < 1:
        raise WorkflowError(f"{context.where}: plugin: partitions: expected at least 1, found {partitions}")
    return partitions
