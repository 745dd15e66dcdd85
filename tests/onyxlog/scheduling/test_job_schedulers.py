"""Greedy, balanced and percentage, by examples; docs/explanation/onyxlog.md, "Scheduling", has them too."""

from __future__ import annotations

import pytest
from attrs import evolve

from onyxlog.scheduling.reconfigure import reconfigure
from onyxlog.scheduling.requirements import JobScheduler
from tests.onyxlog.scheduling.builders import decided, job, job_counts, problem, task, without, workers


def divided(scheduler: JobScheduler, count: int, *tasks: str, percentages: tuple[int, ...] = ()) -> list[int]:
    shares: tuple[int | None, ...] = percentages or (None,) * len(tasks)
    names = "abcdef"[: len(tasks)]
    jobs = [job(name, text, percentage=share) for name, text, share in zip(names, tasks, shares, strict=True)]
    return job_counts(reconfigure(problem(workers(count), *jobs, scheduler=scheduler)), *names)


@pytest.mark.parametrize(
    ("count", "tasks", "expected"),
    [
        (10, ("x y", "x y"), [10, 0]),
        (10, ("x:1-2 y:1-3", "x y"), [5, 5]),
        (3, ("x:4", "x y", "x"), [0, 3, 0]),
        (0, ("x",), [0]),
        (5, (), []),
    ],
)
def test_greedy_gives_the_first_job_all_that_it_can_use(
    count: int, tasks: tuple[str, ...], expected: list[int]
) -> None:
    """What a job leaves, or cannot begin with, goes to the next."""
    assert divided(JobScheduler.GREEDY, count, *tasks) == expected


@pytest.mark.parametrize(
    ("count", "tasks", "expected"),
    [
        (10, ("x y", "x y", "x y"), [4, 3, 3]),
        (11, ("x y", "x:1-1 y:1-1", "x y"), [5, 2, 4]),
        # the offer of 4, 3, 3 lets nobody begin: one begins after the other as long as it goes
        (10, ("x:5", "x:5", "x:5"), [5, 5, 0]),
        # of those that cannot begin with their offer the one that needs the least comes first
        (6, ("x:5", "x:4", "x"), [0, 4, 2]),
        (2, ("x", "x", "x"), [1, 1, 0]),
    ],
)
def test_balanced_gives_all_jobs_equally_many(
    count: int, tasks: tuple[str, ...], expected: list[int]
) -> None:
    assert divided(JobScheduler.BALANCED, count, *tasks) == expected


@pytest.mark.parametrize(
    ("count", "tasks", "percentages", "expected"),
    [
        (10, ("x", "x"), (30, 70), [3, 7]),
        (11, ("x", "x"), (30, 70), [3, 8]),
        (10, ("x", "x", "x"), (33, 33, 34), [3, 3, 4]),
        # a job that cannot use its share leaves it to the others
        (10, ("x:1-2", "x"), (50, 50), [2, 8]),
        # percentages that sum to less leave nobody idle
        (10, ("x", "x"), (20, 30), [5, 5]),
        # an offer below the minimum is no offer, unless it is spare anyway
        (10, ("x:8", "x:2"), (70, 30), [0, 10]),
        (10, ("x:4", "x:1-6"), (30, 70), [4, 6]),
    ],
)
def test_percentage_gives_each_job_its_share(
    count: int, tasks: tuple[str, ...], percentages: tuple[int, ...], expected: list[int]
) -> None:
    assert divided(JobScheduler.PERCENTAGE, count, *tasks, percentages=percentages) == expected


def test_percentage_skips_a_job_beyond_100_and_takes_smaller_ones_after_it() -> None:
    """3.2, 11: the loop that ended at the first such job left the third without anything."""
    percentages = (60, 50, 40)
    assert divided(JobScheduler.PERCENTAGE, 10, "x", "x", "x", percentages=percentages) == [6, 0, 4]


def test_a_job_that_waits_for_its_percentage_runs_when_another_is_over() -> None:
    jobs = [job("a", "x", percentage=60), job("b", "x", percentage=50), job("c", "x", percentage=40)]
    before = decided(problem(workers(10), *jobs, scheduler=JobScheduler.PERCENTAGE))
    after = reconfigure(problem(workers(10), *jobs[1:], scheduler=JobScheduler.PERCENTAGE))
    assert "b" not in {name for name, _ in before.present}
    assert job_counts(after, "b", "c") == [6, 4]


def test_tags_cap_what_a_job_is_offered() -> None:
    """Workers that can do none of its tasks are no offer; the others have them."""
    there = workers(10, tags={0: "gpu", 1: "gpu"})
    jobs = [job("a", (task("x", required_tags=("gpu",)),)), job("b", "x")]
    assert job_counts(reconfigure(problem(there, *jobs)), "a", "b") == [2, 8]


def test_jobs_that_want_the_same_rare_tag_share_it() -> None:
    """Numbers alone would give the job that comes first both, and the other none."""
    there = workers(6, tags={2: "gpu", 4: "gpu"})
    both = (task("x", required_tags=("gpu",)), task("y"))
    plan = reconfigure(problem(there, job("a", both), job("b", both)))
    assert {len(plan.allocations[name, "x"]) for name in "ab"} == {1}
    assert job_counts(plan, "a", "b") == [3, 3]


def test_a_job_that_tags_keep_from_its_minimum_leaves_its_workers_to_others() -> None:
    """3.2, 11: the job that could not be placed was to be removed, but nothing was, and the solver tried the same again."""
    there = workers(6, tags={0: "gpu"})
    needs = (task("x", required_tags=("gpu",)),)
    plan = reconfigure(problem(there, job("a", needs), job("b", (*needs, task("y"))), job("c", "x")))
    assert job_counts(plan, "a", "b", "c") == [1, 0, 5]


def test_a_worker_with_a_rare_tag_makes_room_for_who_needs_it() -> None:
    """It moves although its task is as well done by it as by others."""
    there = workers(3, tags={0: "gpu"})
    before = decided(problem(there[:2], job("a", "x:1-2")))
    plan = reconfigure(problem(there, job("a", "x:1-2"), job("b", (task("x", required_tags=("gpu",)),))))
    assert before.present["a", "x"] == ("p00", "p01")
    assert plan.allocations == {("a", "x"): ("p01", "p02"), ("b", "x"): ("p00",)}


def test_a_job_that_lost_a_worker_below_its_minimum_is_starved_and_begins_again_when_it_can() -> None:
    before = decided(problem(workers(4), job("a", "x:3 y")))
    assert job_counts(reconfigure(before), "a") == [4]
    less = decided(without(before, "p02"))
    assert less.present == {}
    assert less.coordinators == {}
    assert less.slots == {}
    assert job_counts(reconfigure(problem(workers(4), job("a", "x:3 y"))), "a") == [4]


def test_a_tag_that_nobody_has_keeps_the_job_waiting() -> None:
    """All workers are alike then, but not for every task."""
    jobs = [job("a", (task("x", required_tags=("gpu",)),)), job("b", "x")]
    assert reconfigure(problem(workers(2), *jobs)).allocations == {("b", "x"): ("p00", "p01")}


def test_of_two_who_could_stay_the_one_stays_who_costs_the_other_nothing() -> None:
    """A task is to shrink to one worker; the one with the tag is needed elsewhere, so the other one stays."""
    there = workers(4, tags={0: "a", 1: "b", 2: "a"})
    asked = problem(
        there,
        job("t", "x:1-1"),
        job("s", "x:1-1"),
        job("u", (task("x:1-1", required_tags=("a",)),)),
        job("never", (task("x:5", required_tags=("b",)),)),
    )
    plan = reconfigure(evolve(asked, present={("t", "x"): ("p00", "p01"), ("s", "x"): ("p02",)}))
    assert plan.allocations == {("s", "x"): ("p02",), ("t", "x"): ("p01",), ("u", "x"): ("p00",)}


def test_greedy_gives_the_first_job_all_that_tags_let_it_use() -> None:
    """The second job's minimum would take a worker that the first can use."""
    there = workers(4, tags={0: "gpu", 1: "gpu"})
    needs = (task("x", required_tags=("gpu",)),)
    plan = reconfigure(
        problem(
            there,
            job("a", needs),
            job("b", (*needs, task("y"))),
            job("c", "x"),
            scheduler=JobScheduler.GREEDY,
        )
    )
    assert job_counts(plan, "a", "b", "c") == [2, 0, 2]


def test_a_job_runs_with_workers_that_tags_leave_over() -> None:
    """By numbers the first two take four of six; tags let them have two, and four are what the third needs."""
    there = workers(6, tags={0: "gpu", 1: "gpu"})
    needs = (task("x", required_tags=("gpu",)),)
    plan = reconfigure(problem(there, job("a", needs), job("b", needs), job("c", "x:4")))
    assert job_counts(plan, "a", "b", "c") == [1, 1, 4]
