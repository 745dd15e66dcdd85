"""Directed schedules: each breaks a promise with the bug of its name planted, and none without it."""

from __future__ import annotations

import pytest

from tests.simulation.directed import NeverHappenedError, Scene, leaves
from tests.simulation.directed_schedules import DIRECTED
from tests.simulation.planted import planted


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


def test_schedule_that_shows_nothing_any_more_says_so() -> None:
    """What is waited for and never comes ends the run: a schedule cannot pass by missing its moment."""
    with Scene(clients=0) as scene:
        leader, *_ = scene.found()
        with pytest.raises(NeverHappenedError, match="within 300 ms: somebody else leads"):
            scene.until(lambda: not leader.leads, "somebody else leads", 300)


def test_removed_server_serves_no_reader() -> None:
    """It will never know more: who is content with a server without a quorum would read the past there for ever."""
    with Scene(clients=1, read_only_mode=True) as scene:
        leader, _, third = scene.found()
        reader = scene.clients[-1]
        assert reader.reader
        scene.ask(leader, leaves(third))
        scene.until(
            lambda: third.driver is not None and third.driver.coordination.removed is not None, "it is told"
        )
        reader.stay_at(third)
        reader.drop()
        connections = reader.connections
        scene.run(1_000)
        assert reader.connections == connections
        reader.stay_at(leader)
        scene.heal()
