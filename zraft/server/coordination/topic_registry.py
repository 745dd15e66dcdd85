"""Work of the coordination group's leader for topics: it places partitions, tells groups who produces, and logs reports.

It is part of one leadership, so it begins empty with each; whatever is lost with it is sent or reported
again. Others carry the messages to and from groups (`zraft.topics.registry_leader` says what these mean).

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zraft.config.features import LEVEL_OF_TOPICS
from zraft.raft.core import Raft
from zraft.raft.messages import UNKNOWN_INSTANCE
from zraft.topics.placement import Disk, PlacementSituation, decide
from zraft.topics.registry import Registry
from zraft.topics.registry_leader import RegistryLeader
from zraft.tree.machine import Machine
from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.messages import Reply, Report, StartRequest, ViewUpdate
from zraft_core.topics.registry_commands import RegistryCommand
from zraft_core.znodes.txn import TOPICS, Command

LOOK_INTERVAL_MS: Final = 50
"""The least time between two looks at where partitions are."""
GROUPS_PER_LOOK_MS: Final = 20
"""Looks are at least 1 ms apart for each of so many groups, so that they take a small share of the time."""
ANSWERS_WITHIN_MS: Final = 2_000
"""A server that was silent for longer gets new partitions only if there is no other."""
RESEND_MS: Final = 250
"""How long until a view or change that was not confirmed is sent again, and until a report may be logged again."""

OUTGOING_MAX: Final = 65_536
"""How many messages to groups wait to be carried; beyond that all of them are dropped, and sent again later."""

ToGroup = tuple[GroupId, ViewUpdate | StartRequest]
"""A group, and a message for its leader."""


class RegistryKeeper:
    """The registry of topics, as one leadership cares for it.

    Attributes:
        heard: what groups have reported since the last turn; the next turn puts it into the log.
        outgoing: messages for leaders of groups, until they are taken. Any of them may be lost.
    """

    def __init__(self, me: ServerId, registry: Registry, now_ms: int) -> None:
        self._me = me
        self._registry = registry
        self._leader = RegistryLeader(registry)
        self._began_ms = now_ms
        self._now_ms = now_ms
        self._look_at = 0
        self._seen: object = None
        """The facts that the last look saw: the same facts would lead to the same decision."""
        self.heard: dict[RegistryCommand, None] = {}
        self._logged: dict[RegistryCommand, int] = {}
        """When each report was given to the log, as long as the same may come again."""
        self._sent: dict[GroupId, tuple[int, int]] = {}
        """The position of the view that each group was sent last, and when."""
        self._changes_at = 0
        self._changes_sent = 0
        self.outgoing: list[ToGroup] = []

    def hear(self, message: Report | Reply) -> None:
        """Take what a group's leader says: how far it is, or its answer to a change of a topic."""
        match message:
            case Report():
                command = self._leader.on_report(message)
            case Reply():
                command = self._leader.on_reply(message)
        if command is not None:
            self.heard[command] = None

    def take_outgoing(self) -> list[ToGroup]:
        """Return the messages for leaders of groups, and forget them."""
        outgoing, self.outgoing = self.outgoing, []
        return outgoing

    def turn(self, raft: Raft, machine: Machine, now_ms: int) -> list[Command]:
        """Do a share of the leader's turn; return commands for the log."""
        if machine.feature_level < LEVEL_OF_TOPICS:
            return []
        self._now_ms = now_ms
        commands = self._reported()
        if now_ms >= self._look_at:
            self._look_at = now_ms + max(LOOK_INTERVAL_MS, len(self._registry.groups) // GROUPS_PER_LOOK_MS)
            commands += self._placed(raft, machine)
            self._tell()
        return [(TOPICS, encode_registry(command)) for command in commands]

    # -- reports

    def _reported(self) -> list[RegistryCommand]:
        if not self.heard:
            return []
        now = self._now_ms
        self._logged = {command: at for command, at in self._logged.items() if now - at < RESEND_MS}
        fresh = [command for command in self.heard if command not in self._logged]
        self.heard.clear()
        self._logged.update(dict.fromkeys(fresh, now))
        return fresh

    # -- placement

    def _placed(self, raft: Raft, machine: Machine) -> list[RegistryCommand]:
        registry = self._registry
        if not registry.groups and not registry.topics:
            return []
        disks = self._disks(raft, machine)
        replication = machine.settings.topics_replication
        seen = (registry.revision, disks, replication, registry.settings)
        if seen == self._seen:
            return []
        self._seen = seen
        return decide(PlacementSituation(registry, disks, replication))

    def _disks(self, raft: Raft, machine: Machine) -> Mapping[ServerId, Disk]:
        """Return the disks of the voters that are to stay."""
        silences = raft.silences
        dead_after = machine.settings.topics_dead_after_ms
        disks: dict[ServerId, Disk] = {}
        for server in raft.membership.voters:
            wish = machine.members.get(server)
            instance: Instance = raft.membership.members[server].instance
            if instance == UNKNOWN_INSTANCE or (machine.members and (wish is None or not wish.voter)):
                continue
            silence = 0 if server == self._me else silences.get(server)
            if silence is None:
                silence = self._now_ms - self._began_ms
            disks[server] = Disk(
                instance, silence < ANSWERS_WITHIN_MS, dead_after > 0 and silence >= dead_after
            )
        return disks

    # -- what groups are told

    def _tell(self) -> None:
        now, sent = self._now_ms, self._sent
        if len(self.outgoing) > OUTGOING_MAX:
            self.outgoing.clear()
        for group, update in self._leader.views():
            position, at = sent.get(group, (0, 0))
            if position != update.view.position or now - at >= RESEND_MS:
                sent[group] = (update.view.position, now)
                self.outgoing.append((group, update))
        if len(sent) > len(self._registry.groups):
            self._sent = {group: last for group, last in sent.items() if group in self._registry.groups}
        newest = self._registry.last_change
        if self._registry.changes and (newest != self._changes_sent or now - self._changes_at >= RESEND_MS):
            self._changes_at, self._changes_sent = now, newest
            self.outgoing += self._leader.changes()
