"""Entry prepare-join: a group asks to join the ring; alone, it is in at once."""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from onyxlog.ids import GroupId
from onyxlog.replica import ring
from onyxlog.replica.commands import AbortJoin, Command, Entry, NotifyJoin, PrepareJoin
from onyxlog.replica.effects import Effect, LeaveIfGone
from onyxlog.replica.kind import Kind, Viewer
from onyxlog.replica.membership import admitted
from onyxlog.replica.replica import JoinMode, Replica


@frozen
class Joined:
    """The first of all groups is in without help."""

    group: GroupId


@frozen
class Prepared:
    """A joiner and the member that is to help it."""

    watcher: GroupId
    joiner: GroupId


@frozen
class Refused:
    """All members are busy with other joins."""

    joiner: GroupId


Diff = Joined | Prepared | Refused


def apply(replica: Replica, entry: Entry, command: PrepareJoin) -> Replica:
    """Return the replica with a watcher for the joiner, or with the joiner as the only member."""
    joiner = command.joiner
    if (
        replica.parameters.join is not JoinMode.RING
        or joiner in replica.left
        or joiner in replica.groups
        or ring.is_joining(replica, joiner)
    ):
        return replica
    if not replica.groups:
        return admitted(replica, joiner, entry.position)
    free = ring.candidates(replica)
    if not free:
        return evolve(replica, aborted=replica.aborted.set(joiner, entry.position))
    # The position replaces dice: it is the same for all peers.
    watcher = free[entry.position % len(free)]
    return evolve(
        replica, prepared=replica.prepared.set(watcher, joiner), aborted=replica.aborted.without(joiner)
    )


def diff(old: Replica, new: Replica, command: PrepareJoin) -> Diff | None:
    """Return whether the group joined, was given a watcher, or was refused; None if nothing changed."""
    joiner = command.joiner
    if joiner in new.groups and joiner not in old.groups:
        return Joined(joiner)
    if new.prepared is not old.prepared:
        watcher = ring.helper(new.prepared, joiner)
        assert watcher is not None, f"{joiner} is prepared without a watcher"
        return Prepared(watcher, joiner)
    # An entry that came twice, while the first is still under way, is not refused: nothing is to be aborted then.
    return Refused(joiner) if new.aborted is not old.aborted else None


def reactions(
    old: Replica, new: Replica, entry: Entry, diff: Diff | None, viewer: Viewer
) -> tuple[Command, ...]:
    """Let the watcher notify the joiner, or a refused joiner give up its attempt."""
    match diff:
        case Prepared(watcher, joiner) if watcher == viewer.group:
            return (NotifyJoin(joiner, watcher),)
        case Refused(joiner) if joiner == viewer.group:
            return (AbortJoin(joiner),)
    return ()


def effects(
    old: Replica, new: Replica, entry: Entry, diff: Diff | None, viewer: Viewer
) -> tuple[Effect, ...]:
    """Let a refused joiner look after one of the members."""
    if not isinstance(diff, Refused) or diff.joiner != viewer.group:
        return ()
    # If all members died at once nobody is left to notice: each refused joiner looks after one of them.
    members = tuple(new.groups)
    return (LeaveIfGone(members[entry.position % len(members)]),)


KIND: Final = Kind[PrepareJoin, Diff](apply, diff, reactions, effects)
