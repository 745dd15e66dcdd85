"""How a host says and hears that leaders live, for all groups between two servers at once. Pure.

What may be said and counted is argued in docs/GROUPS.md; methods that take a decision are small, so that tests can plant a
bug by overriding one.
"""

from __future__ import annotations

from typing import Final

from zraft.groups.covers.peer import Peer
from zraft.groups.hosting import HostState
from zraft.groups.replica import HostedReplica
from zraft.groups.timers import NEVER
from zraft.raft.membership.quorum import majority
from zraft.raft.role import Role
from zraft.transport.messages import Sender, SharedHeartbeat, SharedHeartbeatReply
from zraft_core.ids import GroupId

FOLLOWS_SHARE: Final = 5
"""By this part of the interval a server waits longer for the one whose heartbeat brought it to send its own."""


class Covers:
    """The shared heartbeats between this server and all others.

    Nothing is looked at in a turn in which nothing was said or heard and nothing is due. Whatever changes when
    something is due sets `stirred`, and the turn that follows works it out anew.

    Attributes:
        stirred: something happened since `speak`, so that `due_at` does not hold.
        due_at: tick at which the next one is to be sent, or the silence of a server counts.
        early_ticks: by so much a shared heartbeat leaves earlier with what is said at a moment anyway.
    """

    __slots__ = ("_state", "due_at", "early_ticks", "stirred")

    def __init__(self, state: HostState) -> None:
        self._state = state
        self.early_ticks = state.settings.raft.heartbeat_ticks // 2
        self.stirred = False
        self.due_at: float = NEVER

    # -- what other servers say

    def meet(self, peer: Peer, sender: Sender) -> bool:
        """Another process speaks than the one known; False if it is an earlier one, which counts for nothing."""
        if peer.is_late(sender.instance, sender.boot):
            return False
        if peer.begins_anew(sender.instance, sender.boot):
            self.stirred = True
            self._state.touch_all(peer.led)
            self._state.touch_all(peer.taken.groups)
            peer.restart()
        peer.run = (sender.instance, sender.boot)
        return True

    def on_heartbeat(self, peer: Peer, message: SharedHeartbeat, ahead: int) -> None:
        """Take one: what it says of groups, and that it will be answered. It came `ahead` ticks after the last turn."""
        taken = peer.taken
        if taken.is_late(message):
            return
        state = self._state
        # Who leaves the cover by this message was led until the one before.
        if message.epoch != taken.epoch:
            state.touch_all(taken.groups)
        if message.items:
            state.touch_all([group for group, _, _ in message.items])

        def agrees(group: GroupId, term: int, index: int) -> bool:
            return self._agrees(peer, group, term, index)

        taken.on_heartbeat(message, state.now, agrees)
        if peer.unheard and len(taken):
            peer.unheard = False
            state.touch_all(taken.groups)
        if peer.unheard or not self._may_wait(peer, state.now + ahead):
            self.stirred = state.stirred = True

    def _may_wait(self, peer: Peer, now: int) -> bool:
        """Is there a heartbeat to come that the answer to this one can go with, because it says nothing new?"""
        return not peer.taken.has_news and peer.has_to_beat and peer.beat_at > now + self.early_ticks

    def _agrees(self, peer: Peer, group: GroupId, term: int, index: int) -> bool:
        replica = self._state.groups.get(group)
        if replica is None or not replica.covered:
            return False
        raft = replica.raft
        if not raft.knows(peer.server, peer.instance) or not raft.agrees(peer.server, term, index):
            return False
        if replica.taken_from not in (None, peer.server):
            self._lose(replica)
        replica.taken_from = peer.server
        return True

    def _lose(self, replica: HostedReplica) -> None:
        """It follows whom it followed no more: that server has to know before it counts on it again."""
        if replica.taken_from is not None:
            self._state.peer(replica.taken_from).taken.lose(replica.group)
            replica.taken_from = None

    def on_reply(self, peer: Peer, reply: SharedHeartbeatReply) -> None:
        """Take an answer: which groups it counts for from now on, and which it ends to count for."""
        state = self._state
        # What counted until now is credited before it ends to count.
        if reply.lost or not reply.epoch:
            state.touch_all(reply.lost if reply.epoch else peer.led)
        answer = peer.given.on_reply(reply)
        if answer is None:
            return
        if answer.agreed:
            state.touch_all(answer.agreed)
        # What was told before and is answered is due no earlier than it was.
        self.stirred = self.stirred or peer.silent or answer.began_anew or bool(answer.lost)
        if peer.silent and not answer.began_anew:
            peer.silent = False
            peer.steady_since = state.now
            for group, replica in peer.led.items():
                raft = replica.raft
                if not peer.given.agrees(group, raft.term, raft.log.last_index):
                    state.touch(replica)

    def watch(self) -> None:
        """Silence of a server concerns all groups that counted on it, once."""
        state = self._state
        for server in state.peers:
            peer = state.peers[server]
            if not peer.silent and state.now >= peer.silent_at:
                peer.silent = True
                state.touch_all(peer.led)
            if not peer.unheard and state.now >= peer.unheard_at:
                peer.unheard = True
                state.touch_all(peer.taken.groups)

    # -- what is said to them

    def speak(self, *, joining: bool) -> None:
        """What is said for all groups at once: answers to shared heartbeats, and the next ones.

        `joining`: the other servers get datagrams of this turn anyway.

        What is due soon goes with what is said now, so that two servers which lead groups of each other, and a server
        that speaks to many, wake each other once and not at different moments. An answer that says nothing new waits for
        the next heartbeat to that server, if there will be one.
        """
        peers, now, due = self._state.peers, self._state.now, NEVER
        soon = now + self.early_ticks
        for server in peers:
            peer = peers[server]
            if peer.taken.answer_due and not self._may_wait(peer, now):
                joining = True
                if peer.taken.has_news or not peer.has_to_beat:
                    self._answer(peer)
            elif now >= peer.beat_at and peer.has_to_beat:
                joining = True
        for server in peers:
            peer = peers[server]
            if peer.has_to_beat and (soon if joining else now) >= peer.beat_at:
                if peer.taken.answer_due:
                    self._answer(peer)
                self._beat(peer)
            peer_due = peer.due_at
            if peer_due < due:
                due = peer_due
        self.due_at = due
        self.stirred = False

    def _answer(self, peer: Peer) -> None:
        if peer.taken.overflows:
            self._state.touch_all(peer.taken.groups)
            peer.taken.give_up()
        self._state.send(peer.server, peer.taken.answer())

    def _beat(self, peer: Peer) -> None:
        state = self._state
        interval = state.settings.raft.heartbeat_ticks
        # Who was brought to speak lets the other one begin the next time, too.
        follows = state.now < peer.beat_at
        peer.beat_at = state.now + interval + (interval // FOLLOWS_SHARE if follows else 0)
        if peer.given.overflows:
            state.touch_all(peer.led)
            peer.given.begin_anew()
        state.send(peer.server, peer.given.heartbeat(state.now))

    def show(self, replica: HostedReplica) -> bool:
        """Bring the covers in line with what the group has become, before anything is said of them.

        True if who leads it, or whom that concerns, has changed.
        """
        raft, group, state = replica.raft, replica.group, self._state
        if replica.taken_from is not None and not self._still_follows(replica):
            self._lose(replica)
        leads = raft.role is Role.LEADER
        followers = raft.matches if leads else {}
        shown = (raft.term if leads else 0, raft.members_changed_index, len(followers))
        if shown == replica.shown:
            return False
        same_term = shown[0] == replica.shown[0]
        replica.shown = shown
        if not replica.covered:
            return True
        self.stirred = True
        for server in followers:
            state.peer(server)
        for server, peer in state.peers.items():
            if not same_term or server not in followers:
                peer.given.withdraw(group)
            if server in followers:
                peer.led[group] = replica
            else:
                peer.led.pop(group, None)
        return True

    def forget(self, group: GroupId) -> None:
        """The group is gone from this server."""
        self.stirred = True
        for peer in self._state.peers.values():
            peer.led.pop(group, None)
            peer.given.withdraw(group)
            peer.taken.lose(group)

    def _still_follows(self, replica: HostedReplica) -> bool:
        server = replica.taken_from
        assert server is not None
        term = self._state.peer(server).taken.term_of(replica.group)
        return term is not None and replica.raft.follows(server, term)

    def all_agree(self, replica: HostedReplica) -> bool:
        """Offer the group to every follower that has caught up; True if all in reach have agreed, and a majority."""
        raft, group = replica.raft, replica.group
        term, index, voters = raft.term, raft.log.last_index, raft.membership.voters
        agreed, complete = 1, True
        for server, match in raft.matches.items():
            peer = self._state.peer(server)
            if match == index and raft.membership.has(server, peer.instance):
                if peer.given.agrees(group, term, index):
                    agreed += server in voters and not peer.silent
                    continue
                peer.given.offer(group, term, self._offered_index(replica, match))
            if not peer.silent:
                complete = False
        return complete and agreed >= majority(len(voters))

    def _offered_index(self, replica: HostedReplica, match: int) -> int:
        """What a follower may take for committed: no further than its log is known to agree (D-7)."""
        return min(replica.raft.commit_index, match)
