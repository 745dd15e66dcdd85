"""Mistakes found in another Raft implementation, each as the schedule that breaks it.

Flaws that are not the core's (snapshots, sessions, storage, benchmarks) have their tests elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.so_far import so_far
from tests.unit.raft.checkers import Checkers, Violation
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
from tests.unit.raft.planted import CommitsOldTermsByCounting, ForgetsVote
from zraft.raft.core import Raft
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexReply,
    RequestVote,
    RequestVoteReply,
)
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId, Instance, ServerId

TIMEOUT = SETTINGS.election_timeout_ticks


def grants(raft: Raft, sender: int, term: int, last_log_index: int, last_log_term: int) -> list[bool]:
    request = RequestVote(GROUP, term, last_log_index, last_log_term)
    return [reply.granted for reply in of_kind(hear(raft, sender, request), RequestVoteReply)]


def append(term: int, prev: int, prev_term: int, terms: tuple[int, ...], commit: int = 0) -> AppendEntries:
    return AppendEntries(GROUP, term, prev, prev_term, commit, entries_of(terms, prev + 1))


# -- 1 to 5: votes


def test_flaw_1_vote_compares_last_term_then_last_index() -> None:
    """S1 committed a, b with S2; S3 has only a and campaigns: S2 must refuse, or b is lost."""
    assert grants(make_raft(2, terms=(1, 1)), 3, 2, 1, 1) == [False]
    assert grants(make_raft(2, terms=(1, 1)), 3, 2, 2, 1) == [True]
    assert grants(make_raft(2, terms=(1, 2)), 3, 3, 9, 1) == [False]
    assert grants(make_raft(2, terms=(1, 1)), 3, 3, 1, 2) == [True]


def two_candidates_of_term_5(cls: type[Raft]) -> list[bool]:
    """S3 votes for S1 in term 5 and restarts; then S2 asks S3 in term 5."""
    network = Network(3, cls=cls)
    voter = network.rafts[3]
    voter.step(ServerId(1), instance_of(1), RequestVote(GROUP, 5, 0, 0))
    network.ready(3)
    network.sync(3)
    return grants(network.restart(3), 2, 5, 0, 0)


def test_flaw_2_vote_survives_restart() -> None:
    assert two_candidates_of_term_5(Raft) == [False]


def test_flaw_2_planted_lost_vote_elects_two_leaders_of_one_term() -> None:
    """The same schedule with the vote forgotten: the test above can fail."""
    assert two_candidates_of_term_5(ForgetsVote) == [True]


def test_flaw_2_vote_survives_stepping_down() -> None:
    """A candidate that becomes follower of its own term has still voted for itself."""
    raft = make_raft(1)
    raft.tick(2 * TIMEOUT)
    drain(raft)
    hear(raft, 2, PreVoteReply(GROUP, 1, True))
    assert so_far(raft.role) is Role.CANDIDATE
    hear(raft, 2, Heartbeat(GROUP, 1, 1, 0))
    assert raft.role is Role.FOLLOWER
    assert grants(raft, 3, 1, 0, 0) == [False]


def test_flaw_3_vote_is_free_again_in_a_newer_term() -> None:
    raft = make_raft(3)
    assert grants(raft, 1, 1, 0, 0) == [True]
    assert grants(raft, 2, 1, 0, 0) == [False]
    assert grants(raft, 2, 2, 0, 0) == [True]


def test_flaw_4_vote_leaves_only_when_durable_and_term_and_vote_are_one_record() -> None:
    raft = make_raft(3)
    raft.step(ServerId(1), instance_of(1), RequestVote(GROUP, 4, 0, 0))
    ready = raft.ready()
    assert ready.messages == ()
    assert ready.write is not None
    assert ready.write.hard_state == HardState(4, ServerId(1))
    raft.persisted(ready.write.number)
    assert raft.ready().messages == ((1, RequestVoteReply(GROUP, 4, True)),)


def test_flaw_5_duplicate_and_stale_votes_do_not_count() -> None:
    """Five servers: two copies of one grant, and a grant of an earlier term, make no majority."""
    raft = make_raft(1, terms=(1,), term=3, membership=membership_of(range(1, 6)))
    raft.tick(2 * TIMEOUT)
    drain(raft)
    for _ in range(3):
        hear(raft, 2, PreVoteReply(GROUP, 4, True))
    hear(raft, 3, PreVoteReply(GROUP, 3, True))
    assert so_far(raft.role) is Role.PRE_CANDIDATE
    hear(raft, 3, PreVoteReply(GROUP, 4, True))
    assert so_far(raft.role) is Role.CANDIDATE
    for _ in range(3):
        hear(raft, 2, RequestVoteReply(GROUP, 4, True))
    hear(raft, 3, RequestVoteReply(GROUP, 3, True))
    assert so_far(raft.role) is Role.CANDIDATE
    hear(raft, 3, RequestVoteReply(GROUP, 4, True))
    assert raft.role is Role.LEADER


# -- 6 to 10: replication


def test_flaw_6_append_compares_index_and_term_before_it() -> None:
    """A follower with 3 entries of term 1 must not take entry 11 after (10, term 1): that leaves a hole."""
    raft = make_raft(2, terms=(1, 1, 1))
    (reply,) = of_kind(hear(raft, 1, append(1, 10, 1, (1,))), AppendEntriesReply)
    assert not reply.accepted
    assert (reply.conflict_index, reply.conflict_term) == (4, 0)
    (reply,) = of_kind(hear(raft, 1, append(3, 3, 2, (3,))), AppendEntriesReply)
    assert not reply.accepted
    assert raft.log.last_index == 3


def test_flaw_7_follower_shorter_than_the_leader_answers_and_is_repaired() -> None:
    network = Network(3, logs={1: (1, 1, 1, 1), 2: (1, 1, 1, 1), 3: (1,)})
    network.elect(1)
    assert network.rafts[3].commit_index == 5
    assert network.disks[ServerId(3)].entries == network.disks[ServerId(1)].entries


def test_flaw_8_late_duplicate_append_does_not_shorten_the_log() -> None:
    raft = make_raft(2)
    first = append(1, 0, 0, (1,))
    hear(raft, 1, first)
    hear(raft, 1, append(1, 1, 1, (1, 1)))
    (reply,) = of_kind(hear(raft, 1, first), AppendEntriesReply)
    assert raft.log.last_index == raft.durable_index == 3
    assert (reply.accepted, reply.match_index) == (True, 1)


def test_flaw_8_truncation_begins_at_the_first_conflict() -> None:
    raft = make_raft(2, terms=(1, 1, 2, 2, 2))
    raft.step(ServerId(1), instance_of(1), append(3, 1, 1, (1, 3)))
    write = raft.ready().write
    assert write is not None
    assert write.truncate_from == 3
    assert [entry.index for entry in write.entries] == [3]
    assert raft.durable_index == 2


def test_flaw_8_committed_entries_are_never_truncated() -> None:
    raft = make_raft(2)
    hear(raft, 1, append(1, 0, 0, (1, 1), commit=2))
    assert raft.commit_index == 2
    with pytest.raises(ProtocolError, match="committed"):
        hear(raft, 3, append(2, 0, 0, (2,)))
    assert raft.log.last_index == 2


def test_flaw_9_match_is_what_was_verified_not_the_end_of_the_log() -> None:
    """A follower [a1, x1, y1] verified up to 2 must not let the leader count 3."""
    raft = make_raft(2, terms=(1, 1, 1))
    (reply,) = of_kind(hear(raft, 1, append(2, 1, 1, (1,))), AppendEntriesReply)
    assert (reply.accepted, reply.match_index) == (True, 2)


def test_flaw_9_last_index_of_a_heartbeat_reply_is_only_a_hint() -> None:
    raft = make_raft(1, terms=(1, 1))
    lead(raft)
    hear(raft, 2, HeartbeatReply(GROUP, raft.term, 1, 3))
    assert raft.commit_index == 0
    assert raft.statistics().followers[0].match_index == 0
    hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, 3))
    assert raft.commit_index == 3


def test_flaw_10_reply_of_an_earlier_leadership_does_not_count() -> None:
    """S1 led term 1 and again leads term 3; an acknowledgement from term 1 arrives."""
    raft = make_raft(1, terms=(1,) * 10)
    lead(raft)
    first_term = raft.term
    hear(raft, 3, Heartbeat(GROUP, raft.term + 1, 1, 0))
    raft.leader = None
    lead(raft)
    assert raft.term > first_term
    hear(raft, 2, AppendEntriesReply(GROUP, first_term, True, 11))
    assert raft.statistics().followers[0].match_index == 0
    assert raft.commit_index == 0


def test_flaw_10_match_never_falls_within_a_leadership() -> None:
    raft = make_raft(1, terms=(1,) * 10)
    lead(raft)
    hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, 11))
    hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, 4))
    hear(raft, 2, AppendEntriesReply(GROUP, raft.term, False, 0, prev_log_index=5, conflict_index=2))
    (follower, _) = raft.statistics().followers
    assert (follower.match_index, follower.next_index) == (11, 12)


def test_flaw_10_acknowledgement_beyond_the_log_is_an_error() -> None:
    raft = make_raft(1)
    lead(raft)
    with pytest.raises(ProtocolError, match="server 2 acknowledges entry 9"):
        hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, 9))


# -- 11, 12: commit


def test_flaw_11_leader_does_not_commit_older_term_by_counting() -> None:
    """Figure 8: an entry of term 2 on a majority is not committed by a leader of term 4."""
    raft = make_raft(1, terms=(1, 2), term=3, membership=membership_of(range(1, 6)))
    lead(raft, (2, 3))
    for server in (2, 3):
        hear(raft, server, AppendEntriesReply(GROUP, raft.term, True, 2))
    assert raft.commit_index == 0
    for server in (2, 3):
        hear(raft, server, AppendEntriesReply(GROUP, raft.term, True, 3))
    assert raft.commit_index == 3


def figure_8(cls: type[Raft]) -> None:
    """S1 leads term 4 and brings entry 2 of term 2 to S2, S3; S1 dies; S5 wins with its entry 2 of term 3."""
    logs: dict[int, Iterable[int]] = {1: (1, 2), 2: (1,), 3: (1,), 4: (1,), 5: (1, 3)}
    network = Network(5, logs=logs, terms=dict.fromkeys(logs, 3), cls=cls)
    checkers = Checkers(network)
    network.cut |= {(1, 4), (1, 5)}
    leader = network.rafts[1]
    leader.tick(2 * TIMEOUT)
    network.ready(1)
    for _ in range(8):
        for server in (1, 2, 3):
            network.sync(server)
        packets, network.packets = network.packets, []
        for packet in packets:
            match packet.message:
                case AppendEntries(prev_log_index=prev) if (
                    network.rafts[packet.to].log.last_index == prev > 1
                ):
                    pass  # S1's own entry 3 reaches nobody
                case _:
                    network.deliver(packet)
    assert leader.role is Role.LEADER
    assert leader.term == 4
    for server in (2, 3):
        assert network.disks[ServerId(server)].entries[-1].term == 2, "entry 2 of term 2 is on a majority"
    network.packets.clear()
    network.crash(1)
    network.elect(5)
    assert network.rafts[3].log.term_at(2) == 3
    checkers.finish(commits=2, terms=2)


def test_flaw_11_figure_8_schedule_loses_nothing() -> None:
    figure_8(Raft)


def test_flaw_11_planted_commit_by_counting_is_caught_by_figure_8() -> None:
    with pytest.raises(Violation, match="leader completeness"):
        figure_8(CommitsOldTermsByCounting)


def test_flaw_12_first_leader_commits_nothing_by_itself() -> None:
    raft = make_raft(1, terms=(1, 1, 1))
    lead(raft)
    assert raft.durable_index == 4
    assert raft.commit_index == 0


def test_flaw_12_restart_commits_nothing() -> None:
    raft = make_raft(1, terms=(1, 1, 1))
    raft.ready()
    assert raft.commit_index == raft.applicable_index == 0


# -- 15: membership


def test_flaw_15_strangers_wiped_disks_and_other_groups_are_ignored() -> None:
    """D-1: only (server, instance) pairs of the membership count."""
    raft = make_raft(2)
    vote = RequestVote(GROUP, 1, 0, 0)
    raft.step(ServerId(9), instance_of(9), vote)
    raft.step(ServerId(1), Instance(b"another disk 123"), vote)
    raft.step(ServerId(1), instance_of(1), RequestVote(GroupId(7), 1, 0, 0))
    raft.step(ServerId(2), instance_of(2), vote)
    assert drain(raft) == []
    assert raft.term == 0
    assert raft.statistics().messages_ignored_total == 4


def test_flaw_15_own_wiped_disk_neither_campaigns_nor_votes() -> None:
    """D-1: S2 was wiped and its roster names the old instance; it must not help to elect anybody."""
    other = {**membership_of((1, 3)).members, ServerId(2): membership_of((9,)).members[ServerId(9)]}
    raft = make_raft(2, membership=type(membership_of(()))(other))
    raft.tick(10 * TIMEOUT)
    assert drain(raft) == []
    assert grants(raft, 1, 1, 0, 0) == []
    assert hear(raft, 1, PreVote(GROUP, 1, 0, 0)) == []


def test_flaw_15_learners_follow_but_never_campaign_or_count() -> None:
    """A learner may answer who asks for its vote: only a configuration in which it votes would ask."""
    membership = membership_of((1, 2), learners=(3,))
    learner = make_raft(3, membership=membership)
    learner.tick(10 * TIMEOUT)
    assert drain(learner) == []
    (reply,) = of_kind(hear(learner, 1, append(1, 0, 0, (1,))), AppendEntriesReply)
    assert reply.accepted

    leader = make_raft(1, membership=membership)
    lead(leader)
    hear(leader, 3, AppendEntriesReply(GROUP, leader.term, True, 1))
    hear(leader, 3, HeartbeatReply(GROUP, leader.term, 1, 1))
    assert leader.commit_index == leader.quorum_round == 0

    candidate = make_raft(1, membership=membership)
    candidate.tick(2 * TIMEOUT)
    drain(candidate)
    hear(candidate, 3, PreVoteReply(GROUP, 1, True))
    assert candidate.role is Role.PRE_CANDIDATE


def test_flaw_15_one_server_with_a_roster_of_three_does_not_elect_itself() -> None:
    raft = make_raft(1)
    for _ in range(20):
        raft.tick(TIMEOUT)
        drain(raft)
    assert raft.role is Role.PRE_CANDIDATE
    assert raft.term == 0


# -- 17: reads


def test_flaw_17_deposed_leader_answers_no_read() -> None:
    """An isolated leader cannot know of newer writes; it answers nothing, and reads nothing stale later."""
    network = Network(3)
    old = network.elect(1)
    network.isolate(1)
    new = network.elect(2)
    new.propose(b"newer", 1)
    network.settle()
    old.read_index(1)
    network.settle()
    assert network.read_states[1] == []
    network.heal()
    network.run(3 * TIMEOUT)
    assert network.read_states[1] == []
    assert old.role is Role.FOLLOWER


def test_flaw_17_round_sent_before_the_read_does_not_prove_it() -> None:
    raft = make_raft(1)
    lead(raft)
    hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, 1))
    assert raft.commit_index == 1
    raft.read_index(7)
    raft.step(ServerId(2), instance_of(2), HeartbeatReply(GROUP, raft.term, 1, 1))
    ready = raft.ready()
    assert ready.read_states == ()
    assert of_kind(ready.messages, Heartbeat, to=2)[0].round == 2
    raft.step(ServerId(2), instance_of(2), HeartbeatReply(GROUP, raft.term, 2, 1))
    assert raft.ready().read_states == ((7, 1),)


def test_flaw_17_new_leader_answers_reads_only_after_its_own_commit() -> None:
    """Dissertation 6.4: it may not know yet what its predecessor committed."""
    raft = make_raft(1, terms=(1, 1))
    lead(raft)
    raft.read_index(7)
    hear(raft, 2, HeartbeatReply(GROUP, raft.term, 1, 3))
    assert raft.ready().read_states == ()
    hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, 3))
    raft.step(ServerId(2), instance_of(2), HeartbeatReply(GROUP, raft.term, raft.round, 3))
    assert raft.ready().read_states == ((7, 3),)


def test_flaw_17_follower_read_uses_the_leaders_index() -> None:
    network = Network(3)
    leader = network.elect(1)
    leader.propose(b"x", 1)
    network.settle()
    network.rafts[3].read_index(42)
    network.settle()
    assert network.read_states[3] == [(42, 2)]


def test_flaw_17_many_reads_share_a_round() -> None:
    network = Network(3)
    leader = network.elect(1)
    before = leader.round
    for context in range(100):
        leader.read_index(context)
    network.settle()
    assert leader.round == before + 1
    assert network.read_states[1] == [(context, 1) for context in range(100)]


def test_flaw_17_pending_reads_are_bounded() -> None:
    raft = make_raft(1, settings=RaftSettings(pending_reads_max=2))
    lead(raft)
    for context in range(5):
        raft.read_index(context)
    assert raft.statistics().pending_reads == 2
    assert raft.statistics().reads_dropped_total == 3


def test_flaw_17_read_answer_of_another_term_or_sender_is_not_used() -> None:
    raft = make_raft(2)
    hear(raft, 1, Heartbeat(GROUP, 3, 1, 0))
    for sender, term in ((1, 2), (3, 3)):
        raft.step(ServerId(sender), instance_of(sender), ReadIndexReply(GROUP, term, 5, 9))
    assert raft.ready().read_states == ()
    assert of_kind(hear(raft, 3, ReadIndex(GROUP, 3, 1)), ReadIndexReply) == []


# -- 18, 19: elections


def test_flaw_18_isolated_leader_steps_down() -> None:
    """Check-quorum, dissertation 6.2; contact is when the last confirmed round was sent."""
    network = Network(3)
    leader = network.elect(1)
    network.run(SETTINGS.heartbeat_ticks * 2)
    assert leader.now - leader.rounds.contact <= SETTINGS.heartbeat_ticks
    network.isolate(1)
    network.run(TIMEOUT + SETTINGS.heartbeat_ticks + 10)
    assert leader.role is Role.FOLLOWER
    assert leader.propose(b"x", 1) is None


def test_flaw_18_partitioned_server_returns_without_deposing_anybody() -> None:
    """Pre-vote, dissertation 9.6: however long it was away, its term has not grown."""
    network = Network(3)
    leader = network.elect(1)
    network.isolate(3)
    network.run(20 * TIMEOUT)
    assert network.rafts[3].term == leader.term
    network.heal()
    network.run(3 * TIMEOUT)
    assert network.leader is leader
    assert leader.term == 1
    assert network.rafts[3].leader == 1


def test_flaw_18_live_leader_is_not_voted_out() -> None:
    """Stickiness, dissertation 4.2.3: within the minimum timeout of a leader's message nobody votes."""
    raft = make_raft(2)
    hear(raft, 1, Heartbeat(GROUP, 1, 1, 0))
    raft.tick(TIMEOUT - 1)
    assert grants(raft, 3, 9, 9, 9) == []
    assert raft.term == 1
    (reply,) = of_kind(hear(raft, 3, PreVote(GROUP, 2, 9, 9)), PreVoteReply)
    assert not reply.granted
    raft.tick(1)
    assert of_kind(hear(raft, 3, PreVote(GROUP, 2, 9, 9)), PreVoteReply) == [PreVoteReply(GROUP, 2, True)]
    assert grants(raft, 3, 9, 9, 9) == [True]

    leader = make_raft(1)
    lead(leader)
    assert grants(leader, 3, 9, 9, 9) == []
    assert leader.role is Role.LEADER


def test_flaw_18_candidate_of_a_higher_term_frees_itself_from_a_live_leader() -> None:
    """Stickiness alone would leave it out for ever; its answers tell the leader of the newer term."""
    network = Network(3)
    leader = network.elect(1)
    network.disks[ServerId(3)].hard_state = HardState(7)
    network.restart(3)
    network.run(4 * TIMEOUT)
    assert network.leader is not None
    assert network.leader.term >= 8
    assert {raft.leader for raft in network.rafts.values()} == {network.leader.server}
    assert leader.term == network.leader.term


def test_flaw_19_simultaneous_candidates_are_rare() -> None:
    """Continuous timeouts: of 300 elections among four, under a tenth begin within 1 % of each other."""
    ties = 0
    for seed in range(300):
        deadlines = sorted(make_raft(1, seed=seed * 5 + n)._election.deadline for n in range(4))
        assert TIMEOUT <= deadlines[0] < 2 * TIMEOUT
        ties += deadlines[1] - deadlines[0] < 0.01 * TIMEOUT
    assert ties < 30


# -- 20, 22: size of messages, repair


def test_flaw_20_messages_are_bounded_in_bytes_and_hold_at_least_one_entry() -> None:
    settings = RaftSettings(append_bytes_max=1000, inflight_bytes_max=3000, inflight_messages_max=8)
    raft = make_raft(1, settings=settings)
    lead(raft)
    hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, 1))
    for _ in range(100):
        raft.propose(bytes(300), 1)
    raft.propose(bytes(5000), 1)
    sizes = []
    for _ in range(100):
        messages = of_kind(drain(raft), AppendEntries, to=2)
        in_flight = sum(len(entry.payload) for message in messages for entry in message.entries)
        assert in_flight <= 3000 or len(messages) == 1
        for message in messages:
            sizes.append(sum(len(entry.payload) for entry in message.entries))
        if not messages:
            break
        last = messages[-1].entries[-1].index
        raft.step(ServerId(2), instance_of(2), AppendEntriesReply(GROUP, raft.term, True, last))
    assert max(sizes[:-1]) <= 1000
    assert sizes[-1] == 5000
    assert raft.commit_index == raft.log.last_index == 102


@pytest.mark.parametrize(
    ("follower", "rounds_max"),
    [
        ((1,), 1),
        ((1,) * 50 + (2,) * 9_000, 2),
        ((1,) * 50 + (2,) * 300 + (4,) * 300 + (6,) * 300, 4),
    ],
    ids=["short", "one wrong term", "three wrong terms"],
)
def test_flaw_22_gap_of_ten_thousand_entries_is_found_in_a_few_rounds(
    follower: tuple[int, ...], rounds_max: int
) -> None:
    network = Network(3, logs={1: (1,) * 100 + (7,) * 10_000, 2: (1,) * 100 + (7,) * 10_000, 3: follower})
    refusals = 0
    deliver = network.deliver

    def count(packet) -> None:  # type: ignore[no-untyped-def]
        nonlocal refusals
        refusals += isinstance(packet.message, AppendEntriesReply) and not packet.message.accepted
        deliver(packet)

    network.deliver = count  # type: ignore[method-assign]
    network.elect(1)
    assert 1 <= refusals <= rounds_max
    assert network.rafts[3].commit_index == 10_101


def test_a_membership_that_cannot_be_read_changes_nothing() -> None:
    raft = make_raft(2)
    entry = Entry(1, 1, EntryKind.MEMBERSHIP, 1, 0, b"nonsense")
    with pytest.raises(ProtocolError, match="MEMBERSHIP"):
        hear(raft, 1, AppendEntries(GROUP, 1, 0, 0, 0, (entry,)))
    assert raft.log.last_index == 0
