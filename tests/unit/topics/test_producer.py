"""What a producer's library decides: when a message is decided, and how far its floor may be (D-8b, D-9c, D-17, D-18)."""

from __future__ import annotations

import pytest

from tests.so_far import so_far
from tests.unit.topics.groups import A, B, C, P
from zraft_core.ids import GroupId
from zraft_core.topics.message import After, Message
from zraft_core.topics.messages import Answer, Reply
from zraft_core.topics.producer import Ended, Ending, ProducerCore, Reach, UnknownGroupError, WindowFullError
from zraft_core.topics.registry_values import Table

TABLE = Table(20, 0, frozenset((A, B, C)))


def producer(reach: Reach = Reach.ALL, window: int = 4) -> ProducerCore:
    return ProducerCore(P, TABLE, window=window, reach=reach)


def reply(
    m: Message,
    sender: GroupId,
    answer: Answer,
    *,
    everywhere: bool = False,
    epoch: int = 0,
    view_epoch: int = 0,
) -> Reply:
    offset = 7 if answer is Answer.DELIVERED else None
    return Reply(m.mid, sender, answer, everywhere, offset, epoch, view_epoch)


def endings(ended: list[Ended]) -> list[Ending]:
    return [one.ending for one in ended]


def test_delivered_means_at_all_destinations() -> None:
    p = producer()
    m = p.multicast([B, A], b"x")
    assert m.destinations == (A, B)
    assert p.on_reply(reply(m, A, Answer.DELIVERED)) == []
    assert p.floor == 0
    (ended,) = p.on_reply(reply(m, B, Answer.DELIVERED))
    assert (ended.ending, ended.offsets, p.floor) == (Ending.DELIVERED, {A: 7, B: 7}, 1)


def test_one_destination_may_speak_for_all() -> None:
    p = producer()
    m = p.multicast([A, B])
    assert endings(p.on_reply(reply(m, B, Answer.FAILED, everywhere=True))) == [Ending.FAILED]


def test_accepted_moves_nothing() -> None:
    p = producer()
    m = p.multicast([A, B])
    p.on_reply(reply(m, A, Answer.ACCEPTED))
    assert p.is_accepted(1)
    assert p.floor == 0
    assert [to for to, _ in p.requests(1)] == [A, B], "it keeps asking"


def test_the_floor_has_no_gap() -> None:
    p = producer()
    first, second = p.multicast([A]), p.multicast([B])
    p.on_reply(reply(second, B, Answer.DELIVERED))
    assert p.floor == 0
    p.on_reply(reply(first, A, Answer.DELIVERED))
    assert p.floor == 2


def test_numbers_count_singles_per_destination() -> None:
    p = producer(window=8)
    made = [p.multicast(groups) for groups in ([A], [A, B], [B], [A])]
    assert [m.number for m in made] == [1, 0, 1, 2]


def test_a_full_window_and_an_unknown_group_are_errors() -> None:
    p = producer(window=1)
    p.multicast([A])
    with pytest.raises(WindowFullError, match="1 messages of producer 10 are undecided"):
        p.multicast([A])
    with pytest.raises(UnknownGroupError, match="found \\(3,\\)"):
        producer().multicast([GroupId(3)])


def test_a_refusal_by_a_newer_table_asks_for_the_table_and_repeats_if_all_still_exist() -> None:
    p = producer()
    m = p.multicast([A, B])
    assert p.on_reply(reply(m, A, Answer.STALE, view_epoch=1)) == []
    assert so_far(p.table_wanted)
    p.on_table(Table(30, 1, frozenset((A, B)), frozenset((C,))))
    assert not p.table_wanted
    assert {request.epoch for _, request in p.requests(1)} == {1}


def test_d9c_one_refusal_is_no_outcome_and_all_of_them_are() -> None:
    p = producer()
    m = p.multicast([A, B])
    p.on_table(Table(30, 1, frozenset((A, C)), frozenset((B,))))
    assert {request.epoch for _, request in p.requests(1)} == {0}, "a destination is being deleted"
    assert p.on_reply(reply(m, A, Answer.STALE, view_epoch=1)) == []
    assert endings(p.on_reply(reply(m, B, Answer.STALE, view_epoch=1))) == [Ending.NEVER]


def test_d9c_a_refusal_from_a_view_without_a_destination_is_final() -> None:
    p = producer()
    m = p.multicast([A, B])
    p.on_table(Table(30, 1, frozenset((A, C))))
    refused = reply(m, A, Answer.STALE, everywhere=True, view_epoch=1)
    assert endings(p.on_reply(refused)) == [Ending.NEVER]


def test_d9c_a_late_refusal_of_an_older_epoch_counts_for_nothing() -> None:
    p = producer()
    m = p.multicast([A, B])
    p.on_table(Table(30, 1, frozenset((A, B)), frozenset((C,))))
    p.on_table(Table(40, 2, frozenset((A,)), frozenset((B, C))))
    for sender in (A, B):
        assert p.on_reply(reply(m, sender, Answer.STALE, epoch=0, view_epoch=2)) == []
    p.on_reply(reply(m, A, Answer.STALE, epoch=1, view_epoch=2))
    assert endings(p.on_reply(reply(m, B, Answer.STALE, epoch=1, view_epoch=2))) == [Ending.NEVER]


def test_nobody_left_to_ask_is_unknown() -> None:
    p = producer()
    p.multicast([A, B])
    assert endings(p.on_table(Table(30, 2, frozenset((C,))))) == [Ending.UNKNOWN]
    assert p.floor == 1


def test_who_has_told_the_outcome_is_not_asked_again() -> None:
    p = producer()
    m = p.multicast([A, B])
    p.on_reply(reply(m, A, Answer.DELIVERED))
    assert [to for to, _ in p.requests(1)] == [B]


def test_if_only_a_removed_destination_had_not_told_the_others_are_asked_once_more() -> None:
    p = producer()
    m = p.multicast([A, B])
    p.on_reply(reply(m, A, Answer.DELIVERED))
    p.on_table(Table(30, 1, frozenset((A, C))))
    assert [to for to, _ in p.requests(1)] == [A]
    assert endings(p.on_reply(reply(m, A, Answer.DELIVERED))) == [Ending.DELIVERED]


def test_a_removed_destination_is_not_waited_for() -> None:
    p = producer()
    m = p.multicast([A, B])
    p.on_table(Table(30, 1, frozenset((A, C))))
    assert endings(p.on_reply(reply(m, A, Answer.DELIVERED))) == [Ending.DELIVERED]


def test_d17a_after_names_an_undecided_message_with_a_common_destination() -> None:
    p = producer()
    first = p.multicast([A, B])
    assert p.multicast([B, C], after=first).after == After(first.mid, (A, B))
    p.on_reply(reply(first, A, Answer.DELIVERED, everywhere=True))
    assert p.multicast([B, C], after=first).after is None


def test_d17a_without_a_common_destination_the_library_waits() -> None:
    p = producer()
    first = p.multicast([A])
    second = p.multicast([B], after=first)
    assert (second.after, p.requests(2)) == (None, [])
    p.on_reply(reply(first, A, Answer.DELIVERED))
    assert [to for to, _ in p.requests(2)] == [B]


def test_who_reaches_one_chooses_one_that_may_begin() -> None:
    p = producer(Reach.ONE)
    first = p.multicast([A, B])
    p.multicast([B, C], after=first)
    assert [to for to, _ in p.requests(2)] == [B]
    assert all(request.relayed for _, request in p.requests(2))


def test_an_expired_producer_sends_nothing_more() -> None:
    p = producer()
    m = p.multicast([A])
    p.on_reply(reply(m, A, Answer.EXPIRED))
    assert p.expired
    assert p.requests(1) == []
