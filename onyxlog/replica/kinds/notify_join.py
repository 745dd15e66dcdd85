"""Entry notify-join: the watcher watches the joiner, which is to watch the watcher's neighbour in turn."""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from onyxlog.ids import GroupId
from onyxlog.replica import ring
from onyxlog.replica.commands import AcceptJoin, Command, Entry, NotifyJoin
from onyxlog.replica.kind import Kind, Viewer
from onyxlog.replica.kinds.silence import no_effects
from onyxlog.replica.replica import Replica


@frozen
class Notified:
    """A joiner whose watcher watches it."""

    watcher: GroupId
    joiner: GroupId
    subject: GroupId


def apply(replica: Replica, entry: Entry, command: NotifyJoin) -> Replica:
    """Return the replica with the join accepted by the watcher."""
    if replica.prepared.get(command.watcher) != command.joiner:
        return replica
    return evolve(
        replica,
        prepared=replica.prepared.without(command.watcher),
        accepted=replica.accepted.set(command.watcher, command.joiner),
    )


def diff(old: Replica, new: Replica, command: NotifyJoin) -> Notified | None:
    """Return who watches whom, or None if nothing changed."""
    if new.accepted is old.accepted:
        return None
    return Notified(command.watcher, command.joiner, ring.neighbour(new, command.watcher))


def reactions(
    old: Replica, new: Replica, entry: Entry, diff: Notified | None, viewer: Viewer
) -> tuple[Command, ...]:
    """Let the joiner accept."""
    # A notification without effect needs no answer: whatever ended the attempt made the joiner try again.
    if diff is None or diff.joiner != viewer.group:
        return ()
    return (AcceptJoin(diff.joiner, diff.watcher, diff.subject),)


KIND: Final = Kind[NotifyJoin, Notified](apply, diff, reactions, no_effects)
