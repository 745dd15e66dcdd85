"""Reason why a job waits, in words for people. Pure, and nothing is decided by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from attrs import evolve

from onyxlog.ids import JobId
from onyxlog.scheduling.demand import Circumstances, demands, is_colocated
from onyxlog.scheduling.job_schedulers import RULES
from onyxlog.scheduling.requirements import JobRequirements, Problem, TaskRequirements
from onyxlog.scheduling.schedule import schedule
from onyxlog.scheduling.workforce import Workforce


def reasons_to_wait(problem: Problem) -> dict[JobId, str]:
    """Return why each job that has nobody waits. `problem.present` is what was decided last.

    What a job would lack even if it were alone comes before what others have.
    """
    running = {job for job, _ in problem.present}
    waiting = [job for job in problem.jobs if job.id not in running]
    if not waiting:
        return {}
    there = {worker.id for worker in problem.workers}
    busy = sum(peer in there for peers in problem.present.values() for peer in peers)
    left_out = _left_out(problem)
    found = {}
    for job in waiting:
        found[job.id] = _lack(problem, job) or (
            f"its {job.percentage or 0} percent do not fit beside those of the jobs that run (at most 100 in all)"
            if job.id in left_out
            else f"needs {_peers(_needed(job))}, and other jobs have {busy} of the {len(there)} that are there"
        )
    return found


def _left_out(problem: Problem) -> set[JobId]:
    """Return the jobs that the job scheduler gives nobody, however many workers exist."""
    everybody = Workforce.of(problem.workers, problem.jobs)
    sites = {worker.id: worker.site for worker in problem.workers}
    asked = demands(problem.jobs, Circumstances(everybody, everybody.class_of, {}, sites, {}))
    return {asked[index].job.id for index in RULES[problem.scheduler].waiting(asked)}


def _lack(problem: Problem, job: JobRequirements) -> str:
    """Return what the job lacks; empty if it could run if it were alone."""
    there = len(problem.workers)
    needed = _needed(job)
    if there < needed:
        return f"needs {_peers(needed)}, {_are(there)} there"
    all_tags = sorted({task.required_tags for task in job.tasks} - {()})
    for tags in all_tags:
        needed = sum(_least(task) for task in job.tasks if set(tags) <= set(task.required_tags))
        able = sum(worker.tags.issuperset(tags) for worker in problem.workers)
        if able < needed:
            return f"needs {_peers(needed)} with the {_tags(tags)}, {_are(able)} there"
    if is_colocated(job) and (told := _room(problem, job)):
        return told
    if (all_tags or is_colocated(job)) and not schedule(evolve(problem, jobs=(job,), present={})):
        where = " beside each other on one site, as it is colocated" if is_colocated(job) else ""
        return f"needs virtual peers with the tags of its tasks{where}, and too few have them"
    return ""


def _room(problem: Problem, job: JobRequirements) -> str:
    """Return whether sites have room for all tasks of a colocated job beside each other, whatever the tags."""
    size, times = len(job.tasks), max(map(_least, job.tasks))
    sites = Counter(worker.site for worker in problem.workers)
    room = sum(count // size for count in sites.values())
    if room >= times:
        return ""
    if times == 1:
        largest = max(sites.values(), default=0)
        return f"needs {_peers(size)} on one site, as it is colocated; the largest site has {largest}"
    return f"needs {times} times {_peers(size)}, each time on one site, as it is colocated; there is room for {room}"


def _needed(job: JobRequirements) -> int:
    """Return how many virtual peers the job needs, at least."""
    least = list(map(_least, job.tasks))
    return len(least) * max(least, default=0) if is_colocated(job) else sum(least)


def _least(task: TaskRequirements) -> int:
    return max(task.min_peers, 1)


def _peers(count: int) -> str:
    return f"{count} virtual peer{'' if count == 1 else 's'}"


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


def _tags(tags: Iterable[str]) -> str:
    names = list(tags)
    return f"tag {names[0]}" if len(names) == 1 else f"tags {', '.join(names[:-1])} and {names[-1]}"
