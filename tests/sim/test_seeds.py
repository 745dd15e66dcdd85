"""A quick set of seeds keeps every promise and sees enough; the long set is `python -m tests.simulation cluster`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from attrs import evolve

from tests.put_off import noted_put_off
from tests.simulation.client_checks import KINDS
from tests.simulation.connections import ConnectedProcess, ConnectedSimulation
from tests.simulation.directed import Scene
from tests.simulation.natives import KINDS as NATIVE_KINDS
from tests.simulation.profile import Mode, roll
from tests.simulation.scenarios import CLUSTER
from tests.simulation.simulation import Report, Simulation
from tests.simulation.topics import KINDS as TOPIC_KINDS
from zraft.groups.snapshots.snapshots import Snapshots
from zraft.raft.settings import RaftSettings
from zraft.server.coordination import reconciliation
from zraft.server.coordination.group import CoordinationGroup
from zraft.server.engine.driver import Driver

QUICK_SEEDS = range(40)


@pytest.mark.parametrize("first", range(0, len(QUICK_SEEDS), 5))
def test_quick_seeds_break_no_promise(first: int) -> None:
    """All checkers of docs/explanation/simulation.md; a failure prints the seed and how to replay it."""
    reports: list[Report] = []
    for number in QUICK_SEEDS[first : first + 5]:
        result = CLUSTER.run_seed(number)
        assert result.report is not None, f"seed {number}: {result.checker}: {result.reason}"
        reports.append(result.report)
    assert CLUSTER.shortfalls(reports) == []


@pytest.mark.parametrize("mode", list(Mode))
def test_every_mode_breaks_no_promise(mode: Mode) -> None:
    """The directed modes in which planted bugs are searched are clean without a bug."""
    result = CLUSTER.run_seed(7, mode=mode)
    assert result.report is not None, f"seed 7, mode {mode.value}: {result.checker}: {result.reason}"


@pytest.mark.parametrize("seed", [*range(5), 772691350, 1129211638])
def test_connections_that_end_with_or_without_a_reason_break_no_promise(seed: int) -> None:
    result = CLUSTER.run_seed(seed, connections=True)
    assert result.report is not None, f"seed {seed}: {result.checker}: {result.reason}"


def test_servers_are_told_of_connections_that_ended() -> None:
    simulation = ConnectedSimulation(0)
    simulation.run()
    founders = simulation.processes[: simulation.profile.servers]
    assert all(process.losses > 5 for process in founders if isinstance(process, ConnectedProcess))


def test_same_seed_is_the_same_run_byte_for_byte() -> None:
    """Two runs in one process agree on every byte sent and when."""
    assert Simulation(3).run() == Simulation(3).run()


def test_leaders_of_some_seeds_put_entries_off_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network of the others is too slow for that."""
    put_off = noted_put_off(monkeypatch)
    seed = next(seed for seed in QUICK_SEEDS if roll(seed).put_off_ms > RaftSettings().put_off_ticks)
    Simulation(seed).run()
    assert len(put_off) >= 20


@pytest.mark.timeout(300)
def test_what_a_turn_leaves_out_would_have_done_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never takes the short ways about snapshots and members does the same, byte for byte.

    No server rests here: when one does depends on these short ways, and its turns then come at other moments.
    """
    monkeypatch.setattr(CoordinationGroup, "rests", False)
    seed = 0
    with_short_ways = Simulation(seed).run()
    assert with_short_ways.snapshots_taken > 10
    assert with_short_ways.configurations > 2
    monkeypatch.setattr(Snapshots, "is_quiet", lambda *_, **__: False)
    monkeypatch.setattr(reconciliation, "is_as_wanted", lambda *_: False)
    assert Simulation(seed).run() == with_short_ways


def _turns() -> int:
    """Of three servers and two busy clients, in two seconds without a fault."""
    with Scene(clients=2) as scene:
        scene.found()
        with scene.busy():
            scene.run(2_000)
        return sum(process.turns for process in scene.processes)


def test_a_turn_is_taken_only_if_the_servers_own_loop_would_take_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that `Driver.wants_turn` forgets has to be missed here, too, and one that it leaves out is not taken."""
    as_it_ships = _turns()
    monkeypatch.setattr(Driver, "wants_turn", True)
    assert _turns() > as_it_ships + 100
    monkeypatch.setattr(Driver, "wants_turn", False)
    assert _turns() < as_it_ships // 2


def test_run_does_not_depend_on_hash_order() -> None:
    """D-5: processes with different PYTHONHASHSEED agree on every byte sent and when."""
    code = "from tests.simulation.simulation import Simulation; print(Simulation(0).run())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1, outputs


def test_profiles_differ_between_seeds() -> None:
    """Swarm testing needs swarms: sizes, modes and loss vary over seeds."""
    profiles = [roll(number) for number in range(60)]
    assert {p.mode for p in profiles} >= {Mode.ALL, Mode.EXPIRY, Mode.VOTES, Mode.BOOTS, Mode.READS}
    assert {p.servers for p in profiles} == {3, 5}
    assert {p.gentle for p in profiles} == {True, False}
    assert len({p.loss for p in profiles}) == 3


def test_empty_run_is_reported() -> None:
    """A range of seeds in which nothing happens must not pass."""
    result = CLUSTER.run_seed(1)
    assert result.report is not None
    report = result.report
    empty = evolve(report, commands=3)
    assert CLUSTER.shortfalls([report]) == []
    assert "3 commands" in CLUSTER.shortfalls([empty])[0]


@pytest.mark.parametrize("name", ["snapshots_taken", "snapshots_adopted", "configurations"])
def test_range_without_snapshots_or_configurations_is_reported(name: str) -> None:
    """Promises about members and snapshots mean nothing in runs that saw none."""
    result = CLUSTER.run_seed(1)
    assert result.report is not None
    good = evolve(result.report, commands=900, leader_changes=5, faults=9)
    good = evolve(good, snapshots_taken=20, snapshots_adopted=4, configurations=6)
    assert CLUSTER.shortfalls([good] * CLUSTER.enough.means_from_seeds) == []
    change: dict[str, Any] = {name: 1}
    (line,) = CLUSTER.shortfalls([evolve(good, **change)] * CLUSTER.enough.means_from_seeds)
    assert line.startswith(f"{name.replace('_', ' ')} per seed: 1.0, at least ")


def test_kind_of_operation_that_never_happens_in_a_long_range_is_reported() -> None:
    """The checks of an operation that nobody asks for any more can only pass."""
    result = CLUSTER.run_seed(1)
    assert result.report is not None
    kinds = (*KINDS, *NATIVE_KINDS, *TOPIC_KINDS)
    assert tuple(kind for kind, _ in result.report.operations) == kinds
    all_but_one = tuple((kind, int(kind != "TTL reaped")) for kind in kinds)
    reports = [evolve(result.report, operations=all_but_one)] * CLUSTER.enough.kinds_from_seeds
    assert [line for line in CLUSTER.shortfalls(reports) if line.startswith("no ")] == [
        f"no TTL reaped in {len(reports)} seeds"
    ]
    assert not any(line.startswith("no ") for line in CLUSTER.shortfalls(reports[1:]))
