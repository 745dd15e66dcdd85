"""Planted bugs of consensus: what waits for the disk, who may lead, what is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation.planted_registry import Patch, plant, replaced
from tests.simulation.profile import Mode
from zraft.raft import following as following_module
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import (
    AppendEntries,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
)
from zraft.server.coordination.joining import Joining
from zraft.transport.messages import Welcome
from zraft_core.ids import ServerId


def _send_at_once(self: Raft, to: ServerId, message: Any) -> None:
    self._outbox.messages.append((to, message))


@plant("D-7", "the vote is forgotten on a restart, the term is not", Mode.VOTES)
def vote_forgotten() -> Sequence[Patch]:
    def recover(self: Raft, hard_state: HardState) -> None:
        self.term = hard_state.term
        self._voted_for = None

    return [(Raft, "_recover_hard_state", recover)]


@plant("D-7", "a candidate asks for votes and counts its own before its fsync", Mode.VOTES)
def own_vote_early() -> Sequence[Patch]:
    original = Raft._campaign

    def campaign(self: Raft) -> None:
        with replaced((Raft, "_send_with_hard_state", _send_at_once)):
            original(self)
        self._election.votes[self.server] = True

    return [(Raft, "_campaign", campaign)]


@plant("D-7", "votes, vote requests and replies leave before the fsync they depend on", Mode.VOTES)
def vote_before_fsync() -> Sequence[Patch]:
    return [(Raft, "_send_with_hard_state", _send_at_once)]


@plant("D-7", "entries are acknowledged before their fsync")
def ack_before_fsync() -> Sequence[Patch]:
    original = Raft._acknowledge

    def acknowledge(self: Raft) -> None:
        writes = self._writes
        log_write, writes.log_write = writes.log_write, 0
        original(self)
        writes.log_write = log_write

    return [(Raft, "_acknowledge", acknowledge)]


@plant("D-7", "the leader counts itself before its fsync")
def leader_counts_early() -> Sequence[Patch]:
    return [(Raft, "_own_match_index", lambda self: self.log.last_index)]


@plant("D-7", "heartbeats carry the leader's commit, whatever the follower matches")
def heartbeat_commit() -> Sequence[Patch]:
    return [(Raft, "_heartbeat_commit", lambda self, progress: self.commit_index)]


@plant("Raft 5.4.2", "entries of an older term are committed by counting", Mode.VOTES)
def commit_older_term() -> Sequence[Patch]:
    return [(Raft, "_may_count", lambda self, index: True)]


@plant("Raft 5.3", "a late append truncates what follows its entries", Mode.BOOTS)
def stale_append_truncates() -> Sequence[Patch]:
    def new_entries(log: Log, message: AppendEntries) -> tuple[Entry, ...]:
        return message.entries

    return [(following_module, "new_entries", new_entries)]


@plant("Raft 5.4.1", "a vote is given to a candidate whose log is behind", Mode.VOTES)
def vote_for_shorter_log() -> Sequence[Patch]:
    return [(Raft, "_log_is_current", lambda self, index, term: True)]


@plant(
    "6.4",
    "a late heartbeat of an older term answers a round of the present one (found by seed 0)",
    Mode.BOOTS,
)
def stale_round() -> Sequence[Patch]:
    original = Raft._on_heartbeat

    def on_heartbeat(self: Raft, sender: ServerId, message: Heartbeat) -> None:
        if message.term < self.term and message.round:
            reply = HeartbeatReply(self.group, self.term, message.round, self.log.last_index)
            self._send_with_hard_state(sender, reply)
        else:
            original(self, sender, message)

    return [(Raft, "_on_heartbeat", on_heartbeat)]


@plant("D-1", "a wiped disk is welcomed as the voter that its predecessor was", Mode.WIPES)
def wiped_voter() -> Sequence[Patch]:
    original = Joining.on_welcome

    def on_welcome(self: Joining, welcome: Welcome) -> Membership | None:
        membership = Membership.decode(welcome.membership)
        if self.membership is None and self._server in membership.members:
            self.membership = membership
            self.problem = None
            return membership
        return original(self, welcome)

    def has(self: Membership, server: ServerId, instance: bytes) -> bool:
        return server in self.members

    def has_voter(self: Membership, server: ServerId, instance: bytes) -> bool:
        return server in self.electorate

    return [
        (Joining, "on_welcome", on_welcome),
        (Membership, "has", has),
        (Membership, "has_voter", has_voter),
    ]
