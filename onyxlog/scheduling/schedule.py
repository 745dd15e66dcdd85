"""Who works where: the whole decision, from the workers and jobs that there are and what is allocated now."""

from __future__ import annotations

from onyxlog.ids import JobId, PeerId, TaskName
from onyxlog.scheduling.requirements import Allocations, Problem


def schedule(problem: Problem) -> Allocations:
    """Canonical: keys sorted, workers of each task sorted; a job has at least its minimum on each task, or nobody.

    Simple as yet: jobs in order get their minimum, then everybody gets one more in turn; schedulers and colocation are
    not told apart.
    """
    tags = {worker.id: worker.tags for worker in problem.workers}
    free = {worker.id: None for worker in problem.workers}
    found: dict[tuple[JobId, TaskName], list[PeerId]] = {}
    for job in problem.jobs:
        taken: dict[tuple[JobId, TaskName], list[PeerId]] = {}
        for task in job.tasks:
            stay = [peer for peer in problem.present.get((job.id, task.name), ()) if peer in free]
            able = [peer for peer in free if tags[peer].issuperset(task.required_tags) and peer not in stay]
            chosen = (stay + able)[: max(task.min_peers, 1)]
            if len(chosen) < max(task.min_peers, 1):
                for peers in taken.values():
                    free |= dict.fromkeys(peers)
                break
            taken[job.id, task.name] = chosen
            for peer in chosen:
                del free[peer]
        else:
            found |= taken
    present = {peer: key for key, peers in problem.present.items() for peer in peers}
    bounds = {(job.id, task.name): task for job in problem.jobs for task in job.tasks}
    for peer in sorted(free):
        open_tasks = [
            key
            for key in found
            if tags[peer].issuperset(bounds[key].required_tags)
            and ((most := bounds[key].max_peers) is None or len(found[key]) < most)
        ]
        if open_tasks:
            found[min(open_tasks, key=lambda key: (key != present.get(peer), len(found[key]), key))].append(
                peer
            )
    return {key: tuple(sorted(peers)) for key, peers in sorted(found.items())}
