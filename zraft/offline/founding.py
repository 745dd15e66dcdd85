"""Creation of a data directory in which a new cluster begins, with a given state: whole, or visibly unfinished.

All that is new is made in `<data>/founding`, which keeps servers from starting, and is then moved to its place.
What stood there before is moved into `<data>/aside-<instance>`, never removed. A process that ends in between leaves
`founding` behind; `claim` takes back whatever had been moved, so the same command can be run again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgpack
from attrs import frozen

from zraft.offline.errors import OfflineError
from zraft.offline.founders import Founders
from zraft.offline.topics_anew import PartitionFounder, TopicsToKeep
from zraft.raft.messages import HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import UNFINISHED, DataDirectory, lock_directory
from zraft.storage.durable import make_directories, reading, sync_directory, sync_file, writing
from zraft.storage.filesystem import FileSystem
from zraft.storage.records import HardStateRecord
from zraft.storage.snapshot_format import SNAPSHOT_ID_BYTES, SnapshotHeader
from zraft.storage.snapshots import WRITE_BYTES_MAX, SnapshotStore
from zraft.storage.wal import Wal
from zraft.topics.anew import registry_anew
from zraft.topics.registry import Registry
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine
from zraft_core.errors import StorageError
from zraft_core.ids import COORDINATION_GROUP, GroupId, Instance, zxid_anew

CLUSTER_ID_BYTES: Final = 16
ITEMS_PER_STEP: Final = 10_000
PARTS: Final = ("wal", "groups", "meta")
"""The parts of a data directory. The meta comes last: it makes the rest one."""

_MOVING: Final = "moving"
"""In `founding`, while parts are being moved: [name of the directory they go to, [parts that stood there before]]."""
_FOUNDED: Final = "founded.tmp"
"""The name of `founding` when everything is in its place."""
_LOCK: Final = "lock"
_HARMLESS: Final = frozenset({_LOCK, "meta.tmp", "lost+found", _FOUNDED})

Progress = Callable[[int, int], None]


@frozen
class Origin:
    """End of the earlier cluster's log.

    The new one begins there, so that nothing of it has to be renumbered.
    """

    index: int
    term: int
    next_position: int
    hard_term: int
    """Return the highest term that is known, `term` at least."""


@frozen
class Founded:
    """Result of creating a cluster.

    `zxid` counts as the last one of the new cluster; `aside` is where the old contents are, if any.
    """

    cluster: bytes
    instance: Instance
    zxid: int
    items: int
    digest: int
    aside: str | None


@contextmanager
def claimed(fs: FileSystem, path: str) -> Iterator[None]:
    """Hold the directory, made if it was missing, and free of what an earlier attempt left behind.

    An error leaves nothing behind, neither a lock nor a directory.

    Raises:
        StorageError: a server or another command uses it, or it cannot be written.
    """
    made = _missing(path)
    try:
        make_directories(fs, path)
        locked_before = os.path.exists(f"{path}/{_LOCK}")
        lock_file = lock_directory(fs, path)
        try:
            take_back(fs, path)
            yield
        except (Exception, KeyboardInterrupt):
            # A state that cannot be taken back now keeps servers from starting; it is taken back when the
            # command is run again.
            with suppress(StorageError):
                take_back(fs, path)
            with suppress(StorageError):
                if not locked_before:
                    _remove(f"{path}/{_LOCK}")
            raise
        finally:
            fs.close(lock_file)
    except (Exception, KeyboardInterrupt):
        for directory in made:
            with suppress(OSError):
                os.rmdir(directory)
        raise


def _missing(path: str) -> list[str]:
    """Return the missing ones of the directory and those above it, the deepest first."""
    missing = []
    while path and not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def check_empty(fs: FileSystem, path: str) -> None:
    """Check that the directory is empty.

    Raises:
        OfflineError: something is in the directory, which would be lost in the new one.
    """
    with reading(path):
        found = [name for name in fs.listdir(path) if name not in _HARMLESS]
    if found:
        raise OfflineError(
            f"{path}: is not empty (found {', '.join(found[:3])}{', ...' if len(found) > 3 else ''}); a new cluster begins "
            f"in an empty directory: name another one, or move the contents of this one away"
        )


def found(
    fs: FileSystem,
    path: str,
    machine: Machine,
    founders: Founders,
    origin: Origin,
    *,
    replaces: Instance | None,
    entropy: Callable[[int], bytes],
    wall_ms: int,
    on_progress: Progress = lambda *_: None,
    topics: TopicsToKeep | None = None,
    on_topics: Progress = lambda *_: None,
) -> Founded:
    """Make the claimed directory one of a new cluster that begins with the machine's state, and install it.

    `machine` becomes what the new cluster begins with. `replaces`: whose contents are moved aside. `topics`: those that
    the new cluster has; None if it has none. `on_topics` gets (messages written, messages in all).

    Raises:
        OfflineError: no zxid, or no time of topics, is left above the old ones.
        StorageError: the disk failed; the directory is as before, or the same can be tried again.
    """
    zxid = zxid_anew(machine.last_zxid)
    if zxid is None:
        raise OfflineError(
            f"the last zxid is {machine.last_zxid:#x}: none is left that is far enough above it (D-15); copy the tree with "
            "a client into an empty cluster instead"
        )
    stage = f"{path}/{UNFINISHED}"
    directory = DataDirectory.open(fs, stage, server=founders.server, entropy=entropy)
    try:
        sync_directory(fs, path)
        cluster = entropy(CLUSTER_ID_BYTES)
        directory.set_cluster(cluster)
        disk = founders.server, directory.instance
        registry: Registry | None = None
        if topics is not None:
            registry = registry_anew(machine.registry, topics.topics, disk, zxid)
            machine.feature_level = max(machine.feature_level, topics.features)
        machine.begin_anew(zxid, disk, founders.wanted(), registry)
        metas: dict[GroupId, SnapshotMeta] = {}
        if topics is not None:
            founder = PartitionFounder(
                fs, directory, machine.registry, cluster, machine.feature_level, wall_ms
            )
            metas = founder.write(topics, on_topics)
        meta = SnapshotMeta(
            origin.index,
            origin.term,
            origin.next_position,
            founders.membership(directory.instance).encode(),
        )
        header = SnapshotHeader(
            COORDINATION_GROUP,
            meta,
            cluster,
            founders.server,
            directory.instance,
            entropy(SNAPSHOT_ID_BYTES),
            machine.feature_level,
            wall_ms,
        )
        items, digest = _write_state(fs, directory, machine, header, on_progress)
        wal, _ = Wal.open(fs, directory, snapshots={COORDINATION_GROUP: meta, **metas})
        try:
            hard = [HardStateRecord(COORDINATION_GROUP, HardState(max(origin.hard_term, meta.term), None))]
            hard += [HardStateRecord(group, HardState(one.term, None)) for group, one in metas.items()]
            wal.append(hard)
        finally:
            wal.close()
        instance = directory.instance
    finally:
        directory.close()
    aside = _install(fs, path, replaces)
    return Founded(cluster, instance, zxid, items, digest, aside)


def _write_state(
    fs: FileSystem, directory: DataDirectory, machine: Machine, header: SnapshotHeader, on_progress: Progress
) -> tuple[int, int]:
    """Write the snapshot that the new cluster starts from; return (items, digest)."""
    store = SnapshotStore.open(fs, directory, COORDINATION_GROUP)
    writer = ImageWriter(machine)
    of = len(machine.nodes) + len(machine.sessions)
    try:
        store.begin(header)
        while piece := writer.step(ITEMS_PER_STEP, WRITE_BYTES_MAX):
            store.write(piece)
            on_progress(writer.items, of)
        store.finish(writer.items, writer.digest, writer.zxid)
        return writer.items, writer.digest
    finally:
        writer.close()
        store.close()


def _install(fs: FileSystem, path: str, replaces: Instance | None) -> str | None:
    """Move what was made to its place."""
    stage = f"{path}/{UNFINISHED}"
    with reading(path):
        before = [name for name in PARTS if name in fs.listdir(path)]
    aside = _unused_name(fs, path, replaces) if replaces is not None else None
    assert aside is not None or not before, f"{before} would be lost"
    _note(fs, stage, aside, before)
    if aside is not None:
        make_directories(fs, f"{path}/{aside}")
    for name in PARTS:
        if aside is not None and name in before:
            _move(fs, f"{path}/{name}", f"{path}/{aside}/{name}")
            sync_directory(fs, f"{path}/{aside}")
        _move(fs, f"{stage}/{name}", f"{path}/{name}")
        sync_directory(fs, path)
    _move(fs, stage, f"{path}/{_FOUNDED}")
    sync_directory(fs, path)
    _remove(f"{path}/{_FOUNDED}")
    return aside


def _unused_name(fs: FileSystem, path: str, instance: Instance) -> str:
    with reading(path):
        names = fs.listdir(path)
    name = first = f"aside-{instance.hex()}"
    number = 1
    while name in names:
        number += 1
        name = f"{first}-{number}"
    return name


def take_back(fs: FileSystem, path: str) -> bool:
    """Undo what an interrupted attempt had done to the directory; return whether there was one."""
    with reading(path):
        names = fs.listdir(path)
    if _FOUNDED in names:
        _remove(f"{path}/{_FOUNDED}")
    if UNFINISHED not in names:
        return False
    stage = f"{path}/{UNFINISHED}"
    moving = _noted(fs, stage)
    if moving is not None:
        aside, before = moving
        put_by = fs.listdir(f"{path}/{aside}") if aside is not None and aside in names else []
        for name in PARTS:
            if name not in before:
                _remove(f"{path}/{name}")
            elif name in put_by:
                _remove(f"{path}/{name}")
                _move(fs, f"{path}/{aside}/{name}", f"{path}/{name}")
                sync_directory(fs, path)
        if aside is not None and aside in names:
            with writing(path):
                os.rmdir(f"{path}/{aside}")
        sync_directory(fs, path)
    _remove(stage)
    sync_directory(fs, path)
    return True


def _note(fs: FileSystem, stage: str, aside: str | None, before: Sequence[str]) -> None:
    path = f"{stage}/{_MOVING}"
    with writing(path):
        file = fs.create(f"{path}.tmp")
        try:
            fs.pwrite(file, msgpack.packb((aside, before)), 0)
            sync_file(fs, file, path)
        finally:
            fs.close(file)
        fs.rename(f"{path}.tmp", path)
    sync_directory(fs, stage)


def _noted(fs: FileSystem, stage: str) -> tuple[str | None, list[str]] | None:
    path = f"{stage}/{_MOVING}"
    with reading(path):
        if _MOVING not in fs.listdir(stage):
            return None
        file = fs.open(path)
        try:
            fields: Any = msgpack.unpackb(fs.pread(file, fs.size(file), 0))
        except (ValueError, msgpack.UnpackException) as error:
            raise StorageError(f"{path}: is damaged ({error}); check this disk") from error
        finally:
            fs.close(file)
    return fields[0], fields[1]


def _move(fs: FileSystem, source: str, target: str) -> None:
    with writing(target):
        fs.rename(source, target)


def _remove(path: str) -> None:
    """Remove a file or a directory with all that is in it, if it exists."""
    with writing(path):
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.unlink(path)
