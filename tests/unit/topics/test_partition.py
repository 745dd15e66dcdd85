"""The replicated state of a partition: stamps, what is admitted, what is forgotten (D-8, D-9, D-17, D-18)."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.unit.topics.groups import VIEW, A, B, C, P, Q, apply, delivered, message, partition, remote, start
from zraft.topics.applied import BrokenGroupError, StartVerdict
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.commands import Advance, Seek, Settled, ViewChanged
from zraft_core.topics.message import COORDINATOR, After, Condition
from zraft_core.topics.stamps import AFTER_ALL_GROUPS, FinalTime, MessageId, Stamp
from zraft_core.topics.view import ViewDelta

# -- stamps


def test_final_time_is_the_largest_proposal_and_who_made_it() -> None:
    state = partition()
    applied = apply(state, start(message(1, A, B, C)), remote(message(1, A, B, C), B, 7))
    assert delivered(applied) == []
    applied = apply(state, remote(message(1, A, B, C), C, 7, whole=False))
    assert [d.stamp for d in applied.delivered] == [Stamp(7, C, 0, GroupId(0))]
    assert state.floor == FinalTime(7, C)


def test_whatever_starts_later_is_proposed_a_time_above_every_final_one() -> None:
    state = partition()
    apply(state, start(message(1, A, B)), remote(message(1, A, B), B, 7), start(message(2, A, B)))
    assert state.pending.entries[MessageId(P, 2)].time == 8


def test_a_final_message_waits_for_a_pending_one_that_may_come_before_it() -> None:
    state = partition()
    first, second = message(1, A, B), message(2, A, C)
    apply(state, start(first), start(second))
    assert delivered(apply(state, remote(second, C, 5, whole=False))) == []
    assert delivered(apply(state, remote(first, B, 3, whole=False))) == [1, 2]


def test_a_single_takes_the_bypass_before_everything_pending() -> None:
    state = partition()
    applied = apply(state, start(message(1, A, B)), start(message(2, A)))
    assert delivered(applied) == [2]
    assert applied.delivered[0].stamp == Stamp(0, GroupId(0), 1, A)


def test_a_single_that_depends_on_what_was_seen_comes_above_it_and_behind_what_is_pending() -> None:
    state = partition()
    first = message(1, A, B)
    assert delivered(apply(state, start(first), start(message(2, A, depends=5)))) == []
    applied = apply(state, remote(first, B, 3, whole=False))
    assert delivered(applied) == [1, 2]
    assert applied.delivered[1].stamp == Stamp(6, A, 0, GroupId(0))


def test_the_bypass_overtakes_no_earlier_message_of_the_same_producer() -> None:
    state = partition()
    first = message(1, A, B)
    apply(state, start(first), start(message(2, A, depends=5)))
    mine, other = message(3, A, number=2), message(1, A, producer=Q)
    assert delivered(apply(state, start(mine), start(other))) == [1]
    assert delivered(apply(state, remote(first, B, 3, whole=False))) == [1, 2, 3]


def test_advance_stops_below_what_is_pending() -> None:
    state = partition()
    apply(state, Advance(4), start(message(1, A, B)), Advance(9))
    assert state.floor == FinalTime(4, AFTER_ALL_GROUPS)
    assert state.pending.entries[MessageId(P, 1)].time == 5
    apply(state, remote(message(1, A, B), B, 5, whole=False), Advance(9))
    assert state.floor == FinalTime(9, AFTER_ALL_GROUPS)
    assert state.clock == 9


def test_the_frontier_is_below_every_later_stamp() -> None:
    state = partition()
    frontier = state.frontier()
    for command in (
        start(message(1, A)),
        Advance(3),
        start(message(2, A, number=2)),
        start(message(3, A, B)),
    ):
        for delivery in apply(state, command).delivered:
            assert delivery.stamp > frontier
        frontier = state.frontier()
    assert frontier == Stamp(3, AFTER_ALL_GROUPS, 1, A)


def test_two_proposals_of_one_group_for_one_message_stop_the_group() -> None:
    state = partition()
    apply(state, start(message(1, A, B, C)), remote(message(1, A, B, C), B, 7, whole=False))
    apply(state, remote(message(1, A, B, C), B, 7, whole=False))
    with pytest.raises(BrokenGroupError, match="group 4 proposed 7 and now 8"):
        apply(state, remote(message(1, A, B, C), B, 8, whole=False))


def test_a_time_behind_the_floor_stops_the_group() -> None:
    state = partition()
    apply(state, start(message(1, A, B)))
    state.floor = FinalTime(9, B)
    with pytest.raises(BrokenGroupError, match="behind the floor"):
        apply(state, remote(message(1, A, B), B, 4, whole=False))


def test_offsets_are_dense_and_positions_count_commands() -> None:
    state = partition()
    applied = apply(state, Advance(1), start(message(1, A)), start(message(2, A, number=2)), position=40)
    assert [(d.offset, d.position) for d in applied.delivered] == [(0, 41), (1, 42)]


def test_a_batch_takes_an_offset_for_each_record_and_says_the_first() -> None:
    state = partition()
    first = message(1, A, records=5)
    second = message(2, A, B, records=3)
    third = message(3, A, number=2)
    applied = apply(state, start(first), start(second), start(third), remote(second, B, 7))
    assert [(one.message.mid.seq, one.offset, one.end) for one in applied.delivered] == [
        (1, 0, 5),
        (3, 5, 6),
        (2, 6, 9),
    ]
    assert state.next_offset == 9
    assert state.rows[P].outcomes == {1: 0, 3: 5, 2: 6}


def test_the_same_id_with_other_contents_is_counted_and_changes_nothing() -> None:
    state = partition()
    mine = message(1, A, B)
    other = evolve(mine, payload=b"another")
    apply(state, start(mine))
    applied = apply(state, remote(other, B, 3))
    assert state.conflicts == 1
    assert applied.delivered[0].message == mine


def test_a_proposal_of_a_group_that_is_no_destination_is_nothing() -> None:
    state = partition()
    mine = message(1, A, B)
    apply(state, start(mine), remote(mine, C, 9, whole=False), remote(mine, A, 9, whole=False))
    assert state.pending.entries[mine.mid].proposals == {A: 1}
    stranger = message(2, B, C)
    apply(state, remote(stranger, B, 1))
    assert stranger.mid not in state.pending


# -- what is known (D-8)


def test_d8a_a_decided_message_is_not_begun_again_by_anybody() -> None:
    state = partition()
    mine = message(1, A, B)
    apply(state, start(mine), remote(mine, B, 3))
    again = apply(state, start(mine), remote(mine, B, 3))
    assert again.begun == ()
    assert again.delivered == ()


def test_d8a_numbers_up_to_the_floor_are_known_without_being_remembered() -> None:
    state = partition()
    apply(state, start(message(1, A)), start(message(2, A, number=2), floor=1))
    assert state.rows[P].outcomes == {2: 1}
    assert state.verdict(message(1, A), 1, 0) is StartVerdict.KNOWN


def test_d8b_a_floor_makes_no_row() -> None:
    state = partition()
    refused = message(4, A, number=3)
    apply(state, start(refused, floor=2))
    assert state.rows == {}


def test_d8b_a_number_above_the_window_waits() -> None:
    state = partition(window=8)
    assert state.verdict(message(9, A, B), 0, 0) is StartVerdict.RETRY
    assert state.verdict(message(9, A, B), 1, 0) is StartVerdict.ADMIT


def test_d8b_a_floor_that_jumps_far_costs_no_more_than_what_is_remembered() -> None:
    state = partition()
    apply(state, start(message(1, A)), start(message(2, A, number=2)))
    apply(state, remote(message(3, A, B), B, 1, floor=2**60))
    assert state.rows[P].outcomes == {}
    assert state.rows[P].floor == 2**60


def test_d8c_a_message_is_kept_until_every_other_destination_has_passed_it() -> None:
    state = partition()
    mine = message(1, A, B, C)
    apply(state, start(mine), remote(mine, B, 3), remote(mine, C, 2))
    assert mine.mid in state.settled
    assert state.settled.entries[mine.mid].message.payload == b""
    apply(state, Settled(B, FinalTime(3, A)))
    apply(state, Settled(C, FinalTime(9, C)))
    assert mine.mid in state.settled, "B is at (3, A), below (3, B)"
    assert apply(state, Settled(B, FinalTime(3, B))).everywhere == (mine.mid,)
    assert mine.mid not in state.settled
    assert not state.involved.of_producer
    assert not state.involved.to_group


def test_d8c_a_floor_that_is_known_before_the_delivery_counts() -> None:
    state = partition()
    mine = message(1, A, B)
    applied = apply(state, start(mine), Settled(B, FinalTime(3, B)), remote(mine, B, 3))
    assert applied.everywhere == (mine.mid,)


def test_d8c_a_removed_group_is_waited_for_no_more() -> None:
    state = partition()
    mine = message(1, A, B)
    apply(state, start(mine), remote(mine, B, 3))
    gone = evolve(VIEW, position=30, epoch=1, groups=frozenset((A, C)))
    assert apply(state, ViewChanged(gone)).everywhere == (mine.mid,)


def test_d8d_a_lower_view_is_ignored() -> None:
    state = partition()
    newer = evolve(VIEW, position=30, epoch=1, producers=frozenset((COORDINATOR, Q)), closed=frozenset((P,)))
    apply(state, ViewChanged(newer), ViewChanged(VIEW))
    assert state.view.whole() == newer


def test_d8d_a_difference_fits_every_view_since_its_base_and_no_other() -> None:
    state = partition()
    delta = ViewDelta(20, 40, 1, opened=(ProducerId(33),), closed=(P,), created=(GroupId(31),), deleting=(C,))
    too_late = ViewDelta(35, 50, 2, closed=(Q,))
    apply(state, ViewChanged(too_late))
    assert state.view.position == 20
    apply(state, ViewChanged(delta), ViewChanged(too_late))
    whole = state.view.whole()
    assert whole.producers == {COORDINATOR, ProducerId(33)}
    assert whole.closed == {P, Q}
    assert whole.groups == {A, B, C, GroupId(31)}
    assert whole.deleting == {C}


def test_d8d_rows_go_when_a_producer_is_retired_and_not_when_it_is_closed() -> None:
    state = partition()
    apply(state, start(message(1, A)))
    apply(state, ViewChanged(ViewDelta(20, 30, 0, closed=(P,))))
    assert P in state.rows
    apply(state, ViewChanged(ViewDelta(30, 31, 0, retired=(P,))))
    assert state.rows == {}
    assert state.known(MessageId(P, 1)), "a late repeat begins nothing"
    assert not state.known(MessageId(ProducerId(33), 1)), "one that registered after the view is not retired"


def test_d8d_a_row_that_outlives_its_producer_goes_with_the_last_message_and_not_with_the_next_view() -> None:
    """Seed 1000008: another group said that nothing was left before this one knew, and no view came after that."""
    state = partition()
    mine = message(1, A, B)
    apply(state, start(mine), remote(mine, B, 3))
    apply(state, ViewChanged(ViewDelta(20, 31, 0, retired=(P,))))
    assert P in state.rows, "settled here"
    assert apply(state, Settled(B, FinalTime(3, B))).everywhere == (mine.mid,)
    assert state.rows == {}
    assert state.known(mine.mid)


def test_d8d_who_never_registered_leaves_nothing_behind_once_the_view_has_passed_it() -> None:
    state = partition()
    nobody = ProducerId(25)
    blocked = message(1, A, B)
    apply(state, start(blocked), start(message(1, A, producer=nobody, depends=3)))
    apply(state, ViewChanged(ViewDelta(20, 30, 0)))
    assert nobody in state.rows, "pending"
    applied = apply(state, remote(blocked, B, 1, whole=False))
    assert len(applied.delivered) == 2
    apply(state, ViewChanged(ViewDelta(30, 31, 0)))
    assert nobody not in state.rows
    assert state.verdict(message(2, A, producer=nobody), 0, 0) is StartVerdict.KNOWN


def test_d8d_who_registered_after_the_view_keeps_its_row() -> None:
    state = partition()
    later = ProducerId(25)
    apply(state, start(message(1, A, producer=later)), ViewChanged(ViewDelta(20, 30, 0, opened=(later,))))
    assert state.rows[later].outcomes == {1: 0}


def test_d8e_clear_means_nothing_pending_and_nothing_settled() -> None:
    state = partition()
    mine = message(1, A, B)
    apply(state, start(mine), ViewChanged(ViewDelta(20, 30, 1, closed=(P,), deleting=(B,))))
    assert state.clear_producers() == []
    apply(state, remote(mine, B, 3))
    assert state.clear_producers() == []
    assert state.clear_deleting() == []
    apply(state, Settled(B, FinalTime(3, B)))
    assert state.clear_producers() == [P]
    assert state.clear_deleting() == [B]


# -- refusals (D-9, D-17, D-18)


def test_d9a_apply_refuses_a_closed_producer_whatever_the_leader_thought() -> None:
    state = partition()
    apply(state, ViewChanged(ViewDelta(20, 30, 0, closed=(P,))), start(message(1, A, B)))
    assert not state.pending
    assert state.verdict(message(1, A, B), 0, 0) is StartVerdict.EXPIRED


def test_d9b_what_another_group_has_begun_is_never_refused() -> None:
    state = partition()
    closed = ViewDelta(20, 30, 1, closed=(P,), deleting=(C,))
    mine = message(50, A, B)
    applied = apply(state, ViewChanged(closed), remote(mine, B, 3))
    assert delivered(applied) == [50]


def test_d9d_a_condition_is_judged_at_its_home_when_the_message_begins() -> None:
    state = partition()
    first = message(1, A, B, condition=Condition(A, b"c", 0, 5))
    second = message(2, A, B, condition=Condition(A, b"c", 0, 6))
    apply(state, start(first), start(second))
    assert state.offsets == {b"c": 5}
    applied = apply(state, remote(first, B, 3, whole=False), remote(second, B, 4, whole=False))
    assert delivered(applied) == [1]
    assert applied.failed == (second.mid,)
    assert state.floor == FinalTime(4, B), "a void message is stamped and moves the floor"
    assert state.next_offset == 1


def test_d9d_other_destinations_take_the_verdict_from_the_home() -> None:
    state = partition()
    mine = message(1, A, B, condition=Condition(B, b"c", 7, 8))
    apply(state, start(mine))
    applied = apply(state, remote(mine, B, 3, void=True, whole=False))
    assert applied.failed == (mine.mid,)
    assert state.offsets == {}


def test_a_consumer_is_moved_and_forgotten_by_seek_within_a_bound() -> None:
    state = partition()
    apply(state, Seek(b"a", 4), Seek(b"b", 5), Seek(b"c", 6), Seek(b"a", None))
    assert state.offsets == {b"b": 5}


def test_d17a_only_where_the_earlier_message_is_decided_may_the_later_begin() -> None:
    state = partition()
    earlier = message(1, A, B)
    after = After(earlier.mid, earlier.destinations)
    later = message(2, A, C, after=after)
    assert state.verdict(later, 0, 0) is StartVerdict.RETRY, "not known here"
    apply(state, start(earlier))
    assert state.verdict(later, 0, 0) is StartVerdict.RETRY, "pending here"
    apply(state, remote(earlier, B, 3))
    assert state.verdict(later, 0, 0) is StartVerdict.ADMIT
    assert partition(C).verdict(later, 0, 0) is StartVerdict.RETRY, "not named"
    assert partition(C).verdict(later, 1, 0) is StartVerdict.ADMIT, "the floor has passed it"


def test_d17b_singles_have_no_gap() -> None:
    state = partition()
    assert state.verdict(message(2, A, number=2), 0, 0) is StartVerdict.RETRY
    apply(state, start(message(1, A)))
    assert state.verdict(message(2, A, number=2), 0, 0) is StartVerdict.ADMIT
    assert state.verdict(message(3, A, number=1), 0, 0) is StartVerdict.RETRY


def test_d17d_a_partition_that_is_added_takes_the_change_first() -> None:
    state = partition(C, born=False)
    mine = message(1, B, C)
    assert delivered(apply(state, start(message(2, C)), remote(mine, B, 3))) == []
    change = message(1, B, C, producer=COORDINATOR, partitions=(B, C))
    assert delivered(apply(state, remote(change, B, 4))) == [1]
    assert state.born
    assert delivered(apply(state, remote(mine, B, 5))) == [1]


def test_d18_an_older_epoch_is_refused_before_anything_is_awaited() -> None:
    state = partition()
    apply(state, ViewChanged(ViewDelta(20, 30, 1, deleting=(C,))))
    out_of_turn = message(5, A, number=4)
    assert state.verdict(out_of_turn, 0, 0) is StartVerdict.STALE
    assert state.verdict(out_of_turn, 0, 1) is StartVerdict.RETRY


def test_d18_a_destination_that_does_not_exist_is_refused_and_one_not_yet_heard_of_is_awaited() -> None:
    state = partition()
    assert state.verdict(message(1, A, GroupId(5)), 0, 0) is StartVerdict.STALE
    assert state.verdict(message(1, A, GroupId(99)), 0, 0) is StartVerdict.RETRY
    assert not state.admits(message(1, B, C), 0, 0), "not addressed to this group"


# -- what is exposed


def test_pending_age_is_that_of_the_oldest_and_grows_while_nothing_is_appended() -> None:
    state = partition()
    apply(state, start(message(1, A, B)), log_time_ms=1000)
    apply(state, start(message(2, A, B)), log_time_ms=1500)
    assert state.pending_age_ms(1500) == 500
    assert state.pending_age_ms(61_000) == 60_000
    apply(state, remote(message(1, A, B), B, 1), log_time_ms=1600)
    assert state.pending_age_ms(1600) == 100
    apply(state, remote(message(2, A, B), B, 9), log_time_ms=1700)
    assert state.pending_age_ms(1700) == 0
    assert state.pending.payload_bytes == 0
    assert not state.pending.awaited


def test_a_message_costs_a_logarithm_and_not_the_number_of_those_pending() -> None:
    """Counted, not timed: how often entries are looked at while 2,000 are pending."""
    looked = 0

    class Counting(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: object) -> object:
            nonlocal looked
            looked += 1
            return super().__getitem__(key)

    state = partition(window=10_000)
    messages = [message(seq, A, B) for seq in range(1, 2001)]
    apply(state, *[start(m) for m in messages])
    state.pending.entries = Counting(state.pending.entries)
    applied = apply(state, *[remote(m, B, m.mid.seq, whole=False) for m in messages])
    assert len(applied.delivered) == 2000
    assert looked < 5 * 2000
