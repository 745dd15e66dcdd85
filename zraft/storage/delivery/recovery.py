"""Opening of a group's directory of deliveries: what counts, what a crash left over or tore off (D-10, D-13).

On return everything is durable and every segment closed: a process only ever adds to segments that it began itself, so
bytes that a crash tore off are never followed by others under the same checksums.
"""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen
from crc32c import crc32c

from zraft.storage.delivery.manifest import (
    NAME,
    Manifest,
    Segment,
    load_manifest,
    store_manifest,
)
from zraft.storage.delivery.scanning import (
    READ_BYTES,
    FrameScanner,
    follow,
    inspect_rest,
    read_header,
)
from zraft.storage.delivery.values import Mark, beginning
from zraft.storage.durable import make_directories, reading, sync_directory, sync_file, writing
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem

SEGMENT_SUFFIX: Final = ".seg"
INDEX_SUFFIX: Final = ".idx"
GONE_SUFFIX: Final = ".gone"
"""The newest segment that retention removes gets this name first: from then on it and all before it are removed."""
PART_SUFFIX: Final = ".part"
"""A segment that another server is sending."""
TEMPORARY_SUFFIX: Final = ".tmp"
_OURS: Final = (SEGMENT_SUFFIX, INDEX_SUFFIX, GONE_SUFFIX, PART_SUFFIX, TEMPORARY_SUFFIX)

MISSING_ADVICE: Final = (
    "put the file back if it was moved; otherwise move the data directory aside and let the server join again with an "
    "empty one, so that it is a new instance"
)


@frozen
class TornDeliveries:
    """Deliveries that a crash took before they were durable: `size` bytes cut from `file` at `offset`."""

    file: str
    offset: int
    size: int


@frozen
class DeliveryReport:
    """Report for the log line at start-up.

    `scanned` deliveries were read, those since the last checkpoint; `leftovers` files removed.
    """

    torn: TornDeliveries | None = None
    scanned: int = 0
    leftovers: int = 0


def directory_of(data: str, group: int) -> str:
    """Return the directory of a group's deliveries."""
    return f"{data}/groups/{group}/deliveries"


def recover(fs: FileSystem, data: str, group: int, first_offset: int = 0) -> tuple[Manifest, DeliveryReport]:
    """Return the group's deliveries after a start; begin them at `first_offset` if there are none.

    Raises:
        CorruptionError: what was durable is damaged or missing; names file, offset and what to do.
        DiskFullError: no space to write the manifest; nothing is lost, the call can be repeated.
        StorageError: the disk failed.
    """
    path = directory_of(data, group)
    make_directories(fs, path)
    # The process before may have been killed between making a name and fsyncing it.
    above = path
    while above != data:
        sync_directory(fs, above)
        above = above.rpartition("/")[0]
    sync_directory(fs, above)
    with reading(path):
        names = set(fs.listdir(path))
    if NAME not in names:
        if any(name.endswith((SEGMENT_SUFFIX, GONE_SUFFIX)) for name in names):
            raise CorruptionError(
                f"{path}/{NAME}",
                0,
                "the file is missing, and without it the segments are not known",
                advice=MISSING_ADVICE,
            )
        manifest = Manifest(group, beginning(group, first_offset))
        store_manifest(fs, path, manifest)
        return manifest, DeliveryReport(leftovers=_remove_others(fs, path, manifest))
    stored = load_manifest(fs, path, group)
    manifest = without_gone(stored, names)
    for segment in manifest.segments:
        if segment.name not in names:
            raise CorruptionError(f"{path}/{segment.name}", 0, "the file is missing", advice=MISSING_ADVICE)
    torn, scanned = None, 0
    if manifest.open:
        manifest, torn, scanned = _close_last(fs, path, manifest)
    if manifest != stored:
        store_manifest(fs, path, manifest)
    return manifest, DeliveryReport(torn, scanned, _remove_others(fs, path, manifest))


def without_gone(manifest: Manifest, names: set[str]) -> Manifest:
    """Return the manifest without what retention had decided to remove when the process ended."""
    for at in range(len(manifest.segments) - 1, -1, -1):
        segment = manifest.segments[at]
        if gone_name(segment) in names:
            rest = manifest.segments[at + 1 :]
            return evolve(manifest, base=segment.end, segments=rest, open=manifest.open and bool(rest))
    return manifest


def gone_name(segment: Segment) -> str:
    """Return the name that tells that retention removes this segment and those before it."""
    return segment.name.removesuffix(SEGMENT_SUFFIX) + GONE_SUFFIX


def _remove_others(fs: FileSystem, path: str, manifest: Manifest) -> int:
    """Remove what a crash left over, and return how many files that were.

    These are files of ours that the manifest, which is durable, does not name.
    """
    listed = {name for segment in manifest.segments for name in (segment.name, segment.index_name)}
    with reading(path):
        names = [name for name in fs.listdir(path) if name.endswith(_OURS) and name not in listed]
    for name in names:
        with writing(f"{path}/{name}"):
            fs.unlink(f"{path}/{name}")
    if names:
        sync_directory(fs, path)
    return len(names)


@frozen
class Scan:
    """Result of scanning a segment: how far it holds frames, and how many deliveries were read.

    From position `unsure` on they may not be durable.
    """

    segment: Segment
    unsure: int
    deliveries: int
    torn: TornDeliveries | None


def _close_last(fs: FileSystem, path: str, manifest: Manifest) -> tuple[Manifest, TornDeliveries | None, int]:
    """Read the segment that was being written from its last checkpoint on; make durable what there is, and close it."""
    segment = manifest.segments[-1]
    file_path = f"{path}/{segment.name}"
    with reading(file_path):
        file = fs.open(file_path)
    try:
        scan = scan_open(fs, file, file_path, manifest)
        with writing(file_path):
            if fs.size(file) != scan.segment.size:
                fs.ftruncate(file, scan.segment.size)
            # The bytes that were written last may be in the page cache only: their writer was killed before
            # the fsync, or its fsync failed and the kernel now calls the pages clean. Writing the same bytes
            # again makes them dirty.
            at = scan.unsure
            while at < scan.segment.size:
                data = fs.pread(file, min(READ_BYTES, scan.segment.size - at), at)
                fs.pwrite(file, data, at)
                at += len(data)
        sync_file(fs, file, file_path)
    finally:
        fs.close(file)
    segments = manifest.segments[:-1]
    if scan.segment.end.offset > scan.segment.first:
        segments = (*segments, scan.segment)
    return evolve(manifest, segments=segments, open=False), scan.torn, scan.deliveries


def scan_open(fs: FileSystem, file: int, path: str, manifest: Manifest) -> Scan:
    """Return how far the last segment, which is or was being written, goes beyond the manifest.

    Raises:
        CorruptionError: something that was durable is damaged.
    """
    segment = manifest.segments[-1]
    header = read_header(fs, file, path, manifest.group, segment)
    with reading(path):
        size = fs.size(file)
        if size < segment.size:
            raise CorruptionError(path, size, f"the file ends here, {segment.size} bytes of it were durable")
    scanner = FrameScanner(fs, file, seed=header.seed, position=segment.size, limit=size)
    mark: Mark = segment.end
    crc, time, synced = segment.crc, segment.time, mark.offset
    positions: list[tuple[int, int]] = []  # of the frames, with their offsets
    with reading(path):
        for frame in scanner:
            positions.append((frame.position, frame.head.offset))
            synced = max(synced, frame.head.synced)
            mark, _ = follow(mark, frame, path)
            crc = crc32c(fs.pread(file, frame.end - frame.position, frame.position), crc)
            time = max(time, frame.head.time)
        end = scanner.position
        rest = inspect_rest(fs, file, seed=header.seed, start=end, size=size, offset=mark.offset)
    if rest.witness is not None:
        raise CorruptionError(
            path,
            end,
            f"{scanner.damage or 'zeros'} at delivery {mark.offset}, yet the frame at {rest.witness} was written when that "
            "was durable",
        )
    torn = TornDeliveries(path, end, rest.end - end) if rest.end > end else None
    unsure = next((position for position, offset in positions if offset >= synced), end)
    found = evolve(segment, end=mark, size=end, crc=crc, time=time)
    return Scan(found, unsure, mark.offset - segment.end.offset, torn)
