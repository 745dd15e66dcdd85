"""Bugs planted into the hosts of groups, each of which the checkers must notice: the test of the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.simulation.planted_registry import Patch, Plants
from zraft.groups.covers.cover import CoverAnswer, GivenCover, TakenCover
from zraft.groups.covers.peer import Peer
from zraft.groups.covers.sharing import Covers
from zraft.groups.description import GroupDescription
from zraft.groups.frame import Durable, LogFrame
from zraft.groups.host import GroupHost
from zraft.groups.keeping import Keeping
from zraft.groups.replica import HostedReplica
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Member
from zraft.transport.messages import SharedHeartbeatReply
from zraft_core.ids import GroupId, Instance, ServerId

PLANTS: Final = Plants[None]()
plant = PLANTS.plant
planted = PLANTS.planted


@plant("cover", "a server that no longer leads a group goes on beating for it")
def not_withdrawn() -> Sequence[Patch]:
    def withdraw(self: GivenCover, group: GroupId) -> None:
        self._agreed.pop(group, None)
        self._items.pop(group, None)

    return [(GivenCover, "withdraw", withdraw)]


@plant("cover", "a withdrawal is said once, and not until it is answered")
def withdrawn_once() -> Sequence[Patch]:
    original = GivenCover.heartbeat

    def heartbeat(self: GivenCover, now: int) -> Any:
        message = original(self, now)
        for group, term, _ in message.items:
            if not term:
                del self._items[group]
        return message

    return [(GivenCover, "heartbeat", heartbeat)]


@plant("cover", "a follower that follows somebody else goes on answering for the group")
def not_lost() -> Sequence[Patch]:
    return [(TakenCover, "lose", lambda self, group: None)]


@plant("cover", "a follower agrees to whatever leads, or does not lead, its group")
def agrees_blindly() -> Sequence[Patch]:
    def agrees(self: Covers, peer: Peer, group: GroupId, term: int, index: int) -> bool:
        replica = self._state.groups.get(group)
        if replica is not None:
            replica.taken_from = peer.server
        return replica is not None

    return [(Covers, "_agrees", agrees)]


@plant("cover", "what a server agreed to is believed of the process that it starts as next")
def restart_unnoticed() -> Sequence[Patch]:
    def begins_anew(self: Peer, instance: Instance, boot: int) -> bool:
        return False

    def on_heartbeat(self: TakenCover, message: Any, now: int, agrees: Any) -> bool:
        unanswered = type(message)(message.epoch, message.number, 0, message.items)
        return original(self, unanswered, now, agrees)

    original = TakenCover.on_heartbeat
    return [(Peer, "begins_anew", begins_anew), (TakenCover, "on_heartbeat", on_heartbeat)]


@plant("cover", "an answer that is late counts as one to the newest heartbeat")
def late_answer() -> Sequence[Patch]:
    original = GivenCover.on_reply

    def on_reply(self: GivenCover, reply: SharedHeartbeatReply) -> CoverAnswer | None:
        return original(self, SharedHeartbeatReply(reply.epoch, self._number, reply.lost))

    return [(GivenCover, "on_reply", on_reply)]


@plant("D-7", "a group is offered with the leader's commit, whatever the follower matches")
def commit_above_match() -> Sequence[Patch]:
    original = Covers.all_agree

    def all_agree(self: Covers, replica: HostedReplica) -> bool:
        raft = replica.raft
        for server in raft.matches:
            self._state.peer(server).given.offer(replica.group, raft.term, raft.commit_index)
        return original(self, replica)

    return [(Covers, "all_agree", all_agree)]


@plant("D-7", "an answered shared heartbeat counts as an acknowledgement of all entries")
def answer_acknowledges() -> Sequence[Patch]:
    original = Raft.note_contacts

    def note_contacts(self: Raft, contacts: Mapping[ServerId, int], now: int, *, everybody: bool) -> None:
        original(self, contacts, now, everybody=everybody)
        for server in contacts:
            progress = self._replication.followers.get(server)
            if progress is not None:
                progress.accepted(self.log.last_index, self.now)

    return [(Raft, "note_contacts", note_contacts)]


@plant("6.4", "an answered shared heartbeat confirms the rounds of all its groups")
def answer_confirms_rounds() -> Sequence[Patch]:
    original = Raft.note_contacts

    def note_contacts(self: Raft, contacts: Mapping[ServerId, int], now: int, *, everybody: bool) -> None:
        original(self, contacts, now, everybody=everybody)
        for server in contacts:
            progress = self._replication.followers.get(server)
            if progress is not None:
                progress.round = self.round
        if contacts:
            self._confirm_rounds()

    return [(Raft, "note_contacts", note_contacts)]


@plant("D-7", "writes that wait while a frame is written count with that frame")
def waiting_counts() -> Sequence[Patch]:
    original = LogFrame.durable

    def durable(self: LogFrame) -> Durable:
        found = original(self)
        return Durable({**found.numbers, **self._numbers}, found.forgotten, found.roster)

    return [(LogFrame, "durable", durable)]


@plant("D-18", "any disk founds a group that its server was named in")
def any_disk_founds() -> Sequence[Patch]:
    def membership_for(self: GroupDescription, server: ServerId, instance: Instance) -> Membership:
        disks = {**self.founders, server: instance} if server in self.founders else self.founders
        return Membership({one: Member(disk) for one, disk in disks.items()})

    def has_voter(self: Membership, server: ServerId, instance: Instance) -> bool:
        return server in self.electorate

    def has(self: Membership, server: ServerId, instance: Instance) -> bool:
        return server in self.members

    return [
        (GroupDescription, "membership_for", membership_for),
        (Membership, "has_voter", has_voter),
        (Membership, "has", has),
    ]


@plant("D-13", "the log is let go of before the snapshot that covers it is durable")
def compacts_early() -> Sequence[Patch]:
    original = Keeping.keep_log_short

    def keep_log_short(self: Keeping) -> None:
        original(self)
        state = self._state
        for task in state.effects.snapshots:
            replica = state.groups[task.group]
            state.touch(replica)
            replica.raft.compact(task.meta.index)
            state.effects.compactions.append((task.group, task.meta.index))

    return [(Keeping, "keep_log_short", keep_log_short)]


@plant("cost", "groups that rest are looked at all the same")
def never_asleep() -> Sequence[Patch]:
    original = GroupHost._settle

    def settle(self: GroupHost, replica: HostedReplica) -> None:
        original(self, replica)
        if replica.asleep:
            self._state.timers.set(replica.group, self._state.now + self.settings.raft.heartbeat_ticks)

    return [(GroupHost, "_settle", settle)]


@plant("cost", "leaders beat for each group although shared heartbeats do")
def own_heartbeats_too() -> Sequence[Patch]:
    def all_agree(self: Covers, replica: HostedReplica) -> bool:
        original(self, replica)
        return False

    original_note = Raft.note_contacts

    def note_contacts(self: Raft, contacts: Mapping[ServerId, int], now: int, *, everybody: bool) -> None:
        original_note(self, contacts, now, everybody=False)

    original = Covers.all_agree
    return [(Covers, "all_agree", all_agree), (Raft, "note_contacts", note_contacts)]
