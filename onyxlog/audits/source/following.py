"""Reading of a write-ahead log's frames, which may belong to a running server, in order and again.

Nothing is locked or changed. A frame that is being written, or was torn by a crash, ends the reading; it is
read again the next time. Damage before that is an error with its place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from attrs import frozen

from onyxlog.audits.errors import AuditError
from zraft.storage.durable import reading
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft.storage.frames import (
    HEADER_BYTES,
    Frame,
    LogFrameReader,
    SegmentHeader,
    decode_header,
    inspect_rest,
)
from zraft.storage.inspection import segment_numbers
from zraft.storage.segments import segment_path
from zraft_core.errors import StorageError

SETTLED_S: Final = 2.0
"""Seconds.

A write that is this old is durable, or its server has ended because of it; the newest one does not count
before.
"""


class GoneError(AuditError):
    """The server compacted what was to be read next."""


@frozen
class Position:
    """A position between two frames: `frame` is the number of the next one, at `offset` of segment `segment`.

    `segment` 0: before everything.
    """

    segment: int = 0
    offset: int = 0
    frame: int = 0


@frozen
class PlacedFrame:
    """A frame and its file; `after` is the position behind it."""

    path: str
    header: SegmentHeader
    frame: Frame
    after: Position

    @property
    def before(self) -> Position:
        """The position before the frame."""
        return Position(self.header.segment, self.frame.offset, self.frame.number)

    @property
    def is_base(self) -> bool:
        """True if the frame restates the state of groups at the beginning of a segment."""
        return self.header.begins_with_base and self.frame.number == self.header.first_frame


class Follower:
    """Reader of one server's log. `data`: its data directory."""

    def __init__(
        self,
        fs: FileSystem,
        data: str,
        position: Position | None = None,
        *,
        now: Callable[[], float] = time.time,
        modified: Callable[[str], float] = os.path.getmtime,
    ) -> None:
        self._fs = fs
        self._data = data
        self._now = now
        self._modified = modified
        self.position = Position() if position is None else position

    def frames(self) -> Iterator[PlacedFrame]:
        """Yield all whole and settled frames from `position` on, which moves along, frame by frame.

        Raises:
            GoneError: what comes next was compacted.
            CorruptionError: a frame is damaged, and it is not the end of the log.
            StorageError: the directory cannot be read.
        """
        held: PlacedFrame | None = None
        for placed in self._all():
            if held is not None:
                self.position = held.after
                yield held
            held = placed
        if held is not None and self._is_settled(held.path):
            self.position = held.after
            yield held

    def _is_settled(self, path: str) -> bool:
        try:
            return self._now() - self._modified(path) >= SETTLED_S
        except OSError:
            return False

    def _all(self) -> Iterator[PlacedFrame]:
        numbers = segment_numbers(self._fs, self._data)
        at = self.position
        if at.segment:
            if numbers and at.segment < numbers[0]:
                at = self._over_the_gap(at, numbers[0])
            numbers = [number for number in numbers if number >= at.segment]
        else:
            # Segments before a gap are left from a compaction that was interrupted.
            gap = max(
                (i for i, number in enumerate(numbers) if i and numbers[i - 1] != number - 1), default=0
            )
            numbers = numbers[gap:]
        ended: tuple[str, LogFrameReader] | None = None
        while numbers:
            number = numbers.pop(0)
            path = segment_path(f"{self._data}/wal", number)
            try:
                with reading(path):
                    file = self._fs.open(path)
            except StorageError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
                if ended is None and not at.segment:
                    continue  # compacted since we looked
                raise GoneError(f"{path}: was compacted before it was read") from error
            try:
                with reading(path):
                    header = decode_header(self._fs.pread(file, HEADER_BYTES, 0), path)
                self._check_seam(ended, header, at, path)
                begins = at.segment != number
                reader = LogFrameReader(
                    self._fs,
                    file,
                    seed=header.seed,
                    start=HEADER_BYTES if begins else at.offset,
                    size=self._size(file, path),
                    number=header.first_frame if begins else at.frame,
                )
                with reading(path):
                    for frame in reader:
                        yield PlacedFrame(path, header, frame, Position(number, frame.end, frame.number + 1))
                ended = path, reader
                if not numbers:
                    # The server may have continued in another segment.
                    numbers = [n for n in segment_numbers(self._fs, self._data) if n > number]
                if not numbers:
                    self._judge_end(file, path, header, reader)
            finally:
                self._fs.close(file)

    def _size(self, file: int, path: str) -> int:
        with reading(path):
            return self._fs.size(file)

    def _over_the_gap(self, at: Position, oldest: int) -> Position:
        """Return the beginning of the next segment for a position at the very end of one that is gone."""
        path = segment_path(f"{self._data}/wal", oldest)
        with reading(path):
            file = self._fs.open(path)
            try:
                header = decode_header(self._fs.pread(file, HEADER_BYTES, 0), path)
            finally:
                self._fs.close(file)
        if header.first_frame > at.frame:
            raise GoneError(
                f"{self._data}/wal: frames {at.frame} to {header.first_frame - 1} were compacted before they were read; "
                "begin anew without the checkpoint, and let servers keep more log (wal.segment_bytes_max, snapshots)"
            )
        return Position(oldest, HEADER_BYTES, header.first_frame)

    @staticmethod
    def _check_seam(
        ended: tuple[str, LogFrameReader] | None, header: SegmentHeader, at: Position, path: str
    ) -> None:
        if ended is not None and header.first_frame != ended[1].number:
            raise CorruptionError(
                ended[0],
                ended[1].end,
                f"{ended[1].damage or 'zeros'}, yet the log goes on with frame {header.first_frame} in {path}",
            )
        if ended is None and at.segment and at.segment != header.segment and header.first_frame != at.frame:
            raise CorruptionError(path, 0, f"begins with frame {header.first_frame}, expected {at.frame}")

    def _judge_end(self, file: int, path: str, header: SegmentHeader, reader: LogFrameReader) -> None:
        """Judge the end of the log: nothing, a torn tail, a write under way, or damage."""
        if reader.damage is None:
            return
        size = self._size(file, path)
        with reading(path):
            rest = inspect_rest(self._fs, file, seed=header.seed, start=reader.end, size=size)
            if rest.frame_offset is None:
                return
            # It was being written when we read it, and is whole by now; the next reading continues with it.
            again = LogFrameReader(
                self._fs, file, seed=header.seed, start=reader.end, size=size, number=reader.number
            )
            if next(iter(again), None) is not None:
                return
        raise CorruptionError(
            path, reader.end, f"{reader.damage}, yet a valid frame follows at offset {rest.frame_offset}"
        )
