"""Workloads, presets, pacing: which requests a benchmark sends, and when (Z-25 to Z-27)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from onyxlog.theses import zatt
from zraft_bench.load.pacing import due_times
from zraft_bench.load.schedule import PRESETS, schedule
from zraft_bench.load.workload import Operation, Share, Values, Workload, process_shares, shares
from zraft_core.errors import ConfigError


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_shares_are_whole_and_differ_by_one_at_most(total: int, parts: int) -> None:
    found = shares(total, parts)
    assert sum(found) == total
    assert len(found) == parts
    assert max(found) - min(found) <= 1


@given(st.integers(1, 3000), st.integers(1, 60), st.integers(1, 4), st.integers(1, 8))
def test_every_entry_is_asked_for_by_exactly_one_worker(
    entries: int, workers: int, machines: int, processes: int
) -> None:
    load = Workload(entries=entries, workers=workers)
    asked = [
        entry
        for machine in range(machines)
        for share in process_shares(workers, machine, machines, processes)
        for worker in share
        for entry in share.entries_of(load, worker)
    ]
    assert sorted(asked) == list(range(entries))


def test_a_machine_has_no_more_processes_than_workers() -> None:
    assert [share.workers for share in process_shares(3, 0, 1, 8)] == [1, 1, 1]
    assert process_shares(5, 1, 2, 2) == [Share(5, 3, 10), Share(8, 2, 10)]


def test_values_are_of_the_size_asked_for_and_hardly_ever_the_same() -> None:
    values = Values(100, seed=1)
    made = [values.next() for _ in range(10_000)]
    assert {len(value) for value in made} == {100}
    assert len(set(made)) == len(made)
    assert Values(100, seed=1).next() == made[0]
    assert Values(0, seed=1).next() == b""


def test_the_matrix_is_zatts_z27() -> None:
    """Z-27: entries x workers x payload, more entries than workers: twenty cells, growing."""
    base = Workload(seconds_min=3.0)
    cells = schedule("matrix", base)
    shown = [(cell.workers, cell.entries, cell.value_bytes) for cell in cells]
    assert len(shown) == len(set(shown)) == 20
    assert all(cell.entries > cell.workers for cell in cells)
    assert {cell.seconds_min for cell in cells} == {3.0}
    # every cell that was published is one of these, and the other way round
    assert {(row.workers, row.entries, row.value_bytes) for row in zatt.ROWS} == set(shown)


def test_presets_keep_what_they_do_not_vary() -> None:
    base = Workload(seconds_min=1.5, deadline_s=7.0, seed=9)
    for name in PRESETS:
        cells = schedule(name, base)
        assert {cell.deadline_s for cell in cells} == {7.0}
        assert {cell.seed for cell in cells} == {9}
    assert schedule(None, base) == (base,)


def test_the_cells_are_sessions_with_requests_under_way() -> None:
    base = Workload(seconds_min=1.5, seed=9)
    cells = schedule("cells", base)
    titles = [cell.title() for cell in cells]
    assert len(set(titles)) == 12
    assert {
        "write, 100 B, 1 x 1",
        "write, 1,000 B, 64 x 16",
        "mixed, 100 B, 64 x 16",
        "session_churn, 64 x 1",
    } < set(titles)
    assert {(cell.seconds_min, cell.seed, cell.linearizable) for cell in cells} == {(1.5, 9, False)}
    with pytest.raises(ConfigError, match=r"--rate: found 100 with --schedule cells"):
        schedule("cells", Workload(rate=100.0))


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_workers_of_a_session_stay_in_one_process(processes: int) -> None:
    found = process_shares(64 * 16, 0, 1, processes, together=16)
    assert len(found) == processes
    assert all(share.workers % 16 == 0 and share.first_worker % 16 == 0 for share in found)
    assert sum(share.workers for share in found) == 64 * 16


@pytest.mark.parametrize(
    "wrong",
    [
        {"under_way": 3, "workers": 4},
        {"under_way": 1, "rate": 1.0},
        {"operation": Operation.VISIT},
        {"operation": Operation.CREATE_SEQUENTIAL},
    ],
)
def test_sessions_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="under_way"):
        Workload(**wrong)


def test_an_unknown_preset_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match="found 'matrixx', expected one of cells, deployment, matrix, smoke"
    ):
        schedule("matrixx", Workload())


def test_the_published_figures_are_whole() -> None:
    """Z-30, Z-32: 55 rows of which 5 have no result, and their mean."""
    rates = [row.per_second for row in zatt.ROWS if row.per_second is not None]
    assert len(zatt.ROWS) == 55
    assert len(rates) == 50
    assert round(sum(rates) / len(rates)) == zatt.MEAN_PER_SECOND
    assert max(rates) == 1597
    # a row without a result is marked; one that is marked may have a result all the same
    assert all(row.unstable for row in zatt.ROWS if row.per_second is None)
    for row in zatt.ROWS:
        if row.time_s is not None and row.per_second is not None:
            assert abs(row.entries / row.time_s - row.per_second) < 1.0 + 0.01 * row.per_second


def test_the_workers_of_an_open_loop_take_turns_at_even_times() -> None:
    dues = sorted(
        due for worker in range(4) for due in due_times(100.0, 4, worker, 1.0, poisson=False, seed=1)
    )
    assert len(dues) == 100
    assert dues[0] == 0.0
    assert all(abs(later - earlier - 0.01) < 1e-9 for earlier, later in pairwise(dues))


def test_poisson_due_times_have_the_rate_and_are_the_same_for_the_same_seed() -> None:
    def made(seed: int) -> list[float]:
        return [due for w in range(5) for due in due_times(1000.0, 5, w, 10.0, poisson=True, seed=seed)]

    dues = made(3)
    assert dues == made(3)
    assert dues != made(4)
    assert abs(len(dues) - 10_000) < 500  # five standard deviations
    gaps = [later - earlier for earlier, later in pairwise(sorted(dues))]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    # of an exponential distribution the standard deviation is the mean; evenly spaced it would be 0
    assert 0.9 < variance**0.5 / mean < 1.1


def test_titles_say_what_is_asked() -> None:
    load = Workload(entries=5000, workers=100, value_bytes=1000)
    assert load.title() == "write, 5,000 entries of 1,000 B, 100 workers"
    assert evolve(load, rate=2000.0, operation=Operation.READ).title().endswith("2,000/s open loop")


@pytest.mark.parametrize(
    "wrong", [{"entries": 0}, {"workers": 0}, {"rate": 0.0}, {"read_share": 1.1}, {"deadline_s": 0}]
)
def test_impossible_workloads_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Workload(**wrong)  # type: ignore[arg-type]
