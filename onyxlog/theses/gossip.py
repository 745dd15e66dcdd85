"""The figures of the thesis on gossip (tables 8.1 to 8.9)."""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from onyxlog.theses.figures import FIGURES


@frozen
class GraphRow:
    """Tables 8.1 to 8.6. `variance`: of in-degrees; `path`: average shortest path. All were said to be connected."""

    table: str
    peers: int
    streams: int
    degree: float
    variance: float
    path: float
    iterations: int


@frozen
class SpreadRow:
    """Tables 8.7 to 8.9: (coverage, redundancy) for 1, 2, 3 and 4 hops, each of 20 runs."""

    table: str
    peers: int
    streams: int
    by_ttl: tuple[tuple[float, float], ...]


_GOSSIP: Final[dict[str, Any]] = FIGURES["gossip"]
GRAPHS: Final = tuple(GraphRow(*row) for row in _GOSSIP["graphs"])
SPREADS: Final = tuple(
    SpreadRow(table, peers, streams, tuple((coverage, redundancy) for coverage, redundancy in by_ttl))
    for table, peers, streams, by_ttl in _GOSSIP["spreads"]
)
RUNS: Final[int] = _GOSSIP["runs"]
SIZES: Final = tuple(row.peers for row in GRAPHS)
