"""The end of a dead owner's claim: proposed by the leader, decided where it is applied (M-9, D-11, D-12; flaws 1 and 6)."""

from __future__ import annotations

from tests.unit.claims.scene import HB, G, Scene
from zraft_core.claims.answers import Reason
from zraft_core.claims.commands import Expire
from zraft_core.claims.expiry import PROPOSED_AGAIN_MS, SCAN_INTERVAL_MS, ClaimExpiry


def scan(expiry: ClaimExpiry, scene: Scene, next_round: int = 1) -> bool:
    expiry.advance(SCAN_INTERVAL_MS)
    return expiry.wants_round(scene.claims, next_round)


def watched(scene: Scene) -> ClaimExpiry:
    """A leadership that has taken notice of the claims as they are."""
    expiry = ClaimExpiry()
    scan(expiry, scene)
    return expiry


def test_nobody_expires_before_two_intervals_of_log_time() -> None:
    """Flaw 6: what a leader proposes too early counts for nothing."""
    scene = Scene()
    x = scene.owner("x")
    scene.now_ms = 2 * HB - 1
    assert scene.refused(scene.expire(x)) is Reason.NOT_STALE
    scene.now_ms = 2 * HB
    assert scene.accepted(scene.expire(x)).ended


def test_an_expiry_does_not_count_if_the_owner_was_heard_since() -> None:
    """D-11: a heartbeat was in the log in front of it."""
    scene = Scene()
    x = scene.owner("x")
    scene.now_ms = 2 * HB
    proposed = scene.expire(x)
    scene.accepted(scene.beat(x, 1))
    scene.now_ms = 5 * HB
    assert scene.refused(proposed) is Reason.NOT_STALE
    assert scene.accepted(scene.expire(x)).ended


def test_an_expiry_ends_that_claim_only() -> None:
    scene = Scene()
    x = scene.owner("x")
    scene.now_ms = 2 * HB
    proposed = scene.expire(x)
    scene.accepted(proposed)
    y = scene.owner("y")
    scene.now_ms = 4 * HB
    assert scene.refused(proposed) is Reason.FENCED
    assert scene.view().whole == y
    assert scene.refused(Expire("nobody", 1, 0)) is Reason.FENCED


def test_a_leader_proposes_after_two_intervals_and_a_round_that_began_later() -> None:
    scene = Scene()
    x = scene.owner("x")
    expiry = watched(scene)
    expiry.advance(2 * HB - 1)
    assert not expiry.wants_round(scene.claims, 7)
    assert scan(expiry, scene, 7)
    assert expiry.proposals(scene.claims, 6) == ()
    assert expiry.proposals(scene.claims, 7) == (Expire(G, x.epoch, 0),)


def test_who_is_heard_during_the_round_is_not_proposed() -> None:
    """D-11: the table is read again."""
    scene = Scene()
    x = scene.owner("x")
    expiry = watched(scene)
    expiry.advance(2 * HB)
    assert scan(expiry, scene, 7)
    scene.now_ms = 2 * HB
    scene.accepted(scene.beat(x, 1))
    assert expiry.proposals(scene.claims, 7) == ()
    assert not scan(expiry, scene, 8)


def test_a_leader_that_was_stopped_expires_nobody_on_waking() -> None:
    """D-11: log time jumped by an hour, the leader ran for one turn: heartbeats may lie in its sockets."""
    scene = Scene()
    scene.owner("x")
    expiry = watched(scene)
    scene.now_ms += 3_600_000
    assert not scan(expiry, scene, 7)
    assert expiry.proposals(scene.claims, 7) == ()


def test_a_new_leader_gives_everybody_the_whole_time_again() -> None:
    scene = Scene()
    scene.owner("x")
    scene.now_ms = 10 * HB
    expiry = watched(scene)
    expiry.advance(2 * HB - 2 * SCAN_INTERVAL_MS)
    assert not expiry.wants_round(scene.claims, 1)
    assert scan(expiry, scene, 1) or scan(expiry, scene, 1)


def test_a_proposal_that_came_to_nothing_is_made_again_but_not_at_once() -> None:
    scene = Scene()
    scene.owner("x")
    expiry = watched(scene)
    expiry.advance(2 * HB)
    assert scan(expiry, scene, 1)
    assert len(expiry.proposals(scene.claims, 1)) == 1
    assert not scan(expiry, scene, 2)
    expiry.advance(PROPOSED_AGAIN_MS)
    assert scan(expiry, scene, 2)
    assert len(expiry.proposals(scene.claims, 2)) == 1


def test_what_is_watched_ends_with_its_claim() -> None:
    """Memory is bounded by the live claims."""
    scene = Scene()
    expiry = ClaimExpiry()
    for _ in range(50):
        claim = scene.owner("x")
        scan(expiry, scene)
        scene.accepted(scene.release(claim))
    scan(expiry, scene)
    assert not expiry._watched


def test_suspects_of_later_rounds_wait_for_theirs() -> None:
    scene = Scene()
    scene.granted(scene.claiming_range("a", 0, 10))
    expiry = watched(scene)
    expiry.advance(HB)
    second = scene.granted(scene.claiming_range("b", 10, 20))
    scan(expiry, scene)
    expiry.advance(HB)
    assert scan(expiry, scene, 7)
    expiry.advance(HB)
    assert scan(expiry, scene, 8)
    assert [one.epoch for one in expiry.proposals(scene.claims, 7)] == [1]
    assert expiry.proposals(scene.claims, 7) == ()
    assert [one.epoch for one in expiry.proposals(scene.claims, 8)] == [second.epoch]
