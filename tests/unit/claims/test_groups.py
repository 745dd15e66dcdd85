"""Pauses, groups that are forgotten, settings, and what bounds a partition's memory (M-10, M-2)."""

from __future__ import annotations

import pytest

from tests.unit.claims.scene import HB, LEAST, G, Scene
from zraft_core.claims import state
from zraft_core.claims.answers import Accepted, ClaimAnswer, Granted, Reason, Refused
from zraft_core.claims.commands import (
    ClaimMessages,
    ClaimPartition,
    Commit,
    Configure,
    Forget,
    Pause,
    Release,
)
from zraft_core.claims.snapshot import decode_snapshot, encode_snapshot
from zraft_core.claims.state import Claims
from zraft_core.claims.values import GROUPS_MAX, PAUSE_MS_MAX


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


def test_all_groups_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many groups with many ranges each: the bound counts claims and islands as they are, also after a restart."""
    monkeypatch.setattr(state, "PARTITION_RANGES_MAX", 6)

    def claim(claims: Claims, group: str, first: int) -> ClaimAnswer:
        command = ClaimMessages(group, "x", "i", first, 0, LEAST, first, first + 1, claims.position)
        return claims.apply(command, claims.position + 1, 0, 100)

    before = Claims(HB)
    granted = [claim(before, group, first) for group in ("g", "h") for first in (2, 4, 6)]
    assert all(isinstance(one, Granted) for one in granted)
    for claims in (decode_snapshot(encode_snapshot(before)), before):
        full = claim(claims, "g", 8)
        assert isinstance(full, Refused)
        assert full.reason is Reason.FULL
        # One that ends half-way leaves nothing, one that is finished an island, a group that is forgotten no more.
        claims.apply(Release("g", 1, 0), claims.position + 1, 0, 100)
        assert isinstance(claim(claims, "g", 8), Granted)
        for held in claims.view("h").claims:
            claims.apply(Commit("h", held.epoch, held.first + 1), claims.position + 1, 0, 100)
        assert isinstance(claim(claims, "g", 10), Refused)
        claims.apply(Forget("h", claims.view("h").last_epoch), claims.position + 1, 0, 100)
        assert isinstance(claim(claims, "g", 12), Granted)
