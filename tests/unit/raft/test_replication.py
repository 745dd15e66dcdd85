"""How a leader brings entries and commits to its followers: pipelined, bounded, repaired, never flooding."""

from __future__ import annotations

import pytest
from attrs import evolve

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
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    Message,
)
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.errors import ProtocolError
from zraft_core.ids import ServerId


def leader_with_match(settings: RaftSettings = SETTINGS) -> Raft:
    """A leader of term 1 whose follower 2 holds everything."""
    raft = make_raft(1, settings=settings)
    lead(raft)
    hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, 1))
    return raft


def accept(raft: Raft, index: int) -> list[tuple[int, Message]]:
    return hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, index))


def refuse(raft: Raft, prev: int, last: int) -> list[tuple[int, Message]]:
    reply = AppendEntriesReply(GROUP, raft.term, False, 0, prev, last + 1, 0)
    return hear(raft, 2, reply)


def propose_one_by_one(raft: Raft, count: int, size: int = 10) -> list[AppendEntries]:
    sent = []
    for _ in range(count):
        raft.propose(bytes(size), 1)
        sent += of_kind(drain(raft), AppendEntries, to=2)
    return sent


def indexes(messages: list[AppendEntries]) -> list[list[int]]:
    return [[entry.index for entry in message.entries] for message in messages]


def test_first_entry_of_an_empty_cluster_is_the_roster() -> None:
    """D-1: a MEMBERSHIP entry instead of a no-op."""
    raft = make_raft(1)
    lead(raft)
    entry = raft.log.entry(1)
    assert (entry.kind, entry.payload) == (EntryKind.MEMBERSHIP, membership_of((1, 2, 3)).encode())
    assert raft.noop_index == 1


def test_first_entry_of_a_later_leadership_is_a_noop_without_position() -> None:
    """D-16: a no-op takes no position."""
    raft = make_raft(1, terms=(1, 1))
    lead(raft)
    entry = raft.log.entry(3)
    assert (entry.kind, entry.position, entry.count) == (EntryKind.NOOP, 3, 0)
    assert raft.propose(b"abc", 5) == 4
    assert raft.propose(b"abc", 1) == 5
    assert (raft.log.entry(4).position, raft.log.entry(5).position) == (3, 8)


def test_new_leader_announces_itself_to_everybody_at_once() -> None:
    messages = lead(make_raft(1))
    assert {to for to, m in messages if isinstance(m, AppendEntries)} == {2, 3}
    assert {to for to, m in messages if isinstance(m, Heartbeat)} == {2, 3}


def test_entries_follow_each_other_without_waiting_for_acknowledgements() -> None:
    raft = leader_with_match()
    assert indexes(propose_one_by_one(raft, 3)) == [[2], [3], [4]]


def test_window_is_bounded_in_messages_and_what_waits_travels_together() -> None:
    raft = leader_with_match(RaftSettings(inflight_messages_max=2))
    assert indexes(propose_one_by_one(raft, 5)) == [[2], [3]]
    assert indexes(of_kind(accept(raft, 2), AppendEntries, to=2)) == [[4, 5, 6]]


def test_follower_of_unknown_match_gets_one_entry_at_a_time() -> None:
    raft = make_raft(1, terms=(1,) * 5)
    first = of_kind(lead(raft), AppendEntries, to=2)
    assert indexes(first) == [[6]]
    assert propose_one_by_one(raft, 3) == []
    assert indexes(of_kind(refuse(raft, 5, last=2), AppendEntries, to=2)) == [[3]]
    assert indexes(of_kind(accept(raft, 3), AppendEntries, to=2)) == [[4, 5, 6, 7, 8, 9]]


def test_lost_append_is_repaired_by_the_first_refusal_and_the_others_say_nothing_new() -> None:
    """Entry 2 is lost, 3 and 4 are refused: one probe, not one repetition for each refusal."""
    raft = leader_with_match()
    propose_one_by_one(raft, 3)
    assert indexes(of_kind(refuse(raft, 2, last=1), AppendEntries, to=2)) == [[2]]
    assert of_kind(refuse(raft, 3, last=1), AppendEntries, to=2) == []
    assert of_kind(refuse(raft, 2, last=1), AppendEntries, to=2) == []
    assert indexes(of_kind(accept(raft, 2), AppendEntries, to=2)) == [[3, 4]]


def test_lost_last_append_is_noticed_by_the_next_heartbeat() -> None:
    raft = leader_with_match()
    propose_one_by_one(raft, 1)
    raft.tick(SETTINGS.heartbeat_ticks)
    drain(raft)
    messages = hear(raft, 2, HeartbeatReply(GROUP, raft.term, raft.round, 1))
    assert indexes(of_kind(messages, AppendEntries, to=2)) == [[2]]


def test_heartbeat_sent_before_the_append_says_nothing_about_it() -> None:
    raft = leader_with_match()
    raft.tick(SETTINGS.heartbeat_ticks)
    drain(raft)
    propose_one_by_one(raft, 1)
    messages = hear(raft, 2, HeartbeatReply(GROUP, raft.term, raft.round, 1))
    assert of_kind(messages, AppendEntries, to=2) == []


def test_lost_acknowledgement_is_asked_for_with_the_last_entry_only() -> None:
    raft = leader_with_match()
    propose_one_by_one(raft, 4)
    raft.tick(SETTINGS.heartbeat_ticks)
    drain(raft)
    hear(raft, 2, HeartbeatReply(GROUP, raft.term, raft.round, 5))
    raft.tick(SETTINGS.resend_ticks)
    assert indexes(of_kind(drain(raft), AppendEntries, to=2)) == [[5]]
    accept(raft, 5)
    assert raft.commit_index == 5


def test_silent_follower_gets_heartbeats_only() -> None:
    """A dead server must not be sent the log again and again."""
    raft = leader_with_match()
    propose_one_by_one(raft, 3)
    sent: list[tuple[int, Message]] = []
    for _ in range(10):
        raft.tick(SETTINGS.heartbeat_ticks)
        sent += drain(raft)
        hear(raft, 3, HeartbeatReply(GROUP, raft.term, raft.round, 1))
    assert of_kind(sent, AppendEntries, to=2) == []
    assert len(of_kind(sent, Heartbeat, to=2)) == 10


def test_lost_probe_is_repeated_once_the_follower_answers() -> None:
    raft = make_raft(1, terms=(1,) * 3)
    lead(raft)
    raft.tick(SETTINGS.heartbeat_ticks)
    drain(raft)
    hear(raft, 2, HeartbeatReply(GROUP, raft.term, raft.round, 3))
    raft.tick(SETTINGS.resend_ticks)
    assert indexes(of_kind(drain(raft), AppendEntries, to=2)) == [[4]]


def test_datagrams_do_not_follow_a_bulk_message_on_its_way() -> None:
    """D-22: sent by a stream, it would be overtaken, and each one behind it refused."""
    raft = leader_with_match()
    big = SETTINGS.bulk_bytes_min
    assert indexes(propose_one_by_one(raft, 1, size=big)) == [[2]]
    assert propose_one_by_one(raft, 2) == []
    assert indexes(propose_one_by_one(raft, 1, size=big)) == [[3, 4, 5]], "another bulk message may follow"
    assert propose_one_by_one(raft, 1) == []
    accept(raft, 2)
    assert indexes(of_kind(accept(raft, 5), AppendEntries, to=2)) == [[6]]


def test_bulk_message_on_its_way_is_not_taken_for_lost() -> None:
    """D-22: heartbeats overtake it; only much later it is given up."""
    raft = leader_with_match()
    propose_one_by_one(raft, 1, size=SETTINGS.bulk_bytes_min)
    sent_at = raft.now
    messages: list[AppendEntries] = []
    while not messages:
        raft.tick(SETTINGS.heartbeat_ticks)
        answer = HeartbeatReply(GROUP, raft.term, raft.round + 1, 1)
        messages = of_kind(drain(raft) + hear(raft, 2, answer), AppendEntries, to=2)
    assert indexes(messages) == [[2]]
    assert 0 <= raft.now - sent_at - SETTINGS.bulk_resend_ticks <= SETTINGS.heartbeat_ticks


def test_restarted_follower_that_lost_its_unsynced_tail_is_repaired() -> None:
    network = Network(3)
    leader = network.elect(1)
    leader.propose(b"x", 1)
    network.ready(1)
    for packet in network.take(AppendEntries, to=3):
        network.deliver(packet)
    network.crash(3)
    network.settle()
    network.start(3)
    network.run(4 * SETTINGS.heartbeat_ticks)
    assert network.rafts[3].durable_index == network.rafts[3].commit_index == 2


def test_followers_learn_of_a_commit_at_once() -> None:
    """By the next append if there is one, else by a heartbeat of round 0, which is not answered."""
    raft = leader_with_match()
    raft.propose(b"x", 1)
    drain(raft)
    messages = accept(raft, 2)
    assert of_kind(messages, Heartbeat, to=2) == [Heartbeat(GROUP, raft.term, 0, 2)]
    assert of_kind(messages, Heartbeat, to=3) == []

    propose_one_by_one(raft, 1)
    raft.step(ServerId(2), instance_of(2), AppendEntriesReply(GROUP, raft.term, True, 3))
    raft.propose(b"y", 1)
    messages = drain(raft)
    assert [m.leader_commit for m in of_kind(messages, AppendEntries, to=2)] == [3]
    assert of_kind(messages, Heartbeat, to=2) == []

    follower = make_raft(2, terms=(1, 1))
    assert hear(follower, 1, Heartbeat(GROUP, 1, 0, 2)) == []
    assert follower.commit_index == 2


def test_late_follower_learns_of_the_commit_when_its_acknowledgement_arrives() -> None:
    network = Network(3)
    leader = network.elect(1)
    leader.propose(b"x", 1)
    network.settle()
    assert {raft.commit_index for raft in network.rafts.values()} == {2}


def test_proposals_are_refused_above_the_bound_of_uncommitted_bytes() -> None:
    raft = leader_with_match(RaftSettings(uncommitted_bytes_max=100))
    assert raft.propose(bytes(500), 1) == 2, "one always fits"
    assert raft.propose(b"x", 1) is None
    drain(raft)
    accept(raft, 2)
    assert raft.statistics().uncommitted_bytes == 0
    assert raft.propose(b"x", 1) == 3
    assert raft.statistics().proposals_refused_total == 1


def test_only_a_leader_takes_proposals() -> None:
    assert make_raft(2).propose(b"x", 1) is None


def test_requested_round_begins_at_once_and_contact_is_its_sending() -> None:
    """D-11c, D-14: contact is when the confirmed round was sent, not when it was answered."""
    raft = leader_with_match()
    raft.tick(3)
    number = raft.request_round()
    assert [m.round for m in of_kind(drain(raft), Heartbeat, to=2)] == [number]
    sent_at = raft.now
    raft.tick(7)
    hear(raft, 2, HeartbeatReply(GROUP, raft.term, number, 1))
    assert (raft.quorum_round, raft.rounds.contact) == (number, sent_at)


def asked(messages: list[tuple[int, Message]]) -> list[int]:
    """Who has to answer these heartbeats; each follower gets one."""
    beats = [(to, message.round) for to, message in messages if isinstance(message, Heartbeat)]
    assert sorted(to for to, _ in beats) == [2, 3]
    return [to for to, number in beats if number]


def beat(raft: Raft) -> list[int]:
    """The time of the next round has come."""
    raft.tick(int(raft.alarm_in))
    return asked(drain(raft))


def answer(raft: Raft, *servers: int) -> None:
    for server in servers:
        hear(raft, server, HeartbeatReply(GROUP, raft.term, raft.round, raft.log.last_index))


def leader_of_steady_followers() -> Raft:
    """Both followers hold the whole log and answered the newest round, which asked them all."""
    raft = leader_with_match()
    hear(raft, 3, AppendEntriesReply(GROUP, raft.term, True, 1))
    assert beat(raft) == [2, 3]
    answer(raft, 2, 3)
    return raft


def test_followers_take_turns_in_answering_rounds_that_nobody_waits_for() -> None:
    """All hear every round; one answer of two followers makes a quorum, and the other would only wake the leader."""
    raft = leader_of_steady_followers()
    turns = []
    for _ in range(4):
        (one,) = beat(raft)
        answer(raft, one)
        assert (raft.quorum_round, raft.rounds.contact) == (raft.round, raft.now)
        turns.append(one)
    assert turns in ([2, 3, 2, 3], [3, 2, 3, 2])


def test_followers_that_are_equally_far_get_one_message() -> None:
    """It is made once, and packed once."""
    raft = leader_of_steady_followers()
    for number in range(3):
        raft.propose(bytes([number]), 1)
        first, second = (message for _, message in drain(raft) if isinstance(message, AppendEntries))
        assert first is second
        assert first.entries[-1] == raft.log.entry(raft.log.last_index)
        if number == 1:
            hear(raft, 2, AppendEntriesReply(GROUP, raft.term, True, raft.log.last_index))
    raft.step(ServerId(3), instance_of(3), Heartbeat(GROUP, raft.term + 1, 0, 0))
    assert raft.role is Role.FOLLOWER
    assert raft._replication._newest is None, "another leader may replace those entries"


def test_a_beat_says_what_a_tick_and_the_ready_after_it_would() -> None:
    short, long = leader_of_steady_followers(), leader_of_steady_followers()
    for _ in range(6):
        for raft in (short, long):
            raft.pass_time(int(raft.alarm_in))
        said = short.beat()
        long.tick(0)
        assert said is not None
        assert tuple(said) == long.ready().messages
        assert (short.round, short.alarm_in) == (long.round, long.alarm_in)
        (one,) = asked(list(said))
        for raft in (short, long):
            answer(raft, one)
        assert short.rounds.contact == long.rounds.contact == short.now


def test_a_leader_beats_only_if_nothing_else_is_due() -> None:
    early, unanswered, writing, asked_to_read, silent, changing = (
        leader_of_steady_followers() for _ in range(6)
    )
    for raft in (unanswered, writing, asked_to_read, silent, changing):
        raft.pass_time(int(raft.alarm_in))
    assert unanswered.beat() is not None
    unanswered.pass_time(int(unanswered.alarm_in))
    writing.propose(b"x", 1)
    asked_to_read.read_index(7)
    silent.pass_time(SETTINGS.election_timeout_ticks)
    assert changing.transfer_leadership(ServerId(2))
    for raft in (early, unanswered, writing, asked_to_read, silent, changing):
        newest, now = raft.round, raft.now
        assert raft.beat() is None
        assert (raft.round, raft.now, raft.role) == (newest, now, Role.LEADER)
    silent.tick(0)
    assert silent.role is Role.FOLLOWER, "it has heard no quorum for an election timeout"


def test_rounds_are_rarer_while_nothing_is_under_way() -> None:
    raft = leader_of_steady_followers()
    (one,) = beat(raft)
    assert raft.alarm_in == SETTINGS.idle_heartbeat_ticks > SETTINGS.heartbeat_ticks
    answer(raft, one)
    beat(raft)
    assert raft.alarm_in == SETTINGS.idle_heartbeat_ticks
    assert beat(raft) == [2, 3], "the round before was not answered"
    assert raft.alarm_in == SETTINGS.heartbeat_ticks


def test_an_entry_brings_the_next_round_forward() -> None:
    """It may be lost, and is asked for again with the next round at the latest."""
    raft = leader_of_steady_followers()
    beat(raft)
    raft.tick(3)
    raft.propose(b"x", 1)
    assert raft.alarm_in == SETTINGS.heartbeat_ticks
    raft.tick(SETTINGS.heartbeat_ticks - 1)
    raft.propose(b"y", 1)
    assert raft.alarm_in == 1, "and never puts it off"


def test_a_round_joins_what_else_is_said_in_the_second_half_of_its_interval() -> None:
    """The leader then waits a fifth of an interval longer, so that the same server begins the next time, too."""
    raft = leader_of_steady_followers()
    (one,) = beat(raft)
    answer(raft, one)
    raft.tick(1)
    assert not raft.join_round()
    raft.tick(int(raft.alarm_in) - SETTINGS.idle_heartbeat_ticks // 2)
    assert raft.join_round()
    assert len(asked(drain(raft))) == 1
    assert raft.alarm_in == SETTINGS.idle_heartbeat_ticks * 6 // 5
    assert not raft.join_round()


def test_followers_begin_no_rounds() -> None:
    raft = leader_of_steady_followers()
    hear(raft, 2, Heartbeat(GROUP, raft.term + 1, 1, 0))
    assert raft.role is Role.FOLLOWER
    assert not raft.join_round()


def test_everybody_is_asked_once_a_round_is_not_answered_until_each_answers_again() -> None:
    raft = leader_of_steady_followers()
    (silent,) = beat(raft)
    other = 5 - silent
    for _ in range(3):
        assert beat(raft) == [2, 3]
        answer(raft, other)
        assert raft.quorum_round == raft.round
    answer(raft, silent)
    assert len(beat(raft)) == 1


def test_everybody_is_asked_by_a_round_that_somebody_waits_for() -> None:
    raft = leader_of_steady_followers()
    raft.request_round()
    assert asked(drain(raft)) == [2, 3]
    answer(raft, 2, 3)
    raft.tick(1)
    raft.read_index(7)
    assert asked(drain(raft)) == [2, 3]


def test_a_read_does_not_wait_behind_a_round_that_asked_one_follower() -> None:
    """It may be dead, and the next round by the time alone is a heartbeat later."""
    raft = leader_of_steady_followers()
    (silent,) = beat(raft)
    raft.read_index(7)
    assert asked(drain(raft)) == [2, 3]
    raft.step(ServerId(5 - silent), instance_of(5 - silent), HeartbeatReply(GROUP, raft.term, raft.round, 1))
    assert raft.ready().read_states == ((7, 1),)


def test_a_follower_that_lacks_entries_is_asked_by_every_round() -> None:
    """Its answer tells where its log ends, which is how the loss of an append is noticed."""
    raft = leader_of_steady_followers()
    raft.propose(b"x", 1)
    drain(raft)
    accept(raft, 2)
    for _ in range(3):
        assert beat(raft) == [2, 3]
        answer(raft, 2)


def test_answer_to_an_unknown_round_is_an_error() -> None:
    raft = leader_with_match()
    with pytest.raises(ProtocolError, match="answers round 99"):
        hear(raft, 2, HeartbeatReply(GROUP, raft.term, 99, 1))


def test_two_leaders_of_one_term_are_an_error() -> None:
    raft = make_raft(2)
    hear(raft, 1, Heartbeat(GROUP, 1, 1, 0))
    with pytest.raises(ProtocolError, match="server 3 claims to lead"):
        hear(raft, 3, Heartbeat(GROUP, 1, 1, 0))
    leader = make_raft(1)
    lead(leader)
    with pytest.raises(ProtocolError, match="which server 1 leads"):
        hear(leader, 2, Heartbeat(GROUP, leader.term, 1, 0))


def command(index: int, term: int = 1, position: int | None = None) -> Entry:
    return Entry(index, term, EntryKind.COMMANDS, index if position is None else position, 1, b"x")


@pytest.mark.parametrize(
    "message",
    [
        AppendEntries(GROUP, 1, 2, 1, 0, ()),
        AppendEntries(GROUP, 1, 2, 1, 0, (command(4),)),
        AppendEntries(GROUP, 1, 2, 1, 0, (command(3), command(5))),
        AppendEntries(GROUP, 2, 2, 1, 0, (command(3, term=2), command(4, term=1))),
        AppendEntries(GROUP, 1, 2, 1, 0, (command(3, term=2),)),
        AppendEntries(GROUP, 1, 2, 1, 0, (command(3), command(4, position=9))),
        AppendEntries(GROUP, 1, 2, 1, 0, (command(3, position=9),)),
    ],
    ids=["empty", "gap before", "gap within", "term falls", "term above", "position", "first position"],
)
def test_append_that_is_no_piece_of_a_log_is_an_error_and_changes_nothing(message: AppendEntries) -> None:
    raft = make_raft(2, terms=(1, 1))
    with pytest.raises(ProtocolError):
        hear(raft, 1, message)
    assert raft.log.last_index == raft.durable_index == 2


def test_steady_state_takes_four_messages_for_each_proposal_of_three_servers() -> None:
    """Two appends, two acknowledgements, commits with the next append: nothing else is sent."""
    network = Network(3)
    leader = network.elect(1)
    count = 0
    for _ in range(20):
        leader.propose(b"x", 1)
        for server in (1, 2, 3):
            network.ready(server)
            network.sync(server)
        packets, network.packets = network.packets, []
        count += len(packets)
        for packet in packets:
            assert not isinstance(packet.message, SnapshotMeta)
            network.rafts[packet.to].step(ServerId(packet.sender), instance_of(packet.sender), packet.message)
    assert count <= 4 * 20
    assert leader.commit_index >= 19


def test_follower_catches_up_from_the_archive() -> None:
    """Entries that left the leader's memory are read back, bounded in bytes, and nothing else changes."""
    entries = entries_of([1] * 50)
    asked = []

    def archive(lo: int, hi: int, bytes_max: int) -> tuple[Entry, ...]:
        asked.append((lo, hi, bytes_max))
        return entries[lo - 1 : min(hi - 1, lo + 9)]

    log = Log(entries=entries, archive=archive)
    log.evict_to(45)
    raft = make_raft(1, log=log)
    lead(raft)
    refuse(raft, 50, last=0)
    got = [1]
    messages = of_kind(accept(raft, 1), AppendEntries, to=2)
    while messages:
        got += [entry.index for message in messages for entry in message.entries]
        messages = of_kind(accept(raft, got[-1]), AppendEntries, to=2)
    assert got == list(range(1, 52))
    assert {bytes_max for _, _, bytes_max in asked[1:]} == {SETTINGS.append_bytes_max}
    assert max(hi for _, hi, _ in asked) == 46, "what is in memory is not read from disk"
    assert raft.commit_index == 51


def test_a_follower_whose_window_is_full_costs_one_read_until_there_is_room() -> None:
    """Entries are appended and committed meanwhile; what it is sent at last says how far all is committed by then."""
    settings = evolve(SETTINGS, append_bytes_max=1_000, inflight_bytes_max=1_500)
    entries = entries_of([1] * 50)
    asked = []

    def archive(lo: int, hi: int, bytes_max: int) -> tuple[Entry, ...]:
        asked.append(lo)
        return entries[lo - 1 : min(hi - 1, lo + 3)]

    log = Log(entries=entries, archive=archive)
    log.evict_to(50)
    raft = make_raft(1, settings=settings, log=log)
    lead(raft)
    refuse(raft, 50, last=0)
    sent = of_kind(accept(raft, 1), AppendEntries, to=2)
    assert sent
    asked.clear()
    for _ in range(10):
        raft.propose(bytes(10), 1)
        assert not of_kind(drain(raft), AppendEntries, to=2)
    assert len(asked) <= 1
    hear(raft, 3, AppendEntriesReply(GROUP, raft.term, True, 55))
    assert len(asked) <= 1
    last = sent[-1].entries[-1].index
    (following, *_) = of_kind(accept(raft, last), AppendEntries, to=2)
    assert following.entries[0] == entries[last]
    assert following.leader_commit == raft.commit_index == 55


def test_follower_behind_the_log_is_named_in_the_statistics() -> None:
    log = Log(entries=entries_of([2, 2], first_index=11), first_index=11, base_term=1, base_position=11)
    raft = make_raft(1, log=log)
    lead(raft)
    assert of_kind(refuse(raft, 12, last=3), AppendEntries, to=2) == []
    second, third = raft.statistics().followers
    assert (second.needs_snapshot, third.needs_snapshot) == (True, False)
