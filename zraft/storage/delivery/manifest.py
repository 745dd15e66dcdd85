"""Manifest of a group's segments: `<data>/groups/<id>/deliveries/manifest`, replaced whole.

It is what a start goes by: a file that it names and that is missing is damage, and one that it does not name is a
leftover. It is also what a snapshot of the partition lists, so that another server can fetch the files. Bytes:
docs/explanation/storage.md.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import evolve, frozen

from zraft.storage.delivery.frames import HEADER_BYTES, SEGMENT_ID_BYTES
from zraft.storage.delivery.values import DIGEST_BYTES, NUMBER_MAX, Mark
from zraft.storage.durable import reading, sync_directory, sync_file, writing
from zraft.storage.errors import CorruptionError, FsyncError
from zraft.storage.filesystem import FileSystem
from zraft.storage.sealed_map import OtherFormatError, SealError, seal, unseal
from zraft_core.errors import ProtocolError
from zraft_core.layout import Record, binary, boolean, integer, listed, number, optional, row, wrong

FORMAT: Final = 1
NAME: Final = "manifest"
TEMPORARY: Final = "manifest.tmp"
MANIFEST_BYTES_MAX: Final = 64 << 20
SEGMENTS_MAX: Final = 1 << 16
"""The most segments of a list; with as many, the last one grows beyond `segment_bytes_max` instead. A row has
120 bytes or so. Fetched segments may make a list longer, so that four times as many are read.
"""

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


def _place(offset: int, stamp: Any, chain: bytes, index: int) -> Mark:
    if (stamp is None) != (offset == 0):
        raise wrong("Mark.stamp", "nil at offset 0, and a stamp at any other", stamp)
    return Mark(offset, stamp, chain, index)


_number: Final = integer(0, NUMBER_MAX)
_stamp: Final = row(time=number, group=number, sub=number, single=number)
_mark: Final = Record(
    Mark, _number, optional(_stamp), binary(DIGEST_BYTES, DIGEST_BYTES), _number, made=_place
).form
_segment: Final = Record(
    Segment,
    *(binary(SEGMENT_ID_BYTES, SEGMENT_ID_BYTES), number, _mark, integer(HEADER_BYTES, NUMBER_MAX)),
    *(number, number),
).form
_MANIFEST: Final = Record(Manifest, number, _mark, listed(_segment, 4 * SEGMENTS_MAX), boolean)


def encode_manifest(manifest: Manifest) -> bytes:
    """One MessagePack map: `format` first, a checksum of all that precedes it last."""
    values = _MANIFEST.pack_map(manifest)
    return seal(FORMAT, {name: values[name] for name in ("group", "open", "base", "segments")})


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest that `encode_manifest` made these bytes of.

    Raises:
        ManifestFormatError: it did not; says what was found.
    """
    try:
        manifest = _MANIFEST.unpack_map(unseal(data, FORMAT, 4 * SEGMENTS_MAX), "manifest")
    except OtherFormatError as error:
        raise ManifestFormatError(f"manifest of {error}") from error
    except (SealError, ProtocolError) as error:
        raise ManifestFormatError(str(error)) from error
    problem = manifest.problem()
    if problem is not None:
        raise ManifestFormatError(problem)
    return manifest


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
