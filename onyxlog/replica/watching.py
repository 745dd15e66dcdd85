"""Pulses that a group watches, read from the replica, and what it has to do when they change."""

from __future__ import annotations

from onyxlog.ids import GroupId
from onyxlog.replica import ring
from onyxlog.replica.effects import (
    DetectFailure,
    Effect,
    StopDetecting,
    UnwatchJoiner,
    WatchJoiner,
    WatchNobody,
    WatchPulse,
)
from onyxlog.replica.replica import Replica


def changes(old: Replica, new: Replica, group: GroupId) -> tuple[Effect, ...]:
    """Return the effects that lead from the watches of `old` to those of `new`, for whatever reason they changed."""
    if old.pairs is new.pairs and old.prepared is new.prepared and old.accepted is new.accepted:
        return ()
    found: list[Effect] = []
    subject = ring.subject(new, group)
    if subject != ring.subject(old, group):
        found.append(WatchNobody() if subject is None else WatchPulse(subject))
    joiner = ring.helped(new, group)
    if joiner != ring.helped(old, group):
        found.append(UnwatchJoiner() if joiner is None else WatchJoiner(joiner))
    helper = ring.helper(new.prepared, group)
    if helper != ring.helper(old.prepared, group):
        found.append(StopDetecting() if helper is None else DetectFailure(helper))
    return tuple(found)
