"""Owns one simulated server that hosts groups: its disk, its boots, its turns and what it is told of the groups."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final, Protocol

from attrs import define

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.groups.counter import AppendCounter
from tests.simulation.groups.disk import GroupsDisk, Opened
from tests.simulation.profile import Profile
from tests.simulation.schedule import Schedule
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

INBOX_MAX: Final = 400


@define
class TableRow:
    """What the coordination group says of a group at the moment."""

    description: GroupDescription
    preferred: ServerId | None
    wanted: Mapping[ServerId, Instance]
    removed: bool = False
    placed: bool = False
    """Its leader said that these disks are its voters."""


class Observer(Protocol):
    """Who watches: the checkers, through the simulation."""

    def booted(self, process: GroupsProcess, opened: Opened, in_flight: Sequence[Record] | None) -> None: ...
    def created(self, process: GroupsProcess, group: GroupId) -> None: ...
    def turned(self, process: GroupsProcess, effects: GroupEffects) -> None: ...
    def sending(self, process: GroupsProcess, to: ServerId, messages: Sequence[GroupMessage]) -> None: ...
    def writing(self, process: GroupsProcess, records: Sequence[Record]) -> None: ...
    def durable(self, process: GroupsProcess, records: Sequence[Record]) -> None: ...
    def snapshot(self, process: GroupsProcess, info: SnapshotInfo, *, received: bool) -> None: ...
    def compacting(self, process: GroupsProcess, group: GroupId, index: int) -> None: ...
    def lacking(self, process: GroupsProcess, group: GroupId, follower: ServerId) -> None: ...


class GroupsProcess:
    """One server: up or down, running or stopped."""

    def __init__(
        self,
        server: ServerId,
        settings: GroupSettings,
        schedule: Schedule,
        profile: Profile,
        seed: str,
        decode: Callable[[bytes], Sequence[PeerMessage]],
        table: Mapping[GroupId, TableRow],
        disks: Mapping[ServerId, Instance],
        observer: Observer,
    ) -> None:
        self.server = server
        self._settings = settings
        self._schedule = schedule
        self._profile = profile
        self._seed = seed
        self._rng = random.Random(f"{seed}/process/{server}")
        self._decode = decode
        self._table = table
        self._disks = disks
        self._observer = observer
        self._wipes = 0
        self.image = self._new_disk()
        self.host: GroupHost | None = None
        self.opened: Opened | None = None
        self.sender = Sender(server, Instance(b""), 0)
        self.boots = 0
        self.turns = 0
        self.stopped_until_ms = 0
        self._clock = TurnClock(0, asleep_after_ms=1_000)
        self._turn_at: int | None = None
        self._due_at: float = 0
        self._inbox: deque[tuple[Sender, bytes]] = deque()
        self._frame: list[Record] | None = None
        self._frame_done = False
        self._frame_number = 0
        self._tasks: deque[SnapshotTask] = deque()
        self._compactions: list[tuple[GroupId, int]] = []
        self.calm = False

    def _new_disk(self) -> GroupsDisk:
        return GroupsDisk(self.server, random.Random(f"{self._seed}/disk/{self.server}/{self._wipes}"))

    @property
    def up(self) -> bool:
        return self.host is not None

    @property
    def stopped(self) -> bool:
        return self._schedule.now_ms < self.stopped_until_ms

    @property
    def writing(self) -> bool:
        """Is a frame on its way to the disk?"""
        return self._frame is not None

    # -- life
    def boot(self) -> None:
        """Start from whatever the disk holds, and take part in the groups that the table has by now."""
        if self.host is not None:
            return
        self.boots += 1
        in_flight, self._frame = self._frame, None
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
        self._observer.booted(self, opened, in_flight)
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

    def crash(self) -> None:
        """The process is gone, and what was not fsynced."""
        if self.host is None:
            return
        if self._frame is not None and not self._frame_done:
            self.image.tear(self._frame, self._tasks[0] if self._tasks else None)
        else:
            self._frame = None
            if self._tasks:
                self.image.tear(None, self._tasks[0])
        self.image.crash()
        self.host = None
        self._frame_done = False
        self._frame_number += 1
        self._turn_at = None
        self._inbox.clear()
        self._tasks.clear()
        self._compactions.clear()
        self.stopped_until_ms = 0

    def wipe(self) -> None:
        """The disk is replaced by an empty one; the process is down."""
        assert self.host is None
        self._wipes += 1
        self._frame = None
        self.image = self._new_disk()

    def stop(self, until_ms: int) -> None:
        """SIGSTOP: no turns; sockets fill up."""
        self.stopped_until_ms = max(self.stopped_until_ms, until_ms)

    def resume(self) -> None:
        """SIGCONT."""
        self.stopped_until_ms = self._schedule.now_ms
        if self.host is not None:
            self._request_turn(self._schedule.now_ms)

    # -- input
    def datagram(self, sender: Sender, data: bytes) -> None:
        if self.host is None or len(self._inbox) >= INBOX_MAX:
            return
        self._inbox.append((sender, data))
        self._request_turn(self._schedule.now_ms)

    def wake(self) -> None:
        """Somebody inside the process gave its groups something to do."""
        if self.host is not None:
            self._request_turn(self._schedule.now_ms)

    def install(self, group: GroupId, meta: SnapshotMeta, image: bytes, digest: int) -> None:
        """Another server's snapshot has arrived whole: durable first, then taken over."""
        host = self.host
        if host is None or group not in host.groups or self._table[group].removed or self.stopped:
            return
        if meta.index <= host.groups[group].applied_index or self.writing or self._tasks:
            return  # it is sent again if it is still needed
        info = self.image.snapshot(SnapshotTask(group, meta, image, digest))
        self._observer.snapshot(self, info, received=True)
        host.install(group, meta, image)
        self._request_turn(self._schedule.now_ms)

    # -- turns
    def _request_turn(self, when_ms: int) -> None:
        if self.host is not None and (self._turn_at is None or when_ms < self._turn_at):
            self._turn_at = when_ms
            self._schedule.at(when_ms, self._turn, when_ms, self.boots)

    def _turn(self, planned_ms: int, boot: int) -> None:
        host = self.host
        if host is None or self._turn_at != planned_ms or boot != self.boots:
            return
        if self.stopped:
            self._turn_at = self.stopped_until_ms
            self._schedule.at(self.stopped_until_ms, self._turn, self.stopped_until_ms, boot)
            return
        self._turn_at = None
        if self._frame_done:
            self._frame, self._frame_done = None, False
            host.persisted(host.frame.durable())
        while self._inbox:
            sender, data = self._inbox.popleft()
            self._receive(host, sender, self._decode(data))
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
        if effects.snapshots:
            idle = not self._tasks
            self._tasks += effects.snapshots
            if idle:
                self._schedule.after(self._rng.randint(0, 3), self._perform, self.boots)
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

    def _write(self, records: list[Record]) -> None:
        assert self._frame is None, "a second frame while one is in flight"
        self._observer.writing(self, records)
        self._frame = records
        self._frame_number += 1
        delay = self._rng.randint(0, self._profile.fsync_ms_max)
        if not self.calm and self._rng.random() < self._profile.slow_fsync:
            delay += self._rng.randint(0, self._profile.slow_fsync_ms_max)
        self._schedule.after(delay, self._written, self._frame_number)

    def _written(self, number: int) -> None:
        if self.host is None or number != self._frame_number or self._frame is None:
            return
        self.image.append(self._frame)
        self._observer.durable(self, self._frame)
        self._frame_done = True
        self._compact()
        self._request_turn(self._schedule.now_ms)

    def _compact(self) -> None:
        host = self.host
        compactions, self._compactions = self._compactions, []
        for group, index in compactions:
            if host is not None and group in host.groups:
                self._observer.compacting(self, group, index)
                self.image.compact(group, index)

    def _perform(self, boot: int) -> None:
        """The snapshot disk has done its first task."""
        host = self.host
        if host is None or boot != self.boots:
            return
        task = self._tasks.popleft()
        if task.group in host.groups:
            newest = self.image.newest(task.group)
            if newest is None or newest.meta.index < task.meta.index:
                self._observer.snapshot(self, self.image.snapshot(task), received=False)
            host.snapshotted(task.group, task.meta, durable=True)
        if self._tasks:
            self._schedule.after(self._rng.randint(0, 3), self._perform, boot)
        self._request_turn(self._schedule.now_ms)
