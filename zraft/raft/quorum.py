"""Majorities: how many servers are enough, and what a majority has reached."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum

from zraft.ids import ServerId


class VoteResult(Enum):
    """Where an election stands."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(voters: int) -> int:
    """The smallest number of voters of which any two sets share a member."""
    return voters // 2 + 1


def majority_value(values: Iterable[int]) -> int:
    """The greatest value that a majority has reached, given one value per voter; 0 without voters."""
    ordered = sorted(values, reverse=True)
    return ordered[len(ordered) // 2] if ordered else 0


def vote_result(voters: Collection[ServerId], votes: Mapping[ServerId, bool]) -> VoteResult:
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
