"""Shared heartbeats between two servers: what is said, repeated, believed and forgotten (docs/explanation/groups.md)."""

from __future__ import annotations

from zraft.groups.covers.cover import LOST_MAX, WITHDRAWN, WITHDRAWN_MAX, GivenCover, TakenCover
from zraft.transport.messages import SharedHeartbeat, SharedHeartbeatReply
from zraft_core.ids import GroupId

G1, G2 = GroupId(1), GroupId(2)


def yes(group: GroupId, term: int, index: int) -> bool:
    return True


def no(group: GroupId, term: int, index: int) -> bool:
    return False


class Pair:
    """Both sides of a cover, and a network that the test decides about."""

    def __init__(self, items_max: int = 64) -> None:
        self.given = GivenCover(items_max)
        self.taken = TakenCover()
        self.now = 0

    def beat(self) -> SharedHeartbeat:
        self.now += 10
        return self.given.heartbeat(self.now)

    def hear(self, message: SharedHeartbeat, agrees=yes) -> SharedHeartbeatReply:  # type: ignore[no-untyped-def]
        assert self.taken.on_heartbeat(message, self.now, agrees)
        return self.taken.answer()

    def round(self, agrees=yes) -> None:  # type: ignore[no-untyped-def]
        self.given.on_reply(self.hear(self.beat(), agrees))


def test_a_group_is_covered_once_both_sides_agree_and_named_no_more() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    pair.round()
    assert pair.given.agrees(G1, 3, 7)
    assert pair.taken.term_of(G1) == 3
    assert pair.beat().items == ()


def test_hundreds_of_unchanged_groups_cost_the_bytes_of_none() -> None:
    pair = Pair(items_max=128)
    for number in range(1, 501):
        pair.given.offer(GroupId(number), 1, 1)
    for _ in range(4):
        assert len(pair.beat().items) <= 128
        pair.round()
    assert len(pair.given) == len(pair.taken) == 500
    assert pair.beat().items == ()


def test_an_offer_is_repeated_until_it_is_answered() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    assert pair.beat().items == pair.beat().items == ((G1, 3, 7),)
    assert not pair.given.agrees(G1, 3, 7)


def test_contact_is_when_the_answered_heartbeat_was_sent_not_when_the_answer_came() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    message = pair.beat()
    pair.now += 500
    reply = pair.hear(message)
    pair.given.on_reply(reply)
    assert pair.given.contact_of(G1, 3) == 10
    assert pair.given.contact_of(G1, 4) is None


def test_every_heartbeat_after_the_end_of_a_leadership_withdraws_it_until_that_is_answered() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    pair.round()
    pair.given.withdraw(G1)
    pair.given.withdraw(G1)
    assert pair.given.contact_of(G1, 3) is None
    pair.beat()
    message = pair.beat()
    assert message.items == ((G1, WITHDRAWN, 0),)
    pair.given.on_reply(pair.hear(message))
    assert pair.taken.term_of(G1) is None
    assert pair.beat().items == ()


def test_what_was_offered_and_never_answered_is_withdrawn_all_the_same() -> None:
    """The other side may have agreed, and its answer may be lost; so may a newer offer have replaced the one it heard."""
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    heard = pair.beat()
    pair.hear(heard)
    pair.given.offer(G1, 3, 8)
    pair.given.withdraw(G1)
    assert (G1, WITHDRAWN, 0) in pair.beat().items


def test_what_was_never_said_need_not_be_withdrawn() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    pair.given.withdraw(G1)
    assert pair.beat().items == ()


def test_a_refused_group_is_not_counted_and_reported_until_something_is_said_of_it() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    pair.round(no)
    assert pair.given.contact_of(G1, 3) is None
    assert pair.taken.term_of(G1) is None
    lost = pair.hear(pair.beat())
    assert lost.lost == ()  # that heartbeat took it back
    pair.given.offer(G1, 4, 8)
    pair.round()
    assert pair.given.agrees(G1, 4, 8)


def test_a_group_that_the_follower_lost_counts_for_nothing_from_the_next_answer_on() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    pair.given.offer(G2, 3, 7)
    pair.round()
    pair.taken.lose(G1)
    first = pair.hear(pair.beat())
    assert first.lost == (G1,)
    second = pair.hear(pair.beat())
    assert second.lost == (G1,), "the first answer may be lost"
    pair.given.on_reply(second)
    assert pair.given.contact_of(G1, 3) is None
    assert pair.given.contact_of(G2, 3) == pair.now


def test_a_late_heartbeat_changes_nothing() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    late = pair.beat()
    pair.hear(late)
    pair.given.withdraw(G1)
    pair.hear(pair.beat())
    heard_at = pair.taken.heard_at
    pair.now += 100
    assert not pair.taken.on_heartbeat(late, pair.now, yes)
    assert pair.taken.term_of(G1) is None
    assert pair.taken.heard_at == heard_at


def test_a_late_answer_changes_nothing() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    late = pair.hear(pair.beat())
    pair.taken.lose(G1)
    pair.given.on_reply(pair.hear(pair.beat(), no))
    contact = pair.given.contact
    assert pair.given.on_reply(late) is None
    assert not pair.given.agrees(G1, 3, 7)
    assert pair.given.contact == contact


def test_an_answer_of_another_cover_changes_nothing() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    late = pair.hear(pair.beat())
    pair.given.begin_anew()
    pair.beat()
    assert pair.given.on_reply(late) is None
    assert not pair.given.agrees(G1, 3, 7)


def test_a_follower_that_forgot_makes_the_cover_begin_anew() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    pair.round()
    pair.taken = TakenCover()
    reply = pair.hear(pair.beat())
    assert reply.epoch == 0
    answer = pair.given.on_reply(reply)
    assert answer is not None
    assert answer.began_anew
    assert pair.given.contact_of(G1, 3) is None
    pair.given.offer(G1, 3, 7)
    pair.round()
    assert pair.given.agrees(G1, 3, 7)
    assert pair.taken.term_of(G1) == 3


def test_a_cover_that_begins_anew_voids_what_the_follower_agreed_to() -> None:
    pair = Pair()
    pair.given.offer(G1, 3, 7)
    pair.round()
    pair.given.withdraw(G1)
    pair.given.begin_anew()
    pair.hear(pair.beat())
    assert pair.taken.term_of(G1) is None


def test_too_much_to_take_back_or_to_report_is_said_by_beginning_anew() -> None:
    pair = Pair(items_max=128)
    groups = [GroupId(number) for number in range(1, 2 * max(WITHDRAWN_MAX, LOST_MAX))]
    for group in groups:
        pair.given.offer(group, 1, 1)
    while len(pair.given) < len(groups):
        pair.round()
    for group in groups:
        pair.given.withdraw(group)
        pair.taken.lose(group)
    assert pair.given.overflows
    assert pair.taken.overflows
    pair.taken.give_up()
    assert pair.hear(pair.beat()).epoch == 0
