"""The ring of watches: who can help a group to join, who watches whom, and how the ring opens and closes.

This is Onyx' protocol in three entries. `candidates` and the entry's position give a group that wants to join
(joiner) a member (watcher). The watcher begins to watch it and says so (notify-join). The joiner begins to
watch the group that the watcher watched, and says so (accept-join). From then on it is between the two.
"""

from __future__ import annotations

from attrs import evolve

from onyxlog.ids import GroupId
from onyxlog.replica.replica import Replica
from onyxlog.replica.table import Table


def candidates(replica: Replica) -> tuple[GroupId, ...]:
    """Return the members that can help another joiner, sorted.

    Not those that help one already; nor, while one is only asked to help, who watches it: its subject is about to
    get another neighbour.
    """
    busy = {*replica.prepared, *replica.accepted}
    busy |= {watcher for watcher, subject in replica.pairs.items() if subject in replica.prepared}
    return tuple(group for group in replica.groups if group not in busy)


def ahead(replica: Replica, group: GroupId) -> int:
    """Return how many groups wait for another attempt to join, and have waited longer than this one, which waits, too."""
    since = replica.aborted[group]
    return sum(position < since for position in replica.aborted.values())


def has_turn(replica: Replica, group: GroupId) -> bool:
    """Return whether a group whose join was given up would find a helper if it asked now.

    All peers agree on the order in which they wait. As many have their turn as certainly find a helper, one after the
    other: each that asks takes a member and the one that watches it away from the others.
    """
    free = len(replica.groups) - 2 * len(replica.prepared) - len(replica.accepted)
    places = (free + 1) // 2 if replica.groups else 1
    return places > 0 and ahead(replica, group) < places


def helper(helping: Table[GroupId, GroupId], joiner: GroupId) -> GroupId | None:
    """Return the group that helps this joiner, from `prepared` or `accepted`."""
    return next((watcher for watcher, each in helping.items() if each == joiner), None)


def is_joining(replica: Replica, group: GroupId) -> bool:
    """Return whether the group's join is under way."""
    return helper(replica.prepared, group) is not None or helper(replica.accepted, group) is not None


def neighbour(replica: Replica, group: GroupId) -> GroupId:
    """Return the group that a member watches; itself if it is alone."""
    return replica.pairs.get(group, group)


def subject(replica: Replica, group: GroupId) -> GroupId | None:
    """Return the group whose pulse the group watches as its neighbour, or is about to."""
    if group in replica.groups:
        return replica.pairs.get(group)
    watcher = helper(replica.accepted, group)
    return None if watcher is None else neighbour(replica, watcher)


def helped(replica: Replica, group: GroupId) -> GroupId | None:
    """Return the joiner that this member helps."""
    return replica.prepared.get(group) or replica.accepted.get(group)


def opened(pairs: Table[GroupId, GroupId], watcher: GroupId, joiner: GroupId) -> Table[GroupId, GroupId]:
    """Return the ring with `joiner` between `watcher` and the group that it watched."""
    return pairs.update({watcher: joiner, joiner: pairs.get(watcher, watcher)})


def closed(pairs: Table[GroupId, GroupId], gone: GroupId) -> Table[GroupId, GroupId]:
    """Return the ring without `gone`: its watcher watches its neighbour, unless that is the same group, alone now."""
    if gone not in pairs:
        return pairs
    watcher = next(each for each, watched in pairs.items() if watched == gone)
    beyond = pairs[gone]
    rest = pairs.without(gone)
    return rest.without(watcher) if watcher == beyond else rest.set(watcher, beyond)


def given_up(replica: Replica, joiner: GroupId) -> Replica:
    """Return the replica without anybody's help for this joiner."""
    return evolve(
        replica,
        prepared=replica.prepared.where_not(lambda watcher: replica.prepared[watcher] == joiner),
        accepted=replica.accepted.where_not(lambda watcher: replica.accepted[watcher] == joiner),
    )
