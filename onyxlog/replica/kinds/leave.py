"""Entry leave: one worker leaves, its group stays."""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from onyxlog.ids import PeerId
from onyxlog.replica.commands import Entry, Leave
from onyxlog.replica.kind import Kind
from onyxlog.replica.kinds.silence import no_effects, no_reactions
from onyxlog.replica.membership import without_workers
from onyxlog.replica.replica import Replica


@frozen
class Died:
    """A worker that is gone."""

    peer: PeerId


def apply(replica: Replica, entry: Entry, command: Leave) -> Replica:
    """Return the replica without the worker."""
    worker = replica.peers.get(command.peer) or replica.orphans.get(command.peer)
    if worker is None or worker.group != command.group:
        return replica
    if command.peer in replica.orphans:
        return evolve(replica, orphans=replica.orphans.without(command.peer))
    return without_workers(replica, [command.peer], entry.position)


def diff(old: Replica, new: Replica, command: Leave) -> Died | None:
    """Return the worker, or None if nothing changed."""
    return Died(command.peer) if new.peers is not old.peers or new.orphans is not old.orphans else None


KIND: Final = Kind[Leave, Died](apply, diff, no_reactions, no_effects)
