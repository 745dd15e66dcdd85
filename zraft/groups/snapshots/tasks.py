"""The tasks of the disk that holds snapshots: values, and one class that performs them and blocks.

The driver decides, a thread (or the simulator) performs, one task after the other in the order given, and the
driver is told the result. So a snapshot is written, read, received and loaded without the loop ever waiting
for the disk, and the simulator can cut the power between any two steps. Every task names its group: snapshots
of the coordination group and of topics' groups are on the same disk and take the same tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from zraft.storage.directory import DataDirectory
from zraft.storage.durable import reading, remove_directory, remove_if_hollow, sync_directory
from zraft.storage.errors import CorruptionError, DiskFullError, SnapshotGoneError, SnapshotRejectedError
from zraft.storage.filesystem import FileSystem
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.storage.snapshots import SnapshotStore, snapshots_of
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId


@frozen
class Begin:
    """Begin to write a snapshot."""

    header: SnapshotHeader

    @property
    def group(self) -> GroupId:
        """The group whose image it is."""
        return self.header.group


@frozen
class WriteBlock:
    """Write the snapshot's next piece, of at most `WRITE_BYTES_MAX` bytes."""

    group: GroupId
    block: bytes


@frozen
class Finish:
    """Make the snapshot durable, which is complete. The result is its `SnapshotInfo`."""

    group: GroupId
    items: int
    digest: int
    zxid: int


@frozen
class Abort:
    """Forget the snapshot that is being written."""

    group: GroupId


@frozen
class ReadSnapshot:
    """Read a piece of a finished snapshot's file for `server`, 0 being an operator. The result is its bytes."""

    server: int
    group: GroupId
    id: bytes
    offset: int
    length: int


@frozen
class Receive:
    """Prepare to receive a snapshot. The result is how many of its bytes are here already."""

    group: GroupId
    id: bytes
    size: int


@frozen
class Store:
    """Store the next piece of a snapshot that is being received."""

    group: GroupId
    id: bytes
    offset: int
    data: bytes


@frozen
class Complete:
    """Verify a received snapshot, all of which is here, and make it durable. The result is its `SnapshotInfo`."""

    group: GroupId
    id: bytes


@frozen
class Load:
    """Read the next block of a finished snapshot, or its first one if `first`. The result is its bytes; None after the end.

    Several may be asked for ahead: those after the end do not begin again.
    """

    info: SnapshotInfo
    first: bool = False

    @property
    def group(self) -> GroupId:
        """The group whose image it is."""
        return self.info.group

    @property
    def id(self) -> bytes:
        """The id that names the snapshot."""
        return self.info.id


@frozen
class Purge:
    """Remove all but the newest `keep` snapshots."""

    group: GroupId
    keep: int


@frozen
class RemoveSnapshots:
    """Remove the snapshots and the directory of a group that is gone for good, as its deliveries are.

    It can be repeated after a crash.
    """

    group: GroupId


Task = (
    Begin
    | WriteBlock
    | Finish
    | Abort
    | ReadSnapshot
    | Receive
    | Store
    | Complete
    | Load
    | Purge
    | RemoveSnapshots
)
Result = SnapshotInfo | bytes | int | StorageError | None
"""The result of a task.

A `StorageError` says that the disk is full or the file is damaged or gone; it concerns only the task's group.
"""


class SnapshotDisk:
    """Performs tasks on a store per group, and blocks. Errors that must end the process (EIO, a failed fsync) are raised."""

    def __init__(
        self, fs: FileSystem, directory: DataDirectory, stores: dict[GroupId, SnapshotStore] | None = None
    ) -> None:
        """Use the `stores` that a start has opened; others are opened when they are first used."""
        self._fs = fs
        self._directory = directory
        self._stores = stores if stores is not None else {}
        self._loading: dict[GroupId, tuple[bytes, Iterator[bytes]]] = {}

    def perform(self, task: Task) -> Result:
        """Carry out one task, and return its result.

        Raises:
            StorageError: the disk failed; the process has to end (D-10).
        """
        try:
            return self._perform(task)
        except (DiskFullError, CorruptionError, SnapshotGoneError, SnapshotRejectedError) as error:
            return error

    def _perform(self, task: Task) -> Result:
        if isinstance(task, RemoveSnapshots):
            self._remove(task.group)
            return None
        store = self._store(task.group)
        match task:
            case Begin(header):
                store.begin(header)
            case WriteBlock() | Finish() if not store.writing:
                # The task was on its way when an earlier task of this snapshot failed.
                return SnapshotGoneError("the snapshot was given up: the disk could not take its beginning")
            case WriteBlock(_, block):
                store.write(block)
            case Finish(_, items, digest, zxid):
                return store.finish(items, digest, zxid)
            case Abort():
                store.abort()
            case ReadSnapshot(_, _, id, offset, length):
                return store.read(id, offset, length)
            case Receive(_, id, size):
                return store.receive(id, size)
            case Store(_, id, offset, data):
                store.store(id, offset, data)
            case Complete(_, id):
                return store.complete(id)
            case Load(info, first):
                loading = self._loading.get(task.group)
                if first or loading is None or loading[0] != info.id:
                    loading = self._loading[task.group] = (info.id, store.blocks(info))
                return next(loading[1], None)
            case Purge(_, keep):
                store.purge(keep)
        return None

    def _store(self, group: GroupId) -> SnapshotStore:
        store = self._stores.get(group)
        if store is None:
            store = self._stores[group] = SnapshotStore.open(self._fs, self._directory, group)
        return store

    def _remove(self, group: GroupId) -> None:
        self._loading.pop(group, None)
        store = self._stores.pop(group, None)
        if store is not None:
            store.close()
        data = self._directory.path
        with reading(data):
            if "groups" not in self._fs.listdir(data):
                return
        remove_directory(self._fs, snapshots_of(data, group))
        if not remove_if_hollow(self._fs, f"{data}/groups/{group}"):
            sync_directory(self._fs, f"{data}/groups/{group}")  # somebody else's file is in it
        # This is done even if nothing was left to remove: the process before may have ended just before it.
        sync_directory(self._fs, f"{data}/groups")
