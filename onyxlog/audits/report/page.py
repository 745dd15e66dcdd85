"""The report as one self-contained HTML page. Pure; everything that comes from data is escaped."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from onyxlog.audits.jobs.auditing import CheckResult, Verdict
from onyxlog.audits.report.findings import Findings, RuleResult
from onyxlog.audits.report.plots import Plot
from onyxlog.audits.rules.violation import Violation
from onyxlog.audits.thesis_gossip import PoolRow
from onyxlog.audits.thesis_tables import ThesisTables
from onyxlog.theses import zatt

SHOWN_MAX: Final = 20
"""The most violations of one check on the page; the files have them all."""

STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --good: #1a7f37; --bad: #cf222e; --none: #888; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2.5em auto; max-width: 68em; padding: 0 1.2em; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.15em; margin-top: 2.2em; }
.sub { color: #777; margin-top: .2em; }
.tiles { display: flex; gap: 1em; flex-wrap: wrap; margin: 1.4em 0; }
.tile { border: 1px solid var(--line); border-radius: 8px; padding: .7em 1.2em; min-width: 8em; }
.tile b { display: block; font-size: 1.7em; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 8px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: #777; font-weight: 500; } td.n, th.n { text-align: right; }
.holds { color: var(--good); } .broken { color: var(--bad); font-weight: 600; } .none { color: var(--none); }
.witness { background: var(--soft); border-left: 3px solid var(--bad); border-radius: 4px; }
.witness { padding: .5em .9em; margin: .5em 0; }
.witness code { font-size: 12px; overflow-wrap: anywhere; }
figure { margin: 1.6em 0; } figure img { max-width: 100%; background: #fff; border-radius: 6px; }
figcaption { color: #777; font-size: 13px; } details { margin: .4em 0; } summary { cursor: pointer; }
"""

_CLASS: Final = {Verdict.HOLDS: "holds", Verdict.BROKEN: "broken", Verdict.NO_DATA: "none"}


def page(findings: Findings, plots: Sequence[Plot]) -> str:
    """Return the whole page."""
    body = "\n".join(
        (
            *_head(findings),
            *_rules(findings),
            *_violations(findings),
            *_figures(plots),
            *_tables(findings),
        )
    )
    title = escape(findings.title)
    return (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Audit of {title}</title><style>{STYLE}</style>\n{body}\n</html>\n"
    )


def _head(findings: Findings) -> Iterator[str]:
    broken = sum(rule.verdict is Verdict.BROKEN for rule in findings.rules)
    silent = len(findings.rules) - findings.judged
    yield f"<h1>Audit of {escape(findings.title)}</h1>"
    yield (
        f"<p class=sub>{escape(findings.began)}, {findings.seconds:.1f} s, zraft {escape(findings.version)}; "
        f"{escape(', '.join(findings.paths))}</p>"
    )
    tiles = [
        ("rules hold", f"{findings.judged - broken}", "holds"),
        ("rules broken", f"{broken}", "broken" if broken else ""),
        ("rules without data", f"{silent}", "none"),
        ("rows judged", f"{sum(findings.counts.values()):,}", ""),
    ]
    yield "<div class=tiles>" + "".join(
        f"<div class=tile><b class='{kind}'>{number}</b>{label}</div>" for label, number, kind in tiles
    ) + "</div>"  # fmt: skip


def _rules(findings: Findings) -> Iterator[str]:
    yield "<h2>Rules</h2><table><tr><th>rule<th>claim<th>verdict<th class=n>rows<th class=n>s</tr>"
    for result in findings.rules:
        checks = "".join(_check_line(check) for check in result.checks)
        yield (
            f"<tr><td>{result.rule.id}<td><details><summary>{escape(result.rule.claim)}</summary><table>{checks}</table>"
            f"</details><td class={_CLASS[result.verdict]}>{_verdict(result)}"
            f"<td class=n>{result.rows:,}<td class=n>{result.seconds:.1f}</tr>"
        )
    yield "</table>"
    for what, ids in findings.needed.items():
        yield f"<p class=sub>No data for {', '.join(ids)}: give {escape(what)}.</p>"


def _verdict(result: RuleResult) -> str:
    count = len(result.violations)
    more = "+" if any(check.more for check in result.checks) else ""
    return f"broken: {count}{more}" if count else result.verdict.value


def _check_line(check: CheckResult) -> str:
    missing = f" (no rows: {escape(', '.join(check.missing))})" if check.missing else ""
    return (
        f"<tr><td>{escape(check.promise)}<td class={_CLASS[check.verdict]}>{check.verdict.value}{missing}"
        f"<td class=n>{check.rows:,}<td class=n>{check.seconds:.1f}</tr>"
    )


def _violations(findings: Findings) -> Iterator[str]:
    if not findings.broken:
        return
    yield "<h2>Violations</h2>"
    for result in findings.rules:
        for check in result.checks:
            if check.violations:
                yield f"<h3>{result.rule.id}: {escape(check.promise)}</h3>"
                yield from (_witness(one) for one in check.violations[:SHOWN_MAX])
                left = len(check.violations) - SHOWN_MAX
                if left > 0 or check.more:
                    yield f"<p class=sub>{max(left, 0)}{'+' if check.more else ''} more in violations.parquet</p>"


def _witness(one: Violation) -> str:
    place = ", ".join(
        f"{name} {value}"
        for name, value in (("server", one.server), ("group", one.group), ("index", one.index))
        if value is not None
    )
    file = (
        f"<br><code>{escape(one.file)}{'' if one.offset is None else f':{one.offset}'}</code>"
        if one.file
        else ""
    )
    return (
        f"<div class=witness><b>{escape(one.subject)}</b>{' &middot; ' if place else ''}{escape(place)}<br>"
        f"expected {escape(one.expected)}<br>found {escape(one.found)}{file}</div>"
    )


def _figures(plots: Sequence[Plot]) -> Iterator[str]:
    if plots:
        yield "<h2>What happened</h2>"
    for plot in plots:
        data = base64.b64encode(plot.png).decode()
        yield (
            f"<figure><b>{escape(plot.title)}</b><br><img alt='{escape(plot.title)}' src='data:image/png;base64,{data}'>"
            f"<figcaption>{escape(plot.about)}</figcaption></figure>"
        )


def _tables(findings: Findings) -> Iterator[str]:
    if findings.figures.latencies:
        yield "<h2>Latency</h2>"
        yield _table(
            ("operation", "answered", "p50 ms", "p90", "p99", "longest"),
            [
                (
                    each.kind,
                    f"{each.count:,}",
                    *(f"{ms:.2f}" for ms in (each.p50, each.p90, each.p99, each.longest)),
                )
                for each in findings.figures.latencies
            ],
        )
    if findings.figures.gossip:
        yield "<h2>Gossip</h2>"
        yield _table(
            (
                "tenancy",
                "peers",
                "events",
                "redundancy, mean of peers",
                "overall",
                "publications",
                "hops",
                "reads saved",
            ),
            [
                (
                    each.tenancy,
                    f"{each.peers}",
                    f"{each.events:,}",
                    f"{each.redundancy_of_peers:.2%}",
                    f"{each.redundancy:.2%}",
                    f"{each.sent_per_event:.2f}",
                    f"{each.hops:.2f}",
                    f"{each.saved:.2%}",
                )
                for each in findings.figures.gossip
            ],
        )
    if findings.thesis is not None:
        yield from _thesis(findings.thesis)
    yield "<h2>Tables</h2>"
    yield _table(
        ("table", "rows"), [(name, f"{count:,}") for name, count in findings.counts.items() if count]
    )


def _thesis(tables: ThesisTables) -> Iterator[str]:
    if tables.cells:
        yield "<h2>Zatt's tables 3.1 and 3.2, recomputed from raw results</h2>"
        yield _table(
            (
                "target",
                "servers",
                "workers",
                "entries",
                "bytes",
                "s/entry",
                "requests/s",
                "KB/s",
                "stable",
                "its best",
                "times",
            ),
            [
                (
                    cell.target,
                    f"{cell.servers}",
                    f"{cell.workers}",
                    f"{cell.entries:,}",
                    f"{cell.value_bytes:,}",
                    f"{cell.seconds_per_entry:.6f}",
                    f"{cell.per_second:,.0f}",
                    f"{cell.kb_per_second:,.1f}",
                    "yes" if cell.stable else "no",
                    "-" if cell.published_best is None else f"{cell.published_best:,}",
                    "-" if cell.times is None else f"{cell.times:.1f}",
                )
                for cell in tables.cells
            ],
        )
    if tables.elections is not None:
        found = tables.elections
        yield f"<h2>Elections</h2><p>{found.trials} trials, {found.failed} failed; longest {found.longest_ms:.1f} ms.</p>"
        yield _table(
            ("took less than", "here", "Zatt's thesis"),
            [
                (f"{limit:.0f} ms", f"{share:.1%}", f"{claim:.0%}")
                for (limit, share), (_, claim) in zip(found.below, zatt.ELECTION_SHARES, strict=True)
            ],
        )
    yield from _mixes(tables)
    yield from _gossip(tables)


def _mixes(tables: ThesisTables) -> Iterator[str]:
    yield "<h2>AtomicKafka's tables 5.1 to 5.6</h2>"
    yield (
        "<p>Its own figures, recomputed: 3 records for a message to one topic, 35 for one to five, so 120,000 + 32 x for "
        "40,000 messages of which x go to all. The records say how many those were; rates and times do not add up to them."
        "</p>"
    )
    yield _table(
        (
            *("table", "said to all", "records", "messages", "to all, by its records", "share"),
            *("records, by its rates", "deliveries/s, mean of nodes", "its headline"),
        ),
        [
            (
                *(
                    mix.table,
                    f"{mix.share:.0%}",
                    f"{mix.records:,}",
                    f"{mix.messages:,}",
                    f"{mix.several:,.1f}",
                ),
                *(f"{mix.implied_share:.1%}", f"{mix.of_rates:,.0f}", f"{mix.mean_delivered:.1f}"),
                "-" if mix.headline is None else f"{mix.headline}",
            )
            for mix in tables.published_mixes
        ],
    )
    if tables.mixes:
        yield "<p>The same of our raw results: messages by number of destinations, deliveries as they were read.</p>"
        yield _table(
            (
                *("cell", "table", "messages", "to all", "records", "3 n + 32 x", "deliveries", "messages/s"),
                *("deliveries/s of each topic", "times the thesis' mean"),
            ),
            [
                (
                    *(
                        mix.name,
                        mix.table or "-",
                        f"{mix.messages:,}",
                        f"{mix.several:,}",
                        f"{mix.records:,}",
                    ),
                    *(f"{mix.formula:,}", f"{mix.deliveries:,}", f"{mix.per_second:,.1f}"),
                    " / ".join(f"{rate:,.1f}" for rate in mix.per_topic),
                    "-" if mix.times is None else f"{mix.times:,.1f}",
                )
                for mix in tables.mixes
            ],
        )


def _gossip(tables: ThesisTables) -> Iterator[str]:
    yield "<h2>Gossip: tables 8.1 to 8.6, thesis / from our draws / expected of such draws</h2>"
    yield _table(
        (
            "table",
            "peers",
            "streams",
            "degree",
            "in-degree variance",
            "path, streams",
            "path, peers",
            "connected",
        ),
        [_pool_cells(row) for row in tables.pools],
    )
    if tables.copies:
        yield "<h2>Gossip: tables 8.7 to 8.9, thesis / from our receptions</h2>"
        yield _table(
            (
                "table",
                "hops",
                "reading",
                "events",
                "coverage",
                "redundancy",
                "of all receptions",
                "publications",
            ),
            [
                (
                    *(row.table, f"{row.hops}", row.reading, f"{row.measured.events:,}"),
                    f"{row.published[0]:.4f} / {row.measured.coverage:.4f}",
                    f"{row.published[1]:.4f} / {row.measured.redundancy:.4f}",
                    *(f"{row.measured.overall:.4f}", f"{row.measured.sends:.1f}"),
                )
                for row in tables.copies
            ],
        )


def _pool_cells(row: PoolRow) -> tuple[str, ...]:
    theirs, ours = row.published, row.measured

    def three(published: float | None, measured: float | None, expected: float | None) -> str:
        return " / ".join("-" if one is None else f"{one:.4f}" for one in (published, measured, expected))

    return (
        *(theirs.table, f"{theirs.peers}", f"{theirs.streams}"),
        three(theirs.degree, None if ours is None else ours.degree, row.expected.degree),
        three(theirs.variance, None if ours is None else ours.variance, row.expected.variance),
        three(theirs.path, None if ours is None else ours.stream_path, None),
        three(None, None if ours is None else ours.peer_path, row.expected.peer_path),
        "all / -" if ours is None else f"all / {ours.connected} of {ours.pools}",
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *others = head
    lines = [f"<tr><th>{escape(first)}" + "".join(f"<th class=n>{escape(text)}" for text in others) + "</tr>"]
    for name, *cells in rows:
        lines.append(
            f"<tr><td>{escape(name)}" + "".join(f"<td class=n>{escape(cell)}" for cell in cells) + "</tr>"
        )
    return "<table>" + "\n".join(lines) + "</table>"
