"""Reading of a group's deliveries from any offset, beside the writer, retention and other readers.

Every call works on a view: what could be read at one moment. What retention or a snapshot took away meanwhile shows
as a file that is not there; then the call begins anew with the view of now.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from attrs import field, frozen
from crc32c import crc32c

from zraft.storage.delivery.frames import records_of
from zraft.storage.delivery.manifest import Segment
from zraft.storage.delivery.open_files import OpenFiles
from zraft.storage.delivery.points import IndexCache, Points
from zraft.storage.delivery.scanning import DeliveryFrame, FrameScanner
from zraft.storage.delivery.values import (
    DeliveryFormatError,
    Mark,
    StoredDelivery,
    decode_deliveries,
    read_deliveries,
)
from zraft.storage.durable import reading
from zraft.storage.errors import CorruptionError, DeliveriesGoneError
from zraft.storage.filesystem import FileSystem
from zraft_core.errors import StorageError

READ_BYTES_DEFAULT: Final = 1 << 20
DELIVERY_OVERHEAD_BYTES: Final = 64
"""The bytes that a delivery counts for beside its payload, so that reads of empty ones are bounded, too."""
_HINTS_MAX: Final = 64
"""Consumers of a group that read on where they were, without a look at an index."""
_ATTEMPTS_MAX: Final = 8
_T = TypeVar("_T")


@frozen
class DeliveryView:
    """View of what can be read: `closed` segments, and the one that is being written with its points, `tail`.

    `version` grows whenever files come or go. `closed_bytes` are those of the closed segments.
    """

    version: int
    base: Mark
    closed: tuple[Segment, ...]
    tail: Segment | None
    tail_points: Points | None
    ends: tuple[int, ...] = field(repr=False)
    closed_bytes: int

    @property
    def end(self) -> Mark:
        """The position at which the view ends."""
        if self.tail is not None:
            return self.tail.end
        return self.closed[-1].end if self.closed else self.base

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """Yield the segments from the one on that holds `offset`."""
        yield from self.closed[bisect_right(self.ends, offset) :]
        if self.tail is not None and self.tail.end.offset > offset:
            yield self.tail


class DeliveryReader:
    """One group's deliveries. Any number of threads may call at once; blocks for the disk."""

    __slots__ = ("_files", "_fs", "_group", "_hints", "_indices", "_mutex", "_path", "_view")

    def __init__(
        self,
        fs: FileSystem,
        files: OpenFiles,
        indices: IndexCache,
        path: str,
        group: int,
        view: Callable[[], DeliveryView],
    ) -> None:
        self._fs = fs
        self._files = files
        self._indices = indices
        self._path = path
        self._group = group
        self._view = view
        self._hints: OrderedDict[int, tuple[bytes, int]] = OrderedDict()
        self._mutex = threading.Lock()

    def read(self, offset: int, bytes_max: int = READ_BYTES_DEFAULT) -> list[StoredDelivery]:
        """Return deliveries from `offset` on, in order; none if there is none yet.

        Stops before the one with which payloads, and `DELIVERY_OVERHEAD_BYTES` for each, would be more than
        `bytes_max`, but gives at least one. Includes what is not durable here yet: it is committed, so a restart
        delivers the same.

        Raises:
            DeliveriesGoneError: retention removed that offset; says where the log begins.
            CorruptionError: the bytes are no longer what was written.
            StorageError: the disk cannot be read.
        """
        assert offset >= 0, f"{offset=}"
        return self._attempt(lambda view: self._read(view, offset, bytes_max), offset)

    def offset_of_time(self, time: int) -> int:
        """Return the offset of the first delivery with that wall time (ms) or a later one.

        It is the end if there is none yet. The errors are those of `read`.
        """
        return self._attempt(lambda view: self._find_time(view, time))

    def mark_at(self, offset: int) -> Mark:
        """Return digest and stamp before `offset`, which is at most the end.

        The errors are those of `read`.
        """
        return self._attempt(lambda view: self._mark_at(view, offset), offset)

    def _attempt(self, call: Callable[[DeliveryView], _T], offset: int | None = None) -> _T:
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            view = self._view()
            if offset is not None and offset < view.base.offset:
                raise DeliveriesGoneError(self._path, self._group, offset, view.base.offset)
            try:
                return call(view)
            except StorageError:
                if attempt == _ATTEMPTS_MAX or self._view().version == view.version:
                    raise
        raise AssertionError("unreachable")

    def _read(self, view: DeliveryView, offset: int, bytes_max: int) -> list[StoredDelivery]:
        found: list[StoredDelivery] = []
        size = 0
        for segment, frame in self._frames(view, offset):
            for one in self._deliveries(segment, frame):
                if one.end <= offset:
                    continue
                size += len(one.payload) + DELIVERY_OVERHEAD_BYTES
                if found and size > bytes_max:
                    self._hint(one.offset, segment, frame.position)
                    return found
                found.append(one)
            self._hint(frame.head.end_offset, segment, frame.end)
            if size >= bytes_max:
                break
        return found

    def _find_time(self, view: DeliveryView, time: int) -> int:
        for segment in view.from_offset(view.base.offset):
            if segment.time < time:
                continue
            for frame in self._scan(segment, self._points(view, segment).at_time(time)):
                if frame.head.time >= time:
                    for one in self._deliveries(segment, frame):
                        if one.time >= time:
                            return one.offset
        return view.end.offset

    def _mark_at(self, view: DeliveryView, offset: int) -> Mark:
        end = view.end
        assert offset <= end.offset, f"{offset=} {end.offset=}"
        for mark in (end, view.base):
            if mark.offset == offset:
                return mark
        for segment, frame in self._frames(view, offset - 1):
            path = f"{self._path}/{segment.name}"
            try:
                records = records_of(frame.head, frame.data, path, frame.position)
                for one, chain in decode_deliveries(records, frame.head.chain):
                    if one.end == offset:
                        # There may be more to come of its entry.
                        return Mark(offset, one.stamp, chain, one.index - 1)
            except DeliveryFormatError as error:
                raise CorruptionError(path, frame.position, str(error)) from error
            break
        raise CorruptionError(self._path, 0, f"no delivery in its segments ends at offset {offset}")

    def _frames(self, view: DeliveryView, offset: int) -> Iterator[tuple[Segment, DeliveryFrame]]:
        """Yield the frames from the one on that holds `offset`, with their segments."""
        for segment in view.from_offset(offset):
            position = self._hinted(offset, segment)
            if position is None:
                position = self._points(view, segment).at_offset(offset)
            for frame in self._scan(segment, position):
                if frame.head.end_offset > offset:
                    yield segment, frame

    def _scan(self, segment: Segment, position: int) -> Iterator[DeliveryFrame]:
        """Yield the segment's frames from a position on, as far as they count; their checksums are right."""
        path = f"{self._path}/{segment.name}"
        with self._files.use(path) as file:
            scanner = FrameScanner(
                self._fs, file, seed=crc32c(segment.id), position=position, limit=segment.size
            )
            frames = iter(scanner)
            while True:
                with reading(path):
                    frame = next(frames, None)
                if frame is None:
                    break
                if frame.head.offset >= segment.end.offset:
                    return
                yield frame
            if scanner.position < segment.size:
                raise CorruptionError(
                    path, scanner.position, scanner.damage or "zeros where a frame was written"
                )

    def _deliveries(self, segment: Segment, frame: DeliveryFrame) -> Iterator[StoredDelivery]:
        """Yield the deliveries of the frame that count."""
        path, head = f"{self._path}/{segment.name}", frame.head
        try:
            found = read_deliveries(records_of(head, frame.data, path, frame.position))
        except DeliveryFormatError as error:
            raise CorruptionError(path, frame.position, str(error)) from error
        if not found or (found[0].offset, found[-1].end) != (head.offset, head.end_offset):
            raise CorruptionError(path, frame.position, "the head does not tell of these records")
        for one in found:
            if one.offset < segment.end.offset:
                yield one

    def _points(self, view: DeliveryView, segment: Segment) -> Points:
        if segment is view.tail and view.tail_points is not None:
            return view.tail_points
        return self._indices.points(self._path, self._group, segment)

    def _hint(self, offset: int, segment: Segment, position: int) -> None:
        with self._mutex:
            self._hints[offset] = segment.id, position
            while len(self._hints) > _HINTS_MAX:
                self._hints.popitem(last=False)

    def _hinted(self, offset: int, segment: Segment) -> int | None:
        with self._mutex:
            hint = self._hints.pop(offset, None)
        return hint[1] if hint is not None and hint[0] == segment.id else None
