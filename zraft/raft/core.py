"""One server's part in one Raft group: stepped with messages, ticked, and asked for a `Ready`.

It never sees a clock, a socket or a disk (the shape is etcd's raft). Sources: Ongaro's dissertation
"Consensus: Bridging Theory and Practice" for everything named with a section, "the paper" is its short form
(Ongaro and Ousterhout, 2014); and the project's rules D-1, D-7, D-16 and D-22.

What leaves when (D-7): `Ready.messages` may be sent at once. Appends and heartbeats of a leader are among
them although its own entries are not durable yet: it counts itself only through `persisted`. Whatever
promises something (a vote, a vote request, an acknowledgement) is held back until the write it depends on
is durable.

Methods that begin with an underscore and take a decision are kept small on purpose: tests plant bugs by
overriding one of them and check that the checkers notice.
"""

from __future__ import annotations

import random
from collections import deque
from typing import assert_never

from zraft.errors import ProtocolError, StorageError
from zraft.ids import GroupId, Instance, ServerId
from zraft.raft.election import Election
from zraft.raft.log import Log
from zraft.raft.matching import check_entries, find_conflict, new_entries
from zraft.raft.membership import Membership
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Message,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from zraft.raft.outbox import Outbox
from zraft.raft.progress import Progress
from zraft.raft.quorum import VoteResult, majority_value
from zraft.raft.read_index import PendingReads
from zraft.raft.ready import Ready
from zraft.raft.replication import Replication
from zraft.raft.role import Role
from zraft.raft.rounds import Rounds
from zraft.raft.settings import RaftSettings
from zraft.raft.statistics import RaftStatistics
from zraft.raft.writes import Writes


class Raft:
    """A member of a group, or a server that may become one.

    Not thread-safe; one owner calls it. After any other call the owner takes `ready()`, which may be put off
    to the end of its turn: everything that arrived in one turn then shares messages and one write.

    Args:
        group: the group; messages of another are ignored.
        server, instance: who this is. A server whose (server, instance) is no voter of the membership neither
            campaigns nor votes (D-1).
        settings: validated here.
        hard_state: as last made durable.
        log: as recovered, all of it durable. Belongs to this object from now on.
        membership: what holds as long as the log has no MEMBERSHIP entry: the bootstrap roster (D-1).
        rng: draws election timeouts; nothing else is random.

    Raises:
        ConfigError: the settings contradict each other.
        StorageError: hard state and log contradict each other.
        ProtocolError: the newest MEMBERSHIP entry of the log cannot be read.

    Attributes:
        now: ticks (of 1 ms) since the start, the sum of what `tick` was given.
        term, role, leader: of this server; leader is None while unknown.
        commit_index: known to be committed. May be above `durable_index`.
        noop_index: first entry of this leadership, 0 while not leading.
    """

    def __init__(
        self,
        *,
        group: GroupId,
        server: ServerId,
        instance: Instance,
        settings: RaftSettings,
        hard_state: HardState,
        log: Log,
        membership: Membership,
        rng: random.Random,
    ) -> None:
        settings.validate()
        self.group = group
        self.server = server
        self.instance = instance
        self.settings = settings
        self.log = log
        self.now = 0
        self.term = 0
        self.role = Role.FOLLOWER
        self.leader: ServerId | None = None
        self.commit_index = log.first_index - 1
        self.noop_index = 0

        self._voted_for: ServerId | None = None
        if hard_state.term < log.last_term:
            raise StorageError(
                f"group {group}: the log ends in term {log.last_term} but the hard state is of term "
                f"{hard_state.term}, expected at least the former: the directory lost a write that it had "
                "confirmed; replace this server by a new one"
            )
        self._recover_hard_state(hard_state)
        self._bootstrap_membership = membership
        self.membership = membership
        self._is_voter = False
        self._adopt_newest_membership()

        self._writes = Writes(durable_index=log.last_index)
        self._outbox = Outbox()
        self._ack_index = 0  # to be acknowledged to the leader by the next ready(), 0 if nothing
        self._read_states: list[tuple[int, int]] = []

        self._election = Election(settings, rng)

        # Leading.
        self._replication = Replication(group, settings, log)
        self._rounds = Rounds()
        self._reads = PendingReads(settings.pending_reads_max)
        self._proposed: deque[tuple[int, int]] = deque()  # (index, bytes) of own proposals, not committed yet
        self._uncommitted_bytes = 0

        # Counters.
        self._messages_ignored = 0
        self._proposals_refused = 0
        self._reads_dropped = 0
        self._campaigns = 0

    # -- what a driver calls

    def tick(self, elapsed: int) -> None:
        """`elapsed` more ticks of 1 ms have passed.

        The caller caps it, so that a pause of the process is not taken for the silence of a leader, and steps
        the messages that waited in its sockets first.
        """
        assert elapsed >= 0
        self.now += elapsed
        now = self.now
        if self.role is Role.LEADER:
            if self._rounds.silence(now) > self.settings.election_timeout_ticks:
                # Check-quorum (section 6.2): it may be cut off, and its clients are better served elsewhere.
                self._become_follower(self.term, None)
                return
            if now >= self._rounds.next_at:
                self._rounds.wanted = True
            for progress in self._replication.followers.values():
                if progress.is_overdue(now):
                    again = self._replication.ask_again(progress, now, self.commit_index)
                    if again is not None:
                        self._send_with_hard_state(progress.server, again)
        elif now >= self._election.deadline:
            if self._is_voter:
                self._pre_campaign()
            else:
                self._election.draw_deadline(self.now)
        elif self.role is not Role.FOLLOWER and now >= self._election.repeat_at:
            self._request_votes()

    def step(self, sender: ServerId, instance: Instance, message: Message) -> None:
        """Take a message; the transport has authenticated that `instance` of `sender` sent it.

        Messages from who is no member, or for another group, are ignored and counted.

        Raises:
            ProtocolError: the message cannot come from a correct member; nothing of it was used.
        """
        if not self._is_member(sender, instance) or message.group != self.group or sender == self.server:
            self._messages_ignored += 1
            return
        match message:
            case AppendEntries():
                self._on_append_entries(sender, message)
            case AppendEntriesReply():
                if self._is_reply_to_me(message.term):
                    self._on_append_entries_reply(self._replication.followers[sender], message)
            case Heartbeat():
                self._on_heartbeat(sender, message)
            case HeartbeatReply():
                if self._is_reply_to_me(message.term):
                    self._on_heartbeat_reply(self._replication.followers[sender], message)
            case ReadIndex():
                if self._is_reply_to_me(message.term):
                    self._add_read(sender, message.context)
            case ReadIndexReply():
                if message.term == self.term and sender == self.leader:
                    self._read_states.append((message.context, message.index))
            case PreVote():
                self._on_pre_vote(sender, message)
            case PreVoteReply():
                self._on_pre_vote_reply(sender, message)
            case RequestVote():
                self._on_request_vote(sender, message)
            case RequestVoteReply():
                self._on_request_vote_reply(sender, message)
            case TimeoutNow():
                self._messages_ignored += 1  # nobody hands leadership over yet
            case _:
                assert_never(message)

    def propose(self, payload: bytes, count: int) -> int | None:
        """Append one batch of `count` commands.

        Returns:
            Its index (with the current term it identifies the batch), or None if this server does not lead or
            `uncommitted_bytes_max` is reached; the caller keeps the batch.
        """
        size = len(payload)
        if self.role is not Role.LEADER or (
            self._uncommitted_bytes and self._uncommitted_bytes + size > self.settings.uncommitted_bytes_max
        ):
            self._proposals_refused += 1
            return None
        index = self._append_own(EntryKind.COMMANDS, payload, count)
        self._proposed.append((index, size))
        self._uncommitted_bytes += size
        return index

    def read_index(self, context: int) -> None:
        """Ask for an index such that a read at or after it is linearizable; it comes in `Ready.read_states`.

        It may be lost (no leader, leader changed, datagram lost, leader full): the caller repeats it, and may
        be answered twice. `context` is the caller's number for it, which must not be used for another read,
        not even after a restart: a late answer to the first would pass as the answer to the second.
        """
        if self.role is Role.LEADER:
            self._add_read(self.server, context)
        elif self.leader is not None:
            self._send_with_hard_state(self.leader, ReadIndex(self.group, self.term, context))
        else:
            self._reads_dropped += 1

    def hasten_election(self) -> None:
        """Campaign at the next tick: for a group that was only just founded and has no leader to wait for."""
        self._election.deadline = self.now

    def request_round(self) -> int:
        """Begin a round of heartbeats with the next ready(), whatever the timer says; returns its number."""
        assert self.role is Role.LEADER, "only a leader has rounds"
        self._rounds.wanted = True
        return self.round + 1

    def ready(self) -> Ready:
        """Take everything that accumulated since the last call."""
        if self.role is Role.LEADER:
            self._lead()
        if self._ack_index:
            self._acknowledge()
        write = self._writes.take(self.log.last_index)
        read_states = tuple(self._read_states)
        if read_states:
            self._read_states.clear()
        return Ready(self._outbox.take(), write, self.commit_index, read_states)

    @property
    def has_ready(self) -> bool:
        """Whether `ready` would bring something to do now: many a message only confirms what is known."""
        if self._outbox.messages or self._ack_index or self._read_states or self._writes.pending:
            return True
        if self.role is not Role.LEADER:
            return False
        if self._rounds.wanted or self._reads.need_round:
            return True
        last_index = self.log.last_index
        return any(
            progress.next_index <= last_index or progress.commit_sent < self._heartbeat_commit(progress)
            for progress in self._replication.followers.values()
        )

    def persisted(self, number: int) -> None:
        """Write `number` and all before it are durable: the next ready() brings what waited for them."""
        if not self._writes.persisted(number):
            return
        self._outbox.release(number)
        if self.role is Role.LEADER:
            self._maybe_commit()
        elif self.role is Role.CANDIDATE and self._writes.hard_state_write <= number:
            self._count_own_vote()

    @property
    def durable_index(self) -> int:
        """End of the log that survives a crash."""
        return self._writes.durable_index

    @property
    def round(self) -> int:
        """Newest round of heartbeats begun in this leadership, 0 before the first."""
        return self._rounds.newest

    @property
    def quorum_round(self) -> int:
        """Newest round that a quorum answered in this leadership, 0 before the first."""
        return self._rounds.confirmed

    @property
    def quorum_contact(self) -> int:
        """Tick at which `quorum_round` was *sent*; before the first, that at which the vote was asked for.

        What a leader may still promise is judged by it (D-11c, D-14).
        """
        return self._rounds.contact

    @property
    def applicable_index(self) -> int:
        """The last index that may be applied here: committed and locally durable (D-7)."""
        return min(self.commit_index, self.durable_index)

    def statistics(self) -> RaftStatistics:
        """A frozen view of the moment, for metrics and operators."""
        return RaftStatistics(
            term=self.term,
            role=self.role,
            leader=self.leader,
            first_index=self.log.first_index,
            last_index=self.log.last_index,
            durable_index=self.durable_index,
            commit_index=self.commit_index,
            uncommitted_bytes=self._uncommitted_bytes,
            pending_reads=len(self._reads),
            messages_ignored_total=self._messages_ignored,
            proposals_refused_total=self._proposals_refused,
            reads_dropped_total=self._reads_dropped,
            campaigns_total=self._campaigns,
            followers=self._replication.statistics(),
        )

    # -- who is who

    def _is_member(self, sender: ServerId, instance: Instance) -> bool:
        return self.membership.has(sender, instance)

    def _adopt_newest_membership(self) -> None:
        """A configuration holds as long as it is the newest in the log, committed or not (section 4.1)."""
        entry = self.log.newest_membership
        self.membership = self._bootstrap_membership if entry is None else Membership.decode(entry.payload)
        self._is_voter = self.membership.has_voter(self.server, self.instance)

    # -- hard state, and what waits for it

    def _recover_hard_state(self, hard_state: HardState) -> None:
        self.term = hard_state.term
        self._voted_for = hard_state.voted_for

    def _set_hard_state(self, term: int, voted_for: ServerId | None) -> None:
        """Term and vote change together, in one durable record: a vote belongs to its term."""
        self.term = term
        self._voted_for = voted_for
        self._writes.replace_hard_state(HardState(term, voted_for))

    def _send_after(self, number: int, to: ServerId, message: Message) -> None:
        """Send once write `number`, maybe the one of the next ready(), is durable; at once if it is."""
        self._outbox.send_after(number, to, message)

    def _send_with_hard_state(self, to: ServerId, message: Message) -> None:
        """Send what claims nothing but term and vote."""
        self._send_after(self._writes.hard_state_write, to, message)

    # -- elections

    def _hears_leader(self) -> bool:
        """Stickiness (section 4.2.3): with a live leader, nobody helps to depose it."""
        if self.role is Role.LEADER:
            return True
        return self.leader is not None and self._election.trusts_leader(self.now)

    def _log_is_current(self, last_log_index: int, last_log_term: int) -> bool:
        """Is a log that ends there at least as up-to-date as ours (section 3.6.1)? The term counts first."""
        return (last_log_term, last_log_index) >= (self.log.last_term, self.log.last_index)

    def _become_follower(self, term: int, leader: ServerId | None) -> None:
        assert term >= self.term
        if term > self.term:
            self._set_hard_state(term, None)
            self._ack_index = 0  # it was meant for the leader of the older term
        if self.role is Role.LEADER:
            self._replication.stop()
            self._rounds.stop()
            self._reads.clear()
            self._proposed.clear()
            self._uncommitted_bytes = 0
            self.noop_index = 0
        self.role = Role.FOLLOWER
        self.leader = leader
        self._election.votes.clear()
        self._election.draw_deadline(self.now)

    def _pre_campaign(self) -> None:
        """Ask whether an election could be won, before disturbing anybody with a new term (section 9.6)."""
        self.role = Role.PRE_CANDIDATE
        self.leader = None
        self._election.votes = {self.server: True}  # promises nothing, so it need not be durable
        self._election.draw_deadline(self.now)
        if not self._decide_election():
            self._request_votes()

    def _campaign(self) -> None:
        self._campaigns += 1
        self._set_hard_state(self.term + 1, self.server)
        self.role = Role.CANDIDATE
        self._election.began_at = self.now
        self._election.votes = {}  # its own comes with `persisted` (D-7)
        self._election.draw_deadline(self.now)
        self._request_votes()

    def _count_own_vote(self) -> None:
        """Its own vote is a vote like any other: it counts when it is durable (D-7)."""
        self._election.votes[self.server] = True
        self._decide_election()

    def _request_votes(self) -> None:
        """Ask all voters that have not answered; again every `heartbeat_ticks`, as datagrams get lost."""
        self._election.repeat_at = self.now + self.settings.heartbeat_ticks
        last_index, last_term = self.log.last_index, self.log.last_term
        request: PreVote | RequestVote
        if self.role is Role.PRE_CANDIDATE:
            request = PreVote(self.group, self.term + 1, last_index, last_term)
        else:
            request = RequestVote(self.group, self.term, last_index, last_term)
        for voter in self.membership.voters:
            if voter != self.server and voter not in self._election.votes:
                self._send_with_hard_state(voter, request)

    def _take_vote(self, sender: ServerId, granted: bool) -> None:
        self._election.take(sender, granted)
        self._decide_election()

    def _decide_election(self) -> bool:
        """Act on the votes so far; True if the election is over."""
        result = self._election.result(self.membership.voters)
        if result is VoteResult.PENDING:
            return False
        if result is VoteResult.LOST:
            self._become_follower(self.term, None)
        elif self.role is Role.PRE_CANDIDATE:
            self._campaign()
        else:
            self._become_leader()
        return True

    def _on_pre_vote(self, sender: ServerId, message: PreVote) -> None:
        if not self._is_voter or not self.membership.members[sender].voter:
            return
        granted = (
            message.term > self.term
            and not self._hears_leader()
            and self._log_is_current(message.last_log_index, message.last_log_term)
        )
        term = message.term if granted else self.term
        self._send_with_hard_state(sender, PreVoteReply(self.group, term, granted))

    def _on_pre_vote_reply(self, sender: ServerId, message: PreVoteReply) -> None:
        if not message.granted and message.term > self.term:
            self._become_follower(message.term, None)
        elif self.role is Role.PRE_CANDIDATE and (not message.granted or message.term == self.term + 1):
            self._take_vote(sender, message.granted)

    def _on_request_vote(self, sender: ServerId, message: RequestVote) -> None:
        if not self._is_voter or not self.membership.members[sender].voter:
            return
        if message.term > self.term:
            if self._hears_leader():
                return
            self._become_follower(message.term, None)
        granted = (
            message.term == self.term
            and self._voted_for in (None, sender)
            and self._log_is_current(message.last_log_index, message.last_log_term)
        )
        if granted:
            if self._voted_for is None:
                self._set_hard_state(self.term, sender)
            self._election.draw_deadline(self.now)
        self._send_with_hard_state(sender, RequestVoteReply(self.group, self.term, granted))

    def _on_request_vote_reply(self, sender: ServerId, message: RequestVoteReply) -> None:
        if message.term > self.term:
            self._become_follower(message.term, None)
        elif self.role is Role.CANDIDATE and message.term == self.term:
            self._take_vote(sender, message.granted)

    # -- following

    def _follow(self, sender: ServerId, term: int) -> bool:
        """`sender` leads `term`: follow it, unless the term is over."""
        if term < self.term:
            return False
        if term > self.term or self.role is not Role.FOLLOWER or self.leader != sender:
            if term == self.term and (self.role is Role.LEADER or self.leader is not None):
                raise ProtocolError(
                    f"server {sender} claims to lead group {self.group} in term {term}, which server "
                    f"{self.leader} leads: two servers share an identity, or one has lost its vote"
                )
            self._become_follower(term, sender)
        else:
            self._election.draw_deadline(self.now)
        self._election.heard_leader(self.now)
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
        conflict = find_conflict(log, self.commit_index, sender, message)
        if conflict is not None:
            self._refuse_append(sender, message, *conflict)
            return
        entries = new_entries(self.log, message)
        if entries:
            first = entries[0]
            replaces = first.index <= log.last_index
            position = log.entry(first.index).position if replaces else log.next_position
            if first.position != position:
                raise ProtocolError(
                    f"entry {first.index} of server {sender} is at position {first.position}, "
                    f"expected {position}"
                )
            if first.index <= self.commit_index:
                raise ProtocolError(
                    f"server {sender} leads term {message.term} with entry {first.index} of term {first.term}, but "
                    f"the one of term {log.term_at(first.index)} is committed here"
                )
            if replaces:
                memberships_changed = True
                self._truncate(first.index)
            for entry in entries:
                log.append(entry)
            self._writes.append(entries)
            if memberships_changed:
                self._adopt_newest_membership()
        match_index = message.prev_log_index + len(message.entries)
        self._ack_index = max(self._ack_index, match_index)
        self._commit_to(min(message.leader_commit, match_index))

    def _truncate(self, index: int) -> None:
        assert index > self.commit_index, (
            f"entry {index} conflicts with the leader's, but {self.commit_index} is committed"
        )
        self.log.truncate_from(index)
        self._writes.truncate_from(index)

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
        """One reply for all appends of a turn, once durable: accepting the last proves all before it."""
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

    def _commit_to(self, index: int) -> None:
        if index > self.commit_index:
            self.commit_index = index

    # -- leading

    def _become_leader(self) -> None:
        self.role = Role.LEADER
        self.leader = self.server
        self._election.votes.clear()
        self._rounds.lead(self.now, contact=self._election.began_at)
        log = self.log
        others = [server for server in self.membership.members if server != self.server]
        self._replication.lead(self.term, others)
        if log.last_index == 0:
            # D-1: the first entry of a group is its roster.
            self.noop_index = self._append_own(EntryKind.MEMBERSHIP, self.membership.encode(), 0)
        else:
            # Section 5.4.2 of the paper: without an entry of its own term it could commit nothing.
            self.noop_index = self._append_own(EntryKind.NOOP, b"", 0)

    def _append_own(self, kind: EntryKind, payload: bytes, count: int) -> int:
        log = self.log
        entry = Entry(log.last_index + 1, self.term, kind, log.next_position, count, payload)
        log.append(entry)
        self._writes.append((entry,))
        return entry.index

    def _lead(self) -> None:
        """All that a leader sends: entries first, so that the reply to a heartbeat tells of their loss."""
        last_index = self.log.last_index
        for progress in self._replication.followers.values():
            if progress.next_index <= last_index:
                for append in self._replication.appends(progress, self.now, self.commit_index):
                    self._send_with_hard_state(progress.server, append)
        if (
            self._reads.need_round
            and self._rounds.confirmed
            == self._rounds.newest  # the next round takes all reads that arrive meanwhile
            and self.commit_index >= self.noop_index
        ):
            self._rounds.wanted = True
        if self._rounds.wanted:
            self._begin_round()
        else:
            for progress in self._replication.followers.values():
                if progress.commit_sent < self.commit_index:
                    self._tell_commit(progress)

    def _heartbeat_commit(self, progress: Progress) -> int:
        """A heartbeat verifies nothing, so it commits no further than that follower's match (D-7)."""
        return min(self.commit_index, progress.match_index)

    def _tell_commit(self, progress: Progress) -> None:
        """A follower answers its own clients when it applies: it learns of a commit at once."""
        commit = self._heartbeat_commit(progress)
        if commit > progress.commit_sent:
            progress.commit_sent = commit
            self._send_with_hard_state(progress.server, Heartbeat(self.group, self.term, 0, commit))

    def _begin_round(self) -> None:
        number = self._rounds.begin(self.now, next_at=self.now + self.settings.heartbeat_ticks)
        if self.commit_index >= self.noop_index:
            # Earlier it might not know of everything that its predecessors committed (section 6.4, step 1).
            self._reads.begin_round(number, self.commit_index)
        for progress in self._replication.followers.values():
            commit = self._heartbeat_commit(progress)
            progress.commit_sent = max(progress.commit_sent, commit)
            progress.beat_round = number
            progress.beat_next = progress.next_index
            self._send_with_hard_state(progress.server, Heartbeat(self.group, self.term, number, commit))
        self._confirm_rounds()

    def _confirm_rounds(self) -> None:
        confirmed = majority_value(
            self._rounds.newest if voter == self.server else self._replication.followers[voter].round
            for voter in self.membership.voters
        )
        if not self._rounds.confirm(confirmed):
            return
        for (asker, context), index in self._reads.confirmed(confirmed):
            if asker == self.server:
                self._read_states.append((context, index))
            else:
                self._send_with_hard_state(asker, ReadIndexReply(self.group, self.term, context, index))

    def _add_read(self, asker: ServerId, context: int) -> None:
        if not self._reads.add((asker, context)):
            self._reads_dropped += 1

    def _is_reply_to_me(self, term: int) -> bool:
        """Is a message of `term` meant for this leadership? Those of other terms say nothing about it."""
        if term > self.term:
            self._become_follower(term, None)
            return False
        return term == self.term and self.role is Role.LEADER

    def _on_append_entries_reply(self, progress: Progress, message: AppendEntriesReply) -> None:
        if self._replication.on_reply(progress, message, self.now):
            self._maybe_commit()

    def _on_heartbeat_reply(self, progress: Progress, message: HeartbeatReply) -> None:
        if message.round > self.round:
            raise ProtocolError(
                f"server {progress.server} answers round {message.round} of term {self.term}, "
                f"the newest is {self.round}"
            )
        progress.heard_at = self.now
        if message.round == progress.beat_round and progress.misses(message.last_index, self.now):
            progress.probe_from(message.last_index + 1)
        if message.round > progress.round:
            progress.round = message.round
            self._confirm_rounds()

    def _own_match_index(self) -> int:
        """The leader is one disk of the quorum: it counts what is durable there, not what it holds (D-7)."""
        return self.durable_index

    def _may_count(self, index: int) -> bool:
        """Only entries of its own term are committed by counting; older ones with them (paper, figure 8)."""
        return self.log.term_at(index) == self.term

    def _maybe_commit(self) -> None:
        """Advance commit_index to the highest entry of our own term that a quorum holds."""
        index = majority_value(
            self._own_match_index()
            if voter == self.server
            else self._replication.followers[voter].match_index
            for voter in self.membership.voters
        )
        if index <= self.commit_index or not self._may_count(index):
            return
        self._commit_to(index)
        proposed = self._proposed
        while proposed and proposed[0][0] <= index:
            self._uncommitted_bytes -= proposed.popleft()[1]
