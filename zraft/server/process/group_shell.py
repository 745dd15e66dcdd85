"""The hosted groups' share of a process: their files at the start, their disks' threads, and what of a turn goes there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
from attrs import asdict

from zraft.config.server import ServerConfig
from zraft.groups.recovery import Recovery
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.delivery_tasks import DeliveryPerformer
from zraft.groups.snapshots.tasks import RemoveSnapshots, SnapshotDisk
from zraft.monitoring.statistics import Metric
from zraft.server.engine.driver import Driver
from zraft.server.engine.effects import Effects
from zraft.server.partitions.delivery_reading import DeliveryReaders, ReadResult, ReadTask
from zraft.server.partitions.partitions import Partitions
from zraft.server.process.delivery_thread import DeliveryThread
from zraft.server.process.wal_writer import WalWriter
from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.settings import DeliverySettings
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import DiskFullError
from zraft.storage.filesystem import FileSystem
from zraft_core.errors import ZraftError
from zraft_core.ids import COORDINATION_GROUP, GroupId

_METRIC_NAMES: Final = {
    "partitions": "partitions",
    "pending": "groups_pending",
    "pending_age_ms_max": "groups_pending_age_ms_max",
    "delivered_total": "groups_delivered_total",
}

MISTAKES_LOG_INTERVAL_S: Final = 60.0
"""Messages that are not understood are mentioned at most this often, however many come."""

log = structlog.get_logger()


class GroupFiles:
    """Snapshots of all groups on this disk, and what partitions delivered."""

    def __init__(
        self, fs: FileSystem, directory: DataDirectory, settings: DeliverySettings, recovery: Recovery
    ) -> None:
        """Remove the files of those groups that the log has forgotten for good.

        Raises:
            StorageError: a directory cannot be read or written.
        """
        self.snapshots = SnapshotDisk(fs, directory, recovery.stores)
        self.deliveries = DeliveryDisk(fs, directory, settings)
        self.performer = DeliveryPerformer(fs, self.deliveries)
        for group in recovery.recovered.forgotten:
            self.deliveries.remove(group)
            self.snapshots.perform(RemoveSnapshots(group))
        for group, store in recovery.stores.items():
            for damage in store.damaged if group != COORDINATION_GROUP else ():
                log.error("a snapshot of a group is damaged, an older one is taken", problem=str(damage))


class GroupShell:
    """Threads of a process that hosts groups. Everything but the threads' own work is in the loop's thread."""

    def __init__(
        self,
        config: ServerConfig,
        files: GroupFiles,
        driver: Driver,
        partitions: Partitions,
        *,
        wal: WalWriter,
        from_thread: Callable[[Callable[..., None], object], None],
        on_arrived: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """Start the threads.

        `from_thread` has a function called in the loop's thread; `on_arrived`: the driver was given
        something.
        """
        self._driver = driver
        self._partitions = partitions
        self._wal = wal
        self._files = files
        self._on_arrived = on_arrived
        self._on_failed = on_failed
        self._full = False
        self._refused_total = 0
        self._mistakes_shown = 0
        self._mistakes_log_at = 0.0
        self._thread = DeliveryThread(
            files.performer,
            on_performed=lambda done: from_thread(self._on_performed, done),
            on_synced=lambda durable: from_thread(self._on_synced, durable),
            on_full=lambda error: from_thread(self._on_full, error),
            on_failed=lambda error: from_thread(on_failed, error),
            bytes_max=config.deliveries.waiting_bytes_max,
            sync_interval_s=config.deliveries.sync_interval_ms / 1000,
        )
        self._readers = DeliveryReaders(
            on_read=lambda task, result: from_thread(self._on_read, (task, result)),
            on_failed=lambda error: from_thread(on_failed, error),
        )

    def carry_out(self, effects: Effects) -> None:
        """Give the disks what a turn of the driver asks of them for groups, except the common frame."""
        groups = self._driver.groups
        assert groups is not None
        for group, index in effects.group_compactions:
            self._wal.compact(group, index)
        deliveries = effects.deliveries
        if not deliveries:
            return
        taken = 0
        while taken < len(deliveries) and self._thread.offer(deliveries[taken]):
            taken += 1
        refused = deliveries[taken:]
        self._refused_total += len(refused)
        groups.refused(refused)

    def show(self, now: float) -> None:
        """Log what went wrong with groups, and what other servers' partitions said and no correct one says.

        `now`: seconds of a monotonic clock.
        """
        self._tell_troubles()
        mistakes = self._partitions.mistakes
        if not mistakes or now < self._mistakes_log_at:
            return
        self._mistakes_log_at = now + MISTAKES_LOG_INTERVAL_S
        server, error = mistakes[-1]
        mistakes.clear()
        total = self._partitions.mistakes_total
        log.error(
            "messages of partitions dropped, no correct server sends them",
            peer=server,
            error=error,
            count=total - self._mistakes_shown,
        )
        self._mistakes_shown = total

    def _tell_troubles(self) -> None:
        groups = self._driver.groups
        assert groups is not None
        while groups.digests.alarms:
            log.error("states of a group differ", problem=groups.digests.alarms.pop(0))
        while self._partitions.notices:
            log.error("partition stopped", problem=self._partitions.notices.popleft())

    def read(self, task: ReadTask) -> None:
        """Read deliveries that are no longer in memory."""
        self._readers.offer(task)

    def stop(self) -> None:
        """Make durable what is written and end the threads."""
        self._tell_troubles()
        self._readers.stop()
        self._thread.stop()

    def metrics(self) -> dict[str, Metric]:
        """Return counts; there is no series per group."""
        groups, snapshots = self._driver.groups, self._driver.snapshots
        assert groups is not None
        of_host = groups.host.statistics()
        metrics: dict[str, Metric] = {
            "groups": of_host.groups,
            "groups_leading": of_host.leading,
            "groups_following": of_host.following,
            "groups_campaigning": of_host.campaigning,
            "groups_learning": of_host.learning,
            "groups_leaderless": of_host.leaderless,
            "groups_asleep": of_host.asleep,
            "groups_misplaced": of_host.misplaced,
            "groups_log_needed_bytes": of_host.log_needed_bytes,
            "groups_log_oldest_group": of_host.log_oldest_group,
            "groups_touched_total": of_host.touched_total,
            "groups_mistakes_total": of_host.mistakes_total,
            "groups_moves_total": of_host.moves_total,
            "groups_entries_total": of_host.entries_total,
            "groups_commands_total": of_host.commands_total,
            "groups_bundles_sent_total": groups.bundles_sent_total,
            "groups_bundles_received_total": groups.bundles_received_total,
            "groups_edges_sent_total": groups.edges_sent_total,
            "groups_snapshots_total": of_host.snapshots_total,
            "groups_snapshots_failed_total": groups.snapshots_failed_total,
            "groups_digests_compared_total": groups.digests.compared_total,
            "groups_digest_alarms_total": groups.digests.alarms_total,
            "groups_receiving": snapshots.receiver.active,
            "groups_installed_total": groups.installed_total,
            "groups_transfers_failed_total": snapshots.receiver.failed_total,
            "groups_transfer_bytes_sent_total": snapshots.sent_bytes_total,
            "groups_transfer_bytes_received_total": snapshots.receiver.received_bytes_total,
            "deliveries_open": len(self._files.deliveries.groups),
            "deliveries_files_open": self._files.deliveries.open_files,
            "deliveries_unsynced_groups": self._files.deliveries.dirty,
            "deliveries_waiting_bytes": self._thread.waiting_bytes,
            "deliveries_refused_total": self._refused_total,
            "deliveries_disk_full": int(self._full),
        }
        for name, value in asdict(self._partitions.statistics()).items():
            metrics[_METRIC_NAMES.get(name, f"partitions_{name}")] = value
        return metrics

    # -- from the thread of deliveries

    def _on_performed(self, done: tuple[delivery_tasks.Task, delivery_tasks.Result]) -> None:
        try:
            self._driver.delivered(*done)
        except ZraftError as error:
            self._on_failed(error)
            return
        self._on_arrived()

    def _on_synced(self, durable: dict[GroupId, int]) -> None:
        self._partitions.synced(durable)
        self._on_arrived()

    def _on_read(self, done: tuple[ReadTask, ReadResult]) -> None:
        self._partitions.read_done(*done)
        self._on_arrived()

    def _on_full(self, error: DiskFullError | None) -> None:
        self._full = error is not None
        if error is not None:
            log.error("the disk of deliveries is full, partitions wait until there is room", error=str(error))
        else:
            log.info("the disk of deliveries has room again")
