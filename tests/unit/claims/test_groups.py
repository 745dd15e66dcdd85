"""Pauses, groups that are forgotten, settings, and what bounds a partition's memory (M-10, M-2)."""

from __future__ import annotations

import pytest

from tests.unit.claims.scene import HB, LEAST, G, Scene
from zraft.claims.answers import Accepted, Reason, Refused
from zraft.claims.commands import ClaimPartition, Configure, Forget, Pause
from zraft.claims.values import GROUPS_MAX, PAUSE_MS_MAX


def test_nobody_claims_while_the_group_is_paused() -> None:
    """M-10: until the pause is over in log time, without anybody having to end it."""
    scene = Scene()
    scene.accepted(Pause(G, 5_000, 0))
    assert scene.view().paused
    assert scene.refused(scene.claiming("x")) is Reason.PAUSED
    assert scene.refused(scene.claiming_range("x", 0, 10)) is Reason.PAUSED
    scene.now_ms = 5_000
    assert not scene.view().paused
    scene.owner("x")


def test_owners_are_told_of_a_pause_with_their_next_command() -> None:
    scene = Scene()
    x = scene.owner("x")
    assert not scene.accepted(scene.beat(x, 1)).paused
    scene.accepted(Pause(G, 5_000, 0))
    assert scene.accepted(scene.beat(x, 2)).paused
    assert scene.accepted(scene.release(x, 3)).ended


def test_a_pause_is_ended_by_another_one() -> None:
    scene = Scene()
    scene.accepted(Pause(G, 5_000, 0))
    scene.accepted(Pause(G, 0, scene.view().paused_at))
    scene.owner("x")


def test_a_late_copy_of_a_pause_changes_nothing() -> None:
    scene = Scene()
    pause = Pause(G, 5_000, 0)
    scene.accepted(pause)
    scene.accepted(Pause(G, 0, scene.view().paused_at))
    assert scene.refused(pause) is Reason.MOVED


def test_a_pause_is_bounded() -> None:
    scene = Scene()
    assert scene.refused(Pause(G, PAUSE_MS_MAX + 1, 0)) is Reason.INVALID
    assert scene.refused(Pause("", 10, 0)) is Reason.INVALID


def test_an_idle_partitions_pause_is_over_when_its_leader_says_so() -> None:
    """Nothing is logged there, so the time of the last command stands still."""
    scene = Scene()
    scene.accepted(Pause(G, 5_000, 0))
    assert scene.claims.view(G).paused
    assert not scene.claims.view(G, 5_000).paused


def test_a_forgotten_group_begins_anew() -> None:
    scene = Scene()
    x = scene.owner("x")
    assert scene.refused(Forget(G, x.epoch)) is Reason.HELD
    scene.accepted(scene.release(x, 10))
    assert scene.refused(Forget(G, 0)) is Reason.MOVED
    scene.accepted(Forget(G, x.epoch))
    assert scene.refused(Forget(G, x.epoch)) is Reason.MOVED
    assert list(scene.claims.groups()) == []
    assert scene.granted(scene.claiming("x", start=5)).first == 5


def test_a_partition_knows_so_many_groups_at_most() -> None:
    scene = Scene()
    for number in range(GROUPS_MAX):
        scene.granted(ClaimPartition(f"g{number}", "x", "i", 1, 0, LEAST))
    for command in (ClaimPartition("more", "x", "i", 1, 0, LEAST), Pause("more", 10, 0)):
        answer = scene.apply(command)
        assert isinstance(answer, Refused)
        assert answer.reason is Reason.FULL


def test_a_new_interval_is_for_new_claims() -> None:
    """An owner goes by the interval that it was granted with; shortening it under way would rob it."""
    scene = Scene()
    x = scene.owner("x")
    assert isinstance(scene.apply(Configure(1_000)), Accepted)
    scene.now_ms = 2_000
    assert scene.refused(scene.expire(x)) is Reason.NOT_STALE
    scene.accepted(scene.release(x))
    assert scene.owner("y").heartbeat_ms == 1_000
    assert x.heartbeat_ms == HB


@pytest.mark.parametrize("heartbeat_ms", [99, 3_600_001])
def test_the_interval_is_bounded(heartbeat_ms: int) -> None:
    assert Scene().refused(Configure(heartbeat_ms)) is Reason.INVALID
