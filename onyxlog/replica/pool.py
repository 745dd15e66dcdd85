"""The gossip pool: how many streams there are, and which two each group uses (rule D-21).

An arc says which stream a group subscribes to and on which it publishes. The first arcs form one cycle over
all streams, so that with a group on each of them everything reaches everybody. A group gets the arc with the
fewest groups, the lowest of them, and keeps it until it leaves, an arc of the cycle is empty, or the number
of streams changes. Where an arc was changed, its former streams are listened to as well, until the next
garbage collection: by then all have played the change. There are no dice and no clocks: the thesis' random
pool was not connected in 7.8 of 1,000 cases at 8 peers, and each group that raised the number of streams was
cut off with probability 2/s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from attrs import evolve, frozen

from onyxlog.ids import GroupId

STREAMS_MIN: Final = 2
THRESHOLDS: Final = (21, 55, 149, 404, 1_097, 2_981, 8_104, 22_027, 59_875)
"""Numbers of groups from which there are 3, 4, … streams: the smallest n with ln n >= s, as integers."""
FALL_TENTHS: Final = 8
"""Tenths of a threshold: the number of streams falls only below 0.8 of the threshold that raised it.

Otherwise groups that come and go at a threshold would move everybody each time.
"""


@frozen
class GroupArc:
    """A group's streams by number. `former`: those that are listened to beside `subscribe`, sorted."""

    subscribe: int
    publish: int
    former: tuple[int, ...] = ()

    @property
    def ends(self) -> tuple[int, int]:
        """The streams that the group subscribes to and publishes on."""
        return self.subscribe, self.publish


@frozen
class Pool:
    """The streams and the arc of each group."""

    streams: int
    arcs: Mapping[GroupId, GroupArc]


@cache
def ends_in_order(streams: int) -> tuple[tuple[int, int], ...]:
    """Return all (subscribe, publish), the cycle 0→1→…→0 first."""
    cycle = [(each, (each + 1) % streams) for each in range(streams)]
    others = [(a, b) for a in range(streams) for b in range(streams) if a != b and (a, b) not in cycle]
    return (*cycle, *others)


def streams_for(groups: int, present: int) -> int:
    """Return how many streams so many groups use when there are `present` ones now."""
    wanted = STREAMS_MIN + bisect_right(THRESHOLDS, groups)
    if wanted >= present:
        return wanted
    # below 0.8 of the threshold of each step that is taken down
    while present > wanted and 10 * groups < FALL_TENTHS * THRESHOLDS[present - STREAMS_MIN - 1]:
        present -= 1
    return present


def joined(pool: Pool, group: GroupId) -> Pool:
    """Return the pool with one group more."""
    assert group not in pool.arcs, f"{group} has an arc"
    streams = streams_for(len(pool.arcs) + 1, pool.streams)
    if streams != pool.streams:
        return _dealt_anew(pool, streams, (*pool.arcs, group))
    counts = _counts(pool)
    ends = min(ends_in_order(streams), key=counts.__getitem__)  # the first of the least
    return Pool(streams, {**pool.arcs, group: GroupArc(*ends)})


def departed(pool: Pool, group: GroupId) -> Pool:
    """Return the pool without a group; another takes its place if that leaves an arc of the cycle empty."""
    if group not in pool.arcs:
        return pool
    arcs = {each: arc for each, arc in pool.arcs.items() if each != group}
    streams = streams_for(len(arcs), pool.streams)
    if streams != pool.streams:
        return _dealt_anew(pool, streams, arcs)
    rest = Pool(streams, arcs)
    base = ends_in_order(streams)[:streams]
    counts = _counts(rest)
    ends = pool.arcs[group].ends
    if counts[ends] or ends not in base:
        return rest
    # The last arc of those with the most groups gives one up; an arc of the cycle with a single group never does.
    order = ends_in_order(streams)
    donors = [each for each in order if counts[each] > (each in base)]
    if not donors:
        return rest
    donor = max(donors, key=lambda each: (counts[each], order.index(each)))
    mover = min(each for each, arc in arcs.items() if arc.ends == donor)
    return Pool(streams, {**arcs, mover: _moved(arcs[mover], ends)})


def settled(arcs: Mapping[GroupId, GroupArc]) -> dict[GroupId, GroupArc]:
    """Return those arcs that lose their former streams, without them."""
    return {group: evolve(arc, former=()) for group, arc in arcs.items() if arc.former}


def _counts(pool: Pool) -> dict[tuple[int, int], int]:
    counts = dict.fromkeys(ends_in_order(pool.streams), 0)
    for arc in pool.arcs.values():
        counts[arc.ends] += 1
    return counts


def _moved(arc: GroupArc, ends: tuple[int, int]) -> GroupArc:
    return GroupArc(*ends, former=tuple(sorted({*arc.former, arc.subscribe} - {ends[0]})))


def _dealt_anew(pool: Pool, streams: int, groups: Iterable[GroupId]) -> Pool:
    order = ends_in_order(streams)
    dealt: dict[GroupId, GroupArc] = {}
    for rank, group in enumerate(sorted(groups)):
        ends = order[rank % len(order)]
        before = pool.arcs.get(group)
        dealt[group] = GroupArc(*ends) if before is None else _moved(before, ends)
    return Pool(streams, dealt)
