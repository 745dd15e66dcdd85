"""Raw results of `zraft-bench gossip`: what was drawn and received, and the means that its tables show. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from attrs import frozen

from onyxlog.gossip.streams import Arc
from onyxlog.gossip.thesis.copies import Copies


@frozen(kw_only=True)
class PoolsResult:
    """A row of tables 8.1 to 8.6. `drawn`: each pool as (publishes on, listens on, peers) of its arcs, in one list."""

    table: str
    peers: int
    streams: int
    drawn: tuple[tuple[int, ...], ...]
    degree: float
    variance: float
    stream_path: float
    peer_path: float
    thesis_connected: int
    connected: int


@frozen(kw_only=True)
class CopiesResult:
    """A row of tables 8.7 to 8.9 by one reading, after so many hops.

    `counted`: each event as what its origin received, how often it was published, and (receptions, how many
    other peers have so many), in one list.
    """

    table: str
    reading: str
    hops: int
    peers: int
    counted: tuple[tuple[int, ...], ...]
    coverage: float
    redundancy: float
    overall: float
    sends: float


@frozen(kw_only=True)
class GossipResults:
    """The results of one run."""

    pools: tuple[PoolsResult, ...] = ()
    copies: tuple[CopiesResult, ...] = ()


def drawn(pool: Iterable[Arc]) -> tuple[int, ...]:
    """Return a pool as results have it."""
    arcs = Counter((int(arc.publishes), int(arc.listens)) for arc in pool)
    return tuple(number for arc, peers in sorted(arcs.items()) for number in (*arc, peers))


def counted(copies: Copies) -> tuple[int, ...]:
    """Return an event as results have it."""
    others: Sequence[int] = [n for peer, n in enumerate(copies.received) if peer != copies.origin]
    pairs = (number for pair in sorted(Counter(others).items()) for number in pair)
    return (copies.received[copies.origin], copies.sends, *pairs)
