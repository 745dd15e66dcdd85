"""The segment that a group's deliveries are being written to: frames are added, synced, and at last it is closed.

Knows nothing of the manifest; who uses it stores one before the first frame, so that no frame is in a file that a start
would not look at.
"""

from __future__ import annotations

from collections.abc import Sequence

import zstandard
from crc32c import crc32c

from zraft.storage.delivery.frames import (
    DeliveryFrameHead,
    DeliverySegmentHeader,
    compress,
    encode_frame,
    encode_header,
)
from zraft.storage.delivery.manifest import Segment
from zraft.storage.delivery.open_files import OpenFiles
from zraft.storage.delivery.points import Points
from zraft.storage.delivery.values import Mark, StoredDelivery, encode_deliveries
from zraft.storage.durable import sync_directory, sync_file, writing
from zraft.storage.errors import DiskFullError, FsyncError
from zraft.storage.filesystem import FileSystem


class Tail:
    """One segment from its creation to its end. Belongs to one thread; `segment` and `points` may be read by others.

    The file stays open while it holds bytes that are not durable: who closes and opens it in between may never hear
    of an error that the kernel met when it wrote them.
    """

    __slots__ = (
        "_compressor",
        "_crc",
        "_files",
        "_fs",
        "_gripped",
        "_header",
        "_path",
        "durable",
        "points",
        "segment",
    )

    def __init__(
        self,
        fs: FileSystem,
        files: OpenFiles,
        directory: str,
        header: DeliverySegmentHeader,
        start: Mark,
        *,
        stride_bytes: int,
        compressor: zstandard.ZstdCompressor | None,
    ) -> None:
        """Make the file: durable with its header and its name on return, but in no manifest yet.

        Raises:
            DiskFullError: it is not there.
            FsyncError, WriteError: the process has to end.
        """
        self._fs = fs
        self._files = files
        self._header = header
        self._compressor = compressor
        data = encode_header(header)
        self.segment = Segment(header.id, header.first_offset, start, len(data), crc32c(data), 0)
        """All of it that was written."""
        self.durable = self.segment
        """The part of it that a power failure cannot take."""
        self.points = Points(stride_bytes)
        self._path = path = f"{directory}/{self.segment.name}"
        with writing(path):
            file = fs.create(path)
            try:
                fs.pwrite(file, data, 0)
                sync_file(fs, file, path)
            except FsyncError:
                fs.close(file)
                raise
            except OSError:
                fs.close(file)
                fs.unlink(path)
                raise
        fs.close(file)
        sync_directory(fs, directory)
        self._gripped = False

    @property
    def dirty(self) -> bool:
        """True if the segment holds what is not durable."""
        return self._gripped

    @property
    def unsynced_bytes(self) -> int:
        """The number of bytes that are not durable."""
        return self.segment.size - self.durable.size

    def room_for(self, size: int, size_max: int) -> bool:
        """Return whether records of `size` bytes fit in; an empty segment accepts any."""
        return self.segment.end.offset == self.segment.first or self.segment.size + size <= size_max

    def write(self, deliveries: Sequence[StoredDelivery], index: int) -> None:
        """Add a frame. Readers may see it once `segment` has changed; it is durable after `sync`.

        Args:
            index: every delivery up to that Raft index is among these or before them.

        Raises:
            DiskFullError: nothing of it counts, and the same call can be repeated.
            WriteError: the process has to end.
        """
        before = self.segment
        records, chain = encode_deliveries(deliveries, before.end.chain)
        raw = b"".join(records)
        compressed, data = compress(raw, self._compressor)
        first, last = deliveries[0], deliveries[-1]
        head = DeliveryFrameHead(
            compressed,
            first.offset,
            last.end - first.offset,
            self.durable.end.offset,
            index,
            before.end.chain,
            first.stamp,
            max(one.time for one in deliveries),
            len(raw),
            0,
            len(data),
        )
        frame = encode_frame(head, data, self._header.seed)
        if not self._gripped:
            self._files.grip(self._path)
            self._gripped = True
        with self._files.use(self._path) as file:
            try:
                with writing(self._path):
                    self._fs.pwrite(file, frame, before.size)
            except DiskFullError:
                # Part of it may stand there: leave nothing that what follows, which may be shorter, would not cover.
                with writing(self._path):
                    self._fs.ftruncate(file, before.size)
                raise
        self.points.note(before.size, head)
        end = Mark(head.end_offset, last.stamp, chain, index)
        self.segment = Segment(
            before.id,
            before.first,
            end,
            before.size + len(frame),
            crc32c(frame, before.crc),
            max(before.time, head.time),
        )

    def sync(self) -> None:
        """Make all of it durable.

        Raises:
            FsyncError: the process has to end.
        """
        if not self._gripped:
            return
        with self._files.use(self._path) as file:
            sync_file(self._fs, file, self._path)
        self.durable = self.segment
        self._gripped = False
        self._files.let_go(self._path)
