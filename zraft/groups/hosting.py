"""The state that the parts of a host of groups share: its groups, the other servers, and what a turn has touched so far.

Pure. Only `zraft.groups.host` and its parts use it.
"""

from __future__ import annotations

from collections.abc import Iterable

from zraft.groups.covers.peer import Peer
from zraft.groups.effects import GroupEffects, GroupMessage
from zraft.groups.replica import HostedReplica
from zraft.groups.settings import GroupSettings
from zraft.groups.timers import Timers
from zraft.raft.membership.quorum import majority
from zraft.raft.role import Role
from zraft_core.ids import GroupId, Instance, ServerId


class HostState:
    """The state of one `GroupHost` that more than one of its parts reads or changes.

    Attributes:
        server, instance, boot: the server, its disk, and the number of this start of it (D-1).
        settings: every bound.
        now: ticks of 1 ms in which this process ran, as the turns were told.
        groups, peers: the replicas of this server, and the other servers.
        touched: groups at which the next turn, or the rest of this one, looks.
        stirred: whether what arrived since the last turn gives a turn something to do now.
        timers: when groups are to be looked at although nothing happens to them.
        effects: what the next turn, or this one, asks the owner to do.
    """

    __slots__ = (
        "boot",
        "effects",
        "groups",
        "instance",
        "now",
        "peers",
        "server",
        "settings",
        "stirred",
        "timers",
        "touched",
    )

    def __init__(self, server: ServerId, instance: Instance, boot: int, settings: GroupSettings) -> None:
        self.server = server
        self.instance = instance
        self.boot = boot
        self.settings = settings
        self.now = 0
        self.groups: dict[GroupId, HostedReplica] = {}
        self.peers: dict[ServerId, Peer] = {}
        self.touched: dict[GroupId, HostedReplica] = {}
        self.stirred = False
        self.timers = Timers()
        self.effects = GroupEffects()

    def peer(self, server: ServerId) -> Peer:
        """Return another server, which may not have spoken yet."""
        peer = self.peers.get(server)
        if peer is None:
            peer = self.peers[server] = Peer(server, self.boot, self.settings)
        return peer

    def send(self, to: ServerId, message: GroupMessage) -> None:
        """Send a message together with everything else that this turn has for that server."""
        sends = self.effects.sends
        if to in sends:
            sends[to].append(message)
        else:
            sends[to] = [message]

    # -- bringing a group up to date

    def stir(self, replica: HostedReplica) -> None:
        """Bring the group's clock to the present tick, because entries of it are proposed, arrive, or became durable.

        The next turn looks at the group, but this asks for no turn. What shared heartbeats said of the group
        is taken into account only when it matters: a leader that is awake, and a follower that is not asleep,
        are told by their alarms.
        """
        self.touched[replica.group] = replica
        raft = replica.raft
        elapsed, due = self.now - replica.born - raft.now, self.timers.due
        if not elapsed:
            return
        if replica.asleep and raft.role is Role.FOLLOWER and raft.leader is not None:
            heard_at = self.peers[raft.leader].taken.heard_at
            if heard_at != replica.heard_at:
                replica.heard_at = heard_at
                raft.note_leader_heard(heard_at - replica.born)
        elif replica.asleep or (replica.group in due and self.now >= due[replica.group]):
            self.touch(replica)
            return
        raft.tick(elapsed)

    def touch(self, replica: HostedReplica) -> None:
        """Bring the group's clock to the present tick, because something beside its entries concerns it, and ask for a turn.

        The next turn looks at all that concerns the group. What shared heartbeats said of it is taken into
        account.
        """
        self.touched[replica.group] = replica
        self.stirred = replica.reconsider = True
        raft = replica.raft
        now = self.now - replica.born
        if raft.now == now:
            return
        if raft.role is Role.LEADER and replica.covered:
            self._credit_leader(replica, now)
        elif raft.leader is not None:
            peer = self.peers.get(raft.leader)
            if peer is not None and peer.taken.term_of(replica.group) == raft.term:
                raft.note_leader_heard(peer.taken.heard_at - replica.born)
        raft.tick(now - raft.now)

    def touch_all(self, groups: Iterable[GroupId]) -> None:
        """Touch each of these groups that is here."""
        for group in tuple(groups):
            replica = self.groups.get(group)
            if replica is not None:
                self.touch(replica)

    def _credit_leader(self, replica: HostedReplica, now: int) -> None:
        raft, contacts, reached, everybody = replica.raft, dict[ServerId, int](), 1, True
        voters = raft.membership.voters
        for server in raft.matches:
            peer = self.peers.get(server)
            tick = None
            if peer is not None and raft.membership.has(server, peer.instance):
                tick = peer.given.contact_of(replica.group, raft.term)
            if tick is not None:
                contacts[server] = tick - replica.born if tick > replica.born else 0
                reached += server in voters
            elif peer is None or not peer.silent:
                everybody = False
        everybody = everybody and reached >= majority(len(voters)) and not raft.membership.joint
        raft.note_contacts(contacts, now, everybody=everybody)
