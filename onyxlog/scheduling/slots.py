"""Slots: a small number for each worker of a task, kept as long as it stays. State of grouped tasks depends on it."""

from __future__ import annotations

from itertools import count

from onyxlog.ids import JobId, PeerId, TaskName
from onyxlog.scheduling.requirements import Allocations, Slots


def slots(present: Slots, allocations: Allocations) -> dict[tuple[JobId, TaskName, PeerId], int]:
    """Return each worker's slot on its task: its present one there, otherwise the smallest that is free, by order of ids."""
    found: dict[tuple[JobId, TaskName, PeerId], int] = {}
    for (job, task), peers in sorted(allocations.items()):
        keys = [(job, task, peer) for peer in peers]
        held = [present.get(key) for key in keys]
        taken = set(held)
        free = (slot for slot in count() if slot not in taken)
        for key, slot in zip(keys, held, strict=True):
            found[key] = next(free) if slot is None else slot
    return found
