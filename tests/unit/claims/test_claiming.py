"""Claims give each partition, or range of it, to one consumer (M-3, M-5, M-6, M-9), without Marshal's flaws.

Source: docs/explanation/claims.md.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from tests.unit.claims.scene import HB, LEAST, ONCE, G, Scene
from zraft_core.claims.answers import Granted, Reason, Refused
from zraft_core.claims.commands import ClaimPartition
from zraft_core.claims.values import FUTURE_MESSAGES_MAX, RANGE_MESSAGES_MAX, RANGES_MAX, Freshness, freshness


def test_of_two_claims_the_first_in_the_log_wins() -> None:
    """M-5: both saw the partition free."""
    scene = Scene()
    both = [scene.claiming("x"), scene.claiming("y")]
    assert scene.granted(both[0]).owner.client == "x"
    assert scene.refused(both[1]) is Reason.HELD


def test_an_epoch_is_the_position_of_its_command() -> None:
    """D-16: so that a later owner always has a higher one."""
    scene = Scene()
    first = scene.owner("x")
    assert first.epoch == scene.claims.position
    scene.accepted(scene.release(first))
    assert scene.owner("y").epoch == scene.claims.position > first.epoch


def test_who_holds_a_claim_is_said_to_who_is_refused() -> None:
    scene = Scene()
    claim = scene.owner("x")
    answer = scene.apply(scene.claiming("y"))
    assert answer == Refused(Reason.HELD, claim, claim.epoch, 0)


def test_earliest_claim_means_since_the_last_release() -> None:
    """Flaw 7: a claim that was sent before others had the partition does not count when it arrives afterwards."""
    scene = Scene()
    late = scene.claiming("z")
    scene.accepted(scene.release(scene.owner("x")))
    assert scene.refused(late) is Reason.MOVED
    assert scene.granted(evolve(late, after=scene.view().last_epoch)).owner.client == "z"


def test_a_repeated_claim_is_one_claim() -> None:
    """A lost answer is asked for again; the copy neither gives a new epoch nor makes the claim fresh."""
    scene = Scene()
    command = scene.claiming("x")
    claim = scene.granted(command)
    scene.now_ms = HB
    assert scene.granted(command) == claim


def test_a_late_copy_of_a_claim_does_not_claim_what_was_given_back() -> None:
    scene = Scene()
    command = scene.claiming("x")
    scene.accepted(scene.release(scene.granted(command)))
    assert scene.refused(command) is Reason.MOVED


def test_another_process_with_the_same_client_id_is_not_the_owner() -> None:
    """Flaw 7: without the instance both would believe they own it."""
    scene = Scene()
    scene.granted(scene.claiming("x", instance="one", attempt=1))
    assert scene.refused(scene.claiming("x", instance="two", attempt=1, after=0)) is Reason.HELD


def test_a_restarted_client_takes_over_at_once() -> None:
    """M-6: by naming the epoch whose place it takes; the process before it is fenced."""
    scene = Scene()
    before = scene.granted(scene.claiming("x", instance="one"))
    scene.accepted(scene.beat(before, 1, 40))
    after = scene.granted(scene.claiming("x", instance="two", after=before.epoch))
    assert (after.first, after.epoch > before.epoch) == (40, True)
    assert scene.refused(scene.beat(before, 2, 50)) is Reason.FENCED
    assert scene.refused(scene.claiming("x", instance="one", after=before.epoch)) is Reason.HELD


def test_nobody_else_takes_over() -> None:
    scene = Scene()
    claim = scene.owner("x")
    scene.now_ms = 100 * HB
    # However stale: until its end is in the log it is live, for every reader alike (flaw 1).
    assert scene.refused(scene.claiming("y", after=claim.epoch)) is Reason.HELD


def test_staleness_is_no_matter_of_the_readers_clock() -> None:
    """Flaw 1: X was heard at 0; Y, ten seconds ahead, claims at 111 and thinks it is 121."""
    scene = Scene()
    x = scene.owner("x")
    scene.now_ms = 111_000
    claim = scene.claiming("y")
    assert scene.refused(claim) is Reason.HELD
    assert scene.refused(scene.expire(x)) is Reason.NOT_STALE
    # Replayed an hour later it comes to the same: nothing in it asks what time it is.
    again = Scene()
    again.owner("x")
    again.now_ms = 111_000
    assert again.refused(claim) is Reason.HELD


def test_an_owner_heard_in_the_future_is_not_stale() -> None:
    """Flaw 2: Marshal's owner whose clock is a second ahead was never seen as owner."""
    assert freshness(heard_ms=1_000, log_time_ms=0, heartbeat_ms=HB) is Freshness.FRESH


def test_log_time_does_not_go_back() -> None:
    """Flaw 2: the state does not depend on a leader keeping D-12."""
    scene = Scene()
    scene.now_ms = 5_000
    claim = scene.owner("x")
    scene.now_ms = 4_000
    scene.accepted(scene.beat(claim, 1))
    assert scene.claims.log_time_ms == 5_000
    assert scene.view().claims[0].heard_ms == 5_000


def test_fresh_unknown_and_stale_are_one_interval_each() -> None:
    """M-4."""
    ages = [freshness(0, age, HB) for age in (0, HB - 1, HB, 2 * HB - 1, 2 * HB)]
    fresh, unknown, stale = Freshness.FRESH, Freshness.UNKNOWN, Freshness.STALE
    assert ages == [fresh, fresh, unknown, unknown, stale]


def test_a_new_group_begins_where_its_first_claim_says_an_old_one_where_it_stands() -> None:
    scene = Scene(end=500)
    claim = scene.granted(scene.claiming("x", start=300))
    assert claim.first == 300
    scene.accepted(scene.release(claim, 320))
    assert scene.granted(scene.claiming("y", start=0)).first == 320


def test_a_new_group_does_not_begin_beyond_the_end() -> None:
    """It would never see the messages in between."""
    scene = Scene(end=500)
    assert scene.granted(scene.claiming("x", start=900)).first == 500


def test_groups_do_not_know_each_other() -> None:
    scene = Scene()
    scene.owner("x")
    other = ClaimPartition("audit", "y", "i", 1, 0, LEAST)
    assert scene.granted(other).owner.client == "y"


# Ranges -------------------------------------------------------------------------------------------------------------


def test_several_consumers_have_ranges_of_one_partition() -> None:
    """M-9: X to Y."""
    scene = Scene()
    a = scene.granted(scene.claiming_range("a", 0, 100))
    b = scene.granted(scene.claiming_range("b", 100, 200))
    assert [claim.epoch for claim in scene.view().claims] == [a.epoch, b.epoch]
    for first, upto in ((0, 1), (99, 101), (150, 160), (199, 300)):
        assert scene.refused(scene.claiming_range("c", first, upto)) is Reason.TAKEN


def test_ranges_and_the_whole_partition_exclude_each_other() -> None:
    scene = Scene()
    a = scene.granted(scene.claiming_range("a", 100, 200))
    assert scene.refused(scene.claiming("b")) is Reason.HELD
    assert scene.refused(scene.claiming("a", after=a.epoch)) is Reason.HELD
    scene.accepted(scene.release(a))
    scene.owner("b")
    assert scene.refused(scene.claiming_range("a", 500, 600)) is Reason.TAKEN


def test_a_range_may_be_claimed_before_its_messages_come() -> None:
    """M-9: but what is not there cannot have been processed."""
    scene = Scene(end=100)
    claim = scene.granted(scene.claiming_range("a", 100, 200))
    assert scene.refused(scene.commit(claim, 150)) is Reason.BEYOND_END
    scene.end = 150
    assert scene.accepted(scene.commit(claim, 150)).committed == 150


def test_a_range_is_neither_endless_nor_in_the_far_future() -> None:
    scene = Scene(end=100)
    far = 100 + FUTURE_MESSAGES_MAX
    assert scene.refused(scene.claiming_range("a", 0, RANGE_MESSAGES_MAX + 1)) is Reason.INVALID
    assert scene.refused(scene.claiming_range("a", 7, 7)) is Reason.INVALID
    assert scene.refused(scene.claiming_range("a", far - 10, far + 1)) is Reason.BEYOND_END
    scene.granted(scene.claiming_range("a", far - 10, far))


def test_a_finished_range_ends_by_itself_and_is_nobodys_again() -> None:
    scene = Scene()
    claim = scene.granted(scene.claiming_range("a", 50, 60))
    answer = scene.accepted(scene.beat(claim, 1, 60))
    assert answer.ended
    assert scene.view().claims == ()
    assert scene.view().islands == ((50, 60),)
    assert scene.refused(scene.claiming_range("b", 59, 70)) is Reason.TAKEN


def test_what_a_dead_consumer_left_of_its_range_is_free() -> None:
    scene = Scene()
    claim = scene.granted(scene.claiming_range("a", 0, 100))
    scene.accepted(scene.commit(claim, 30))
    scene.fall_silent(claim)
    assert scene.view().free_from(0, 100) == (30, 130)
    assert scene.granted(scene.claiming_range("b", 30, 100)).first == 30


def test_who_has_the_whole_partition_later_skips_what_ranges_have_done() -> None:
    """At most once, it would be delivered twice."""
    scene = Scene()
    scene.accepted(scene.beat(scene.granted(scene.claiming_range("a", 100, 200)), 1, 200))
    answer = scene.apply(scene.claiming("b"))
    assert isinstance(answer, Granted)
    assert (answer.claim.first, answer.skips) == (0, ((100, 200),))
    scene.accepted(scene.release(answer.claim, 150))
    assert scene.view().floor == 200


def test_a_late_copy_of_a_range_claim_does_not_claim_what_was_given_back() -> None:
    scene = Scene()
    command = scene.claiming_range("a", 0, 100)
    scene.accepted(scene.release(scene.granted(command)))
    assert scene.refused(command) is Reason.MOVED
    scene.granted(scene.claiming_range("b", 0, 100))


def test_a_restarted_client_takes_over_its_ranges() -> None:
    scene = Scene()
    before = scene.granted(scene.claiming_range("a", 0, 100, instance="one"))
    scene.accepted(scene.commit(before, 30))
    taken = scene.claiming_range("a", 0, 100, instance="two", after=before.epoch)
    assert scene.refused(evolve(taken, client="b")) is Reason.TAKEN
    assert scene.refused(evolve(taken, upto=90)) is Reason.TAKEN
    after = scene.granted(taken)
    assert (after.first, after.upto) == (30, 100)
    assert scene.refused(scene.commit(before, 40)) is Reason.FENCED


def test_ranges_of_a_group_are_bounded() -> None:
    """Memory is: each finished range above the floor, and each live one, is kept."""
    scene = Scene()
    for number in range(RANGES_MAX // 2):
        claim = scene.granted(scene.claiming_range("a", 4 * number + 1, 4 * number + 3))
        scene.accepted(scene.commit(claim, 4 * number + 3))
    for number in range(RANGES_MAX // 2):
        scene.granted(scene.claiming_range("a", 4 * number + 3, 4 * number + 4))
    full = scene.claiming_range("a", 900, 910)
    assert scene.refused(full) is Reason.FULL
    assert scene.view().free_from(0, 100) == (0, 1)


def test_a_claim_says_how_messages_are_to_be_consumed() -> None:
    scene = Scene()
    least = scene.owner("x", LEAST)
    assert scene.refused(scene.batch(least, 10)) is Reason.WRONG_MODE
    scene.accepted(scene.release(least))
    once = scene.owner("x", ONCE)
    assert scene.refused(scene.commit(once, 10)) is Reason.NOT_CLAIMED


def test_names_are_bounded() -> None:
    scene = Scene()
    for name in ("", "x" * 256):
        for field in ("client", "group", "instance"):
            change: dict[str, Any] = {field: name}
            command = evolve(scene.claiming("x"), **change)
            answer = scene.apply(command)
            assert isinstance(answer, Refused)
            assert answer.reason is Reason.INVALID
    assert list(scene.claims.groups()) == []
    assert G not in {group.name for group in scene.claims.groups()}
