"""Balanced, percentage and colocated, by examples."""

from __future__ import annotations

import pytest
from attrs import evolve

from onyxlog.scheduling.reconfigure import reconfigure
from onyxlog.scheduling.requirements import FluxPolicy, JobScheduler, TaskScheduler, Worker
from tests.onyxlog.scheduling.builders import counts, decided, grouped, job, problem, task, without, workers


@pytest.mark.parametrize(
    ("count", "tasks", "expected"),
    [
        (7, "x y z", [3, 2, 2]),
        (7, "x:1-1 y z", [1, 3, 3]),
        (7, "x y:4 z", [2, 4, 1]),
        (5, "x:1-1 y:1-2", [1, 2]),
    ],
)
def test_balanced_fills_minima_and_then_who_has_the_fewest(
    count: int, tasks: str, expected: list[int]
) -> None:
    plan = reconfigure(problem(workers(count), job("a", tasks)))
    assert list(counts(plan).values()) == expected


@pytest.mark.parametrize(
    ("count", "shares", "bounds", "expected"),
    [
        (10, (20, 30, 50), ("", "", ""), [2, 3, 5]),
        # they are scaled to sum to 100
        (10, (10, 15, 25), ("", "", ""), [2, 3, 5]),
        # what a maximum cuts off goes to the others in proportion
        (10, (20, 30, 50), ("", "", ":1-2"), [3, 5, 2]),
        # what a minimum adds is at the expense of the others in proportion
        (10, (20, 30, 50), (":5", "", ""), [5, 2, 3]),
        (3, (1, 1, 98), ("", "", ""), [1, 1, 1]),
        # one without a percentage has its minimum
        (10, (50, 50, None), ("", "", ""), [5, 4, 1]),
    ],
)
def test_percentage_divides_in_proportion_within_bounds(
    count: int, shares: tuple[int | None, ...], bounds: tuple[str, ...], expected: list[int]
) -> None:
    """Onyx hands the function `replace` to what wants a replica here, and fails (3.2, 11)."""
    tasks = tuple(
        task(name + bound, percentage=share) for name, bound, share in zip("xyz", bounds, shares, strict=True)
    )
    plan = reconfigure(problem(workers(count), job("a", tasks, TaskScheduler.PERCENTAGE)))
    assert list(counts(plan).values()) == expected


def test_percentage_leaves_what_all_bounds_forbid() -> None:
    tasks = (task("x:1-2", percentage=50), task("y:1-2", percentage=50))
    plan = reconfigure(problem(workers(9), job("a", tasks, TaskScheduler.PERCENTAGE)))
    assert list(counts(plan).values()) == [2, 2]


def test_colocated_uses_whole_chunks_of_one_site_only() -> None:
    """Sites of 4, 4 and 3 workers, three tasks: one chunk on each, and two workers for others."""
    there = workers(11, sites=3)
    plan = reconfigure(
        problem(
            there, job("a", "x y z", TaskScheduler.COLOCATED), job("b", "x"), scheduler=JobScheduler.GREEDY
        )
    )
    site = {worker.id: worker.site for worker in there}
    assert counts(plan) == {"a/x": 3, "a/y": 3, "a/z": 3, "b/x": 2}
    for name in "xyz":
        assert sorted(site[peer] for peer in plan.allocations["a", name]) == ["s0", "s1", "s2"]


def test_colocated_does_not_use_a_site_that_is_too_small() -> None:
    plan = reconfigure(problem(workers(8, sites=4), job("a", "x y z", TaskScheduler.COLOCATED)))
    assert plan.allocations == {}


def test_colocated_chunks_fit_the_tags_of_their_site() -> None:
    """Only on one site there is who can do the first task."""
    there = workers(6, sites=2, tags={3: "gpu"})
    tasks = (task("x", required_tags=("gpu",)), task("y"))
    plan = reconfigure(problem(there, job("a", tasks, TaskScheduler.COLOCATED)))
    assert plan.allocations["a", "x"] == ("p03",)
    assert plan.allocations["a", "y"][0] in ("p01", "p05")


def test_two_colocated_jobs_of_one_site_are_placed_together() -> None:
    """The second needs the worker that the first could have taken as well."""
    there = workers(4, tags={0: "gpu"})
    jobs = [
        job("a", "x y", TaskScheduler.COLOCATED),
        job("b", (task("x"), task("y", required_tags=("gpu",))), TaskScheduler.COLOCATED),
    ]
    plan = reconfigure(problem(there, *jobs))
    assert counts(plan) == {"a/x": 1, "a/y": 1, "b/x": 1, "b/y": 1}
    assert plan.allocations["b", "y"] == ("p00",)


def test_a_colocated_chunk_that_lost_a_worker_is_completed_on_its_site() -> None:
    before = decided(problem(workers(6, sites=2), job("a", "x y", TaskScheduler.COLOCATED)))
    assert counts(reconfigure(before)) == {"a/x": 2, "a/y": 2}
    lost = before.present["a", "x"][0]
    after = reconfigure(without(before, lost))
    assert counts(after) == {"a/x": 2, "a/y": 2}
    assert after.allocations["a", "y"] == before.present["a", "y"]
    assert set(after.allocations["a", "x"]) & set(before.present["a", "x"]) == set(
        before.present["a", "x"]
    ) - {lost}


def test_a_site_that_comes_brings_a_chunk_and_moves_nobody() -> None:
    before = decided(problem(workers(4, sites=2), job("a", "x y", TaskScheduler.COLOCATED)))
    more = (*before.workers, Worker("p90", "s9"), Worker("p91", "s9"))
    after = reconfigure(evolve(before, workers=more))
    assert after.allocations == {
        ("a", "x"): (*before.present["a", "x"], "p90"),
        ("a", "y"): (*before.present["a", "y"], "p91"),
    }


def test_a_colocated_job_that_takes_chunks_too_many_gives_way_to_who_needs_a_tag() -> None:
    """The job that came first needs the only worker that can do it."""
    there = workers(4, tags={0: "gpu"})
    jobs = [job("a", (task("x:1-1", required_tags=("gpu",)),)), job("b", "x y", TaskScheduler.COLOCATED)]
    plan = reconfigure(problem(there, *jobs))
    assert counts(plan) == {"a/x": 1, "b/x": 1, "b/y": 1}
    assert plan.allocations["a", "x"] == ("p00",)


def test_a_colocated_job_with_a_frozen_task_keeps_its_chunks() -> None:
    tasks = (grouped("x", FluxPolicy.KILL), task("y"))
    before = decided(problem(workers(4, sites=2), job("a", tasks, TaskScheduler.COLOCATED)))
    after = reconfigure(evolve(before, workers=workers(12, sites=2)))
    assert after.allocations == before.present
    replaced = reconfigure(evolve(without(before, before.present["a", "y"][0]), workers=tuple(
        worker for worker in workers(12, sites=2) if worker.id != before.present["a", "y"][0]
    )))  # fmt: skip
    assert replaced.allocations["a", "x"] == before.present["a", "x"]
    assert counts(replaced) == counts(reconfigure(before))


def test_one_chunk_that_is_lost_does_not_move_others_in_turn() -> None:
    """A job whose chunk lost a worker must not take the place of another job's chunk, which would take the next one's."""
    there = workers(40, sites=10)
    jobs = [job(f"j{number}", "x y", TaskScheduler.COLOCATED) for number in range(5)]
    before = decided(problem(there, *jobs))
    assert sum(map(len, before.present.values())) == 40
    after = reconfigure(without(before, before.present["j0", "x"][0]))
    had = {peer: key for key, peers in before.present.items() for peer in peers}
    has = {peer: key for key, peers in after.allocations.items() for peer in peers}
    assert sum(map(len, after.allocations.values())) == 38
    # The last job is to have a chunk less, and that chunk is now the first one's: nobody else moves.
    assert [(had[peer][0], has[peer][0]) for peer in sorted(has) if has[peer] != had[peer]] == [
        ("j4", "j0")
    ] * 2


def test_a_chunk_that_stays_gives_way_to_another_jobs_first_one() -> None:
    """The first job is to have less, and the second needs a whole site, none of which would become free by itself."""
    before = decided(problem(workers(8, sites=2), job("a", "x y", TaskScheduler.COLOCATED)))
    assert counts(reconfigure(before)) == {"a/x": 4, "a/y": 4}
    more = (job("b", "x y z", TaskScheduler.COLOCATED), *before.jobs)
    after = reconfigure(evolve(before, jobs=more))
    assert counts(after) == {"a/x": 2, "a/y": 2, "b/x": 1, "b/y": 1, "b/z": 1}


def test_a_chunk_that_cannot_be_completed_where_it_is_is_laid_elsewhere() -> None:
    """Its own site is the cheapest, but has too few workers now; another job has to make room on the other site."""
    there = (Worker("p0", "s0"), Worker("p1", "s0"), Worker("p2", "s1"), Worker("p3", "s1"))
    jobs = (job("a", "x:1-1 y:1-1", TaskScheduler.COLOCATED), job("b", "x"))
    before = decided(problem(there, *jobs))
    assert before.present == {("a", "x"): ("p0",), ("a", "y"): ("p1",), ("b", "x"): ("p2", "p3")}
    after = reconfigure(without(before, "p0"))
    assert after.allocations == {("a", "x"): ("p2",), ("a", "y"): ("p3",), ("b", "x"): ("p1",)}


class CountedId(str):
    """An id that counts how often it is looked up."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        CountedId.lookups += 1
        return super().__hash__()


@pytest.mark.parametrize("policy", [None, FluxPolicy.RECOVER])
def test_what_chunks_cost_grows_with_the_workers_not_with_them_times_their_sites(
    policy: FluxPolicy | None,
) -> None:
    tasks = (task("x") if policy is None else grouped("x", policy), task("y"))
    lookups = []
    for sites in (40, 160):
        there = tuple(Worker(CountedId(f"p{n:04}"), f"s{n % sites:03}") for n in range(4 * sites))
        before = decided(problem(there, job("a", tasks, TaskScheduler.COLOCATED)))
        assert sum(map(len, before.present.values())) == 4 * sites
        CountedId.lookups = 0
        after = reconfigure(evolve(before, workers=(*there, Worker(CountedId("p9999"), "s999"))))
        assert after.allocations == before.present
        lookups.append(CountedId.lookups)
    assert lookups[1] < 5 * lookups[0]
