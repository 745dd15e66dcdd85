"""Owns one simulated server of a cluster with partitions of topics: what `tests.simulation.process` has, and all its groups.

Driver, partitions, write-ahead log, snapshots of all groups and deliveries run on one disk. The power may fail at any call
that changes something there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.delivering_process import DeliveringProcess
from tests.simulation.disk_image import DiskImage
from tests.simulation.process import Process
from tests.simulation.server_disk import DEATHS
from zraft.groups.hosted_groups import Hosting
from zraft.groups.recovery import RecoveredGroups, Recovery
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.tasks import SnapshotDisk
from zraft.raft.role import Role
from zraft.server.clients.errands import Errand
from zraft.server.engine.applier import SESSION_COMMANDS
from zraft.server.engine.driver import ERRAND_BYTES
from zraft.server.engine.effects import Effects
from zraft.server.engine.registry_coordination import RegistryCoordination
from zraft.server.partitions.machine import mark_of_image
from zraft.server.partitions.partitions import Partitions
from zraft.server.process.group_shell import GroupFiles
from zraft.storage.delivery.settings import DeliverySettings
from zraft.storage.directory import DataDirectory
from zraft.storage.settings import WalSettings
from zraft.topics.service import TopicService
from zraft_core.ids import GroupId
from zraft_core.znodes.txn import Command

DELIVERY_SETTINGS: Final = DeliverySettings(
    segment_bytes_max=8 * 1024, sync_bytes_max=4 * 1024, checkpoint_bytes=4 * 1024, frame_bytes_max=2 * 1024
)
DELIVERIES_WAITING_MAX: Final = 24
"""Tasks that wait for the disk of deliveries; more are refused."""
FAILS_WITHIN_STEPS: Final = 40


class HostingDisk(DiskImage):
    """The disk of such a server."""

    SETTINGS = WalSettings(
        segment_bytes_max=48 * 1024,
        tail_bytes_max=32 * 1024,
        group_tail_bytes_max=4 * 1024,
        index_stride_bytes=2 * 1024,
    )

    files: GroupFiles
    groups: RecoveredGroups

    def _open_snapshots(self, directory: DataDirectory, recovery: Recovery) -> SnapshotDisk:
        self.files = GroupFiles(self.disk, directory, DELIVERY_SETTINGS, recovery)
        self.groups = recovery.groups
        return self.files.snapshots

    @property
    def log_length(self) -> int:
        """Bytes of the log that is open, preallocated zeros left out."""
        return self.wal.statistics().length


class HostingProcess(DeliveringProcess, Process):
    """One server.

    Attributes:
        totals: `crashes`, tasks `refused` by the disk of deliveries, and of the lives that ended, `snapshots` of groups and
            how many that other servers sent were `installed`.
    """

    image: HostingDisk

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.totals: Counter[str] = Counter()

    # -- what a world asks and is told

    @property
    def topics(self) -> TopicService:
        """Its partitions as connections see them, while it is up."""
        return self.partitions.topics

    def hosts(self, group: GroupId) -> bool:
        """Whether it has a replica of a group."""
        return self.up and group in self.partitions.hosted

    def term_led(self, group: GroupId) -> int:
        """The term in which it believes to lead a group; 0 if it does not."""
        groups = None if self.driver is None else self.driver.groups
        replica = None if groups is None else groups.host.groups.get(group)
        return replica.raft.term if replica is not None and replica.raft.role is Role.LEADER else 0

    @property
    def compared(self) -> int:
        """How often it compared the state of a group with another member's since it started (D-26)."""
        groups = None if self.driver is None else self.driver.groups
        return 0 if groups is None else groups.digests.compared_total

    def log(
        self, command: Command, session: int, done: Callable[[object], None] = lambda result: None
    ) -> None:
        """Put a command of a session into the coordination group's log; `done` is told what came of it."""
        owner = None if command[0] in SESSION_COMMANDS else Errand(done)
        self._running.origin.add(owner, session, (), [command], ERRAND_BYTES)
        self.wake()

    def fail_soon(self) -> None:
        """The power fails within one of the next calls that change something on the disk."""
        self.image.trouble(self._rng.choice(DEATHS), FAILS_WITHIN_STEPS)

    # -- life

    def _new_disk(self, rng: random.Random) -> HostingDisk:
        return HostingDisk(self.server, rng)

    def _hosting(self) -> Hosting:
        self._group_compactions: list[tuple[GroupId, int]] = []
        self.partitions = Partitions(RegistryCoordination(lambda: self._running), self._read)
        self._begin_deliveries(self.image.files.performer)
        return Hosting(self.partitions, self.image.groups, mark_of_image, self.partitions.topics)

    def _lose_memory(self) -> None:
        self.totals = self.seen()
        self.totals["crashes"] += 1
        super()._lose_memory()

    def seen(self) -> Counter[str]:
        """`totals`, this life included."""
        groups = None if self.driver is None else self.driver.groups
        seen = Counter(self.totals)
        if groups is not None:
            seen["installed"] += groups.installed_total
            seen["snapshots"] += groups.host.statistics().snapshots_total
        return seen

    # -- turns

    def _take_turn(self) -> None:
        self._take_reads()
        super()._take_turn()
        if self.partitions.notices:
            raise BrokenPromiseError("no partition stops", self.partitions.notices[0])

    def _carry_out(self, effects: Effects) -> None:
        super()._carry_out(effects)
        self._group_compactions += effects.group_compactions
        if self._frame is None:
            self._compact()
        room = max(0, DELIVERIES_WAITING_MAX - len(self._delivery_tasks))
        for task in effects.deliveries[:room]:
            self._deliver(task)
        refused = effects.deliveries[room:]
        if refused:
            self.totals["refused"] += len(refused)
            groups = self._running.groups
            assert groups is not None
            groups.refused(refused)

    def _compact(self) -> None:
        super()._compact()
        compactions, self._group_compactions = self._group_compactions, []
        for group, index in compactions:
            self.image.compact(index, group)

    def _delivered(self, task: delivery_tasks.Task, result: delivery_tasks.Result) -> None:
        self._running.delivered(task, result)
