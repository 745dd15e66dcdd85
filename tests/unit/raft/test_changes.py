"""Changes of the membership and of the leader, step by step (dissertation, 3.10 and chapter 4; D-1, D-18)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from attrs import evolve

from tests.so_far import so_far
from tests.unit.raft.checkers import Checkers, Violation
from tests.unit.raft.network import (
    GROUP,
    SETTINGS,
    Network,
    drain,
    hear,
    instance_of,
    lead,
    make_raft,
    membership_of,
    of_kind,
)
from tests.unit.raft.planted import ReplacesVotersAtOnce
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import (
    UNKNOWN_INSTANCE,
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    Member,
    MemberRole,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from zraft.raft.role import Role
from zraft_core.errors import ConfigError
from zraft_core.ids import Instance, ServerId

TIMEOUT = SETTINGS.election_timeout_ticks
S1, S2, S3, S4, S5 = map(ServerId, range(1, 6))


def leading(network: Network, server: int = 1) -> Raft:
    raft = network.elect(server)
    network.run(2 * SETTINGS.heartbeat_ticks)
    return raft


def acknowledge(raft: Raft, followers: Iterable[int], index: int) -> list[tuple[int, object]]:
    out: list[tuple[int, object]] = []
    for follower in followers:
        out += hear(raft, follower, AppendEntriesReply(GROUP, raft.term, True, index))
    return out


def joint(voters: Iterable[int], outgoing: Iterable[int]) -> Membership:
    voters, outgoing = tuple(voters), tuple(outgoing)
    members = {
        ServerId(server): Member(
            instance_of(server), MemberRole.VOTER if server in voters else MemberRole.LEAVING
        )
        for server in {*voters, *outgoing}
    }
    return Membership(members, tuple(map(ServerId, outgoing)))


def membership_entry(index: int, membership: Membership, term: int = 1) -> Entry:
    return Entry(index, term, EntryKind.MEMBERSHIP, 1, 0, membership.encode())


def make_leader(membership: Membership, server: int = 1, votes: tuple[int, ...] = (2,)) -> Raft:
    """Leads with a committed no-op; its log began with another entry."""
    raft = make_raft(server, terms=(1,), membership=membership)
    lead(raft, votes)
    acknowledge(raft, votes, raft.log.last_index)
    assert raft.commit_index == raft.log.last_index
    return raft


# -- what may be changed, and when


def test_no_change_before_an_entry_of_the_own_term_is_committed() -> None:
    """Flaw 15, the bug of single-server changes found in 2015."""
    raft = make_raft(1, terms=(1,))
    lead(raft)
    target = raft.membership.without(S3)
    assert raft.change_membership(target) is None
    acknowledge(raft, (2,), 2)
    assert raft.change_membership(target) == 3


def test_no_second_change_until_the_final_configuration_of_the_first_is_committed() -> None:
    """Section 4.1: one at a time."""
    raft = make_leader(membership_of((1, 2, 3), learners=(4, 5)))
    index = raft.change_membership(raft.membership.with_role(S4, MemberRole.VOTER))
    assert index == 3
    again = raft.membership.with_role(S5, MemberRole.VOTER)
    assert raft.change_membership(again) is None
    drain(raft)
    acknowledge(raft, (2, 3), 3)
    assert raft.commit_index == 3
    assert not raft.membership.joint
    assert not so_far(raft.membership_committed)
    assert raft.change_membership(again) is None
    acknowledge(raft, (2, 3), 4)
    assert raft.membership_committed
    assert raft.change_membership(again) == 5


def test_who_does_not_lead_changes_nothing() -> None:
    raft = make_raft(1)
    assert raft.change_membership(raft.membership.without(S3)) is None
    assert raft.transfer_leadership(S2) is False


def test_change_to_what_holds_already_needs_no_entry() -> None:
    raft = make_leader(membership_of((1, 2, 3)))
    assert raft.change_membership(raft.membership.members) == raft.members_changed_index
    assert raft.log.last_index == 2


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ({}, "no voter"),
        ({S1: Member(instance_of(1), MemberRole.OBSERVER)}, "no voter"),
        ({S1: Member(instance_of(1)), S2: Member(instance_of(9))}, "remove it first"),
        ({S1: Member(instance_of(1)), S2: Member(instance_of(9), MemberRole.LEARNER)}, "remove it first"),
        ({S1: Member(instance_of(1)), S5: Member(instance_of(5))}, "learner first"),
        ({S1: Member(instance_of(1)), S4: Member(instance_of(9))}, "learner first"),
        ({S1: Member(instance_of(1)), S4: Member(UNKNOWN_INSTANCE)}, "never seen"),
        ({S1: Member(instance_of(1)), S4: Member(instance_of(1), MemberRole.LEARNER)}, "copy"),
        ({S1: Member(instance_of(1)), S2: Member(instance_of(2), MemberRole.LEAVING)}, "LEAVING"),
        ({S1: Member(instance_of(1)), ServerId(255): Member(instance_of(5), MemberRole.LEARNER)}, "254"),
        ({S1: Member(instance_of(1), address="x" * 400)}, "address"),
    ],
)
def test_unsafe_change_is_refused_with_the_reason(target: dict[ServerId, Member], text: str) -> None:
    """D-1: who votes is a disk that has proved to hold the log; a replaced one begins as a learner."""
    raft = make_leader(membership_of((1, 2, 3), learners=(4,)))
    with pytest.raises(ConfigError, match=text):
        raft.change_membership(target)
    assert raft.log.last_index == 2


def test_same_voters_need_one_entry_and_other_voters_a_joint_one() -> None:
    """Section 4.3."""
    raft = make_leader(membership_of((1, 2, 3)))
    raft.change_membership(raft.membership.with_member(S4, Member(UNKNOWN_INSTANCE, MemberRole.LEARNER)))
    assert not so_far(raft.membership.joint)
    acknowledge(raft, (2,), 3)
    raft.change_membership({S1: raft.membership.members[S1]})
    assert raft.membership.joint
    assert raft.membership.outgoing == (1, 2, 3)
    assert raft.membership.voters == (1,)
    assert raft.membership.electorate == (1, 2, 3)
    assert {server: member.role for server, member in raft.membership.members.items()} == {
        1: MemberRole.VOTER,
        2: MemberRole.LEAVING,
        3: MemberRole.LEAVING,
    }
    assert raft.membership.final() == membership_of((1,))


# -- both majorities


@pytest.mark.parametrize(
    ("followers", "committed"),
    [((2, 3), False), ((4, 5), False), ((2, 4), True), ((3, 5), True), ((2,), False), ((4,), False)],
)
def test_joint_entry_is_committed_by_both_majorities(followers: tuple[int, ...], committed: bool) -> None:
    """Section 4.3: {1, 2, 3} and {1, 4, 5}, the leader in both."""
    raft = make_leader(membership_of((1, 2, 3), learners=(4, 5)))
    target = {server: Member(instance_of(server)) for server in (S1, S4, S5)}
    index = raft.change_membership(target)
    drain(raft)
    acknowledge(raft, followers, 3)
    assert (raft.commit_index == index) is committed


@pytest.mark.parametrize(
    ("votes", "wins"), [((2, 3), False), ((4, 5), False), ((2, 4), True), ((3, 5), True), ((3,), False)]
)
def test_candidate_of_a_joint_configuration_needs_both_majorities(votes: tuple[int, ...], wins: bool) -> None:
    """Section 4.3, for the vote and for the pre-vote."""
    log = Log(entries=(membership_entry(1, joint((1, 4, 5), (1, 2, 3))),))
    raft = make_raft(1, log=log)
    raft.tick(2 * TIMEOUT)
    assert {to for to, _ in drain(raft)} == {2, 3, 4, 5}
    for voter in votes:
        hear(raft, voter, PreVoteReply(GROUP, raft.term + 1, True))
    assert (raft.role is Role.CANDIDATE) is wins
    if wins:
        for voter in votes:
            hear(raft, voter, RequestVoteReply(GROUP, raft.term, True))
        assert raft.role is Role.LEADER


def test_reads_and_check_quorum_need_both_majorities_while_joint() -> None:
    """Sections 4.3, 6.2 and 6.4: a leader that hears one majority only proves nothing and steps down."""
    raft = make_leader(membership_of((1, 2, 3), learners=(4, 5)))
    raft.change_membership({server: Member(instance_of(server)) for server in (S1, S4, S5)})
    drain(raft)
    raft.read_index(7)
    raft.ready()
    number = raft.round
    for follower in (2, 3):
        raft.step(ServerId(follower), instance_of(follower), HeartbeatReply(GROUP, raft.term, number, 3))
    assert raft.quorum_round < number
    assert raft.ready().read_states == ()
    for _ in range(2 * TIMEOUT // 10):
        raft.tick(10)
        if raft.role is Role.LEADER:
            drain(raft)
            for follower in (2, 3):
                hear(raft, follower, HeartbeatReply(GROUP, raft.term, raft.round, 3))
    assert raft.role is Role.FOLLOWER


def test_leader_finishes_the_change_once_the_joint_entry_is_committed() -> None:
    network = Network(3, learners=(4,))
    raft = leading(network)
    index = raft.change_membership(raft.membership.with_role(S4, MemberRole.VOTER))
    assert index is not None
    network.settle()
    assert raft.log.entry(index + 1).kind is EntryKind.MEMBERSHIP
    assert [each.membership.voters for each in network.rafts.values()] == [(1, 2, 3, 4)] * 4
    assert raft.membership_committed
    assert raft.members_changed_index == index + 1


def test_new_leader_finishes_a_change_only_after_its_own_entry_is_committed() -> None:
    """Section 4.3, and flaw 11: the joint entry of an older term is not committed by counting."""
    log = Log(entries=(membership_entry(1, joint((1, 2), (1, 2, 3))),))
    raft = make_raft(1, log=log, term=1)
    lead(raft, (2,))
    assert raft.role is Role.LEADER
    acknowledge(raft, (2,), 1)
    assert so_far(raft.membership.joint)
    assert raft.log.last_index == 2
    acknowledge(raft, (2,), 2)
    assert not raft.membership.joint
    assert raft.membership == membership_of((1, 2))
    assert raft.log.last_index == 3


def test_truncated_joint_entry_gives_the_old_configuration_back() -> None:
    """A change that never was committed is undone with its entry."""
    raft = make_raft(2, terms=(1,))
    change = membership_entry(2, joint((1, 4), (1, 2, 3)))
    hear(raft, 1, AppendEntries(GROUP, 1, 1, 1, 0, (evolve(change, position=2),)))
    assert raft.membership.joint
    hear(raft, 3, AppendEntries(GROUP, 2, 1, 1, 0, (Entry(2, 2, EntryKind.NOOP, 2, 0, b""),)))
    assert raft.membership == membership_of((1, 2, 3))
    assert raft.membership_committed is True
    assert raft.members_changed_index == 0


def test_cluster_goes_from_three_servers_to_three_others_with_the_leader_among_the_old() -> None:
    network = Network(3, learners=(4, 5, 6))
    raft = leading(network)
    target = {ServerId(server): Member(instance_of(server)) for server in (4, 5, 6)}
    assert raft.change_membership(target) is not None
    network.run(6 * TIMEOUT)
    leader = network.leader
    assert leader is not None
    assert leader.server in (4, 5, 6)
    assert raft.role is Role.FOLLOWER
    for server in (4, 5, 6):
        assert network.rafts[server].membership == Membership(target)
        assert network.rafts[server].commit_index == leader.commit_index
    term = leader.term
    network.run(20 * TIMEOUT)
    assert leader.role is Role.LEADER
    assert leader.term == term


# -- leaders and members that leave


def leaving_leader() -> Raft:
    """S1 leads {1, 2, 3} and has appended the final configuration {2, 3}; the joint one is committed."""
    raft = make_leader(membership_of((1, 2, 3)))
    raft.change_membership(raft.membership.without(S1))
    drain(raft)
    acknowledge(raft, (2, 3), 3)
    assert raft.membership == membership_of((2, 3))
    assert raft.role is Role.LEADER
    return raft


def test_leader_that_leaves_does_not_count_itself() -> None:
    """Section 4.2.2: {2, 3} needs both, whatever S1 holds."""
    raft = leaving_leader()
    acknowledge(raft, (2,), 4)
    assert raft.commit_index == 3
    acknowledge(raft, (3,), 4)
    assert raft.commit_index == 4


def test_leader_that_leaves_confirms_no_round_alone() -> None:
    """Check-quorum and ReadIndex of a leader that is no voter."""
    raft = leaving_leader()
    number = raft.request_round()
    drain(raft)
    assert raft.quorum_round < number
    hear(raft, 2, HeartbeatReply(GROUP, raft.term, number, 4))
    assert raft.quorum_round < number
    hear(raft, 3, HeartbeatReply(GROUP, raft.term, number, 4))
    assert raft.quorum_round == number
    raft.tick(2 * TIMEOUT)
    assert raft.role is not Role.LEADER


def test_leader_that_leaves_tells_the_commit_hands_over_and_goes() -> None:
    raft = leaving_leader()
    acknowledge(raft, (2,), 4)
    messages = acknowledge(raft, (3,), 4)
    commits = [m.leader_commit for to, m in messages if isinstance(m, Heartbeat) and to == 2]
    assert commits[-1] == 4
    assert of_kind(messages, TimeoutNow, to=2) == [TimeoutNow(GROUP, raft.term)]  # type: ignore[arg-type]
    assert raft.transferring
    assert raft.propose(b"", 1) is None
    hear(raft, 2, RequestVote(GROUP, raft.term + 1, 4, raft.term, transfer=True))
    assert raft.role is Role.FOLLOWER
    raft.tick(10 * TIMEOUT)
    assert raft.role is Role.FOLLOWER
    assert drain(raft) == []


def test_leader_that_leaves_goes_even_if_nobody_takes_over() -> None:
    raft = leaving_leader()
    acknowledge(raft, (2, 3), 4)
    for _ in range(TIMEOUT // 10 + 1):
        raft.tick(10)
        if raft.role is Role.LEADER:
            drain(raft)
            for follower in (2, 3):
                hear(raft, follower, HeartbeatReply(GROUP, raft.term, raft.round, 4))
    assert raft.role is Role.FOLLOWER
    assert raft.leader is None


def test_removed_server_is_told_for_an_election_timeout_and_its_answers_are_heard() -> None:
    """Section 4.2.2: who learns that it was removed disturbs nobody; then it is forgotten."""
    raft = make_leader(membership_of((1, 2, 3)))
    raft.change_membership(raft.membership.without(S3))
    drain(raft)
    acknowledge(raft, (2, 3), 3)
    assert 3 not in raft.membership.members
    acknowledge(raft, (2,), 4)
    assert raft.commit_index == 4
    messages = acknowledge(raft, (3,), 4)
    assert [m.leader_commit for to, m in messages if isinstance(m, Heartbeat) and to == 3] == [4]
    assert [each.server for each in raft.statistics().followers] == [2, 3]
    for _ in range(TIMEOUT // 10 + 2):
        raft.tick(10)
        drain(raft)
        hear(raft, 2, HeartbeatReply(GROUP, raft.term, raft.round, 4))
    assert [each.server for each in raft.statistics().followers] == [2]
    ignored = raft.statistics().messages_ignored_total
    acknowledge(raft, (3,), 4)
    assert raft.statistics().messages_ignored_total == ignored + 1


def test_another_disk_of_a_server_begins_with_nothing_acknowledged() -> None:
    """D-1: removed and added again with another instance, what the old disk acknowledged counts for nothing."""
    raft = make_leader(membership_of((1, 2, 3)))
    raft.change_membership(raft.membership.without(S3))
    drain(raft)
    acknowledge(raft, (2, 3), 3)
    acknowledge(raft, (2, 3), 4)
    fresh = Instance(b"another disk 123")
    raft.change_membership(raft.membership.with_member(S3, Member(fresh, MemberRole.LEARNER)))
    (row,) = [each for each in raft.statistics().followers if each.server == 3]
    assert row.match_index == 0
    ignored = raft.statistics().messages_ignored_total
    acknowledge(raft, (3,), 5)  # late, of the old disk
    assert raft.statistics().messages_ignored_total == ignored + 1
    raft.step(S3, fresh, AppendEntriesReply(GROUP, raft.term, True, 5))
    (row,) = [each for each in raft.statistics().followers if each.server == 3]
    assert row.match_index == 5


def test_member_that_was_never_seen_gets_nothing() -> None:
    """D-1: bytes for a disk that is not known yet would reach any."""
    raft = make_leader(membership_of((1, 2, 3)))
    raft.change_membership(raft.membership.with_member(S4, Member(UNKNOWN_INSTANCE, MemberRole.LEARNER)))
    assert {to for to, _ in drain(raft)} == {2}, "S3 has not answered its first entry yet"
    assert not raft.membership.has(S4, UNKNOWN_INSTANCE)


def test_removed_server_disturbs_nobody() -> None:
    """Flaw 18 and section 4.2.3: one that was cut off while it was removed comes back with old ideas."""
    network = Network(3)
    raft = leading(network)
    network.isolate(3)
    raft.change_membership(raft.membership.without(S3))
    network.run(3 * TIMEOUT)
    assert raft.membership.members.keys() == {1, 2}
    network.heal()
    term = raft.term
    for _ in range(10):
        network.run(TIMEOUT)
        assert raft.role is Role.LEADER
        assert raft.term == term
    assert network.rafts[3].membership.voters == (1, 2, 3)


def test_voter_of_before_stands_only_until_it_knows_that_the_change_is_committed() -> None:
    """Section 4.2.2: until the final entry is committed, a majority of the old voters may need its log."""
    log = Log(
        entries=(
            membership_entry(1, membership_of((1, 2, 3))),
            membership_entry(2, joint((2, 3), (1, 2, 3))),
            membership_entry(3, membership_of((2, 3))),
        )
    )
    raft = make_raft(1, log=log, term=1)
    raft.tick(2 * TIMEOUT)
    assert {to for to, m in drain(raft) if isinstance(m, PreVote)} == {2, 3}
    hear(raft, 2, PreVoteReply(GROUP, 2, True))
    assert so_far(raft.role) is Role.PRE_CANDIDATE, "its own vote does not count"
    hear(raft, 3, PreVoteReply(GROUP, 2, True))
    assert raft.role is Role.CANDIDATE

    told = make_raft(1, log=log, term=1)
    hear(told, 2, Heartbeat(GROUP, 1, 1, 3))
    told.tick(5 * TIMEOUT)
    assert of_kind(drain(told), PreVote) == []
    told.tick(5 * TIMEOUT)
    assert told.role is Role.FOLLOWER


# -- who is heard


def test_server_that_fell_behind_a_change_follows_and_elects_whom_its_owner_vouches_for() -> None:
    """Section 4.1: S3 knows {1, 2, 3}, the group went on to {3, 4, 5}; D-1: only of its own cluster."""
    raft = make_raft(3)
    entry = Entry(1, 1, EntryKind.NOOP, 1, 0, b"")
    append = AppendEntries(GROUP, 1, 0, 0, 0, (entry,))
    vote = RequestVote(GROUP, 2, 5, 1)
    assert hear(raft, 4, append) == hear(raft, 4, vote) == []
    raft.vouch(S4, instance_of(4))
    assert of_kind(hear(raft, 4, append), AppendEntriesReply)[0].accepted
    raft.tick(TIMEOUT)
    (reply,) = of_kind(hear(raft, 4, vote), RequestVoteReply)
    assert reply.granted
    raft.step(S4, Instance(b"another disk 123"), RequestVote(GROUP, 3, 9, 9))
    assert drain(raft) == []


def test_leader_that_leaves_is_heard_until_it_has_handed_over() -> None:
    """Section 4.2.2: a follower that holds the final entry still learns its commit, and is told to campaign."""
    network = Network(3)
    raft = leading(network)
    index = raft.change_membership(raft.membership.without(S1))
    assert index is not None
    network.settle()
    successor = network.rafts[2]
    assert successor.role is Role.LEADER, "nobody vouches for S1 here, and no time has passed"
    assert successor.commit_index > index


def test_answers_of_who_is_no_member_count_for_nothing_even_if_vouched_for() -> None:
    raft = make_raft(1)
    raft.vouch(S4, instance_of(4))
    raft.tick(2 * TIMEOUT)
    drain(raft)
    hear(raft, 4, PreVoteReply(GROUP, 1, True))
    assert raft.role is Role.PRE_CANDIDATE
    assert raft.statistics().messages_ignored_total == 1


def test_learner_whose_promotion_has_not_reached_it_votes_when_asked() -> None:
    """Else {1, 2, 4} with S1 dead and S4 one entry behind could elect nobody."""
    raft = make_raft(4, membership=membership_of((1, 2, 3), learners=(4,)))
    (reply,) = of_kind(hear(raft, 2, RequestVote(GROUP, 1, 5, 1)), RequestVoteReply)
    assert reply.granted


# -- transfer


def test_transfer_brings_the_target_up_to_date_and_then_tells_it() -> None:
    """Section 3.10, steps 1 to 3."""
    raft = make_leader(membership_of((1, 2, 3)))
    raft.propose(b"x", 1)
    drain(raft)
    assert raft.transfer_leadership(S3)
    assert raft.transferring
    assert raft.transfer_leadership(S3)
    assert not raft.transfer_leadership(S2)
    assert raft.propose(b"y", 1) is None
    assert raft.change_membership(raft.membership.without(S2)) is None
    assert of_kind(drain(raft), TimeoutNow) == []
    assert of_kind(acknowledge(raft, (3,), 3), TimeoutNow, to=3) == [  # type: ignore[arg-type]
        TimeoutNow(GROUP, raft.term)
    ]


@pytest.mark.parametrize("target", [1, 4, 5])
def test_transfer_only_to_another_voter(target: int) -> None:
    raft = make_leader(membership_of((1, 2, 3), learners=(4,)))
    assert raft.transfer_leadership(ServerId(target)) is False
    assert not raft.transferring


def test_transfer_is_given_up_after_an_election_timeout_when_the_target_is_gone() -> None:
    """Section 3.10: the target may crash; the leader then takes proposals again. TimeoutNow is repeated."""
    raft = make_leader(membership_of((1, 2, 3)))
    acknowledge(raft, (3,), 2)
    raft.transfer_leadership(S3)
    told = 0
    for _ in range(TIMEOUT // 10):
        assert raft.transferring
        told += len(of_kind(drain(raft), TimeoutNow))
        hear(raft, 2, HeartbeatReply(GROUP, raft.term, raft.round, 2))
        raft.tick(10)
    assert told == TIMEOUT // SETTINGS.heartbeat_ticks
    assert not raft.transferring
    assert raft.role is Role.LEADER
    assert raft.propose(b"", 1) == 3


def test_transfer_moves_the_leadership_at_once_past_stickiness_and_pre_vote() -> None:
    network = Network(3)
    raft = leading(network)
    term = raft.term
    assert raft.transfer_leadership(S2)
    network.settle()
    assert network.rafts[2].role is Role.LEADER
    assert network.rafts[2].term == term + 1
    assert raft.role is Role.FOLLOWER
    assert not raft.transferring


def test_change_that_is_committed_during_a_transfer_is_finished_after_it() -> None:
    network = Network(3, learners=(4,))
    raft = leading(network)
    raft.change_membership(raft.membership.with_role(S4, MemberRole.VOTER))
    assert raft.transfer_leadership(S2)
    network.settle()
    assert network.rafts[2].role is Role.LEADER
    for each in network.rafts.values():
        assert each.membership.voters == (1, 2, 3, 4)
        assert each.membership_committed


def follower_of_1(membership: Membership | None = None) -> Raft:
    raft = make_raft(2, terms=(1,), membership=membership)
    hear(raft, 1, Heartbeat(GROUP, 1, 1, 1))
    return raft


def test_timeout_now_starts_an_election_that_says_so() -> None:
    raft = follower_of_1()
    requests = of_kind(hear(raft, 1, TimeoutNow(GROUP, 1)), RequestVote)
    assert requests == [RequestVote(GROUP, 2, 1, 1, transfer=True)] * 2
    raft.tick(SETTINGS.heartbeat_ticks)
    assert of_kind(drain(raft), RequestVote) == [RequestVote(GROUP, 2, 1, 1, transfer=True)] * 2


@pytest.mark.parametrize("term", [0, 2])
def test_timeout_now_matters_in_its_term_only(term: int) -> None:
    raft = follower_of_1()
    assert hear(raft, 1, TimeoutNow(GROUP, term)) == []
    assert (raft.role, raft.term) == (Role.FOLLOWER, 1)


def test_repeated_timeout_now_starts_no_second_election() -> None:
    raft = follower_of_1()
    hear(raft, 1, TimeoutNow(GROUP, 1))
    assert hear(raft, 1, TimeoutNow(GROUP, 1)) == []
    assert raft.term == 2


def test_timeout_now_of_another_than_the_leader_is_ignored() -> None:
    raft = follower_of_1()
    assert hear(raft, 3, TimeoutNow(GROUP, 1)) == []
    assert raft.role is Role.FOLLOWER


def test_learner_ignores_timeout_now() -> None:
    raft = follower_of_1(membership_of((1, 3), learners=(2,)))
    assert hear(raft, 1, TimeoutNow(GROUP, 1)) == []
    assert raft.role is Role.FOLLOWER


def test_later_election_of_a_transfer_target_respects_stickiness_again() -> None:
    """Only the campaign that the leader asked for passes a live leader by."""
    raft = follower_of_1()
    hear(raft, 1, TimeoutNow(GROUP, 1))
    raft.tick(3 * TIMEOUT)
    assert raft.role is Role.PRE_CANDIDATE
    drain(raft)
    hear(raft, 3, PreVoteReply(GROUP, 3, True))
    raft.tick(SETTINGS.heartbeat_ticks)
    assert {m.transfer for _, m in drain(raft) if isinstance(m, RequestVote)} == {False}


# -- why a joint configuration


def replace_two_of_three(cls: type[Raft]) -> None:
    """S1 replaces S2 and S3 by S4 and S5, and is cut off from S2 and S3, who elect a leader of their own."""
    network = Network(3, learners=(4, 5), cls=cls)
    checkers = Checkers(network)
    raft = leading(network)
    for one in (1, 4, 5):
        for other in (2, 3):
            network.cut |= {(one, other), (other, one)}
    raft.change_membership({server: Member(instance_of(server)) for server in (S1, S4, S5)})
    raft.propose(b"one side", 1)
    network.settle()
    second = network.elect(2)
    second.propose(b"other side", 1)
    network.settle()
    checkers.finish(commits=2, terms=2)


def test_two_majorities_never_decide_apart() -> None:
    """Section 4.3 and figure 4.9: {1, 4, 5} and {2, 3} are majorities of the new and of the old."""
    replace_two_of_three(Raft)


def test_planted_direct_change_lets_two_majorities_decide_apart() -> None:
    with pytest.raises(Violation):
        replace_two_of_three(ReplacesVotersAtOnce)


def test_a_new_member_is_sent_the_entry_that_made_it_one_without_anything_else_being_proposed() -> None:
    """In a group that nobody writes to it would otherwise never be asked where its log ends, nor offered a snapshot."""
    raft = make_leader(membership_of((1, 2, 3)))
    index = raft.change_membership(
        raft.membership.with_member(S4, Member(instance_of(4), MemberRole.LEARNER))
    )
    assert index is not None
    appends = [message for to, message in drain(raft) if to == S4 and isinstance(message, AppendEntries)]
    assert [entry.index for message in appends for entry in message.entries] == [index]
