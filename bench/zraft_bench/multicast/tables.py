"""Tables of what was measured of topics, as titles, heads and rows of text, for the terminal and for the page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from attrs import evolve, frozen

from onyxlog.theses import atomic_kafka
from zraft_bench.load.histogram import Summary
from zraft_bench.multicast.plan import Cell, Singles
from zraft_bench.multicast.results import CellResult, GenuineResult, MulticastResults, StreamResult
from zraft_client.topics.options import Order

NONE: Final = "-"


@frozen
class Table:
    """A table. `texts` are the left-aligned columns; `failed` are the rows that do not count."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: tuple[int, ...] = (0,)
    notes: tuple[str, ...] = ()
    failed: frozenset[int] = frozenset()


def tables_of(results: MulticastResults) -> Iterator[Table]:
    """Return the tables that have rows."""
    mixed = [one for one in results.cells if not one.cell.reads_after]
    rated = [one for one in mixed if not one.cell.sleep_ms and one.cell.window > 1]
    makers = (
        (rates, rated),
        (beside_thesis, rated),
        (records, [one for one in results.cells if one.cell.reads_after]),
        (latencies, mixed),
        (accounting, mixed),
    )
    for make, cells in makers:
        table = make(cells)
        if table.rows:
            yield table
    for table in (orders(mixed), steps(results), genuineness(results), streams(results)):
        if table.rows:
            yield table


def rates(cells: Sequence[CellResult]) -> Table:
    """Return deliveries per second of each topic, and what several destinations cost."""
    topics = max((one.cell.topics for one in cells), default=0)
    plain = next((one for one in cells if one.ok and one.cell.share == 0 and _mixes(one)), None)
    rows = []
    for one in cells:
        each = [f"{rate:,.0f}" for rate in one.per_topic()] if one.ok else []
        cost = NONE
        if plain is not None and one.ok and _mixes(one) and one.per_second:
            cost = f"{plain.per_second / one.per_second:.2f}x"
        rows.append(
            (
                one.cell.name,
                f"{one.messages:,}",
                f"{one.multicasts:,}",
                f"{one.elapsed_s:.1f}",
                *(each + [NONE] * (topics - len(each))),
                f"{one.delivered / one.elapsed_s:,.0f}" if one.ok and one.elapsed_s else NONE,
                f"{one.per_second:,.0f}" if one.ok else NONE,
                cost,
                f"{one.generator_us:.0f}",
                NONE if one.servers_us is None else f"{one.servers_us:.0f}",
                _state(one.reason),
            )
        )
    head = (
        *("cell", "messages", "to several", "s"),
        *(f"topic {n + 1}/s" for n in range(topics)),
        *("deliveries/s", "messages/s", "cost", "gen us", "srv us", "state"),
    )
    notes = (
        "Deliveries per second that consumers read, from the first message sent to the last one read. Cost: messages per "
        "second of 0 % over those of the cell. A cell counts only if every log was read in full and all of them agree.",
    )
    return Table("Deliveries per topic", head, tuple(rows), (0, len(head) - 1), notes, _failed_of(cells))


def _mixes(one: CellResult) -> bool:
    """Return the cells with as many producers as the published mixes."""
    return one.cell.producers != one.cell.topics


def beside_thesis(cells: Sequence[CellResult]) -> Table:
    """Return each topic's rate beside the published one."""
    rows = []
    for one in cells:
        theirs = atomic_kafka.published(one.cell.share, five_producers=not _mixes(one))
        if (
            theirs is None
            or not one.ok
            or one.cell.topics != len(theirs.nodes)
            or one.cell.singles is not Singles.OWN
        ):
            continue
        ours = one.per_topic()
        for n, (mine, node) in enumerate(zip(ours, theirs.nodes, strict=True), 1):
            ratio = f"{mine / node.delivered:,.0f}x" if mine else NONE
            rows.append((one.cell.name, theirs.table, f"{n}", f"{node.delivered:.1f}", f"{mine:,.1f}", ratio))
        mean = sum(ours) / len(ours)
        rows.append(
            (
                *(one.cell.name, theirs.table, "mean", f"{theirs.mean_delivered:.1f}", f"{mean:,.1f}"),
                f"{mean / theirs.mean_delivered:,.0f}x",
            )
        )
    notes = (
        "The thesis slept 5 ms after each message and ran on twelve machines, without replicated decisions; its baseline "
        "had five producers, the mixes two. "
        "Its text names "
        + ", ".join(f"{rate}/s ({name})" for name, rate in atomic_kafka.HEADLINE.items())
        + ", which do not "
        "follow from its tables. Shares implied by its record counts: "
        + ", ".join(f"{one.implied_share:.1%}" for one in atomic_kafka.SCENARIOS[1:])
        + ".",
    )
    head = ("cell", "table", "topic", "thesis, deliveries/s", "here", "ratio")
    return Table("Beside the AtomicKafka thesis", head, tuple(rows), (0, 1, 2), notes)


def records(cells: Sequence[CellResult]) -> Table:
    """Return rates and costs of sending and, afterwards, of reading; medians of the runs of each cell."""
    runs: dict[str, list[CellResult]] = {}
    for one in cells:
        runs.setdefault(one.cell.name, []).append(one)
    rows = []
    for name, ones in runs.items():
        good = [one for one in ones if one.ok and one.elapsed_s]
        sent = sorted(one.per_second for one in good)
        size = ones[0].cell.value_bytes
        figures = [NONE] * 7
        if good:
            figures = [
                f"{median(sent):,.0f}",
                f"{sent[0]:,.0f} - {sent[-1]:,.0f}",
                f"{median(sent) * size / 1e6:.1f}",
                NONE
                if any(one.servers_us is None for one in good)
                else f"{median(one.servers_us or 0.0 for one in good):.1f}",
                f"{median(one.generator_us for one in good):.1f}",
                f"{median(one.delivered / one.read_s if one.read_s else 0.0 for one in good):,.0f}",
                f"{median(one.reader_us for one in good):.1f}",
            ]
        reasons = "; ".join(one.reason for one in ones if not one.ok)
        rows.append((name, f"{len(ones)}", *figures, _state(reasons)))
    head = (
        *("cell", "runs", "records/s", "least - most", "MB/s", "servers us", "producer us"),
        *("then read/s", "consumer us", "state"),
    )
    notes = (
        "A record counts as sent once it is durable on a majority and delivered. Consumers begin when everything is sent, "
        "and read all of it. CPU time is per record; the benchmark's checks of what is read are in the consumer's.",
    )
    failed = frozenset(n for n, ones in enumerate(runs.values()) if not all(one.ok for one in ones))
    return Table("Records", head, tuple(rows), (0, len(head) - 1), notes, failed)


def orders(cells: Sequence[CellResult]) -> Table:
    """Return the median rate under each order beside that of PARTITION; for loads that were tried under several."""
    found: dict[Cell, dict[Order, list[CellResult]]] = {}
    for one in cells:
        load = evolve(one.cell, name="", order=Order.PARTITION)
        found.setdefault(load, {}).setdefault(one.cell.order, []).append(one)
    rows = []
    for load, by_order in found.items():
        plain = [one.per_second for one in by_order.get(Order.PARTITION, ()) if one.ok]
        for order, ones in by_order.items():
            rate = median([one.per_second for one in ones if one.ok] or [0.0])
            ratio = f"{rate / median(plain):.2f}x" if rate and plain else NONE
            reasons = "; ".join(one.reason for one in ones if not one.ok)
            if len(by_order) > 1:
                rows.append(
                    (
                        *(order.value, f"{load.partitions}", f"{load.window}", f"{len(ones)}"),
                        *(f"{rate:,.0f}" if rate else NONE, ratio, _state(reasons)),
                    )
                )
    head = ("order", "partitions", "window", "runs", "messages/s, median", "to PARTITION", "state")
    return Table("Orders of one producer", head, tuple(rows), (0, len(head) - 1))


def latencies(cells: Sequence[CellResult]) -> Table:
    """Return latencies by number of destinations."""
    rows = []
    for one in cells:
        for name, told in one.latency.items():
            arrived = one.arrival.get(name)
            rows.append(
                (
                    *(one.cell.name, name, f"{one.cell.window}", f"{told.count:,}"),
                    *(*_shown(told), *_shown(arrived), _state(one.reason)),
                )
            )
    head = (
        *("cell", "destinations", "window", "messages", "told p50 ms", "p99 ms", "max ms"),
        *("read p50 ms", "p99 ms", "max ms", "state"),
    )
    notes = (
        "Told: from sending to the answer that a message is delivered at all its destinations. Read: until a consumer has "
        "it. Within a window, both contain the wait behind the messages before.",
    )
    return Table("Latency", head, tuple(rows), (0, len(head) - 1), notes)


def _shown(found: Summary | None) -> tuple[str, str, str]:
    if found is None or not found.count:
        return (NONE, NONE, NONE)
    return (f"{found.percentiles['50']:.2f}", f"{found.percentiles['99']:.2f}", f"{found.max_ms:.1f}")


def accounting(cells: Sequence[CellResult]) -> Table:
    """Return records of the thesis' algorithm for the same messages beside what was logged and sent here."""
    rows = []
    for one in cells:
        if not one.messages:
            continue
        counts = one.counts

        def per(count: int | None, messages: int = one.messages) -> str:
            return NONE if count is None else f"{count / messages:.3f}"

        rows.append(
            (
                *(one.cell.name, f"{one.messages:,}", f"{one.multicasts:,}", f"{one.delivered:,}"),
                *(f"{one.thesis_records:,}", f"{one.thesis_records / one.messages:.2f}"),
                *(per(counts.entries), per(counts.commands), per(counts.bundles), per(counts.edges)),
                _state(one.reason),
            )
        )
    head = (
        *("cell", "messages", "to several", "deliveries", "thesis' records", "per message"),
        *("entries per message", "commands", "bundles", "edges", "state"),
    )
    notes = (
        "Thesis: 3 records for a message to one topic, 35 for one to five (its optimised algorithm). Here: entries of the "
        "groups' logs, commands in them, and bundles between servers, which carry many messages each.",
    )
    return Table("Accounting", head, tuple(rows), (0, len(head) - 1), notes, _failed_of(cells))


def steps(results: MulticastResults) -> Table:
    """Return the steps of a message that is alone, as the logs show them, beside its time."""
    alone = {
        one.cell.fanout if one.cell.share else 1: one
        for one in results.cells
        if one.ok and one.cell.window == 1
    }
    rows = []
    for one in results.genuine:
        cell = alone.get(one.fanout)
        k = one.fanout
        rows.append(
            (
                *(f"{k}", f"{one.commits}", f"{one.steps}", f"{one.per_message:.2f}"),
                *(f"{k * (k - 1)} to {one.bound}", _bundles(one)),
                *_shown(None if cell is None else cell.latency.get(str(k)))[:2],
                _state(one.reason),
            )
        )
    head = (
        *(
            "destinations",
            "commits one after the other",
            "steps",
            "proposals between groups",
            "k(k-1) to k(k-1)+k",
        ),
        *("bundles", "told p50 ms", "p99 ms", "state"),
    )
    notes = (
        "Steps at the leaders: the request, two for each commit, and what one leader says to another between two commits. "
        "Read from the logs of the groups, message by message. Bundles: all that leaders on different servers said to each "
        "other for each message; confirmations, floors and repeats included.",
    )
    return Table(
        "Steps of a message that is alone", head, tuple(rows), (8,), notes, _failed_of(results.genuine)
    )


def _bundles(one: GenuineResult) -> str:
    sent = [server.sent for server in one.servers]
    return f"{sum(sent) / one.messages:.2f}" if one.messages and sent and min(sent) >= 0 else NONE


def genuineness(results: MulticastResults) -> Table:
    """Return every group's log and every server's group traffic, addressed or not."""
    rows: list[tuple[str, ...]] = []
    failed: set[int] = set()
    for one in results.genuine:
        first = len(rows)
        what = f"{one.fanout} of {one.topics}"
        for group in one.groups:
            yes = "yes" if group.addressed else "no"
            counts = (group.entries, group.starts, group.remotes, group.others)
            rows.append((what, "group", group.name, yes, *(f"{n:,}" for n in counts), NONE, NONE))
        for server in one.servers:
            yes = "yes" if server.hosts else "no"
            rows.append(
                (what, "server", server.name, yes, *([NONE] * 4), f"{server.sent:,}", f"{server.received:,}")
            )
        if not one.ok:
            failed.update(range(first, len(rows)))
    head = (
        *("messages to", "what", "name", "addressed", "entries", "START", "REMOTE", "other commands"),
        *("bundles sent", "received"),
    )
    notes = tuple(
        f"{one.messages:,} messages to {one.fanout} of {one.topics} topics: {_state(one.reason)}"
        for one in results.genuine
    )
    return Table("Whom a message touches", head, tuple(rows), (0, 1, 2, 3), notes, frozenset(failed))


def streams(results: MulticastResults) -> Table:
    """Return the table of streams; topics are compared with the log of the same size of messages."""
    rows = []
    logs = {one.value_bytes: one.per_second for one in results.streams if one.target == "log" and one.ok}
    for one in results.streams:
        base = logs.get(one.value_bytes)
        rows.append(
            (
                *(one.target, f"{one.partitions}", f"{one.value_bytes:,}", f"{one.messages:,}"),
                *(f"{one.elapsed_s:.1f}", f"{one.per_second:,.0f}", f"{one.mb_per_second:.2f}"),
                *_shown(one.latency)[:2],
                f"{one.per_second / base:.2f}x" if base and one.ok and one.target != "log" else NONE,
                _state(one.reason),
            )
        )
    head = (
        *("target", "partitions", "bytes", "messages", "s", "messages/s", "MB/s", "p50 ms", "p99 ms"),
        *("to a znode log", "state"),
    )
    notes = (
        "Produced, replicated, and read by consumers; a znode log is the client's append with a reader that follows it.",
    )
    return Table(
        "Streams of one topic", head, tuple(rows), (0, len(head) - 1), notes, _failed_of(results.streams)
    )


def _state(reason: str) -> str:
    return f"failed: {reason}" if reason else "ok"


def _failed_of(results: Sequence[CellResult | GenuineResult | StreamResult]) -> frozenset[int]:
    return frozenset(n for n, one in enumerate(results) if not one.ok)
