"""When the garbage collector runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from zraft.server.process.collector import FULL_INTERVAL_MS, Collector

STARTED_MS = 5_000_000_000


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The generations that were collected; nothing is collected or frozen in truth."""
    done: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda generation=2: done.append(generation))
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda: None)
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, 0))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    yield done
    gc.enable()


def test_a_start_collects_nothing_and_the_first_full_collection_comes_an_interval_later(
    collections: list[int],
) -> None:
    """Not with the first idle turn, however long the machine has been up."""
    collector = Collector(STARTED_MS)
    assert not gc.isenabled()
    collector.step(STARTED_MS + FULL_INTERVAL_MS - 1, idle=True)
    collector.step(STARTED_MS + FULL_INTERVAL_MS, idle=False)
    assert collections == []
    collector.step(STARTED_MS + FULL_INTERVAL_MS, idle=True)
    collector.step(STARTED_MS + FULL_INTERVAL_MS + 1, idle=True)
    assert collections == [2]
