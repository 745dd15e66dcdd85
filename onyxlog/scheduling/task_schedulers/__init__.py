"""How a job's workers are divided between its tasks: one module for each scheduler, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onyxlog.scheduling.requirements import TaskScheduler
from onyxlog.scheduling.task_schedulers import balanced, colocated, percentage
from onyxlog.scheduling.task_schedulers.rule import TaskRule

RULES: Final[Mapping[TaskScheduler, TaskRule]] = {
    TaskScheduler.BALANCED: balanced.RULE,
    TaskScheduler.PERCENTAGE: percentage.RULE,
    TaskScheduler.COLOCATED: colocated.RULE,
}
