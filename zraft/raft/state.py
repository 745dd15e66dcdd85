"""State of a group that a server holds in every role: term, vote, log, membership, waiting writes.

The part of `zraft.raft.core.Raft` that voting, following and leading share; which one of them acts is decided
there. Not for use of its own.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Container

from zraft.raft.election import Election
from zraft.raft.handover import Handover
from zraft.raft.log import Log
from zraft.raft.membership.departures import Departures
from zraft.raft.membership.quorum import VoteResult, agreed_value, majority
from zraft.raft.membership.value import Membership
from zraft.raft.messages import HardState, Message
from zraft.raft.outbox import Outbox
from zraft.raft.read_index import ReadIndexQueue
from zraft.raft.replication import Replication
from zraft.raft.role import Role
from zraft.raft.rounds import Rounds
from zraft.raft.settings import NEVER, RaftSettings
from zraft.raft.writes import Writes
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId, Instance, ServerId


class GroupState:
    """State and parts that all roles share.

    See `zraft.raft.core.Raft` for arguments, errors and public attributes.
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
        self.elected_by: tuple[ServerId, ...] = ()
        self.holds_back = False

        self._idle_heartbeat_ticks = settings.idle_heartbeat_ticks
        self._voted_for: ServerId | None = None
        began_anew = log.last_index < log.first_index
        if hard_state.term < log.last_term and not began_anew:
            raise StorageError(
                f"group {group}: the log ends in term {log.last_term} but the hard state is of term "
                f"{hard_state.term}, expected at least the former: the directory lost a write that it had "
                "confirmed; replace this server by a new one"
            )
        self._recover_hard_state(hard_state)
        self._bootstrap_membership = membership
        self.membership = membership
        self.members_changed_index = 0
        self._before: Membership | None = None  # the membership before it, if the log knows
        self._is_voter = False
        self._was_voter = False
        self._is_known = False
        # How many members are enough, if this server and all others of them vote, and nobody else does; else 0.
        self._majority = 0
        self._adopt_newest_membership()
        self._vouched: dict[ServerId, Instance] = {}

        self._writes = Writes(durable_index=log.last_index)
        self._outbox = Outbox()
        self._ack_index = 0  # to be acknowledged to the leader by the next ready(), 0 if nothing
        self._read_states: list[tuple[int, int]] = []
        self._election = Election(settings, rng)

        if hard_state.term < log.last_term:
            # A snapshot became durable, and a crash came before the write that follows it (`restore`).
            self._set_hard_state(log.last_term, None)

        # Leading.
        self._replication = Replication(group, settings, log)
        self.rounds = Rounds()
        self._reads = ReadIndexQueue(settings.pending_reads_max)
        # (index, bytes, servers whose clients wait, or None for all) of own entries that are not committed yet
        self._proposed: deque[tuple[int, int, frozenset[ServerId] | None]] = deque()
        self._uncommitted_bytes = 0
        self._tell_at: float = NEVER  # tick by which every follower in reach is told of the newest commit
        self._appended_at = 0  # tick of the newest own entry, and how long after the one before it came
        self._gap = 0
        self._put_off_at = 0  # tick at which entries were first put off, since all followers got theirs
        self._quickest: ServerId | None = None  # the follower whose answer committed an entry last
        self.attended: Container[ServerId] = ()
        """The servers whose clients would see it if entries came to them a little later."""
        self._departures = Departures()
        self.handover: Handover | None = None

        # Counters.
        self._messages_ignored = 0
        self._proposals_refused = 0
        self._reads_dropped = 0
        self._campaigns = 0

    @property
    def is_voter(self) -> bool:
        """True if this disk votes by the newest configuration, or, while that is joint, by the one before it."""
        return self._is_voter

    @property
    def durable_index(self) -> int:
        """The end of the log that survives a crash."""
        return self._writes.durable_index

    @property
    def voted_for(self) -> ServerId | None:
        """Whom it has given its vote in this term."""
        return self._voted_for

    @property
    def membership_committed(self) -> bool:
        """True if the newest membership is known to be committed."""
        return self.members_changed_index <= self.commit_index

    # -- who is who

    def _adopt_newest_membership(self) -> None:
        """Adopt the newest configuration in the log, committed or not: it holds as long as it is that (section 4.1)."""
        memberships = self.log.memberships
        before: Membership | None = None
        if not memberships:
            newest = self._bootstrap_membership
            self.members_changed_index = 0
        else:
            self.members_changed_index, payload = memberships[-1]
            newest = Membership.decode(payload)
            if len(memberships) > 1:
                before = Membership.decode(memberships[-2][1])
            elif self.members_changed_index >= self.log.first_index:
                before = self._bootstrap_membership
        self.membership = newest
        self._before = before
        me = (self.server, self.instance)
        self._is_voter = newest.has_voter(*me)
        self._was_voter = before is not None and before.has_voter(*me)
        all_vote = self._is_voter and not newest.joint and len(newest.voters) == len(newest.members)
        self._majority = majority(len(newest.voters)) if all_vote else 0
        self._is_known = any(
            known.has(*me) for known in (newest, before, self._bootstrap_membership) if known is not None
        )

    def _may_campaign(self) -> bool:
        """Return whether this server may campaign.

        A voter may; and one who was, until it knows that the change that ends this is committed.

        Until then its log may be the only one that a majority of the old configuration can be had with
        (section 4.2.2). Its own vote does not count.
        """
        if self.holds_back:
            return False
        return self._is_voter or (self._was_voter and not self.membership_committed)

    def _may_vote(self) -> bool:
        """Return whether this server may vote.

        Any member may, if asked: the asker counts by a configuration that may be newer than the one
        here.

        The one here may even be older than its own admission, from a snapshot of before it. A disk that is in
        no configuration known here, not even in the one that it was welcomed with, says nothing (D-1).
        """
        return self._is_known

    def _agreed(self, value_of: Callable[[ServerId], int]) -> int:
        """Return what a quorum has reached: while joint, both of them."""
        return agreed_value(self.membership, value_of)

    def _vote_result(self) -> VoteResult:
        """Return where the present election stands, by the configuration here."""
        return self._election.result(self.membership)

    # -- hard state, and what waits for it

    def _recover_hard_state(self, hard_state: HardState) -> None:
        self.term = hard_state.term
        self._voted_for = hard_state.voted_for

    def _set_hard_state(self, term: int, voted_for: ServerId | None) -> None:
        """Change term and vote together, in one durable record: a vote belongs to its term."""
        self.term = term
        self._voted_for = voted_for
        self._writes.replace_hard_state(HardState(term, voted_for))

    def _send_after(self, number: int, to: ServerId, message: Message) -> None:
        """Send once write `number`, maybe the one of the next ready(), is durable; at once if it is."""
        self._outbox.send_after(number, to, message)

    def _send_with_hard_state(self, to: ServerId, message: Message) -> None:
        """Send what claims nothing but term and vote, which are mostly durable."""
        number = self._writes.hard_state_write
        if number <= self._outbox.persisted:
            self._outbox.messages.append((to, message))
        else:
            self._send_after(number, to, message)

    # -- role and commit

    def _become_follower(self, term: int, leader: ServerId | None) -> None:
        assert term >= self.term
        if term > self.term:
            self._set_hard_state(term, None)
            self._ack_index = 0  # it was meant for the leader of the older term
        if self.role is Role.LEADER:
            self._stop_leading()
        self.role = Role.FOLLOWER
        self.leader = leader
        self._election.votes.clear()
        self._election.transfer = False
        self._election.draw_deadline(self.now)

    def _stop_leading(self) -> None:
        raise NotImplementedError

    def _commit_to(self, index: int) -> None:
        if index > self.commit_index:
            self.commit_index = index
