"""Counts, logs and tables of multicast: what is judged, what is shown, what stands beside the atomic_kafka."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner

from onyxlog.theses import atomic_kafka
from tests.bench.test_multicast_load import CELL, run
from tests.bench.test_results import a_run
from zraft_bench.main import main
from zraft_bench.multicast import command as multicast_command
from zraft_bench.multicast import genuine as multicast_genuine
from zraft_bench.multicast import tables as multicast_tables
from zraft_bench.multicast.counts import counts_between
from zraft_bench.multicast.logs import Footprint, GroupLog, footprint, logs_of, longest
from zraft_bench.multicast.plan import (
    Cell,
    latency_cells,
    order_cells,
    records_cells,
    stream_cells,
    thesis_cells,
)
from zraft_bench.multicast.process import LOG, TOPICS
from zraft_bench.multicast.results import (
    CellResult,
    Counts,
    GenuineResult,
    MulticastResults,
    PlaceResult,
    StreamResult,
    TouchedGroup,
    TouchedServer,
    failed,
)
from zraft_bench.multicast.run import limit_s, orders_for
from zraft_bench.multicast.streams import stream_of, targets_of
from zraft_bench.report import html as html_report
from zraft_bench.report import plots
from zraft_bench.result_files import ResultFile, load_run
from zraft_bench.results import Run

# -- what servers count


def test_counts_are_the_growth_of_all_servers_together() -> None:
    before = {"a": {"groups_entries_total": "5"}, "b": {"groups_entries_total": "7"}}
    after = {"a": {"groups_entries_total": "15"}, "b": {"groups_entries_total": "7"}}
    assert counts_between(before, after) == Counts(entries=10)


def test_a_server_that_does_not_tell_or_began_anew_gives_no_count() -> None:
    before = {"a": {"groups_entries_total": "5"}, "b": {}}
    after = {"a": {"groups_entries_total": "15"}, "b": {"groups_entries_total": "1"}}
    assert counts_between(before, after).entries is None
    assert (
        counts_between({"a": {"groups_entries_total": "5"}}, {"a": {"groups_entries_total": "3"}}).entries
        is None
    )


# -- logs


def entry(group: int, index: int, *commands: dict[str, object]) -> dict[str, object]:
    return {"record": "entry", "group": group, "index": index, "commands": list(commands)}


def start(producer: int, number: int) -> dict[str, object]:
    return {"command": "start", "id": [producer, number]}


def remote(producer: int, number: int, sender: int) -> dict[str, object]:
    return {"command": "remote", "id": [producer, number], "sender": sender}


TWO = [
    entry(7, 2, start(5, 1)),
    entry(7, 3, remote(5, 1, 8)),
    entry(8, 2, start(5, 1)),
    entry(8, 3, remote(5, 1, 7), {"command": "advance", "time": 9}),
    entry(9, 2, {"command": "view"}),
    entry(9, 3, start(4, 1)),
    {"record": "hard_state", "group": 0},
]
NAMES = {7: "t0", 8: "t1", 9: "t2"}


def test_the_footprint_of_a_producers_messages_is_read_from_all_logs() -> None:
    found = footprint(logs_of(TWO), 5, {7: "t0", 8: "t1"}, NAMES)
    assert (found.messages, found.exchanged, found.commits, found.strangers) == (1, 2, 2, [])
    assert found.groups == [
        TouchedGroup(name="t0", addressed=True, entries=2, starts=1, remotes=1, others=0),
        TouchedGroup(name="t1", addressed=True, entries=2, starts=1, remotes=1, others=1),
        TouchedGroup(name="t2", addressed=False, entries=0, starts=0, remotes=0, others=1),
    ]
    single = footprint(logs_of(TWO), 4, {9: "t2"}, NAMES)
    assert (single.messages, single.exchanged, single.commits) == (1, 0, 1)


def test_a_group_that_logs_what_is_not_addressed_to_it_is_a_stranger() -> None:
    found = footprint(logs_of([*TWO, entry(9, 4, remote(5, 1, 7))]), 5, {7: "t0", 8: "t1"}, NAMES)
    assert found.strangers == ["t2"]


def test_what_was_truncated_does_not_count_and_the_longest_log_does() -> None:
    one = logs_of(
        [
            entry(7, 1, start(5, 1)),
            entry(7, 2, start(5, 2)),
            {"record": "truncate", "group": 7, "from_index": 2},
        ]
    )
    assert list(one[7].entries) == [1]
    other = logs_of([entry(7, 1), entry(7, 2), entry(7, 3)])
    assert longest([one, other])[7] is other[7]
    assert longest([other, one])[7] is other[7]
    assert isinstance(one[7], GroupLog)


def server(name: str, *, hosts: bool, sent: int = 0, received: int = 0) -> TouchedServer:
    return TouchedServer(name=name, hosts=hosts, sent=sent, received=received)


@pytest.mark.parametrize(
    ("found", "servers", "complaint"),
    [
        (Footprint([], 10, 20, 2), [server("a", hosts=True, sent=9)], ""),
        (Footprint([], 9, 20, 2), [], "the logs show 9"),
        (Footprint([], 10, 20, 2, ["t9"]), [], "not addressed to: t9"),
        (Footprint([], 10, 20, 2), [server("a", hosts=False, received=1)], "no replica of a destination: a"),
        (Footprint([], 10, 20, 2), [server("a", hosts=False, sent=-1)], "does not tell"),
        (Footprint([], 10, 41, 2), [], "4.10 messages between groups for each, expected at most 4"),
    ],
)
def test_what_is_not_genuine_or_not_minimal_is_found(
    found: Footprint, servers: list[TouchedServer], complaint: str
) -> None:
    """4.9: k(k - 1) + k."""
    result = multicast_genuine.judged(2, 10, found, servers)
    assert result.ok == (not complaint)
    assert complaint in result.reason
    assert result.steps == 6


def test_the_traffic_of_a_server_is_what_grew() -> None:
    names = ("groups_bundles_sent_total", "groups_bundles_received_total")
    found = multicast_genuine.touched(3, False, dict.fromkeys(names, "4"), {names[0]: "4", names[1]: "9"})
    assert (found.name, found.sent, found.received) == ("server 3", 0, 5)
    assert multicast_genuine.touched(3, False, {}, {}).sent == -1


# -- orders


def test_producers_and_consumers_have_processes_of_their_own_if_there_are_several() -> None:
    cell = Cell(name="x")
    one = orders_for(cell, "h:1", 1, "p", 1)
    assert [(order.producers, order.places) for order in one] == [((0, 1), (0, 1, 2, 3, 4))]
    two = orders_for(cell, "h:1", 1, "p", 2)
    assert [(order.producers, order.places) for order in two] == [((0, 1), ()), ((), (0, 1, 2, 3, 4))]
    eight = orders_for(cell, "h:1", 1, "p", 8)
    assert sorted(p for order in eight for p in order.producers) == [0, 1]
    assert sorted(p for order in eight for p in order.places) == [0, 1, 2, 3, 4]
    assert all(order.producers or order.places for order in eight)
    assert limit_s(evolve(cell, sleep_ms=5.0)) > limit_s(cell) > cell.seconds + cell.deadline_s


def test_a_log_of_znodes_stands_beside_the_topic_with_one_partition() -> None:
    cells = stream_cells(Cell(name="base"))
    assert [(one.partitions, one.value_bytes) for one in cells] == [(1, 100), (8, 100), (1, 1000), (8, 1000)]
    assert [targets_of(one) for one in cells[:2]] == [(LOG, TOPICS), (TOPICS,)]


# -- tables


@cache
def results() -> MulticastResults:
    _, _, measured, _ = run(CELL)
    cells = []
    for n, cell in enumerate(thesis_cells(Cell(name="base"))):
        places = tuple(
            PlaceResult(topic=t, partition=0, delivered=1000, per_second=1000.0 / (1 + n)) for t in range(5)
        )
        cells.append(
            evolve(
                measured,
                cell=cell,
                places=places,
                elapsed_s=1.0 + n,
                counts=Counts(entries=900, commands=5, bundles=40),
            )
        )
    alone = [
        evolve(measured, cell=cell, latency={str(k): measured.latency["1"]})
        for k, cell in zip((1, 2, 5), latency_cells(Cell(name="base")), strict=True)
    ]
    bad = failed(Cell(name="<b>bad</b>"), 3, "the order differs")
    genuine = GenuineResult(
        topics=10,
        fanout=2,
        messages=50,
        groups=(TouchedGroup(name="t0", addressed=True, entries=100, starts=50, remotes=50, others=3),),
        servers=(server("server 4", hosts=False),),
        per_message=2.0,
        bound=4,
        commits=2,
    )
    streams = (
        StreamResult(target=LOG, partitions=1, value_bytes=100, messages=10, per_second=500.0),
        StreamResult(target=TOPICS, partitions=8, value_bytes=100, messages=10, per_second=1000.0),
        stream_of(evolve(measured, reason="nobody reads"), TOPICS),
    )
    return MulticastResults(cells=(*cells, *alone, bad), genuine=(genuine,), streams=streams)


def table(title: str, found: MulticastResults | None = None) -> multicast_tables.Table:
    return next(one for one in multicast_tables.tables_of(found or results()) if one.title.startswith(title))


def test_each_topic_stands_beside_its_published_rate() -> None:
    rows = table("Beside the AtomicKafka").rows
    assert len(rows) == 6 * 6, (
        "five topics and a mean for each of the six tables; 0 % of two producers was not published"
    )
    assert rows[0] == ("baseline, five producers", "5.1", "1", "90.9", "1,000.0", "11x")
    assert rows[11] == (
        "10%",
        "5.2",
        "mean",
        f"{atomic_kafka.SCENARIOS[1].mean_delivered:.1f}",
        "333.3",
        "35x",
    )


def test_what_several_destinations_cost_is_beside_0_percent_of_the_same_producers() -> None:
    found = table("Deliveries per topic")
    cost = found.head.index("cost")
    by_name = {row[0]: row for row in found.rows}
    assert by_name["0%"][cost] == "1.00x"
    assert by_name["50%"][cost] == "3.50x"
    assert by_name["baseline, five producers"][cost] == "-", "other producers, another load"


def test_failed_cells_have_no_figures_and_are_marked() -> None:
    found = table("Deliveries per topic")
    at = next(n for n, row in enumerate(found.rows) if "bad" in row[0])
    assert at in found.failed
    assert found.rows[at][-1] == "failed: the order differs"
    assert found.rows[at][4:9] == ("-",) * 5
    streams = table("Streams of one topic")
    assert 2 in streams.failed
    assert "bad" not in str(table("Beside the AtomicKafka").rows)


def test_steps_come_from_the_logs_and_latency_from_messages_that_are_alone() -> None:
    (row,) = table("Steps").rows
    assert row[:6] == ("2", "2", "6", "2.00", "2 to 4", "0.00")
    assert float(row[6]) > 0


def test_records_of_the_thesis_stand_beside_what_was_logged_here() -> None:
    found = table("Accounting")
    row = found.rows[0]
    assert row[found.head.index("entries per message")] == "1.500"
    assert row[found.head.index("edges")] == "-", "not counted is not 0"


def test_each_order_stands_beside_partition_order_by_the_median_of_its_runs() -> None:
    _, _, measured, _ = run(CELL)
    rates = {"partition": (100, 300, 200), "fifo": (90, 150, 800), "causal": (100, 10, 20)}
    cells = [
        evolve(
            measured,
            cell=cell,
            places=(),
            messages=rates[cell.order.value][int(cell.name[-1]) - 1],
            elapsed_s=1.0,
        )
        for cell in order_cells(Cell(name="base"))
    ]
    found = table("Orders of one producer", MulticastResults(cells=tuple(cells)))
    ratio = found.head.index("to PARTITION")
    assert [(row[0], row[ratio]) for row in found.rows] == [
        ("partition", "1.00x"),
        ("fifo", "0.75x"),
        ("causal", "0.10x"),
    ]


def test_records_have_medians_of_sending_and_of_reading_and_are_in_no_table_of_mixes() -> None:
    _, _, measured, _ = run(CELL)
    cell = records_cells(Cell(name="base"))[0]
    cells = [
        evolve(
            measured,
            cell=cell,
            messages=n * 100_000,
            elapsed_s=2.0,
            read_s=4.0,
            servers_us=7.0,
            generator_us=6.0,
        )
        for n in (3, 1, 2)
    ]
    tables = list(multicast_tables.tables_of(MulticastResults(cells=tuple(cells))))
    assert [one.title for one in tables] == ["Records"]
    (row,) = tables[0].rows
    assert row[:7] == (cell.name, "3", "100,000", "50,000 - 150,000", "10.0", "7.0", "6.0")
    assert row[tables[0].head.index("then read/s")] == f"{measured.delivered / 4.0:,.0f}"


def test_streams_are_compared_with_the_log_of_the_same_size() -> None:
    found = table("Streams of one topic")
    assert found.rows[1][found.head.index("to a znode log")] == "2.00x"


def test_sleeping_cells_have_no_rates() -> None:
    slept = MulticastResults(
        cells=tuple(evolve(one, cell=evolve(one.cell, sleep_ms=5.0)) for one in results().cells[:2])
    )
    assert [one.title for one in multicast_tables.tables_of(slept)] == ["Latency", "Accounting"]


# -- the file, the page, the plots, the command


def a_multicast_run() -> Run:
    return evolve(a_run(), kind="multicast", tests=(), trials=(), multicast=results())


def test_results_survive_the_file(tmp_path: Path) -> None:
    file = ResultFile(tmp_path, a_multicast_run(), "one.json")
    file.save(file.run)
    again = load_run(file.path).multicast
    assert again is not None
    assert [one.title for one in multicast_tables.tables_of(again)] == [
        one.title for one in multicast_tables.tables_of(results())
    ]
    assert again.cells[0].histograms["1"].count == results().cells[0].histograms["1"].count
    assert not again.ok


def test_the_page_has_every_table_and_nothing_unescaped() -> None:
    page = html_report.page([(a_multicast_run(), {})])
    for one in multicast_tables.tables_of(results()):
        assert f"<h3>{one.title}</h3>" in page
    assert "<b>" not in page
    assert "&lt;b&gt;bad" in page
    assert "<tr class=failed>" in page


def test_plots_of_multicast_are_png() -> None:
    drawn = plots.plots_of(a_multicast_run())
    assert [plot.name for plot in drawn] == ["multicast", "multicast-latency", "topic-streams"]
    assert {plot.png[:8] for plot in drawn} == {b"\x89PNG\r\n\x1a\n"}


class NoServers:
    """In the place of a cluster: nothing is started."""

    hosts = "127.0.0.1:1"
    count = 3

    def __init__(self, *arguments: object) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def cpu_s(self) -> float | None:
        return None


@pytest.mark.parametrize("broken", [False, True])
def test_the_command_runs_all_parts_keeps_each_and_fails_if_one_did(
    broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    results()  # made in a loop of its own

    async def run_cell(cell: Cell, servers: NoServers, processes: int, target: str = TOPICS) -> CellResult:
        ran.append(cell.name)
        if broken and cell.name == "30%":
            return failed(cell, 3, "the order differs")
        found = results().cells[0]
        return evolve(found, cell=cell, places=found.places[: cell.topics])

    async def run_stream(cell: Cell, servers: NoServers, processes: int, target: str) -> StreamResult:
        ran.append(f"{target} {cell.name}")
        return results().streams[0]

    async def run_genuine(cluster: NoServers) -> list[GenuineResult]:
        return list(results().genuine)

    monkeypatch.setattr(multicast_command, "LocalCluster", NoServers)
    monkeypatch.setattr(multicast_command, "run_cell", run_cell)
    monkeypatch.setattr(multicast_command, "run_stream", run_stream)
    monkeypatch.setattr(multicast_command, "run_genuine", run_genuine)
    done = CliRunner().invoke(main, ["multicast", "--out", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == (1 if broken else 0), done.output
    assert len(ran) == 7 + 3 + 6 + 9 + 7
    (path,) = tmp_path.glob("result_*_multicast.json")
    kept = load_run(path).multicast
    assert kept is not None
    assert (len(kept.cells), len(kept.genuine), len(kept.streams)) == (26, 1, 6)
    assert "Beside the AtomicKafka thesis" in done.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--connect", "127.0.0.1:1", "--set", "a=b"), "drop --set"),
        (("--connect", "127.0.0.1:1", "--part", "genuine"), "drop --connect"),
        (("--share", "1.5"), "--share"),
        (("--window", "2000"), "--batch-bytes"),
        (("-d", "5"), "-d"),
    ],
)
def test_contradictions_are_refused(arguments: tuple[str, ...], complaint: str) -> None:
    done = CliRunner().invoke(main, ["multicast", *arguments])
    assert done.exit_code == 2
    assert complaint in done.output
