"""Garbage collection: what it forgets, and when it may.

Jobs that are over are forgotten at once, with what is left of them in znodes. Groups that left: a group-leave
is its group's last entry, or is written because its session is over, so nothing of that group can follow it.
To be safe against a process that does not keep to it, an id that left is remembered through one more
collection. Groups that never joined and that nobody watches (a joiner that died between two attempts) are
forgotten if the caller of the collection did not find their pulse.
"""

from __future__ import annotations

from attrs import evolve, frozen

from onyxlog.ids import GroupId, JobId, Position
from onyxlog.replica import pool, ring
from onyxlog.replica.commands import Gc
from onyxlog.replica.membership import departed
from onyxlog.replica.replica import JoinMode, Replica
from onyxlog.replica.table import Table


@frozen
class Collected:
    """Jobs and groups that a collection forgot."""

    jobs: tuple[JobId, ...]
    groups: tuple[GroupId, ...]


def unwatched(replica: Replica) -> tuple[GroupId, ...]:
    """Return groups that the replica knows, but whose end nobody would notice: look for their pulses before a gc entry.

    There are none where groups join directly: there each one's will tells, and none has a pulse.
    """
    if replica.parameters.join is JoinMode.DIRECT:
        return ()
    known = {*replica.aborted, *(each.group for each in replica.orphans.values())}
    return tuple(
        sorted(each for each in known if each not in replica.groups and not ring.is_joining(replica, each))
    )


def collected(replica: Replica, command: Gc, position: Position) -> Replica:
    """Return the replica without jobs that are over and groups that left or are given as gone."""
    for group in sorted(set(command.gone).intersection(unwatched(replica))):
        replica = departed(replica, group, position)
    return evolve(
        replica,
        killed=Table(),
        completed=Table(),
        left=replica.left.where_not(lambda group: replica.left[group] < replica.collected),
        arcs=replica.arcs.update(pool.settled(replica.arcs)),
        collected=position,
    )


def difference(old: Replica, new: Replica) -> Collected:
    """Return what a collection forgot, from the replicas before and after it."""
    return Collected(
        tuple(sorted((*old.killed, *old.completed))),
        tuple(group for group in old.left if group not in new.left),
    )
