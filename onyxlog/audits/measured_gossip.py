"""Results of `zraft-bench gossip` as rows: pools that were drawn, copies that were counted, and the means of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from attrs import frozen

from onyxlog.audits.tables.table import OF_RESULTS, Table


@frozen
class MeasuredPools:
    """The pools that were drawn for a row of the thesis' tables 8.1 to 8.6, and what was published of them.

    `drawn`: each pool as how many arcs it has, and then for each arc the stream it publishes on, that on which it
    listens, and how many peers drew it. `thesis_connected`, `connected`: pools.
    """

    file: str
    run: str
    table: str
    peers: int
    streams: int
    drawn: tuple[int, ...]
    degree: float
    variance: float
    stream_path: float
    peer_path: float
    thesis_connected: int
    connected: int
    file_offset: int = 0


@frozen
class MeasuredCopies:
    """Events of a row of tables 8.7 to 8.9, by one reading of the thesis, over so many hops; and what was published.

    `counted`: each event as how many pairs follow, what its origin received, how often it was published, and pairs
    (receptions, how many other peers have so many).
    """

    file: str
    run: str
    table: str
    reading: str
    hops: int
    peers: int
    counted: tuple[int, ...]
    coverage: float
    redundancy: float
    overall: float
    sends: float
    file_offset: int = 0


MEASURED_POOLS: Final = Table(
    "measured_pools",
    MeasuredPools,
    "pools that were drawn, and figures of their graphs",
    streams=False,
    comes_from=OF_RESULTS,
)
MEASURED_COPIES: Final = Table(
    "measured_copies",
    MeasuredCopies,
    "receptions of events, and coverage and redundancy",
    streams=False,
    comes_from=OF_RESULTS,
)


def pools_of(file: str, run: str, plain: Mapping[str, Any]) -> Iterator[MeasuredPools]:
    """Yield the pools of a result.

    Raises:
        KeyError, TypeError, ValueError: it is not what the program writes.
    """
    for one in (plain.get("gossip") or {}).get("pools", ()):
        drawn = ((len(pool) // 3, *map(int, pool)) for pool in one["drawn"])
        yield MeasuredPools(
            file=file,
            run=run,
            table=str(one["table"]),
            peers=int(one["peers"]),
            streams=int(one["streams"]),
            drawn=tuple(chain.from_iterable(drawn)),
            degree=float(one["degree"]),
            variance=float(one["variance"]),
            stream_path=float(one["stream_path"]),
            peer_path=float(one["peer_path"]),
            thesis_connected=int(one["thesis_connected"]),
            connected=int(one["connected"]),
        )


def copies_of(file: str, run: str, plain: Mapping[str, Any]) -> Iterator[MeasuredCopies]:
    """Yield the copies of a result.

    Raises:
        KeyError, TypeError, ValueError: it is not what the program writes.
    """
    for one in (plain.get("gossip") or {}).get("copies", ()):
        counted = ((len(event) // 2 - 1, *map(int, event)) for event in one["counted"])
        yield MeasuredCopies(
            file=file,
            run=run,
            table=str(one["table"]),
            reading=str(one["reading"]),
            hops=int(one["hops"]),
            peers=int(one["peers"]),
            counted=tuple(chain.from_iterable(counted)),
            coverage=float(one["coverage"]),
            redundancy=float(one["redundancy"]),
            overall=float(one["overall"]),
            sends=float(one["sends"]),
        )
