"""Directories put aside because their state is not the majority's, as evidence (D-26).

An empty one takes the place.

First `<data>/condemned` is made durable; from then on this disk's instance never runs again. Then `meta`, `groups`, `wal`
and `journal` move to `<data>/aside-<instance>-<n>/`, and at last `condemned` itself, as `reason`. A crash in between is
taken up at the next start. `meta` goes first: without it the rest is no data directory to any release.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgpack
from attrs import frozen

from zraft.storage.durable import reading, sync_directory, sync_file, writing
from zraft.storage.filesystem import FileSystem
from zraft_core.errors import StorageError

MARKER: Final = "condemned"
REASON: Final = "reason"
ASIDE_PREFIX: Final = "aside-"
ASIDE_MAX: Final = 3
"""Directories kept aside; with as many the server stops instead, for nothing of the evidence is removed by itself."""

INTERVAL_MS_MIN: Final = 600_000
"""A state that parts again so soon will part for ever: the server stops instead."""

MARKER_BYTES_MAX: Final = 8192
_CONTENTS: Final = ("meta", "groups", "wal", "journal")


@frozen
class Condemnation:
    """Record of why a directory's instance runs no more. `wall_ms`: when that was found."""

    directory: str
    reason: str
    wall_ms: int


def condemn(fs: FileSystem, path: str, instance: bytes, reason: str, wall_ms: int) -> None:
    """Decide, durably, that what is in the data directory `path` is put aside; `settle` does it. Blocks for two fsyncs.

    Raises:
        StorageError: it cannot be written; nothing is decided then.
    """
    with reading(path):
        names = set(fs.listdir(path))
    number = 1
    while (name := f"{ASIDE_PREFIX}{instance.hex()}-{number}") in names:
        number += 1
    temporary = f"{path}/{MARKER}.tmp"
    data = msgpack.packb({"format": 1, "directory": name, "reason": reason[:4096], "wall_ms": wall_ms})
    with writing(temporary):
        file = fs.create(temporary)
        try:
            fs.pwrite(file, data, 0)
            sync_file(fs, file, temporary)
        finally:
            fs.close(file)
        fs.rename(temporary, f"{path}/{MARKER}")
    sync_directory(fs, path)


def settle(fs: FileSystem, path: str) -> str | None:
    """Carry out what `condemn` decided, if it did; where the contents are now. The directory is empty then.

    Raises:
        StorageError: that happened too often, or just before; the message says what to do. Nothing was moved.
    """
    with reading(path):
        names = set(fs.listdir(path))
    if MARKER not in names:
        return None
    condemned = _read(fs, f"{path}/{MARKER}")
    target = f"{path}/{condemned.directory}"
    if condemned.directory not in names:
        _check_limits(fs, path, condemned, names)
        with writing(target):
            fs.mkdir(target)
        sync_directory(fs, path)
    for name in _CONTENTS:
        if name in names:
            with writing(f"{path}/{name}"):
                fs.rename(f"{path}/{name}", f"{target}/{name}")
            # Each name by itself, in this order: never is there a directory that looks whole and is not.
            sync_directory(fs, target)
            sync_directory(fs, path)
    with writing(target):
        fs.rename(f"{path}/{MARKER}", f"{target}/{REASON}")
    sync_directory(fs, target)
    sync_directory(fs, path)
    return target


def _check_limits(fs: FileSystem, path: str, condemned: Condemnation, names: Iterable[str]) -> None:
    kept = sorted(name for name in names if name.startswith(ASIDE_PREFIX))
    advice = (
        "find out why the state of this server differs from the others' (memory, disk, release), keep these directories for "
        "whoever looks into it, then move the whole data directory away and start with an empty one"
    )
    if len(kept) >= ASIDE_MAX:
        raise StorageError(
            f"{path}: {condemned.reason}; and {len(kept)} directories were put aside already for the same "
            f"({', '.join(kept)}), at most {ASIDE_MAX} are kept: the server stops; {advice}"
        )
    for name in kept:
        since = condemned.wall_ms - _read(fs, f"{path}/{name}/{REASON}").wall_ms
        if 0 <= since < INTERVAL_MS_MIN:
            raise StorageError(
                f"{path}: {condemned.reason}; and only {since // 1000} s earlier {name} was put aside for the same, less "
                f"than {INTERVAL_MS_MIN // 1000} s: the server stops; {advice}"
            )


def _read(fs: FileSystem, path: str) -> Condemnation:
    with reading(path):
        file = fs.open(path)
        try:
            data = fs.pread(file, MARKER_BYTES_MAX, 0)
        finally:
            fs.close(file)
    try:
        fields: Any = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException):
        fields = None
    match fields:
        case {"directory": str(directory), "reason": str(reason), "wall_ms": int(wall_ms)} if (
            directory.startswith(ASIDE_PREFIX) and "/" not in directory
        ):
            return Condemnation(directory, reason, wall_ms)
    raise StorageError(
        f"{path}: says that this directory is not to be used any more, but not why ({len(data)} bytes that are no such "
        "note); move the whole data directory away and start with an empty one"
    )
