"""The leader's rounds over containers and znodes with a time to live."""

from __future__ import annotations

from tests.unit.tree.scenario import Scenario
from zraft.server.coordination.reaper import PATHS_PER_STEP, PROPOSED_PER_ROUND_MAX, Reaper
from zraft_core.znodes.txn import CREATE_CONTAINER, CREATE_TTL, REAP

INTERVAL_MS = 1_000


def test_only_what_is_due_is_proposed_once_per_interval() -> None:
    scenario = Scenario()
    scenario.run((CREATE_TTL, "/short", b"", None, 5, 10))
    scenario.run((CREATE_TTL, "/long", b"", None, 5, 10**9))
    scenario.run((CREATE_CONTAINER, "/c", b"", None, 4, 0))
    scenario.create("/plain")
    machine = scenario.machine
    reaper = Reaper(INTERVAL_MS, run_ms=0)
    log_time = machine.log_time + 100
    expected = [(REAP, "/short", scenario.node("/short").czxid)]
    assert reaper.step(machine, log_time, run_ms=999) == []
    assert reaper.step(machine, log_time, run_ms=1_000) == expected
    assert reaper.step(machine, log_time, run_ms=1_001) == []
    assert reaper.step(machine, log_time, run_ms=2_000) == expected, "apply may have refused it"


def test_a_round_over_many_is_spread_over_turns_and_bounded() -> None:
    """However many are due at once, clients are served first."""
    scenario = Scenario()
    total = PROPOSED_PER_ROUND_MAX + 2 * PATHS_PER_STEP
    for number in range(total):
        scenario.run((CREATE_TTL, f"/{number}", b"", None, 5, 1))
        scenario.machine.events.clear()
    reaper = Reaper(INTERVAL_MS, run_ms=0)
    sizes: list[int] = []
    while not sizes or len(sizes) < total // PATHS_PER_STEP:
        sizes.append(len(reaper.step(scenario.machine, scenario.machine.log_time + 10_000, run_ms=1_000)))
    assert max(sizes) <= PATHS_PER_STEP
    assert sum(sizes) == PROPOSED_PER_ROUND_MAX
    assert reaper.step(scenario.machine, scenario.machine.log_time, run_ms=1_001) == []


def test_a_cluster_without_such_znodes_looks_at_nothing() -> None:
    reaper = Reaper(INTERVAL_MS, run_ms=0)
    assert reaper.step(Scenario().machine, 10**9, run_ms=5_000) == []
