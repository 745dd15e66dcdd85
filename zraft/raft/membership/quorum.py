"""Majorities: how many servers are enough, what a majority has reached, and both of them while joint.

Everything that a quorum decides (votes, commit, rounds of heartbeats) asks here, so that joint consensus
(Ongaro's dissertation, section 4.3) is one rule in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum

from zraft.raft.membership.value import Membership
from zraft_core.ids import ServerId


class VoteResult(Enum):
    """Results of an election so far."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(voters: int) -> int:
    """Return the smallest number of voters of which any two sets share a member."""
    return voters // 2 + 1


def majority_value(values: Iterable[int]) -> int:
    """Return the greatest value that a majority has reached, given one value per voter; 0 without voters."""
    ordered = sorted(values, reverse=True)
    return ordered[len(ordered) // 2] if ordered else 0


def majority_vote(voters: Collection[ServerId], votes: Mapping[ServerId, bool]) -> VoteResult:
    """Count one vote per voter; whoever is no voter does not count, and nobody wins among no voters."""
    needed = majority(len(voters))
    granted = refused = 0
    for voter in voters:
        vote = votes.get(voter)
        if vote is not None:
            granted += vote
            refused += not vote
    if granted >= needed:
        return VoteResult.WON
    return VoteResult.LOST if len(voters) - refused < needed else VoteResult.PENDING


def agreed_value(membership: Membership, value_of: Callable[[ServerId], int]) -> int:
    """Return the greatest value that a majority of the voters and, while joint, of the outgoing ones has reached."""
    agreed = majority_value(map(value_of, membership.voters))
    if membership.joint:
        agreed = min(agreed, majority_value(map(value_of, membership.outgoing)))
    return agreed


def vote_result(membership: Membership, votes: Mapping[ServerId, bool]) -> VoteResult:
    """Return the result by a majority of both sets: won with both, lost as soon as one cannot be had."""
    result = majority_vote(membership.voters, votes)
    if not membership.joint or result is VoteResult.LOST:
        return result
    outgoing = majority_vote(membership.outgoing, votes)
    return result if outgoing is VoteResult.WON else outgoing
