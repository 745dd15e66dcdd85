"""Placing of groups: a host brings them to the leaders and the members that are wanted for them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from zraft.groups.hosting import HostState
from zraft.groups.leadership import Moves
from zraft.groups.members import Await, next_step, target_of
from zraft.groups.replica import HostedReplica
from zraft.raft.role import Role
from zraft_core.ids import GroupId, Instance, ServerId


class Placing:
    """The leaders and members of the groups of one server.

    Attributes:
        moves: leaderships that are to move to other servers.
    """

    def __init__(self, state: HostState) -> None:
        self._state = state
        self.moves = Moves(state.settings)

    def prefer(self, group: GroupId, server: ServerId | None) -> None:
        """Set which server should lead the group; None if that does not matter."""
        replica = self._state.groups[group]
        if replica.preferred != server:
            replica.preferred = server
            self.moves.discard(group)
        self._state.touch(replica)

    def want_members(self, group: GroupId, wanted: Mapping[ServerId, Instance]) -> None:
        """Set which disks should be the group's voters. A leader makes one safe step after the other until they are."""
        replica = self._state.groups[group]
        if replica.wanted != wanted:
            replica.wanted = dict(wanted)
            replica.placed = False
        if replica.retired and wanted.get(self._state.server) == self._state.instance:
            replica.retired = replica.raft.holds_back = False
        self._state.touch(replica)

    def retire(self, group: GroupId) -> None:
        """Retire the replica of a group that has left this server, for good or for now: others are its committed voters.

        Its vote and its log are kept, because a disk that forgot them must never vote in that group again
        (D-1). It stands for no election, and costs nothing.
        """
        replica = self._state.groups[group]
        replica.retired = replica.raft.holds_back = True
        self._state.touch(replica)

    def transfer(self, group: GroupId, target: ServerId) -> bool:
        """Hand the leadership of the group over to `target`; return False if that cannot be begun."""
        replica = self._state.groups.get(group)
        if replica is None:
            return False
        self._state.touch(replica)
        return replica.raft.transfer_leadership(target)

    def place(self, replica: HostedReplica, *, settled: bool) -> None:
        """Take note whether another server should lead a group that is led here."""
        preferred = replica.preferred
        if preferred is None or preferred == self._state.server:
            return
        if preferred not in replica.raft.membership.voters:
            self.moves.discard(replica.group)
        elif settled and not self._state.peer(preferred).silent:
            self.moves.add(replica.group, self._state.now)

    def begin_move(self, group: GroupId) -> bool:
        """Hand a group over to its preferred server; return False if that one is not ready for it."""
        replica = self._state.groups[group]
        target = replica.preferred
        raft = replica.raft
        if target is None or raft.role is not Role.LEADER:
            return False
        peer = self._state.peer(target)
        steady = self._state.now - peer.steady_since >= self._state.settings.raft.election_timeout_ticks
        if peer.silent or not steady or raft.matches.get(target) != raft.log.last_index:
            return False
        self._state.touch(replica)
        return raft.transfer_leadership(target)

    def _note_placed(self, replica: HostedReplica) -> None:
        """Tell the owner, once in a leadership, that the members are as wanted."""
        raft = replica.raft
        membership = raft.membership
        if replica.placed or membership.joint or not raft.membership_committed:
            return
        voters = {server: membership.members[server].instance for server in membership.voters}
        if voters == replica.wanted:
            replica.placed = True
            self._state.effects.placed.append(replica.group)

    def change_members(self, replica: HostedReplica) -> None:
        """Make the next safe step to the members that are wanted, if there is one."""
        raft = replica.raft
        assert replica.wanted is not None
        step = next_step(raft.membership, replica.wanted, raft.matches, raft.commit_index)
        if step is None:
            self._note_placed(replica)
        if step is None or isinstance(step, Await):
            return
        if raft.change_membership(target_of(step, raft.membership)) is not None:
            self._state.touch(replica)
