"""The ring of watches: who can help a group to join, who watches whom, and how the ring opens and closes.

Onyx' protocol in three entries. A group that wants in (joiner) is given a member (watcher) by `candidates` and the
entry's position; the watcher begins to watch it and says so (notify-join); the joiner begins to watch whom the
watcher watched, and says so (accept-join); from there it is between the two.
"""

from __future__ import annotations

from attrs import evolve

from onyxlog.ids import GroupId
from onyxlog.replica.replica import Replica
from onyxlog.replica.table import Table


def candidates(replica: Replica) -> tuple[GroupId, ...]:
    """Members that can help another joiner, sorted.

    Not those that help one already; nor, while one is only asked to help, who watches it: its subject is about to
    get another neighbour.
    """
    busy = {*replica.prepared, *replica.accepted}
    busy |= {watcher for watcher, subject in replica.pairs.items() if subject in replica.prepared}
    return tuple(group for group in replica.groups if group not in busy)


def helper(helping: Table[GroupId, GroupId], joiner: GroupId) -> GroupId | None:
    """Who helps this joiner, of `prepared` or `accepted`."""
    return next((watcher for watcher, each in helping.items() if each == joiner), None)


def is_joining(replica: Replica, group: GroupId) -> bool:
    return helper(replica.prepared, group) is not None or helper(replica.accepted, group) is not None


def neighbour(replica: Replica, group: GroupId) -> GroupId:
    """Whom a member watches; itself if it is alone."""
    return replica.pairs.get(group, group)


def subject(replica: Replica, group: GroupId) -> GroupId | None:
    """Whose pulse the group watches as its neighbour, or is about to."""
    if group in replica.groups:
        return replica.pairs.get(group)
    watcher = helper(replica.accepted, group)
    return None if watcher is None else neighbour(replica, watcher)


def helped(replica: Replica, group: GroupId) -> GroupId | None:
    """The joiner that this member helps."""
    return replica.prepared.get(group) or replica.accepted.get(group)


def opened(pairs: Table[GroupId, GroupId], watcher: GroupId, joiner: GroupId) -> Table[GroupId, GroupId]:
    """With `joiner` between `watcher` and whom that watched."""
    return pairs.update({watcher: joiner, joiner: pairs.get(watcher, watcher)})


def closed(pairs: Table[GroupId, GroupId], gone: GroupId) -> Table[GroupId, GroupId]:
    """Without `gone`: who watched it watches whom it watched, unless that is the same group, alone now."""
    if gone not in pairs:
        return pairs
    watcher = next(each for each, watched in pairs.items() if watched == gone)
    beyond = pairs[gone]
    rest = pairs.without(gone)
    return rest.without(watcher) if watcher == beyond else rest.set(watcher, beyond)


def given_up(replica: Replica, joiner: GroupId) -> Replica:
    """Nobody helps this joiner any more."""
    return evolve(
        replica,
        prepared=replica.prepared.where_not(lambda watcher: replica.prepared[watcher] == joiner),
        accepted=replica.accepted.where_not(lambda watcher: replica.accepted[watcher] == joiner),
    )
