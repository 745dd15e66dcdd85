"""Count of the copies of one event in the thesis' gossip (tables 8.7 to 8.9), by several readings of it.

Copies are counted, not sent: they multiply with every hop, and four hops among 55 peers are thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from random import Random

from attrs import frozen

from onyxlog.gossip.messages import Stream
from onyxlog.gossip.streams import Arc


class Reading(Enum):
    """Readings of listings 6.2 to 6.4; the values are shown in tables."""

    TWICE = "the origin emits each event twice; all receptions are passed on"
    LISTING = "as listing 6.4: all receptions are passed on"
    TWICE_FIRST = "the origin emits each event twice; only first receptions are passed on"
    FIRST = "only first receptions are passed on"
    VISITED = "visited streams are noted; all receptions are passed on"
    VISITED_FIRST = "visited streams are noted; only first receptions are passed on"


TWICE = frozenset((Reading.TWICE, Reading.TWICE_FIRST))
FIRST_ONLY = frozenset((Reading.TWICE_FIRST, Reading.FIRST, Reading.VISITED_FIRST))
HISTORY = frozenset((Reading.VISITED, Reading.VISITED_FIRST))


@frozen
class CopyFigures:
    """Figures of one event.

    `coverage`: peers that have it. `redundancy`: superfluous receptions, as the mean of each peer's share (of
    those that received anything), and `overall` as the share of all receptions. `sends`: publications.
    """

    coverage: float
    redundancy: float
    overall: float
    sends: int


@frozen
class Copies:
    """Copies of one event: `received` by each peer, published `sends` times."""

    origin: int
    received: tuple[int, ...]
    sends: int

    def figures(self) -> CopyFigures:
        """Return coverage and redundancy as the thesis computes them."""
        origin, received = self.origin, self.received
        shares = [(count - (peer != origin)) / count for peer, count in enumerate(received) if count]
        total = sum(received)
        useful = sum(1 for peer, count in enumerate(received) if count and peer != origin)
        return CopyFigures(
            coverage=(useful + 1) / len(received),
            redundancy=sum(shares) / len(shares) if shares else 0.0,
            overall=(total - useful) / total if total else 0.0,
            sends=self.sends,
        )


def spread(pool: Sequence[Arc], ttl: int, reading: Reading, generator: Random) -> CopyFigures:
    """Spread one event from a random peer over at most `ttl` hops."""
    return copies_of(pool, ttl, reading, generator).figures()


def copies_of(pool: Sequence[Arc], ttl: int, reading: Reading, generator: Random) -> Copies:
    """Spread one event in the same way, and return it as it was counted."""
    peers = len(pool)
    origin = generator.randrange(peers)
    listeners: dict[Stream, list[int]] = {}
    for peer, arc in enumerate(pool):
        listeners.setdefault(arc.listens, []).append(peer)
    received = [0] * peers
    having = {origin}
    sends = 0
    # Copies that are about to be published: by which peer, after which streams.
    waiting: Counter[tuple[int, frozenset[Stream]]] = Counter(
        {(origin, frozenset()): 2 if reading in TWICE else 1}
    )
    for _ in range(ttl):
        on_streams: Counter[tuple[Stream, frozenset[Stream]]] = Counter()
        for (peer, visited), copies in waiting.items():
            stream = pool[peer].publishes
            if reading in HISTORY:
                if stream in visited:
                    continue
                visited |= {stream}
            on_streams[stream, visited] += copies
            sends += copies
        waiting = Counter()
        new: set[int] = set()
        for (stream, visited), copies in on_streams.items():
            for peer in listeners.get(stream, ()):
                received[peer] += copies
                if reading not in FIRST_ONLY:
                    waiting[peer, visited] += copies
                elif peer not in having and peer not in new:
                    waiting[peer, visited] = 1
                new.add(peer)
        having |= new
    return Copies(origin, tuple(received), sends)
