"""Schedulers that divide workers between jobs: one module for each, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onyxlog.scheduling.job_schedulers import balanced, greedy, percentage
from onyxlog.scheduling.job_schedulers.rule import JobRule
from onyxlog.scheduling.requirements import JobScheduler

RULES: Final[Mapping[JobScheduler, JobRule]] = {
    JobScheduler.GREEDY: greedy.RULE,
    JobScheduler.BALANCED: balanced.RULE,
    JobScheduler.PERCENTAGE: percentage.RULE,
}
