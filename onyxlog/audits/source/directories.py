"""Finder of data directories of servers, recordings of peers and histories of clients below given paths.

Reads names only.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from typing import Final

from attrs import frozen

from onyxlog.audits.errors import AuditError
from zraft.storage.directory import read_meta
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import ReadOnlyFileSystem
from zraft_core.errors import StorageError

RECORDING_SUFFIX: Final = ".onyx"
"""The suffix of a file in which a peer group records what it applies and receives."""
HISTORY_SUFFIX: Final = ".jsonl"
DEPTH_MAX: Final = 4
"""The depth below a given path to which data directories are searched."""


@frozen
class ServerDirectory:
    """A data directory and its server; `instance` is in hexadecimal."""

    path: str
    server: int
    instance: str


@frozen
class Unreadable:
    """A file without which nothing beside it can be understood: where it is damaged, and how."""

    path: str
    offset: int
    found: str


@frozen
class Found:
    """Everything below the given paths that audits can read, each in order of its name."""

    servers: tuple[ServerDirectory, ...] = ()
    recordings: tuple[str, ...] = ()
    histories: tuple[str, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def find(paths: Iterable[str], *, damaged_too: bool = False) -> Found:
    """Search the paths, which may be patterns, and below them.

    Args:
        paths: what to search.
        damaged_too: directories whose server cannot be told become `unreadable`.

    Raises:
        AuditError: a path does not exist, nothing of ours is below any, or a directory cannot be used.
    """
    fs = ReadOnlyFileSystem()
    servers: dict[str, ServerDirectory] = {}
    recordings: set[str] = set()
    histories: set[str] = set()
    unreadable: dict[str, Unreadable] = {}
    given = list(paths)
    for top in _expanded(given):
        for path in _walk(top):
            if os.path.isdir(path):
                if path not in servers:
                    try:
                        meta = read_meta(fs, path)
                    except StorageError as error:
                        if damaged_too and isinstance(error, CorruptionError):
                            unreadable[path] = Unreadable(error.path, error.offset, error.found)
                            continue
                        raise AuditError(f"{path}: {error}") from error
                    servers[path] = ServerDirectory(path, meta.server, meta.instance.hex())
            elif path.endswith(RECORDING_SUFFIX):
                recordings.add(path)
            else:
                histories.add(path)
    if not (servers or recordings or histories or unreadable):
        raise AuditError(
            f"{', '.join(given)}: found no data directory of a server (one has `meta` and `wal`), no recording of a peer "
            f"(*{RECORDING_SUFFIX}) and no history of a client (*{HISTORY_SUFFIX}); give directories that have some"
        )
    return Found(
        tuple(servers[path] for path in sorted(servers)),
        tuple(sorted(recordings)),
        tuple(sorted(histories)),
        tuple(unreadable[path] for path in sorted(unreadable)),
    )


def _expanded(paths: Sequence[str]) -> list[str]:
    found: list[str] = []
    for path in paths:
        path = path.removeprefix("file://")
        matching = sorted(glob.glob(path)) if glob.has_magic(path) else [path]
        if not matching or not os.path.exists(matching[0]):
            raise AuditError(
                f"{path}: no such file or directory; on a cluster every worker and the driver must see it"
            )
        found += (os.path.abspath(one) for one in matching)
    return found


def _walk(top: str, depth: int = 0) -> Iterable[str]:
    """Yield data directories and files of ours at or below `top`, without entering data directories."""
    if not os.path.isdir(top):
        if top.endswith((RECORDING_SUFFIX, HISTORY_SUFFIX)):
            yield top
        return
    with os.scandir(top) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    names = {entry.name for entry in entries}
    if {"meta", "wal"} <= names:
        yield top
        return
    for entry in entries:
        if entry.is_dir():
            if depth < DEPTH_MAX:
                yield from _walk(entry.path, depth + 1)
        elif entry.name.endswith((RECORDING_SUFFIX, HISTORY_SUFFIX)):
            yield entry.path
