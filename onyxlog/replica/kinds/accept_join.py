"""Entry accept-join: the joiner watches its future neighbour, and is put into the ring before it."""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from onyxlog.ids import GroupId
from onyxlog.replica import ring
from onyxlog.replica.commands import AcceptJoin, Entry
from onyxlog.replica.kind import Kind
from onyxlog.replica.kinds.silence import no_effects, no_reactions
from onyxlog.replica.membership import admitted
from onyxlog.replica.replica import Replica


@frozen
class Accepted:
    """A joiner that is in."""

    watcher: GroupId
    joiner: GroupId
    subject: GroupId


def apply(replica: Replica, entry: Entry, command: AcceptJoin) -> Replica:
    """Return the replica with the joiner in the ring, before the watcher's present neighbour."""
    if replica.accepted.get(command.watcher) != command.joiner:
        return replica
    # The neighbour is the present one: the one that was named may have left since, and the ring have closed.
    stitched = evolve(
        replica,
        accepted=replica.accepted.without(command.watcher),
        pairs=ring.opened(replica.pairs, command.watcher, command.joiner),
    )
    return admitted(stitched, command.joiner, entry.position)


def diff(old: Replica, new: Replica, command: AcceptJoin) -> Accepted | None:
    """Return the join, or None if nothing changed."""
    if new.pairs is old.pairs:
        return None
    return Accepted(command.watcher, command.joiner, new.pairs[command.joiner])


KIND: Final = Kind[AcceptJoin, Accepted](apply, diff, no_reactions, no_effects)
