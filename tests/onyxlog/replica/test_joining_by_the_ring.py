"""The examples of Onyx' documentation for joining and leaving, and what it left open."""

from __future__ import annotations

from onyxlog.replica.commands import AbortJoin, AcceptJoin, GroupLeave, JoinDirect, NotifyJoin, PrepareJoin
from onyxlog.replica.effects import (
    DetectFailure,
    JoinLater,
    LeaveIfGone,
    RestartGroup,
    StopDetecting,
    UnwatchJoiner,
    WatchJoiner,
    WatchNobody,
    WatchPulse,
)
from onyxlog.replica.kind import Viewer
from onyxlog.replica.playing import effects, owed
from onyxlog.replica.ring import ahead, has_turn
from tests.onyxlog.replica.scripts import Log, ring, worker


def test_example_1_one_group_joins_a_ring_of_three() -> None:
    log = ring("abc")
    log.until(0, 3)

    log.write(PrepareJoin("d"), "d")
    assert dict(log.replica.prepared) == {"a": "d"}
    assert log.reaction_of_all("abcd") == {"a": (NotifyJoin("d", "a"),)}
    assert log.effects("a") == (WatchJoiner("d"),)
    assert log.effects("d") == (DetectFailure("a"),)

    log.write(NotifyJoin("d", "a"), "a")
    assert (dict(log.replica.prepared), dict(log.replica.accepted)) == ({}, {"a": "d"})
    assert log.reaction_of_all("abcd") == {"d": (AcceptJoin("d", "a", "b"),)}
    assert log.effects("d") == (WatchPulse("b"), StopDetecting())

    log.write(AcceptJoin("d", "a", "b"), "d")
    assert dict(log.replica.pairs) == {"a": "d", "d": "b", "b": "c", "c": "a"}
    assert not log.reaction_of_all("abcd")
    assert log.effects("a") == (WatchPulse("d"), UnwatchJoiner())
    assert [log.effects(group) for group in "bcd"] == [(), (), ()]


def test_example_2_two_groups_join_a_ring_of_three_at_once() -> None:
    log = ring("abc")
    log.until(0, 3)

    log.write(PrepareJoin("d"), "d")
    log.write(PrepareJoin("e"), "e")
    # a helps d, and c watches a, so b it is
    assert dict(log.replica.prepared) == {"a": "d", "b": "e"}
    assert log.reaction_of_all("abcde") == {"b": (NotifyJoin("e", "b"),)}

    log.write(NotifyJoin("d", "a"), "a")
    log.write(NotifyJoin("e", "b"), "b")
    assert log.reaction_of_all("abcde") == {"e": (AcceptJoin("e", "b", "c"),)}
    log.write(AcceptJoin("d", "a", "b"), "d")
    log.write(AcceptJoin("e", "b", "c"), "e")
    assert dict(log.replica.pairs) == {"a": "d", "d": "b", "b": "e", "e": "c", "c": "a"}


def test_example_3_of_two_groups_that_join_a_ring_of_two_one_is_refused() -> None:
    log = ring("ab")
    log.until(1, 2)

    log.write(PrepareJoin("c"), "c")
    assert dict(log.replica.prepared) == {"b": "c"}
    log.write(PrepareJoin("d"), "d")
    assert dict(log.replica.prepared) == {"b": "c"}
    assert log.reaction_of_all("abcd") == {"d": (AbortJoin("d"),)}

    log.write(NotifyJoin("c", "b"), "b")
    log.write(AcceptJoin("c", "b", "a"), "c")
    assert dict(log.replica.pairs) == {"a": "b", "b": "c", "c": "a"}
    log.write(AbortJoin("d"), "d")
    assert log.effects("d") == (JoinLater(0),)
    assert dict(log.replica.pairs) == {"a": "b", "b": "c", "c": "a"}


def test_example_4_one_group_joins_another_that_is_alone() -> None:
    log = ring("a")

    log.write(PrepareJoin("b"), "b")
    assert log.reaction_of_all("ab") == {"a": (NotifyJoin("b", "a"),)}
    log.write(NotifyJoin("b", "a"), "a")
    assert log.reaction_of_all("ab") == {"b": (AcceptJoin("b", "a", "a"),)}
    assert log.effects("b") == (WatchPulse("a"), StopDetecting())
    log.write(AcceptJoin("b", "a", "a"), "b")
    assert dict(log.replica.pairs) == {"a": "b", "b": "a"}


def test_example_5_the_first_group_is_in_at_once() -> None:
    log = Log()
    log.write(worker("a", "a1"), "a")

    log.write(PrepareJoin("a"), "a")
    assert list(log.replica.groups) == ["a"]
    assert list(log.replica.peers) == ["a1"]
    assert not log.reaction_of_all("a")
    assert log.effects("a") == ()


def test_example_6_a_join_whose_helper_dies_is_aborted_and_tried_again() -> None:
    log = ring("abc")
    log.until(0, 3)
    log.write(PrepareJoin("d"), "d")

    log.write(GroupLeave("a"), "c")
    assert dict(log.replica.pairs) == {"b": "c", "c": "b"}
    assert log.reaction_of_all("abcd") == {"d": (AbortJoin("d"),)}
    assert log.effects("d") == (StopDetecting(),)
    assert log.effects("c") == (WatchPulse("b"),)

    # what the helper wrote before it died comes too late
    log.write(NotifyJoin("d", "a"), "a")
    assert log.step.diff is None
    assert not log.reaction_of_all("abcd")
    log.write(AbortJoin("d"), "d")
    assert log.effects("d") == (JoinLater(0),)
    log.write(PrepareJoin("d"), "d")
    assert list(log.replica.prepared.values()) == ["d"]


def test_a_join_whose_helper_dies_after_it_notified_is_tried_again_too() -> None:
    log = ring("abc")
    log.until(0, 3)
    log.write(PrepareJoin("d"), "d")
    log.write(NotifyJoin("d", "a"), "a")

    log.write(GroupLeave("a"), "c")
    assert list(log.replica.aborted) == ["d"]
    assert log.reaction_of_all("abcd") == {"d": (AbortJoin("d"),)}
    assert log.effects("d") == (WatchNobody(),)
    log.write(AcceptJoin("d", "a", "b"), "d")
    assert log.step.diff is None


def test_example_7_a_joiner_that_dies_is_reported_by_its_helper() -> None:
    log = ring("abc")
    log.until(0, 3)
    log.write(PrepareJoin("d"), "d")
    log.write(NotifyJoin("d", "a"), "a")

    # a watches d since the first entry
    log.write(GroupLeave("d"), "a")
    assert dict(log.replica.pairs) == {"a": "b", "b": "c", "c": "a"}
    assert not log.replica.accepted
    # and kept watching b all the while, so nothing changes there
    assert log.effects("a") == (UnwatchJoiner(),)
    log.write(AcceptJoin("d", "a", "b"), "d")
    assert log.step.diff is None


def test_a_joiner_that_lives_but_was_taken_for_dead_begins_again() -> None:
    log = ring("ab")
    log.write(PrepareJoin("c"), "c")
    (watcher,) = log.replica.prepared
    log.write(GroupLeave("c"), watcher)
    assert log.effects("c") == (StopDetecting(), RestartGroup())


def test_leave_example_1_the_watcher_of_the_dead_closes_the_ring() -> None:
    log = ring("abcd")
    log.write(GroupLeave("b"), "a")
    assert dict(log.replica.pairs) == {"a": "c", "c": "d", "d": "a"}
    assert log.effects("a") == (WatchPulse("c"),)
    assert [log.effects(group) for group in "cd"] == [(), ()]


def test_leave_example_2_two_neighbours_die_at_once_and_are_found_one_after_the_other() -> None:
    log = ring("abcd")
    log.write(GroupLeave("b"), "a")
    assert log.effects("a") == (WatchPulse("c"),)  # which is gone already, so at once:
    log.write(GroupLeave("c"), "a")
    assert dict(log.replica.pairs) == {"a": "d", "d": "a"}
    log.write(GroupLeave("d"), "a")
    assert dict(log.replica.pairs) == {}
    assert log.effects("a") == (WatchNobody(),)


def test_the_joiner_watches_the_neighbour_of_now_if_the_one_it_was_told_of_left() -> None:
    log = ring("abc")
    log.until(0, 3)
    log.write(PrepareJoin("d"), "d")
    log.write(NotifyJoin("d", "a"), "a")

    log.write(GroupLeave("b"), "a")
    assert log.effects("a") == (WatchPulse("c"),)
    assert log.effects("d") == (WatchPulse("c"),)
    log.write(AcceptJoin("d", "a", "b"), "d")
    assert dict(log.replica.pairs) == {"a": "d", "d": "c", "c": "a"}


def test_two_groups_that_find_all_members_dead_get_in_all_the_same() -> None:
    log = ring("ab")
    log.until(1, 2)
    log.write(PrepareJoin("c"), "c")
    assert log.effects("c") == (DetectFailure("b"),)
    log.write(PrepareJoin("d"), "d")
    (look,) = log.effects("d")
    assert isinstance(look, LeaveIfGone)
    assert look.subject in ("a", "b")
    log.write(AbortJoin("d"), "d")

    log.write(GroupLeave("b"), "c")
    log.write(GroupLeave("a"), "d")
    log.write(AbortJoin("c"), "c")
    log.write(PrepareJoin("d"), "d")
    assert list(log.replica.groups) == ["d"]


def test_the_abort_of_a_group_that_is_in_already_does_nothing() -> None:
    """Onyx looked for the group among the workers, so that it never was in."""
    log = ring("ab")
    before = log.replica
    log.write(AbortJoin("b"), "b")
    assert log.step.diff is None
    assert log.replica.groups == before.groups
    assert not log.replica.aborted
    assert log.effects("b") == ()


def test_a_prepare_that_comes_twice_does_not_abort_the_join_that_is_under_way() -> None:
    log = ring("ab")
    log.write(PrepareJoin("c"), "c")
    prepared = log.replica.prepared
    log.write(PrepareJoin("c"), "c")
    assert log.step.diff is None
    assert log.replica.prepared == prepared
    assert not log.reaction_of_all("abc")


def test_a_helpers_abort_of_an_attempt_that_is_over_does_nothing() -> None:
    log = ring("ab")
    log.write(AbortJoin("stranger"), "a")
    assert log.step.diff is None
    assert not log.replica.aborted


def test_a_helpers_abort_gives_up_the_attempt_that_is_under_way() -> None:
    log = ring("ab")
    log.write(PrepareJoin("c"), "c")
    helper = next(iter(log.replica.prepared))
    log.write(AbortJoin("c"), helper)
    assert not log.replica.prepared
    assert log.effects("c") == (JoinLater(0), StopDetecting())
    assert log.effects(helper) == (UnwatchJoiner(),)


def test_an_aborted_join_is_not_tried_again_by_who_joins_once() -> None:
    log = ring("ab")
    log.write(AbortJoin("c"), "c")
    assert effects(log.step, Viewer("c")) == (JoinLater(0),)
    assert effects(log.step, Viewer("c", join_once=True)) == ()
    # nor if it learns of it by a jump over the entry
    assert owed(log.replica, Viewer("c")) == (PrepareJoin("c"),)
    assert owed(log.replica, Viewer("c", join_once=True)) == ()


def test_a_group_that_left_does_not_come_back_under_its_id() -> None:
    log = ring("ab")
    log.write(GroupLeave("b"), "a")
    assert RestartGroup() in log.effects("b")
    log.write(PrepareJoin("b"), "b")
    assert log.step.diff is None
    assert log.effects("b") == (RestartGroup(),)
    log.write(worker("b", "b1"), "b")
    assert log.step.diff is None


def test_the_leave_of_an_unknown_group_does_not_fill_the_replica() -> None:
    log = ring("a")
    log.write(GroupLeave("stranger"), "a")
    assert log.step.diff is None
    assert not log.replica.left


def test_an_entry_of_the_direct_join_does_nothing() -> None:
    log = Log()
    log.write(JoinDirect("a"), "a")
    assert log.step.diff is None
    assert not log.replica.groups


def test_as_many_that_wait_have_their_turn_as_certainly_find_a_helper() -> None:
    """Each that asks takes a member and the one that watches it away from the others."""
    for members, places in (("a", 1), ("ab", 1), ("abc", 2), ("abcd", 2), ("abcde", 3)):
        log = ring(members)
        for joiner in "vwxyz":
            log.write(AbortJoin(joiner), joiner)
        waiting = [joiner for joiner in "vwxyz" if has_turn(log.replica, joiner)]
        assert waiting == list("vwxyz")[:places], members
        for joiner in waiting:
            log.write(PrepareJoin(joiner), joiner)
            assert joiner in log.replica.prepared.values()


def test_who_was_refused_first_has_its_turn_first_and_whoever_is_refused_again_goes_behind() -> None:
    log = ring("a")
    for joiner in "dcb":
        log.write(AbortJoin(joiner), joiner)
    assert [ahead(log.replica, joiner) for joiner in "dcb"] == [0, 1, 2]
    log.write(AbortJoin("d"), "d")
    assert [ahead(log.replica, joiner) for joiner in "dcb"] == [2, 0, 1]
    assert [joiner for joiner in "dcb" if has_turn(log.replica, joiner)] == ["c"]


def test_nobody_has_a_turn_while_all_members_help_and_one_has_when_no_member_is_left() -> None:
    log = ring("a")
    log.write(PrepareJoin("b"), "b")
    log.write(AbortJoin("c"), "c")
    assert not has_turn(log.replica, "c")
    log.write(NotifyJoin("b", "a"), "a")
    assert not has_turn(log.replica, "c")
    log.write(AcceptJoin("b", "a", "a"), "b")
    assert has_turn(log.replica, "c")
    log.write(GroupLeave("b"), "a")
    log.write(GroupLeave("a"), "a")
    assert not log.replica.groups
    assert has_turn(log.replica, "c")
