"""The gossip thesis' tables 8.1 to 8.9 beside what comes of raw results, and beside what its draw makes probable. Pure.

S. Basma, Message Dissemination with Epidemic Algorithms in Onyx, 2017: n peers draw two of s = floor(ln n) streams, one to
publish on and one to listen on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import frozen

from onyxlog.audits.measured_gossip import MeasuredCopies, MeasuredPools
from onyxlog.audits.rules.published_gossip import CopyMeans, PoolMeans, copy_means, pool_means


@frozen
class PublishedPools:
    """A row of tables 8.1 to 8.6; all pools were said to be connected."""

    table: str
    peers: int
    streams: int
    degree: float
    variance: float
    path: float
    iterations: int

    @property
    def expected_degree(self) -> float:
        """Another peer listens where one publishes in one of s cases."""
        return (self.peers - 1) / (self.streams * self.peers)

    @property
    def expected_variance(self) -> float:
        """Of the share of peers that publish on a stream: that of a binomial."""
        share = 1 / self.streams
        return share * (1 - share) / self.peers

    @property
    def expected_peer_path(self) -> float:
        """One hop to the peers of one stream in s, two to the others, when every stream has peers from every other."""
        return 2 - 1 / self.streams


PUBLISHED_POOLS: Final = (
    PublishedPools("8.1", 8, 2, 0.4322, 0.0226, 1.0, 1000),
    PublishedPools("8.2", 21, 3, 0.3172, 0.0102, 1.0381, 1000),
    PublishedPools("8.3", 55, 4, 0.2455, 0.0032, 1.0231, 1000),
    PublishedPools("8.4", 149, 5, 0.1987, 0.010, 1.0014, 1000),
    PublishedPools("8.5", 404, 6, 0.1662, 0.0, 1.0, 500),
    PublishedPools("8.6", 1097, 7, 0.1427, 0.0, 1.0, 500),
)
PUBLISHED_COPIES: Final[dict[str, tuple[tuple[float, float], ...]]] = {
    # (coverage, redundancy) for one to four hops, each of 20 runs
    "8.7": ((0.6125, 0.5), (1.0, 0.7036), (1.0, 0.8582), (0.9562, 0.8897)),
    "8.8": ((0.3642, 0.5), (0.9571, 0.7433), (1.0, 0.9437), (1.0, 0.9870)),
    "8.9": ((0.2572, 0.5), (1.0, 0.7797), (1.0, 0.9788), (1.0, 0.9988)),
}


@frozen
class PoolRow:
    """`measured`: None if no results have it."""

    published: PublishedPools
    measured: PoolMeans | None


@frozen
class CopyRow:
    """By one reading of the thesis; `published`: (coverage, redundancy)."""

    table: str
    reading: str
    hops: int
    published: tuple[float, float]
    measured: CopyMeans


def pool_rows(measured: Iterable[MeasuredPools]) -> list[PoolRow]:
    """Of several results the last one counts."""
    by_table = {one.table: one for one in measured if one.drawn}
    return [
        PoolRow(row, pool_means(by_table[row.table]) if row.table in by_table else None)
        for row in PUBLISHED_POOLS
    ]


def copy_rows(measured: Iterable[MeasuredCopies]) -> list[CopyRow]:
    found: dict[tuple[str, str, int], CopyRow] = {}
    for one in measured:
        published = PUBLISHED_COPIES.get(one.table)
        if published is not None and one.counted and 1 <= one.hops <= len(published):
            found[one.table, one.reading, one.hops] = CopyRow(
                one.table, one.reading, one.hops, published[one.hops - 1], copy_means(one)
            )
    return [found[key] for key in sorted(found)]
