"""The pool as those who spread events see it: listeners, who passes on from where to where, and in which order.

Everything follows from the replica's `Pool`; it is only arranged so that an event costs little.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import Final

from attrs import frozen

from onyxlog.ids import GroupId, Position
from onyxlog.replica.pool import Arc, Pool, Stream, arc_at, arc_count, streams_for

_MASK: Final = 2**64 - 1


@lru_cache(maxsize=65536)
def _mark(group: GroupId) -> int:
    return int.from_bytes(blake2b(group.encode(), digest_size=8).digest(), "big")


def weight(position: Position, group: GroupId) -> int:
    """Rendezvous hash: who has the highest is first at this position. The finaliser of SplitMix64."""
    mixed = (_mark(group) + (position + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return mixed ^ mixed >> 31


def ranked(position: Position, groups: tuple[GroupId, ...], count: int) -> tuple[GroupId, ...]:
    """The first `count` of the groups, by weight."""
    if len(groups) <= 1 or count == 0:
        return groups[:count]
    if count == 1:
        return (max(groups, key=lambda group: (weight(position, group), group)),)
    order = sorted(groups, key=lambda group: (weight(position, group), group), reverse=True)
    return tuple(order[:count])


def drawn_arc(generator: Random, streams: int) -> Arc:
    """The thesis' draw: the stream to publish on at random, the one to listen on at random among the others."""
    publishes = generator.randrange(streams)
    listens = generator.randrange(streams - 1)
    return Arc(listens + (listens >= publishes), publishes)


class Streams:
    """One deal of the streams: who is on which arc. Immutable."""

    def __init__(self, streams: int, epoch: Position, arcs: Mapping[GroupId, Arc]) -> None:
        self.count = streams
        self.epoch = epoch
        self._arcs = dict(arcs)
        by_arc: dict[Arc, list[GroupId]] = {}
        for group, arc in arcs.items():
            by_arc.setdefault(arc, []).append(group)
        self._groups = {arc: tuple(groups) for arc, groups in by_arc.items()}
        self._listeners: dict[Stream, tuple[GroupId, ...]] = {
            stream: tuple(g for arc, groups in self._groups.items() if arc.listens == stream for g in groups)
            for stream in range(streams)
        }
        self._trees: dict[Stream, frozenset[Arc]] = {}
        self._drawn: Streams | None = None

    def arc(self, group: GroupId) -> Arc | None:
        return self._arcs.get(group)

    def on(self, arc: Arc) -> tuple[GroupId, ...]:
        """Who listens and publishes there."""
        return self._groups.get(arc, ())

    def listeners(self, stream: Stream) -> tuple[GroupId, ...]:
        return self._listeners.get(stream, ())

    def groups(self) -> tuple[GroupId, ...]:
        return tuple(self._arcs)

    def drawn(self) -> Streams:
        """The same groups on streams as each would have drawn them in the thesis, by its own dice (listing 6.3)."""
        if self._drawn is None:
            count = streams_for(len(self._arcs))
            arcs = {group: drawn_arc(Random(_mark(group)), count) for group in self._arcs}
            self._drawn = Streams(count, self.epoch, arcs)
        return self._drawn

    def passes_on(self, root: Stream, arc: Arc) -> bool:
        """Whether what was published first on `root` goes over this arc: the arcs that do are a tree with all streams."""
        tree = self._trees.get(root)
        if tree is None:
            tree = self._trees[root] = self._tree(root)
        return arc in tree

    def _tree(self, root: Stream) -> frozenset[Arc]:
        """Breadth first, over arcs that have groups, streams in order. What cannot be reached is left out."""
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
    """Who there is, as of the entry that was applied last. `former`: the streams of before, until they are settled."""

    current: Streams
    former: Streams | None = None

    def of_epoch(self, epoch: Position) -> Streams:
        """The streams that were dealt at `epoch`, or else those that are known here."""
        if self.former is not None and self.former.epoch == epoch:
            return self.former
        return self.current


def dealt(streams: int, epoch: Position, arcs: Mapping[GroupId, int]) -> Streams:
    numbered = [arc_at(number, streams) for number in range(arc_count(streams))]
    return Streams(streams, epoch, {group: numbered[number] for group, number in arcs.items()})


def view_of(pool: Pool) -> View:
    """What a replica's pool is to gossip."""
    return View(
        dealt(pool.streams, pool.epoch, pool.arcs),
        dealt(pool.former_streams, pool.former_epoch, pool.former_arcs) if pool.former_arcs else None,
    )
