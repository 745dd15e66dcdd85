"""Directed schedules: each breaks a promise with the bug of its name planted, and none without it."""

from __future__ import annotations

import pytest

from tests.sim.schedules import DIRECTED
from zraft.testing.planted import planted


@pytest.mark.parametrize("name", DIRECTED)
def test_directed_schedule_breaks_no_promise(name: str) -> None:
    """Else what the plant breaks in it would prove nothing."""
    DIRECTED[name].schedule()


@pytest.mark.parametrize("name", DIRECTED)
def test_directed_schedule_catches_the_planted_bug(name: str) -> None:
    """The promise that the bug breaks is the one that is reported."""
    directed = DIRECTED[name]
    with planted(name), pytest.raises(directed.raises, match=f"^{directed.promise}"):
        directed.schedule()
