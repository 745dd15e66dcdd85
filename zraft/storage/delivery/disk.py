"""The deliveries of all groups of a server: which are open, how many files that takes, and what is to be synced.

All methods block and belong to one thread; the logs that `log` gives may be read by any.
"""

from __future__ import annotations

from collections.abc import Sequence

from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.open_files import OpenFiles
from zraft.storage.delivery.points import IndexCache
from zraft.storage.delivery.recovery import DeliveryReport, directory_of
from zraft.storage.delivery.settings import DeliverySettings
from zraft.storage.delivery.values import Mark, StoredDelivery
from zraft.storage.directory import DataDirectory
from zraft.storage.durable import remove_directory
from zraft.storage.filesystem import FileSystem
from zraft_core.ids import GroupId


class DeliveryDisk:
    """Deliveries of all groups on this disk.

    Groups are opened when this server becomes a replica, closed when it is none, and removed with
    their partition.
    """

    __slots__ = ("_directory", "_dirty", "_files", "_fs", "_indices", "_logs", "_settings")

    def __init__(
        self, fs: FileSystem, directory: DataDirectory, settings: DeliverySettings | None = None
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._settings = settings = settings if settings is not None else DeliverySettings()
        self._files = OpenFiles(fs, settings.files_max)
        self._indices = IndexCache(
            fs, self._files, indices_max=settings.indices_max, stride_bytes=settings.index_stride_bytes
        )
        self._logs: dict[GroupId, DeliveryLog] = {}
        # Oldest first: whose bytes have waited longest for a sync.
        self._dirty: dict[GroupId, DeliveryLog] = {}

    @property
    def groups(self) -> tuple[GroupId, ...]:
        """Those that are open."""
        return tuple(self._logs)

    @property
    def open_files(self) -> int:
        """The number of open files, for metrics."""
        return len(self._files)

    @property
    def dirty(self) -> int:
        """The number of groups that have deliveries that are not durable."""
        return len(self._dirty)

    def __contains__(self, group: object) -> bool:
        """Return whether the group is open."""
        return group in self._logs

    def log(self, group: GroupId) -> DeliveryLog:
        """Return an open group's deliveries.

        Raises:
            KeyError: the group is not open.
        """
        return self._logs[group]

    def open(
        self, group: GroupId, *, expected: Mark | None = None, first_offset: int = 0
    ) -> tuple[DeliveryLog, DeliveryReport]:
        """Open a group's deliveries; see `DeliveryLog.open`, also for its errors."""
        assert group not in self._logs, f"group {group} is open"
        log, report = DeliveryLog.open(
            self._fs,
            self._directory,
            group,
            files=self._files,
            indices=self._indices,
            settings=self._settings,
            expected=expected,
            first_offset=first_offset,
        )
        self._logs[group] = log
        return log, report

    def append(self, group: GroupId, deliveries: Sequence[StoredDelivery], index: int) -> int:
        """Write what applying entries up to `index` delivered.

        Return the index up to which everything of the group is durable. The errors are those of
        `DeliveryLog.append`.
        """
        log = self._logs[group]
        try:
            log.append(deliveries, index)
        finally:
            self._note(log)
        while len(self._dirty) > self._settings.files_max // 2:
            # A file with bytes that are not durable stays open, so there is a limit to how many there can be.
            self.sync(next(iter(self._dirty)))
        return log.durable_index

    def sync(self, group: GroupId) -> int:
        """Make the group's deliveries durable, and return the index up to which they are.

        The errors are those of `DeliveryLog.sync`.
        """
        log = self._logs[group]
        try:
            return log.sync()
        finally:
            self._note(log)

    def sync_all(self) -> dict[GroupId, int]:
        """Make the deliveries of all groups durable that need it; return the indices by group."""
        return {group: self.sync(group) for group in list(self._dirty)}

    def close(self, group: GroupId) -> None:
        """Make everything of the group durable and forget it; the files stay."""
        self._logs[group].close()
        self._dirty.pop(group, None)
        del self._logs[group]

    def close_all(self) -> None:
        """Close all groups, since the server ends."""
        try:
            for group in list(self._logs):
                self.close(group)
        finally:
            self._files.close()

    def remove(self, group: GroupId) -> None:
        """Remove the deliveries of a partition that is gone for good (its id is never used again).

        It can be repeated after a crash. It is durable once the directory of the group is removed,
        or synced.

        Raises:
            StorageError: they cannot be removed.
        """
        if group in self._logs:
            self.close(group)
        remove_directory(self._fs, directory_of(self._directory.path, group))

    def _note(self, log: DeliveryLog) -> None:
        if log.dirty:
            self._dirty.setdefault(log.group, log)
        else:
            self._dirty.pop(log.group, None)
