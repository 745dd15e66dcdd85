"""Schedulers that divide a job's workers between its tasks: one module for each, and the table of them."""

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
