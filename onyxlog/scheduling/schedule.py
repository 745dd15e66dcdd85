"""Schedule of who works where: the whole decision, from workers, jobs and present allocations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from onyxlog.ids import JobId, PeerId, Site
from onyxlog.scheduling import job_schedulers
from onyxlog.scheduling.chunks import Ground, Wish, place_chunks
from onyxlog.scheduling.demand import (
    Circumstances,
    JobDemand,
    Key,
    demands,
    is_colocated,
    pinned_chunks,
    pins_of,
)
from onyxlog.scheduling.division import Division, divide
from onyxlog.scheduling.filling import Counts, fill, outbid, split, uncovered
from onyxlog.scheduling.job_schedulers.rule import Rank
from onyxlog.scheduling.placement import Seats, WorkerPool, place
from onyxlog.scheduling.requirements import Allocations, Problem
from onyxlog.scheduling.seating import Seating
from onyxlog.scheduling.workforce import Workforce

Placed = Mapping[Key, Sequence[PeerId]]


def schedule(problem: Problem) -> Allocations:
    """Return the allocations in canonical form. A job has at least its minimum on each task, or nobody.

    Keys are sorted, and so are workers of each task. Pure and deterministic. Decided in this order: who must
    not move; how many workers each job has; on which sites chunks are; how many workers each task has, as far
    as tags allow; who they are. What turns out to be impossible (pinned workers beside whom a job cannot have
    its minimum, a job that tags keep from its minimum, a chunk for which no site has room) narrows the
    problem, and it is decided again.
    """
    decision = _Decision(problem)
    while (placed := decision.attempt()) is None:
        pass
    return {key: tuple(sorted(peers)) for key, peers in sorted(placed.items()) if peers}


class _Decision:
    """The problem, and how it was narrowed so far. Narrowing only ever continues, so attempts come to an end."""

    def __init__(self, problem: Problem) -> None:
        self._problem: Final = problem
        self._workforce: Final = Workforce.of(problem.workers, problem.jobs)
        self._rule: Final = job_schedulers.RULES[problem.scheduler]
        self._sites: Final[Mapping[PeerId, Site]] = (
            {worker.id: worker.site for worker in problem.workers}
            if any(map(is_colocated, problem.jobs))
            else {}
        )
        self._loosened: Final[set[JobId]] = set()
        """Jobs whose pinned workers may move after all, as the job cannot continue as it is."""
        self._limits: Final[dict[JobId, int]] = {}
        """Upper bounds of jobs that turned out to be too high."""
        self._giving = 1
        """The number of colocated jobs that do with less the next time that chunks are in the way."""

    def attempt(self) -> Placed | None:
        """Try to decide; return None if it was impossible and the problem was narrowed."""
        problem, everybody = self._problem, self._workforce.class_of
        pins = pins_of(
            [job for job in problem.jobs if job.id not in self._loosened], problem.present, everybody
        )
        pinned = {peer for peers in pins.values() for peer in peers}
        pool = (
            {peer: number for peer, number in everybody.items() if peer not in pinned}
            if pinned
            else everybody
        )
        jobs = demands(problem.jobs, Circumstances(self._workforce, pool, pins, self._sites, self._limits))
        division = divide(self._rule, len(problem.workers), jobs)
        if stuck := [
            job for job, count in zip(jobs, division.counts, strict=True) if job.pinned and not count
        ]:
            # One at a time: what it gives up may be enough for those before it.
            self._loosened.add(stuck[-1].job.id)
            return None
        chunks = self._chunks(jobs, division, pins, pool)
        if chunks is None:
            return None
        placed = self._others(jobs, division, pins, pool, chunks)
        return None if placed is None else {**placed, **chunks}

    def _chunks(
        self,
        jobs: Sequence[JobDemand],
        division: Division,
        pins: Mapping[Key, Sequence[PeerId]],
        pool: Mapping[PeerId, int],
    ) -> Mapping[Key, Sequence[PeerId]] | None:
        wishes = [
            Wish(
                job,
                division.counts[index] // job.step,
                (division.counts[index] if self._rule.spare_in_order else job.lower) // job.step,
                pinned_chunks(job.job, pins, self._sites),
                partial(self._ranked, index, division.offers[index]),
            )
            for index, job in enumerate(jobs)
            if division.counts[index] and is_colocated(job.job)
        ]
        if not wishes:
            return {}
        ground = Ground(
            pool=pool,
            sites=self._sites,
            able=self._workforce.able,
            classes=self._workforce.classes,
            pins=pins,
            present=self._problem.present,
            slots=self._problem.slots,
            running=frozenset(job.job.id for job, count in zip(jobs, division.counts, strict=True) if count),
        )
        chunks = place_chunks(wishes, ground)
        short = [(wish, got) for wish, got in zip(wishes, chunks.granted, strict=True) if got < wish.count]
        self._loosened.update(wish.demand.job.id for wish, _ in short if wish.pinned)
        self._limits.update(
            {wish.demand.job.id: got * wish.demand.step for wish, got in short if not wish.pinned}
        )
        return None if short else chunks.placed

    def _ranked(self, index: int, offer: int, count: int) -> Rank:
        return self._rule.rank(index, count, offer)

    def _others(
        self,
        jobs: Sequence[JobDemand],
        division: Division,
        pins: Mapping[Key, Sequence[PeerId]],
        pool: Mapping[PeerId, int],
        chunks: Mapping[Key, Sequence[PeerId]],
    ) -> Placed | None:
        """Decide about jobs that are not colocated, on the workers that chunks leave."""
        taken = {peer for peers in chunks.values() for peer in peers}
        rest = {peer: number for peer, number in pool.items() if peer not in taken} if taken else pool
        wanted = split(jobs, division)
        for index, job in enumerate(jobs):
            if is_colocated(job.job):
                wanted[index] = [0] * len(job.tasks)
        if not self._workforce.alike:
            seating, failed = self._seated(rest, jobs, wanted)
            if failed:
                self._give_way(jobs, division, wanted, failed, pool)
                return None
            wanted = fill(seating, self._rule, jobs, division, wanted)
        seats = []
        placed: dict[Key, list[PeerId]] = {}
        for job, of_tasks in zip(jobs, wanted, strict=True):
            for task, count in zip(job.tasks, of_tasks, strict=True):
                if count:
                    placed[task.key] = list(pins.get(task.key, ()))
                    seats.append(Seats(task.key, task.kind, count - task.held))
        working = {peer for peers in self._problem.present.values() for peer in peers}
        # A worker who loses a task gets another one before a worker who has none: so the fewest notice anything.
        found = place(
            seats,
            WorkerPool(rest, self._workforce.able, self._workforce.classes),
            self._problem.present,
            self._problem.slots,
            lambda peer: peer not in working,
        )
        for key, peers in found.items():
            placed[key] += peers
        return placed

    def _seated(
        self, rest: Mapping[PeerId, int], jobs: Sequence[JobDemand], wanted: Counts
    ) -> tuple[Seating, list[int]]:
        """Seat the minima of all jobs that are to run; return those who cannot have it."""
        supply, able = self._workforce.supply(rest), self._workforce.able
        seating = Seating(supply, able)
        failed = uncovered(seating, jobs, wanted)
        if not failed and self._rule.spare_in_order:
            failed = outbid(Seating(supply, able), jobs, wanted)
        return seating, failed

    def _give_way(
        self,
        jobs: Sequence[JobDemand],
        division: Division,
        wanted: Counts,
        failed: Sequence[int],
        pool: Mapping[PeerId, int],
    ) -> None:
        """Choose who waits, as jobs cannot have their minimum because of tags, though there are enough workers.

        If it is for workers that chunks took, the colocated job that was submitted last, but not before the
        one that needs them, does with half of its chunks; otherwise the jobs themselves wait.
        """
        _, without_chunks = self._seated(pool, jobs, wanted)
        chunky = [
            index
            for index, job in enumerate(jobs)
            if division.counts[index]
            and is_colocated(job.job)
            and not job.pinned
            and (index > failed[0] or jobs[failed[0]].pinned)
        ]
        if not without_chunks and chunky:
            # Twice as many each time, so that attempts are few however many jobs are in the way.
            for index in chunky[-self._giving :]:
                step = jobs[index].step
                self._limits[jobs[index].job.id] = division.counts[index] // step // 2 * step
            self._giving *= 2
            return
        for index in without_chunks or failed:
            if jobs[index].pinned:
                self._loosened.add(jobs[index].job.id)
            else:
                self._limits[jobs[index].job.id] = 0
