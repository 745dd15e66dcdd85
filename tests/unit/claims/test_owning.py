"""What an owner may do, and nobody else (M-3, M-7, M-8), and Marshal's flaws 3 and 4."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.unit.claims.scene import HB, ONCE, G, Scene
from zraft_core.claims.answers import Granted, Reason
from zraft_core.claims.commands import ClaimCommand, Commit, CommitBatch, CommitRanges, Heartbeat, Release
from zraft_core.claims.values import HEARTBEAT_MS_MAX, HEARTBEAT_MS_MIN, RANGES_MAX, Claim


def test_a_heartbeat_of_before_a_pause_does_not_take_the_partition_back() -> None:
    """Flaw 3: X stands still for 130 s, Y claims, X goes on and sends the heartbeat that it was about to send."""
    scene = Scene()
    x = scene.owner("x")
    scene.accepted(scene.beat(x, 1, 50))
    scene.now_ms = 130_000
    scene.accepted(scene.expire(x))
    y = scene.owner("y")
    scene.accepted(scene.beat(y, 1, 80))
    assert scene.refused(scene.beat(x, 2, 60)) is Reason.FENCED
    assert scene.view().whole == scene.claims.view(G).claims[0]
    assert (scene.view().claims[0].owner.client, scene.view().start) == ("y", 80)


@pytest.mark.parametrize(
    "command",
    [
        *(Heartbeat(G, 1, 9, 20), Commit(G, 1, 20), CommitBatch(G, 1, 20), Release(G, 1, 20)),
        CommitRanges(G, 1, 20, ((30, 40),)),
    ],
)
def test_every_command_of_a_former_owner_is_refused(command: ClaimCommand) -> None:
    """M-3 with epochs: whether the claim was released, expired or taken over."""
    scene = Scene()
    x = scene.owner("x", ONCE)
    assert x.epoch == 1
    scene.accepted(scene.release(x))
    assert scene.refused(command) is Reason.FENCED
    scene.owner("y", ONCE)
    assert scene.refused(command) is Reason.FENCED


def test_a_group_that_never_claimed_has_no_owner() -> None:
    assert Scene().refused(Heartbeat("nobody", 0, 1, 0)) is Reason.FENCED


def test_a_batch_that_was_claimed_is_nobody_elses() -> None:
    """Flaw 4 (M-7): X claims 101 to 200 and is delayed; Y must not start at X's last heartbeat, 100."""
    scene = Scene()
    x = scene.owner("x", ONCE)
    scene.accepted(scene.batch(x, 100))
    scene.accepted(scene.beat(x, 1, 100))
    scene.accepted(scene.batch(x, 200))
    scene.now_ms += 2 * HB
    scene.accepted(scene.expire(x))
    assert scene.owner("y", ONCE).first == 200
    assert scene.refused(scene.beat(x, 2, 200)) is Reason.FENCED
    assert scene.refused(scene.batch(x, 300)) is Reason.FENCED


def test_messages_claimed_and_not_confirmed_are_counted() -> None:
    """At most once loses them if the owner died before it processed them; an operator wants to know how many at most."""
    scene = Scene()
    x = scene.owner("x", ONCE)
    scene.accepted(scene.batch(x, 200))
    scene.accepted(scene.beat(x, 1, 150))
    scene.fall_silent(x)
    assert scene.view().unconfirmed == 50


def test_a_repeated_batch_claims_nothing_more() -> None:
    scene = Scene()
    x = scene.owner("x", ONCE)
    assert scene.accepted(scene.batch(x, 100)).claimed == 100
    assert scene.accepted(scene.batch(x, 200)).claimed == 200
    assert scene.accepted(scene.batch(x, 100)).claimed == 200


def test_nothing_is_claimed_or_committed_beyond_the_end() -> None:
    """It would hide messages that are still to come."""
    scene = Scene(end=100)
    once = scene.owner("x", ONCE)
    assert scene.refused(scene.batch(once, 101)) is Reason.BEYOND_END
    scene.accepted(scene.release(once))
    least = scene.owner("x")
    for command in (scene.commit(least, 101), scene.beat(least, 1, 101), scene.release(least, 101)):
        assert scene.refused(command) is Reason.BEYOND_END


def test_a_range_ends_at_its_end() -> None:
    scene = Scene()
    once = scene.granted(scene.claiming_range("x", 0, 10, ONCE))
    assert scene.refused(scene.batch(once, 11)) is Reason.BEYOND_END
    scene.accepted(scene.batch(once, 10))
    assert scene.refused(scene.commit(once, 11)) is Reason.BEYOND_END
    assert scene.accepted(scene.commit(once, 10)).ended


def test_offsets_never_go_back() -> None:
    """M-8: heartbeats that overtake each other."""
    scene = Scene()
    x = scene.owner("x")
    scene.accepted(scene.beat(x, 2, 80))
    assert scene.accepted(scene.beat(x, 1, 50)).committed == 80
    assert scene.accepted(scene.commit(x, 10)).committed == 80


def test_a_repeated_heartbeat_does_not_keep_a_claim_alive() -> None:
    scene = Scene()
    x = scene.owner("x")
    scene.accepted(scene.beat(x, 1))
    scene.now_ms = HB
    scene.accepted(scene.beat(x, 1))
    assert scene.view().claims[0].heard_ms == 0
    scene.accepted(scene.beat(x, 2))
    assert scene.view().claims[0].heard_ms == HB


def test_a_release_tells_how_far_processing_is() -> None:
    """M-3."""
    scene = Scene()
    x = scene.owner("x")
    answer = scene.accepted(scene.release(x, 70))
    assert (answer.ended, answer.committed) == (True, 70)
    assert scene.owner("y").first == 70


def test_a_repeated_release_does_not_end_the_next_claim() -> None:
    scene = Scene()
    x = scene.owner("x")
    scene.accepted(scene.release(x, 70))
    y = scene.owner("y")
    assert scene.refused(scene.release(x, 70)) is Reason.FENCED
    assert scene.view().whole == y


def test_a_view_shows_where_the_owner_is() -> None:
    scene = Scene()
    x = scene.owner("x", ONCE)
    scene.accepted(scene.batch(x, 90))
    assert (scene.view().floor, scene.view().start) == (0, 90)
    assert scene.view().last is None
    scene.accepted(scene.release(x, 90))
    last = scene.view().last
    assert last is not None
    assert (last.owner.client, last.committed) == ("x", 90)


# Commits out of order -----------------------------------------------------------------------------------------------


def ranges(claim: Claim, committed: int, *done: tuple[int, int]) -> CommitRanges:
    return CommitRanges(G, claim.epoch, committed, done)


def test_a_successor_passes_over_what_was_committed_out_of_order() -> None:
    scene = Scene()
    x = scene.owner("x")
    scene.accepted(ranges(x, 5, (8, 9), (20, 25)))
    assert scene.accepted(ranges(x, 5, (9, 12))).committed == 5
    scene.fall_silent(x)
    answer = scene.apply(scene.claiming("y"))
    assert isinstance(answer, Granted)
    assert (answer.claim.first, answer.skips) == (5, ((8, 12), (20, 25)))


def test_what_a_commit_reaches_is_no_island_any_more() -> None:
    scene = Scene()
    x = scene.owner("x")
    scene.accepted(ranges(x, 0, (2, 4), (6, 8)))
    assert scene.view().islands == ((2, 4), (6, 8))
    scene.accepted(ranges(x, 4))
    assert (scene.view().floor, scene.view().islands) == (4, ((6, 8),))
    scene.accepted(scene.commit(x, 8))
    scene.accepted(scene.release(x, 9))
    assert (scene.view().floor, scene.view().islands) == (9, ())


def test_ranges_that_are_not_the_owners_to_commit_are_refused() -> None:
    scene = Scene(end=100)
    part = scene.granted(scene.claiming_range("a", 10, 20))
    assert scene.refused(ranges(part, 10, (15, 21))) is Reason.BEYOND_END
    assert scene.refused(ranges(part, 10, (9, 12))) is Reason.BEYOND_END
    assert scene.refused(ranges(part, 10, (12, 12))) is Reason.BEYOND_END
    scene.accepted(ranges(part, 12, (15, 20)))
    assert scene.accepted(ranges(part, 20)).ended
    once = scene.granted(scene.claiming_range("b", 30, 200, ONCE))
    scene.accepted(scene.batch(once, 40))
    assert scene.refused(ranges(once, 30, (35, 41))) is Reason.NOT_CLAIMED
    assert scene.refused(ranges(once, 30, (35, 141))) is Reason.BEYOND_END


def test_the_gaps_between_commits_are_bounded_and_closing_them_makes_room() -> None:
    scene = Scene(end=10_000)
    x = scene.owner("x")
    every_other = [(2 * n + 1, 2 * n + 2) for n in range(RANGES_MAX - 1)]
    scene.accepted(ranges(x, 0, *every_other))
    assert scene.refused(ranges(x, 0, (9_000, 9_001))) is Reason.FULL
    scene.accepted(ranges(x, 0, (2, 3)))
    scene.accepted(ranges(x, 0, (9_000, 9_001)))
    scene.accepted(ranges(x, 1_000, (9_000, 9_001)))
    assert scene.view().islands == ((9_000, 9_001),)


def test_a_claim_has_the_interval_that_its_owner_chose() -> None:
    scene = Scene()
    for wrong in (HEARTBEAT_MS_MIN - 1, HEARTBEAT_MS_MAX + 1):
        assert scene.refused(evolve(scene.claiming("x"), heartbeat_ms=wrong)) is Reason.INVALID
    x = scene.granted(evolve(scene.claiming("x"), heartbeat_ms=500))
    assert x.heartbeat_ms == 500
    scene.now_ms += 999
    assert scene.refused(scene.expire(x)) is Reason.NOT_STALE
    scene.now_ms += 1
    assert scene.accepted(scene.expire(x)).ended
    assert scene.owner("y").heartbeat_ms == HB, "who chooses none has the partition's"
