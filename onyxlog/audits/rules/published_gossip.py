"""S22: figures of gossip follow from the pools that were drawn and the receptions that were counted. Pure.

Graphs are measured here by other means than where they were drawn: by matrices of streams, whose powers are
paths.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from attrs import frozen

from onyxlog.audits.measured_gossip import MeasuredCopies, MeasuredPools
from onyxlog.audits.rules.check import Check, Input
from onyxlog.audits.rules.published_figures import RULE, TOLERANCE
from onyxlog.audits.rules.violation import Violation

DRAWN: Final = "figures of gossip follow from draws and receptions"
_CLOSE: Final = 1e-9

Arcs = dict[tuple[int, int], int]
"""(publishes on, listens on) to the number of peers."""


@frozen
class Graph:
    """Figures of one pool, as in tables 8.1 to 8.6; degrees are shares of all peers."""

    degree: float
    variance: float
    stream_path: float
    peer_path: float
    thesis_connected: bool
    connected: bool


@frozen
class PoolMeans:
    """Means of all pools of a row; the last two count pools."""

    pools: int
    degree: float
    variance: float
    stream_path: float
    peer_path: float
    thesis_connected: int
    connected: int


def pools_in(drawn: Sequence[int]) -> Iterator[Arcs]:
    """Yield the pools of a result, each as arcs with their counts."""
    at = 0
    while at < len(drawn):
        count = drawn[at]
        numbers = drawn[at + 1 : at + 1 + 3 * count]
        yield {(numbers[n], numbers[n + 1]): numbers[n + 2] for n in range(0, 3 * count, 3)}
        at += 1 + 3 * count


def graph_of(arcs: Arcs) -> Graph:
    """Return the graph of a pool.

    An event on a stream reaches its listeners, and is then on the streams that these publish on.
    """
    peers = sum(arcs.values())
    publishing: Counter[int] = Counter()
    listening: Counter[int] = Counter()
    for (publishes, listens), count in arcs.items():
        publishing[publishes] += count
        listening[listens] += count
    streams = sorted(publishing.keys() | listening.keys())
    # steps[a][b]: how often what is on stream a is passed on until it is on b.
    steps = {a: {b: 0 if a == b else math.inf for b in streams} for a in streams}
    for publishes, listens in arcs:
        if publishes != listens:
            steps[listens][publishes] = 1
    for through in streams:
        for a in streams:
            for b in streams:
                steps[a][b] = min(steps[a][b], steps[a][through] + steps[through][b])
    between = [steps[a][b] for a in streams for b in streams if a != b and steps[a][b] < math.inf]
    hops = pairs = 0.0
    for (root, own), count in arcs.items():
        for stream, others in listening.items():
            reached = others - (stream == own)
            if steps[root][stream] < math.inf:
                hops += count * reached * (steps[root][stream] + 1)
                pairs += count * reached
    degree = sum(publishing[stream] * listening[stream] for stream in streams) / peers / peers
    variance = sum(listening[s] * (publishing[s] / peers - degree) ** 2 for s in streams) / peers
    return Graph(
        degree=degree,
        variance=variance,
        stream_path=sum(between) / len(between) if between else 0.0,
        peer_path=hops / pairs if pairs else 0.0,
        thesis_connected=publishing.keys() == listening.keys(),
        connected=pairs == peers * (peers - 1),
    )


def pool_means(row: MeasuredPools) -> PoolMeans:
    """Return the means of a row's pools.

    Raises:
        ValueError: the row has no pools.
    """
    graphs = [graph_of(arcs) for arcs in pools_in(row.drawn)]
    if not graphs:
        raise ValueError(f"table {row.table}: no pools")
    count = len(graphs)
    return PoolMeans(
        pools=count,
        degree=math.fsum(one.degree for one in graphs) / count,
        variance=math.fsum(one.variance for one in graphs) / count,
        stream_path=math.fsum(one.stream_path for one in graphs) / count,
        peer_path=math.fsum(one.peer_path for one in graphs) / count,
        thesis_connected=sum(one.thesis_connected for one in graphs),
        connected=sum(one.connected for one in graphs),
    )


@frozen
class CopyMeans:
    """Means of all events of a row of tables 8.7 to 8.9."""

    events: int
    coverage: float
    redundancy: float
    overall: float
    sends: float


def copy_means(row: MeasuredCopies) -> CopyMeans:
    """Return the means of a row's events.

    Raises:
        ValueError: the row has no events.
    """
    coverage, redundancy, overall, sends = [], [], [], []
    counted, at = row.counted, 0
    while at < len(counted):
        pairs, origin, sent = counted[at : at + 3]
        numbers = counted[at + 3 : at + 3 + 2 * pairs]
        at += 3 + 2 * pairs
        others = [(numbers[n], numbers[n + 1]) for n in range(0, 2 * pairs, 2)]
        reached = sum(peers for received, peers in others if received)
        coverage.append((reached + 1) / row.peers)
        # All copies that reach the origin are superfluous, and all but one of those that reach another peer.
        shares = [((received - 1) / received, peers) for received, peers in others if received]
        receivers = reached + (origin > 0)
        redundancy.append(
            (sum(share * peers for share, peers in shares) + (origin > 0)) / receivers if receivers else 0.0
        )
        total = origin + sum(received * peers for received, peers in others)
        overall.append((total - reached) / total if total else 0.0)
        sends.append(float(sent))
    count = len(coverage)
    if not count:
        raise ValueError(f"table {row.table}: no events")
    means = (math.fsum(some) / count for some in (coverage, redundancy, overall, sends))
    return CopyMeans(count, *means)


def _differing(
    row: MeasuredPools | MeasuredCopies, names: tuple[str, ...], found: PoolMeans | CopyMeans, what: str
) -> Iterator[Violation]:
    for name in names:
        recomputed, published = float(getattr(found, name)), float(getattr(row, name))
        if not math.isclose(recomputed, published, rel_tol=TOLERANCE, abs_tol=_CLOSE):
            yield Violation(
                rule=RULE,
                promise=DRAWN,
                subject=f"{name} of table {row.table}, run {row.run}{what}",
                file=row.file,
                expected=f"{recomputed:.6g}",
                found=f"{published:.6g}",
            )


def _judged(rows: Iterator[MeasuredPools | MeasuredCopies]) -> Iterator[Violation]:
    for row in rows:
        try:
            if isinstance(row, MeasuredPools):
                names: tuple[str, ...] = ("degree", "variance", "stream_path", "peer_path")
                names += ("thesis_connected", "connected")
                yield from _differing(row, names, pool_means(row), f", {row.peers} peers")
            else:
                names = ("coverage", "redundancy", "overall", "sends")
                yield from _differing(row, names, copy_means(row), f", {row.hops} hops, {row.reading}")
        except (ValueError, IndexError, ZeroDivisionError) as error:
            yield Violation(
                rule=RULE,
                promise=DRAWN,
                subject=f"table {row.table}, run {row.run}",
                file=row.file,
                expected="draws or receptions that can be counted again",
                found=str(error),
            )


GOSSIP_FIGURES: Final = Check(
    DRAWN,
    (
        Input("measured_pools", ("file", "run", "table"), (0,)),
        Input("measured_copies", ("file", "run", "table"), ("hops",)),
    ),
    _judged,
)
