"""Entry group-leave: a group is gone, with all its workers; the ring closes behind it."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.ids import GroupId, PeerId
from onyxlog.replica import ring
from onyxlog.replica.commands import AbortJoin, Command, Entry, GroupLeave
from onyxlog.replica.kind import Kind, Viewer
from onyxlog.replica.kinds.silence import no_effects
from onyxlog.replica.membership import departed, is_known
from onyxlog.replica.replica import Replica


@frozen
class Died:
    """A group that is gone.

    `watcher` watches `subject` from now on, if there is a ring left; `stranded` must try to join again.
    """

    group: GroupId
    workers: tuple[PeerId, ...]
    watcher: GroupId | None
    subject: GroupId | None
    stranded: tuple[GroupId, ...]


def apply(replica: Replica, entry: Entry, command: GroupLeave) -> Replica:
    """Return the replica without the group, if something is known of it."""
    # Nothing can follow from a group about which nothing is known: the entry has no effect. To remember it
    # would let repeated leaves fill the replica.
    return departed(replica, command.group, entry.position) if is_known(replica, command.group) else replica


def diff(old: Replica, new: Replica, command: GroupLeave) -> Died | None:
    """Return the group, who watched it, and which joins it strands; None if nothing changed."""
    if new.left is old.left:
        return None
    gone = command.group
    watcher = ring.helper(old.pairs, gone)
    stranded = tuple(sorted(each[gone] for each in (old.prepared, old.accepted) if gone in each))
    return Died(
        gone,
        tuple(peer for peer, each in old.peers.items() if each.group == gone),
        watcher if watcher in new.pairs else None,
        new.pairs.get(watcher) if watcher is not None else None,
        stranded,
    )


def reactions(
    old: Replica, new: Replica, entry: Entry, diff: Died | None, viewer: Viewer
) -> tuple[Command, ...]:
    """Let a stranded joiner give up its attempt."""
    if diff is None or viewer.group not in diff.stranded:
        return ()
    return (AbortJoin(viewer.group),)


KIND: Final = Kind[GroupLeave, Died](apply, diff, reactions, no_effects)
