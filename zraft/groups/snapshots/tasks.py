"""What a driver asks of its snapshot disk, and who does it: values, and one class that blocks.

The driver decides, a thread (or the simulator) performs, one task after the other in the order given, and the
driver is told the result. So a snapshot is written, read, received and loaded without the loop ever waiting for
the disk, and the simulator can cut the power between any two steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from zraft.storage.errors import CorruptionError, DiskFullError, SnapshotGoneError, SnapshotRejectedError
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.storage.snapshots import SnapshotStore
from zraft_core.errors import StorageError


@frozen
class Begin:
    """Begin to write a snapshot."""

    header: SnapshotHeader


@frozen
class WriteBlock:
    """Its next piece."""

    block: bytes


@frozen
class Finish:
    """It is complete: make it durable. Result: `SnapshotInfo`."""

    items: int
    digest: int
    zxid: int


@frozen
class Abort:
    """Forget the snapshot that is being written."""


@frozen
class Read:
    """A piece of a finished snapshot's file, for `server`. Result: bytes."""

    server: int
    id: bytes
    offset: int
    length: int


@frozen
class Receive:
    """A snapshot is going to arrive. Result: how many of its bytes are here already."""

    id: bytes
    size: int


@frozen
class Store:
    """The next piece of what arrives."""

    id: bytes
    offset: int
    data: bytes


@frozen
class Complete:
    """All of it is here: verify it and make it durable. Result: `SnapshotInfo`."""

    id: bytes


@frozen
class Load:
    """The next block of a finished snapshot, its first one if `first`. Result: bytes; None at its end and beyond.

    Several may be asked for ahead: those behind the end must not begin again.
    """

    info: SnapshotInfo
    first: bool = False


@frozen
class Purge:
    """Keep the newest `keep` snapshots. Result: the oldest one kept, None if there is none."""

    keep: int


Task = Begin | WriteBlock | Finish | Abort | Read | Receive | Store | Complete | Load | Purge
Result = SnapshotInfo | bytes | int | StorageError | None
"""A `StorageError` if the disk is full or the file is damaged or gone: nothing but this task failed."""


class SnapshotDisk:
    """Performs tasks on a store; blocks. Errors that end the process (EIO, a failed fsync) are raised."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self._loading: tuple[bytes, Iterator[bytes]] | None = None

    def perform(self, task: Task) -> Result:
        """Carry out one task.

        Raises:
            StorageError: the disk failed; the process has to end (D-10).
        """
        try:
            return self._perform(task)
        except (DiskFullError, CorruptionError, SnapshotGoneError, SnapshotRejectedError) as error:
            return error

    def _perform(self, task: Task) -> Result:
        store = self._store
        match task:
            case Begin(header):
                store.begin(header)
            case WriteBlock() | Finish() if not store.writing:
                # They were on their way when an earlier task of this snapshot failed.
                return SnapshotGoneError("the snapshot was given up: the disk could not take its beginning")
            case WriteBlock(block):
                store.write(block)
            case Finish(items, digest, zxid):
                return store.finish(items, digest, zxid)
            case Abort():
                store.abort()
            case Read(_, id, offset, length):
                return store.read(id, offset, length)
            case Receive(id, size):
                return store.receive(id, size)
            case Store(id, offset, data):
                store.store(id, offset, data)
            case Complete(id):
                return store.complete(id)
            case Load(info, first):
                if first or self._loading is None or self._loading[0] != info.header.id:
                    self._loading = (info.header.id, store.blocks(info))
                return next(self._loading[1], None)
            case Purge(keep):
                store.purge(keep)
        return None
