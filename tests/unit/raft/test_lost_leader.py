"""The end of a connection to the leader's process changes how long its silence is borne, and nothing else."""

from __future__ import annotations

import pytest

from tests.unit.raft.network import GROUP, SETTINGS, hear, lead, make_raft, of_kind
from zraft.raft.core import Raft
from zraft.raft.messages import Heartbeat, PreVote, PreVoteReply
from zraft.raft.role import Role
from zraft_core.ids import ServerId

LEADER, OTHER = ServerId(1), ServerId(3)
LOST = SETTINGS.lost_leader_ticks
SPREAD = SETTINGS.idle_heartbeat_ticks
BEAT = Heartbeat(GROUP, 1, 0, 0)


def follower(seed: int = 0) -> Raft:
    """Server 2, which has just heard of the leader, server 1."""
    raft = make_raft(2, seed=seed)
    hear(raft, LEADER, BEAT)
    return raft


def is_helped(raft: Raft) -> bool:
    """Return whether this server would elect another one now."""
    reply = of_kind(hear(raft, OTHER, PreVote(GROUP, 2, 0, 0)), PreVoteReply)[0]
    return reply.granted


@pytest.mark.parametrize("seed", range(20))
def test_a_follower_whose_leaders_process_has_ended_stands_after_it_missed_two_heartbeats(seed: int) -> None:
    raft = follower(seed)
    raft.tick(5)
    raft.note_lost(LEADER, SPREAD)
    roles = []
    for ticks in (LOST - 6, SPREAD + 1):
        raft.tick(ticks)
        roles.append(raft.role)
    assert roles == [Role.FOLLOWER, Role.PRE_CANDIDATE]


def test_whoever_ticks_a_follower_that_lost_its_leader_is_told_of_the_earlier_time() -> None:
    raft = follower()
    raft.note_lost(LEADER, SPREAD)
    assert LOST <= raft.alarm_in <= LOST + SPREAD


def test_the_shorter_patience_is_shorter_than_an_election_timeout_and_longer_than_a_round_of_heartbeats() -> (
    None
):
    assert SETTINGS.idle_heartbeat_ticks < LOST < SETTINGS.election_timeout_ticks


def test_followers_that_lose_their_leader_in_one_moment_do_not_stand_in_one_moment() -> None:
    deadlines = set()
    for seed in range(20):
        raft = follower(seed)
        raft.note_lost(LEADER, SPREAD)
        deadlines.add(raft.alarm_in)
    assert len(deadlines) == 20


def test_a_leader_that_is_heard_after_all_has_its_time_back() -> None:
    raft = follower()
    raft.note_lost(LEADER, SPREAD)
    raft.tick(LOST - 1)
    hear(raft, LEADER, BEAT)
    raft.tick(SETTINGS.election_timeout_ticks - 1)
    assert raft.role is Role.FOLLOWER
    assert not is_helped(raft)


def test_a_follower_that_has_lost_its_leader_helps_to_replace_it_as_early_as_it_would_stand() -> None:
    raft = follower()
    raft.note_lost(LEADER, SPREAD)
    raft.tick(LOST - 1)
    assert not is_helped(raft)
    raft.tick(1)
    assert raft.role is Role.FOLLOWER
    assert is_helped(raft)


def test_a_follower_that_still_has_its_leader_does_not_help_who_has_lost_it() -> None:
    """So one connection that ends, for whatever reason, replaces nobody."""
    raft = follower()
    raft.tick(SETTINGS.election_timeout_ticks - 1)
    assert not is_helped(raft)


def test_the_end_of_another_server_or_of_a_follower_changes_nothing() -> None:
    raft = follower()
    raft.note_lost(OTHER, SPREAD)
    raft.tick(SETTINGS.election_timeout_ticks - 1)
    assert raft.role is Role.FOLLOWER
    leader = make_raft(1)
    lead(leader)
    leader.note_lost(OTHER, SPREAD)
    assert leader.role is Role.LEADER


def test_losing_a_leader_twice_draws_no_other_time() -> None:
    """Or else a connection that ends again and again would bring the election ever nearer."""
    raft = follower()
    raft.note_lost(LEADER, SPREAD)
    drawn = raft.alarm_in
    for _ in range(50):
        raft.note_lost(LEADER, SPREAD)
    assert raft.alarm_in == drawn
