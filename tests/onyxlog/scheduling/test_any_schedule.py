"""What holds of every plan, over random problems and what entries make of them; optimal where it claims to be."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import TypedDict

import pytest
from attrs import evolve

from onyxlog.scheduling.demand import is_frozen
from onyxlog.scheduling.reconfigure import Plan, reconfigure
from onyxlog.scheduling.requirements import (
    JobRequirements,
    JobScheduler,
    Problem,
    TaskRequirements,
    TaskScheduler,
    Worker,
)
from tests.onyxlog.scheduling.exact import divided, most_at_work, most_stayers, stayers
from tests.onyxlog.scheduling.problems import changed, check, random_problem


class Traits(TypedDict, total=False):
    tags: bool
    grouped: bool
    colocated: bool
    size: int


PLAIN: Traits = {"tags": False, "grouped": False, "colocated": False}
TAGS: Traits = {"tags": True, "grouped": False, "colocated": False}
GROUPED: Traits = {"tags": False, "grouped": True, "colocated": False}
TAGS_GROUPED: Traits = {"tags": True, "grouped": True, "colocated": False}
COLOCATED: Traits = {"tags": False, "grouped": True, "colocated": True}
EVERYTHING: Traits = {"tags": True, "grouped": True, "colocated": True}
KINDS: dict[str, Traits] = {
    "plain": PLAIN,
    "tags": TAGS,
    "grouped": GROUPED,
    "tags-grouped": TAGS_GROUPED,
    "colocated": COLOCATED,
    "everything": EVERYTHING,
}


def after(problem: Problem, plan: Plan) -> Problem:
    return evolve(problem, present=plan.allocations, coordinators=plan.coordinators, slots=plan.slots)


def histories(traits: Traits, seeds: range, steps: int = 4) -> Iterator[tuple[Problem, Plan]]:
    """Problems with what was decided about them; each comes from what was decided before."""
    for seed in seeds:
        random = Random(seed)
        problem = random_problem(random, **traits)
        for _ in range(steps):
            plan = reconfigure(problem)
            yield problem, plan
            problem = changed(random, after(problem, plan), tags=traits["tags"])


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_have_their_minimum_on_all_tasks_or_nobody(kind: str) -> None:
    """Every plan: nobody has two tasks, tags and bounds are kept, chunks lie on one site."""
    running = 0
    for problem, plan in histories(KINDS[kind], range(80)):
        check(problem, plan.allocations)
        running += len(plan.allocations)
    assert running > 200


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "everything"])
def test_deciding_again_decides_the_same(kind: str) -> None:
    """Nothing moves when nothing has happened. (With chunks, tags and groups at once it may, once: see the docs.)"""
    for problem, plan in histories(KINDS[kind], range(80)):
        again = reconfigure(after(problem, plan))
        assert again == evolve(plan, changed=())


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_mappings_decides_nothing(kind: str) -> None:
    """A peer that began at an origin has tables in another order than one that played the log (3.2, 10)."""
    for problem, plan in histories(KINDS[kind], range(1000, 1040)):
        turned = evolve(
            problem,
            present=dict(reversed(list(problem.present.items()))),
            coordinators=dict(reversed(list(problem.coordinators.items()))),
            slots=dict(reversed(list(problem.slots.items()))),
        )
        assert reconfigure(turned) == plan
        assert list(reconfigure(turned).allocations) == list(plan.allocations)


@pytest.mark.parametrize("kind", ["plain", "tags"])
def test_nobody_moves_who_need_not(kind: str) -> None:
    """With the numbers that were decided, no assignment at all lets more workers stay."""
    compared = 0
    for problem, plan in histories({**KINDS[kind], "size": 7}, range(90), steps=6):
        if problem.present and plan.allocations:
            counts = {key: len(peers) for key, peers in plan.allocations.items()}
            assert stayers(problem, plan.allocations) == most_stayers(problem, counts)
            compared += 1
    assert compared > 150


def test_a_colocated_job_alone_moves_as_few_as_it_can() -> None:
    """Compared with all ways to lay so many chunks on the sites."""
    moved = 0
    for seed in range(120):
        random = Random(seed)
        workers = tuple(Worker(f"p{n:02}", f"h:{random.randrange(4)}") for n in range(14))
        job = JobRequirements(
            "a", b"", (TaskRequirements("x"), TaskRequirements("y")), task_scheduler=TaskScheduler.COLOCATED
        )
        here = random.sample(workers, 9)
        plan = reconfigure(Problem(JobScheduler.BALANCED, tuple(sorted(here, key=lambda w: w.id)), (job,)))
        there = tuple(sorted(random.sample(workers, 9), key=lambda w: w.id))
        problem = evolve(after(Problem(JobScheduler.BALANCED, there, (job,)), plan))
        again = reconfigure(problem)
        check(problem, again.allocations)
        site = {worker.id: worker.site for worker in there}
        sites = sorted(set(site.values()))
        room = {name: list(site.values()).count(name) // 2 for name in sites}
        own = {
            name: [
                sum(site.get(peer) == name for peer in plan.allocations.get(("a", task), ())) for task in "xy"
            ]
            for name in sites
        }
        chunks = len(again.allocations.get(("a", "x"), ()))
        assert chunks == sum(room.values())
        best = max(
            sum(
                min(count, amount) for name, amount in zip(sites, amounts, strict=True) for count in own[name]
            )
            for amounts in product(*(range(room[name] + 1) for name in sites))
            if sum(amounts) == chunks
        )
        assert stayers(problem, again.allocations) == best
        moved += stayers(problem, again.allocations) < 2 * chunks
    assert moved > 50


@pytest.mark.parametrize("kind", ["plain", "tags"])
def test_no_worker_idles_whom_a_running_job_could_use(kind: str) -> None:
    """As many work as any assignment to the jobs that run could have at work."""
    seen = 0
    for problem, plan in histories(KINDS[kind], range(120)):
        running = {job for job, _task in plan.allocations}
        assert sum(map(len, plan.allocations.values())) == most_at_work(problem, running)
        seen += bool(running)
    assert seen > 200


@pytest.mark.parametrize("scheduler", JobScheduler)
def test_job_schedulers_divide_as_documented(scheduler: JobScheduler) -> None:
    """Worker by worker and all at once come to the same."""
    runs = 0
    for problem, _ in histories(PLAIN, range(2000, 2100)):
        asked = evolve(problem, scheduler=scheduler, present={})
        plan = reconfigure(asked)
        counts = [
            sum(len(plan.allocations.get((job.id, task.name), ())) for task in job.tasks)
            for job in asked.jobs
        ]
        assert counts == divided(scheduler, len(asked.workers), asked.jobs), asked
        runs += any(counts)
    assert runs > 150


@pytest.mark.parametrize("kind", ["grouped", "tags-grouped", "colocated"])
def test_workers_of_frozen_tasks_stay_when_nobody_leaves(kind: str) -> None:
    """Workers that come, and jobs that come and go, move nobody whose task's state hangs on the number of workers."""
    frozen_workers = 0
    for seed in range(120):
        random = Random(seed)
        problem = random_problem(random, **KINDS[kind])
        for _ in range(5):
            plan = reconfigure(problem)
            following = changed(random, after(problem, plan), tags=KINDS[kind]["tags"])
            workers = {worker.id: worker for worker in (*problem.workers, *following.workers)}
            problem = evolve(following, workers=tuple(worker for _, worker in sorted(workers.items())))
            again = reconfigure(problem)
            for job in problem.jobs:
                for task in job.tasks:
                    if is_frozen(task):
                        now = plan.allocations.get((job.id, task.name), ())
                        assert not now or again.allocations.get((job.id, task.name)) == now
                        frozen_workers += len(now)
    assert frozen_workers > 200
