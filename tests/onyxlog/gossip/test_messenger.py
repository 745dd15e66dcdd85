"""The messenger's rules: what is applied, what is published, who is asked, and when the log is read (O-21, 3.2-1)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from onyxlog.gossip.messages import Found, Heartbeat, PoolEvent, Send, Want
from onyxlog.gossip.outputs import BeginAgain, LookAtEnd, ReadLog, Reason, Tail
from onyxlog.gossip.settings import GossipSettings
from onyxlog.gossip.simulation import digest
from onyxlog.ids import BEFORE_ALL, GroupId
from tests.onyxlog.gossip.harness import Harness, chain, event, on_stream, payload
from zraft_core.errors import ConfigError

QUIET = GossipSettings(sentinels=0, heartbeat_ms=50_000, heartbeat_ms_max=50_000)
SENTINEL = GossipSettings(sentinels=8, heartbeat_ms=50_000, heartbeat_ms_max=50_000)


def reads(group: Harness) -> list[ReadLog]:
    return [output for output in group.taken() if isinstance(output, ReadLog)]


def heartbeats(group: Harness) -> list[tuple[tuple[GroupId, ...], Heartbeat]]:
    """To whom, and what, since the test looked last."""
    return [
        (output.to, output.message)
        for output in group.taken()
        if isinstance(output, Send) and isinstance(output.message, Heartbeat)
    ]


def test_events_are_applied_in_the_order_of_the_log_whatever_they_arrive_in_and_once() -> None:
    group = Harness()
    group.hear(2, 0, 0, 1, 2, 1)
    assert group.applied == [0, 1, 2]
    assert group.messenger.chain == chain(2)


def test_an_entry_is_published_when_the_log_has_accepted_it_and_all_before_it_are_applied_here() -> None:
    group = Harness()
    group.wrote(1)
    assert group.published() == []
    group.hear(0)
    assert 1 in group.published()
    assert group.applied == [0, 1]


def test_what_a_group_publishes_carries_the_chain_before_it() -> None:
    group = Harness()
    group.wrote(0)
    sent = [o.message for o in group.taken() if isinstance(o, Send) and isinstance(o.message, PoolEvent)]
    assert [(copy.event.previous, copy.event.publisher) for copy in sent] == [(bytes(16), "g000")]


def test_a_missing_entry_is_asked_of_who_has_shown_that_it_exists_and_then_of_others_and_then_read() -> None:
    group = Harness(settings=QUIET)
    group.hear(1, sender="g003")
    asked = []
    for _ in range(group.settings.repair_attempts):
        while not (
            found := [o for o in group.taken() if isinstance(o, Send) and isinstance(o.message, Want)]
        ):
            group.wait(1)
        asked += found
    assert asked[0].to == ("g003",)
    assert [send.message for send in asked] == [Want(0, 1)] * 2
    assert group.wait_for(ReadLog, 1000) == ReadLog(0, 1, Reason.GAP)
    assert group.messenger.counters.reads == {"gap": 1}
    group.answer(0)
    assert group.applied == [0, 1]


def test_what_a_peer_gives_ends_the_search_and_the_log_is_not_read() -> None:
    group = Harness(settings=QUIET)
    group.hear(1)
    assert group.wait_for(Want, 1000) == Want(0, 1)
    group.receive(Found((event(0),), 1))
    assert group.applied == [0, 1]
    group.wait(3000)
    assert reads(group) == []


def test_who_answers_that_it_has_nothing_is_not_waited_for() -> None:
    group = Harness(settings=QUIET)
    group.hear(1)
    group.wait_for(Want, 1000)
    group.receive(Found((), 1))
    before = group.now
    group.wait_for(Want, 1000)
    assert group.now - before <= 2


def test_groups_that_miss_the_same_do_not_ask_at_the_same_moment() -> None:
    times = set()
    for seed in range(20):
        group = Harness(settings=QUIET, seed=seed)
        group.hear(1)
        group.wait_for(Want, 1000)
        times.add(group.now)
    assert len(times) > 10
    assert max(times) <= 1.5 * QUIET.gap_ms + 1
    assert min(times) >= 0.5 * QUIET.gap_ms


def test_more_than_peers_are_asked_for_is_read_from_the_log_in_bounded_reads() -> None:
    settings = GossipSettings(sentinels=0, read_entries_max=100)
    group = Harness(settings=settings)
    group.receive(Heartbeat(499, b"", 0))
    assert group.wait_for(ReadLog, 1000) == ReadLog(0, 100, Reason.BEHIND)
    group.answer(*range(100))
    assert group.wait_for(ReadLog, 1000) == ReadLog(100, 200, Reason.BEHIND)


def test_one_read_is_asked_for_at_a_time_and_a_failed_one_is_tried_again_later() -> None:
    group = Harness(settings=QUIET)
    group.hear(1)
    group.wait_for(ReadLog, 5000)
    group.wait(10_000)
    assert reads(group) == []
    group.messenger.log_failed(group.now)
    assert group.wait_for(ReadLog, 20_000).first == 0


def test_a_heartbeat_shows_a_gap_to_a_group_that_heard_no_event_without_touching_the_log() -> None:
    group = Harness(settings=QUIET)
    group.receive(Heartbeat(1, chain(1), 0), "g005")
    asked = group.wait_for(Want, 1000)
    assert asked == Want(0, 2)
    group.receive(Found((event(0), event(1)), 2), "g005")
    assert group.applied == [0, 1]
    assert not group.messenger.counters.reads


def test_who_is_behind_is_told_so_once_and_an_answer_is_not_answered() -> None:
    group = Harness(settings=QUIET)
    group.hear(0)
    group.taken()
    group.receive(Heartbeat(-1, bytes(16), 0), "g004")
    assert [(to, heartbeat.applied, heartbeat.answer) for to, heartbeat in heartbeats(group)] == [
        (("g004",), 0, True)
    ]
    group.receive(Heartbeat(-1, bytes(16), 0, answer=True), "g004")
    assert not [o for o in group.taken() if isinstance(o, Send) and isinstance(o.message, Heartbeat)]


def test_a_silent_group_looks_at_the_log_less_and_less_often() -> None:
    group = Harness(settings=QUIET)
    times = []
    for _ in range(12):
        assert group.wait_for(ReadLog).reason is Reason.POLL
        times.append(group.now)
        group.answer()
    waits = [after - before for before, after in pairwise(times)]
    assert QUIET.poll_ms / 2 <= times[0] <= 1.5 * QUIET.poll_ms
    assert all(wait <= 1.5 * QUIET.poll_ms_max for wait in waits)
    assert min(waits[4:]) >= QUIET.poll_ms_max / 2
    assert len(set(waits)) > 3, "at random"


def test_that_somebody_has_looked_at_the_log_spares_others_the_look() -> None:
    group = Harness(settings=QUIET)
    for _ in range(40):
        group.wait(2000)
        group.receive(Heartbeat(-1, bytes(16), 100), "g002")
    assert reads(group) == []
    group.wait(30_000)
    assert reads(group) != []


def test_what_a_poll_finds_is_published_as_nobody_else_has() -> None:
    group = Harness(settings=QUIET)
    group.wait_for(ReadLog)
    group.answer(0, 1)
    assert group.published() == [0, 1]


def test_what_fills_a_known_gap_is_not_published_again() -> None:
    group = Harness(settings=QUIET)
    group.hear(1)
    group.wait_for(ReadLog, 5000)
    group.taken()
    group.answer(0)
    assert 0 not in group.published()


def test_a_sentinel_publishes_what_no_group_did_and_leaves_to_its_writer_what_one_does() -> None:
    group = Harness(settings=SENTINEL)
    assert [o for o in group.taken() if isinstance(o, Tail)] == [Tail(True)]
    group.messenger.tailed([(0, payload(0)), (1, payload(1))], group.now)
    group.play()
    assert group.applied == [0, 1]
    group.hear(1)
    group.taken()
    group.wait(SENTINEL.sentinel_wait_ms + 1)
    assert group.published() == [0]


def test_a_sentinel_tells_everybody_that_there_is_nothing_new_and_one_that_lost_the_log_does_not() -> None:
    group = Harness(settings=SENTINEL)
    group.messenger.tailed([], 0)
    group.taken()
    told = []
    for _ in range(4):
        group.wait_for(LookAtEnd, SENTINEL.sentinel_beat_ms + 1)
        group.end(0)
        told += heartbeats(group)
    assert group.now == SENTINEL.sentinel_quiet_ms + 3 * SENTINEL.sentinel_beat_ms
    assert [(len(to), heartbeat.age_ms) for to, heartbeat in told] == [(7, 0)] * 4
    group.messenger.tail_lost(group.now)
    assert group.wait_for(ReadLog).reason is Reason.POLL


def test_a_sentinel_that_gets_no_answer_from_the_log_tells_nothing_and_asks_again_when_it_has_waited() -> (
    None
):
    group = Harness(settings=SENTINEL)
    group.messenger.tailed([], 0)
    group.wait_for(LookAtEnd)
    group.wait(4 * SENTINEL.sentinel_beat_ms)
    assert group.taken() == []
    group.messenger.look_failed()
    group.wait_for(LookAtEnd, SENTINEL.sentinel_beat_ms + 1)
    assert heartbeats(group) == []
    assert group.messenger.counters.looks == 2


def test_a_sentinel_tells_since_when_it_knows_and_that_is_when_it_asked() -> None:
    group = Harness(settings=SENTINEL)
    group.messenger.tailed([], 0)
    group.wait_for(LookAtEnd)
    group.wait(300)
    group.end(0)
    assert [heartbeat.age_ms for _, heartbeat in heartbeats(group)] == [300]


def test_a_sentinel_that_sees_an_entry_in_the_log_which_it_was_not_pushed_tells_nothing() -> None:
    group = Harness(settings=SENTINEL)
    group.messenger.tailed([], 0)
    group.wait_for(LookAtEnd)
    group.end(1)
    assert heartbeats(group) == []
    group.messenger.tailed([(0, payload(0))], group.now)
    group.play()
    group.wait_for(LookAtEnd, SENTINEL.sentinel_quiet_ms + 1)
    group.end(1)
    assert [heartbeat.applied for _, heartbeat in heartbeats(group)] == [0]


def test_a_sentinels_heartbeats_do_not_claim_more_than_its_last_look_does() -> None:
    """What one group is told goes on to others: a claim without a look would keep all of them from looking."""
    settings = GossipSettings(sentinels=8)
    group = Harness(settings=settings)
    group.messenger.tailed([(0, payload(0))], 0)
    group.play()
    group.wait(60_000)
    ages = [heartbeat.age_ms for _, heartbeat in heartbeats(group)]
    assert ages == sorted(ages)
    assert ages[-1] >= 60_000 - settings.heartbeat_ms_max * 1.5


def test_sentinels_are_few_and_all_groups_agree_who() -> None:
    settings = GossipSettings(sentinels=2)
    sentinels = [
        number for number in range(21) if Tail(True) in Harness(f"g{number:03d}", 21, settings).taken()
    ]
    assert len(sentinels) == 2


def test_an_event_on_another_chain_is_not_applied_and_the_log_decides() -> None:
    group = Harness(settings=QUIET)
    wrong = event(0)
    group.receive(on_stream(type(wrong)(0, b"wrong", b"another chain", BEFORE_ALL, "g001"), group.view))
    assert group.applied == []
    assert reads(group) == [ReadLog(0, 1, Reason.MISMATCH)]
    group.answer(0)
    assert (group.applied, group.payloads) == ([0], [payload(0)])


def test_a_group_that_several_others_contradict_begins_again_at_the_origin() -> None:
    """Its own replica is wrong then: a wrong entry got in unnoticed, say."""
    group = Harness(settings=QUIET)
    wrong = on_stream(type(event(0))(0, b"flipped", bytes(16), BEFORE_ALL, "g001"), group.view)
    group.receive(wrong)
    assert group.payloads == [b"flipped"]
    for number, sender in enumerate(("g001", "g002", "g003"), start=1):
        assert not [o for o in group.taken() if isinstance(o, BeginAgain)]
        group.hear(number, sender=sender)
        group.answer(number)
    again = [o for o in group.taken() if isinstance(o, BeginAgain)]
    assert len(again) == 1
    assert "g001, g002, g003" in again[0].why
    group.messenger.begin(2, chain(2), group.view, group.now)
    group.play()
    group.hear(3, 4)
    assert group.messenger.chain == chain(4)


def test_one_group_that_contradicts_all_does_not_make_others_begin_again() -> None:
    group = Harness(settings=QUIET)
    for position in range(12):
        other = type(event(0))(position, payload(position), b"its own chain", BEFORE_ALL, "g002")
        group.receive(on_stream(other, group.view, "g002"), "g002")
        group.answer(position)
        group.hear(position)
    assert group.applied == list(range(12))
    assert not [o for o in group.taken() if isinstance(o, BeginAgain)]


def test_collection_that_overtakes_a_group_makes_it_go_on_from_the_origin() -> None:
    """3.2-9: what came by gossip beyond the origin is kept, and nothing before it is applied."""
    group = Harness(settings=QUIET)
    group.hear(7, 8)
    group.messenger.begin(6, chain(6), group.view, group.now)
    group.play()
    assert group.applied == [7, 8]
    group.hear(5)
    assert group.applied == [7, 8]
    group.receive(Want(3, 6), "g002")
    assert [o.message for o in group.taken() if isinstance(o, Send) and isinstance(o.message, Found)] == [
        Found((), 6)
    ]


def test_what_is_given_to_a_peer_fits_a_few_datagrams() -> None:
    group = Harness(settings=QUIET)
    for position in range(60):
        group.receive(Found((event(position),), position + 1))
    group.taken()
    group.receive(Want(0, 1_000_000), "g002")
    given = [o.message for o in group.taken() if isinstance(o, Send) and isinstance(o.message, Found)]
    assert 1 < len(given) <= QUIET.found_datagrams
    assert [e.position for found in given for e in found.events] == list(
        range(sum(len(f.events) for f in given))
    )
    assert all(sum(len(e.payload) + len(e.previous) for e in f.events) <= QUIET.datagram_bytes for f in given)
    assert group.messenger.counters.repairs_given == sum(len(found.events) for found in given)


def test_an_event_that_no_datagram_holds_is_not_sent_but_told_of_and_who_asks_hears_that_there_is_none() -> (
    None
):
    settings = GossipSettings(sentinels=0, payload_bytes_max=len(payload(0)) - 1)
    group = Harness(settings=settings)
    group.wrote(0)
    sent = [o for o in group.taken() if isinstance(o, Send)]
    assert [(len(send.to), type(send.message)) for send in sent] == [(7, Heartbeat)]
    group.receive(Want(0, 1), "g002")
    assert [o for o in group.taken() if isinstance(o, Send)] == [Send(("g002",), Found((), 1))]
    assert group.messenger.counters.repairs_given == 0


def test_a_replayed_old_event_does_nothing() -> None:
    settings = GossipSettings(sentinels=0, history=64)
    group = Harness(settings=settings)
    old = on_stream(event(0), group.view)
    for position in range(200):
        group.receive(Found((event(position),), position + 1))
    group.taken()
    group.receive(old)
    assert group.published() == []
    assert group.messenger.position == 199


def test_only_a_chain_that_follows_from_all_entries_is_reached() -> None:
    assert chain(0) == digest(bytes(16), payload(0))
    assert chain(3) != chain(2)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("gap_ms", 0), ("poll_ms_max", 1), ("heartbeat_ms_max", 1), ("window", 1), ("history", 3)],
)
def test_settings_that_cannot_work_are_refused_by_name(setting: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"gossip.*{setting}"):
        GossipSettings(**{setting: value})  # type: ignore[arg-type]


def test_who_is_stopped_by_a_gap_does_not_tell_of_what_lies_beyond() -> None:
    """Else all would look for an entry that nobody has, and all would read the log."""
    group = Harness(settings=GossipSettings(sentinels=0))
    group.hear(5)
    assert group.wait_for(Heartbeat).applied == -1


def test_who_wrote_the_entry_after_one_that_nobody_published_publishes_that_too() -> None:
    group = Harness(settings=QUIET)
    group.wrote(1)
    assert group.wait_for(ReadLog, 5000) == ReadLog(0, 1, Reason.GAP)
    group.answer(0)
    assert group.published() == [0, 1]
