"""Manifest of a group's segments: `<data>/groups/<id>/deliveries/manifest`, replaced whole.

It is what a start goes by: a file that it names and that is missing is damage, and one that it does not name is a
leftover. It is also what a snapshot of the partition lists, so that another server can fetch the files. Bytes:
docs/STORAGE.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgpack
from attrs import evolve, frozen
from crc32c import crc32c

from zraft.storage.delivery.frames import HEADER_BYTES, SEGMENT_ID_BYTES
from zraft.storage.delivery.values import DIGEST_BYTES, NUMBER_MAX, Mark
from zraft.storage.durable import reading, sync_directory, sync_file, writing
from zraft.storage.errors import CorruptionError, FsyncError
from zraft.storage.filesystem import FileSystem

FORMAT: Final = 1
NAME: Final = "manifest"
TEMPORARY: Final = "manifest.tmp"
MANIFEST_BYTES_MAX: Final = 64 << 20
SEGMENTS_MAX: Final = 1 << 16
"""The most segments of a list; with as many, the last one grows beyond `segment_bytes_max` instead. A row has
120 bytes or so. Fetched segments may make a list longer, so that four times as many are read.
"""

_CRC_KEY: Final = b"\xa3crc\xce"
_CRC = struct.Struct(">I")
_FORMAT_KEY: Final = b"\xa6format"
_ADVICE: Final = (
    "check this disk; then move the data directory aside and let the server join again with an empty one, so that it is "
    "a new instance"
)


class ManifestFormatError(ValueError):
    """Bytes are not a manifest; the caller knows where they come from and says so."""


@frozen
class Segment:
    """One file and what of it counts: the deliveries from `first` up to `end.offset`.

    `size` and `crc` (CRC-32C) are of the file's first bytes that hold them; it may hold more, which counts for
    nothing. `time` is the latest wall time in it.
    """

    id: bytes
    first: int
    end: Mark
    size: int
    crc: int
    time: int

    @property
    def name(self) -> str:
        """The file's name: sorts by offset."""
        return f"{self.first:016x}-{self.id.hex()}.seg"

    @property
    def index_name(self) -> str:
        """The name of the index file."""
        return f"{self.first:016x}-{self.id.hex()}.idx"


@frozen
class Manifest:
    """A group's segments, oldest first, each beginning where the one before ends, the first at `base`.

    `open`: the last one is still written, and may hold more than is said here.
    """

    group: int
    base: Mark
    segments: tuple[Segment, ...] = ()
    open: bool = False

    @property
    def end(self) -> Mark:
        """The position at which the listed deliveries end."""
        return self.segments[-1].end if self.segments else self.base

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(segment.size for segment in self.segments)

    def start_of(self, at: int) -> Mark:
        """Return the position at which segment number `at` of the list begins."""
        return self.segments[at - 1].end if at else self.base

    def problem(self) -> str | None:
        """Return what is wrong with the manifest as a whole; None if nothing is."""
        end = self.base
        for segment in self.segments:
            if segment.first != end.offset:
                return f"a segment begins at {segment.first}, the one before ends at {end.offset}"
            if segment.end.offset < segment.first or segment.end.index < end.index:
                return f"the segment that begins at {segment.first} ends before it"
            if segment.end.offset == segment.first and not (self.open and segment is self.segments[-1]):
                return f"the segment that begins at {segment.first} is empty"
            end = segment.end
        if self.open and not self.segments:
            return "the last of no segments is open"
        return None


def encode_manifest(manifest: Manifest) -> bytes:
    """Return one MessagePack map: `format` first, a checksum of all that precedes it last."""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_map_header(6)
    for key, value in (
        ("format", FORMAT),
        ("group", manifest.group),
        ("open", manifest.open),
        ("base", _mark_row(manifest.base)),
        ("segments", [_segment_row(segment) for segment in manifest.segments]),
    ):
        packer.pack(key)
        packer.pack(value)
    data = bytes(packer.bytes()) + _CRC_KEY
    return data + _CRC.pack(crc32c(data))


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest that `encode_manifest` made these bytes of.

    Raises:
        ManifestFormatError: it did not; says what was found.
    """
    covered, stored = data[: -_CRC.size], data[-_CRC.size :]
    if not covered.endswith(_CRC_KEY) or _CRC.pack(crc32c(covered)) != stored or covered[1:8] != _FORMAT_KEY:
        raise ManifestFormatError(f"{len(data)} bytes that do not match their checksum")
    if covered[8] != FORMAT:
        raise ManifestFormatError(f"manifest of format {covered[8]}, this release knows {FORMAT}")
    try:
        fields: Any = msgpack.unpackb(data, use_list=False, max_array_len=4 * SEGMENTS_MAX)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ManifestFormatError(f"not a MessagePack map ({error})") from error
    match fields:
        case {"group": int(group), "open": bool(open), "base": tuple(base), "segments": tuple(rows)} if (
            group >= 0
        ):
            manifest = Manifest(group, _mark(base), tuple(map(_segment, rows)), open)
            problem = manifest.problem()
            if problem is not None:
                raise ManifestFormatError(problem)
            return manifest
    raise ManifestFormatError("its keys or their values are wrong")


def load_manifest(fs: FileSystem, directory: str, group: int) -> Manifest:
    """Read it from the group's directory.

    Raises:
        CorruptionError: it is damaged, or another group's.
        StorageError: it cannot be read; `__cause__` is `FileNotFoundError` if there is none.
    """
    path = f"{directory}/{NAME}"
    with reading(path):
        file = fs.open(path)
        try:
            data = fs.pread(file, min(fs.size(file), MANIFEST_BYTES_MAX), 0)
        finally:
            fs.close(file)
    try:
        manifest = decode_manifest(data)
    except ManifestFormatError as error:
        raise CorruptionError(path, 0, str(error), advice=_ADVICE) from error
    if manifest.group != group:
        raise CorruptionError(
            path,
            0,
            f"this is group {manifest.group}'s",
            advice="put each group's files back where they belong",
        )
    return manifest


def store_manifest(fs: FileSystem, directory: str, manifest: Manifest) -> None:
    """Replace it; durable on return. A crash leaves the old one or the new one.

    Raises:
        DiskFullError: the old one is still in force.
        FsyncError, WriteError: which one is in force is unknown; the process has to end.
    """
    problem = manifest.problem()
    assert problem is None, problem
    temporary, path = f"{directory}/{TEMPORARY}", f"{directory}/{NAME}"
    with writing(temporary):
        file = fs.create(temporary)
        try:
            fs.pwrite(file, encode_manifest(manifest), 0)
            sync_file(fs, file, temporary)
            fs.rename(temporary, path)
        except FsyncError:
            raise
        except OSError:
            fs.unlink(temporary)
            raise
        finally:
            fs.close(file)
    sync_directory(fs, directory)


def joined(own: Manifest, shipped: Manifest, at: Mark | None) -> Manifest:
    """Return our segments up to the first of the `shipped` ones that holds more, and those from there on.

    Args:
        at: where our own deliveries reach `seam(own, shipped)`; None if they do not, so that nothing of ours stays.
    """
    if shipped.end.offset <= own.end.offset:
        return own
    # A list whose deliveries all went by retention keeps only the place where it goes on.
    needed = wanted(own, shipped)
    if at is None:
        return Manifest(own.group, shipped.start_of(len(shipped.segments) - len(needed)), needed)
    kept = [segment for segment in own.segments if segment.first < at.offset]
    if not kept:
        return Manifest(own.group, at, needed)
    if kept[-1].end.offset > at.offset:
        before = kept[-2].end if len(kept) > 1 else own.base
        kept[-1] = evolve(kept[-1], end=evolve(at, index=max(at.index, before.index)))
    return Manifest(own.group, own.base, (*kept, *needed))


def wanted(own: Manifest, shipped: Manifest) -> tuple[Segment, ...]:
    """Return the shipped segments that hold deliveries which we do not have: the last ones."""
    return tuple(segment for segment in shipped.segments if segment.end.offset > own.end.offset)


def seam(own: Manifest, shipped: Manifest) -> Mark | None:
    """Return where the shipped segments would follow ours, as they tell it.

    None if there is a gap, or nothing of ours before.
    """
    needed = wanted(own, shipped)
    start = shipped.start_of(len(shipped.segments) - len(needed))
    return start if own.base.offset <= start.offset <= own.end.offset else None


def _mark_row(mark: Mark) -> Sequence[Any]:
    return mark.offset, mark.stamp, mark.chain, mark.index


def _segment_row(segment: Segment) -> Sequence[Any]:
    return segment.id, segment.first, _mark_row(segment.end), segment.size, segment.crc, segment.time


def _mark(row: Any) -> Mark:
    match row:
        case (int(offset), None | tuple() as stamp, bytes(chain), int(index)) if (
            0 <= offset <= NUMBER_MAX and 0 <= index <= NUMBER_MAX and len(chain) == DIGEST_BYTES
        ):
            if stamp is None and offset == 0:
                return Mark(offset, None, chain, index)
            if stamp is not None and len(stamp) == 4 and all(type(n) is int and n >= 0 for n in stamp):
                return Mark(offset, stamp, chain, index)
    raise ManifestFormatError(f"not a place between deliveries: {str(row)[:80]}")


def _segment(row: Any) -> Segment:
    match row:
        case (bytes(id), int(first), tuple(end), int(size), int(crc), int(time)) if (
            len(id) == SEGMENT_ID_BYTES and first >= 0 and size >= HEADER_BYTES and time >= 0
        ):
            return Segment(id, first, _mark(end), size, crc, time)
    raise ManifestFormatError(f"not a segment: {str(row)[:80]}")
