"""What deciding costs after one entry, and how it grows: `python -m tests.onyxlog.scheduling.measure`.

Processor time of `reconfigure`, the least of some repetitions, as other programs only ever add to it. Each row begins
with an allocated cluster; the entry is one worker that leaves or comes, or one job that ends or is submitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import process_time

import click
from attrs import evolve, frozen

from onyxlog.scheduling.reconfigure import reconfigure
from onyxlog.scheduling.requirements import (
    FluxPolicy,
    JobRequirements,
    JobScheduler,
    Problem,
    TaskRequirements,
    TaskScheduler,
    Worker,
)

TASKS = 5
SITE = 10
"""Workers of a site: two chunks of a colocated job."""


@frozen
class Shape:
    peers: int
    jobs: int
    kind: str = "plain"


@frozen
class Row:
    """Milliseconds; `moved`: workers, of those that are there before and after, that work on something else now."""

    shape: Shape
    entry: str
    least: float
    middle: float
    moved: int


def cluster(shape: Shape) -> Problem:
    """`kind`: plain, tags (each fifth worker, and one task of each third job), grouped (a frozen task in each third job)
    or colocated.
    """
    tags = shape.kind == "tags"
    workers = tuple(
        Worker(f"p{n:06}", f"site{n // SITE:05}:1", frozenset({"gpu"} if tags and n % 5 == 0 else ()))
        for n in range(shape.peers)
    )
    return Problem(JobScheduler.BALANCED, workers, tuple(job(shape, n) for n in range(shape.jobs)))


def job(shape: Shape, number: int) -> JobRequirements:
    special = number % 3 == 0
    tasks = tuple(
        TaskRequirements(
            f"t{t}",
            required_tags=("gpu",) if shape.kind == "tags" and special and t == 0 else (),
            grouped=shape.kind == "grouped" and special and t == 0,
            flux_policy=FluxPolicy.RECOVER,  # of grouped tasks: keeps the workers that it has
        )
        for t in range(TASKS)
    )
    scheduler = TaskScheduler.COLOCATED if shape.kind == "colocated" else TaskScheduler.BALANCED
    return JobRequirements(f"j{number:05}", b"", tasks, task_scheduler=scheduler)


def entries(shape: Shape, problem: Problem) -> Iterator[tuple[str, Problem]]:
    middle = len(problem.workers) // 2
    yield "nothing allocated yet", evolve(problem, present={}, coordinators={}, slots={})
    yield "a worker leaves", evolve(problem, workers=problem.workers[:middle] + problem.workers[middle + 1 :])
    yield "a worker comes", evolve(problem, workers=(*problem.workers, Worker("p999999", "site99999:1")))
    yield (
        "a job ends",
        evolve(problem, jobs=problem.jobs[: shape.jobs // 2] + problem.jobs[shape.jobs // 2 + 1 :]),
    )
    yield "a job is submitted", evolve(problem, jobs=(*problem.jobs, job(shape, shape.jobs)))


def moved(before: Problem, after: Problem) -> int:
    """Of the workers that had a task, and are still there."""
    had = {peer: key for key, peers in before.present.items() for peer in peers}
    has = {peer: key for key, peers in reconfigure(after).allocations.items() for peer in peers}
    return sum(worker.id in had and has.get(worker.id) != had[worker.id] for worker in after.workers)


def measured(shape: Shape, repetitions: int) -> Iterator[Row]:
    empty = cluster(shape)
    plan = reconfigure(empty)
    problem = evolve(empty, present=plan.allocations, coordinators=plan.coordinators, slots=plan.slots)
    for entry, asked in entries(shape, problem):
        times = []
        for _ in range(repetitions):
            begun = process_time()
            reconfigure(asked)
            times.append((process_time() - begun) * 1000)
        yield Row(shape, entry, min(times), median(times), moved(problem, asked) if asked.present else 0)


@click.command()
@click.option("--repetitions", default=9, show_default=True)
@click.option("--kind", "kinds", multiple=True, default=("plain", "tags", "grouped", "colocated"))
@click.option("--peers", multiple=True, type=int, default=(100, 300, 1000, 3000, 10000), show_default=True)
@click.option("--jobs", multiple=True, type=int, default=(1, 10, 100), show_default=True)
def main(repetitions: int, kinds: tuple[str, ...], peers: tuple[int, ...], jobs: tuple[int, ...]) -> None:
    click.echo("| workers | jobs | kind | entry | ms, least | ms, median | workers moved |")
    click.echo("|--:|--:|--|--|--:|--:|--:|")
    for kind in kinds:
        for job_count in jobs:
            for peer_count in peers:
                for row in measured(Shape(peer_count, job_count, kind), repetitions):
                    click.echo(
                        f"| {peer_count} | {job_count} | {kind} | {row.entry} | {row.least:.2f} | {row.middle:.2f}"
                        f" | {row.moved} |"
                    )


if __name__ == "__main__":
    main()
