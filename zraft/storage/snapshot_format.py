"""The bytes of a snapshot file: header, compressed blocks, footer, each with its checksum.

A snapshot is a plain MessagePack stream: one map, then for each block an array `[1, number, size, crc, data]` whose data is
zstd, then one array `[2, blocks, items, zxid, bytes, digest, crc]`. All checksums but the header's are CRC-32C seeded with
the snapshot's random id, so bytes of another snapshot never pass for this one's. See docs/explanation/storage.md,
"Snapshots".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import msgpack
import zstandard
from attrs import frozen
from crc32c import crc32c

from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.durable import reading
from zraft.storage.errors import CorruptionError, NoSnapshotError, UnknownFormatError
from zraft.storage.filesystem import FileSystem
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN, GroupId, Instance, ServerId

FORMAT: Final = 1
SNAPSHOT_ID_BYTES: Final = 16
DIGEST_BYTES: Final = 16
HEADER_BYTES_MAX: Final = 1 << 20
"""A header is some hundred bytes and the membership, which has at most 254 rows."""
BLOCK_BYTES_MAX: Final = 2 << 20
"""Uncompressed, and also what a block may take compressed: both sides hold one in memory."""
COMPRESSION_LEVEL: Final = 1
"""The fastest: a server's second core is better spent on clients than on the last tenth of a file."""

_FORMAT_KEY: Final = b"\x8e\xa6format"
_BYTES_KEY: Final = b"\xa5bytes\xce"
_BYTES_AT: Final = len(_FORMAT_KEY) + 1 + len(_BYTES_KEY)
_U32: Final = struct.Struct(">I")
_CRC_KEY: Final = b"\xa3crc\xce"
_START_BYTES: Final = _BYTES_AT + _U32.size

_BLOCK_HEAD = struct.Struct(">2sBIBIBIBI")
_BLOCK_MARK: Final = b"\x95\x01"
BLOCK_HEAD_BYTES: Final = _BLOCK_HEAD.size
_BLOCK_SUM = struct.Struct(">III")
_FOOTER = struct.Struct(f">2sBIBQBQBQ2s{DIGEST_BYTES}sB")
_FOOTER_MARK: Final = b"\x97\x02"
FOOTER_BYTES: Final = _FOOTER.size + _U32.size
_IS_U32: Final = 0xCE
_IS_U64: Final = 0xCF
_IS_BIN32: Final = 0xC6
_IS_DIGEST: Final = bytes([0xC4, DIGEST_BYTES])


@frozen
class SnapshotHeader:
    """Header of a snapshot: what it is of, and who made it.

    `cluster` is empty if it was not known yet. `id` is random and seeds the checksums; `feature_level` is that of the state
    (D-5); `wall_time_ms` is for people.
    """

    group: GroupId
    meta: SnapshotMeta
    cluster: bytes
    server: ServerId
    instance: Instance
    id: bytes
    feature_level: int
    wall_time_ms: int

    @property
    def seed(self) -> int:
        """The start value of every CRC-32C after the header."""
        return crc32c(self.id)


@frozen
class SnapshotFooter:
    """`items` and `digest` (128 bits) are the image's own; `size` is that of all blocks before compression."""

    blocks: int
    items: int
    zxid: int
    size: int
    digest: int


@frozen
class SnapshotInfo:
    """A finished file. `size` is its length in bytes."""

    header: SnapshotHeader
    path: str
    size: int
    items: int
    digest: int
    zxid: int

    @property
    def group(self) -> GroupId:
        """The header's."""
        return self.header.group

    @property
    def id(self) -> bytes:
        """The header's."""
        return self.header.id

    @property
    def meta(self) -> SnapshotMeta:
        """The header's."""
        return self.header.meta


def encode_header(header: SnapshotHeader) -> bytes:
    """Return one MessagePack map, whose own length is its second value and whose checksum is its last."""
    assert len(header.id) == SNAPSHOT_ID_BYTES, f"{header.id=}"
    packer = msgpack.Packer(autoreset=False)
    for key, value in (
        ("group", header.group),
        ("index", header.meta.index),
        ("term", header.meta.term),
        ("next_position", header.meta.next_position),
        ("membership", header.meta.membership),
        ("cluster", header.cluster),
        ("server", header.server),
        ("instance", header.instance),
        ("id", header.id),
        ("feature_level", header.feature_level),
        ("wall_time_ms", header.wall_time_ms),
    ):
        packer.pack(key)
        packer.pack(value)
    values = bytes(packer.bytes())
    length = _START_BYTES + len(values) + len(_CRC_KEY) + _U32.size
    data = b"".join((_FORMAT_KEY, bytes([FORMAT]), _BYTES_KEY, _U32.pack(length), values, _CRC_KEY))
    return data + _U32.pack(crc32c(data))


def decode_header(data: bytes, path: str) -> tuple[SnapshotHeader, int]:
    """Return the header at the start of a file and its length.

    `data` is the file's first `HEADER_BYTES_MAX` bytes.

    Raises:
        CorruptionError: it is damaged, or of a format that this release does not know.
    """
    if len(data) < _START_BYTES or data[: len(_FORMAT_KEY)] != _FORMAT_KEY:
        raise NoSnapshotError(
            path, 0, f"{len(data)} bytes that do not begin as a snapshot does", advice=_ADVICE
        )
    if data[len(_FORMAT_KEY)] != FORMAT:
        raise UnknownFormatError(
            path,
            len(_FORMAT_KEY),
            f"snapshot of format {data[len(_FORMAT_KEY)]}, this release knows {FORMAT}",
            advice="start the release that wrote it; if none of yours did, the disk is damaged",
        )
    (length,) = _U32.unpack_from(data, _BYTES_AT)
    header, stored = data[: length - _U32.size], data[length - _U32.size : length]
    if len(data) < length or not header.endswith(_CRC_KEY) or _U32.pack(crc32c(header)) != stored:
        raise _corrupt(path, 0, "the snapshot's header does not match its checksum")
    try:
        fields: Any = msgpack.unpackb(data[:length])
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _corrupt(path, 0, f"the header is not a MessagePack map ({error})") from error
    match fields:
        case {
            "group": int(group),
            "index": int(index),
            "term": int(term),
            "next_position": int(next_position),
            "membership": bytes(membership),
            "cluster": bytes(cluster),
            "server": int(server),
            "instance": bytes(instance),
            "id": bytes(id),
            "feature_level": int(feature_level),
            "wall_time_ms": int(wall_time_ms),
        } if (
            group >= 0
            and index > 0
            and term > 0
            and next_position >= 1
            and SERVER_ID_MIN <= server <= SERVER_ID_MAX
            and len(instance) == INSTANCE_BYTES
            and len(id) == SNAPSHOT_ID_BYTES
        ):
            return SnapshotHeader(
                GroupId(group),
                SnapshotMeta(index, term, next_position, membership),
                cluster,
                ServerId(server),
                Instance(instance),
                id,
                feature_level,
                wall_time_ms,
            ), length
    raise _corrupt(path, 0, "values of the snapshot's header are wrong")


def encode_block(number: int, raw: bytes, seed: int, compressor: zstandard.ZstdCompressor) -> bytes:
    """Block `number` (from 1). Compresses, so it takes milliseconds."""
    assert 0 < len(raw) <= BLOCK_BYTES_MAX, f"block of {len(raw)} bytes, limit {BLOCK_BYTES_MAX}"
    data = compressor.compress(raw)
    crc = _block_crc(number, len(raw), data, seed)
    head = _BLOCK_HEAD.pack(
        _BLOCK_MARK, _IS_U32, number, _IS_U32, len(raw), _IS_U32, crc, _IS_BIN32, len(data)
    )
    return head + data


def _block_crc(number: int, size: int, data: bytes, seed: int) -> int:
    return crc32c(data, crc32c(_BLOCK_SUM.pack(number, size, len(data)), seed))


def encode_footer(footer: SnapshotFooter, seed: int) -> bytes:
    """Return `FOOTER_BYTES` bytes, the last ones of the file."""
    data = _FOOTER.pack(
        _FOOTER_MARK,
        _IS_U32,
        footer.blocks,
        _IS_U64,
        footer.items,
        _IS_U64,
        footer.zxid,
        _IS_U64,
        footer.size,
        _IS_DIGEST,
        footer.digest.to_bytes(DIGEST_BYTES, "big"),
        _IS_U32,
    )
    return data + _U32.pack(crc32c(data, seed))


def decode_footer(data: bytes, seed: int) -> SnapshotFooter | None:
    """Return the footer, or None if these bytes are none that their checksum confirms."""
    if len(data) != FOOTER_BYTES or _U32.pack(crc32c(data[: -_U32.size], seed)) != data[-_U32.size :]:
        return None
    mark, _, blocks, _, items, _, zxid, _, size, _, digest, _ = _FOOTER.unpack_from(data)
    if mark != _FOOTER_MARK:
        return None
    return SnapshotFooter(blocks, items, zxid, size, int.from_bytes(digest, "big"))


class SnapshotFileReader:
    """Reader of one snapshot file that checks everything it gives.

    Memory is bounded by a header and a block.

    Raises (on construction and from all methods):
        CorruptionError: something is not what was written; names the offset.
        StorageError: the file cannot be read.
    """

    __slots__ = ("_file", "_fs", "_header_bytes", "footer", "header", "path", "size")

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Open it and check header and footer."""
        self._fs = fs
        self.path = path
        with reading(path):
            self._file = fs.open(path)
        try:
            with reading(path):
                self.size = fs.size(self._file)
                self.header, self._header_bytes = decode_header(
                    fs.pread(self._file, min(self.size, HEADER_BYTES_MAX), 0), path
                )
                at = max(self._header_bytes, self.size - FOOTER_BYTES)
                footer = decode_footer(fs.pread(self._file, FOOTER_BYTES, at), self.header.seed)
            if footer is None:
                raise _corrupt(path, at, "the snapshot does not end with a footer that its checksum confirms")
            self.footer = footer
        except BaseException:
            fs.close(self._file)
            raise

    def close(self) -> None:
        """Close the file."""
        self._fs.close(self._file)

    def __enter__(self) -> SnapshotFileReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def info(self) -> SnapshotInfo:
        """The facts about the snapshot without its blocks."""
        footer = self.footer
        return SnapshotInfo(self.header, self.path, self.size, footer.items, footer.digest, footer.zxid)

    def verify(self) -> Iterator[int]:
        """Check every block's checksum without decompressing it; gives how many bytes of the file were checked so far."""
        for _, _, end in self._stored_blocks():
            yield end

    def blocks(self) -> Iterator[bytes]:
        """Yield what was written, in pieces of at most `BLOCK_BYTES_MAX`.

        Raises:
            CorruptionError: the file is damaged.
        """
        decompressor = zstandard.ZstdDecompressor()
        for size, data, end in self._stored_blocks():
            try:
                raw = decompressor.decompress(data, max_output_size=size)
            except zstandard.ZstdError as error:
                raise _corrupt(self.path, end - len(data), f"not zstd ({error})") from error
            if len(raw) != size:
                raise _corrupt(self.path, end - len(data), f"{len(raw)} bytes decompressed, expected {size}")
            yield raw

    def _stored_blocks(self) -> Iterator[tuple[int, bytes, int]]:
        """Yield (uncompressed size, compressed data, offset of its end) of each block, its checksum verified."""
        fs, file, path, seed = self._fs, self._file, self.path, self.header.seed
        at, last = self._header_bytes, self.size - FOOTER_BYTES
        number = total = 0
        while at < last:
            number += 1
            with reading(path):
                head = fs.pread(file, BLOCK_HEAD_BYTES, at)
            if len(head) < BLOCK_HEAD_BYTES:
                raise _corrupt(path, at, f"the file ends in block {number}")
            mark, _, found, _, size, _, crc, _, length = _BLOCK_HEAD.unpack(head)
            end = at + BLOCK_HEAD_BYTES + length
            if mark != _BLOCK_MARK or found != number or end > last or not 0 < size <= BLOCK_BYTES_MAX:
                raise _corrupt(path, at, f"no head of block {number}")
            if length > BLOCK_BYTES_MAX:
                raise _corrupt(path, at, f"block {number} of {length} bytes, limit {BLOCK_BYTES_MAX}")
            with reading(path):
                data = fs.pread(file, length, at + BLOCK_HEAD_BYTES)
            if len(data) != length or _block_crc(number, size, data, seed) != crc:
                raise _corrupt(path, at, f"block {number} does not match its checksum")
            # The head's type bytes are under no checksum; they have one right value each.
            if head[2::5] != bytes((_IS_U32, _IS_U32, _IS_U32, _IS_BIN32)):
                raise _corrupt(path, at, f"the head of block {number} is not MessagePack as we write it")
            total += size
            yield size, data, end
            at = end
        if (number, total) != (self.footer.blocks, self.footer.size):
            raise _corrupt(
                path,
                last,
                f"{number} blocks of {total} bytes, the footer says {self.footer.blocks} of {self.footer.size}",
            )


_ADVICE: Final = (
    "check this disk; the server goes on with an older snapshot if its log still reaches back to that, else move the data "
    "directory aside and let the server join again with an empty one"
)
"""Advice for the files of a server. Whoever reads a file that a user named gives other advice."""


def _corrupt(path: str, offset: int, found: str) -> CorruptionError:
    return CorruptionError(path, offset, found, advice=_ADVICE)
