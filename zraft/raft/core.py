"""One server's part in one Raft group: stepped with messages, ticked, and asked for a `Ready`.

It never sees a clock, a socket or a disk (the shape is etcd's raft). Sources: Ongaro's dissertation
"Consensus: Bridging Theory and Practice" for everything named with a section, "the paper" is its short form
(Ongaro and Ousterhout, 2014); and the project's rules D-1, D-7, D-16 and D-22.

What leaves when (D-7): `Ready.messages` may be sent at once. Appends and heartbeats of a leader are among
them although its own entries are not durable yet: it counts itself only through `persisted`. Whatever
promises something (a vote, a vote request, an acknowledgement) is held back until the write it depends on
is durable.

One class in layers, each a module of its own and knowing only those before it: `state`, `voting`, `following`,
`leading`, `changing`. Here is what ties them together: who is heard, what time does, what a driver takes.

Methods that begin with an underscore and take a decision are kept small on purpose: tests plant bugs by
overriding one of them and check that the checkers notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from zraft.raft.changing import Changing
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
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
from zraft.raft.ready import NOTHING, Ready
from zraft.raft.role import Role
from zraft.raft.statistics import RaftStatistics
from zraft_core.ids import Instance, ServerId


class Raft(Changing):
    """A member of a group, or a server that may become one.

    Not thread-safe; one owner calls it. After any other call the owner takes `ready()`, which may be put off
    to the end of its turn: everything that arrived in one turn then shares messages and one write.

    Args:
        group: the group; messages of another are ignored.
        server, instance: who this is. A server whose (server, instance) is no voter of the membership does not
            campaign, and one that is no member does not vote (D-1).
        settings: validated here.
        hard_state: as last made durable.
        log: as recovered, all of it durable. Belongs to this object from now on.
        membership: what holds as long as the log, and the snapshot it begins after, has no MEMBERSHIP entry:
            the bootstrap roster (D-1), or what a new member was welcomed with.
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
        elected_by: who voted for the newest leadership of this server, itself among them.
        rounds: its rounds of heartbeats while it leads. Others only look at them.
        handover: how this leader hands its leadership over; None if it does not.
        holds_back: set by the caller: its disk takes no writes at the moment, so it does not stand for election.
        membership: the newest configuration of the log, committed or not.
        members_changed_index: index of its entry, 0 if it has none. After a restored snapshot it is that of the
            snapshot, until a newer one follows.
    """

    # -- what a driver calls

    def tick(self, elapsed: int) -> None:
        """Let `elapsed` more ticks of 1 ms pass.

        The caller caps it, so that a pause of the process is not taken for the silence of a leader, and steps
        the messages that waited in its sockets first.
        """
        self.pass_time(elapsed)
        now = self.now
        if self.role is Role.LEADER:
            rounds = self.rounds
            if rounds.silence(now) > self.settings.election_timeout_ticks:
                # Check-quorum (section 6.2): it may be cut off, and its clients are better served elsewhere.
                self._become_follower(self.term, None)
                return
            if now >= rounds.next_at:
                rounds.wanted = True
            self._ask_again()
            if self._departures:
                self._end_departures()
            if self.handover is not None:
                self._tick_handover()
        else:
            self._tick_election()

    def pass_time(self, elapsed: int) -> None:
        """Let `elapsed` more ticks pass, by which nobody is judged before the next `tick`."""
        assert elapsed >= 0
        self.now += elapsed

    def step(
        self, sender: ServerId, instance: Instance, message: Message, *, is_member: bool | None = None
    ) -> None:
        """Take a message; the transport has authenticated that `instance` of `sender` sent it.

        Messages from who is no member, or for another group, are ignored and counted (but see `vouch`).

        Args:
            is_member: whether `membership` has that disk, if the caller has looked already.

        Raises:
            ProtocolError: the message cannot come from a correct member; nothing of it was used.
        """
        if is_member is None:
            is_member = self.membership.has(sender, instance)
        if (
            message.group != self.group
            or sender == self.server
            or not (is_member or self._hears_stranger(sender, instance, message))
        ):
            self._messages_ignored += 1
            return
        followers = self._replication.followers
        match message:
            case AppendEntries():
                self._on_append_entries(sender, message)
            case AppendEntriesReply():
                if self._is_reply_to_me(message.term) and sender in followers:
                    self._on_append_entries_reply(followers[sender], message)
            case Heartbeat():
                self._on_heartbeat(sender, message)
            case HeartbeatReply():
                if self._is_reply_to_me(message.term) and sender in followers:
                    self._on_heartbeat_reply(followers[sender], message)
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
                self._on_timeout_now(sender, message)
            case _:
                assert_never(message)

    def propose(self, payload: bytes, count: int, origins: frozenset[ServerId] | None = None) -> int | None:
        """Append one batch of `count` commands.

        Args:
            origins: the servers whose clients wait for it, which are told at once that it is committed; the others
                learn it a little later, mostly by the next entry. None: all are told at once.

        Returns:
            Its index (with the current term it identifies the batch), or None if this server does not lead,
            hands its leadership over, or `uncommitted_bytes_max` is reached; the caller keeps the batch.
        """
        size = len(payload)
        if (
            self.role is not Role.LEADER
            or self.handover is not None
            or (
                self._uncommitted_bytes
                and self._uncommitted_bytes + size > self.settings.uncommitted_bytes_max
            )
        ):
            self._proposals_refused += 1
            return None
        self._uncommitted_bytes += size
        return self._append_own(EntryKind.COMMANDS, payload, count, size, origins)

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

    def ready(self) -> Ready:
        """Take everything that accumulated since the last call."""
        if self.role is Role.LEADER:
            self._lead()
            if self.handover is not None:
                self._continue_handover()
        if self._ack_index:
            self._acknowledge()
        writes, outbox = self._writes, self._outbox
        if not (writes.pending or outbox.messages or self._read_states):
            return NOTHING
        messages, outbox.messages = outbox.messages, []
        read_states, self._read_states = self._read_states, []
        write = writes.take(self.log.last_index) if writes.pending else None
        return Ready(tuple(messages), write, tuple(read_states))

    @property
    def has_ready(self) -> bool:
        """True if `ready` would return something to do now: many a message only confirms what is known."""
        if self._outbox.messages or self._ack_index or self._read_states or self._writes.pending:
            return True
        return self.role is Role.LEADER and (
            self._has_to_lead() or (self.handover is not None and self._handover_due())
        )

    def beat(self) -> Sequence[tuple[ServerId, Message]] | None:
        """Begin the round of heartbeats that is due and return its messages, as `tick` and `ready` would.

        None, and nothing was done, if these two might do anything else: only a leader for whom nothing is under way, and
        whose last round a quorum has answered, begins one so.
        """
        rounds, replication = self.rounds, self._replication
        if (
            self.now < rounds.next_at
            or rounds.confirmed != rounds.newest
            or replication.unsent
            or replication.puts_off
            or self.now - rounds.contact > self.settings.election_timeout_ticks
            or not self.settled
        ):
            return None
        for progress in replication.followers.values():
            if progress.inflight:
                return None
        self._begin_round()
        outbox = self._outbox
        messages, outbox.messages = outbox.messages, []
        return messages

    @property
    def only_answers(self) -> bool:
        """True if `ready` of a follower would return messages and nothing else, such as its answer to a heartbeat."""
        return bool(self._outbox.messages) and not (
            self._ack_index or self._read_states or self._writes.pending
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

    def vouch(self, server: ServerId, instance: Instance) -> None:
        """Note that a disk belongs to the same cluster, whether or not the configuration here knows it.

        One that fell behind during a change knows neither its new leader nor a new candidate; it must follow the
        one and may vote for the other (section 4.1), who count by their own configuration. The transport's key
        does not tell clusters apart (one restored from a backup may share it): the caller must have compared
        their identities. Answers of who is no member count for nothing all the same.
        """
        self._vouched[server] = instance

    def knows(self, server: ServerId, instance: Instance) -> bool:
        """Return whether that disk is a member here, or was vouched for."""
        return self.membership.has(server, instance) or self._vouched.get(server) == instance

    def compact(self, index: int) -> None:
        """Note that a snapshot at or above `index` is durable here: the log begins at `index + 1`.

        Which entries slow followers still need is the caller's policy. Nothing happens if they are gone already.
        """
        assert index <= self.applicable_index, (
            f"{index=} beyond what is committed and durable: {self.applicable_index}"
        )
        if self.role is Role.LEADER and index == self.log.last_index:
            # Without an entry to send, a follower could not be asked where it stands.
            self._append_own(EntryKind.NOOP, b"", 0)
        self.log.compact_to(index)
        self._replication.may_need_snapshot = True

    @property
    def followers_needing_snapshot(self) -> tuple[ServerId, ...]:
        """The members whose next entry is older than the log, while leading."""
        if not self._replication.may_need_snapshot:
            return ()
        needing = self._replication.needing_snapshot()
        return tuple(server for server in needing if server not in self._departures) if needing else ()

    def set_bulk_bytes_min(self, server: ServerId, size: int) -> None:
        """Set the size from which messages with entries to that server go by a stream.

        Its path loses datagrams (D-22).
        """
        self._replication.set_bulk_bytes_min(server, size)

    @property
    def may_change_membership(self) -> bool:
        """Would `change_membership` take a change now?"""
        return self._may_change()

    @property
    def silences(self) -> dict[ServerId, int | None]:
        """The ticks since each other member said anything, while leading; None if it never did."""
        now = self.now
        return {
            progress.server: now - progress.heard_at if progress.heard_at >= 0 else None
            for progress in self._replication.followers.values()
        }

    @property
    def matches_of_heard_followers(self) -> list[int]:
        """The indices up to which followers' logs agree, while leading.

        Those followers count that answered within a few election timeouts.
        """
        patience = 10 * self.settings.election_timeout_ticks
        return [
            progress.match_index
            for progress in self._replication.followers.values()
            if progress.heard_at >= 0 and self.now - progress.heard_at <= patience and progress.match_index
        ]

    def followers_at(self, index: int) -> tuple[ServerId, ...]:
        """Return the members that hold the log up to `index`, while leading.

        Those members count that answered within an election timeout.
        """
        patience = self.settings.election_timeout_ticks
        return tuple(
            progress.server
            for progress in self._replication.followers.values()
            if progress.match_index >= index
            and progress.heard_at >= 0
            and self.now - progress.heard_at <= patience
        )

    @property
    def applicable_index(self) -> int:
        """The last index that may be applied here: committed and locally durable (D-7)."""
        commit, durable = self.commit_index, self._writes.durable_index
        return commit if commit < durable else durable

    def statistics(self) -> RaftStatistics:
        """Return a frozen view of the moment, for metrics and operators."""
        return RaftStatistics(
            term=self.term,
            role=self.role,
            leader=self.leader,
            first_index=self.log.first_index,
            last_index=self.log.last_index,
            durable_index=self.durable_index,
            commit_index=self.commit_index,
            uncommitted_bytes=self._uncommitted_bytes,
            pending_reads=self._reads.count,
            messages_ignored_total=self._messages_ignored,
            proposals_refused_total=self._proposals_refused,
            reads_dropped_total=self._reads_dropped,
            campaigns_total=self._campaigns,
            followers=self._replication.statistics(),
        )

    @property
    def settled(self) -> bool:
        """True if all is committed and durable here while leading, and nobody but a follower waits for anything."""
        return (
            self.role is Role.LEADER
            and 0 < self.noop_index <= self.commit_index
            and self.log.last_index == self.commit_index == self._writes.durable_index
            and self._is_voter
            and not self.membership.joint
            and self.handover is None
            and not self._departures
            and not self._reads.count
            and not self.rounds.wanted
            and not self._writes.pending
            and not self._outbox.messages
            and not self._read_states
        )

    @property
    def due_at(self) -> float:
        """The tick from which `tick` has something to do, as long as nothing else happens."""
        if self.role is not Role.LEADER:
            election = self._election
            waits = self.role is not Role.FOLLOWER
            return min(election.deadline, election.repeat_at) if waits else election.deadline
        rounds = self.rounds
        due = min(self._tell_at, rounds.next_at, rounds.silent_at + self.settings.election_timeout_ticks + 1)
        for progress in self._replication.followers.values():
            overdue = progress.due_at
            if overdue is not None and overdue < due:
                due = overdue
        if self.handover is not None:
            due = min(due, self.handover.gives_up_at)
        return due

    @property
    def alarm_in(self) -> float:
        """Ticks until the next heartbeat or election is due; at most 0: it is due now.

        What else `due_at` knows of, such as asking a silent follower again, may be late by a heartbeat.
        """
        if self.role is Role.LEADER:
            next_at, tell_at = self.rounds.next_at, self._tell_at
            return (next_at if next_at < tell_at else tell_at) - self.now
        election = self._election
        due = election.deadline
        if self.role is not Role.FOLLOWER and election.repeat_at < due:
            due = election.repeat_at
        return due - self.now

    # -- who is heard

    def _hears_stranger(self, sender: ServerId, instance: Instance, message: Message) -> bool:
        """Return whether to take a message of who is no member by the newest configuration here."""
        if isinstance(message, (AppendEntriesReply, HeartbeatReply)):
            return self._departures.has(sender, instance)
        if not isinstance(
            message, (AppendEntries, Heartbeat, PreVote, RequestVote, ReadIndexReply, TimeoutNow)
        ):
            return False
        # A leader that the newest configuration leaves out leads until that is committed (section 4.2.2).
        was_member = self._before is not None and self._before.has(sender, instance)
        return was_member or self._vouched.get(sender) == instance
