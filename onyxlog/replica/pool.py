"""The stream pool: on which stream each group listens and on which it publishes, a rule over what the log says.

The thesis lets every peer draw its two streams once, from as many as there were peers when it came (listing 6.3):
undefined below 8 peers, and with a considerable probability somebody is cut off for good, above all who makes the
number of streams grow. Here the log deals the streams (D-21), so that all know them and nobody can be cut off:

- An arc is a pair (stream listened on, stream published on); the first `streams` arcs are the cycle 0 -> 1 -> ... -> 0.
- A group gets the arc with the fewest groups when it joins, and keeps it until it leaves, an arc of the cycle would be
  empty, or the number of streams changes.
- The number of streams is floor(ln groups), at least 2; it falls only below 0.8 of the number of groups at which it
  rose, so that a group which comes and goes does not deal anew each time.
- After a change the streams of before stay known until the next origin: what is under way reaches its listeners.

Pure, and with integers only: thresholds are a table, as a logarithm need not be the same everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from attrs import evolve, field, frozen

from onyxlog.ids import BEFORE_ALL, GroupId, Position
from onyxlog.replica.table import Table

STREAMS_MIN: Final = 2
STEPS: Final = (8, 21, 55, 149, 404, 1097, 2981, 8104, 22027)
"""Groups from which on floor(ln groups) is 2, 3, ...; the last one bounds the streams."""
STREAMS_MAX: Final = STREAMS_MIN + len(STEPS) - 1

Stream = int


@frozen
class Arc:
    """What comes on stream `listens` can be passed on to stream `publishes` by the groups of this arc."""

    listens: Stream
    publishes: Stream


def arc_count(streams: int) -> int:
    return streams * (streams - 1)


def arc_at(number: int, streams: int) -> Arc:
    """The arc of this number: first those from each stream to the next, then to the next but one, and so on."""
    assert 0 <= number < arc_count(streams), f"{number=} of {streams=}"
    listens, distance = number % streams, number // streams + 1
    return Arc(listens, (listens + distance) % streams)


def number_of(arc: Arc, streams: int) -> int:
    """The inverse of `arc_at`."""
    return ((arc.publishes - arc.listens) % streams - 1) * streams + arc.listens


def streams_for(groups: int, present: int = STREAMS_MIN) -> int:
    """How many streams that many groups have, if they have `present` ones now."""
    streams = max(STREAMS_MIN, STREAMS_MIN - 1 + sum(groups >= step for step in STEPS))
    if streams >= present:
        return streams
    while present > streams and 5 * groups < 4 * STEPS[present - STREAMS_MIN]:
        present -= 1
    return present


@frozen
class Pool:
    """Who listens and publishes where.

    `arcs`: of each group, by number. `sizes[n]`: groups on arc n, so that a join looks at arcs and not at all groups.
    `epoch`: the position at which the streams were dealt last. `former_...`: the same of before, until it is settled;
    its arcs lose those that leave, and get nobody new.
    """

    streams: int = STREAMS_MIN
    epoch: Position = BEFORE_ALL
    arcs: Table[GroupId, int] = field(factory=Table)
    sizes: tuple[int, ...] = (0,) * arc_count(STREAMS_MIN)
    former_streams: int = STREAMS_MIN
    former_epoch: Position = BEFORE_ALL
    former_arcs: Table[GroupId, int] = field(factory=Table)

    def arc(self, group: GroupId) -> Arc:
        """KeyError: the group has not joined."""
        return arc_at(self.arcs[group], self.streams)


def joined(pool: Pool, group: GroupId, position: Position) -> Pool:
    """With a group that joined by the entry at `position`; the same pool if it is in already."""
    if group in pool.arcs:
        return pool
    return _dealt_if_due(_placed(pool, group, _emptiest(pool.sizes)), position)


def left(pool: Pool, group: GroupId, position: Position) -> Pool:
    """Without a group that left by the entry at `position`; the same pool if it is not in."""
    former = pool.former_arcs.without(group)
    if group not in pool.arcs:
        return pool if former is pool.former_arcs else evolve(pool, former_arcs=former)
    number = pool.arcs[group]
    remaining = evolve(
        pool, arcs=pool.arcs.without(group), sizes=_add(pool.sizes, number, -1), former_arcs=former
    )
    return _cycle_kept(_dealt_if_due(remaining, position), number)


def settled(pool: Pool) -> Pool:
    """Without the streams of before: nothing that was sent by them can still be under way to anybody who needs it."""
    if not pool.former_arcs:
        return pool
    return evolve(pool, former_streams=STREAMS_MIN, former_epoch=BEFORE_ALL, former_arcs=Table())


def violations(pool: Pool) -> Iterator[str]:
    """What must never be so in a pool, for those that check replicas."""
    count = arc_count(pool.streams)
    if pool.streams != streams_for(len(pool.arcs), pool.streams):
        yield f"{len(pool.arcs)} groups have {pool.streams} streams"
    if any(not 0 <= number < count for number in pool.arcs.values()):
        yield f"a group is on an arc that {pool.streams} streams do not have"
    counted = Counter(pool.arcs.values())
    if pool.sizes != tuple(counted[number] for number in range(count)):
        yield f"arcs have {dict(counted)} groups, counted as {pool.sizes}"
    if len(pool.arcs) >= pool.streams and 0 in pool.sizes[: pool.streams]:
        yield f"an arc of the cycle is empty: {pool.sizes[: pool.streams]}"
    if not set(pool.former_arcs) <= set(pool.arcs):
        yield "the streams of before have groups that are gone"


def _add(sizes: tuple[int, ...], number: int, count: int) -> tuple[int, ...]:
    return (*sizes[:number], sizes[number] + count, *sizes[number + 1 :])


def _emptiest(sizes: tuple[int, ...]) -> int:
    return min(range(len(sizes)), key=lambda number: (sizes[number], number))


def _placed(pool: Pool, group: GroupId, number: int) -> Pool:
    return evolve(pool, arcs=pool.arcs.set(group, number), sizes=_add(pool.sizes, number, 1))


def _dealt_if_due(pool: Pool, position: Position) -> Pool:
    """With the streams dealt anew if there are to be more or fewer.

    Who can keep both of its streams does, as long as its arc has no more than its share: the fewer change, the less
    is lost of what is under way.
    """
    streams = streams_for(len(pool.arcs), pool.streams)
    if streams == pool.streams:
        return pool
    share = len(pool.arcs) // arc_count(streams)
    sizes = [0] * arc_count(streams)
    arcs: dict[GroupId, int] = {}
    moving: list[GroupId] = []
    for group, old_number in pool.arcs.items():
        arc = arc_at(old_number, pool.streams)
        kept = max(arc.listens, arc.publishes) < streams
        if kept and sizes[number := number_of(arc, streams)] < share:
            arcs[group] = number
            sizes[number] += 1
        else:
            moving.append(group)
    for group in moving:
        number = _emptiest(tuple(sizes))
        arcs[group] = number
        sizes[number] += 1
    return evolve(
        pool,
        streams=streams,
        epoch=position,
        arcs=Table(arcs),
        sizes=tuple(sizes),
        former_streams=pool.streams,
        former_epoch=pool.epoch,
        former_arcs=pool.arcs,
    )


def _cycle_kept(pool: Pool, number: int) -> Pool:
    """With arc `number`, which has lost a group, filled from the fullest one if it is of the cycle and empty."""
    if number >= pool.streams or pool.sizes[number] or len(pool.arcs) < pool.streams:
        return pool
    # Of equally full arcs the last one gives: it is the least likely to be of the cycle.
    giving = max(range(len(pool.sizes)), key=lambda other: (pool.sizes[other], other))
    group = max(group for group, of in pool.arcs.items() if of == giving)
    taken = evolve(pool, sizes=_add(pool.sizes, giving, -1))
    return _placed(taken, group, number)
