"""Entry abort-join: an attempt to join is given up; the joiner makes another when its turn has come."""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from onyxlog.ids import GroupId
from onyxlog.replica import ring
from onyxlog.replica.commands import AbortJoin, Entry
from onyxlog.replica.effects import Effect, JoinLater
from onyxlog.replica.kind import Kind, Viewer
from onyxlog.replica.kinds.silence import no_reactions
from onyxlog.replica.replica import JoinMode, Replica


@frozen
class Aborted:
    """A join that was given up."""

    joiner: GroupId


def apply(replica: Replica, entry: Entry, command: AbortJoin) -> Replica:
    """Return the replica without the joiner's attempt."""
    joiner = command.joiner
    if replica.parameters.join is not JoinMode.RING:
        return replica
    # A group that is in already stays in. (Onyx looks for it among the workers instead of the groups, and
    # never finds it.)
    if joiner in replica.groups or joiner in replica.left:
        return replica
    # A helper's abort of an attempt that is over says nothing; the joiner's own always does.
    if not ring.is_joining(replica, joiner) and entry.record.author != joiner:
        return replica
    return evolve(ring.given_up(replica, joiner), aborted=replica.aborted.set(joiner, entry.position))


def diff(old: Replica, new: Replica, command: AbortJoin) -> Aborted | None:
    """Return the joiner whose attempt ended, or None."""
    return Aborted(command.joiner) if new.aborted is not old.aborted else None


def effects(
    old: Replica, new: Replica, entry: Entry, diff: Aborted | None, viewer: Viewer
) -> tuple[Effect, ...]:
    """Let the joiner make another attempt later."""
    if diff is None or diff.joiner != viewer.group or viewer.join_once:
        return ()
    return (JoinLater(ring.ahead(new, diff.joiner)),)


KIND: Final = Kind[AbortJoin, Aborted](apply, diff, no_reactions, effects)
