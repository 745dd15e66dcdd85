"""Claims of "In Search of an Understandable Consensus Algorithm" (extended) and the dissertation behind it.

One test per claim, named after it and citing its section.
"""

from __future__ import annotations

import pytest

from tests.unit.raft.checkers import Checkers
from tests.unit.raft.network import (
    GROUP,
    SETTINGS,
    Network,
    drain,
    entries_of,
    hear,
    instance_of,
    lead,
    make_raft,
    membership_of,
    of_kind,
)
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
)
from zraft.raft.role import Role
from zraft_core.ids import ServerId

TIMEOUT = SETTINGS.election_timeout_ticks


def campaign(server: int = 1, **arguments: object):  # type: ignore[no-untyped-def]
    """A candidate that has persisted its vote and asked everybody."""
    raft = make_raft(server, **arguments)  # type: ignore[arg-type]
    raft.tick(2 * TIMEOUT)
    drain(raft)
    for voter in raft.membership.voters:
        if raft.role is Role.PRE_CANDIDATE and voter != raft.server:
            raft.step(voter, instance_of(voter), PreVoteReply(GROUP, raft.term + 1, True))
    return raft, drain(raft)


# -- section 5.1


def test_servers_start_as_followers() -> None:
    """5.2."""
    assert make_raft(1).role is Role.FOLLOWER


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(GROUP, 9, 1, 0),
        AppendEntries(GROUP, 9, 0, 0, 0, entries_of([9])),
        RequestVoteReply(GROUP, 9, False),
        AppendEntriesReply(GROUP, 9, False, 0),
        HeartbeatReply(GROUP, 9, 1, 0),
        PreVoteReply(GROUP, 9, False),
    ],
    ids=lambda message: type(message).__name__,
)
def test_larger_term_makes_any_server_a_follower_of_it(message) -> None:  # type: ignore[no-untyped-def]
    """5.1: candidates and leaders that discover a larger term revert to follower at once."""
    leader = make_raft(1)
    lead(leader)
    candidate, _ = campaign()
    for raft in (leader, candidate, make_raft(1)):
        hear(raft, 2, message)
        assert (raft.role, raft.term) == (Role.FOLLOWER, 9)


def test_request_of_an_older_term_is_rejected_with_the_newer_one() -> None:
    """5.1."""
    raft = make_raft(1, terms=(5,))
    assert of_kind(hear(raft, 2, RequestVote(GROUP, 4, 9, 4)), RequestVoteReply) == [
        RequestVoteReply(GROUP, 5, False)
    ]
    (reply,) = of_kind(hear(raft, 2, AppendEntries(GROUP, 4, 0, 0, 0, entries_of([4]))), AppendEntriesReply)
    assert (reply.term, reply.accepted) == (5, False)
    # Round 0 answers nothing: the round number is of another leadership than the term of the reply.
    assert of_kind(hear(raft, 2, Heartbeat(GROUP, 4, 3, 0)), HeartbeatReply) == [
        HeartbeatReply(GROUP, 5, 0, 1)
    ]
    assert raft.leader is None


# -- section 5.2


def test_leader_sends_heartbeats_to_all_followers_every_interval() -> None:
    """5.2."""
    raft = make_raft(1)
    lead(raft)
    for _ in range(3):
        raft.tick(SETTINGS.heartbeat_ticks)
        assert sorted(to for to, m in drain(raft) if isinstance(m, Heartbeat)) == [2, 3]


def test_follower_that_hears_nothing_for_an_election_timeout_campaigns() -> None:
    """5.2: increments its term, votes for itself, asks all others."""
    raft, messages = campaign(terms=(1, 1))
    assert (raft.role, raft.term) == (Role.CANDIDATE, 2)
    assert [(to, m) for to, m in messages if isinstance(m, RequestVote)] == [
        (2, RequestVote(GROUP, 2, 2, 1)),
        (3, RequestVote(GROUP, 2, 2, 1)),
    ]


def test_heartbeats_keep_a_follower_from_campaigning() -> None:
    """5.2."""
    raft = make_raft(2)
    for _ in range(20):
        raft.tick(TIMEOUT - 1)
        hear(raft, 1, Heartbeat(GROUP, 1, 1, 0))
        assert raft.role is Role.FOLLOWER


@pytest.mark.parametrize(
    ("servers", "grants", "role"),
    [
        (3, 1, Role.LEADER),
        (5, 1, Role.CANDIDATE),
        (5, 2, Role.LEADER),
        (4, 1, Role.CANDIDATE),
        (4, 2, Role.LEADER),
    ],
)
def test_candidate_wins_with_the_votes_of_a_majority(servers: int, grants: int, role: Role) -> None:
    """5.2."""
    raft, _ = campaign(membership=membership_of(range(1, servers + 1)))
    for server in range(2, 2 + grants):
        hear(raft, server, RequestVoteReply(GROUP, raft.term, True))
    assert raft.role is role


def test_server_votes_for_one_candidate_of_a_term_first_come_first_served() -> None:
    """5.2."""
    raft = make_raft(3)
    for sender, granted in ((1, True), (2, False), (1, True)):
        (reply,) = of_kind(hear(raft, sender, RequestVote(GROUP, 1, 0, 0)), RequestVoteReply)
        assert reply.granted is granted


def test_candidate_that_hears_a_leader_of_its_term_becomes_its_follower() -> None:
    """5.2."""
    raft, _ = campaign()
    hear(raft, 2, Heartbeat(GROUP, raft.term, 1, 0))
    assert (raft.role, raft.leader) == (Role.FOLLOWER, 2)


def test_candidate_without_a_majority_times_out_and_tries_again() -> None:
    """5.2: split vote."""
    raft, _ = campaign()
    first = raft.term
    raft.tick(2 * TIMEOUT)
    drain(raft)
    hear(raft, 2, PreVoteReply(GROUP, first + 1, True))
    assert (raft.role, raft.term) == (Role.CANDIDATE, first + 1)


def test_election_timeouts_are_spread_over_the_whole_interval() -> None:
    """5.2: randomised between the minimum and twice of it, anew for every wait."""
    raft = make_raft(2)
    waits = set()
    for _ in range(200):
        hear(raft, 1, Heartbeat(GROUP, 1, 1, 0))
        waits.add(int((raft._election.deadline - raft.now) / TIMEOUT * 10))
        raft.tick(1)
    assert waits == set(range(10, 20))


# -- section 5.3


def test_leader_replicates_a_command_and_commits_it_on_a_majority() -> None:
    """5.3: five servers; the third copy commits, and all entries before it too."""
    raft = make_raft(1, membership=membership_of(range(1, 6)))
    lead(raft, (2, 3))
    index = raft.propose(b"x", 1)
    assert index == 2
    drain(raft)
    hear(raft, 2, AppendEntriesReply(GROUP, 1, True, 2))
    assert raft.commit_index == 0
    hear(raft, 4, AppendEntriesReply(GROUP, 1, True, 2))
    assert raft.commit_index == 2


def test_follower_learns_what_is_committed_from_the_leader() -> None:
    """5.3: up to what this message verified."""
    raft = make_raft(2)
    hear(raft, 1, AppendEntries(GROUP, 1, 0, 0, 5, entries_of([1, 1])))
    assert raft.commit_index == 2


FIGURE_7_LEADER = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)


@pytest.mark.parametrize(
    "follower",
    [
        (1, 1, 1, 4, 4, 5, 5, 6, 6),
        (1, 1, 1, 4),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
        (1, 1, 1, 4, 4, 4, 4),
        (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
        (),
    ],
    ids=["a", "b", "c", "d", "e", "f", "empty"],
)
def test_leader_brings_every_log_of_figure_7_to_its_own(follower: tuple[int, ...]) -> None:
    """5.3, figure 7: by forcing the follower's log to duplicate its own from where they agree."""
    network = Network(
        3,
        logs={1: FIGURE_7_LEADER, 2: FIGURE_7_LEADER, 3: follower},
        terms={1: 7, 2: 7, 3: 7},
    )
    checkers = Checkers(network)
    # Of the followers only S2 may vote, as with c and d the follower's log is longer than the leader's.
    network.cut |= {(1, 3), (3, 1)}
    leader = network.elect(1)
    network.heal()
    leader.propose(b"new", 1)
    network.run(6 * SETTINGS.heartbeat_ticks)
    disk = network.disks[ServerId(3)]
    assert [entry.term for entry in disk.entries] == [*FIGURE_7_LEADER, 8, 8]
    assert disk.entries == network.disks[ServerId(1)].entries
    checkers.finish(commits=12)


def test_leader_never_overwrites_or_deletes_its_own_entries() -> None:
    """5.3: leader append-only."""
    raft = make_raft(1, terms=(1, 1, 2))
    before = raft.log.slice(1, 4, 10_000)
    lead(raft)
    for server in (2, 3):
        hear(raft, server, AppendEntriesReply(GROUP, raft.term, False, 0, 3, 1, 0))
    assert raft.log.slice(1, 4, 10_000) == before


# -- section 5.4


@pytest.mark.parametrize(
    ("own", "last_log_index", "last_log_term", "granted"),
    [
        ((1,), 1, 1, True),
        ((1,), 2, 1, True),
        ((1, 1), 1, 1, False),
        ((1,), 1, 2, True),
        ((1, 1), 1, 2, True),
        ((2,), 2, 1, False),
        ((2, 1 + 1), 2, 1, False),
    ],
)
def test_voter_denies_its_vote_to_a_log_less_up_to_date_than_its_own(
    own: tuple[int, ...], last_log_index: int, last_log_term: int, granted: bool
) -> None:
    """5.4.1; for pre-votes too (dissertation 9.6)."""
    raft = make_raft(2, terms=own)
    (pre_vote,) = of_kind(hear(raft, 1, PreVote(GROUP, 9, last_log_index, last_log_term)), PreVoteReply)
    assert pre_vote.granted is granted
    (vote,) = of_kind(hear(raft, 1, RequestVote(GROUP, 9, last_log_index, last_log_term)), RequestVoteReply)
    assert vote.granted is granted


def test_leader_commits_entries_of_its_own_term_only_by_counting() -> None:
    """5.4.2."""
    raft = make_raft(1, terms=(1, 2))
    lead(raft)
    assert raft.term == 3
    hear(raft, 2, AppendEntriesReply(GROUP, 3, True, 2))
    assert raft.commit_index == 0
    hear(raft, 2, AppendEntriesReply(GROUP, 3, True, 3))
    assert raft.commit_index == 3


def test_leader_of_a_later_term_has_all_committed_entries() -> None:
    """5.4.3: leader completeness, over a chain of leaderships with one server down each time."""
    network = Network(3)
    checkers = Checkers(network)
    network.elect(1)
    for turn in range(6):
        leader = network.leader
        assert leader is not None
        for _ in range(3):
            leader.propose(b"%d" % turn, 1)
        network.settle()
        down = leader.server
        network.isolate(down)
        network.run(6 * TIMEOUT)
        network.heal()
        network.run(2 * SETTINGS.heartbeat_ticks)
    network.run(3 * TIMEOUT)
    checkers.finish(commits=18, terms=7)


# -- section 5.5, 5.6


def test_requests_are_repeated_until_answered_and_repetition_does_no_harm() -> None:
    """5.5."""
    raft, _ = campaign()
    hear(raft, 2, RequestVoteReply(GROUP, raft.term, False))
    raft.tick(SETTINGS.heartbeat_ticks)
    assert [to for to, m in drain(raft) if isinstance(m, RequestVote)] == [3]


# -- dissertation


def test_pre_vote_changes_no_state_of_the_voter() -> None:
    """9.6."""
    raft = make_raft(2, terms=(1,))
    raft.step(ServerId(1), instance_of(1), PreVote(GROUP, 7, 5, 6))
    ready = raft.ready()
    assert ready.write is None
    assert ready.messages == ((1, PreVoteReply(GROUP, 7, True)),)
    assert raft.term == 1
    assert of_kind(hear(raft, 3, PreVote(GROUP, 7, 5, 6)), PreVoteReply) == [PreVoteReply(GROUP, 7, True)]


def test_server_without_a_majority_of_pre_votes_keeps_its_term() -> None:
    """9.6."""
    raft = make_raft(1, terms=(1,))
    raft.tick(2 * TIMEOUT)
    drain(raft)
    for server in (2, 3):
        hear(raft, server, PreVoteReply(GROUP, 1, False))
    assert (raft.role, raft.term) == (Role.FOLLOWER, 1)


def test_new_leader_commits_a_noop_before_anything_is_proposed() -> None:
    """6.4, and 5.4.2 of the paper: its no-op commits what earlier leaders left."""
    network = Network(3, logs={1: (1, 1), 2: (1, 1), 3: (1,)})
    leader = network.elect(1)
    assert leader.noop_index == 3
    assert {raft.commit_index for raft in network.rafts.values()} == {3}


def test_single_server_elects_itself_and_commits_alone() -> None:
    """5.2 for a cluster of one: a majority of one, after its own disk."""
    network = Network(1)
    raft = network.elect(1)
    assert raft.propose(b"x", 1) == 2
    assert raft.commit_index == 1
    raft.read_index(5)
    network.settle()
    assert raft.commit_index == 2
    assert [context for context, _ in network.read_states[1]] == [5]
    network.run(5 * TIMEOUT)
    assert raft.role is Role.LEADER
