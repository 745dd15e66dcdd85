"""The bytes of a segment file: its header, and frames with their checksums (D-10).

A segment is a plain MessagePack stream: one map, then for each frame an array
`[1, number, length, body_crc, head_crc]` followed by `length` bytes of records, then integers 0 (the
preallocated zeros). All numbers of header and frame head have fixed width, so that they can be found
without a parser. Both checksums are CRC-32C seeded with the segment's random id: bytes of another
segment, or bytes that a client put into a payload, never pass for a frame of this one. The head has a
checksum of its own so that a search for frames after damage costs 26 bytes per candidate, however
many lookalikes a payload contains. See docs/explanation/storage.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from attrs import frozen
from crc32c import crc32c

from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft.storage.records import FRAME_KIND, RECORD_BYTES_MAX
from zraft_core.ids import INSTANCE_BYTES, Instance, ServerId

FORMAT: Final = 2
"""Format 1 is the same without base frames; it is still read."""
_FORMATS: Final = (1, FORMAT)
SEGMENT_ID_BYTES: Final = 8
READ_BYTES: Final = 1 << 20
"""The bytes of a segment that are read at once; a larger frame is read whole."""

_HEADER = struct.Struct(f">9s9sQ5s{SEGMENT_ID_BYTES}s13sQ8sB11s{INSTANCE_BYTES}s5s")
_CRC = struct.Struct(">I")
_FORMAT_KEY: Final = b"\x87\xa6format"
_SEGMENT_KEY: Final = b"\xa7segment\xcf"
_ID_KEY: Final = b"\xa2id\xc4" + bytes([SEGMENT_ID_BYTES])
_FIRST_FRAME_KEY: Final = b"\xabfirst_frame\xcf"
_SERVER_KEY: Final = b"\xa6server\xcc"
_INSTANCE_KEY: Final = b"\xa8instance\xc4" + bytes([INSTANCE_BYTES])
_CRC_KEY: Final = b"\xa3crc\xce"
HEADER_BYTES: Final = _HEADER.size + _CRC.size

_HEAD = struct.Struct(">3sQBIBIBI")
_HEAD_BEFORE_CRC = struct.Struct(">3sQBIBI")
_HEAD_CRC = struct.Struct(">BI")
_HEAD_MARK: Final = bytes([0x95, FRAME_KIND, 0xCF])
_U32: Final = 0xCE
HEAD_BYTES: Final = _HEAD.size
_HEAD_CRC_AT: Final = _HEAD_BEFORE_CRC.size  # the head's checksum covers what precedes it


@frozen
class SegmentHeader:
    """Header of a segment: who wrote it, and which frame it begins with.

    `id` is random and seeds the checksums.

    `begins_with_base`: its first frame restates what every group stood at. It was durable before the segment got its
    name, so a crash cannot tear it.
    """

    segment: int
    id: bytes
    first_frame: int
    server: ServerId
    instance: Instance
    format: int = FORMAT

    @property
    def begins_with_base(self) -> bool:
        """True if the first frame restates the state of every group."""
        return self.format > 1 and self.first_frame > 1

    @property
    def seed(self) -> int:
        """The start value of every CRC-32C in this segment."""
        return crc32c(self.id)


def encode_header(header: SegmentHeader) -> bytes:
    """Return `HEADER_BYTES` bytes: one MessagePack map."""
    data = _HEADER.pack(
        _FORMAT_KEY + bytes([header.format]),
        _SEGMENT_KEY,
        header.segment,
        _ID_KEY,
        header.id,
        _FIRST_FRAME_KEY,
        header.first_frame,
        _SERVER_KEY,
        header.server,
        _INSTANCE_KEY,
        header.instance,
        _CRC_KEY,
    )
    return data + _CRC.pack(crc32c(data))


def decode_header(data: bytes, path: str) -> SegmentHeader:
    """Return the header at the start of a segment file.

    Raises:
        CorruptionError: it is damaged, or of a format that this release does not know. A crash cannot do
            this: a segment gets its name only after its header is durable.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptionError(path, 0, f"{len(data)} bytes, the header alone has {HEADER_BYTES}")
    data = data[:HEADER_BYTES]
    if data[:8] == _FORMAT_KEY and data[8] not in _FORMATS:
        raise CorruptionError(
            path,
            8,
            f"segment of format {data[8]}, this release knows {_FORMATS[0]} to {FORMAT}",
            advice="start the release that wrote it; if none of yours did, the disk is damaged",
        )
    fields = _HEADER.unpack_from(data)
    header = SegmentHeader(
        fields[2], fields[4], fields[6], ServerId(fields[8]), Instance(fields[10]), data[8]
    )
    if encode_header(header) != data:
        raise CorruptionError(path, 0, "the segment's header does not match its checksum")
    return header


class FrameHead(NamedTuple):
    """`length` and `body_crc` describe the bytes that follow the head."""

    number: int
    length: int
    body_crc: int


class Frame(NamedTuple):
    """A frame whose checksums were right; `end` is the offset after it."""

    number: int
    offset: int
    end: int
    body: memoryview


def encode_frame(number: int, body: bytes, seed: int) -> bytes:
    """Return one frame. `body` is what `encode_records` made."""
    size = len(body)
    assert 0 < size <= RECORD_BYTES_MAX, f"frame body of {size} bytes, limit {RECORD_BYTES_MAX}"
    head = _HEAD_BEFORE_CRC.pack(_HEAD_MARK, number, _U32, size, _U32, crc32c(body, seed))
    return head + _HEAD_CRC.pack(_U32, crc32c(head, seed)) + body


def decode_head(data: bytes, at: int, seed: int) -> FrameHead | None:
    """Return the frame head at `at`, or None if there is none that its checksum confirms."""
    if len(data) - at < HEAD_BYTES:
        return None
    mark, number, length_type, length, body_type, body_crc, head_type, head_crc = _HEAD.unpack_from(data, at)
    if mark != _HEAD_MARK or length_type != _U32 or body_type != _U32 or head_type != _U32:
        return None
    if crc32c(data[at : at + _HEAD_CRC_AT], seed) != head_crc or not 0 < length <= RECORD_BYTES_MAX:
        return None
    return FrameHead(number, length, body_crc)


class LogFrameReader:
    """Reader of the frames of one file in order, in pieces of `READ_BYTES`.

    After the iteration `end` is the offset after the last good frame, and `damage` says why it
    stopped there: None at the end of the file or at a zero byte, else what is wrong with the next frame.
    """

    __slots__ = ("_file", "_fs", "_seed", "_size", "damage", "end", "number")

    def __init__(self, fs: FileSystem, file: int, *, seed: int, start: int, size: int, number: int) -> None:
        self._fs = fs
        self._file = file
        self._seed = seed
        self._size = size
        self.end = start
        self.number = number
        self.damage: str | None = None

    def __iter__(self) -> Iterator[Frame]:
        fs, file, seed, size = self._fs, self._file, self._seed, self._size
        start, number = self.end, self.number
        base = start
        data = b""
        view = memoryview(data)
        while start < size:
            at = start - base
            if len(data) - at < HEAD_BYTES:
                base, at = start, 0
                data = fs.pread(file, min(READ_BYTES, size - base), base)
                view = memoryview(data)
                if not data:
                    self.damage = "the file is shorter than its size said"
                    return
            if data[at] == 0:
                return
            head = decode_head(data, at, seed)
            if head is None:
                self.damage = "no frame head that its checksum confirms"
                return
            found, length, body_crc = head
            if found != number:
                self.damage = f"frame {found} where frame {number} was expected"
                return
            end = start + HEAD_BYTES + length
            if end > size:
                self.damage = f"frame {number} of {length} bytes runs past the end of the file at {size}"
                return
            if end - base > len(data):
                base, at = start, 0
                data = fs.pread(file, min(max(READ_BYTES, end - base), size - base), base)
                view = memoryview(data)
            body = view[at + HEAD_BYTES : end - base]
            if len(body) != length or crc32c(body, seed) != body_crc:
                self.damage = f"the body of frame {number} does not match its checksum"
                return
            frame = Frame(number, start, end, body)
            self.end = start = end
            self.number = number = number + 1
            yield frame


@frozen
class Rest:
    """Rest of a file after the last good frame.

    It is where the non-zero bytes end, and the first valid frame in it, if any.
    """

    end: int
    frame_offset: int | None


def inspect_rest(fs: FileSystem, file: int, *, seed: int, start: int, size: int) -> Rest:
    """Search everything from `start` on for frames that the checksums confirm, at any offset, with any number.

    A torn write leaves none; damage to a frame that was followed by others does (D-10). Memory is
    bounded by `READ_BYTES`.
    """
    end = start
    offset = start
    while offset < size:
        data = fs.pread(file, min(READ_BYTES + HEAD_BYTES - 1, size - offset), offset)
        if not data:
            break
        filled = len(data.rstrip(b"\0"))
        if filled:
            end = max(end, offset + filled)
        at = data.find(_HEAD_MARK)
        while 0 <= at < READ_BYTES:
            head = decode_head(data, at, seed)
            if head is not None and _body_is_valid(fs, file, head, seed, offset + at + HEAD_BYTES):
                return Rest(end, offset + at)
            at = data.find(_HEAD_MARK, at + 1)
        offset += READ_BYTES
    return Rest(end, None)


def _body_is_valid(fs: FileSystem, file: int, head: FrameHead, seed: int, offset: int) -> bool:
    crc, missing = seed, head.length
    while missing:
        data = fs.pread(file, min(missing, READ_BYTES), offset)
        if not data:
            return False
        crc = crc32c(data, crc)
        offset += len(data)
        missing -= len(data)
    return crc == head.body_crc
