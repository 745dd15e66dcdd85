"""Plots of an audit's figures as PNG, by matplotlib."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Iterator
from typing import Any, Final

from attrs import frozen

from onyxlog.audits.figures import Series
from onyxlog.audits.report.findings import Findings

DPI: Final = 110
SIZE: Final = (9.0, 3.6)
LINES_MAX: Final = 12


@frozen
class Plot:
    """A plot as an image."""

    title: str
    about: str
    png: bytes


def available() -> bool:
    """Return whether matplotlib is installed. A report without it has tables only."""
    return importlib.util.find_spec("matplotlib") is not None


def plots_of(findings: Findings) -> list[Plot]:
    """Return the plots for which there is something to show."""
    return list(_plots(findings)) if available() else []


def _plots(findings: Findings) -> Iterator[Plot]:
    shown = findings.figures
    if len(shown.reigns) > 1:
        yield draw(
            "Terms and leaders",
            "Each bar is a term of group 0, from its first entry to the next term's; grey: nobody noted leading it.",
            lambda axes: _reigns(axes, findings),
        )
    if shown.growth:
        yield draw(
            "Growth of the log",
            "Entries of each server's log.",
            lambda axes: _lines(axes, shown.growth, "MB"),
        )
    if shown.positions:
        yield draw(
            "Positions of servers",
            "How far each server knew of commits. A flat line is a server that was down or cut off.",
            lambda axes: _lines(axes, shown.positions, "index"),
        )
    if shown.replicas:
        yield draw(
            "Positions of peers",
            "How far each peer group had applied the log.",
            lambda axes: _lines(axes, shown.replicas, "position"),
        )
    if shown.partitions:
        yield draw(
            "Messages of topics",
            "How far each partition, by its group, had delivered.",
            lambda axes: _lines(axes, shown.partitions, "offset"),
        )
    if shown.shares:
        yield draw(
            "Redundancy of gossip", "Share of receptions that were superfluous, by peer.", _shares(findings)
        )
    if shown.latencies:
        yield draw("Latency", "Of answered operations, as clients saw them.", _latencies(findings))


def draw(title: str, about: str, fill: Callable[[Any], None]) -> Plot:
    """Draw a plot that `fill` adds lines and bars to, and return it as PNG."""
    # The figure is made by itself: pyplot would keep global state, and look for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    fill(axes)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    return Plot(title, about, image.getvalue())


def _lines(axes: Any, series: Series, label: str) -> None:
    for name, points in list(series.items())[:LINES_MAX]:
        axes.plot(
            [x for x, _ in points], [y for _, y in points], label=name, drawstyle="steps-post", linewidth=1.3
        )
    axes.set_xlabel("seconds")
    axes.set_ylabel(label)
    axes.grid(visible=True, alpha=0.25)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, frameon=False)


def _reigns(axes: Any, findings: Findings) -> None:
    reigns = findings.figures.reigns
    last = max((point[0] for points in findings.figures.growth.values() for point in points), default=0.0)
    ends = [*(reign.begins_s for reign in reigns[1:]), max(last, reigns[-1].begins_s)]
    leaders = sorted({reign.leader for reign in reigns})
    for reign, end in zip(reigns, ends, strict=True):
        colour = "0.8" if reign.leader == 0 else f"C{reign.leader % 10}"
        axes.barh(
            leaders.index(reign.leader), max(end - reign.begins_s, 0.01), left=reign.begins_s, color=colour
        )
    axes.set_yticks(range(len(leaders)), [f"server {leader}" if leader else "unknown" for leader in leaders])
    axes.set_xlabel("seconds")


def _shares(findings: Findings) -> Callable[[Any], None]:
    shares = findings.figures.shares

    def fill(axes: Any) -> None:
        axes.bar(range(len(shares)), [100 * share.redundancy for share in shares], color="tab:blue")
        axes.set_xticks(range(len(shares)), [share.peer for share in shares], rotation=60, fontsize=7)
        axes.set_ylabel("% superfluous")

    return fill


def _latencies(findings: Findings) -> Callable[[Any], None]:
    found = findings.figures.latencies

    def fill(axes: Any) -> None:
        for at, (name, of) in enumerate((("p50", 0.25), ("p90", 0.5), ("p99", 0.75))):
            values = [getattr(each, name) for each in found]
            axes.bar(
                [n + of - 0.5 for n in range(len(found))], values, width=0.24, label=name, color=f"C{at}"
            )
        axes.set_xticks(range(len(found)), [each.kind for each in found], fontsize=8)
        axes.set_yscale("log")
        axes.set_ylabel("ms")
        axes.legend(fontsize=8, frameon=False)

    return fill
