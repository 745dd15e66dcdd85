"""The gossip thesis' tables 8.1 to 8.9 beside what comes of raw results, and beside what its draw makes probable. Pure.

As the thesis has it, n peers draw two of s = floor(ln n) streams, one to
publish on and one to listen on.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from onyxlog.audits.measured_gossip import MeasuredCopies, MeasuredPools
from onyxlog.audits.rules.published_gossip import CopyMeans, PoolMeans, copy_means, pool_means
from onyxlog.theses.gossip import GRAPHS, SPREADS, GraphRow


@frozen
class ExpectedPools:
    """Expectations of the thesis' draw for n peers and s streams.

    Attributes:
        degree: another peer listens where one publishes in one of s cases.
        variance: of the share of peers that publish on a stream: that of a binomial.
        peer_path: one hop to the peers of one stream in s, two to the others, when every stream has peers from every other.
    """

    degree: float
    variance: float
    peer_path: float


def expected_pools(row: GraphRow) -> ExpectedPools:
    """Return the expectations for a row of the thesis."""
    share = 1 / row.streams
    return ExpectedPools(
        (row.peers - 1) / (row.streams * row.peers), share * (1 - share) / row.peers, 2 - share
    )


@frozen
class PoolRow:
    """`measured`: None if no results have it."""

    published: GraphRow
    measured: PoolMeans | None

    @property
    def expected(self) -> ExpectedPools:
        """The expectations for the thesis' row."""
        return expected_pools(self.published)


@frozen
class CopyRow:
    """One row of copies, by one reading of the thesis; `published`: (coverage, redundancy)."""

    table: str
    reading: str
    hops: int
    published: tuple[float, float]
    measured: CopyMeans


def pool_rows(measured: Iterable[MeasuredPools]) -> list[PoolRow]:
    """Return the rows of pools; of several results the last one counts."""
    by_table = {one.table: one for one in measured if one.drawn}
    return [
        PoolRow(row, pool_means(by_table[row.table]) if row.table in by_table else None) for row in GRAPHS
    ]


def copy_rows(measured: Iterable[MeasuredCopies]) -> list[CopyRow]:
    """Return the rows of copies; of several results the last one counts."""
    by_table = {row.table: row.by_ttl for row in SPREADS}
    found: dict[tuple[str, str, int], CopyRow] = {}
    for one in measured:
        published = by_table.get(one.table)
        if published is not None and one.counted and 1 <= one.hops <= len(published):
            found[one.table, one.reading, one.hops] = CopyRow(
                one.table, one.reading, one.hops, published[one.hops - 1], copy_means(one)
            )
    return [found[key] for key in sorted(found)]
