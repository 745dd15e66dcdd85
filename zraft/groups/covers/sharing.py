"""The shared heartbeats of a server: how its host says and hears that leaders live, for all groups at once. Pure.

docs/explanation/groups.md argues what may be said and counted. Methods that take a decision are small, so that tests can
plant a bug by overriding one.
"""

from __future__ import annotations

from typing import Final

from zraft.groups.covers.peer import Peer
from zraft.groups.hosting import HostState
from zraft.groups.replica import HostedReplica
from zraft.raft.membership.quorum import majority
from zraft.raft.role import Role
from zraft.raft.rounds import JOINED_SHARE
from zraft.raft.settings import NEVER
from zraft.transport.messages import Sender, SharedHeartbeat, SharedHeartbeatReply
from zraft_core.ids import GroupId, ServerId

IDLE_BEATS_PER_TIMEOUT: Final = 4
"""How many shared heartbeats leave in an election timeout while all groups sleep.

An answer waits for the next heartbeat, so a contact may be two intervals old, which must not pass for silence
(`Peer.silent_at`).
"""


class Covers:
    """The shared heartbeats between this server and all others.

    Nothing is looked at in a turn in which nothing was said or heard and nothing is due. Whatever changes
    when something is due sets `stirred`, and the turn that follows computes it again.

    Attributes:
        stirred: whether something happened since `speak`, so that `due_at` does not hold.
        due_at: tick at which the next heartbeat is to be sent, or the silence of a server counts.
    """

    __slots__ = ("_state", "due_at", "stirred")

    def __init__(self, state: HostState) -> None:
        self._state = state
        self.stirred = False
        self.due_at: float = NEVER

    @property
    def interval(self) -> int:
        """The ticks between two shared heartbeats to a server: more while all groups here are asleep."""
        raft = self._state.settings.raft
        if self._state.timers.due:
            return raft.heartbeat_ticks
        return max(raft.heartbeat_ticks, raft.election_timeout_ticks // IDLE_BEATS_PER_TIMEOUT)

    @property
    def early_ticks(self) -> int:
        """The ticks by which a shared heartbeat may leave early, if others are sent at that moment anyway."""
        return self.interval // 2

    # -- what other servers say

    def meet(self, peer: Peer, sender: Sender) -> bool:
        """Take note that another process speaks than the one known; return False if it is an earlier one, to be ignored."""
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
        """Take a heartbeat of another server, and see to its answer.

        Args:
            ahead: how many ticks after the last turn it came.
        """
        taken = peer.taken
        if taken.is_late(message):
            return
        state = self._state
        # A group that leaves the cover by this message was led until the one before, which its timer has to know.
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
        """Return whether the answer can wait: it says nothing new, and a heartbeat to that server is to come."""
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
        """Leave the cover of the server that this one followed, which has to know before it counts on this one again."""
        if replica.taken_from is not None:
            self._state.peer(replica.taken_from).taken.lose(replica.group)
            replica.taken_from = None

    def on_reply(self, peer: Peer, reply: SharedHeartbeatReply) -> None:
        """Take an answer of another server: for which groups it counts from now on, and for which no longer."""
        state = self._state
        # The contacts that counted until now are credited before they cease to count.
        if reply.lost or not reply.epoch:
            state.touch_all(reply.lost if reply.epoch else peer.led)
        answer = peer.given.on_reply(reply)
        if answer is None:
            return
        if answer.agreed:
            state.touch_all(answer.agreed)
        # An answer that only confirms what was said makes nothing due earlier.
        self.stirred = self.stirred or peer.silent or answer.began_anew or bool(answer.lost)
        if peer.silent and not answer.began_anew:
            peer.silent = False
            peer.steady_since = state.now
            for group, replica in peer.led.items():
                raft = replica.raft
                if not peer.given.agrees(group, raft.term, raft.log.last_index):
                    state.touch(replica)

    def watch(self) -> None:
        """Notice which servers have fallen silent or unheard, and touch the groups that counted on them, once."""
        state = self._state
        for server in state.peers:
            peer = state.peers[server]
            if not peer.silent and state.now >= peer.silent_at:
                peer.silent = True
                state.touch_all(peer.led)
            if not peer.unheard and state.now >= peer.unheard_at:
                peer.unheard = True
                state.touch_all(peer.taken.groups)

    def lose_peer(self, server: ServerId) -> None:
        """Take note that the connection to that server's process has ended.

        The groups that follow there mind their own timers from now on, until its heartbeats come again.
        """
        peer = self._state.peers.get(server)
        if peer is not None and not peer.unheard:
            peer.unheard = self.stirred = True
            self._state.touch_all(peer.taken.groups)

    def contact(self, replica: HostedReplica, server: ServerId) -> int:
        """Return the tick of the host of a follower's last contact by shared heartbeats that counts for this leadership.

        It is -1 if there is none.
        """
        raft, peer = replica.raft, self._state.peers.get(server)
        if peer is None or not raft.membership.has(server, peer.instance):
            return -1
        tick = peer.given.contact_of(replica.group, raft.term)
        return -1 if tick is None else tick

    # -- what is said to them

    def speak(self, *, joining: bool) -> None:
        """Send what is said for all groups at once: answers to shared heartbeats, and the next heartbeats.

        What is due soon goes with what is said now, so that two servers which lead groups of each other, and
        a server that speaks to many, wake each other once and not at different moments. An answer that says
        nothing new waits for the next heartbeat to that server, if there will be one.

        Args:
            joining: whether this turn sends datagrams to the other servers anyway.
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
        interval = self.interval
        # A server that was made to send early lets the same one begin the next time.
        follows = state.now < peer.beat_at
        peer.beat_at = state.now + interval + (interval // JOINED_SHARE if follows else 0)
        state.effects.spoke = True
        if peer.given.overflows:
            state.touch_all(peer.led)
            peer.given.begin_anew()
        state.send(peer.server, peer.given.heartbeat(state.now))

    def show(self, replica: HostedReplica) -> bool:
        """Bring the covers into line with what the group has become, before anything is said of them.

        Returns:
            Whether its leader, or the servers that this concerns, have changed.
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
        """Take a group that is gone from this server out of all covers."""
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
        """Offer the group to every follower that has caught up.

        Returns:
            Whether all followers in reach have agreed to it, and with this server are a majority.
        """
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
        """Return up to where a follower may consider its log committed: no further than it is known to agree (D-7)."""
        return min(replica.raft.commit_index, match)
