"""Owns one simulated server with partitions of topics: its disk through all boots, and all its parts as they ship.

Driver, partitions, write-ahead log, snapshots of all groups and deliveries run on one `SimulatedDisk`; what threads do in a
process is done here a few steps later, one task at a time. The power may fail at any call that changes something.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.disk import ProcessDied, SimulatedDisk, Trouble
from zraft.groups.digests import DivergedError
from zraft.groups.hosted_groups import Hosting
from zraft.groups.identity import Identity
from zraft.groups.recovery import recover
from zraft.groups.roster import Roster
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.tasks import Task
from zraft.server.engine.driver import Driver
from zraft.server.engine.effects import Effects
from zraft.server.engine.registry_coordination import RegistryCoordination
from zraft.server.engine.settings import DriverSettings
from zraft.server.partitions import delivery_reading
from zraft.server.partitions.delivery_reading import ReadDeliveries
from zraft.server.partitions.machine import mark_of_image
from zraft.server.partitions.partitions import Partitions
from zraft.server.process.group_shell import GroupFiles
from zraft.storage.delivery.settings import DeliverySettings
from zraft.storage.directory import DataDirectory
from zraft.storage.records import EntryRecord, Record, RosterRecord
from zraft.storage.settings import WalSettings
from zraft.transport.messages import PeerMessage, Sender
from zraft_core.errors import StorageError
from zraft_core.ids import COORDINATION_GROUP, ServerId

PATH: Final = "/data"
WALL_EPOCH_MS: Final = 1_700_000_000_000
WAL_SETTINGS: Final = WalSettings(
    segment_bytes_max=48 * 1024,
    tail_bytes_max=32 * 1024,
    group_tail_bytes_max=4 * 1024,
    index_stride_bytes=2 * 1024,
)
DELIVERY_SETTINGS: Final = DeliverySettings(
    segment_bytes_max=8 * 1024, sync_bytes_max=4 * 1024, checkpoint_bytes=4 * 1024, frame_bytes_max=2 * 1024
)
DELIVERIES_WAITING_MAX: Final = 24
"""Tasks that wait for the disk of deliveries; more are refused."""
SYNC_EVERY_STEPS: Final = 60


class HostingServer:
    """One server: up or down."""

    def __init__(
        self, server: ServerId, peers: Sequence[ServerId], settings: DriverSettings, seed: str
    ) -> None:
        self.server = server
        self._peers = peers
        self._settings = settings
        self._seed = seed
        self._rng = random.Random(f"{seed}/server/{server}")
        self.disk = SimulatedDisk()
        self.boots = 0
        self.ended: str | None = None
        """Why it must not be started again."""
        self.driver: Driver | None = None
        self.partitions: Partitions | None = None
        self.sender: Sender | None = None
        self.roster: Roster | None = None
        """Who founds the cluster, as its disk says; it never loses that (D-1)."""
        self._inbox: list[tuple[Sender, list[PeerMessage]]] = []
        self.installed_total = self.snapshots_total = self.crashes_total = self.refused_total = 0
        self.written_bytes = 0
        """Payload of all entries that its log ever took."""

    @property
    def up(self) -> bool:
        return self.driver is not None

    @property
    def log_length(self) -> int:
        """Bytes of its log while it is up, preallocated zeros left out."""
        return self._wal.statistics().length

    # -- life

    def boot(self, now_ms: int) -> None:
        """Start from whatever the disk holds; the power may fail meanwhile."""
        if self.driver is not None or self.ended is not None:
            return
        self.boots += 1
        try:
            self._boot(now_ms)
        except ProcessDied:
            self.crash()

    def _boot(self, now_ms: int) -> None:
        fs, number = self.disk, f"{self.server}/{self.boots}"
        entropy = random.Random(f"{self._seed}/entropy/{number}").randbytes
        self._directory = directory = DataDirectory.open(fs, PATH, server=self.server, entropy=entropy)
        recovery = recover(fs, directory, WAL_SETTINGS)
        self.roster = recovery.coordination.roster or self.roster
        self._wal = recovery.wal
        files = GroupFiles(fs, directory, DELIVERY_SETTINGS, recovery)
        partitions = Partitions(RegistryCoordination(lambda: self._started), self._reads_append)
        self._files = files
        driver = Driver(
            settings=self._settings,
            identity=Identity(
                self.server, directory.instance, directory.boot, directory.boot_id, directory.cluster
            ),
            peers=self._peers,
            stored=recovery.coordination,
            rng=random.Random(f"{self._seed}/driver/{number}"),
            entropy=entropy,
            four_letter_word=lambda word, argument: b"",
            now_ms=now_ms,
            hosting=Hosting(partitions, recovery.groups, mark_of_image, partitions.topics),
        )
        self._frame: list[Record] | None = None
        self._compactions: list[tuple[int, int]] = []
        self._tasks: deque[Task] = deque()
        self._deliveries: deque[delivery_tasks.Task] = deque()
        self._reads: deque[ReadDeliveries] = deque()
        self._inbox = []
        self._steps = 0
        self.driver, self.partitions = driver, partitions
        self.sender = Sender(self.server, directory.instance, directory.boot)

    @property
    def _started(self) -> Driver:
        assert self.driver is not None
        return self.driver

    def _reads_append(self, task: ReadDeliveries) -> None:
        self._reads.append(task)

    def crash(self, *, power: bool = True) -> None:
        """The process is gone; with it, if the power failed, what was not synced."""
        self._count()
        self.crashes_total += 1
        if power:
            self.disk.crash(self._rng)
        else:
            self.disk.kill()
        self.driver = self.partitions = self.sender = None

    def fail_soon(self) -> None:
        """The power fails within one of the next calls that change something on the disk."""
        trouble = self._rng.choice((Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER))
        self.disk.fail_at(self._rng.randint(1, 40), trouble, self._rng)

    def _count(self) -> None:
        groups = None if self.driver is None else self.driver.groups
        if groups is not None:
            self.installed_total += groups.installed_total
            self.snapshots_total += groups.host.statistics().snapshots_total

    # -- a step

    def hear(self, sender: Sender, messages: list[PeerMessage]) -> None:
        self._inbox.append((sender, messages))

    def step(
        self, now_ms: int, send: Callable[[Sender, ServerId, Sequence[PeerMessage]], None], *, calm: bool
    ) -> None:
        """What its threads did meanwhile, then a turn.

        Raises:
            BrokenPromiseError: it says that something cannot be right.
        """
        if self.driver is None:
            return
        try:
            self._step(self.driver, now_ms, send, calm=calm)
        except ProcessDied:
            self.crash()
        except (StorageError, DivergedError) as error:
            raise BrokenPromiseError("a sound disk", f"server {self.server}: {error}") from error

    def _step(
        self,
        driver: Driver,
        now_ms: int,
        send: Callable[[Sender, ServerId, Sequence[PeerMessage]], None],
        *,
        calm: bool,
    ) -> None:
        rng = self._rng
        self._steps += 1
        if self._frame is not None and (calm or rng.random() < 0.6):
            self._wal.append(self._frame)
            if isinstance(self._frame[0], RosterRecord):
                self.roster = self._frame[0].roster
            self.written_bytes += sum(
                len(record.entry.payload) for record in self._frame if isinstance(record, EntryRecord)
            )
            self._frame = None
            driver.persisted()
        if self._frame is None:
            while self._compactions:
                group, index = self._compactions.pop(0)
                self._wal.compact(group, index)  # type: ignore[arg-type]
        self._perform(driver, calm=calm)
        inbox, self._inbox = self._inbox, []
        if inbox:
            driver.pass_time(now_ms)
        for sender, messages in inbox:
            driver.receive(sender, messages)
        effects = driver.turn(now_ms, WALL_EPOCH_MS + now_ms)
        if driver.mistakes:
            raise BrokenPromiseError("no mistakes", str(driver.mistakes[0]))
        if self.partitions is not None and self.partitions.notices:
            raise BrokenPromiseError("no partition stops", self.partitions.notices[0])
        self._carry_out(driver, effects, send)

    def _perform(self, driver: Driver, *, calm: bool) -> None:
        rng, groups = self._rng, driver.groups
        assert groups is not None
        assert self.partitions is not None
        if self._tasks and (calm or rng.random() < 0.5):
            task = self._tasks.popleft()
            driver.performed(task, self._files.snapshots.perform(task))
        for _ in range(rng.randint(0, 4) if not calm else 8):
            if self._deliveries:
                delivery = self._deliveries.popleft()
                driver.delivered(delivery, self._files.performer.perform(delivery))
        if self._reads:
            read = self._reads.popleft()
            self.partitions.read_done(read, delivery_reading.perform(read))
        if self._steps % SYNC_EVERY_STEPS == 0:
            self.partitions.synced(self._files.deliveries.sync_all())

    def _carry_out(
        self,
        driver: Driver,
        effects: Effects,
        send: Callable[[Sender, ServerId, Sequence[PeerMessage]], None],
    ) -> None:
        assert self.sender is not None
        assert driver.groups is not None
        if self._directory.cluster is None and driver.cluster is not None:
            self._directory.set_cluster(driver.cluster)
        for to, messages in effects.sends:
            send(self.sender, to, messages)
        for connection, data, _ in effects.outputs:
            if connection.handle is not None:
                connection.handle(data)
        if effects.write is not None:
            assert self._frame is None, "a second frame while one is under way"
            self._frame = effects.write
        if effects.compact_to is not None:
            self._compactions.append((COORDINATION_GROUP, effects.compact_to))
        self._compactions += effects.group_compactions
        self._tasks += effects.tasks
        if effects.deliveries:
            room = max(0, DELIVERIES_WAITING_MAX - len(self._deliveries))
            self._deliveries += effects.deliveries[:room]
            refused = effects.deliveries[room:]
            self.refused_total += len(refused)
            driver.groups.refused(refused)
