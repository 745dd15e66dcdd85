"""Owns one simulated server that hosts partitions: what `tests.simulation.groups` has, and deliveries on the same disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.delivering_process import DeliveringProcess
from tests.simulation.groups.disk import Opened
from tests.simulation.groups.process import GroupsProcess
from zraft.groups.effects import GroupEffects, SnapshotTask
from zraft.groups.host import GroupHost
from zraft.groups.machine import StateMachine
from zraft.groups.replica import StoredGroup
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.delivery_tasks import DeliveryPerformer
from zraft.raft.snapshot import SnapshotMeta
from zraft.server.partitions.coordination_port import Coordination
from zraft.server.partitions.machine import AppliedEntry, PartitionMachine, mark_of_image
from zraft.server.partitions.partitions import Partitions
from zraft.server.partitions.settings import PartitionsSettings
from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.fetching import Piece
from zraft.storage.delivery.manifest import Manifest
from zraft.storage.delivery.settings import DeliverySettings
from zraft.transport.messages import Bundle, Edge, GroupLeader, PeerMessage, Sender
from zraft_core.ids import GroupId, ServerId

WALL_MS: Final = 1_700_000_000_000
OF_PARTITIONS: Final = (Bundle, Edge, GroupLeader)
DELIVERIES: Final = DeliverySettings(
    segment_bytes_max=8_192, frame_bytes_max=1_024, checkpoint_bytes=2_048, index_stride_bytes=512
)


class Witness(Protocol):
    """Who watches what partitions come to."""

    def applied(self, process: PartitionsProcess, machine: PartitionMachine, entry: AppliedEntry) -> None: ...
    def said(self, process: PartitionsProcess, to: ServerId, message: PeerMessage) -> None: ...


class PartitionsProcess(DeliveringProcess, GroupsProcess):
    """One server.

    Attributes:
        coordination, witness, partition_settings: set once, before the first boot.
    """

    coordination: Coordination
    witness: Witness
    partition_settings: PartitionsSettings

    # -- life

    def _begun(self, opened: Opened) -> None:
        self.partitions = Partitions(self.coordination, self._read, self.partition_settings)
        disk, directory = self.image.disk, self.image.directory
        assert directory is not None
        self._begin_deliveries(DeliveryPerformer(disk, DeliveryDisk(disk, directory, DELIVERIES)))

    def _machine(self, group: GroupId, stored: StoredGroup) -> StateMachine:
        machine = self.partitions.open(group)
        expected = None
        if stored.snapshot is not None:
            meta, image = stored.snapshot
            expected = mark_of_image(group, image, meta.index)
        self._do(delivery_tasks.OpenDeliveries(group, expected))
        return machine

    def _gone(self, group: GroupId) -> None:
        self.partitions.closed(group)
        self._delivery_tasks = deque(task for task in self._delivery_tasks if task.group != group)

    def crash(self, *, power: bool | None = None) -> None:
        if self.host is not None and self._tasks and not self._may_store():
            # That snapshot was not begun, because of deliveries that are not durable.
            self._tasks.clear()
        super().crash(power=power)

    # -- turns

    def _receive(self, host: GroupHost, sender: Sender, messages: Sequence[PeerMessage]) -> None:
        for message in messages:
            if isinstance(message, OF_PARTITIONS):
                self.partitions.receive(sender.server, message)
            else:
                super()._receive(host, sender, [message])

    def _wants_turn(self, host: GroupHost) -> bool:
        return host.wants_turn or self.partitions.wants_turn or bool(self._reads)

    def _host_turn(self, host: GroupHost, step: int) -> GroupEffects:
        now_ms, partitions = self._schedule.now_ms, self.partitions
        self._take_reads()
        partitions.before(host, step, now_ms, WALL_MS + now_ms)
        effects = host.turn(step)
        for group in effects.applied:
            machine = partitions.hosted[group].machine
            if machine.stopped:
                raise BrokenPromiseError("group", machine.error)
            for entry in machine._fresh:
                self.witness.applied(self, machine, entry)
        partitions.after(host, effects, now_ms, WALL_MS + now_ms)
        if partitions.mistakes:
            raise BrokenPromiseError("no mistakes", str(partitions.mistakes.popleft()))
        return effects

    def _carry_out(self, host: GroupHost, effects: GroupEffects) -> None:
        for group in effects.forgotten:
            self._do(delivery_tasks.RemoveDeliveries(group))
        super()._carry_out(host, effects)
        for to, message in self.partitions.take_outgoing():
            if to == self.server:
                self.partitions.receive(to, message)
            else:
                self.witness.said(self, to, message)
        for task in self.partitions.take_tasks():
            self._deliver(task)
        wake_in = 1 if self.partitions.wants_turn else self.partitions.wake_in
        if wake_in is not None:
            self._alarm(wake_in)

    # -- deliveries

    def _delivered(self, task: delivery_tasks.Task, result: delivery_tasks.Result) -> None:
        if isinstance(result, Exception):
            raise BrokenPromiseError("deliveries", f"S{self.server}, {task}: {result}")
        self.partitions.performed(task, result)

    # -- snapshots

    def _may_store(self) -> bool:
        task: SnapshotTask = self._tasks[0]
        return self.partitions.cut_index(task.group) >= task.meta.index

    def _next_task(self) -> None:
        """A snapshot says that its deliveries are there: they must not be lost any more (D-13)."""
        group = self._tasks[0].group
        if self.host is not None and group in self.host.groups and not self._may_store():
            self._deliver(delivery_tasks.SyncDeliveries(group))
            self._later(5, self._next_task)
            return
        super()._next_task()

    def _compact(self) -> None:
        self._compactions = [
            (group, min(index, self.partitions.cut_index(group))) for group, index in self._compactions
        ]
        super()._compact()

    def shipment(self, group: GroupId) -> tuple[Manifest, dict[bytes, bytes]] | None:
        """The durable segments of a group, as they go with its snapshot."""
        if self.host is None or group not in self.performer.disk:
            return None
        log = self.performer.disk.log(group)
        manifest = log.manifest()
        return manifest, {one.id: log.read_file(one.id, 0, one.size) for one in manifest.segments}

    def take_shipment(
        self,
        group: GroupId,
        shipment: tuple[Manifest, dict[bytes, bytes]],
        install: Callable[[], None],
        meta: SnapshotMeta,
    ) -> None:
        """Another server's snapshot has arrived with its deliveries: these first."""
        host = self.host
        if (
            host is None
            or group not in host.groups
            or self.stopped
            or self.frame_in_flight is not None
            or self._tasks
        ):
            return
        if meta.index <= host.groups[group].applied_index:
            return
        while self._delivery_tasks:
            self._do(self._delivery_tasks.popleft())
        manifest, files = shipment
        wanted = self._do(delivery_tasks.BeginFetch(group, manifest))
        while isinstance(wanted, Piece):
            data = files[wanted.id][wanted.offset : wanted.offset + 3_000]
            wanted = self._do(delivery_tasks.StorePiece(group, wanted.id, wanted.offset, data))
        self._do(delivery_tasks.CompleteFetch(group))
        install()
