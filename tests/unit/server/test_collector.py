"""When the garbage collector runs."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from zraft.server.process.collector import (
    BLOCKS_MAX,
    FULL_INTERVAL_MS,
    OBJECTS_MAX,
    OLD_MAX,
    YOUNG_MAX,
    Collector,
)

STARTED_MS = 5_000_000_000


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return what Python's collector is asked for. It does nothing, and says that there are no objects."""
    asked: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda generation=2: asked.append(f"collect {generation}"))
    monkeypatch.setattr(gc, "freeze", lambda: asked.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: asked.append("unfreeze"))
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, 0))
    monkeypatch.setattr(gc, "get_objects", lambda generation: [])
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: 1_000_000)
    yield asked
    gc.enable()


def test_a_start_collects_nothing_and_the_first_full_collection_comes_an_interval_later(
    done: list[str],
) -> None:
    """Not with the first idle turn, however long the machine has been up."""
    collector = Collector(STARTED_MS)
    assert not gc.isenabled()
    assert done == ["freeze"]
    collector.step(STARTED_MS + FULL_INTERVAL_MS - 1, idle=True, leads=False)
    collector.step(STARTED_MS + FULL_INTERVAL_MS, idle=False, leads=False)
    assert done == ["freeze"]
    collector.step(STARTED_MS + FULL_INTERVAL_MS, idle=True, leads=False)
    collector.step(STARTED_MS + FULL_INTERVAL_MS + 1, idle=True, leads=False)
    assert done == ["freeze", "unfreeze", "collect 2", "freeze"]
    collector.step(STARTED_MS + 2 * FULL_INTERVAL_MS, idle=True, leads=False)
    assert done[4:] == ["collect 2"], "what a start leaves is looked at once"


def test_a_leader_never_looks_at_what_its_start_left(done: list[str]) -> None:
    """It would be silent for 0.1 to 0.2 s, and the others might elect another leader."""
    collector = Collector(STARTED_MS)
    for interval in range(1, 4):
        collector.step(STARTED_MS + interval * FULL_INTERVAL_MS, idle=True, leads=True)
    assert done == ["freeze", *["collect 2"] * 3]
    collector.step(STARTED_MS + 4 * FULL_INTERVAL_MS, idle=True, leads=False)
    assert done[4:] == ["unfreeze", "collect 2", "freeze"]


def test_too_many_old_objects_are_frozen_and_not_collected(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector(STARTED_MS)
    found = [None] * OLD_MAX
    monkeypatch.setattr(gc, "get_objects", lambda generation: found)
    collector.step(STARTED_MS + FULL_INTERVAL_MS, idle=True, leads=True)
    found.append(None)
    collector.step(STARTED_MS + 2 * FULL_INTERVAL_MS, idle=True, leads=True)
    assert done == ["freeze", "collect 2", "freeze"]


@pytest.mark.parametrize("leads", [True, False])
def test_objects_that_must_be_many_are_frozen_and_not_even_counted(
    done: list[str], monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    """To list a million znodes' objects would stop the loop for a quarter of a second."""
    collector = Collector(STARTED_MS)

    def listed(generation: int) -> list[object]:
        done.append(f"list {generation}")
        return []

    monkeypatch.setattr(gc, "get_objects", listed)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: done.append("count what is frozen"))
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: 1_000_000 + BLOCKS_MAX + 1)
    collector.step(collector._next_full, idle=True, leads=leads)
    assert done == ["freeze", "freeze"]
    collector.step(collector._next_full, idle=True, leads=leads)
    assert done[2:] == ["list 2", "collect 2"], "what came since is looked at, and the start no more"


def test_nobody_looks_for_what_a_start_left_among_a_million_znodes(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The znodes are frozen in the first interval; a second one must not bring them back for a collection."""
    collector = Collector(STARTED_MS)
    for frozen, old in ((OBJECTS_MAX, 1), (OBJECTS_MAX + 1, 0), (0, 0)):
        monkeypatch.setattr(gc, "get_freeze_count", lambda frozen=frozen: frozen)
        monkeypatch.setattr(gc, "get_objects", lambda generation, old=old: [None] * old)
        collector.step(collector._next_full, idle=True, leads=False)
    assert "unfreeze" not in done
    assert done == ["freeze", *["collect 2"] * 3]


def test_what_survived_young_is_old_and_garbage_among_it_is_found_without_the_start() -> None:
    """This asks the collector of this interpreter."""

    class Circle:
        def __init__(self) -> None:
            self.me = self
            self.rest = [[number] for number in range(YOUNG_MAX)]

    enabled = gc.isenabled()
    try:
        collector = Collector(STARTED_MS)
        frozen = gc.get_freeze_count()
        circle: Circle | None = Circle()
        collector.step(STARTED_MS, idle=False, leads=True)
        assert gc.get_count()[0] < YOUNG_MAX, "they are no longer young"
        gone = weakref.ref(circle)
        assert circle is not None
        del circle.rest[YOUNG_MAX // 2 :]
        circle = None
        assert gone() is not None
        collector.step(STARTED_MS + FULL_INTERVAL_MS, idle=True, leads=True)
        assert gone() is None
        assert gc.get_freeze_count() <= frozen
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
