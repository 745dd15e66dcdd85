"""The tasks of the disk that holds the partitions' deliveries: values, and one class that performs them and blocks.

Reads for clients are no tasks: any thread may call `DeliveryLog.read` at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field, frozen

from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.fetching import Piece, SegmentFetch
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.manifest import Manifest
from zraft.storage.delivery.recovery import DeliveryReport
from zraft.storage.delivery.settings import DeliveryRetention
from zraft.storage.delivery.values import Mark, StoredDelivery
from zraft.storage.errors import (
    CorruptionError,
    DeliveriesDifferError,
    DiskFullError,
    SegmentGoneError,
    SnapshotRejectedError,
)
from zraft.storage.filesystem import FileSystem
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId

APPEND_OVERHEAD_BYTES = 128
"""How many bytes of memory a waiting delivery takes beside its payload, roughly."""


@frozen
class OpenDeliveries:
    """Open a group's deliveries, of which its newest snapshot says `expected`. The result is `Opened`.

    They begin at `first_offset` if there are none yet.
    """

    group: GroupId
    expected: Mark | None = None
    first_offset: int = 0


@frozen
class Opened:
    """The deliveries of a group that was opened. Any thread may read the log."""

    log: DeliveryLog
    report: DeliveryReport


@frozen
class AppendDeliveries:
    """Append what applying whole entries up to Raft index `index` delivered.

    The result is the index up to which all is durable. `size`: the bytes of memory that it takes while it waits.
    """

    group: GroupId
    deliveries: Sequence[StoredDelivery]
    index: int
    size: int = field(init=False, eq=False)

    @size.default
    def _size(self) -> int:
        return sum([len(one.payload) for one in self.deliveries]) + APPEND_OVERHEAD_BYTES * len(
            self.deliveries
        )


@frozen
class SyncDeliveries:
    """Make the group's deliveries durable, so that its log can be cut.

    The result is the index up to which they are durable.
    """

    group: GroupId


@frozen
class RetainDeliveries:
    """Remove deliveries that were kept long enough. The result is how many were removed."""

    group: GroupId
    retention: DeliveryRetention
    now_ms: int
    keep_from: int | None = None


@frozen
class BeginFetch:
    """Begin to fetch the segments that another server's snapshot lists and that are missing here.

    The result is the piece to ask for first; None if nothing is missing.
    """

    group: GroupId
    shipped: Manifest


@frozen
class StorePiece:
    """Store bytes of a segment that is being fetched. The result is the piece to ask for next; None if all are here."""

    group: GroupId
    id: bytes
    offset: int
    data: bytes


@frozen
class CompleteFetch:
    """Make the fetched segments, which are all here, part of the log.

    The result is the index up to which everything is durable.
    """

    group: GroupId


@frozen
class AbandonFetch:
    """Forget the segments that were fetched."""

    group: GroupId


@frozen
class ReadSegment:
    """Read a piece of a segment's file for `server`. The result is its bytes."""

    server: int
    group: GroupId
    id: bytes
    offset: int
    length: int


@frozen
class CloseDeliveries:
    """Close the deliveries of a group of which this server has no replica any more, or not now. The files stay."""

    group: GroupId


@frozen
class RemoveDeliveries:
    """Remove the files of a partition that was deleted."""

    group: GroupId


Task = (
    OpenDeliveries
    | AppendDeliveries
    | SyncDeliveries
    | RetainDeliveries
    | BeginFetch
    | StorePiece
    | CompleteFetch
    | AbandonFetch
    | ReadSegment
    | CloseDeliveries
    | RemoveDeliveries
)
Result = Opened | Piece | bytes | int | StorageError | None
"""The result of a task.

A `StorageError` concerns only the task's group: its deliveries are damaged or differ, or the disk is full.
"""


class DeliveryPerformer:
    """Performs tasks, and blocks until each is done. Errors that must end the process (EIO, a failed fsync) are raised."""

    def __init__(self, fs: FileSystem, disk: DeliveryDisk) -> None:
        self._fs = fs
        self.disk = disk
        self._fetches: dict[GroupId, SegmentFetch] = {}

    def perform(self, task: Task) -> Result:
        """Carry out one task, and return its result.

        Raises:
            StorageError: the disk failed; the process has to end (D-10).
        """
        try:
            return self._perform(task)
        except (
            CorruptionError,
            DeliveriesDifferError,
            DiskFullError,
            SegmentGoneError,
            SnapshotRejectedError,
        ) as error:
            return error

    def _perform(self, task: Task) -> Result:
        disk = self.disk
        if not isinstance(task, OpenDeliveries | RemoveDeliveries) and task.group not in disk:
            # The task was on its way when the group was closed, or could not be opened.
            raise SegmentGoneError(f"group {task.group} is not open on this server")
        match task:
            case OpenDeliveries(group, expected, first_offset):
                return Opened(*disk.open(group, expected=expected, first_offset=first_offset))
            case AppendDeliveries(group, deliveries, index):
                return disk.append(group, deliveries, index)
            case SyncDeliveries(group):
                return disk.sync(group)
            case RetainDeliveries(group, retention, now_ms, keep_from):
                return disk.log(group).retain(retention, now_ms, keep_from=keep_from)
            case BeginFetch(group, shipped):
                self._abandon(group)
                fetch = SegmentFetch(self._fs, disk.log(group), shipped)
                self._fetches[group] = fetch
                return fetch.next
            case StorePiece(group, id, offset, data):
                return self._fetch(group).store(id, offset, data)
            case CompleteFetch(group):
                self._fetch(group).complete()
                del self._fetches[group]
                return disk.log(group).durable_index
            case AbandonFetch(group):
                self._abandon(group)
            case ReadSegment(_, group, id, offset, length):
                return disk.log(group).read_file(id, offset, length)
            case CloseDeliveries(group):
                self._abandon(group)
                disk.close(group)
            case RemoveDeliveries(group):
                self._abandon(group)
                disk.remove(group)
        return None

    def _fetch(self, group: GroupId) -> SegmentFetch:
        fetch = self._fetches.get(group)
        if fetch is None:
            raise SegmentGoneError(
                f"group {group}: no segments are being fetched (any more); begin again with a list of segments"
            )
        return fetch

    def _abandon(self, group: GroupId) -> None:
        fetch = self._fetches.pop(group, None)
        if fetch is not None:
            fetch.give_up()
