"""Hosts of many groups: what an idle one does, what wakes it, and what shared heartbeats never do."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.simulation.groups.counter import AppendCounter
from tests.so_far import so_far
from tests.unit.groups.hosts import DISKS, S1, S2, S3, SETTINGS, Hosts, empty
from zraft.groups.covers.peer import Peer
from zraft.groups.covers.sharing import IDLE_BEATS_PER_TIMEOUT
from zraft.groups.description import GroupDescription
from zraft.groups.effects import GroupEffects
from zraft.groups.settings import GroupSettings
from zraft.raft.messages import AppendEntriesReply, Entry, EntryKind, Heartbeat, RequestVote, TimeoutNow
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.records import EntryRecord
from zraft.transport.messages import Sender, SharedHeartbeat, SharedHeartbeatReply
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId

T = SETTINGS.raft.election_timeout_ticks
BEAT = SETTINGS.raft.heartbeat_ticks
IDLE_BEAT = T // IDLE_BEATS_PER_TIMEOUT


class Drawn(random.Random):
    """Draws the same number again and again."""

    def __init__(self, drawn: float) -> None:
        super().__init__()
        self._drawn = drawn

    def random(self) -> float:
        return self._drawn


@pytest.mark.parametrize("groups", [3, 60, 500])
def test_idle_groups_cost_a_datagram_each_way_per_pair_of_servers_and_no_look(groups: int) -> None:
    """Each has the answer to the other one's last heartbeat and the next heartbeat."""
    hosts = Hosts(groups)
    hosts.rest()
    hosts.run(2 * IDLE_BEAT)
    hosts.sent.clear()
    before = hosts.touched()
    hosts.run(10 * IDLE_BEAT)
    assert len(hosts.sent) == 10 * 6
    assert Counter(hosts.kinds()) == {"SharedHeartbeat": 60, "SharedHeartbeatReply": 60}
    assert hosts.touched() == before


def test_shared_heartbeats_are_rarer_while_all_groups_sleep() -> None:
    hosts = Hosts(3)
    hosts.rest()
    host = hosts.hosts[S1]
    assert host._covers.interval == IDLE_BEAT > BEAT
    assert host.propose(GroupId(3), b"x", 1) is not None
    hosts.step()
    assert host._covers.interval == BEAT
    hosts.run(2 * IDLE_BEAT)
    assert host._covers.interval == IDLE_BEAT


def test_servers_that_began_at_different_moments_speak_at_one() -> None:
    """Who is brought to speak by another one's heartbeat lets that one begin."""
    hosts = Hosts(3)
    hosts.rest()
    for number, host in enumerate(hosts.hosts.values()):
        for peer in host.peers.values():
            peer.beat_at += 13 * number
    hosts.run(6 * IDLE_BEAT)
    hosts.sent.clear()
    hosts.run(10 * IDLE_BEAT)
    assert len(hosts.sent) == 10 * 6


def test_a_server_that_leads_nothing_answers_at_once() -> None:
    """It has no heartbeat that the answer could wait for."""
    hosts = Hosts(1)
    hosts.rest()
    leader = hosts.leader(1)
    hosts.run(2 * BEAT)
    rounds = 0
    for _ in range(3 * BEAT):
        hosts.sent.clear()
        hosts.step()
        asked = [to for _, to, said in hosts.sent if isinstance(said[-1], SharedHeartbeat)]
        if asked:
            rounds += 1
            hosts.sent.clear()
            hosts.step()
            assert [(server, to) for server, to, _ in hosts.sent] == [(server, leader) for server in asked]
    assert rounds >= 2


def test_a_heartbeat_whose_answer_can_wait_asks_for_no_turn() -> None:
    hosts = Hosts(3)
    hosts.rest()
    hosts.run(2 * IDLE_BEAT)
    host = hosts.hosts[S1]
    while max(peer.beat_at for peer in host.peers.values()) - host._state.now < IDLE_BEAT:
        hosts.step()
    host.turn(0)
    taken = host.peers[S2].taken
    message = SharedHeartbeat(taken.epoch, taken._number + 1, 1, ())
    host.receive(Sender(S2, DISKS[S2], 1), [message])
    assert taken.answer_due
    assert not host.wants_turn
    later = SharedHeartbeat(taken.epoch, taken._number + 1, 1, ())
    host.receive(Sender(S2, DISKS[S2], 1), [later], IDLE_BEAT - 1)
    assert host.wants_turn, "its own heartbeat is due soon, and is to leave with the answer"


def test_a_proposal_wakes_its_group_alone_and_it_rests_again() -> None:
    hosts = Hosts(12)
    hosts.rest()
    before = hosts.touched()
    assert hosts.hosts[S2].propose(GroupId(1), b"x", 1) is not None
    hosts.run(4 * BEAT)
    assert [hosts.replica(server, 1).machine.digest() for server in DISKS].count(
        hosts.replica(S1, 1).machine.digest()
    ) == 3
    assert hosts.replica(S3, 1).applied_index == hosts.replica(S2, 1).raft.log.last_index
    assert all(hosts.replica(server, 1).asleep for server in DISKS)
    assert hosts.touched() - before < 40


def test_followers_learn_a_commit_by_the_offer_if_the_groups_own_message_is_lost() -> None:
    """The leader rests only when everybody has said that they know the commit."""
    hosts = Hosts(3)
    hosts.rest()
    leader = hosts.leader(1)
    hosts.hosts[leader].propose(GroupId(1), b"x", 1)
    for _ in range(3 * BEAT):
        hosts.step()
        for box in hosts._boxes.values():
            for _, messages in box:
                messages[:] = [m for m in messages if not (isinstance(m, Heartbeat) and m.round == 0)]
    assert {hosts.replica(server, 1).applied_index for server in DISKS} == {
        hosts.replica(leader, 1).raft.log.last_index
    }
    assert hosts.replica(leader, 1).asleep


def test_a_dead_servers_groups_get_other_leaders_and_do_not_all_campaign_in_one_turn() -> None:
    hosts = Hosts(90)
    hosts.rest()
    hosts.stopped.add(S1)
    campaigns: list[int] = []
    for _ in range(4 * T):
        hosts.sent.clear()
        hosts.step()
        campaigns.append(len({m.group for _, _, ms in hosts.sent for m in ms if isinstance(m, RequestVote)}))
    assert all(hosts.leader(group) != S1 for group in range(1, 91))
    assert max(campaigns) <= 6, "30 groups over an election timeout"
    # Nobody speaks to the dead server for each group again and again.
    hosts.run(T)
    hosts.sent.clear()
    before = hosts.touched()
    hosts.run(4 * BEAT)
    assert set(hosts.kinds()) <= {"SharedHeartbeat", "SharedHeartbeatReply"}
    assert hosts.touched() == before


def test_most_groups_have_another_leader_before_an_election_timeout_if_the_end_of_theirs_is_told() -> None:
    """Two heartbeats are missed, and the elections are spread as far as without the news."""
    led_by_others = []
    for told in (True, False):
        hosts = Hosts(90)
        hosts.rest()
        hosts.run(IDLE_BEAT)
        hosts.stopped.add(S1)
        if told:
            for server in (S2, S3):
                hosts.hosts[server].note_lost(S1)
        hosts.run(T)
        led_by_others.append(sum(hosts.leader(group) != S1 for group in range(1, 91)) - 60)
        hosts.run(3 * T)
        assert all(hosts.leader(group) != S1 for group in range(1, 91))
    assert led_by_others[0] > 2 * led_by_others[1], led_by_others


def test_groups_whose_leader_lives_although_a_connection_ended_keep_it_and_fall_asleep_again() -> None:
    hosts = Hosts(30)
    hosts.rest()
    terms = [hosts.replica(S2, group).raft.term for group in range(1, 31)]
    for server in (S2, S3):
        hosts.hosts[server].note_lost(S1)
    hosts.step()
    assert not all(hosts.replica(S2, group).asleep for group in range(1, 31))
    hosts.run(4 * T)
    assert [hosts.replica(S2, group).raft.term for group in range(1, 31)] == terms
    assert all(hosts.replica(server, group).asleep for server in DISKS for group in range(1, 31))


def test_a_server_that_comes_back_is_caught_up_and_gets_its_leaderships_again() -> None:
    hosts = Hosts(30)
    hosts.rest()
    hosts.isolate(S1)
    hosts.run(4 * T)
    for group in range(1, 31):
        hosts.hosts[hosts.leader(group)].propose(GroupId(group), b"x", 1)
    hosts.run(T)
    hosts.cut.clear()
    hosts.rest()
    assert [hosts.leader(group) for group in range(1, 31)] == [
        (S1, S2, S3)[group % 3] for group in range(1, 31)
    ]
    assert all(
        hosts.replica(S1, group).machine.digest() == hosts.replica(S2, group).machine.digest()
        for group in range(1, 31)
    )


def test_a_resting_leader_without_a_quorum_steps_down_in_every_group() -> None:
    hosts = Hosts(9)
    hosts.rest()
    hosts.isolate(S1)
    hosts.run(2 * T)
    assert all(replica.raft.role is not Role.LEADER for replica in hosts.hosts[S1].groups.values())


def test_one_dead_follower_does_not_wake_the_groups_for_good() -> None:
    hosts = Hosts(9)
    hosts.rest()
    hosts.stopped.add(S3)
    hosts.run(4 * T)
    assert all(replica.asleep for replica in hosts.hosts[S1].groups.values())


def test_a_resting_follower_refuses_its_vote_while_its_leader_lives() -> None:
    """Stickiness (4.2.3) holds for a group whose clock was not looked at for long."""
    hosts = Hosts(3)
    hosts.rest()
    hosts.run(10 * T)
    group = 1
    leader = hosts.leader(group)
    third = next(server for server in DISKS if server != leader)
    term = hosts.replica(leader, group).raft.term
    hosts.hosts[third]._state.touch(hosts.replica(third, group))
    hosts.replica(third, group).raft._pre_campaign()
    hosts.run(10)
    assert hosts.leader(group) == leader
    assert hosts.replica(leader, group).raft.term == term


def test_a_deposed_leader_that_sleeps_on_keeps_nobody_from_campaigning() -> None:
    """The old leader goes on beating for its other groups; for this one nobody takes it for alive."""
    hosts = Hosts(9)
    hosts.rest()
    old = hosts.leader(1)
    new = next(server for server in DISKS if server != old)
    third = next(server for server in DISKS if server not in (old, new))
    term = hosts.replica(old, 1).raft.term
    # The old leader does not hear of its end in this group: what is about group 1 does not reach it.
    hosts.hosts[new].receive(Sender(old, DISKS[old], 1), [TimeoutNow(GroupId(1), term)])
    for _ in range(3 * T):
        hosts.step()
        hosts._boxes[old] = [
            (sender, [m for m in messages if getattr(m, "group", None) != 1])
            for sender, messages in hosts._boxes[old]
        ]
    assert hosts.leader(1) == new
    assert hosts.hosts[third].peers[old].taken.term_of(GroupId(1)) is None
    assert hosts.replica(third, 1).raft.leader == new
    assert hosts.replica(old, 1).raft.role is not Role.LEADER, "check-quorum: nobody confirms it any more"
    others = [group for group in range(2, 10) if hosts.leader(group) == old]
    assert others, "its other leaderships are not concerned"


@pytest.mark.parametrize("servers", [1, 3])
def test_a_group_that_is_not_covered_has_rounds_of_its_own_and_no_shared_heartbeat_speaks_for_it(
    servers: int,
) -> None:
    """What a leader may promise to clients is judged by its own rounds (D-11, D-14): they go on without any write."""
    hosts = Hosts(0)
    members = {server: DISKS[server] for server in list(DISKS)[:servers]}
    for server in members:
        description = GroupDescription(GroupId(1), members, S1)
        hosts.hosts[server].create(description, AppendCounter(), empty(), covered=False)
    hosts.run(2 * T)
    raft = hosts.replica(S1, 1).raft
    hosts.sent.clear()
    rounds = raft.round
    interval = SETTINGS.raft.idle_heartbeat_ticks
    hosts.run(10 * interval)
    assert raft.role is Role.LEADER
    assert 9 <= raft.round - rounds <= 11
    assert raft.now - raft.rounds.contact <= 2 * interval
    assert set(hosts.kinds()) == ({"Heartbeat", "HeartbeatReply"} if servers > 1 else set())


def test_beside_covered_groups_one_that_is_not_stays_out_of_the_cover() -> None:
    hosts = Hosts(3)
    for host in hosts.hosts.values():
        host.create(GroupDescription(GroupId(9), DISKS, S1), AppendCounter(), empty(), covered=False)
    hosts.run(4 * T)
    assert hosts.leader(9) == S1
    assert [hosts.replica(server, 9).asleep for server in DISKS] == [False] * 3
    assert [hosts.hosts[server].peers[S1].taken.term_of(GroupId(9)) for server in (S2, S3)] == [None] * 2
    assert all(hosts.replica(S1, group).asleep for group in range(1, 4))


def test_who_leads_is_known_of_groups_that_sleep_and_of_groups_that_never_do() -> None:
    """Whoever hosts groups holds a connection to each of these servers, whose end tells of its end."""
    hosts = Hosts(3)
    for host in hosts.hosts.values():
        host.create(GroupDescription(GroupId(9), DISKS, S1), AppendCounter(), empty(), covered=False)
    for group in range(1, 4):
        for host in hosts.hosts.values():
            host.prefer(GroupId(group), S2)
    hosts.run(8 * T)
    assert [hosts.leader(group) for group in (1, 2, 3, 9)] == [S2, S2, S2, S1]
    assert [hosts.hosts[server].leaders for server in DISKS] == [{S2}, {S1}, {S1, S2}]
    hosts.stopped.add(S1)
    hosts.run(4 * T)
    assert S1 not in hosts.hosts[S2].leaders | hosts.hosts[S3].leaders


def test_an_acknowledgement_that_commits_nothing_wants_no_turn() -> None:
    """The leader's own disk is the first of the quorum, and a turn for it would have nothing to do."""
    hosts = Hosts(1)
    hosts.rest()
    leader = hosts.leader(1)
    host, others = hosts.hosts[leader], [server for server in DISKS if server != leader]
    host.propose(GroupId(1), b"x", 1)
    assert so_far(host.wants_turn)
    host.turn(0)
    assert host.frame.take() is not None
    host.persisted(host.frame.durable())
    assert not host.wants_turn
    raft = hosts.replica(leader, 1).raft
    for server, wants_turn in zip(others, (True, True), strict=True):
        reply = AppendEntriesReply(GroupId(1), raft.term, accepted=True, match_index=raft.log.last_index)
        host.receive(Sender(server, DISKS[server], 1), [reply])
        assert host.wants_turn is wants_turn, "each follower is told that it is committed"
        host.turn(0)
        host.receive(Sender(server, DISKS[server], 1), [reply])
        assert not host.wants_turn, "it was said before"


def test_a_follower_that_is_awake_is_looked_at_when_its_deadline_comes_however_often_it_was_drawn() -> None:
    """Each message of the leader draws the deadline anew; the new one may be earlier than the alarm of the old one."""
    hosts = Hosts(1)
    hosts.rest()
    hosts.cut |= {(server, to) for server in DISKS for to in DISKS}
    host, replica, leader = hosts.hosts[S1], hosts.replica(S1, 1), hosts.leader(1)
    hosts.run(T)
    raft, alarms = replica.raft, list[float]()
    for drawn in (0.9, 0.1):
        raft._election._rng = Drawn(drawn)
        host.receive(Sender(leader, DISKS[leader], 1), [Heartbeat(GroupId(1), raft.term, 0, 0)])
        if not alarms:
            host.prefer(GroupId(1), None)
        host.turn(1)
        assert not replica.asleep
        alarms.append(host._state.timers.due[GroupId(1)])
        assert alarms[-1] == replica.born + raft.due_at
    assert alarms[1] < alarms[0]


def test_a_read_is_confirmed_by_a_round_of_its_group_and_by_no_shared_heartbeat() -> None:
    hosts = Hosts(3)
    hosts.rest()
    leader = hosts.leader(1)
    hosts.hosts[leader].read_index(GroupId(1), 77)
    for _ in range(4 * BEAT):
        hosts.step()
        for box in hosts._boxes.values():
            for _, messages in box:
                messages[:] = [m for m in messages if not isinstance(m, Heartbeat)]
    answered = [read for effects in hosts.effects[leader] for read in effects.reads]
    assert not answered, "shared heartbeats were answered all the while"
    hosts.run(3 * BEAT)
    answered = [read for effects in hosts.effects[leader] for read in effects.reads]
    assert answered == [(GroupId(1), 77)]


def test_all_groups_of_a_turn_share_one_frame_of_the_log() -> None:
    hosts = Hosts(30)
    hosts.rest()
    led = [group for group in range(1, 31) if hosts.leader(group) == S1]
    for group in led:
        hosts.hosts[S1].propose(GroupId(group), b"x", 1)
    hosts.frames[S1].clear()
    hosts.run(3)
    frames = hosts.frames[S1]
    assert len(frames) == 1
    assert {record.group for record in frames[0] if isinstance(record, EntryRecord)} == set(led)


def test_a_message_for_a_group_that_is_not_here_is_counted_and_harms_nobody() -> None:
    hosts = Hosts(3)
    hosts.rest()
    hosts.hosts[S1].remove(GroupId(1))
    hosts.run(2 * T)
    assert hosts.hosts[S1].statistics().strangers_total > 0
    assert hosts.hosts[S1].statistics().groups == 2
    forgotten = [group for effects in hosts.effects[S1] for group in effects.forgotten]
    assert forgotten == [GroupId(1)]


def test_a_server_that_starts_again_is_not_believed_to_remember_what_it_agreed_to() -> None:
    hosts = Hosts(9)
    hosts.rest()
    host = hosts.hosts[S1]
    assert len(host.peers[S3].given) == len(host.peers[S3].taken) == 3
    host.receive(Sender(S3, DISKS[S3], 2), [])
    assert len(host.peers[S3].given) == len(host.peers[S3].taken) == 0
    host.turn(0)
    followed = [replica for replica in host.groups.values() if replica.raft.leader == S3]
    assert followed
    assert not any(replica.asleep for replica in followed), "they look to their own timers again"


def test_an_answer_to_an_earlier_run_of_this_server_counts_for_nothing() -> None:
    """Found by seed 105: epochs and numbers began at 1 in each run, and a late answer fitted."""
    early, late = (Peer(S2, boot, SETTINGS).given for boot in (1, 2))
    early.heartbeat(0)
    late.offer(GroupId(1), 3, 7)
    late.heartbeat(0)
    assert late.on_reply(SharedHeartbeatReply(early.epoch, 1, ())) is None
    assert not late.agrees(GroupId(1), 3, 7)
    assert late.contact == -1


def test_what_a_server_said_before_it_started_again_counts_for_nothing() -> None:
    hosts = Hosts(3)
    hosts.rest()
    host = hosts.hosts[S1]
    late = [messages for sender, to, messages in hosts.sent if (sender, to) == (S3, S1)][-1]
    host.receive(Sender(S3, DISKS[S3], 2), [])
    host.receive(Sender(S3, DISKS[S3], 1), late)
    assert host.peers[S3].run == (DISKS[S3], 2)
    assert host.peers[S3].silent
    assert host.peers[S3].unheard


def test_a_mistake_of_a_peer_costs_that_message_only() -> None:
    hosts = Hosts(3)
    hosts.rest()
    leader = hosts.leader(1)
    other, third = [server for server in DISKS if server != leader]
    term = hosts.replica(leader, 1).raft.term
    hosts.hosts[third].receive(Sender(other, DISKS[other], 1), [Heartbeat(GroupId(1), term, 1, 0)])
    assert "claims to lead group 1" in hosts.hosts[third].mistakes[0][1]
    hosts.run(2 * BEAT)
    assert hosts.leader(1) == leader


def test_a_group_in_memory_is_bounded_by_what_may_stay_of_its_log() -> None:
    settings = GroupSettings(asleep_log_bytes_max=0, snapshot_bytes=1 << 20)
    hosts = Hosts(3, settings)
    hosts.rest()
    leader = hosts.leader(1)
    for _ in range(20):
        hosts.hosts[leader].propose(GroupId(1), bytes(1_000), 1)
        hosts.run(10)
    hosts.run(4 * BEAT)
    assert all(hosts.replica(server, 1).raft.log.bytes_in_memory == 0 for server in DISKS)


def test_an_idle_host_says_when_its_next_turn_is_due() -> None:
    hosts = Hosts(3)
    hosts.rest()
    effects: GroupEffects = hosts.hosts[S1].turn(0)
    assert effects.wake_in is not None
    assert 0 < effects.wake_in <= BEAT


def test_a_replica_moves_and_the_one_that_is_left_behind_retires_without_forgetting_its_vote() -> None:
    hosts = Hosts(3)
    hosts.rest()
    leader = hosts.leader(1)
    gone = next(server for server in DISKS if server != leader)
    wanted = {server: disk for server, disk in DISKS.items() if server != gone}
    for host in hosts.hosts.values():
        host.prefer(GroupId(1), None)
        host.want_members(GroupId(1), wanted)
    hosts.run(4 * T)
    placed = [group for effects in hosts.effects[leader] for group in effects.placed]
    assert placed[-1] == GroupId(1)
    assert hosts.replica(leader, 1).raft.membership.voters == tuple(sorted(wanted))
    left = hosts.replica(gone, 1)
    hosts.hosts[gone].retire(GroupId(1))
    term = left.raft.term
    hosts.run(4 * T)
    before = hosts.touched()
    hosts.run(4 * T)
    assert hosts.touched() == before
    assert left.raft.term == term > 0
    assert not left.raft.is_voter


def test_d4_an_image_that_cannot_be_read_leaves_log_and_state_as_they_were() -> None:
    """Else the log would begin behind the image, and what lies between the state and there would never be applied."""
    hosts = Hosts(1)
    hosts.rest()
    follower = next(server for server in DISKS if server != hosts.leader(1))
    host, replica = hosts.hosts[follower], hosts.replica(follower, 1)
    log = replica.raft.log
    membership = log.membership_at(log.last_index)
    assert membership is not None
    meta = SnapshotMeta(log.last_index + 10, replica.raft.term, log.next_position, membership)
    before = (log.first_index, log.last_index, replica.raft.commit_index, replica.applied_index)
    with pytest.raises(ProtocolError, match="counter"):
        host.install(GroupId(1), meta, b"no image")
    assert (log.first_index, log.last_index, replica.raft.commit_index, replica.applied_index) == before
    assert host.install(GroupId(1), meta, AppendCounter().snapshot())
    assert log.first_index == meta.index + 1
    assert log.last_index == replica.applied_index == replica.snapshot_index == meta.index


def test_d4_an_image_whose_membership_cannot_be_read_changes_neither_log_nor_state() -> None:
    hosts = Hosts(1)
    hosts.rest()
    follower = next(server for server in DISKS if server != hosts.leader(1))
    host, replica = hosts.hosts[follower], hosts.replica(follower, 1)
    log, digest = replica.raft.log, replica.machine.digest()
    other = AppendCounter()
    other.apply(Entry(1, 1, EntryKind.COMMANDS, 1, 1, b"other"))
    before = (log.first_index, log.last_index, replica.raft.commit_index, replica.applied_index)
    meta = SnapshotMeta(log.last_index + 10, replica.raft.term, log.next_position, b"?")
    with pytest.raises(ProtocolError):
        host.install(GroupId(1), meta, other.snapshot())
    assert (log.first_index, log.last_index, replica.raft.commit_index, replica.applied_index) == before
    assert replica.machine.digest() == digest
