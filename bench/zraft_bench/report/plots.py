"""Plots of results as PNG, by matplotlib (the extra `bench`): latencies, throughput, elections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onyxlog.theses import zatt
from zraft_bench.drawing import Plot, draw
from zraft_bench.election.times import series
from zraft_bench.multicast import plots as multicast_plots
from zraft_bench.results import Run, TestResult

LABELS_MAX: Final = 24
"""The most bars of one plot; more could not be read."""

CURVES_MAX: Final = 10


def plots_of(run: Run) -> list[Plot]:
    """Return the plots of a run that are worth drawing; matplotlib must be installed."""
    found: list[Plot] = []
    measured = [one for one in run.tests if one.acknowledged and not one.superseded]
    if measured:
        found.append(draw("throughput", "Requests per second", lambda axes: _throughput(axes, measured)))
        found.append(
            draw("latency", "Latency: share of the requests within", lambda axes: _latency(axes, measured))
        )
    times = series(run.trials)
    elections = {name: values for name, values in times.items() if "leader" in name}
    if elections:
        found.append(draw("elections", "Elections: share within", lambda axes: _elections(axes, elections)))
        found.append(
            draw(
                "elections-histogram",
                "Elections: how many took how long",
                lambda axes: _histogram(axes, elections),
            )
        )
    outages = {name: values for name, values in times.items() if "leader" not in name or "write" in name}
    if outages:
        found.append(
            draw("failover", "Writes after the loss of a leader", lambda axes: _elections(axes, outages))
        )
    if run.multicast is not None:
        found += multicast_plots.plots_of(run.multicast)
    return found


def label_of(result: TestResult) -> str:
    """Return a label that is short enough for an axis."""
    load = result.workload
    text = f"{load.operation.value} {load.entries}x{load.value_bytes} B, {result.sharing.workers} w"
    return text if result.target == "zraft" else f"{result.target}: {text}"


def _throughput(axes: Any, results: Sequence[TestResult]) -> None:
    shown = list(results)[:LABELS_MAX]
    places = range(len(shown))
    colours = ["tab:blue" if one.ok else "tab:red" for one in shown]
    axes.barh(places, [one.per_second for one in shown], color=colours)
    axes.set_yticks(places, [label_of(one) for one in shown], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("requests/s (red: failed)")
    marked = False
    for place, one in zip(places, shown, strict=True):
        load = one.workload
        for row in zatt.rows_of(load.workers, load.entries, load.value_bytes):
            if row.per_second is not None and load.operation.value == "write":
                label = None if marked else "Zatt's thesis"
                axes.plot(row.per_second, place, "k|", markersize=9, label=label)
                marked = True
    if marked:
        axes.legend()


def _latency(axes: Any, results: Sequence[TestResult]) -> None:
    """Draw latencies. The percentile axis is logarithmic in rarity: each step is ten times as many requests."""
    for one in list(results)[:CURVES_MAX]:
        points = [(share, ms) for ms, share in one.histogram.cumulative() if share < 1.0]
        if points:
            axes.plot([1 / (1 - share) for share, _ in points], [ms for _, ms in points], label=label_of(one))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([2, 10, 100, 1000, 10_000], ["50 %", "90 %", "99 %", "99.9 %", "99.99 %"])
    axes.set_ylabel("ms")
    axes.grid(visible=True, alpha=0.3)
    if axes.get_lines():
        axes.legend(fontsize=7)


def _elections(axes: Any, times: dict[str, list[float]]) -> None:
    for name, values in times.items():
        ordered = sorted(values)
        axes.step(ordered, [(n + 1) / len(ordered) for n in range(len(ordered))], where="post", label=name)
    if any("leader" in name for name in times):
        for ms, share in zatt.ELECTION_SHARES:
            axes.plot(ms, share, "kx", label=f"Zatt's thesis: {share:.0%} below {ms:.0f} ms")
    axes.set_xlabel("ms")
    axes.set_ylabel("share of the trials")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)


def _histogram(axes: Any, times: dict[str, list[float]]) -> None:
    axes.hist(list(times.values()), bins=40, label=list(times), histtype="step")
    axes.set_xlabel("ms")
    axes.set_ylabel("trials")
    axes.legend(fontsize=8)
