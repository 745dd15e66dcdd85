"""Owns one simulated server that hosts groups: its disk, its boots, its turns and what it is told of the groups."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import inf
from typing import Protocol

from attrs import define

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.groups.counter import AppendCounter
from tests.simulation.groups.disk import GroupsDisk, Opened
from tests.simulation.profile import Profile
from tests.simulation.schedule import Schedule
from tests.simulation.simulated_process import FrameObserver, SimulatedProcess
from zraft.groups.description import GroupDescription
from zraft.groups.effects import GroupEffects, GroupMessage, SnapshotTask
from zraft.groups.host import GroupHost
from zraft.groups.machine import StateMachine
from zraft.groups.replica import StoredGroup
from zraft.groups.settings import GroupSettings
from zraft.raft.snapshot import SnapshotMeta
from zraft.server.coordination.clock import TurnClock
from zraft.storage.records import Record
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.transport.messages import PeerMessage, Sender
from zraft_core.ids import GroupId, Instance, ServerId


@define
class TableRow:
    """What the coordination group says of a group at the moment."""

    description: GroupDescription
    preferred: ServerId | None
    wanted: Mapping[ServerId, Instance]
    removed: bool = False
    placed: bool = False
    """Its leader said that these disks are its voters."""


class Observer(FrameObserver, Protocol):
    """Who watches: the checkers, through the simulation."""

    def booted(self, process: GroupsProcess, opened: Opened, in_flight: Sequence[Record] | None) -> None: ...
    def created(self, process: GroupsProcess, group: GroupId) -> None: ...
    def turned(self, process: GroupsProcess, effects: GroupEffects) -> None: ...
    def sending(self, process: GroupsProcess, to: ServerId, messages: Sequence[GroupMessage]) -> None: ...
    def snapshot(self, process: GroupsProcess, info: SnapshotInfo, *, received: bool) -> None: ...
    def compacting(self, process: GroupsProcess, group: GroupId, index: int) -> None: ...
    def lacking(self, process: GroupsProcess, group: GroupId, follower: ServerId) -> None: ...


class GroupsProcess(SimulatedProcess[GroupsDisk, Observer]):
    """One server: up or down, running or stopped."""

    def __init__(
        self,
        server: ServerId,
        settings: GroupSettings,
        schedule: Schedule,
        profile: Profile,
        seed: str,
        table: Mapping[GroupId, TableRow],
        disks: Mapping[ServerId, Instance],
        observer: Observer,
    ) -> None:
        super().__init__(server, schedule, profile, seed, observer)
        self._settings = settings
        self._table = table
        self._disks = disks
        self.host: GroupHost | None = None
        self.opened: Opened | None = None
        self._clock = TurnClock(0, asleep_after_ms=1_000)
        self._due_at: float = 0
        self._compactions: list[tuple[GroupId, int]] = []

    def _new_disk(self, rng: random.Random) -> GroupsDisk:
        return GroupsDisk(self.server, rng)

    @property
    def up(self) -> bool:
        return self.host is not None

    @property
    def _task_ms_max(self) -> int:
        return 3

    # -- life
    def _start(self) -> None:
        """Take part in the groups that the table has by now."""
        entropy = random.Random(f"{self._seed}/entropy/{self.server}/{self.boots}/{self._wipes}")
        self.opened = opened = self.image.open(entropy.randbytes)
        self.sender = Sender(self.server, opened.instance, opened.boot)
        self._clock = TurnClock(self._schedule.now_ms, asleep_after_ms=1_000)
        self.host = GroupHost(
            server=self.server,
            instance=opened.instance,
            boot=opened.boot,
            settings=self._settings,
            rng=random.Random(f"{self._seed}/host/{self.server}/{self.boots}"),
        )
        self._due_at = 0
        self._begun(opened)
        self._observer.booted(self, opened, self._take_in_flight())
        for server, instance in self._disks.items():
            self.host.vouch(server, instance)
        for group, row in self._table.items():
            if row.removed:
                if group in opened.recovered.groups:
                    self.host.remove(group)
            elif self._concerns(row) or group in opened.recovered.groups:
                self.learn(group)
        self._request_turn(self._schedule.now_ms)

    def _begun(self, opened: Opened) -> None:
        """Its host is there, and has no groups yet."""

    def _machine(self, group: GroupId, stored: StoredGroup) -> StateMachine:
        """What a group replicates."""
        return AppendCounter()

    def _concerns(self, row: TableRow) -> bool:
        return self.server in row.description.founders or self.server in row.wanted

    def learn(self, group: GroupId) -> None:
        """The coordination group was applied here up to what its table says of the group now."""
        host, row = self.host, self._table[group]
        if host is None:
            return
        if row.removed:
            if group in host.groups:
                host.remove(group)
                self._gone(group)
        elif group in host.groups or self._concerns(row):
            if group not in host.groups:
                assert self.opened is not None
                for server, instance in self._disks.items():
                    host.vouch(server, instance)
                stored = self.image.stored(self.opened, group)
                host.create(row.description, self._machine(group, stored), stored)
                self._observer.created(self, group)
            host.prefer(group, row.preferred)
            host.want_members(group, row.wanted)
            if row.placed and row.wanted.get(self.server) != host.instance:
                host.retire(group)
        self._request_turn(self._schedule.now_ms)

    def _gone(self, group: GroupId) -> None:
        """The group is not hosted any more."""

    def _lose_memory(self) -> None:
        self.host = None
        self._compactions.clear()

    # -- input
    def install(self, group: GroupId, meta: SnapshotMeta, image: bytes, digest: int) -> None:
        """Another server's snapshot has arrived whole: durable first, then taken over."""
        host = self.host
        if host is None or group not in host.groups or self._table[group].removed or self.stopped:
            return
        if meta.index <= host.groups[group].applied_index or self.frame_in_flight is not None or self._tasks:
            return  # it is sent again if it is still needed
        info = self.image.perform(SnapshotTask(group, meta, image, digest))
        self._observer.snapshot(self, info, received=True)
        host.install(group, meta, image)
        self._request_turn(self._schedule.now_ms)

    # -- turns
    def _take_turn(self) -> None:
        host = self.host
        assert host is not None
        if self._take_durable():
            host.persisted(host.frame.durable())
        for sender, received in self._arrived():
            self._receive(host, sender, received)
        if self._schedule.now_ms < self._due_at and not self._wants_turn(host):
            if self._due_at < inf:
                self._request_turn(int(self._due_at))
            return
        self.turns += 1
        effects = self._host_turn(host, self._clock.advance(self._schedule.now_ms))
        if host.mistakes:
            # The server drops such a message and lives; here every peer is ours, so somebody is wrong.
            _, mistake = host.mistakes.popleft()
            raise BrokenPromiseError("no mistakes", mistake)
        self._observer.turned(self, effects)
        for to, messages in effects.sends.items():
            self._observer.sending(self, to, messages)
        self._carry_out(host, effects)

    def _receive(self, host: GroupHost, sender: Sender, messages: Sequence[PeerMessage]) -> None:
        host.receive(sender, messages)  # type: ignore[arg-type]

    def _wants_turn(self, host: GroupHost) -> bool:
        """Did anything arrive for which a turn must not wait until it is due?"""
        return host.wants_turn

    def _host_turn(self, host: GroupHost, step: int) -> GroupEffects:
        return host.turn(step)

    def _carry_out(self, host: GroupHost, effects: GroupEffects) -> None:
        for group in effects.forgotten:
            self.image.forget(group)
        records = host.frame.take()
        if records is not None:
            self._write(records)
        self._queue(effects.snapshots)
        self._compactions += effects.compactions
        if self._frame is None:
            self._compact()
        for group, follower in effects.needs_snapshot:
            self._observer.lacking(self, group, follower)
        self._due_at = inf
        if effects.wake_in is not None:
            self._alarm(effects.wake_in)

    def _alarm(self, wake_in: int) -> None:
        self._due_at = min(self._due_at, self._schedule.now_ms + max(1, wake_in))
        self._request_turn(int(self._due_at))

    def _compact(self) -> None:
        host = self.host
        compactions, self._compactions = self._compactions, []
        for group, index in compactions:
            if host is not None and group in host.groups:
                self._observer.compacting(self, group, index)
                self.image.compact(index, group)

    def _perform(self, task: SnapshotTask) -> None:
        host = self.host
        assert host is not None
        if task.group in host.groups:
            newest = self.image.newest(task.group)
            if newest is None or newest.meta.index < task.meta.index:
                self._observer.snapshot(self, self.image.perform(task), received=False)
            host.snapshotted(task.group, task.meta, durable=True)
