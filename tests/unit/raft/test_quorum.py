"""Majorities against their definition, over every small case."""

from __future__ import annotations

from itertools import product

import pytest

from zraft.raft.membership.quorum import VoteResult, majority, majority_value, majority_vote
from zraft_core.ids import ServerId


@pytest.mark.parametrize("voters", range(1, 8))
def test_two_majorities_always_share_a_voter_and_are_the_smallest_that_do(voters: int) -> None:
    assert 2 * majority(voters) > voters
    assert 2 * (majority(voters) - 1) <= voters


@pytest.mark.parametrize("voters", range(1, 6))
def test_majority_value_is_the_greatest_that_a_majority_reached(voters: int) -> None:
    for values in product(range(4), repeat=voters):
        expected = max(v for v in range(4) if sum(value >= v for value in values) >= majority(voters))
        assert majority_value(values) == expected


@pytest.mark.parametrize("voters", range(6))
def test_majority_vote_is_decided_as_soon_as_it_cannot_change(voters: int) -> None:
    servers = [ServerId(server) for server in range(1, voters + 1)]
    for votes in product((True, False, None), repeat=voters):
        cast = {server: vote for server, vote in zip(servers, votes, strict=True) if vote is not None}
        cast[ServerId(99)] = True
        open_votes = votes.count(None)
        if votes.count(True) >= majority(voters):
            expected = VoteResult.WON
        elif votes.count(True) + open_votes < majority(voters):
            expected = VoteResult.LOST
        else:
            expected = VoteResult.PENDING
        assert majority_vote(servers, cast) is expected


def test_nothing_is_reached_among_no_voters() -> None:
    assert majority_value(()) == 0
    assert majority_vote((), {}) is VoteResult.LOST
