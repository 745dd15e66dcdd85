"""Tasks have workers in proportion to their percentages, within their bounds.

Percentages are of the workers that tasks with a fixed number leave, scaled so that they sum to 100: what a bound cuts
off or adds is made up for by the others in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyxlog.scheduling.apportionment import largest_remainder
from onyxlog.scheduling.demand import TaskDemand
from onyxlog.scheduling.task_schedulers import balanced
from onyxlog.scheduling.task_schedulers.rule import TaskRule


def split(workers: int, tasks: Sequence[TaskDemand]) -> list[int]:
    """Apportion by the largest remainder. Tasks out of their bounds are set to these, and the others share anew.

    Those on the side that weighs more are set first (all that are too low, or all that are too high), as the
    others may come within their bounds by it.
    """
    counts = [task.least for task in tasks]
    sharing = [index for index, task in enumerate(tasks) if task.weight and task.least < task.most]
    left = workers - sum(counts) + sum(counts[index] for index in sharing)
    while sharing:
        shares = dict(zip(sharing, largest_remainder(left, [tasks[i].weight for i in sharing]), strict=True))
        low = {i: tasks[i].least for i in sharing if shares[i] < tasks[i].least}
        high = {i: tasks[i].most for i in sharing if shares[i] > tasks[i].most}
        lacking = sum(bound - shares[i] for i, bound in low.items())
        excess = sum(shares[i] - bound for i, bound in high.items())
        set_now = (low if lacking >= excess else high) or shares
        for index, bound in set_now.items():
            counts[index] = bound
            left -= bound
        sharing = [index for index in sharing if index not in set_now]
    # The rest, when all with a percentage are at their bounds, goes to those without one.
    return _level(counts, workers - sum(counts), tasks)


def _level(counts: list[int], spare: int, tasks: Sequence[TaskDemand]) -> list[int]:
    assert spare >= 0, f"{spare} spare workers for {tasks}"
    if not spare:
        return counts
    bounded = [
        TaskDemand(task.key, task.kind, count, task.most) for task, count in zip(tasks, counts, strict=True)
    ]
    return balanced.split(sum(counts) + spare, bounded)


def _rank(index: int, count: int, task: TaskDemand) -> tuple[bool, int, int]:
    return not task.weight, count * 1_000_000 // max(task.weight, 1), index


RULE = TaskRule(split, _rank)
