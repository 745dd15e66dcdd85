"""Entry of groups and their workers into the replica, and their leave, in whichever way the groups join."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from onyxlog.ids import GroupId, PeerId, Position
from onyxlog.replica import pool, ring
from onyxlog.replica.endings import killed
from onyxlog.replica.replica import Replica
from onyxlog.replica.rescheduling import jobs_in_order, rescheduled
from onyxlog.scheduling.flux import flux_kills


def admitted(replica: Replica, group: GroupId, position: Position) -> Replica:
    """Return the replica after the group joined, and with it its workers that waited as orphans."""
    waiting = {peer: each for peer, each in replica.orphans.items() if each.group == group}
    deal = pool.joined(pool.Pool(replica.streams, replica.arcs), group)
    joined = evolve(
        replica,
        groups=replica.groups.set(group, position),
        aborted=replica.aborted.without(group),
        orphans=replica.orphans.without(*waiting),
        peers=replica.peers.update(waiting),
        streams=deal.streams,
        arcs=replica.arcs.replaced(deal.arcs),
    )
    return rescheduled(joined, position) if waiting else joined


def is_known(replica: Replica, group: GroupId) -> bool:
    """Return whether the group wrote something that still shows. A group that left is not known."""
    return (
        group in replica.groups
        or group in replica.aborted
        or ring.is_joining(replica, group)
        or any(each.group == group for each in replica.orphans.values())
    )


def departed(replica: Replica, group: GroupId, position: Position) -> Replica:
    """Return the replica without the group: the ring closes, joins that it helped are tried again, its workers leave."""
    workers = [peer for peer, each in replica.peers.items() if each.group == group]
    deal = pool.departed(pool.Pool(replica.streams, replica.arcs), group)
    stranded = [each[group] for each in (replica.prepared, replica.accepted) if group in each]
    left = ring.given_up(replica, group)
    left = evolve(
        left,
        groups=left.groups.without(group),
        pairs=ring.closed(left.pairs, group),
        prepared=left.prepared.without(group),
        accepted=left.accepted.without(group),
        aborted=left.aborted.without(group).update(dict.fromkeys(stranded, position)),
        left=left.left.set(group, position),
        orphans=left.orphans.where_not(lambda peer: replica.orphans[peer].group == group),
        streams=deal.streams,
        arcs=left.arcs.replaced(deal.arcs),
    )
    return without_workers(left, workers, position)


def without_workers(replica: Replica, workers: Iterable[PeerId], position: Position) -> Replica:
    """Kill jobs that cannot do without one of the workers, and divide the rest anew."""
    leavers = frozenset(workers)
    if not leavers:
        return replica
    # This goes by the ids of the workers. Onyx looked for that of the group, which no allocation has, and
    # killed nothing.
    lost = flux_kills(jobs_in_order(replica), replica.allocations, leavers)
    rest = evolve(killed(replica, lost, position), peers=replica.peers.without(*leavers))
    return rescheduled(rest, position)
