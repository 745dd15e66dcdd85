"""Entry join-direct: a group is in with one entry; its leave is the will of its session."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.ids import GroupId
from onyxlog.replica.commands import Entry, JoinDirect
from onyxlog.replica.kind import Kind
from onyxlog.replica.kinds.silence import no_effects, no_reactions
from onyxlog.replica.membership import admitted
from onyxlog.replica.replica import JoinMode, Replica


@frozen
class Joined:
    """A group that joined."""

    group: GroupId


def apply(replica: Replica, entry: Entry, command: JoinDirect) -> Replica:
    """Return the replica with the group as a member."""
    group = command.group
    if replica.parameters.join is not JoinMode.DIRECT or group in replica.left or group in replica.groups:
        return replica
    return admitted(replica, group, entry.position)


def diff(old: Replica, new: Replica, command: JoinDirect) -> Joined | None:
    """Return the group, or None if nothing changed."""
    return Joined(command.group) if new.groups is not old.groups else None


KIND: Final = Kind[JoinDirect, Joined](apply, diff, no_reactions, no_effects)
