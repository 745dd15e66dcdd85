"""How a host says and hears that leaders live, for all groups between two servers at once. Pure.

What may be said and counted is argued in docs/GROUPS.md; methods that take a decision are small, so that tests can plant a
bug by overriding one.
"""

from __future__ import annotations

from zraft.groups.covers.peer import Peer
from zraft.groups.hosting import HostState
from zraft.groups.replica import Replica
from zraft.raft.membership.quorum import majority
from zraft.raft.role import Role
from zraft.transport.messages import SharedHeartbeat, SharedHeartbeatReply
from zraft_core.ids import GroupId


class Sharing(HostState):
    """Shared heartbeats. Part of `zraft.groups.host.GroupHost`."""

    # -- what other servers say

    def _on_heartbeat(self, peer: Peer, message: SharedHeartbeat) -> None:
        if peer.taken.is_late(message):
            return
        # Who leaves the cover by this message was led until the one before.
        if message.epoch != peer.taken.epoch:
            self._touch_all(peer.taken.groups)
        self._touch_all([group for group, _, _ in message.items])

        def agrees(group: GroupId, term: int, index: int) -> bool:
            return self._agrees(peer, group, term, index)

        peer.taken.on_heartbeat(message, self.now, agrees)
        if peer.unheard and len(peer.taken):
            peer.unheard = False
            self._touch_all(peer.taken.groups)

    def _agrees(self, peer: Peer, group: GroupId, term: int, index: int) -> bool:
        replica = self.groups.get(group)
        if replica is None:
            return False
        raft = replica.raft
        if not raft.knows(peer.server, peer.instance) or not raft.agrees(peer.server, term, index):
            return False
        if replica.taken_from not in (None, peer.server):
            self._lose(replica)
        replica.taken_from = peer.server
        return True

    def _lose(self, replica: Replica) -> None:
        """It follows whom it followed no more: that server has to know before it counts on it again."""
        if replica.taken_from is not None:
            self._peer(replica.taken_from).taken.lose(replica.group)
            replica.taken_from = None

    def _on_reply(self, peer: Peer, reply: SharedHeartbeatReply) -> None:
        # What counted until now is credited before it ends to count.
        self._touch_all(reply.lost if reply.epoch else peer.led)
        answer = peer.given.on_reply(reply)
        if answer is None:
            return
        self._touch_all(answer.agreed)
        if peer.silent and not answer.began_anew:
            peer.silent = False
            peer.steady_since = self.now
            for group, replica in peer.led.items():
                raft = replica.raft
                if not peer.given.agrees(group, raft.term, raft.log.last_index):
                    self._touch(replica)

    def _watch(self, peer: Peer) -> None:
        """Silence of a server concerns all groups that counted on it, once."""
        if not peer.silent and self.now >= peer.silent_at:
            peer.silent = True
            self._touch_all(peer.led)
        if not peer.unheard and self.now >= peer.unheard_at:
            peer.unheard = True
            self._touch_all(peer.taken.groups)

    # -- what is said to them

    def _speak(self, peer: Peer) -> None:
        """What is said for all groups at once: the answer to a shared heartbeat, and the next one."""
        if peer.taken.answer_due:
            if peer.taken.overflows:
                self._touch_all(peer.taken.groups)
                peer.taken.give_up()
            self._send(peer.server, peer.taken.answer())
        if peer.has_to_beat and self.now >= peer.beat_at:
            peer.beat_at = self.now + self.settings.raft.heartbeat_ticks
            if peer.given.overflows:
                self._touch_all(peer.led)
                peer.given.begin_anew()
            self._send(peer.server, peer.given.heartbeat(self.now))

    def _show(self, replica: Replica) -> None:
        """Bring the covers in line with what the group has become, before anything is said of them."""
        raft, group = replica.raft, replica.group
        if replica.taken_from is not None and not self._still_follows(replica):
            self._lose(replica)
        leads = raft.role is Role.LEADER
        followers = raft.matches if leads else {}
        shown = (raft.term if leads else 0, raft.members_changed_index, len(followers))
        if shown == replica.shown:
            return
        same_term = shown[0] == replica.shown[0]
        replica.shown = shown
        replica.placed = False
        for server in followers:
            self._peer(server)
        for server, peer in self.peers.items():
            if not same_term or server not in followers:
                peer.given.withdraw(group)
            if server in followers:
                peer.led[group] = replica
            else:
                peer.led.pop(group, None)
        if not leads:
            self._moves.discard(group)

    def _still_follows(self, replica: Replica) -> bool:
        server = replica.taken_from
        assert server is not None
        term = self._peer(server).taken.term_of(replica.group)
        return term is not None and replica.raft.follows(server, term)

    def _all_agree(self, replica: Replica) -> bool:
        """Offer the group to every follower that has caught up; True if all in reach have agreed, and a majority."""
        raft, group = replica.raft, replica.group
        term, index, voters = raft.term, raft.log.last_index, raft.membership.voters
        agreed, complete = 1, True
        for server, match in raft.matches.items():
            peer = self._peer(server)
            if match == index and raft.membership.has(server, peer.instance):
                if peer.given.agrees(group, term, index):
                    agreed += server in voters and not peer.silent
                    continue
                peer.given.offer(group, term, self._offered_index(replica, match))
            if not peer.silent:
                complete = False
        return complete and agreed >= majority(len(voters))

    def _offered_index(self, replica: Replica, match: int) -> int:
        """What a follower may take for committed: no further than its log is known to agree (D-7)."""
        return min(replica.raft.commit_index, match)
