"""What a server asks of the disk that its partitions' deliveries are on, and who does it: values, and one class that
blocks.

Reads are not among them: `DeliveryLog.read` may be called by any thread beside these.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.fetching import Fetch, Piece
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.manifest import Manifest
from zraft.storage.delivery.recovery import DeliveryReport
from zraft.storage.delivery.settings import DeliveryRetention
from zraft.storage.delivery.values import Delivery, Mark
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
"""What a delivery that waits costs in memory beside its payload, roughly."""


@frozen
class Open:
    """Open a group's deliveries; its newest snapshot says `expected` of them. Result: `Opened`."""

    group: GroupId
    expected: Mark | None = None


@frozen
class Opened:
    """An open group: any thread may read its log."""

    log: DeliveryLog
    report: DeliveryReport


@frozen
class Append:
    """What applying whole entries up to Raft index `index` delivered. Result: the index up to which all is durable."""

    group: GroupId
    deliveries: Sequence[Delivery]
    index: int

    @property
    def size(self) -> int:
        """What it costs in memory while it waits."""
        return sum(len(one.payload) + APPEND_OVERHEAD_BYTES for one in self.deliveries)


@frozen
class Sync:
    """Make the group's deliveries durable, so that its log can be cut. Result: the index up to which they are."""

    group: GroupId


@frozen
class Retain:
    """Remove what was kept long enough. Result: how many deliveries went."""

    group: GroupId
    retention: DeliveryRetention
    now_ms: int
    keep_from: int | None = None


@frozen
class BeginFetch:
    """A snapshot of another server lists these segments: fetch what is missing here. Result: what to ask for first,
    None if nothing is missing."""

    group: GroupId
    shipped: Manifest


@frozen
class StorePiece:
    """Bytes of a segment that is fetched. Result: what to ask for next, None if all is here."""

    group: GroupId
    id: bytes
    offset: int
    data: bytes


@frozen
class CompleteFetch:
    """All of it is here: make it part of the log. Result: the index up to which everything is durable."""

    group: GroupId


@frozen
class AbandonFetch:
    """Forget what was fetched."""

    group: GroupId


@frozen
class ReadSegment:
    """A piece of a segment's file, for `server`. Result: bytes."""

    server: int
    group: GroupId
    id: bytes
    offset: int
    length: int


@frozen
class Close:
    """This server is no replica of the group any more, or not now; the files stay."""

    group: GroupId


@frozen
class Remove:
    """The partition was deleted: its files go."""

    group: GroupId


Task = (
    Open
    | Append
    | Sync
    | Retain
    | BeginFetch
    | StorePiece
    | CompleteFetch
    | AbandonFetch
    | ReadSegment
    | Close
    | Remove
)
Result = Opened | Piece | bytes | int | StorageError | None
"""A `StorageError` concerns this task's group only: its deliveries are damaged or differ, or the disk is full."""


class DeliveryPerformer:
    """Performs tasks; blocks. Errors that end the process (EIO, a failed fsync) are raised."""

    def __init__(self, fs: FileSystem, disk: DeliveryDisk) -> None:
        self._fs = fs
        self.disk = disk
        self._fetches: dict[GroupId, Fetch] = {}

    def perform(self, task: Task) -> Result:
        """Carry out one task.

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
        if not isinstance(task, Open | Remove) and task.group not in disk:
            # It was on its way when the group was closed, or could not be opened.
            raise SegmentGoneError(f"group {task.group} is not open on this server")
        match task:
            case Open(group, expected):
                return Opened(*disk.open(group, expected=expected))
            case Append(group, deliveries, index):
                return disk.append(group, deliveries, index)
            case Sync(group):
                return disk.sync(group)
            case Retain(group, retention, now_ms, keep_from):
                return disk.log(group).retain(retention, now_ms, keep_from=keep_from)
            case BeginFetch(group, shipped):
                self._abandon(group)
                fetch = Fetch(self._fs, disk.log(group), shipped)
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
            case Close(group):
                self._abandon(group)
                disk.close(group)
            case Remove(group):
                self._abandon(group)
                disk.remove(group)
        return None

    def _fetch(self, group: GroupId) -> Fetch:
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
