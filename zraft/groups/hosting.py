"""What the layers of a host of groups share: its groups, the other servers, and what a turn has touched so far. Pure.

Not for use of its own: see `zraft.groups.host`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from zraft.groups.covers.peer import Peer
from zraft.groups.effects import GroupEffects, GroupMessage
from zraft.groups.frame import LogFrame
from zraft.groups.leadership import Moves
from zraft.groups.replica import Replica
from zraft.groups.retention import Retention
from zraft.groups.settings import GroupSettings
from zraft.groups.timers import Timers
from zraft.raft.membership.quorum import majority
from zraft.raft.role import Role
from zraft_core.ids import GroupId, Instance, ServerId

MISTAKES_KEPT_MAX: Final = 16
"""Messages that no correct peer sends, remembered for the log; all are counted."""


class HostState:
    """See `zraft.groups.host.GroupHost` for arguments, errors and public attributes."""

    def __init__(
        self,
        *,
        server: ServerId,
        instance: Instance,
        boot: int,
        settings: GroupSettings,
        rng: random.Random,
        retention: Retention | None = None,
        frame: LogFrame | None = None,
    ) -> None:
        settings.validate()
        self.server = server
        self.instance = instance
        self.boot = boot
        self.settings = settings
        self.now = 0
        self.groups: dict[GroupId, Replica] = {}
        self.mistakes: deque[tuple[ServerId, str]] = deque(maxlen=MISTAKES_KEPT_MAX)
        self.peers: dict[ServerId, Peer] = {}
        self._rng = rng
        self._vouched: dict[ServerId, Instance] = {}
        self._touched: dict[GroupId, Replica] = {}
        self._timers = Timers()
        self.frame = frame if frame is not None else LogFrame()
        self._retention = retention if retention is not None else Retention(settings)
        self._moves = Moves(settings)
        self._effects = GroupEffects()
        self._held = False
        self._turns = self._touches = self._mistakes = self._strangers = self._snapshots = 0
        self._entries = self._commands = 0

    def _peer(self, server: ServerId) -> Peer:
        peer = self.peers.get(server)
        if peer is None:
            peer = self.peers[server] = Peer(server, self.boot, self.settings)
        return peer

    def _send(self, to: ServerId, message: GroupMessage) -> None:
        self._effects.sends.setdefault(to, []).append(message)

    # -- bringing a group up to date

    def _touch(self, replica: Replica) -> None:
        """Something happens to it: its clock stands at the present tick, and what others vouched for it counts."""
        self._touched[replica.group] = replica
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

    def _touch_all(self, groups: Sequence[GroupId] | Mapping[GroupId, Replica]) -> None:
        for group in tuple(groups):
            replica = self.groups.get(group)
            if replica is not None:
                self._touch(replica)

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
