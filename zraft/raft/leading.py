"""Leading: entries and heartbeats are sent, and followers' answers are counted (sections 3.5, 6.2, 6.4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from zraft.raft.following import Following
from zraft.raft.membership.quorum import majority
from zraft.raft.messages import (
    AppendEntriesReply,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    ReadIndexReply,
)
from zraft.raft.progress import Progress, ProgressState
from zraft.raft.role import Role
from zraft.raft.settings import NEVER
from zraft_core.errors import ProtocolError
from zraft_core.ids import ServerId


class Leading(Following):
    """Leaders, with the configuration as it is. Part of `zraft.raft.core.Raft`."""

    def request_round(self) -> int:
        """Begin a round of heartbeats with the next ready(), whatever the timer says; returns its number."""
        assert self.role is Role.LEADER, "only a leader has rounds"
        self.rounds.request()
        return self.round + 1

    def join_round(self) -> bool:
        """Begin the next round with the next ready(), if it is due within half of its interval.

        For when something else is said to the followers anyway, so that they are woken once. Returns whether one begins.
        """
        return self.role is Role.LEADER and self.rounds.join(self.now)

    @property
    def round(self) -> int:
        """Newest round of heartbeats begun in this leadership, 0 before the first."""
        return self.rounds.newest

    @property
    def quorum_round(self) -> int:
        """Newest round that a quorum answered in this leadership, 0 before the first."""
        return self.rounds.confirmed

    # -- what is known beside this group's own messages (zraft.groups.covers.cover)

    @property
    def matches(self) -> dict[ServerId, int]:
        """The index up to which each member's log is known to agree, while leading."""
        return {progress.server: progress.match_index for progress in self._replication.followers.values()}

    def note_contacts(self, contacts: Mapping[ServerId, int], now: int, *, everybody: bool) -> None:
        """Note when followers were asked, who confirmed that they followed this leadership then.

        It counts for check-quorum alone: no round is answered, no read is confirmed (section 6.4), and nothing
        matches that did not before. `now` is the tick of the caller, which this server's own may be behind.
        `everybody`: all who can be reached are told by others that this server leads, so that no round is due
        by the time alone.
        """
        if self.role is not Role.LEADER:
            return
        for server, tick in contacts.items():
            progress = self._replication.followers.get(server)
            if progress is not None and tick > progress.heard_at:
                progress.heard_at = tick

        def contact_of(voter: ServerId) -> int:
            if voter == self.server:
                return now if self._is_voter else 0
            return contacts.get(voter, 0)

        self.rounds.note_contact(self._agreed(contact_of))
        if everybody and self.rounds.confirmed == self.rounds.newest:
            # One that is not answered is followed by the next: somebody may wait for it, and its answers may be lost.
            self.rounds.next_at = max(self.rounds.next_at, now + self.settings.heartbeat_ticks)

    # -- the beginning and the end

    def _become_leader(self) -> None:
        self.role = Role.LEADER
        self.leader = self.server
        self.elected_by = tuple(sorted(server for server, granted in self._election.votes.items() if granted))
        self._election.votes.clear()
        self._election.transfer = False
        self.rounds.lead(self.now, contact=self._election.began_at)
        log = self.log
        self._replication.lead(self.term, self._others())
        if log.last_index == 0:
            # D-1: the first entry of a group is its roster.
            self.noop_index = self._append_own(EntryKind.MEMBERSHIP, self.membership.encode(), 0)
            self._adopt_newest_membership()
        else:
            # Section 5.4.2 of the paper: without an entry of its own term it could commit nothing.
            self.noop_index = self._append_own(EntryKind.NOOP, b"", 0)

    def _stop_leading(self) -> None:
        self._replication.stop()
        self.rounds.stop()
        self._reads.clear()
        self._proposed.clear()
        self._uncommitted_bytes = 0
        self._tell_at = NEVER
        self.noop_index = 0

    def _others(self) -> list[ServerId]:
        """Return whom the log is sent to: every member that was seen."""
        return [
            server
            for server, member in self.membership.members.items()
            if server != self.server and self.membership.has(server, member.instance)
        ]

    def _append_own(
        self,
        kind: EntryKind,
        payload: bytes,
        count: int,
        size: int = 0,
        origins: frozenset[ServerId] | None = None,
    ) -> int:
        """Append an entry, of which `size` bytes count against `uncommitted_bytes_max`, and return its index."""
        log = self.log
        entry = Entry(log.last_index + 1, self.term, kind, log.next_position, count, payload)
        log.append(entry)
        self._writes.append((entry,))
        self._replication.unsent = True
        self._gap, self._appended_at = self.now - self._appended_at, self.now
        self._proposed.append((entry.index, size, origins))
        soon = self.now + self.settings.heartbeat_ticks
        if self.rounds.next_at > soon:
            # It is sent in a moment, may be lost, and is asked for again with the next round at the latest.
            self.rounds.next_at = soon
        return entry.index

    # -- sending

    def _lead(self) -> None:
        """Send all that a leader sends: entries first, so that the reply to a heartbeat tells of their loss."""
        replication, rounds = self._replication, self.rounds
        all_due = self.now >= self._tell_at or rounds.wanted or self._reads.need_round
        if replication.unsent or (all_due and replication.puts_off):
            put_off = () if all_due else self._dispensable()
            if put_off and not replication.puts_off:
                self._put_off_at = self.now
                self._tell_at = min(self._tell_at, self.now + self.settings.put_off_ticks_max)
            # They need not wait for the hard state, which was durable before votes for this leader were asked for.
            self._outbox.messages += replication.appends(self.now, self.commit_index, put_off)
        if (
            self._reads.need_round
            # The next round takes all reads that arrive meanwhile; nobody waits behind one that asks few.
            and (rounds.confirmed == rounds.newest or not rounds.everybody)
            and self.commit_index >= self.noop_index
        ):
            rounds.request()
        if rounds.wanted:
            self._begin_round()
        elif replication.commits_moved or self.now >= self._tell_at:
            self._tell_commits()

    def _dispensable(self) -> Collection[ServerId]:
        """Return followers that may get the newest entry a little later, together with the next ones.

        A quorum has it without them, and they have no clients: one would read an older state than another client has told
        it of. So the writes of one server's clients cost the others a round only now and then. Those that stay hold all
        that was sent to them, and the one of them that answered first is asked again: one that is slow or dead is not
        waited for twice. All get what they lack within `put_off_ticks_max`.
        """
        now, settings = self.now, self.settings
        if (
            not (self._proposed and self._majority)
            or self._gap > settings.put_off_ticks
            or (self._replication.puts_off and now >= self._put_off_at + settings.put_off_ticks)
            or self._tell_at <= now + 1  # somebody would have to be told of a commit in a moment
        ):
            return ()
        _, size, origins = self._proposed[-1]
        if origins is None or size >= settings.at_once_bytes_min:
            return ()
        steady = [
            progress.server
            for progress in self._replication.followers.values()
            if not progress.inflight and progress.state is ProgressState.REPLICATE
        ]
        spare = len(steady) + 1 - self._majority
        if spare <= 0:
            return ()
        others = [server for server in steady if server not in origins and server not in self.attended]
        if self._quickest in others:
            others.remove(self._quickest)
            others.append(self._quickest)
        return others[:spare]

    def _has_to_lead(self) -> bool:
        """Return whether `_lead` would send anything."""
        if self.rounds.wanted or self._reads.need_round:
            return True
        all_due = self.now >= self._tell_at
        if not (self._replication.unsent or self._replication.commits_moved or all_due):
            return False
        last_index, commit_index = self.log.last_index, self.commit_index
        for progress in self._replication.followers.values():
            if (
                progress.next_index <= last_index
                and progress.state is not ProgressState.SNAPSHOT
                and (all_due or not progress.put_off)
            ):
                return True
            if (
                progress.commit_sent < commit_index
                and (all_due or progress.commit_sent < progress.awaits)
                and progress.commit_sent < self._heartbeat_commit(progress)
            ):
                return True
        return False

    def _ask_again(self) -> None:
        """Ask followers again whose answer is missing for too long."""
        for progress in self._replication.followers.values():
            if progress.is_overdue(self.now):
                again = self._replication.ask_again(progress, self.now, self.commit_index)
                if again is not None:
                    self._send_with_hard_state(progress.server, again)

    def _heartbeat_commit(self, progress: Progress) -> int:
        """Return how far a heartbeat commits.

        It verifies nothing, so no further than that follower's match (D-7).
        """
        commit_index, match_index = self.commit_index, progress.match_index
        return commit_index if commit_index < match_index else match_index

    def _tell_commits(self) -> None:
        """Tell followers of the commit: those whose clients wait at once, the others when it is time.

        Mostly the next entry has told them by then, without a datagram of its own.
        """
        commit_index, all_due = self.commit_index, self.now >= self._tell_at
        untold = waits = False
        for progress in self._replication.followers.values():
            if progress.commit_sent < commit_index:
                if all_due or progress.commit_sent < progress.awaits:
                    self._tell_commit(progress)
                untold = untold or progress.commit_sent < commit_index
                waits = waits or progress.commit_sent < progress.awaits
        self._replication.commits_moved = waits
        if self._tell_at != NEVER and (all_due or not (untold or self._replication.puts_off)):
            # Who has not acknowledged it yet is told when it does.
            self._tell_at = NEVER

    def _tell_commit(self, progress: Progress) -> None:
        """Tell a follower of a commit: it answers its own clients when it applies."""
        commit = self._heartbeat_commit(progress)
        if commit > progress.commit_sent:
            progress.commit_sent = commit
            self._send_with_hard_state(progress.server, Heartbeat(self.group, self.term, 0, commit))

    def _begin_round(self) -> None:
        spared, alone = self._spared(), self.membership.electorate == (self.server,)
        # With followers to spare, a majority holds all of the log, and it answered the last round.
        interval = self._idle_heartbeat_ticks if spared or alone else self.settings.heartbeat_ticks
        number = self.rounds.begin(self.now, interval, everybody=not spared)
        if self._reads.need_round and self.commit_index >= self.noop_index:
            # Earlier it might not know of everything that its predecessors committed (section 6.4, step 1).
            self._reads.begin_round(number, self.commit_index)
        for progress in self._replication.followers.values():
            commit = self._heartbeat_commit(progress)
            if commit > progress.commit_sent:
                progress.commit_sent = commit
            asked = 0
            if progress not in spared:
                asked = progress.beat_round = number
                progress.beat_next = progress.next_index
            self._send_with_hard_state(progress.server, Heartbeat(self.group, self.term, asked, commit))
        self._tell_at = NEVER
        if alone:
            # Nobody else has to answer.
            self._confirm_rounds()

    def _spared(self) -> Sequence[Progress]:
        """Followers that hear the next round and need not answer it: nobody waits, and the others make a quorum.

        Voters that answered when they were asked last, and that hold the whole log, take turns in it: half of the answers
        only confirm what is known. Once a round is not answered, all are asked.
        """
        rounds = self.rounds
        if rounds.awaited or rounds.confirmed != rounds.newest or not self._is_voter or self.membership.joint:
            return ()
        voters, last_index = self.membership.voters, self.log.last_index
        steady = [
            progress
            for progress in self._replication.followers.values()
            if 0 < progress.beat_round == progress.round  # it answered when it was asked last
            and progress.match_index == last_index
            and progress.server in voters
        ]
        count = len(steady)
        spare = count + 1 - (self._majority or majority(len(voters)))
        if spare <= 0:
            return ()
        first = rounds.newest % count
        return (steady[first:] + steady[:first])[:spare]

    # -- counting

    def _round_of(self, voter: ServerId) -> int:
        """Return the newest round that a voter answered; a leader answers itself, if it votes."""
        if voter == self.server:
            return self.rounds.newest if self._is_voter else 0
        progress = self._replication.followers.get(voter)
        return 0 if progress is None else progress.round

    def _answered_by_quorum(self) -> int:
        """Return the newest round that a quorum answered, if it is not confirmed yet; if not, any that is.

        Where all members vote, and just as many as are needed answered later rounds, the quorum answered what the last of
        them did. So it is with nearly every answer.
        """
        needed = self._majority
        if not needed:
            return self._agreed(self._round_of)
        rounds, followers = self.rounds, self._replication.followers
        confirmed, least = rounds.confirmed, rounds.newest
        answered = 1
        for voter in self.membership.voters:
            if voter in followers:
                number = followers[voter].round
                if number > confirmed:
                    if number < least:
                        least = number
                    answered += 1
        if answered < needed:
            return confirmed
        return least if answered == needed else self._agreed(self._round_of)

    def _confirm_rounds(self) -> None:
        confirmed = self._answered_by_quorum()
        if not self.rounds.confirm(confirmed) or not self._reads.count:
            return
        for (asker, context), index in self._reads.confirmed(confirmed):
            if asker == self.server:
                self._read_states.append((context, index))
            else:
                self._replication.await_commit(asker, index)  # it answers when it has applied that far
                self._send_with_hard_state(asker, ReadIndexReply(self.group, self.term, context, index))

    def _add_read(self, asker: ServerId, context: int) -> None:
        if not self._reads.add((asker, context)):
            self._reads_dropped += 1

    def _is_reply_to_me(self, term: int) -> bool:
        """Return whether a message of `term` is meant for this leadership.

        Those of other terms say nothing about it.
        """
        if term > self.term:
            self._become_follower(term, None)
            return False
        return term == self.term and self.role is Role.LEADER

    def _on_append_entries_reply(self, progress: Progress, message: AppendEntriesReply) -> None:
        if self._replication.on_reply(progress, message, self.now):
            before = self.commit_index
            self._maybe_commit()
            if self.commit_index != before:
                self._quickest = progress.server
            if self._tell_at == NEVER and progress.commit_sent < self._heartbeat_commit(progress):
                self._tell_at = self.now  # the others were told before

    def _on_heartbeat_reply(self, progress: Progress, message: HeartbeatReply) -> None:
        if message.round > self.rounds.newest:
            raise ProtocolError(
                f"server {progress.server} answers round {message.round} of term {self.term}, "
                f"the newest is {self.rounds.newest}"
            )
        progress.heard_at = self.now
        if message.round == progress.beat_round:
            self._replication.on_last_index(progress, message.last_index, self.now)
        if message.round > progress.round:
            progress.round = message.round
            self._confirm_rounds()

    def _own_match_index(self) -> int:
        """Return how far the leader's own disk holds the log.

        The leader counts what is durable there, not what it holds in memory (D-7).
        """
        return self._writes.durable_index

    def _match_of(self, voter: ServerId) -> int:
        """Return what a voter holds durably of this leader's log; a leader that does not vote holds nothing."""
        if voter == self.server:
            return self._own_match_index() if self._is_voter else 0
        progress = self._replication.followers.get(voter)
        return 0 if progress is None else progress.match_index

    def _may_count(self, index: int) -> bool:
        """Return whether an entry may be committed by counting.

        Only entries of its own term are, which begin with the no-op; older ones with them (paper, figure 8).
        """
        return index >= self.noop_index

    def _held_by_quorum(self) -> int:
        """Return the newest index that a quorum holds, if it is above the commit; if not, any that is not above it.

        Where all members vote, and just as many as are needed hold more than the commit, the quorum holds what the last
        of them does. So it is with nearly every answer, and no others have to be asked.
        """
        needed = self._majority
        if not needed:
            return self._agreed(self._match_of)
        commit_index, followers = self.commit_index, self._replication.followers
        least = self._own_match_index()
        holders = 1 if least > commit_index else 0
        for voter in self.membership.voters:
            if voter in followers:
                match_index = followers[voter].match_index
                if match_index > commit_index:
                    if not holders or match_index < least:
                        least = match_index
                    holders += 1
        if holders < needed:
            return commit_index
        return least if holders == needed else self._agreed(self._match_of)

    def _maybe_commit(self) -> None:
        """Advance commit_index to the highest entry of our own term that a quorum holds."""
        if self.commit_index == self.log.last_index:
            return  # there is none: so it is with every second acknowledgement
        index = self._held_by_quorum()
        if index <= self.commit_index or not self._may_count(index):
            return
        self._commit_to(index)
        proposed, replication = self._proposed, self._replication
        while proposed and proposed[0][0] <= index:
            committed, size, origins = proposed.popleft()
            self._uncommitted_bytes -= size
            for server in replication.followers if origins is None else origins:
                if server != self.server:
                    replication.await_commit(server, committed)
            if origins is not None:
                settings = self.settings
                soon = self.now + settings.commit_told_ticks
                if self._tell_at == NEVER:
                    self._tell_at = soon
                elif replication.puts_off:
                    self._tell_at = min(soon, self._put_off_at + settings.put_off_ticks_max)
        self._on_commit()

    def _on_commit(self) -> None:
        raise NotImplementedError
