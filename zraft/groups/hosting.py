"""What the parts of a host of groups share: its groups, the other servers, and what a turn has touched so far. Pure.

Not for use of its own: see `zraft.groups.host`.
"""

from __future__ import annotations

from collections.abc import Iterable

from zraft.groups.covers.peer import Peer
from zraft.groups.effects import GroupEffects, GroupMessage
from zraft.groups.replica import Replica
from zraft.groups.settings import GroupSettings
from zraft.raft.membership.quorum import majority
from zraft.raft.role import Role
from zraft_core.ids import GroupId, Instance, ServerId


class HostState:
    """The state of one `GroupHost` that more than one of its parts reads or changes.

    Attributes:
        server, instance, boot: who this is (D-1).
        settings: every bound.
        now: ticks of 1 ms that the turns were told, in which this process ran.
        groups, peers: the replicas of this server, and the other servers.
        touched: groups that the next turn, or the rest of this one, looks at.
        effects: what the next turn, or this one, asks the owner to do.
    """

    __slots__ = ("boot", "effects", "groups", "instance", "now", "peers", "server", "settings", "touched")

    def __init__(self, server: ServerId, instance: Instance, boot: int, settings: GroupSettings) -> None:
        self.server = server
        self.instance = instance
        self.boot = boot
        self.settings = settings
        self.now = 0
        self.groups: dict[GroupId, Replica] = {}
        self.peers: dict[ServerId, Peer] = {}
        self.touched: dict[GroupId, Replica] = {}
        self.effects = GroupEffects()

    def peer(self, server: ServerId) -> Peer:
        """Another server, which may not have spoken yet."""
        peer = self.peers.get(server)
        if peer is None:
            peer = self.peers[server] = Peer(server, self.boot, self.settings)
        return peer

    def send(self, to: ServerId, message: GroupMessage) -> None:
        """Send it with everything else that this turn has for that server."""
        self.effects.sends.setdefault(to, []).append(message)

    # -- bringing a group up to date

    def touch(self, replica: Replica) -> None:
        """Something happens to it: its clock stands at the present tick, and what others vouched for it counts."""
        self.touched[replica.group] = replica
        raft = replica.raft
        now = self.now - replica.born
        if raft.now == now:
            return
        if raft.role is Role.LEADER:
            self._credit_leader(replica, now)
        elif raft.leader is not None:
            peer = self.peers.get(raft.leader)
            if peer is not None and peer.taken.term_of(replica.group) == raft.term:
                raft.note_leader_heard(peer.taken.heard_at - replica.born)
        raft.tick(now - raft.now)

    def touch_all(self, groups: Iterable[GroupId]) -> None:
        """The same for each of these that is here."""
        for group in tuple(groups):
            replica = self.groups.get(group)
            if replica is not None:
                self.touch(replica)

    def _credit_leader(self, replica: Replica, now: int) -> None:
        raft, contacts, reached, everybody = replica.raft, dict[ServerId, int](), 1, True
        voters = raft.membership.voters
        for server in raft.matches:
            peer = self.peers.get(server)
            tick = None
            if peer is not None and raft.membership.has(server, peer.instance):
                tick = peer.given.contact_of(replica.group, raft.term)
            if tick is not None:
                contacts[server] = max(0, tick - replica.born)
                reached += server in voters
            elif peer is None or not peer.silent:
                everybody = False
        everybody = everybody and reached >= majority(len(voters)) and not raft.membership.joint
        raft.note_contacts(contacts, now, everybody=everybody)
