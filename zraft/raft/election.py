"""Elections of a server: deadlines, patience with a leader, ballots.

Nothing here grants a vote or changes a role; that is for who knows term and log.
"""

from __future__ import annotations

import random

from zraft.raft.membership.quorum import VoteResult, vote_result
from zraft.raft.membership.value import Membership
from zraft.raft.settings import RaftSettings
from zraft_core.ids import ServerId


class Election:
    """Timers of all elections, and the votes of the present one.

    Attributes:
        deadline: tick from which on this server campaigns unless it hears of a leader.
        repeat_at: tick at which voters that have not answered are asked again.
        began_at: tick at which the newest campaign began.
        heard_leader_at: tick at which a leader was last heard.
        lost_leader: the connection to the leader's process has ended since it was last heard.
        votes: by voter, whether it was granted.
        transfer: the leader asked for the present campaign (section 3.10).
    """

    __slots__ = (
        "_rng",
        "_settings",
        "began_at",
        "deadline",
        "heard_leader_at",
        "lost_leader",
        "repeat_at",
        "transfer",
        "votes",
    )

    def __init__(self, settings: RaftSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self.heard_leader_at = 0
        self.lost_leader = False
        self.deadline = 0.0
        self.repeat_at = 0
        self.began_at = 0
        self.votes: dict[ServerId, bool] = {}
        self.transfer = False
        self.draw_deadline(0)

    def draw_deadline(self, now: int, *, heard_leader: bool = False) -> None:
        """Draw the time of the next candidacy, maybe because the leader was heard now.

        It is continuous, so that two servers hardly ever time out together (section 3.4).
        """
        if heard_leader:
            self.heard_leader_at = now
            self.lost_leader = False
        self.deadline = now + self._settings.election_timeout_ticks * (1.0 + self._rng.random())

    def heard_leader(self, now: int) -> None:
        """Note that a leader was heard now."""
        self.heard_leader_at = now
        self.lost_leader = False

    def lose_leader(self, now: int, spread_ticks: int) -> None:
        """Note that the connection to the leader's process has ended, and bring the candidacy forward.

        Servers that note it at the same moment draw different times, over `spread_ticks`.
        """
        self.lost_leader = True
        earliest = max(now, self.heard_leader_at + self._settings.lost_leader_ticks)
        self.deadline = min(self.deadline, earliest + spread_ticks * self._rng.random())

    def trusts_leader(self, now: int) -> bool:
        """Return whether a leader was heard within the time in which it need not be replaced (section 4.2.3)."""
        settings = self._settings
        patience = settings.lost_leader_ticks if self.lost_leader else settings.election_timeout_ticks
        return now - self.heard_leader_at < patience

    def take(self, voter: ServerId, granted: bool) -> None:
        """Count a vote: one per voter (section 3.4); a late refusal of an earlier question does not take it back."""
        self.votes[voter] = granted or self.votes.get(voter, False)

    def result(self, membership: Membership) -> VoteResult:
        """Return the election's result by the votes so far."""
        return vote_result(membership, self.votes)
