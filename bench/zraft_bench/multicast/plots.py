"""Plots of topics as PNG: deliveries beside the thesis', latency by number of destinations, streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyxlog.theses import atomic_kafka
from zraft_bench.drawing import Plot, draw
from zraft_bench.multicast.results import CellResult, MulticastResults, StreamResult


def plots_of(results: MulticastResults) -> list[Plot]:
    """Return the plots that are worth drawing; failed cells are left out."""
    found = []
    cells = [one for one in results.cells if one.ok]
    rated = [one for one in cells if not one.cell.sleep_ms and one.cell.window > 1]
    if rated:
        found.append(draw("multicast", "Deliveries per second and topic", lambda axes: _rates(axes, rated)))
    if cells:
        found.append(
            draw(
                "multicast-latency",
                "Until delivered everywhere: share within",
                lambda axes: _latency(axes, cells),
            )
        )
    streams = [one for one in results.streams if one.ok]
    if streams:
        found.append(draw("topic-streams", "Messages per second", lambda axes: _streams(axes, streams)))
    return found


def _rates(axes: Any, cells: Sequence[CellResult]) -> None:
    for topic in range(max(one.cell.topics for one in cells)):
        points = [
            (one.cell.share, rate)
            for one in cells
            if topic < one.cell.topics and (rate := one.per_topic()[topic]) > 0
        ]
        axes.plot(*zip(*points, strict=True) if points else ([], []), "o-", label=f"topic {topic + 1}")
    for topic in range(len(atomic_kafka.SCENARIOS[0].nodes)):
        shares = [one.share for one in atomic_kafka.SCENARIOS]
        rates = [one.nodes[topic].delivered for one in atomic_kafka.SCENARIOS]
        axes.plot(shares, rates, "kx:", linewidth=0.6, label="thesis, its five nodes" if not topic else None)
    axes.set_yscale("log")
    axes.set_xlabel("share of the messages that go to several topics")
    axes.set_ylabel("deliveries/s")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=7)


def _latency(axes: Any, cells: Sequence[CellResult]) -> None:
    for one in cells:
        for name, histogram in one.histograms.items():
            points = [(ms, share) for ms, share in histogram.cumulative() if ms > 0]
            if points:
                axes.step(*zip(*points, strict=True), where="post", label=f"{one.cell.name}: to {name}")
    axes.set_xscale("log")
    axes.set_xlabel("ms")
    axes.set_ylim(0, 1.02)
    axes.grid(visible=True, alpha=0.3)
    if axes.get_lines():
        axes.legend(fontsize=6)


def _streams(axes: Any, streams: Sequence[StreamResult]) -> None:
    places = range(len(streams))
    colours = ["tab:gray" if one.target == "log" else "tab:blue" for one in streams]
    axes.barh(places, [one.per_second for one in streams], color=colours)
    labels = [f"{one.target}, {one.partitions} x {one.value_bytes} B" for one in streams]
    axes.set_yticks(places, labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("messages/s")
