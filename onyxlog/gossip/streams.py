"""The pool as spreading sees it: listeners, who passes on from where to where, and in which order.

Everything follows from the replica's arcs (`onyxlog.replica.pool`); they are only arranged so that an event
costs little.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import Final, NamedTuple

from attrs import frozen

from onyxlog.gossip.messages import Stream
from onyxlog.ids import GroupId, Position
from onyxlog.replica import pool

_MASK: Final = 2**64 - 1


@lru_cache(maxsize=65536)
def _mark(group: GroupId) -> int:
    return int.from_bytes(blake2b(group.encode(), digest_size=8).digest(), "big")


def weight(position: Position, group: GroupId) -> int:
    """Return a group's rendezvous hash at this position; the highest is first. It uses SplitMix64's finaliser."""
    mixed = (_mark(group) + (position + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return mixed ^ mixed >> 31


def ranked(position: Position, groups: tuple[GroupId, ...], count: int) -> tuple[GroupId, ...]:
    """Return the first `count` of the groups, by weight."""
    if len(groups) <= 1 or count == 0:
        return groups[:count]
    if count == 1:
        return (max(groups, key=lambda group: (weight(position, group), group)),)
    order = sorted(groups, key=lambda group: (weight(position, group), group), reverse=True)
    return tuple(order[:count])


class Arc(NamedTuple):
    """The groups of an arc can pass on what comes on stream `listens` to stream `publishes`."""

    listens: Stream
    publishes: Stream


def drawn_arc(generator: Random, streams: int) -> Arc:
    """Draw as the thesis does: the stream to publish on at random, the one to listen on at random among the others."""
    publishes = generator.randrange(streams)
    listens = generator.randrange(streams - 1)
    return Arc(listens + (listens >= publishes), publishes)


class Streams:
    """One deal of the streams: which group is on which arc. Immutable."""

    def __init__(self, count: int, arcs: Mapping[GroupId, Arc]) -> None:
        self.count = count
        self._arcs = dict(arcs)
        by_arc: dict[Arc, list[GroupId]] = {}
        for group, arc in arcs.items():
            by_arc.setdefault(arc, []).append(group)
        self._groups = {arc: tuple(groups) for arc, groups in by_arc.items()}
        self._listeners: dict[Stream, tuple[GroupId, ...]] = {
            stream: tuple(g for arc, groups in self._groups.items() if arc.listens == stream for g in groups)
            for stream in range(count)
        }
        self._trees: dict[Stream, frozenset[Arc]] = {}
        self._drawn: Streams | None = None

    def arc(self, group: GroupId) -> Arc | None:
        """Return the group's arc, or None if it has none."""
        return self._arcs.get(group)

    def on(self, arc: Arc) -> tuple[GroupId, ...]:
        """Return the groups that listen and publish there."""
        return self._groups.get(arc, ())

    def listeners(self, stream: Stream) -> tuple[GroupId, ...]:
        """Return the groups that listen on a stream."""
        return self._listeners.get(stream, ())

    def groups(self) -> tuple[GroupId, ...]:
        """Return all groups that have an arc."""
        return tuple(self._arcs)

    def drawn(self) -> Streams:
        """Return the same groups on streams that each drew as in the thesis, by its own dice (listing 6.3)."""
        if self._drawn is None:
            count = pool.streams_for(len(self._arcs), pool.STREAMS_MIN)
            arcs = {group: drawn_arc(Random(_mark(group)), count) for group in self._arcs}
            self._drawn = Streams(count, arcs)
        return self._drawn

    def passes_on(self, root: Stream, arc: Arc) -> bool:
        """Return whether what was published first on `root` goes over this arc.

        Such arcs form a tree with all streams.
        """
        tree = self._trees.get(root)
        if tree is None:
            tree = self._trees[root] = self._tree(root)
        return arc in tree

    def _tree(self, root: Stream) -> frozenset[Arc]:
        """Build the tree breadth first, over arcs that have groups, with streams in order.

        It omits what cannot be reached.
        """
        reached, tree, front = {root}, set[Arc](), [root]
        while front:
            following: list[Stream] = []
            for stream in front:
                for target in range(self.count):
                    arc = Arc(stream, target)
                    if target not in reached and arc in self._groups:
                        reached.add(target)
                        tree.add(arc)
                        following.append(target)
            front = following
        return frozenset(tree)


@frozen
class View:
    """The groups as of the entry that was applied last.

    `former`: the streams before they were dealt anew, until that is settled; None if that was before this
    group began.
    """

    current: Streams
    former: Streams | None = None

    def of_deal(self, count: int) -> Streams:
        """Return the deal of that many streams, or else the one that is known here."""
        if self.former is not None and self.former.count == count:
            return self.former
        return self.current


def view_of(streams: int, arcs: Mapping[GroupId, pool.GroupArc], before: View | None) -> View:
    """Return what a replica's pool is to gossip; `before`: the view that this group had before the entry."""
    current = Streams(streams, {group: Arc(*arc.ends) for group, arc in arcs.items()})
    if before is None:
        return View(current)
    if before.current.count != streams:
        return View(current, before.current)
    settled = not any(arc.former for arc in arcs.values())
    return View(current, None if settled else before.former)
