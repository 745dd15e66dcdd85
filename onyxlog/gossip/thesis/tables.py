"""What the thesis published (tables 8.1 to 8.9), to be shown beside ours. Data only."""

from __future__ import annotations

from typing import Final

from attrs import frozen


@frozen
class GraphRow:
    """A row of tables 8.1 to 8.6.

    `variance`: of in-degrees; `path`: average shortest path. All were reported connected.
    """

    table: str
    peers: int
    streams: int
    degree: float
    variance: float
    path: float
    iterations: int


@frozen
class SpreadRow:
    """A row of tables 8.7 to 8.9: (coverage, redundancy) for 1, 2, 3 and 4 hops, each of 20 runs."""

    table: str
    peers: int
    streams: int
    by_ttl: tuple[tuple[float, float], ...]


GRAPHS: Final = (
    GraphRow("8.1", 8, 2, 0.4322, 0.0226, 1.0, 1000),
    GraphRow("8.2", 21, 3, 0.3172, 0.0102, 1.0381, 1000),
    GraphRow("8.3", 55, 4, 0.2455, 0.0032, 1.0231, 1000),
    GraphRow("8.4", 149, 5, 0.1987, 0.010, 1.0014, 1000),
    GraphRow("8.5", 404, 6, 0.1662, 0.0, 1.0, 500),
    GraphRow("8.6", 1097, 7, 0.1427, 0.0, 1.0, 500),
)
SPREADS: Final = (
    SpreadRow("8.7", 8, 2, ((0.6125, 0.5), (1.0, 0.7036), (1.0, 0.8582), (0.9562, 0.8897))),
    SpreadRow("8.8", 21, 3, ((0.3642, 0.5), (0.9571, 0.7433), (1.0, 0.9437), (1.0, 0.9870))),
    SpreadRow("8.9", 55, 4, ((0.2572, 0.5), (1.0, 0.7797), (1.0, 0.9788), (1.0, 0.9988))),
)
RUNS: Final = 20
SIZES: Final = tuple(row.peers for row in GRAPHS)
