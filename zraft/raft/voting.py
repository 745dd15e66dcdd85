"""Voting: candidacies of a server, and its votes for others (dissertation, sections 3.4, 3.6, 4.2, 9.6).

Whoever asks is judged by its log and by the silence of the leader, not by the configuration here, which may be
older than the asker's (section 4.1); whose votes count is decided by the asker's (D-1).
"""

from __future__ import annotations

from zraft.raft.membership.quorum import VoteResult
from zraft.raft.messages import PreVote, PreVoteReply, RequestVote, RequestVoteReply, TimeoutNow
from zraft.raft.role import Role
from zraft.raft.state import GroupState
from zraft_core.ids import ServerId


class Voting(GroupState):
    """Candidates and voters. Part of `zraft.raft.core.Raft`."""

    def hasten_election(self) -> None:
        """Campaign at the next tick: for a group that was only just founded and has no leader to wait for."""
        self._election.deadline = self.now

    def _become_leader(self) -> None:
        raise NotImplementedError

    # -- candidates

    def _tick_election(self) -> None:
        """Look at the election's deadline, without leading."""
        if self.now >= self._election.deadline:
            if self._may_campaign():
                self._pre_campaign()
            else:
                self._election.draw_deadline(self.now)
        elif self.role is not Role.FOLLOWER and self.now >= self._election.repeat_at:
            self._request_votes()

    def _pre_campaign(self) -> None:
        """Ask whether an election could be won, before disturbing anybody with a new term (section 9.6)."""
        self.role = Role.PRE_CANDIDATE
        self.leader = None
        self._election.transfer = False
        # Its own promises nothing, so it need not be durable.
        self._election.votes = {self.server: True} if self._is_voter else {}
        self._election.draw_deadline(self.now)
        if not self._decide_election():
            self._request_votes()

    def _campaign(self) -> None:
        self._campaigns += 1
        self._set_hard_state(self.term + 1, self.server)
        self.role = Role.CANDIDATE
        self.leader = None
        self._election.began_at = self.now
        self._election.votes = {}  # its own comes with `persisted` (D-7)
        self._election.draw_deadline(self.now)
        self._request_votes()

    def _count_own_vote(self) -> None:
        """Count the own vote. It is a vote like any other: it counts when it is durable (D-7)."""
        if self._is_voter:
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
            request = RequestVote(self.group, self.term, last_index, last_term, self._election.transfer)
        for voter in self.membership.electorate:
            if voter != self.server and voter not in self._election.votes:
                self._send_with_hard_state(voter, request)

    def _take_vote(self, sender: ServerId, granted: bool) -> None:
        self._election.take(sender, granted)
        self._decide_election()

    def _decide_election(self) -> bool:
        """Act on the votes so far; return True if the election is over."""
        result = self._vote_result()
        if result is VoteResult.PENDING:
            return False
        if result is VoteResult.LOST:
            self._become_follower(self.term, None)
        elif self.role is Role.PRE_CANDIDATE:
            self._campaign()
        else:
            self._become_leader()
        return True

    def _on_pre_vote_reply(self, sender: ServerId, message: PreVoteReply) -> None:
        if not message.granted and message.term > self.term:
            self._become_follower(message.term, None)
        elif self.role is Role.PRE_CANDIDATE and (not message.granted or message.term == self.term + 1):
            self._take_vote(sender, message.granted)

    def _on_request_vote_reply(self, sender: ServerId, message: RequestVoteReply) -> None:
        if message.term > self.term:
            self._become_follower(message.term, None)
        elif self.role is Role.CANDIDATE and message.term == self.term:
            self._take_vote(sender, message.granted)

    def _on_timeout_now(self, sender: ServerId, message: TimeoutNow) -> None:
        """Campaign at once (section 3.10), if this is the present leader's word and this server may lead."""
        if not self._obeys_timeout_now(sender, message):
            self._messages_ignored += 1
            return
        self._election.transfer = True
        self._campaign()

    def _obeys_timeout_now(self, sender: ServerId, message: TimeoutNow) -> bool:
        """Return whether to campaign as told.

        A late or repeated message names a term that is over, or comes while this server stands
        already.
        """
        return (
            message.term == self.term
            and self.role is Role.FOLLOWER
            and self.leader == sender
            and self._is_voter
            and not self.holds_back
        )

    # -- voters

    def _hears_leader(self) -> bool:
        """Return whether a leader is alive: then nobody helps to depose it (stickiness, section 4.2.3)."""
        if self.role is Role.LEADER:
            return True
        return self.leader is not None and self._election.trusts_leader(self.now)

    def _log_is_current(self, last_log_index: int, last_log_term: int) -> bool:
        """Return whether a log that ends there is at least as up-to-date as ours (section 3.6.1).

        The term counts first.
        """
        return (last_log_term, last_log_index) >= (self.log.last_term, self.log.last_index)

    def _on_pre_vote(self, sender: ServerId, message: PreVote) -> None:
        if not self._may_vote():
            return
        granted = (
            message.term > self.term
            and not self._hears_leader()
            and self._log_is_current(message.last_log_index, message.last_log_term)
        )
        term = message.term if granted else self.term
        self._send_with_hard_state(sender, PreVoteReply(self.group, term, granted))

    def _on_request_vote(self, sender: ServerId, message: RequestVote) -> None:
        if not self._may_vote():
            return
        if message.term > self.term:
            if self._hears_leader() and not message.transfer:
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
