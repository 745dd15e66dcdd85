"""Changes by a leader of who belongs to the group, and who leads it (dissertation, sections 3.10, 4.1 to 4.3).

One change at a time: its entry counts from when it is in the log, a joint one is followed by the final one as
soon as it is committed, by whoever leads then. A leader that the final one leaves out leads until that is
committed, and then hands over.
"""

from __future__ import annotations

from collections.abc import Mapping

from zraft.raft.handover import Handover
from zraft.raft.leading import Leading
from zraft.raft.membership.change import next_membership
from zraft.raft.membership.value import Membership
from zraft.raft.messages import EntryKind, Member, TimeoutNow
from zraft.raft.role import Role
from zraft_core.ids import ServerId


class Changing(Leading):
    """Leaders, and what they change. Part of `zraft.raft.core.Raft`."""

    def change_membership(self, target: Mapping[ServerId, Member]) -> int | None:
        """Begin a change to exactly these members; who leads then finishes it.

        Whether a learner has caught up enough to vote is the caller's judgement.

        Returns:
            Index of the entry that begins it (if nothing changes, of the newest one). None if this server does
            not lead, has not committed an entry of its own term, hands over, or a change is under way.

        Raises:
            ConfigError: the change is not safe, or leaves nobody to decide; nothing was changed.
        """
        if not self._may_change():
            return None
        change = next_membership(self.membership, target)
        if change == self.membership:
            return self.members_changed_index
        return self._append_membership(change)

    def _may_change(self) -> bool:
        """Return whether a change may begin: one at a time, and none before an entry of the own term is committed.

        Else two leaders may commit configurations whose majorities do not overlap (the bug of 2015).
        """
        return (
            self.role is Role.LEADER
            and self.handover is None
            and self._is_voter
            and self._has_committed_own()
            and self.membership_committed
            and not self.membership.joint
        )

    def transfer_leadership(self, target: ServerId) -> bool:
        """Hand over to `target`: proposals are refused until it leads or an election timeout has passed.

        Returns:
            False if this server does not lead, hands over to another one, or `target` is another than a
            voter of the configuration that holds in the end.
        """
        if self.handover is not None:
            return self.handover.target == target
        if self.role is not Role.LEADER or not self._may_lead_next(target):
            return False
        self.handover = Handover(target, self.now + self.settings.election_timeout_ticks)
        return True

    @property
    def transferring(self) -> bool:
        """True while this leader hands its leadership over."""
        return self.handover is not None

    # -- membership

    def _append_membership(self, membership: Membership) -> int:
        before = self.membership
        index = self._append_own(EntryKind.MEMBERSHIP, membership.encode(), 0)
        self._adopt_newest_membership()
        for server, member in before.members.items():
            if server == self.server:
                continue
            now = membership.members.get(server)
            if now is None and server in self._replication.followers:
                self._departures.add(server, member.instance, index)
            elif now is not None and now.instance != member.instance:
                # Another disk: what the old one acknowledged is not on it (D-1).
                self._replication.remove(server)
        for server in self._others():
            if server in self._departures:
                if not self._departures.has(server, membership.members[server].instance):
                    self._replication.remove(server)
                self._departures.discard(server)
            if server not in self._replication.followers:
                self._replication.add(server)
        return index

    def _on_commit(self) -> None:
        if self.membership.joint or not self._is_voter:
            self._advance_membership()

    def _has_committed_own(self) -> bool:
        """Return whether an entry of the own term is committed: only then is everything before known to be."""
        return 0 < self.noop_index <= self.commit_index

    def _advance_membership(self) -> None:
        """Follow a committed joint configuration by the final one; a leader that is left out goes."""
        if self.handover is not None or not self._has_committed_own() or not self.membership_committed:
            return
        if self.membership.joint:
            self._append_membership(self.membership.final())
        elif not self._is_voter:
            self._hand_over_to_best()

    def _hand_over_to_best(self) -> None:
        """Hand over to the voter that holds most of the log; step down anyway after an election timeout."""
        target = max(self.membership.voters, key=lambda voter: (self._match_of(voter), -voter))
        self.handover = Handover(target, self.now + self.settings.election_timeout_ticks)

    def _end_departures(self) -> None:
        patience = self.settings.election_timeout_ticks
        for server in self._departures.over(self.commit_index, self.now, patience):
            self._replication.remove(server)

    # -- handing over

    def _may_lead_next(self, target: ServerId) -> bool:
        return (
            target != self.server
            and target in self.membership.voters
            and target in self._replication.followers
        )

    def _continue_handover(self) -> None:
        """Tell the target to campaign, until it does, once it holds the whole log."""
        handover = self.handover
        if handover is not None and self._handover_due():
            handover.told_at = self.now
            self._send_with_hard_state(handover.target, TimeoutNow(self.group, self.term))

    def _handover_due(self) -> bool:
        handover = self.handover
        if handover is None:
            return False
        progress = self._replication.followers.get(handover.target)
        return (
            progress is not None
            and progress.match_index == self.log.last_index
            and handover.is_due(self.now, self.settings.heartbeat_ticks)
        )

    def _tick_handover(self) -> None:
        """Give up a handover that has taken too long: lead on, or leave the group without a successor."""
        handover = self.handover
        if handover is None or self.now < handover.gives_up_at:
            return
        self.handover = None
        if self._is_voter:
            self._advance_membership()
        else:
            self._become_follower(self.term, None)

    def _stop_leading(self) -> None:
        super()._stop_leading()
        self._departures.clear()
        self.handover = None
