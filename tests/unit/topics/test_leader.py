"""What a partition's leader says and logs: it follows from the state, is repeated until confirmed, and is bounded."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.unit.topics.groups import VIEW, A, B, C, P, Q, apply, message, partition, remote, start
from zraft.topics.leader import PartitionLeader
from zraft.topics.leader_settings import LeaderSettings
from zraft.topics.partition import Partition
from zraft_core.ids import GroupId
from zraft_core.topics.commands import Advance, Batch, PartitionCommand, Remote, Settled, Start, ViewChanged
from zraft_core.topics.message import COORDINATOR, Message
from zraft_core.topics.messages import (
    Answer,
    FloorReport,
    GroupMessage,
    Need,
    NeedPayload,
    Propose,
    Query,
    Report,
    StartRequest,
    Told,
    ViewUpdate,
)
from zraft_core.topics.stamps import FinalTime
from zraft_core.topics.view import ViewDelta

SETTINGS = LeaderSettings(
    resend_ticks=2,
    resend_ticks_max=8,
    floor_ticks=1,
    advance_ticks=1,
    report_ticks=5,
    gather_ticks=0,
    settle_ticks=0,
    inline_bytes_max=0,
)
HOLDING = evolve(SETTINGS, gather_ticks=2, settle_ticks=3)


class Led:
    """A partition and its leader; `commit` applies what was logged."""

    def __init__(self, state: Partition | None = None, settings: LeaderSettings = SETTINGS) -> None:
        self.state = state or partition()
        self.leader = PartitionLeader(self.state, settings)
        self.logged: list[PartitionCommand] = []
        self.said: dict[GroupId, list[GroupMessage]] = {}
        self.answers: list[Answer] = []
        self.reports: list[Report] = []

    def take(self) -> None:
        output = self.leader.take()
        self.logged += output.commands
        for to, messages in output.messages.items():
            self.said.setdefault(to, []).extend(messages)
        self.answers += [reply.answer for reply in output.replies]
        self.reports += output.reports

    def start(self, m: Message, floor: int = 0, *, relayed: bool = False) -> None:
        self.leader.on_start(StartRequest(m, floor, 0, relayed))
        self.take()

    def hear(self, m: GroupMessage) -> None:
        self.leader.on_message(m)
        self.take()

    def commit(self) -> None:
        applied = self.state.apply(Batch(0, tuple(self.logged)), 1)
        self.logged.clear()
        self.leader.on_applied(applied)
        self.take()

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.leader.tick()
        self.take()

    def heard(self, to: GroupId) -> list[str]:
        return [type(m).__name__ for m in self.said.pop(to, [])]


def propose(m: Message, sender: GroupId, time: int, *, whole: bool = True) -> Propose:
    from_sender = remote(m, sender, time, whole=whole)
    return Propose(m.mid, sender, time, None, 0, from_sender.digest, from_sender.message)


def test_a_message_is_proposed_to_the_others_when_it_is_committed_and_not_before() -> None:
    led = Led()
    led.start(message(1, A, B, C))
    assert led.said == {}
    led.commit()
    assert (led.heard(B), led.heard(C)) == (["Propose"], ["Propose"])
    assert led.answers == [Answer.ACCEPTED]


def test_a_repeated_start_is_logged_once() -> None:
    led = Led()
    led.start(message(1, A, B))
    led.start(message(1, A, B))
    assert led.logged == [Start(message(1, A, B), 0, 0)]
    led.commit()
    led.start(message(1, A, B))
    assert led.logged == []
    assert led.answers == [Answer.ACCEPTED, Answer.ACCEPTED]


def test_what_nobody_has_confirmed_is_said_again_at_growing_intervals() -> None:
    led = Led()
    led.start(message(1, A, B))
    led.commit()
    led.heard(B)
    ticks = []
    for tick in range(1, 31):
        led.tick()
        if "Propose" in led.heard(B):
            ticks.append(tick)
    assert ticks == [2, 4, 8, 16, 24]


def test_what_waits_only_for_its_turn_is_not_said_again() -> None:
    led = Led()
    first, second = message(1, A, C), message(2, A, B)
    led.start(first)
    led.start(second)
    led.commit()
    led.hear(propose(second, B, 1, whole=False))
    led.commit()
    assert second.mid in led.state.pending, "the first one is before it"
    led.heard(B)
    led.heard(C)
    led.tick(20)
    assert led.heard(B) == []
    assert set(led.heard(C)) == {"Propose", "Query"}


def test_who_has_proposed_is_not_told_again_and_asks_for_what_it_lacks() -> None:
    led = Led()
    mine = message(1, A, B, C)
    led.start(mine)
    led.commit()
    led.hear(propose(mine, B, 1, whole=False))
    led.commit()
    led.heard(B)
    led.heard(C)
    led.tick(2)
    assert (led.heard(B), led.heard(C)) == ([], ["Propose", "Query"])
    led.hear(Query(mine.mid, B))
    assert led.heard(B) == ["Propose"]
    successor = Led(led.state)
    successor.tick()
    assert successor.heard(B) == ["Propose"], "who asked, asked the last leader"


def answered_after(led: Led, seq: int, ticks: int) -> None:
    mine = message(seq, A, B)
    led.start(mine)
    led.commit()
    led.leader.tick(ticks)
    led.hear(propose(mine, B, led.state.clock, whole=False))
    led.commit()


def first_repeat(led: Led, seq: int) -> int:
    led.start(message(seq, A, B))
    led.commit()
    led.heard(B)
    for tick in range(1, 100):
        led.tick()
        if "Propose" in led.heard(B):
            return tick
    raise AssertionError("it was not said again")


def test_nothing_is_said_again_before_an_answer_can_be_there() -> None:
    settings = LeaderSettings(resend_ticks=2, resend_ticks_max=64, floor_ticks=1000, report_ticks=1000)
    slow = Led(partition(window=1000), settings)
    for seq in range(1, 20):
        answered_after(slow, seq, 10)
    assert 10 < first_repeat(slow, 20) < 20
    assert first_repeat(Led(settings=settings), 1) == 2
    for seq in range(21, 80):
        answered_after(slow, seq, 2)
    assert first_repeat(slow, 80) <= 4, "it follows the other way, too"


def test_what_was_said_when_answers_came_sooner_waits_as_well() -> None:
    led = Led(settings=LeaderSettings(resend_ticks=2, resend_ticks_max=64, floor_ticks=1000))
    answered_after(led, 1, 1)
    led.start(message(2, A, B))
    led.start(message(3, A, B))
    led.commit()
    led.leader.tick(1)
    for _ in range(8):
        led.leader._resending.took(20)
    led.heard(B)
    led.tick(10)
    assert led.heard(B) == []
    led.tick(60)
    assert led.heard(B).count("Propose") >= 2


def test_a_destination_that_is_down_does_not_slow_what_goes_to_others() -> None:
    settings = LeaderSettings(resend_ticks=2, resend_ticks_max=8, floor_ticks=1000, report_ticks=1000)
    led = Led(partition(window=1000), settings)
    led.start(message(1, A, C))
    led.commit()
    led.leader.tick(100)
    for seq in range(2, 10):
        answered_after(led, seq, 1)
    led.hear(propose(message(1, A, C), C, 1, whole=False))
    led.commit()
    assert first_repeat(led, 10) <= 4


def test_told_ends_the_proposing_and_a_proposal_ends_the_asking() -> None:
    led = Led()
    mine = message(1, A, B)
    led.start(mine)
    led.commit()
    led.hear(Told(mine.mid, B))
    led.heard(B)
    led.tick(2)
    assert led.heard(B) == ["Query"]
    led.hear(propose(mine, B, 1, whole=False))
    led.commit()
    led.tick(20)
    assert set(led.heard(B)) == {"FloorReport"}, "delivered; only B's floor is missing"


def test_a_new_leader_says_again_all_that_is_pending_from_the_state_alone() -> None:
    led = Led()
    led.start(message(1, A, B))
    led.commit()
    successor = Led(led.state)
    successor.tick()
    assert successor.heard(B) == ["Propose", "Query"]


def test_a_proposal_is_confirmed_only_when_it_is_committed() -> None:
    led = Led()
    mine = message(1, A, B)
    led.hear(propose(mine, B, 1))
    led.hear(propose(mine, B, 1))
    assert (led.heard(B), len(led.logged)) == ([], 1)
    led.commit()
    led.heard(B)
    led.hear(propose(mine, B, 1))
    assert led.heard(B) == ["Told"]


def test_a_payload_that_is_lacking_is_asked_for_and_sent_whole() -> None:
    receiver, sender = Led(partition(A)), Led(partition(B))
    mine = message(1, A, B)
    sender.start(mine)
    sender.commit()
    (first,) = sender.said.pop(A)
    assert isinstance(first, Propose)
    assert first.message is None
    receiver.hear(first)
    (need,) = receiver.said.pop(B)
    assert need == NeedPayload(mine.mid, A)
    sender.hear(need)
    (whole,) = sender.said.pop(A)
    receiver.hear(whole)
    assert isinstance(receiver.logged[0], Remote)
    assert receiver.logged[0].message == mine


def test_a_payload_that_is_known_is_not_logged_again() -> None:
    led = Led()
    mine = message(1, A, B)
    led.start(mine)
    led.hear(propose(mine, B, 1))
    assert [type(c) for c in led.logged] == [Start, Remote]
    assert isinstance(led.logged[1], Remote)
    assert led.logged[1].message is None
    led.commit()
    assert led.state.next_offset == 1


def test_a_message_that_only_this_group_was_told_goes_out_with_its_payload() -> None:
    led = Led()
    led.start(message(1, A, B), relayed=True)
    led.commit()
    (first,) = led.said[B]
    assert isinstance(first, Propose)
    assert first.message == message(1, A, B)


def test_query_is_answered_from_what_is_settled() -> None:
    led = Led()
    mine = message(1, A, B)
    apply(led.state, start(mine), remote(mine, B, 3))
    led.hear(Query(mine.mid, B))
    (answer,) = led.said[B]
    assert isinstance(answer, Propose)
    assert (answer.time, answer.message) == (1, None)


def test_a_floor_is_logged_once_and_only_if_something_goes_by_it() -> None:
    led = Led()
    mine = message(1, A, B)
    apply(led.state, start(mine), remote(mine, B, 3))
    led.hear(FloorReport(B, FinalTime(2, B), wanted=True))
    assert (led.logged, led.heard(B)) == ([], ["FloorReport"])
    led.hear(FloorReport(B, FinalTime(5, B), wanted=False))
    led.hear(FloorReport(B, FinalTime(5, B), wanted=False))
    assert led.logged == [Settled(B, FinalTime(5, B))]
    led.commit()
    assert not led.state.settled


def held() -> tuple[Led, Message]:
    """Return A's leader after a message to A, B and C has begun there and B has proposed, and the message."""
    led = Led(settings=HOLDING)
    mine = message(1, A, B, C)
    led.start(mine)
    led.commit()
    led.hear(propose(mine, B, 1, whole=False))
    return led, mine


def test_the_proposals_of_a_message_that_is_alone_share_an_entry() -> None:
    led, mine = held()
    assert led.logged == [], "C's is missing, without which it changes nothing"
    assert led.leader.due_in() == 2
    led.hear(propose(mine, B, 1, whole=False))
    led.hear(propose(mine, C, 2, whole=False))
    assert {one.sender for one in led.logged if isinstance(one, Remote)} == {B, C}
    led.commit()
    assert led.state.next_offset == 1


def test_a_proposal_that_comes_in_the_turn_of_the_start_is_logged_behind_it() -> None:
    """Before it, a replica would not know the message, and the proposal would be in the log for nothing."""
    led = Led(settings=HOLDING)
    mine = message(1, A, B, C)
    led.leader.on_start(StartRequest(mine, 0, 0, False))
    led.leader.on_message(propose(mine, B, 1))
    led.take()
    assert [type(one) for one in led.logged] == [Start, Remote]
    led.commit()
    led.hear(propose(mine, C, 2))
    led.commit()
    assert led.state.next_offset == 1


def test_a_proposal_waits_for_the_others_for_a_short_time_only() -> None:
    """The one that is missing may be that of a group which is down; then who asks is told by it."""
    led, _ = held()
    led.tick()
    assert led.logged == []
    led.tick()
    assert [type(one) for one in led.logged] == [Remote]


def test_no_proposal_waits_while_another_message_does() -> None:
    """The known part of the first one's time may let the second one be delivered before it."""
    led, mine = held()
    assert led.logged == []
    led.start(message(2, A, B))
    assert [type(one) for one in led.logged] == [Start, Remote], "it goes with the entry that is due anyway"
    led.commit()
    led.hear(propose(mine, C, 1, whole=False))
    led.commit()
    third = message(3, A, B, C)
    led.start(third)
    led.commit()
    led.hear(propose(third, B, 9, whole=False))
    assert [type(one) for one in led.logged] == [Remote]


def test_a_message_that_a_proposal_begins_does_not_wait_to_begin() -> None:
    led = Led(settings=HOLDING)
    led.hear(propose(message(1, A, B, C), B, 1))
    assert [type(one) for one in led.logged] == [Remote]


def test_a_floor_waits_for_another_entry_for_a_short_time() -> None:
    led = Led(settings=HOLDING)
    mine = message(1, A, B)
    apply(led.state, start(mine), remote(mine, B, 3))
    led.hear(FloorReport(B, FinalTime(5, B), wanted=False))
    assert led.logged == []
    led.tick(2)
    assert led.logged == []
    led.tick()
    assert led.logged == [Settled(B, FinalTime(5, B))]


def test_of_two_that_wait_for_each_others_floor_one_asks_and_the_other_only_if_that_does_not_come() -> None:
    first, second = Led(partition(A)), Led(partition(B))
    mine = message(1, A, B)
    apply(first.state, start(mine), remote(mine, B, 1))
    apply(second.state, start(mine), remote(mine, A, 1))
    second.tick()
    assert second.heard(A) == [], "it will be asked, and told by that"
    second.tick()
    assert second.heard(A) == ["FloorReport"]
    first.tick()
    (asked,) = first.said.pop(B)
    assert isinstance(asked, FloorReport)
    assert asked.wanted
    second.hear(asked)
    second.commit()
    (told,) = second.said.pop(A)
    first.hear(told)
    first.commit()
    assert not first.state.settled
    assert not second.state.settled


def test_need_is_met_by_one_advance_even_if_the_first_came_to_less() -> None:
    led = Led()
    led.start(message(1, A, B))
    led.hear(Need(9))
    led.hear(Need(4))
    led.tick(3)
    assert led.logged[1:] == [Advance(9)]
    led.commit()
    assert led.state.floor.time == 0, "held back by what started before it"
    led.hear(propose(message(1, A, B), B, 1, whole=False))
    led.commit()
    led.tick()
    assert led.logged == [Advance(9)]
    led.commit()
    assert led.state.floor.time == 9
    led.tick(3)
    assert led.logged == []


def test_a_view_is_logged_once_and_never_an_older_one() -> None:
    led = Led()
    view = ViewDelta(20, 30, 0, closed=(P,))
    led.hear(ViewUpdate(view))
    led.hear(ViewUpdate(view))
    led.hear(ViewUpdate(VIEW))
    assert led.logged == [ViewChanged(view)]


def test_singles_are_pipelined_in_order() -> None:
    led = Led()
    led.start(message(1, A))
    led.start(message(3, A, number=3))
    led.start(message(2, A, number=2))
    assert led.answers == [Answer.RETRY]
    led.commit()
    assert led.answers[1:] == [Answer.DELIVERED, Answer.DELIVERED]
    led.start(message(3, A, number=3))
    led.commit()
    assert led.state.next_offset == 3


def test_a_refused_single_does_not_block_its_successors() -> None:
    """A deletion was logged between the leader's look and the entry: then counting begins anew."""
    led = Led()
    led.start(message(1, A))
    led.logged.insert(0, ViewChanged(ViewDelta(20, 30, 1, deleting=(C,))))
    led.commit()
    assert led.state.next_offset == 0
    led.leader.on_start(StartRequest(message(1, A), 0, 1))
    led.take()
    led.commit()
    assert led.state.next_offset == 1


@pytest.mark.parametrize(
    "limits",
    [
        LeaderSettings(pending_max=1),
        LeaderSettings(pending_bytes_max=1),
        LeaderSettings(awaited_max=1),
    ],
    ids=["count", "bytes", "one destination"],
)
def test_a_full_group_takes_no_more_from_producers_but_everything_from_groups(limits: LeaderSettings) -> None:
    led = Led(settings=limits)
    led.start(message(1, A, B))
    led.commit()
    led.start(message(2, A, B))
    assert led.answers[-1] is Answer.BUSY
    led.start(message(3, A))
    assert isinstance(led.logged[-1], Start), "the bypass waits for nobody"
    led.hear(propose(message(1, A, B, producer=Q), B, 1))
    assert isinstance(led.logged[-1], Remote)


def test_awaited_counts_only_the_group_that_is_silent() -> None:
    led = Led(settings=LeaderSettings(awaited_max=1))
    led.start(message(1, A, B))
    led.commit()
    led.start(message(2, A, C))
    assert isinstance(led.logged[-1], Start)
    assert led.leader.statistics(led.leader.partition.log_time_ms).awaited == {B: 1}


def test_nobody_but_group_0_changes_topics() -> None:
    led = Led()
    led.start(message(1, A, B, partitions=(A, B)))
    assert (led.logged, led.answers) == ([], [Answer.STALE])
    led.start(message(1, A, B, producer=COORDINATOR, partitions=(A, B)))
    assert len(led.logged) == 1


def test_reports_say_who_is_clear() -> None:
    led = Led()
    apply(led.state, ViewChanged(ViewDelta(20, 30, 1, closed=(P,), deleting=(C,))))
    led.tick(5)
    assert led.reports == [Report(A, 30, (P,), (C,))]


def test_resends_are_bounded_per_tick() -> None:
    state = partition(window=100)
    apply(state, *[start(message(seq, A, B)) for seq in range(1, 21)])
    led = Led(state, LeaderSettings(resends_per_tick_max=6))
    counts = []
    for _ in range(4):
        led.tick()
        counts.append(led.heard(B).count("Propose"))
    assert counts == [6, 6, 6, 2]


QUIET = LeaderSettings(
    resend_ticks=10, floor_ticks=7, advance_ticks=3, report_ticks=5, report_unchanged=False
)


def test_a_leader_with_nothing_to_do_has_nothing_due() -> None:
    led = Led(settings=QUIET)
    assert led.leader.due_in() == 5, "the first report"
    led.tick(5)
    assert len(led.reports) == 1
    assert led.leader.due_in() is None
    led.tick(100)
    assert len(led.reports) == 1


def test_what_is_due_is_told_and_done_when_many_ticks_pass_at_once() -> None:
    led = Led(settings=QUIET)
    led.leader.tick(5)
    led.take()
    led.start(message(1, A, B))
    led.commit()
    led.heard(B)
    due = led.leader.due_in()
    assert due == 10
    led.leader.tick(due + 3)
    led.take()
    assert led.heard(B) == ["Propose", "Query"]
    assert led.leader.due_in() == 10, "it counts from when it was done"


def test_need_is_due_only_if_it_can_be_met() -> None:
    led = Led(settings=QUIET)
    led.leader.tick(5)
    led.take()
    led.hear(Need(9))
    assert led.leader.due_in() == 1
    led.leader.tick(1)
    led.take()
    assert led.logged == [Advance(9)]
    assert led.leader.due_in() is None, "it is in the log"
    led.commit()
    assert led.leader.due_in() is None


def test_a_quiet_group_reports_what_changed_what_is_asked_and_what_group_0_has_to_act_on() -> None:
    led = Led(settings=QUIET)
    led.tick(5)
    led.reports.clear()
    led.hear(ViewUpdate(ViewDelta(15, 20, 0)))
    assert led.leader.due_in() is not None, "group 0 does not know that the group has it"
    led.tick(5)
    assert [report.position for report in led.reports] == [20]
    apply(led.state, ViewChanged(ViewDelta(20, 25, 0, closed=(P,))))
    led.tick(15)
    assert [(report.position, report.producers) for report in led.reports[1:]] == [(25, (P,))] * 3, (
        "until group 0 has heard it"
    )
    apply(led.state, ViewChanged(ViewDelta(25, 26, 0, retired=(P,))))
    led.tick(20)
    assert [report.position for report in led.reports[4:]] == [26]


def test_what_waits_in_the_log_is_bounded_by_its_bytes() -> None:
    led = Led(settings=LeaderSettings(started_bytes_max=20))
    for number in range(1, 5):
        led.start(message(number, A, number=number))
    assert led.answers == [Answer.BUSY], "each has nine bytes"
    led.commit()
    led.answers.clear()
    led.start(message(4, A, number=4))
    assert not led.answers
