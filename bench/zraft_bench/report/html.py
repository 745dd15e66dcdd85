"""One HTML page for one or several runs: what ran where, tables, plots, and the published figures beside ours. Pure.

The page is self-contained: plots are inside of it. Everything that comes from a results file is escaped.
"""

from __future__ import annotations

import base64
import statistics
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from onyxlog.theses import zatt
from zraft_bench.election.times import DEFINITIONS, distribution, series
from zraft_bench.load.workload import Operation
from zraft_bench.multicast.results import MulticastResults
from zraft_bench.multicast.tables import tables_of
from zraft_bench.results import OK, Run, TestResult

STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { border: 1px solid #ccc; padding: 2px 7px; text-align: right; }
th { background: #f3f3f3; } td.t, th.t { text-align: left; }
tr.failed td { background: #fde3e3; } tr.superseded td { color: #999; text-decoration: line-through; }
img { max-width: 100%; } .note { color: #666; font-size: 13px; }
"""

Row = tuple[str, Sequence[str]]
"""(class of the row, cells that are escaped already)."""


def page(runs: Sequence[tuple[Run, Mapping[str, tuple[str, bytes]]]], hint: str = "") -> str:
    """Return the page. Each run comes with its plots: name to (title, PNG); `hint` stands at the top."""
    parts = [f"<p class=note>{escape(hint)}</p>"] if hint else []
    for run, plots in runs:
        parts += _run(run, plots)
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8><title>zraft-bench</title>"
        f"<style>{STYLE}</style>\n<h1>zraft-bench</h1>\n" + "\n".join(parts) + "\n</html>\n"
    )


def _run(run: Run, plots: Mapping[str, tuple[str, bytes]]) -> Iterable[str]:
    yield f"<h2>{escape(run.kind)}: {escape(run.title)}</h2>"
    settings = "".join(f", {escape(name)}: {escape(value)}" for name, value in run.settings.items() if value)
    yield f"<p>run {escape(run.id)}, {escape(run.started)} to {escape(run.ended)}, zraft {escape(run.version)}{settings}</p>"
    if run.comment:
        yield f"<p>{escape(run.comment)}</p>"
    for note in run.notes:
        yield f"<p class=note>{escape(note)}</p>"
    yield _table(
        ("machine", "cores", "system", "python"),
        [("", (escape(m.name), str(m.cores), escape(m.system), escape(m.python))) for m in run.machines],
        texts=(0, 2, 3),
    )
    if run.tests:
        yield from _tests(run.tests)
    if run.trials:
        yield from _trials(run)
    if run.multicast is not None:
        yield from _topics(run.multicast)
    for title, png in plots.values():
        data = base64.b64encode(png).decode()
        yield f'<p><img alt="{escape(title)}" src="data:image/png;base64,{data}"></p>'


def _tests(tests: Sequence[TestResult]) -> Iterable[str]:
    head = [
        "#",
        "target",
        "operation",
        "servers",
        "entries",
        "workers",
        "bytes",
        "loop",
        "requests/s",
        "s/entry",
    ]
    head += (
        "KB/s",
        "p50 ms",
        "p90",
        "p99",
        "p99.9",
        "max",
        "rounds",
        "generator us",
        "servers us",
        "state",
        "comment",
    )
    rows = []
    for one in tests:
        kind = "superseded" if one.superseded else "" if one.ok else "failed"
        rows.append((kind, [escape(cell) for cell in _cells(one)]))
    yield _table(head, rows, texts=(1, 2, 7, 19, 20))
    yield "<h3>How workers shared the load generator</h3>"
    for text in sorted({f"{one.target}: {one.sharing.text()}" for one in tests if one.sharing.processes}):
        yield f"<p class=note>{escape(text)}</p>"
    skews = [one.skew for one in tests if one.skew is not None]
    if skews:
        worst = max(skews, key=lambda one: one.spread_ms)
        yield (
            f"<p class=note>Client machines began at most {worst.spread_ms:.2f} ms apart (&plusmn; "
            f"{worst.uncertainty_ms:.2f} ms), by the head's clock.</p>"
        )
    notes = sorted({note for one in tests for note in one.notes})
    for note in notes:
        yield f"<p class=note>{escape(note)}</p>"
    yield from _beside_thesis(tests)


def _cells(one: TestResult) -> list[str]:
    latency = one.latency
    if latency is not None and latency.count:
        shown = [f"{latency.percentiles[p]:.2f}" for p in ("50", "90", "99", "99.9")] + [
            f"{latency.max_ms:.1f}"
        ]
    else:
        shown = ["-"] * 5
    load = one.workload
    return [
        f"{one.number}" + (f".{one.attempt}" if one.attempt > 1 else ""),
        one.target,
        load.operation.value
        + (f" ({load.read_share:.0%} read)" if load.operation is Operation.MIXED else ""),
        str(one.servers),
        f"{load.entries:,}",
        f"{one.sharing.workers:,}",
        f"{load.value_bytes:,}",
        load.loop if load.rate is None else f"open, {load.rate:,.0f}/s",
        f"{one.per_second:,.0f}",
        f"{one.seconds_per_entry:.6f}",
        f"{one.write_kb_per_s:,.1f}",
        *shown,
        str(one.rounds),
        f"{one.generator_us:.1f}",
        "-" if one.servers_us is None else f"{one.servers_us:.1f}",
        "ok" if one.state == OK else f"failed: {one.reason}",
        one.comment,
    ]


def _beside_thesis(tests: Sequence[TestResult]) -> Iterable[str]:
    """Return the cells that Zatt's thesis has, too."""
    rows: list[Row] = []
    for one in tests:
        load = one.workload
        if one.superseded or load.operation is not Operation.WRITE or load.rate is not None:
            continue
        theirs = zatt.rows_of(load.workers, load.entries, load.value_bytes)
        if not theirs:
            continue
        rates = [row.per_second for row in theirs if row.per_second is not None]
        best = max(rates, default=None)
        rows.append(
            (
                "" if one.ok else "failed",
                (
                    f"{load.workers}",
                    f"{load.entries:,}",
                    f"{load.value_bytes:,}",
                    escape(one.target),
                    f"{one.per_second:,.0f}",
                    *(_published(theirs, platform) for platform in (zatt.LAPTOP, zatt.AWS_4, zatt.AWS_2)),
                    "-" if best is None else f"{one.per_second / best:,.1f}x",
                    f"{one.per_second / zatt.MEAN_PER_SECOND:,.1f}x",
                ),
            )
        )
    if not rows:
        return
    yield "<h3>Beside the published figures of Zatt</h3>"
    yield (
        "<p class=note>Requests per second. The thesis' machines were others, its servers did not fsync, and a test of it "
        "was a single round; rows that it lists twice show both figures. Its mean over all its cells is "
        f"{zatt.MEAN_PER_SECOND}/s.</p>"
    )
    head = (
        "workers per client",
        "entries",
        "bytes",
        "target",
        "here",
        zatt.LAPTOP,
        zatt.AWS_4,
        zatt.AWS_2,
    )
    yield _table((*head, "to its best", "to its mean"), rows, texts=(3,))


def _published(rows: Sequence[zatt.ThesisRow], platform: str) -> str:
    found = [
        ("no result" if row.per_second is None else f"{row.per_second:,}")
        + (" (unstable)" if row.unstable else "")
        for row in rows
        if row.platform == platform
    ]
    return ", ".join(found) or "-"


def _trials(run: Run) -> Iterable[str]:
    rows: list[Row] = []
    for name, values in series(run.trials).items():
        found = distribution(values)
        assert found is not None
        rows.append(
            (
                "",
                (
                    escape(name),
                    str(found.count),
                    *(f"{ms:.1f}" for ms in (found.min_ms, found.median_ms, found.mean_ms)),
                    *(f"{ms:.1f}" for ms in (found.p90_ms, found.p99_ms, found.max_ms)),
                    f"{found.below_80:.1%}",
                    f"{found.below_100:.1%}",
                    escape(DEFINITIONS[name]),
                ),
            )
        )
    head = ("ms", "trials", "min", "median", "mean", "p90", "p99", "max", "below 80 ms", "below 100 ms", "is")
    yield _table(head, rows, texts=(0, 10))
    bad = [trial for trial in run.trials if trial.state != OK]
    yield f"<p>{len(run.trials)} trials, {len(bad)} failed.</p>"
    for trial in bad:
        yield f"<p class=note>trial {trial.number}: {escape(trial.reason)}</p>"
    campaigns = [trial.campaigns for trial in run.trials if trial.state == OK]
    if campaigns:
        yield f"<p class=note>Candidacies per election: {statistics.fmean(campaigns):.2f} on average.</p>"
    if run.kind == "election":
        claims = ", ".join(f"{share:.0%} below {ms:.0f} ms" for ms, share in zatt.ELECTION_SHARES)
        yield (
            f"<p class=note>Zatt's thesis: {claims} in {zatt.ELECTION_TRIALS} elections of "
            f"{zatt.ELECTION_SERVERS} servers. It does not say from when; its shortest election timeout was 100 ms, so "
            "the time to notice the loss cannot be in it.</p>"
        )


def _topics(results: MulticastResults) -> Iterable[str]:
    for table in tables_of(results):
        yield f"<h3>{escape(table.title)}</h3>"
        yield from (f"<p class=note>{escape(note)}</p>" for note in table.notes)
        rows = [
            ("failed" if n in table.failed else "", [escape(cell) for cell in row])
            for n, row in enumerate(table.rows)
        ]
        yield _table(table.head, rows, table.texts)
    for note in sorted({note for cell in results.cells for note in cell.notes}):
        yield f"<p class=note>{escape(note)}</p>"


def _table(head: Sequence[str], rows: Sequence[Row], texts: Sequence[int] = ()) -> str:
    def cell(tag: str, place: int, text: str) -> str:
        return f"<{tag} class=t>{text}</{tag}>" if place in texts else f"<{tag}>{text}</{tag}>"

    lines = ["<tr>" + "".join(cell("th", n, escape(text)) for n, text in enumerate(head)) + "</tr>"]
    for kind, cells in rows:
        start = f"<tr class={kind}>" if kind else "<tr>"
        lines.append(start + "".join(cell("td", n, text) for n, text in enumerate(cells)) + "</tr>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"
