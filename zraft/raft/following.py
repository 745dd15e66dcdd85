"""Following: appends, heartbeats, and a snapshot in place of the log (sections 3.5, 5, and D-7)."""

from __future__ import annotations

from zraft.raft.matching import check_entries, find_conflict, new_entries
from zraft.raft.membership.value import Membership
from zraft.raft.messages import AppendEntries, AppendEntriesReply, Heartbeat, HeartbeatReply
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft.raft.voting import Voting
from zraft_core.errors import ProtocolError
from zraft_core.ids import ServerId


class Following(Voting):
    """Followers. Part of `zraft.raft.core.Raft`."""

    def restore(self, meta: SnapshotMeta) -> bool:
        """Note that the snapshot of `meta` is durable on this disk, and its state is or will be this server's.

        Returns:
            False: its state is not needed; if the log holds the snapshot's last entry, that is committed now.
            True: the log begins anew after the snapshot, with the next write; `commit_index` is
            `meta.index`, and the leader is told once the write is durable. The caller's state machine has to
            be at `meta.index` before it applies anything again.

        Raises:
            ProtocolError: the membership in it cannot be read; nothing was changed.
        """
        if not self._accepts_snapshot(meta):
            return False
        log = self.log
        holds = log.first_index <= meta.index <= log.last_index and log.term_at(meta.index) == meta.term
        if holds:
            self._commit_to(meta.index)
        else:
            Membership.decode(meta.membership)
            if meta.term > self.term or self.role is not Role.FOLLOWER:
                # A leader whose log lacks what is committed leads nobody: it was replaced and has not heard.
                self._become_follower(max(self.term, meta.term), None)
            self._ack_index = 0  # the entries that were to be acknowledged are gone
            self._outbox.withhold_acknowledgements(meta.index + 1)
            self.log.restart_after(meta)
            self._writes.restore(meta)
            self.commit_index = meta.index
            self._adopt_newest_membership()
        if self.leader is not None and self.role is Role.FOLLOWER:
            # This is no acknowledgement: a leader that was replaced and has not heard may lack that entry. It
            # learns where this log ends, asks, and is answered from the log.
            self._send_after(
                self._writes.holding(meta.index),
                self.leader,
                AppendEntriesReply(
                    self.group,
                    self.term,
                    accepted=False,
                    match_index=0,
                    prev_log_index=self.log.last_index + 1,
                    conflict_index=self.log.last_index + 1,
                    conflict_term=0,
                ),
            )
        return not holds

    def _accepts_snapshot(self, meta: SnapshotMeta) -> bool:
        """Return whether a snapshot is ahead of what is committed here.

        An older one would take entries back (flaw 13).
        """
        return meta.index > self.commit_index

    def _follow(self, sender: ServerId, term: int) -> bool:
        """Follow `sender`, which leads `term`, unless the term is over."""
        if term < self.term:
            return False
        if term > self.term or self.role is not Role.FOLLOWER or self.leader != sender:
            if term == self.term and (self.role is Role.LEADER or self.leader is not None):
                raise ProtocolError(
                    f"server {sender} claims to lead group {self.group} in term {term}, which server "
                    f"{self.leader} leads: two servers share an identity, or one has lost its vote"
                )
            self._become_follower(term, sender)
            self._election.heard_leader(self.now)
        else:
            self._election.draw_deadline(self.now, heard_leader=True)
        return True

    def follows(self, leader: ServerId, term: int) -> bool:
        """Return whether this server follows exactly that leadership."""
        return self.role is Role.FOLLOWER and self.leader == leader and self.term == term

    def note_leader_heard(self, tick: int) -> None:
        """Note that the leader still leads, as it has said at `tick`, outside of this group.

        For a caller that does not tick this server while it hears that; it says so before it ticks it again.
        """
        if self.role is Role.FOLLOWER and self.leader is not None and tick > self._election.heard_leader_at:
            self._election.draw_deadline(tick, heard_leader=True)

    def note_lost(self, server: ServerId, spread_ticks: int) -> None:
        """Note that the connection to the process of `server` has ended.

        If it leads, most likely it no longer does: this server bears its silence for `RaftSettings.lost_leader_ticks`
        only, before it campaigns and before it helps another one to be elected. A leader that is heard has its usual
        time again. Nothing else depends on it.

        Args:
            spread_ticks: the candidacies of servers that note it at the same moment are spread over this time.
        """
        if self.role is Role.FOLLOWER and self.leader == server and not self._election.lost_leader:
            self._election.lose_leader(self.now, spread_ticks)

    def agrees(self, leader: ServerId, term: int, index: int) -> bool:
        """Take the leader's word that the log up to `index` is committed (D-7).

        The leader knows this log to match its own up to there.

        Returns:
            Whether this server follows that leadership and holds all of it, durably, its term included. If not,
            nothing was changed.
        """
        writes = self._writes
        if not self.follows(leader, term) or index > writes.durable_index or writes.hard_state_waits:
            return False
        self._commit_to(index)
        return True

    def _on_append_entries(self, sender: ServerId, message: AppendEntries) -> None:
        memberships_changed = check_entries(message)
        if not self._follow(sender, message.term):
            # Only the new term is told: its sender may lead again by now, and must not take this for an answer
            # about its present log.
            self._send_with_hard_state(
                sender, AppendEntriesReply(self.group, self.term, accepted=False, match_index=0)
            )
            return
        log = self.log
        entries = message.entries
        last_index = entries[-1].index
        if message.prev_log_index != log.last_index or message.prev_log_term != log.last_term:
            # It does not just go on where the log ends.
            conflict = find_conflict(log, self.commit_index, sender, message)
            if conflict is not None:
                self._refuse_append(sender, message, *conflict)
                return
            entries = new_entries(log, message)
        if entries:
            first = entries[0]
            if first.index <= self.commit_index:
                raise ProtocolError(
                    f"server {sender} leads term {message.term} with entry {first.index} of term {first.term}, "
                    f"but entry {first.index} is committed here in another term"
                )
            replaces = first.index <= log.last_index
            position = log.entry(first.index).position if replaces else log.next_position
            if first.position != position:
                raise ProtocolError(
                    f"entry {first.index} of server {sender} is at position {first.position}, "
                    f"expected {position}"
                )
            if replaces:
                memberships_changed = True
                self._truncate(first.index)
            for entry in entries:
                log.append(entry)
            self._writes.append(entries)
            if memberships_changed:
                self._adopt_newest_membership()
        if last_index > self._ack_index:
            self._ack_index = last_index
        commit_index = message.leader_commit
        self._commit_to(last_index if last_index < commit_index else commit_index)

    def _truncate(self, index: int) -> None:
        assert index > self.commit_index, (
            f"entry {index} conflicts with the leader's, but {self.commit_index} is committed"
        )
        self.log.truncate_from(index)
        self._writes.truncate_from(index)
        self._outbox.withhold_acknowledgements(index)

    def _refuse_append(
        self, sender: ServerId, message: AppendEntries, conflict_index: int, conflict_term: int
    ) -> None:
        self._send_with_hard_state(
            sender,
            AppendEntriesReply(
                self.group,
                self.term,
                accepted=False,
                match_index=0,
                prev_log_index=message.prev_log_index,
                conflict_index=conflict_index,
                conflict_term=conflict_term,
            ),
        )

    def _acknowledge(self) -> None:
        """Send one reply for all appends of a turn, once durable: accepting the last proves all before it."""
        index, self._ack_index = self._ack_index, 0
        number = self._writes.holding(index)
        if self.leader is not None and self.role is Role.FOLLOWER:
            self._send_after(
                number,
                self.leader,
                AppendEntriesReply(self.group, self.term, accepted=True, match_index=index),
            )

    def _on_heartbeat(self, sender: ServerId, message: Heartbeat) -> None:
        answered_round = 0
        if self._follow(sender, message.term):
            self._commit_to(min(message.leader_commit, self.log.last_index))
            if not message.round:
                return  # it only carried the commit
            answered_round = message.round
        # A late heartbeat of an older term is told the new term, but answers no round: its sender may lead again
        # by now, and would take the round's number for one of this leadership.
        self._send_with_hard_state(
            sender, HeartbeatReply(self.group, self.term, answered_round, self.log.last_index)
        )
