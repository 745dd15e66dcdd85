"""Random problems, from a seed, and what must hold of every plan. The checker knows nothing of how it is made."""

from __future__ import annotations

from collections import Counter
from random import Random

from attrs import evolve

from onyxlog.scheduling.requirements import (
    Allocations,
    FluxPolicy,
    JobRequirements,
    JobScheduler,
    Problem,
    TaskRequirements,
    TaskScheduler,
    Worker,
)

TAGS = ("disk", "gpu", "ssl")


def random_task(random: Random, number: int, *, tags: bool, grouped: bool) -> TaskRequirements:
    least = random.choice((1, 1, 1, 2, 3))
    return TaskRequirements(
        f"t{number}",
        min_peers=least,
        max_peers=random.choice((None, None, least, least + 1, least + 3)),
        percentage=random.choice((10, 25, 60)),
        grouped=grouped and random.random() < 0.5,
        flux_policy=random.choice(tuple(FluxPolicy)),
        required_tags=tuple(sorted(random.sample(TAGS, random.choice((0, 0, 1, 2))))) if tags else (),
    )


def random_job(random: Random, number: int, *, tags: bool, grouped: bool, colocated: bool) -> JobRequirements:
    return JobRequirements(
        f"j{number}",
        b"",
        tuple(random_task(random, t, tags=tags, grouped=grouped) for t in range(random.choice((1, 2, 2, 3)))),
        task_scheduler=random.choice(tuple(TaskScheduler) if colocated else tuple(TaskScheduler)[:2]),
        percentage=random.choice((10, 20, 50, 70)),
    )


def random_worker(random: Random, number: int, *, tags: bool) -> Worker:
    return Worker(
        f"p{number:03}",
        f"h:{random.randrange(3)}",
        frozenset(random.sample(TAGS, random.randrange(4))) if tags else frozenset(),
    )


def random_problem(
    random: Random, *, tags: bool = True, grouped: bool = True, colocated: bool = True, size: int = 9
) -> Problem:
    """Up to `size` workers and four jobs, nothing allocated."""
    return Problem(
        random.choice(tuple(JobScheduler)),
        tuple(random_worker(random, n, tags=tags) for n in range(random.randint(0, size))),
        tuple(
            random_job(random, n, tags=tags, grouped=grouped, colocated=colocated)
            for n in range(random.randint(0, 4))
        ),
    )


def changed(random: Random, problem: Problem, *, tags: bool = True) -> Problem:
    """What an entry may do to a problem: workers come or go, or a job goes; `present` is left as it is."""
    workers = {worker.id: worker for worker in problem.workers}
    match random.randrange(4):
        case 0 if workers:
            for peer in random.sample(sorted(workers), random.randint(1, min(3, len(workers)))):
                del workers[peer]
        case 1 if problem.jobs:
            gone = random.choice(problem.jobs)
            return evolve(problem, jobs=tuple(job for job in problem.jobs if job is not gone))
        case _:
            for _ in range(random.randint(1, 3)):
                number = random.randrange(100, 999)
                workers.setdefault(f"p{number}", random_worker(random, number, tags=tags))
    return evolve(problem, workers=tuple(worker for _, worker in sorted(workers.items())))


def able(worker: Worker, task: TaskRequirements) -> bool:
    return worker.tags.issuperset(task.required_tags)


def check(problem: Problem, allocations: Allocations) -> None:
    """What holds of every plan, whatever the schedulers."""
    workers = {worker.id: worker for worker in problem.workers}
    tasks = {(job.id, task.name): task for job in problem.jobs for task in job.tasks}
    assert list(allocations) == sorted(allocations)
    everybody = [peer for peers in allocations.values() for peer in peers]
    assert len(everybody) == len(set(everybody)), "somebody has two tasks"
    for key, peers in allocations.items():
        assert list(peers) == sorted(peers)
        assert all(able(workers[peer], tasks[key]) for peer in peers), key
        most = tasks[key].max_peers
        assert peers, key
        assert most is None or len(peers) <= most, (key, peers)
    for job in problem.jobs:
        counts = [len(allocations.get((job.id, task.name), ())) for task in job.tasks]
        assert not any(counts) or all(
            count >= task.min_peers for count, task in zip(counts, job.tasks, strict=True)
        ), (job, counts)
        if job.task_scheduler is TaskScheduler.COLOCATED:
            sites = [
                Counter(workers[peer].site for peer in allocations.get((job.id, task.name), ()))
                for task in job.tasks
            ]
            assert all(site == sites[0] for site in sites), (job, sites)
