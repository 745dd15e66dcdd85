"""One server's log as audits plan with it: what every segment begins with, and what all of it says of each group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import frozen

from onyxlog.audits.source.directories import ServerDirectory
from onyxlog.audits.source.following import Follower, PlacedFrame, Position
from onyxlog.audits.source.survey import Spot, Standpoint, Survey
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft.storage.records import (
    BaseRecord,
    Record,
    RecordFormatError,
    RecordReader,
    decode_record,
    is_entry,
)


@frozen
class Start:
    """Knowledge to begin reading at `position`: the number of the record before, groups' standpoints."""

    position: Position
    order: int
    standpoints: tuple[tuple[int, Standpoint], ...]


@frozen
class Span:
    """A piece of one segment file: from `start` up to `end` (bytes)."""

    path: str
    start: Start
    end: Position


class ServerLog:
    """A log that `advance` reads as far as it goes, as often as there may be more."""

    def __init__(self, fs: FileSystem, directory: ServerDirectory, follower: Follower | None = None) -> None:
        self.directory = directory
        self.survey = Survey(directory.server, directory.instance)
        self._follower = Follower(fs, directory.path) if follower is None else follower
        self._records = RecordReader()
        self._open: Span | None = None
        self._closed: list[Span] = []
        self._oldest: int | None = None
        self.damaged = False
        """True if what comes next is damaged, and was not read."""

    @property
    def position(self) -> Position:
        """The position behind everything that was read."""
        return self._follower.position

    def start(self) -> Start:
        """Return what reading on from here must know."""
        return Start(self.position, self.survey.order, tuple(self.survey.standpoints().items()))

    def spans(self) -> list[Span]:
        """Return what was read, a span per segment, oldest first."""
        return [*self._closed, *(() if self._open is None else (self._open,))]

    def begin_span(self) -> None:
        """Forget what was read; what is read from now on forms new spans."""
        self._closed, self._open = [], None

    def take_spans(self) -> list[Span]:
        """Return what was read since `begin_span`."""
        spans = self.spans()
        self.begin_span()
        return spans

    def advance(self) -> None:
        """Read all that exists and was not read yet.

        Raises:
            GoneError: as the follower does.
            CorruptionError: as the follower does.
            StorageError: as the follower does.
        """
        for placed in self._follower.frames():
            self.take(placed)

    def advance_to_damage(self) -> None:
        """Read in the same way; where the log is damaged it ends."""
        closed, held = len(self._closed), self._open
        try:
            for placed in self._follower.frames():
                closed, held = len(self._closed), self._open
                self.take(placed)
        except CorruptionError:
            # A frame whose checksums hold but whose records do not make sense cannot be read.
            self.damaged = True
            del self._closed[closed:]
            self._open = held

    def take(self, placed: PlacedFrame) -> None:
        """Take the next frame."""
        span = self._open
        if span is None or span.path != placed.path:
            if span is not None:
                self._closed.append(span)
            if self._oldest is None:
                self._oldest = placed.header.segment
            start = Start(placed.before, self.survey.order, tuple(self.survey.standpoints().items()))
            span = Span(placed.path, start, placed.after)
        self._open = Span(span.path, span.start, placed.after)
        oldest = placed.is_base and placed.header.segment == self._oldest
        survey = self.survey
        spot = Spot(placed.path, placed.frame.offset, placed.frame.number)
        for fields in fields_of(self._records, placed):
            if is_entry(fields):
                survey.take_entry(fields, spot)
            else:
                survey.take(record_of(fields, placed), spot, oldest=oldest)


def fields_of(records: RecordReader, placed: PlacedFrame) -> Iterator[Any]:
    """Return the records of a frame, unpacked.

    Raises:
        CorruptionError: its checksums are right, but it holds something else.
    """
    try:
        yield from records.arrays(placed.frame.body)
    except RecordFormatError as error:
        raise _nonsense(placed, error) from error


def record_of(fields: Any, placed: PlacedFrame) -> Record | BaseRecord:
    """Return a record that is no entry.

    Raises:
        CorruptionError: it is no record.
    """
    try:
        return decode_record(fields)
    except RecordFormatError as error:
        raise _nonsense(placed, error) from error


def _nonsense(placed: PlacedFrame, error: RecordFormatError) -> CorruptionError:
    return CorruptionError(placed.path, placed.frame.offset, f"frame {placed.frame.number}: {error}")
