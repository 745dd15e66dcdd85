"""Claims of Ongaro's dissertation about membership, leadership transfer and snapshots, with their sections."""

from __future__ import annotations

import pytest

from tests.so_far import so_far
from tests.unit.raft.checkers import Checkers
from tests.unit.raft.network import (
    GROUP,
    SETTINGS,
    Network,
    hear,
    instance_of,
    make_raft,
    membership_of,
    of_kind,
)
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import (
    AppendEntries,
    Entry,
    EntryKind,
    Heartbeat,
    Member,
    MemberRole,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.ids import ServerId

TIMEOUT = SETTINGS.election_timeout_ticks
S1, S2, S3, S4 = map(ServerId, range(1, 5))


def settled(network: Network, server: int = 1):  # type: ignore[no-untyped-def]
    leader = network.elect(server)
    network.run(2 * SETTINGS.heartbeat_ticks)
    return leader


# -- chapter 3


def test_transfer_elects_a_target_that_is_up_to_date_without_waiting_for_a_timeout() -> None:
    """3.10: no time passes in this test after the request."""
    network = Network(3)
    leader = settled(network)
    index = leader.propose(b"x", 1)
    leader.transfer_leadership(S3)
    network.settle()
    assert network.rafts[3].role is Role.LEADER
    assert network.rafts[3].log.entry(index).payload == b"x"


def test_vote_request_of_a_transfer_passes_by_a_leader_that_is_heard() -> None:
    """4.2.3, last paragraph: it carries a flag, so that voters do not take it for a disturbance."""
    for transfer in (False, True):
        voter = make_raft(2)
        hear(voter, 1, Heartbeat(GROUP, 1, 1, 0))
        replies = of_kind(hear(voter, 3, RequestVote(GROUP, 2, 5, 1, transfer)), RequestVoteReply)
        assert [reply.granted for reply in replies] == [True] * transfer


def test_prior_leader_resumes_if_the_transfer_does_not_complete() -> None:
    """3.10, last step."""
    network = Network(3)
    leader = settled(network)
    network.crash(3)
    leader.transfer_leadership(S3)
    assert leader.propose(b"x", 1) is None
    network.run(2 * TIMEOUT)
    assert leader.role is Role.LEADER
    assert leader.propose(b"x", 1) is not None


def test_lost_timeout_now_is_repeated() -> None:
    network = Network(3)
    leader = settled(network)
    leader.transfer_leadership(S2)
    network.ready(1)
    assert network.take(TimeoutNow)
    network.run(2 * SETTINGS.heartbeat_ticks)
    assert network.rafts[2].role is Role.LEADER


# -- chapter 4


def test_server_uses_the_newest_configuration_in_its_log_committed_or_not() -> None:
    """4.1."""
    raft = make_raft(2)
    change = Membership({server: Member(instance_of(server)) for server in (S1, S2)})
    entry = Entry(1, 1, EntryKind.MEMBERSHIP, 1, 0, change.encode())
    hear(raft, 1, AppendEntries(GROUP, 1, 0, 0, 0, (entry,)))
    assert raft.commit_index == 0
    assert raft.membership == change


def test_new_server_catches_up_before_it_counts() -> None:
    """4.2.1: S4 with an empty log slows no commit down, and holds everything before it votes."""
    network = Network(3, learners=(4,))
    network.isolate(4)
    leader = settled(network)
    for number in range(20):
        leader.propose(b"%d" % number, 1)
    network.settle()
    assert leader.commit_index == leader.log.last_index
    network.heal()
    network.run(2 * SETTINGS.heartbeat_ticks)
    assert network.rafts[4].commit_index == leader.commit_index
    leader.change_membership(leader.membership.with_role(S4, MemberRole.VOTER))
    network.settle()
    assert network.rafts[4].membership.voters == (1, 2, 3, 4)


def test_leader_outside_of_the_new_configuration_steps_down_once_it_is_committed() -> None:
    """4.2.2."""
    network = Network(3)
    leader = settled(network)
    index = leader.change_membership(leader.membership.without(S1))
    assert index is not None
    assert so_far(leader.role) is Role.LEADER
    network.run(2 * SETTINGS.heartbeat_ticks)
    assert leader.role is Role.FOLLOWER, "its successor answers its next heartbeat"
    assert network.rafts[2].commit_index >= index + 1
    assert network.leader is not None
    assert network.leader.server in (2, 3)


def test_servers_outside_of_the_configuration_cannot_disturb_it() -> None:
    """4.2.3: with pre-vote and with requests for votes, however high their term."""
    network = Network(3)
    leader = settled(network)
    term = leader.term
    leader.change_membership(leader.membership.without(S3))
    network.settle()
    network.run(2 * TIMEOUT)
    for member in (1, 2):
        raft = network.rafts[member]
        for message in (PreVote(GROUP, 99, 99, 99), RequestVote(GROUP, 99, 99, 99)):
            assert of_kind(hear(raft, 3, message), RequestVoteReply) == []
        assert raft.term == term
    assert leader.role is Role.LEADER


@pytest.mark.parametrize("crash", ["joint appended", "joint committed", "final appended", "final committed"])
def test_change_survives_the_crash_of_its_leader_at_every_step(crash: str) -> None:
    """4.3: it is undone or finished, and at no time can two leaders decide."""
    network = Network(3, learners=(4,))
    checkers = Checkers(network)
    leader = settled(network)
    leader.change_membership(leader.membership.with_role(S4, MemberRole.VOTER))
    joint = leader.log.last_index
    if crash != "joint appended":
        while leader.commit_index < joint + (crash == "final committed"):
            for server in list(network.rafts):
                network.ready(server)
                network.sync(server)
            packets, network.packets = network.packets, []
            for packet in packets:
                network.deliver(packet)
    if crash == "final appended":
        network.ready(1)
        network.sync(1)
    if crash in ("joint appended", "joint committed"):
        network.packets.clear()
    network.crash(1)
    network.run(8 * TIMEOUT)
    successor = network.leader
    assert successor is not None, "the remaining ones can decide"
    assert not successor.membership.joint
    assert successor.membership_committed
    network.start(1)
    network.run(4 * TIMEOUT)
    index = successor.propose(b"after", 1)
    network.settle()
    assert index is not None
    for raft in network.rafts.values():
        assert raft.commit_index == index
        assert raft.membership == successor.membership
    checkers.finish(commits=3, terms=2)


# -- chapter 5


def test_follower_with_a_snapshot_keeps_the_entries_that_follow_it() -> None:
    """5.3, step 6 of InstallSnapshot: "retain log entries following it"."""
    raft = make_raft(2, terms=(1, 1, 1))
    assert raft.restore(SnapshotMeta(2, 1, 3, membership_of((1, 2, 3)).encode())) is False
    assert (raft.log.first_index, raft.log.last_index) == (1, 3)


def test_configuration_is_part_of_the_snapshot() -> None:
    """5.1: the newest one as of the last included index."""
    snapshot = SnapshotMeta(9, 1, 1, membership_of((1, 2)).encode())
    raft = make_raft(2)
    assert raft.restore(snapshot) is True
    assert raft.membership == membership_of((1, 2))


def test_consistency_check_works_with_the_last_entry_of_the_snapshot() -> None:
    """5.1: last included index and term are kept for the append that follows."""
    log = Log(first_index=10, base_term=3, base_position=1, base_membership=membership_of((1, 2, 3)).encode())
    raft = make_raft(2, log=log, term=3)
    entry = Entry(10, 3, EntryKind.NOOP, 1, 0, b"")
    hear(raft, 1, AppendEntries(GROUP, 3, 9, 3, 0, (entry,)))
    assert raft.log.last_index == 10


def test_vote_is_judged_by_the_snapshot_if_the_log_is_empty_behind_it() -> None:
    """5.1 and 3.6.1."""
    log = Log(first_index=10, base_term=3, base_position=1, base_membership=membership_of((1, 2, 3)).encode())
    for index, term, granted in ((8, 3, False), (9, 3, True), (1, 4, True), (20, 2, False)):
        raft = make_raft(2, log=Log(first_index=10, base_term=3, base_position=1), term=3)
        (reply,) = of_kind(hear(raft, 1, PreVote(GROUP, 9, index, term)), PreVoteReply)
        assert reply.granted is granted
    assert log.last_term == 3
