"""Directories of sequential znodes, as any ZooKeeper client makes them: a source with positions, and a sink.

As a source, positions are the numbers in the names. As a sink it is at-least-once: what is written again
after a failure is there twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgpack

from onyxlog.errors import WorkflowError
from onyxlog.plugins.plugin import Chunk, PluginContext, unwritable
from onyxlog.plugins.service import Service
from zraft_client import Client
from zraft_core.messagepack import unpack

PREFIX: Final = "entry-"
WRITES_AT_A_TIME: Final = 512
READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "msgpack": lambda data: unpack(data, lists=True, any_keys=True),
    "json": json.loads,
    "text": lambda data: {"text": data.decode(errors="replace")},
    "bytes": lambda data: {"bytes": data},
}
WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "msgpack": lambda segment: msgpack.packb(segment, use_bin_type=True),
    "json": lambda segment: json.dumps(segment, separators=(",", ":")).encode(),
    "text": lambda segment: str(segment["text"]).encode(),
    "bytes": lambda segment: bytes(segment["bytes"]),
}


def _checked_format(context: PluginContext, form: str) -> str:
    if form not in READERS:
        raise WorkflowError(
            f"{context.where}: plugin: format: expected one of {', '.join(READERS)}, found {form!r}"
        )
    return form


class ZnodesInput:
    """Input from a directory.

    `path`: the directory. `prefix`: the beginning of the names.

    `until_end`: exhausted once everything was read that existed when the task began; otherwise never.
    `skip_truncated`: entries that were removed before they were read are skipped; otherwise they fail the
    job.
    """

    def __init__(
        self,
        context: PluginContext,
        path: str,
        prefix: str = PREFIX,
        format: str = "msgpack",
        until_end: bool = False,
        skip_truncated: bool = False,
        hosts: str | None = None,
    ) -> None:
        self.context = context
        self.path = path
        self.prefix = prefix
        self.read = READERS[_checked_format(context, format)]
        self.until_end = until_end
        self.skip_truncated = skip_truncated
        self._service = Service(context, hosts)

    async def partitions(self) -> int:
        """Return 1: the directory is read in order."""
        return 1

    async def reader(self, partition: int, position: int) -> ZnodesReader:
        """Return a reader from `position` on.

        With `until_end` it is exhausted where the directory ends now.
        """
        client = await self._service.open()
        page = await client.log(self.path, self.prefix, position, limit=1)
        return ZnodesReader(self, client, position, page.end if self.until_end else None)

    async def close(self) -> None:
        """End the connection."""
        await self._service.close()


class ZnodesReader:
    """Reader from a position on. `end`: the position at which it is exhausted; None: never."""

    def __init__(self, source: ZnodesInput, client: Client, position: int, end: int | None) -> None:
        self._source = source
        self._client = client
        self._position = position
        self._end = end

    async def read(self, count: int) -> Chunk:
        """Return up to `count` znodes as segments.

        Raises:
            WorkflowError: znodes that were not read are gone, and `skip_truncated` is not set.
        """
        source = self._source
        page = await self._client.log(source.path, source.prefix, self._position, limit=count)
        if page.first > self._position and not source.skip_truncated and not self._is_new(page.first):
            raise WorkflowError(
                f"{source.context.where}: {source.path}: entry {self._position} is to be read next, and the log begins at "
                f"{page.first}: entries were removed before they were read; say skip_truncated if they do not matter"
            )
        entries = [entry for entry in page.entries if self._end is None or entry.position < self._end]
        self._position = max(self._position, page.next if self._end is None else min(page.next, self._end))
        segments = [self._segment(entry.position, entry.data) for entry in entries]
        return Chunk(segments, [entry.position for entry in entries], self._position)

    @property
    def exhausted(self) -> bool:
        """True when the directory's end, as it was at the beginning, is reached."""
        return self._end is not None and self._position >= self._end

    @property
    def extent(self) -> tuple[int, int] | None:
        """The positions up to the end, if there is one."""
        return None if self._end is None else (0, self._end)

    async def close(self) -> None:
        """Do nothing."""

    def _is_new(self, first: int) -> bool:
        """Return whether the reader has just begun: then it takes the log as it is."""
        return self._position == 0 and first > 0

    def _segment(self, position: int, data: bytes) -> Any:
        source = self._source
        try:
            return source.read(data)
        except (ValueError, RecursionError) as error:  # JSON was nested too deeply
            raise WorkflowError(
                f"{source.context.where}: {source.path}/{source.prefix}{position:010d}: not in the task's format: {error}"
            ) from error


class ZnodesOutput:
    """Output into a directory.

    `path`: the directory, which must exist. Each segment becomes one znode; those of a batch are in order.
    """

    def __init__(
        self,
        context: PluginContext,
        path: str,
        prefix: str = PREFIX,
        format: str = "msgpack",
        hosts: str | None = None,
    ) -> None:
        self._context = context
        self._path = path
        self._prefix = prefix
        self._format = _checked_format(context, format)
        self._service = Service(context, hosts)

    async def open(self, states: Mapping[int, Any] | None) -> None:
        """Connect to the service."""
        await self._service.open()

    async def write(self, segments: Sequence[Any]) -> None:
        """Create a sequential znode for each segment."""
        client = self._service.client
        name = f"{self._path}/{self._prefix}"
        for begin in range(0, len(segments), WRITES_AT_A_TIME):
            some = [self._data_of(segment) for segment in segments[begin : begin + WRITES_AT_A_TIME]]
            await asyncio.gather(*(client.create(name, data, sequential=True) for data in some))

    async def flush(self) -> None:
        """Do nothing: `write` has returned once a majority has the znodes."""

    async def close(self) -> None:
        """End the connection."""
        await self._service.close()

    def _data_of(self, segment: Any) -> bytes:
        try:
            return WRITERS[self._format](segment)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise unwritable(self._context, f"what format {self._format} can write", segment) from error
