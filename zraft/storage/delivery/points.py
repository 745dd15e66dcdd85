"""Points in a segment at which reading can start: a sparse list of frames by offset, stamp and time.

Pure but for `IndexCache`.

There is a point every so many bytes. The file, `<segment>.idx`, is written when a segment is closed and is never
relied on: what does not match its checksum and its segment is made anew from the heads of the frames.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgpack
from crc32c import crc32c

from zraft.storage.delivery.frames import HEADER_BYTES, DeliveryFrameHead
from zraft.storage.delivery.manifest import Segment
from zraft.storage.delivery.open_files import OpenFiles
from zraft.storage.delivery.scanning import read_header, scan_heads
from zraft.storage.delivery.values import Stamp
from zraft.storage.durable import reading, writing
from zraft.storage.errors import CorruptionError, DiskFullError
from zraft.storage.filesystem import FileSystem
from zraft_core.errors import StorageError

FORMAT: Final = 1
INDEX_BYTES_MAX: Final = 64 << 20
_CRC = struct.Struct(">I")


class Point(NamedTuple):
    """Place of a frame: the offset and stamp of its first delivery, and its position in the file.

    `time` is the latest wall time before it in the segment (-1 at the first).
    """

    offset: int
    position: int
    stamp: Stamp
    time: int


class Points:
    """The points of one segment. One thread adds, others may look up meanwhile."""

    __slots__ = ("_due", "_rows", "_stride", "_time")

    def __init__(self, stride_bytes: int) -> None:
        self._stride = stride_bytes
        self._rows: list[Point] = []
        self._due = 0
        self._time = -1

    def note(self, position: int, head: DeliveryFrameHead) -> None:
        """Note the next frame of the segment."""
        if position >= self._due:
            self._rows.append(Point(head.offset, position, head.stamp, self._time))
            self._due = position + self._stride
        self._time = max(self._time, head.time)

    def at_offset(self, offset: int) -> int:
        """Return the position of a frame at or before the one that holds `offset`."""
        return self._position(bisect_right(self._rows, offset, key=itemgetter(0)) - 1)

    def at_time(self, time: int) -> int:
        """Return the position of a frame at or before the first delivery whose wall time is that or later."""
        return self._position(bisect_left(self._rows, time, key=itemgetter(3)) - 1)

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Points) and self._rows == other._rows

    __hash__ = None  # type: ignore[assignment]

    def _position(self, at: int) -> int:
        return self._rows[at].position if at >= 0 else HEADER_BYTES

    def encode(self, segment: Segment) -> bytes:
        """Return the index file's bytes."""
        rows = [tuple(row) for row in self._rows]
        data: bytes = msgpack.packb((FORMAT, segment.id, segment.size, self._stride, rows))
        return data + _CRC.pack(crc32c(data))

    @classmethod
    def decode(cls, data: bytes, segment: Segment) -> Points | None:
        """Return the points of that segment, or None if these bytes are not what `encode` made for it."""
        packed, stored = data[: -_CRC.size], data[-_CRC.size :]
        if _CRC.pack(crc32c(packed)) != stored:
            return None
        try:
            fields: Any = msgpack.unpackb(packed, use_list=False)
        except (ValueError, TypeError, msgpack.UnpackException):
            return None
        match fields:
            case (int(format), id, size, int(stride), tuple(rows)) if format == FORMAT and (id, size) == (
                segment.id,
                segment.size,
            ):
                points = cls(stride)
                points._rows = [Point(*row) for row in rows]
                return points
        return None


def points_of(
    fs: FileSystem, file: int, path: str, group: int, segment: Segment, stride_bytes: int
) -> Points:
    """Make the points from the heads of the segment's frames.

    Raises:
        CorruptionError: a frame is not where it was written.
    """
    header = read_header(fs, file, path, group, segment)
    points, end = Points(stride_bytes), HEADER_BYTES
    with reading(path):
        for position, head in scan_heads(fs, file, seed=header.seed, limit=segment.size):
            points.note(position, head)
            end = position
    if segment.end.offset > segment.first and not len(points):
        raise CorruptionError(path, end, "no frame head that its checksum confirms")
    return points


def store_points(fs: FileSystem, path: str, segment: Segment, points: Points) -> None:
    """Write the index file. Not made durable: what a crash leaves of it is recognised. A full disk is no error."""
    try:
        with writing(path):
            file = fs.create(path)
            try:
                fs.pwrite(file, points.encode(segment), 0)
            finally:
                fs.close(file)
    except DiskFullError:
        pass


class IndexCache:
    """The points of the closed segments read lately, of all groups. Thread-safe."""

    __slots__ = ("_files", "_fs", "_max", "_mutex", "_points", "_stride", "rebuilt")

    def __init__(self, fs: FileSystem, files: OpenFiles, *, indices_max: int, stride_bytes: int) -> None:
        self._fs = fs
        self._files = files
        self._max = indices_max
        self._stride = stride_bytes
        self._points: OrderedDict[str, Points] = OrderedDict()
        self._mutex = threading.Lock()
        self.rebuilt = 0
        """The number of index files that were missing or damaged."""

    def points(self, directory: str, group: int, segment: Segment) -> Points:
        """Return the segment's points: from memory, from their file, or made anew, which reads all of its heads.

        Raises:
            StorageError: the segment cannot be read or is damaged.
        """
        path = f"{directory}/{segment.index_name}"
        with self._mutex:
            known = self._points.get(path)
            if known is not None:
                self._points.move_to_end(path)
                return known
        points = self._load(path, segment)
        if points is None:
            self.rebuilt += 1
            name = f"{directory}/{segment.name}"
            with self._files.use(name) as file:
                points = points_of(self._fs, file, name, group, segment, self._stride)
            store_points(self._fs, path, segment, points)
        self.put(path, points)
        return points

    def put(self, path: str, points: Points) -> None:
        """Remember them."""
        with self._mutex:
            self._points[path] = points
            while len(self._points) > self._max:
                self._points.popitem(last=False)

    def forget(self, path: str) -> None:
        """Forget a segment that is gone."""
        with self._mutex:
            self._points.pop(path, None)

    def __len__(self) -> int:
        return len(self._points)

    def _load(self, path: str, segment: Segment) -> Points | None:
        try:
            with reading(path):
                file = self._fs.open(path)
                try:
                    data = self._fs.pread(file, min(self._fs.size(file), INDEX_BYTES_MAX), 0)
                finally:
                    self._fs.close(file)
        except StorageError:
            return None  # its contents can be had from the segment itself
        return Points.decode(data, segment)
