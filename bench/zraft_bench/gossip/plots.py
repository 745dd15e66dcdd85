"""Plots of gossip: the thesis' redundancy beside ours, and what loss does to coverage."""

from __future__ import annotations

from typing import Any

from onyxlog.gossip.spreading import Mode
from onyxlog.gossip.thesis.copies import Reading
from zraft_bench.drawing import Plot, draw
from zraft_bench.gossip.tables import TTLS, Tables


def plots_of(tables: Tables) -> list[Plot]:
    """Return the plots; matplotlib must be installed."""
    return [
        draw("gossip-redundancy", "Superfluous receptions", lambda axes: _redundancy(axes, tables)),
        draw("gossip-copies", "Publications of one event, 55 peers", lambda axes: _copies(axes, tables)),
        draw("gossip-coverage", "Coverage by gossip alone", lambda axes: _coverage(axes, tables)),
        draw("gossip-latency", "From the append to applied: p99", lambda axes: _latency(axes, tables)),
        draw("gossip-paths", "Hops between peers of a drawn pool", lambda axes: _paths(axes, tables)),
    ]


def _redundancy(axes: Any, tables: Tables) -> None:
    for row in dict.fromkeys(one.row for one in tables.spreads):
        line = axes.plot(
            TTLS, [redundancy for _, redundancy in row.by_ttl], "o-", label=f"thesis, {row.peers} peers"
        )
        (model,) = [one for one in tables.spreads if one.row == row and one.reading is Reading.TWICE]
        colour = line[0].get_color()
        label = f"model of it, {row.peers} peers"
        axes.plot(
            TTLS, [redundancy for _, redundancy, _, _ in model.by_ttl], "x--", color=colour, label=label
        )
    for one in tables.fleets:
        if one.scenario.mode is Mode.POOL and not one.scenario.loss and one.scenario.peers in (8, 21, 55):
            axes.axhline(one.redundancy, color="k", linewidth=1)
    axes.plot([], [], "k-", label="dealt pool: any number of hops")
    axes.set_xticks(TTLS)
    axes.set_xlabel("hops")
    axes.set_ylabel("mean of each peer's share")
    axes.set_ylim(-0.02, 1.02)
    axes.legend(fontsize=7)


def _copies(axes: Any, tables: Tables) -> None:
    for one in tables.spreads:
        if one.row.peers == 55:
            axes.plot(TTLS, [sends for *_, sends in one.by_ttl], "o-", label=one.reading.value)
    axes.plot(TTLS, [4] * len(TTLS), "k-", label="dealt pool")
    axes.set_yscale("log")
    axes.set_xticks(TTLS)
    axes.set_xlabel("hops")
    axes.legend(fontsize=6)


def _fleets(axes: Any, tables: Tables, value: str) -> None:
    cases = dict.fromkeys((one.scenario.mode, one.scenario.loss, one.scenario.churn) for one in tables.fleets)
    for mode, loss, churn in cases:
        chosen = [
            one
            for one in tables.fleets
            if (one.scenario.mode, one.scenario.loss, one.scenario.churn) == (mode, loss, churn)
        ]
        label = f"{mode.value}, {loss:.0%} loss" + (f", {churn:.0%} churn" if churn else "")
        style = "o-" if mode is Mode.POOL else "x--"
        axes.plot(
            [one.scenario.peers for one in chosen],
            [getattr(one, value) for one in chosen],
            style,
            label=label,
        )
    axes.set_xscale("log")
    axes.set_xlabel("groups")
    axes.legend(fontsize=7)


def _coverage(axes: Any, tables: Tables) -> None:
    _fleets(axes, tables, "by_gossip")
    axes.set_ylabel("share of all pairs of event and group")


def _latency(axes: Any, tables: Tables) -> None:
    _fleets(axes, tables, "p99_ms")
    axes.set_ylabel("ms")
    axes.set_yscale("log")


def _paths(axes: Any, tables: Tables) -> None:
    sizes = [one.row.peers for one in tables.graphs]
    axes.plot(sizes, [one.row.path for one in tables.graphs], "o-", label="thesis")
    axes.plot(sizes, [one.stream_path for one in tables.graphs], "x--", label="ours, between streams")
    axes.plot(sizes, [one.peer_path for one in tables.graphs], "x-", label="ours, between peers")
    axes.plot(sizes, [2 - 1 / one.row.streams for one in tables.graphs], "k:", label="2 - 1/s")
    axes.set_xscale("log")
    axes.set_xlabel("peers")
    axes.legend(fontsize=8)
