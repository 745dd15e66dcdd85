"""Scan of the frames of one segment file: whole, by their heads only, or in search of what was durable.

Knows checksums and the rules that deliveries follow one another by; whether what is missing may be missing is for the
caller to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import frozen
from crc32c import crc32c

from zraft.storage.delivery.frames import (
    HEAD_BYTES,
    HEADER_BYTES,
    MARKS,
    DeliveryFrameHead,
    DeliverySegmentHeader,
    decode_head,
    decode_header,
    records_of,
)
from zraft.storage.delivery.manifest import Segment
from zraft.storage.delivery.values import DeliveryFormatError, Mark, StoredDelivery, decode_deliveries
from zraft.storage.durable import reading
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem

READ_BYTES: Final = 256 << 10
"""The bytes of a segment that are read at once; a larger frame is read whole."""


@frozen
class DeliveryFrame:
    """A frame whose checksums were right, at `position` in the file; `data` is its records as stored."""

    position: int
    head: DeliveryFrameHead
    data: bytes

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + HEAD_BYTES + self.head.length


class FrameScanner:
    """Scanner that reads frames in order.

    After the iteration `position` is where it stopped, and `damage` why: None at `limit` or at a
    zero byte, else what is wrong with the next frame.
    """

    __slots__ = ("_file", "_fs", "_limit", "_read_bytes", "_seed", "damage", "position")

    def __init__(
        self,
        fs: FileSystem,
        file: int,
        *,
        seed: int,
        position: int,
        limit: int,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self._fs = fs
        self._file = file
        self._seed = seed
        self._limit = limit
        self._read_bytes = read_bytes
        self.position = position
        self.damage: str | None = None

    def __iter__(self) -> Iterator[DeliveryFrame]:
        data, base = b"", self.position
        while self.position < self._limit:
            at = self.position - base
            if len(data) - at < HEAD_BYTES:
                data, base, at = self._read(HEAD_BYTES), self.position, 0
            if not data:
                self.damage = "the file is shorter than its size said"
                return
            if data[at] == 0:
                return
            head = decode_head(data, at, self._seed)
            if head is None:
                self.damage = "no frame head that its checksum confirms"
                return
            end = at + HEAD_BYTES + head.length
            if base + end > self._limit:
                self.damage = f"a frame of {head.length} bytes runs past the end at {self._limit}"
                return
            if end > len(data):
                data, base = self._read(HEAD_BYTES + head.length), self.position
                at, end = 0, HEAD_BYTES + head.length
            records = data[at + HEAD_BYTES : end]
            if len(records) != head.length or crc32c(records, self._seed) != head.crc:
                self.damage = f"the records of the frame at offset {head.offset} do not match their checksum"
                return
            frame = DeliveryFrame(self.position, head, records)
            self.position = base + end
            yield frame

    def _read(self, least: int) -> bytes:
        size = min(max(self._read_bytes, least), self._limit - self.position)
        return self._fs.pread(self._file, size, self.position)


def scan_heads(
    fs: FileSystem, file: int, *, seed: int, limit: int
) -> Iterator[tuple[int, DeliveryFrameHead]]:
    """Yield (position, head) of each frame, without looking at the records; ends early at one that is not there."""
    data, base, position = b"", 0, HEADER_BYTES
    while position < limit:
        at = position - base
        if not 0 <= at <= len(data) - HEAD_BYTES:
            data, base, at = fs.pread(file, min(READ_BYTES, limit - position), position), position, 0
        head = decode_head(data, at, seed)
        if head is None:
            return
        yield position, head
        position += HEAD_BYTES + head.length


def first_time(fs: FileSystem, path: str, segment: Segment) -> int | None:
    """Return the latest wall time (ms) in the first frame of a segment that has one; None if its head is not there.

    The file is opened for this alone, so that it takes no place among those that readers use.

    Raises:
        StorageError: the file cannot be read.
    """
    with reading(path):
        file = fs.open(path)
        try:
            heads = scan_heads(fs, file, seed=crc32c(segment.id), limit=HEADER_BYTES + HEAD_BYTES)
            return next((head.time for _, head in heads), None)
        finally:
            fs.close(file)


def follow(mark: Mark, frame: DeliveryFrame, path: str) -> tuple[Mark, list[tuple[StoredDelivery, bytes]]]:
    """Return where the log stands after the frame, and its deliveries, each with the digest after it.

    Raises:
        CorruptionError: the frame's checksums are right, but it does not continue what was before, or breaks a rule.
    """
    head = frame.head
    found: list[tuple[StoredDelivery, bytes]] = []
    stamp, index, chain = mark.stamp, mark.index, mark.chain
    problem = None
    if (head.offset, head.chain) != (mark.offset, mark.chain):
        problem = (
            f"goes on at {head.offset} with digest {head.chain.hex()}, but what precedes it ends at {mark.offset} "
            f"with digest {mark.chain.hex()}"
        )
    else:
        try:
            records = records_of(head, frame.data, path, frame.position)
            expected = head.offset
            for one, digest in decode_deliveries(records, chain):
                if one.offset != expected:
                    problem = f"delivery {one.offset} where {expected} was expected"
                elif stamp is not None and one.stamp <= stamp:
                    problem = f"delivery {one.offset} has stamp {one.stamp}, the one before {stamp}"
                elif one.index < index or (not found and one.index <= mark.index):
                    problem = f"delivery {one.offset} is of entry {one.index}, but entry {index} came before"
                if problem is not None:
                    break
                expected, stamp, index, chain = one.end, one.stamp, one.index, digest
                found.append((one, digest))
        except DeliveryFormatError as error:
            problem = str(error)
    if problem is None:
        said = (head.count, head.stamp, head.time)
        count = found[-1][0].end - head.offset if found else 0
        is_so = (count, found[0][0].stamp, max(one.time for one, _ in found)) if found else (0, None, 0)
        # The frame may hold the beginning of an entry that it cuts in two.
        if said != is_so or index > head.index + 1:
            problem = "the head does not tell of these records"
    if problem is not None:
        raise CorruptionError(
            path,
            frame.position,
            f"frame: {problem}",
            advice="start the release that wrote it, and report this if it is this one",
        )
    return Mark(head.end_offset, stamp, chain, head.index), found


@frozen
class DeliveryRest:
    """Rest of a file after the last good frame: where the non-zero bytes end.

    `witness` is a frame in it which says that the damaged one was durable, if there is one.
    """

    end: int
    witness: int | None


def inspect_rest(fs: FileSystem, file: int, *, seed: int, start: int, size: int, offset: int) -> DeliveryRest:
    """Search everything from `start` on for a frame that was written when delivery `offset` was durable (D-10).

    A power failure may take any part of what was not synced, so valid frames may follow a torn one; but none of them
    can say that the torn one was synced before. Memory is bounded by `READ_BYTES`.
    """
    end = at = start
    while at < size:
        data = fs.pread(file, min(READ_BYTES + HEAD_BYTES - 1, size - at), at)
        if not data:
            break
        filled = len(data.rstrip(b"\0"))
        if filled:
            end = max(end, at + filled)
        for mark in MARKS:
            candidate = data.find(mark)
            while 0 <= candidate < READ_BYTES:
                head = decode_head(data, candidate, seed)
                if head is not None and head.synced > offset:
                    return DeliveryRest(end, at + candidate)
                candidate = data.find(mark, candidate + 1)
        at += READ_BYTES
    return DeliveryRest(end, None)


def read_header(fs: FileSystem, file: int, path: str, group: int, segment: Segment) -> DeliverySegmentHeader:
    """Return the header of a segment that the manifest lists.

    Raises:
        CorruptionError: it is damaged, or another segment's.
    """
    with reading(path):
        header = decode_header(fs.pread(file, HEADER_BYTES, 0), path)
    if (header.group, header.id, header.first_offset) != (group, segment.id, segment.first):
        raise CorruptionError(
            path,
            0,
            f"the header says group {header.group}, segment {header.id.hex()} from {header.first_offset}, the manifest "
            f"group {group}, segment {segment.id.hex()} from {segment.first}",
            advice="put each group's files back where they belong",
        )
    return header


class SegmentVerifier:
    """Verifier of all that counts of a file: header, checksums, digests, and the end that the manifest says.

    In steps, so that a file can be checked while it arrives. Memory is bounded by a frame.

    Raises (from all methods):
        CorruptionError: something is not what was written; names the offset in the file.
        StorageError: the file cannot be read.
    """

    __slots__ = (
        "_crc",
        "_damage",
        "_file",
        "_fs",
        "_group",
        "_mark",
        "_path",
        "_reached",
        "_segment",
        "_start",
        "position",
    )

    def __init__(
        self, fs: FileSystem, file: int, path: str, group: int, start: Mark, segment: Segment
    ) -> None:
        """`start`: where the segment begins, as what precedes it says."""
        self._fs = fs
        self._file = file
        self._path = path
        self._group = group
        self._start = self._mark = start
        self._segment = segment
        self._reached = start if segment.end.offset == start.offset else None
        self._damage: str | None = None
        self._crc = 0
        self.position = 0
        """The place up to which it was checked."""

    def advance(self, limit: int) -> None:
        """Check the frames that lie wholly before `limit`; the bytes up to there are written."""
        limit = min(limit, self._segment.size)
        if self.position == 0 and limit >= HEADER_BYTES:
            self._check_header()
        if self.position == 0:
            return
        fs, file, path = self._fs, self._file, self._path
        scanner = FrameScanner(fs, file, seed=crc32c(self._segment.id), position=self.position, limit=limit)
        with reading(path):
            for frame in scanner:
                self._mark, found = follow(self._mark, frame, path)
                end = self._segment.end.offset
                if found[0][0].offset < end <= found[-1][0].end:
                    one, digest = next(each for each in found if each[0].end >= end)
                    self._reached = Mark(one.end, one.stamp, digest, 0)
                self._count(scanner.position)
        self._damage = scanner.damage

    def finish(self) -> None:
        """Check at the end that the segment is whole, and is what the manifest lists.

        Raises:
            CorruptionError: it is not.
        """
        segment, end, path = self._segment, self._segment.end, self._path
        self.advance(segment.size)
        if self.position != segment.size:
            raise CorruptionError(path, self.position, self._damage or "zeros where a frame was written")
        reached = self._reached
        if reached is None or (reached.stamp, reached.chain) != (end.stamp, end.chain):
            raise CorruptionError(
                path,
                self.position,
                f"ends at delivery {self._mark.offset} with digest {self._mark.chain.hex()}, the manifest says at "
                f"{end.offset} with {end.chain.hex()}",
            )
        if self._crc != segment.crc:
            raise CorruptionError(
                path, 0, f"checksum {self._crc:08x} of the file, the manifest says {segment.crc:08x}"
            )

    def _check_header(self) -> None:
        header = read_header(self._fs, self._file, self._path, self._group, self._segment)
        if header.chain != self._start.chain:
            raise CorruptionError(
                self._path,
                0,
                f"begins with digest {header.chain.hex()}, what precedes it ends with {self._start.chain.hex()}",
            )
        with reading(self._path):
            self._count(HEADER_BYTES)

    def _count(self, upto: int) -> None:
        while self.position < upto:
            data = self._fs.pread(self._file, min(READ_BYTES, upto - self.position), self.position)
            if not data:
                raise CorruptionError(self._path, self.position, "the file is shorter than its size said")
            self._crc = crc32c(data, self._crc)
            self.position += len(data)
