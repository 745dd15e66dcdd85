"""Inspection of delivery segments in a data directory that may belong to a running server: no lock, no change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from attrs import frozen
from crc32c import crc32c

from zraft.storage.delivery.frames import HEADER_BYTES
from zraft.storage.delivery.manifest import NAME, Manifest, load_manifest
from zraft.storage.delivery.recovery import (
    MISSING_ADVICE,
    TornDeliveries,
    directory_of,
    scan_open,
    without_gone,
)
from zraft.storage.delivery.scanning import FrameScanner, SegmentVerifier, follow
from zraft.storage.delivery.values import StoredDelivery
from zraft.storage.durable import names_if_there, reading, size_if_there
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId

_STEP_BYTES: Final = 4 << 20
_ATTEMPTS: Final = 3
"""A running server removes segments and writes frames while we read; what looks wrong is looked at again."""


@frozen
class DeliveryFinding:
    """Finding about one segment file, or about a group without any: what of it counts, and its damage, if any.

    `torn` is what follows its last whole frame, being written or cut short by a crash.
    """

    group: GroupId
    path: str
    first: int
    end: int
    size: int
    damage: CorruptionError | None
    torn: TornDeliveries | None = None


@frozen
class PlacedDelivery:
    """A delivery, the digest after it, and the frame that holds it."""

    group: GroupId
    path: str
    position: int
    delivery: StoredDelivery
    chain: bytes


def groups_with_deliveries(fs: FileSystem, data: str) -> list[GroupId]:
    """Return the groups of which this directory has deliveries.

    Raises:
        StorageError: the directory cannot be read.
    """
    names = [name for name in _names_below(fs, data, "groups") if name.isdecimal()]
    # An empty directory is of a partition that was removed, or is being removed.
    return [
        GroupId(group) for group in sorted(map(int, names)) if names_if_there(fs, directory_of(data, group))
    ]


def _names_below(fs: FileSystem, data: str, name: str) -> list[str]:
    """Return what `name` of a directory holds that is there itself."""
    with reading(data):
        return names_if_there(fs, f"{data}/{name}") if name in fs.listdir(data) else []


def verify_deliveries(
    fs: FileSystem,
    data: str,
    group: GroupId,
    *,
    on_bytes: Callable[[int], None] = lambda _: None,
    wanted: Callable[[str, int], bool] = lambda *_: True,
) -> Iterator[DeliveryFinding]:
    """Read every segment of a group whole: checksums, digests, and whether they are those of the manifest.

    Args:
        wanted: chooses segments by path and bytes; of the one that is being written these are the file's.

    Raises:
        StorageError: the directory cannot be read.
    """
    path = directory_of(data, group)
    try:
        manifest = _manifest(fs, path, group)
    except CorruptionError as error:
        yield DeliveryFinding(group, f"{path}/{NAME}", 0, 0, 0, error)
        return
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return  # removed since it was listed
        raise
    for at, segment in enumerate(manifest.segments):
        name = f"{path}/{segment.name}"
        is_last = manifest.open and at == len(manifest.segments) - 1
        # One that is missing is wanted: verifying it tells that.
        size = size_if_there(fs, name) if is_last else None
        if not wanted(name, segment.size if size is None else size):
            continue
        finding = _verify(fs, data, manifest, at, on_bytes)
        if finding is not None:
            yield finding


def read_group(
    fs: FileSystem, data: str, group: GroupId, *, first: int = 0, last: int | None = None
) -> Iterator[PlacedDelivery]:
    """Yield a group's deliveries from offset `first` to `last`, with their digests.

    Whole segments are read for that.

    Raises:
        CorruptionError: something is damaged, or missing.
        StorageError: the directory cannot be read; `__cause__` is `FileNotFoundError` if a running server has removed the
            group, or retention a segment, since we began.
    """
    path = directory_of(data, group)
    manifest = _manifest(fs, path, group)
    for at, segment in enumerate(manifest.segments):
        is_last = manifest.open and at == len(manifest.segments) - 1
        if (segment.end.offset <= first and not is_last) or (last is not None and segment.first > last):
            continue
        name = f"{path}/{segment.name}"
        try:
            with reading(name):
                file = fs.open(name)
        except StorageError as error:
            is_gone = isinstance(error.__cause__, FileNotFoundError)
            if is_gone and segment in _manifest(fs, path, group).segments:
                raise CorruptionError(name, 0, "the file is missing", advice=MISSING_ADVICE) from error
            raise
        try:
            with reading(name):
                limit = fs.size(file) if is_last else segment.size
            scanner = FrameScanner(fs, file, seed=crc32c(segment.id), position=HEADER_BYTES, limit=limit)
            mark = manifest.start_of(at)
            with reading(name):
                for frame in scanner:
                    mark, found = follow(mark, frame, name)
                    for one, chain in found:
                        counts = is_last or one.offset < segment.end.offset
                        if counts and one.end > first and (last is None or one.offset <= last):
                            yield PlacedDelivery(group, name, frame.position, one, chain)
            if scanner.position < segment.size:
                raise CorruptionError(
                    name, scanner.position, scanner.damage or "zeros where a frame was written"
                )
        finally:
            fs.close(file)


def _manifest(fs: FileSystem, path: str, group: GroupId) -> Manifest:
    with reading(path):
        names = set(fs.listdir(path))
    if NAME not in names:
        raise CorruptionError(f"{path}/{NAME}", 0, "the file is missing", advice=MISSING_ADVICE)
    return without_gone(load_manifest(fs, path, group), names)


def _verify(
    fs: FileSystem, data: str, manifest: Manifest, at: int, on_bytes: Callable[[int], None]
) -> DeliveryFinding | None:
    group, segment = GroupId(manifest.group), manifest.segments[at]
    directory = directory_of(data, group)
    path = f"{directory}/{segment.name}"
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _verify_once(fs, path, manifest, at, on_bytes)
        except StorageError as error:
            if attempt < _ATTEMPTS:
                continue
            if isinstance(error.__cause__, FileNotFoundError):
                if segment not in _manifest(fs, directory, group).segments:
                    return None  # removed by retention since we looked
                error = CorruptionError(path, 0, "the file is missing", advice=MISSING_ADVICE)
            if not isinstance(error, CorruptionError):
                raise error
            if segment.first < _manifest(fs, directory, group).base.offset:
                return None
            return DeliveryFinding(group, path, segment.first, segment.end.offset, 0, error)
    raise AssertionError("unreachable")


def _verify_once(
    fs: FileSystem, path: str, manifest: Manifest, at: int, on_bytes: Callable[[int], None]
) -> DeliveryFinding:
    group, segment = GroupId(manifest.group), manifest.segments[at]
    with reading(path):
        file = fs.open(path)
    try:
        torn = None
        if manifest.open and at == len(manifest.segments) - 1:
            scan = scan_open(fs, file, path, manifest)
            torn = scan.torn
            segment = scan.segment
        verifier = SegmentVerifier(fs, file, path, group, manifest.start_of(at), segment)
        for limit in range(_STEP_BYTES, segment.size, _STEP_BYTES):
            verifier.advance(limit)
            on_bytes(verifier.position)
        verifier.finish()
        on_bytes(verifier.position)
        return DeliveryFinding(group, path, segment.first, segment.end.offset, segment.size, None, torn)
    finally:
        fs.close(file)
