"""Reconfiguration that every peer computes after an entry that changed workers or jobs."""

from __future__ import annotations

from attrs import frozen

from onyxlog.ids import JobId
from onyxlog.scheduling.coordinators import coordinators
from onyxlog.scheduling.requirements import Allocations, Coordinators, Problem, Slots
from onyxlog.scheduling.schedule import schedule
from onyxlog.scheduling.slots import slots


@frozen
class Plan:
    """The outcome.

    All of it is canonical: keys in their order, workers of a task in theirs. What is not in it is over.

    `changed`: jobs whose allocations differ from those of the problem, sorted; also those that are gone or
    lost all.
    """

    allocations: Allocations
    coordinators: Coordinators
    slots: Slots
    changed: tuple[JobId, ...]


def reconfigure(problem: Problem) -> Plan:
    """Compute the plan. Equal problems give equal plans, whatever the order of mappings in them."""
    allocations = schedule(problem)
    changed = {
        key[0]
        for key in problem.present.keys() | allocations.keys()
        if problem.present.get(key, ()) != allocations.get(key, ())
    }
    return Plan(
        allocations,
        coordinators(problem.coordinators, allocations),
        slots(problem.slots, allocations),
        tuple(sorted(changed)),
    )
