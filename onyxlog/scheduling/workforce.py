"""Workers by what they can do. Two workers whose tags open the same tasks to them are of one class, and exchangeable.

Decisions about numbers are made for classes and kinds of tasks, which are few, not for workers and tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from onyxlog.ids import PeerId
from onyxlog.scheduling.requirements import JobRequirements, TaskRequirements, Worker

ANYONE: Final[frozenset[str]] = frozenset()


@frozen
class Workforce:
    """Workers in classes.

    `class_of`: all workers, in the order of ids. `kinds`: each set of tags that some task requires, numbered.

    `able`: of each kind the classes that can do it, those first that can do the fewest other kinds: so the
    versatile are spent last.
    """

    class_of: Mapping[PeerId, int]
    kinds: Mapping[frozenset[str], int]
    able: tuple[tuple[int, ...], ...]
    classes: int

    @classmethod
    def of(cls, workers: Iterable[Worker], jobs: Iterable[JobRequirements]) -> Workforce:
        """Return the workers in classes, for the tags that these jobs require."""
        required = {task.required_tags for job in jobs for task in job.tasks}
        # Sorted: numbers must not depend on the order of a set, which differs between processes.
        wanted = sorted({frozenset(tags) for tags in required} | {ANYONE}, key=sorted)
        kinds = {tags: number for number, tags in enumerate(wanted)}
        if len(wanted) == 1:
            return cls({worker.id: 0 for worker in workers}, kinds, ((0,),), 1)
        relevant = frozenset().union(*wanted)
        telling = {worker.id: worker.tags & relevant for worker in workers}
        found = sorted(set(telling.values()), key=sorted)
        number = {tags: index for index, tags in enumerate(found)}
        versatility = [sum(tags >= kind for kind in wanted) for tags in found]
        able = tuple(
            tuple(
                sorted(
                    (index for index, tags in enumerate(found) if tags >= kind), key=versatility.__getitem__
                )
            )
            for kind in wanted
        )
        return cls({peer: number[tags] for peer, tags in telling.items()}, kinds, able, max(len(found), 1))

    @property
    def alike(self) -> bool:
        """True if all workers can do all tasks."""
        return len(self.kinds) == 1

    def kind_of(self, task: TaskRequirements) -> int:
        """Return the number of the task's kind."""
        return self.kinds[frozenset(task.required_tags)] if task.required_tags else self.kinds[ANYONE]

    def supply(self, peers: Iterable[PeerId]) -> list[int]:
        """Return how many of `peers` each class has."""
        counts = [0] * self.classes
        for peer in peers:
            counts[self.class_of[peer]] += 1
        return counts
