"""The thesis' tables of gossip (8.1 to 8.9) beside ours, and measurements of our ways of spreading: numbers, then text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from statistics import fmean
from typing import Final

from attrs import frozen

from onyxlog.gossip.measures import Figures, Scenario, measure, scenarios
from onyxlog.gossip.spreading import Mode
from onyxlog.gossip.thesis.copies import Reading, copies_of
from onyxlog.gossip.thesis.drawing import cut_off_on_arrival, draw_pool, figures_of
from onyxlog.gossip.thesis.exact import Disconnection, disconnection
from onyxlog.theses.gossip import GRAPHS, RUNS, SPREADS, GraphRow, SpreadRow
from zraft_bench.gossip.results import CopiesResult, GossipResults, PoolsResult, counted, drawn

LOSSES: Final = (0.0, 0.01, 0.05)
CHURN: Final = 0.1
TTLS: Final = (1, 2, 3, 4)


@frozen
class Extent:
    """Sizes and repetitions of the measurements.

    `iterations` None: as many as the thesis; `sizes`: of simulated fleets; `spread_runs`: for means of tables
    8.7 to 8.9, beside the thesis' 20; `growth_runs`: fleets that grow one by one.
    """

    sizes: tuple[int, ...]
    iterations: int | None = None
    spread_runs: int = 1000
    growth_runs: int = 300
    events: int = 50
    seed: int = 1


@frozen
class GraphResult:
    """A row of tables 8.1 to 8.6: means over the iterations, and how many pools were connected by either meaning."""

    row: GraphRow
    iterations: int
    degree: float
    variance: float
    stream_path: float
    peer_path: float
    thesis_connected: int
    connected: int
    exact: Disconnection
    newcomer_cut_off: float
    drawn: tuple[tuple[int, ...], ...] = ()
    """The pools, as results files have them."""


@frozen
class SpreadResult:
    """A row of tables 8.7 to 8.9 by one reading.

    For each number of hops it has coverage, redundancy (mean of peers', of all receptions), and publications.
    """

    row: SpreadRow
    reading: Reading
    runs: int
    by_ttl: tuple[tuple[float, float, float, float], ...]
    counted: tuple[tuple[tuple[int, ...], ...], ...] = ()
    """The events for each number of hops, as results files have them."""


@frozen
class Tables:
    """All tables of one run."""

    extent: Extent
    graphs: tuple[GraphResult, ...]
    spreads: tuple[SpreadResult, ...]
    fleets: tuple[Figures, ...]


def compute(extent: Extent, progress: Callable[[str], None]) -> Tables:
    """Compute all tables; minutes at full size. `progress` is told what is being done."""
    graphs = []
    for row in GRAPHS:
        progress(f"table {row.table}: pools of {row.peers} peers")
        graphs.append(_graph(row, extent))
    spreads = []
    for spread_row in SPREADS:
        progress(f"table {spread_row.table}: copies among {spread_row.peers} peers")
        spreads += [_spread(spread_row, reading, extent) for reading in Reading]
    fleets = []
    for scenario in _scenarios(extent):
        progress(
            f"{scenario.mode.value}, {scenario.peers} groups, {scenario.loss:.0%} loss, {scenario.churn:.0%} churn"
        )
        fleets.append(measure(scenario))
    return Tables(extent, tuple(graphs), tuple(spreads), tuple(fleets))


def _scenarios(extent: Extent) -> list[Scenario]:
    return scenarios(extent.sizes, (Mode.POOL, Mode.PLUMTREE), LOSSES, CHURN, extent.events)


def _graph(row: GraphRow, extent: Extent) -> GraphResult:
    generator = Random(f"{extent.seed} {row.table}")
    iterations = extent.iterations or row.iterations
    pools = [draw_pool(row.peers, generator) for _ in range(iterations)]
    found = [figures_of(pool) for pool in pools]
    # The draw begins to be defined at 8: there are no fewer peers.
    cut = (
        [cut_off_on_arrival(row.peers, generator) for _ in range(extent.growth_runs)] if row.peers > 8 else []
    )
    return GraphResult(
        row=row,
        iterations=iterations,
        degree=fmean(one.degree for one in found),
        variance=fmean(one.in_degree_variance for one in found),
        stream_path=fmean(one.stream_path for one in found),
        peer_path=fmean(one.peer_path for one in found),
        thesis_connected=sum(one.thesis_connected for one in found),
        connected=sum(one.connected for one in found),
        exact=disconnection(row.peers, row.streams),
        newcomer_cut_off=fmean(cut) if cut else 0.0,
        drawn=tuple(map(drawn, pools)),
    )


def _spread(row: SpreadRow, reading: Reading, extent: Extent) -> SpreadResult:
    generator = Random(f"{extent.seed} {row.table} {reading.name}")
    by_ttl, events = [], []
    for ttl in TTLS:
        copies = [
            copies_of(draw_pool(row.peers, generator), ttl, reading, generator)
            for _ in range(extent.spread_runs)
        ]
        events.append(tuple(map(counted, copies)))
        found = [one.figures() for one in copies]
        by_ttl.append(
            (
                fmean(one.coverage for one in found),
                fmean(one.redundancy for one in found),
                fmean(one.overall for one in found),
                fmean(one.sends for one in found),
            )
        )
    return SpreadResult(row, reading, extent.spread_runs, tuple(by_ttl), tuple(events))


def results_of(tables: Tables) -> GossipResults:
    """Return what a results file has of the thesis' tables."""
    return GossipResults(
        pools=tuple(
            PoolsResult(
                table=one.row.table,
                peers=one.row.peers,
                streams=one.row.streams,
                drawn=one.drawn,
                degree=one.degree,
                variance=one.variance,
                stream_path=one.stream_path,
                peer_path=one.peer_path,
                thesis_connected=one.thesis_connected,
                connected=one.connected,
            )
            for one in tables.graphs
        ),
        copies=tuple(
            CopiesResult(
                table=one.row.table,
                reading=one.reading.value,
                hops=hops,
                peers=one.row.peers,
                counted=events,
                coverage=coverage,
                redundancy=redundancy,
                overall=overall,
                sends=sends,
            )
            for one in tables.spreads
            for hops, (coverage, redundancy, overall, sends), events in zip(
                TTLS, one.by_ttl, one.counted, strict=True
            )
        ),
    )


# -- as text


def markdown(tables: Tables) -> str:
    """Return all tables as Markdown, beside the thesis' figures."""
    return "\n".join(
        (*_graph_text(tables.graphs), *_spread_text(tables.spreads), *_fleet_text(tables.fleets))
    )


def _table(head: Sequence[str], rows: Iterator[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "--|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"
    yield ""


def _graph_text(graphs: Sequence[GraphResult]) -> Iterator[str]:
    yield "### Pools that are drawn (tables 8.1 to 8.6): thesis / ours"
    yield ""
    yield from _table(
        (
            "table",
            "peers",
            "streams",
            "degree",
            "in-degree variance",
            "path, streams",
            "path, peers",
            "pools",
            "connected",
        ),
        (
            (
                g.row.table,
                g.row.peers,
                g.row.streams,
                f"{g.row.degree:.4f} / {g.degree:.4f}",
                f"{g.row.variance:.4f} / {g.variance:.4f}",
                f"{g.row.path:.4f} / {g.stream_path:.4f}",
                f"- / {g.peer_path:.4f}",
                g.iterations,
                f"all / {g.thesis_connected} (truly {g.connected})",
            )
            for g in graphs
        ),
    )
    yield "### How probable it is that a drawn pool is not connected (exact)"
    yield ""
    yield from _table(
        (
            *(
                "peers",
                "streams",
                "thesis' criterion",
                "somebody is not reached",
                "a stream without listeners",
            ),
            *("islands that the criterion overlooks", "who adds the stream is cut off: 2/s / simulated"),
        ),
        (
            (
                g.row.peers,
                g.row.streams,
                f"{float(g.exact.thesis):.4g}",
                f"{float(g.exact.truly):.4g}",
                f"{float(g.exact.publish_only):.4g}",
                f"{float(g.exact.islands):.3g}",
                f"{2 / g.row.streams:.0%} / {g.newcomer_cut_off:.0%}" if g.newcomer_cut_off else "-",
            )
            for g in graphs
        ),
    )


def _spread_text(spreads: Sequence[SpreadResult]) -> Iterator[str]:
    yield "### Coverage / redundancy of one event after 1 to 4 hops (tables 8.7 to 8.9)"
    yield ""
    for table in dict.fromkeys(one.row for one in spreads):
        yield f"Table {table.table}: {table.peers} peers, {table.streams} streams."
        yield ""
        published: list[Sequence[object]] = [
            (
                f"thesis, {RUNS} runs",
                *(f"{coverage:.4f} / {redundancy:.4f}" for coverage, redundancy in table.by_ttl),
                "",
                "",
            )
        ]
        ours: list[Sequence[object]] = [
            (
                one.reading.value,
                *(f"{coverage:.4f} / {redundancy:.4f}" for coverage, redundancy, _, _ in one.by_ttl),
                f"{one.by_ttl[-1][2]:.4f}",
                f"{one.by_ttl[-1][3]:.1f}",
            )
            for one in spreads
            if one.row == table
        ]
        head = (
            "reading",
            *(f"hops: {ttl}" for ttl in TTLS),
            "of all receptions, 4 hops",
            "publications, 4 hops",
        )
        yield from _table(head, iter(published + ours))


def _fleet_text(fleets: Sequence[Figures]) -> Iterator[str]:
    for mode in dict.fromkeys(figures.scenario.mode for figures in fleets):
        yield f"### Fleets that spread by {mode.value}"
        yield ""
        yield from _table(
            (
                *(
                    "groups",
                    "loss",
                    "churn",
                    "gossip alone",
                    "after peers",
                    "after the log",
                    "redundancy",
                    "overall",
                ),
                *(
                    "publications",
                    "copies",
                    "small",
                    "hops (most)",
                    "median ms",
                    "p99 ms",
                    "reads",
                    "looks",
                    "pushed",
                    "saved",
                ),
            ),
            (_fleet_row(one) for one in fleets if one.scenario.mode is mode),
        )


def _fleet_row(one: Figures) -> Sequence[object]:
    scenario = one.scenario
    return (
        scenario.peers,
        f"{scenario.loss:.0%}",
        f"{scenario.churn:.0%}",
        f"{one.by_gossip:.4f}",
        f"{one.after_peers:.4f}",
        f"{one.after_log:.4f}" + ("" if one.settled else " (not settled)"),
        f"{one.redundancy:.2%}",
        f"{one.redundancy_overall:.2%}",
        f"{one.sends:.1f}",
        f"{one.datagrams:.1f}",
        f"{one.small:.1f}",
        f"{one.hops:.2f} ({one.hops_max})",
        f"{one.median_ms:.0f}",
        f"{one.p99_ms:.0f}",
        one.reads,
        one.looks,
        one.pushed,
        f"{one.saved:.2%}",
    )
