"""Files of lines: text unchanged, or one JSON value a line. They have to be on a file system that all workers see.

A file is read in partitions of about equal bytes; a line belongs to the partition in which it begins.
Positions are offsets in bytes. Each worker of an output writes a file of its own, named by its slot, which is
cut back to the last checkpoint when the job begins again. So the content of the files is exactly-once with
barriers and at-least-once with acks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO, Final

from onyxlog.errors import WorkflowError
from onyxlog.plugins.plugin import Chunk, PluginContext, unwritable

LINE_BYTES_MAX: Final = 1024 * 1024
FORMATS: Final = ("text", "json")


def _checked_format(context: PluginContext, form: str) -> bool:
    if form not in FORMATS:
        raise WorkflowError(f"{context.where}: plugin: format: expected text or json, found {form!r}")
    return form == "json"


class LinesReader:
    """Reader of the lines that begin at first <= offset < end, which are `partition`."""

    def __init__(
        self,
        context: PluginContext,
        file: BinaryIO,
        position: int,
        partition: tuple[int, int],
        as_json: bool,
    ) -> None:
        self._context = context
        self._file = file
        self._position = position
        self._first, self._end = partition
        self._json = as_json

    async def read(self, count: int) -> Chunk:
        """Read up to `count` lines, in a thread."""
        return await self._context.in_thread(lambda: self._read(count))

    def _read(self, count: int) -> Chunk:
        segments: list[Any] = []
        positions: list[int] = []
        while len(segments) < count and self._position < self._end:
            line = self._file.readline(LINE_BYTES_MAX + 1)
            if not line:
                self._end = self._position
                break
            if len(line) > LINE_BYTES_MAX:
                raise WorkflowError(
                    f"{self._context.where}: {self._file.name}: offset {self._position}: expected lines of at most "
                    f"{LINE_BYTES_MAX} bytes"
                )
            positions.append(self._position)
            segments.append(self._segment(line.rstrip(b"\r\n").decode(errors="replace")))
            self._position += len(line)
        return Chunk(segments, positions, self._position)

    def _segment(self, text: str) -> Any:
        if not self._json:
            return {"line": text}
        try:
            return json.loads(text)
        except ValueError as error:
            raise WorkflowError(
                f"{self._context.where}: {self._file.name}: offset {self._position}: expected a line of JSON: {error}"
            ) from error

    @property
    def exhausted(self) -> bool:
        """True when all lines of the partition were read."""
        return self._position >= self._end

    @property
    def extent(self) -> tuple[int, int]:
        """The offsets of the partition."""
        return min(self._first, self._end), self._end

    async def close(self) -> None:
        """Close the file."""
        self._file.close()


class LinesInput:
    """Input from a file.

    `path`: a file that does not change. `format`: for text, a segment is {"line": …}; for json, it is the
    line's value.
    """

    def __init__(self, context: PluginContext, path: str, format: str = "text", partitions: int = 1) -> None:
        self._context = context
        self._path = Path(path)
        self._json = _checked_format(context, format)
        self._partitions = partitions
        if partitions < 1:
            raise WorkflowError(
                f"{context.where}: plugin: partitions: expected at least 1, found {partitions}"
            )

    async def partitions(self) -> int:
        """Return the number of partitions from the options."""
        return self._partitions

    async def reader(self, partition: int, position: int) -> LinesReader:
        """Return a reader that begins at the first line from `position` on."""
        return await self._context.in_thread(lambda: self._open(partition, position))

    def _open(self, partition: int, position: int) -> LinesReader:
        try:
            file = self._path.open("rb")
        except OSError as error:
            raise WorkflowError(
                f"{self._context.where}: cannot read {self._path}: {error.strerror}"
            ) from error
        size = os.fstat(file.fileno()).st_size
        begin = size * partition // self._partitions
        end = size * (partition + 1) // self._partitions
        if position <= begin and begin > 0:
            # A line across the border belongs to the partition before, unless it ends exactly there.
            file.seek(begin - 1)
            position = begin - 1 + len(file.readline())
        file.seek(position)
        return LinesReader(self._context, file, position, (begin, end), self._json)

    async def close(self) -> None:
        """Do nothing."""


class LinesOutput:
    """Output into files.

    `path`: a directory; made if absent. Files are `<job>-<task>-<slot>.txt` or `.jsonl`.

    `key`: of the text in a segment, for format text.
    """

    def __init__(self, context: PluginContext, path: str, format: str = "json", key: str = "line") -> None:
        self._context = context
        self._json = _checked_format(context, format)
        self._key = key
        self._directory = Path(path)
        self._name = f"{context.job}-{context.task}-"
        self._suffix = ".jsonl" if self._json else ".txt"
        self._file: BinaryIO | None = None
        self._length = 0

    async def open(self, states: Mapping[int, Any] | None) -> None:
        """Open a new file, or the one that a checkpoint names, cut to the length at the checkpoint."""
        await self._context.in_thread(lambda: self._open(states))

    async def write(self, segments: Sequence[Any]) -> None:
        """Append a line for each segment."""
        await self._context.in_thread(lambda: self._write("".join(map(self._line_of, segments)).encode()))

    async def flush(self) -> int:
        """Make everything written durable, and return the file's length for the checkpoint."""
        return await self._context.in_thread(self._flush)

    async def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _line_of(self, segment: Any) -> str:
        try:
            if self._json:
                return json.dumps(segment, separators=(",", ":")) + "\n"
            return f"{segment[self._key]}\n"
        except (KeyError, TypeError, ValueError) as error:
            expected = "what JSON can write" if self._json else f"text at {self._key!r}"
            raise unwritable(self._context, expected, segment) from error

    def _path_of(self, slot: int) -> Path:
        return self._directory / f"{self._name}{slot}{self._suffix}"

    def _open(self, states: Mapping[int, Any] | None) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        if states is not None:
            self._go_back(states)
        path = self._path_of(self._context.slot)
        _drop_torn_line(path)
        self._file = path.open("ab")
        self._length = self._file.tell()

    def _go_back(self, states: Mapping[int, Any]) -> None:
        """Cut off what this worker's slot, and those that it adopts, wrote after the checkpoint."""
        for path in self._directory.glob(f"{escape(self._name)}*{self._suffix}"):
            slot = path.name[len(self._name) : -len(self._suffix)]
            if slot.isdigit() and self._context.adopts(int(slot)):
                os.truncate(path, min(path.stat().st_size, states.get(int(slot), 0)))

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write(data)
        self._length += len(data)

    def _flush(self) -> int:
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._length


def _drop_torn_line(path: Path) -> None:
    """Cut off half a line, which a process that was killed may have left.

    It was not acknowledged; nothing may be appended to it.
    """
    if not path.exists():
        return
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            begin = max(0, end - LINE_BYTES_MAX)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                file.truncate(begin + newline + 1)
                return
            end = begin
        file.truncate(0)
