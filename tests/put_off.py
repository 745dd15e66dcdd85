"""Whom leaders put entries off for."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from zraft.raft.leading import Leading
from zraft_core.ids import ServerId


def noted_put_off(monkeypatch: pytest.MonkeyPatch) -> list[ServerId]:
    """Return a list that grows by each server for which a leader puts an entry off, each time."""
    dispensable = Leading._dispensable
    named: list[ServerId] = []

    def noted(core: Leading) -> Collection[ServerId]:
        found = dispensable(core)
        named.extend(found)
        return found

    monkeypatch.setattr(Leading, "_dispensable", noted)
    return named
