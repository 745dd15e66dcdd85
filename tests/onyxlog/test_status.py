"""The picture that `onyxlog status` shows, and the commands' errors."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner

from onyxlog.errors import OnyxlogError
from onyxlog.job_status import JobState, job_status
from onyxlog.main import main
from onyxlog.observing import LastingObserver
from onyxlog.peer.log.port import LogBounds, LogPort, Silence, first_origin
from onyxlog.peer.publishing import Published
from onyxlog.peer_command import _advertised
from onyxlog.replica.replica import JoinMode, Parameters, PeerState, Replica, SubmittedJob, VirtualPeer
from onyxlog.replica.table import Table
from onyxlog.scheduling.requirements import JobRequirements, TaskRequirements
from onyxlog.status import Agreement, FleetStatus, Progress, as_json, is_closed, picture, ring_of
from onyxlog.status_view import EXIT_DIFFERENT, listing_of, moment, span
from tests.onyxlog.simulation.memory_log import MemoryLog, MemoryPort
from zraft.cli.listings.listing_options import rendered
from zraft_client.errors import SessionExpiredError
from zraft_core.address import Address
from zraft_core.fleets import (
    AuditReport,
    GossipReport,
    GroupReport,
    JobReport,
    RuleVerdict,
    WorkerReport,
)


def a_ring(*groups: str) -> Replica:
    """Each watches the next, the last the first."""
    pairs = dict(zip(groups, (*groups[1:], groups[0]), strict=True)) if len(groups) > 1 else {}
    return Replica(
        parameters=Parameters(join=JoinMode.RING),
        version=7,
        groups=Table(dict.fromkeys(groups, 0)),
        pairs=Table(pairs),
        peers=Table({f"{group}.0": VirtualPeer(group, f"{group}:1") for group in groups}),
    )


def text_of(status: FleetStatus, width: int = 160, now_ms: int = 0) -> str:
    """Return what people are shown."""
    return rendered(listing_of(status, now_ms).parts, width)


def test_groups_are_shown_in_the_order_of_the_ring() -> None:
    replica = a_ring("c", "a", "d", "b")
    assert ring_of(replica) == ("a", "d", "b", "c")
    shown = picture(replica, LogBounds(0, 8), (), {})
    assert [(row.group, row.watches) for row in shown.groups] == [
        ("a", "d"),
        ("d", "b"),
        ("b", "c"),
        ("c", "a"),
    ]
    assert shown.ring_closed


def test_a_ring_that_leaves_somebody_out_is_open_and_all_groups_are_shown() -> None:
    replica = a_ring("a", "b", "c")
    for pairs in (
        {"a": "b", "b": "a"},
        {"a": "b", "b": "a", "c": "c"},
        {"a": "b", "b": "c", "c": "b"},
        {"a": "b"},
    ):
        broken = Replica(parameters=replica.parameters, groups=replica.groups, pairs=Table(pairs))
        assert not is_closed(broken)
        assert {row.group for row in picture(broken, LogBounds(0, 1), (), {}).groups} == {"a", "b", "c"}
    assert is_closed(a_ring("a"))
    assert is_closed(a_ring("a", "b"))


def test_a_digest_that_differs_is_told_and_one_at_an_unknown_position_is_not_judged() -> None:
    published = (Published("a", 7, b"right"), Published("b", 6, b"other"), Published("c", 3, b"?"))
    shown = picture(a_ring("a", "b", "c", "d"), LogBounds(5, 10), published, {6: b"right6", 7: b"right"})
    assert [(row.agreement, row.behind) for row in shown.groups] == [
        (Agreement.SAME, 2),
        (Agreement.DIFFERENT, 3),
        (Agreement.UNKNOWN, 6),
        (Agreement.UNKNOWN, None),
    ]
    assert not shown.agreed
    text = text_of(shown)
    assert "REPLICAS DIFFER: 1 computed" in text
    assert "ring closed" in text
    assert listing_of(shown, 0).exit_code == EXIT_DIFFERENT
    assert listing_of(evolve(shown, groups=shown.groups[:1]), 0).exit_code == 0
    assert json.loads(json.dumps(as_json(shown)))["groups"][1]["agreement"] == "different"


def test_a_group_that_may_be_dead_is_shown_with_when_it_was_heard_of() -> None:
    silences = {"a": Silence(0.4, 10.0), "b": Silence(7.25, 10.0), "c": Silence(None, 10.0)}
    shown = picture(a_ring("a", "b", "c", "d"), LogBounds(0, 8), (), {}, silences)
    assert [row.silent for row in shown.groups] == [False, True, False, False]
    text = text_of(shown)
    lines = {words[0]: " ".join(words) for line in text.splitlines() if (words := line.split())}
    assert "1 SILENT, perhaps dead" in text
    assert lines["a"].startswith("a 0.4 s ago 0/1 ")
    assert lines["b"].startswith("b 7.2 s of 10 0/1 ")
    assert lines["c"].startswith("c - 0/1 ")
    assert lines["d"].startswith("d - 0/1 ")
    rows = as_json(shown)["groups"]
    assert [row["heard_s_ago"] for row in rows] == [0.4, 7.25, None, None]
    assert [row["session_timeout_s"] for row in rows] == [10.0, 10.0, 10.0, None]
    assert [row["silent"] for row in rows] == [False, True, False, False]


def test_a_job_that_waits_is_shown_with_what_it_waits_for() -> None:
    tasks = (TaskRequirements("in", min_peers=2), TaskRequirements("out", min_peers=2))
    job = SubmittedJob(JobRequirements("waits", b"", tasks), 5)
    replica = evolve(a_ring("a", "b", "c"), jobs=Table({"waits": job}))
    assert job_status(replica, "waits").reason == "needs 4 virtual peers, 3 are there"
    shown = picture(replica, LogBounds(0, 8), (), {})
    (row,) = shown.jobs
    assert (row.state, row.reason) == (JobState.WAITING, "needs 4 virtual peers, 3 are there")
    assert "needs 4 virtual peers, 3 are there" in text_of(shown)
    assert as_json(shown)["jobs"][0]["reason"] == row.reason


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["peer", "--name", "no/slash"], 2, "--name: found 'no/slash'"),
        (["peer", "--connect", "nowhere"], 2, "--connect: found 'nowhere'"),
        (["peer", "--advertise", "no where"], 2, "--advertise: found 'no where:1'"),
        (["peer", "--advertise", "fd00::7"], 2, "(an IPv6 address goes in brackets)"),
        (["peer", "--address", "nowhere"], 2, "--address: found 'nowhere'"),
        (["peer", "--groups", "2", "--address", "127.0.0.1:4000"], 2, "expected port 0"),
        (["peer", "--groups", "2", "--advertise", "zk1:4000"], 2, "expected zk1 without a port"),
        (["peer", "--service", "zookeeper"], 2, "--join: found direct"),
        (["peer", "--key", "/nowhere/key"], 2, "cannot open the key file"),
        (["status", "--tenancy", "a/b"], 2, "tenancy"),
        (["submit-job", "nothing.toml"], 2, "nothing.toml"),
    ],
)
def test_what_a_command_cannot_use_is_told_with_its_name(
    arguments: list[str], code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    assert told in result.output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("zk1", Address("zk1", 0)),
        ("10.0.0.7:4000", Address("10.0.0.7", 4000)),
        ("[fd00::7]", Address("fd00::7", 0)),
        ("[fd00::7]:4000", Address("fd00::7", 4000)),
    ],
)
def test_what_is_advertised_is_a_host_with_or_without_a_port(text: str, told: Address) -> None:
    assert _advertised(text) == told


def test_a_service_whose_client_is_not_installed_is_told_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "kazoo"]:
        monkeypatch.delitem(sys.modules, module)
    for module in ("onyxlog.peer.log.zookeeper", "onyxlog.peer.log.kazoo_session"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [_WithoutKazoo(), *sys.meta_path])
    result = CliRunner().invoke(main, ["status", "--service", "zookeeper"])
    assert result.exit_code == 2, result.output
    assert "pip install 'zraft[zookeeper]'" in result.output


class _WithoutKazoo:
    """A finder for a Python in which it is not installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == "kazoo":
            raise ModuleNotFoundError(f"No module named {name!r}", name="kazoo")


def a_job_that_runs() -> Replica:
    tasks = (TaskRequirements("lines"), TaskRequirements("count"))
    job = SubmittedJob(JobRequirements("words", b"", tasks), 5)
    return evolve(
        a_ring("a", "b", "c"),
        jobs=Table({"words": job}),
        allocations=Table({("words", "lines"): ("a.0", "b.0"), ("words", "count"): ("c.0",)}),
        slots=Table(
            {("words", "lines", "a.0"): 0, ("words", "lines", "b.0"): 1, ("words", "count", "c.0"): 0}
        ),
        peer_states=Table(dict.fromkeys(("a.0", "b.0", "c.0"), PeerState.ACTIVE)),
        allocation_versions=Table({"words": 6}),
    )


def reported(group: str, task: str, slot: int, **told: int) -> GroupReport:
    worker = WorkerReport(f"{group}.0", "words", task, slot, **told)
    jobs = (JobReport("words", "running", 5, NOW_MS - 90_000),) if group == "a" else None
    return GroupReport(group, NOW_MS, 7, 5_000, workers=(worker,), jobs=jobs)


NOW_MS = 1_700_000_000_000
REPORTS = (
    reported(
        "a",
        "lines",
        0,
        since_ms=NOW_MS - 60_000,
        segments=90,
        recent=50,
        done=300,
        total=1_000,
        recent_done=200,
    ),
    reported(
        "b",
        "lines",
        1,
        since_ms=NOW_MS - 70_000,
        segments=10,
        recent=5,
        done=200,
        total=1_000,
        recent_done=50,
    ),
    reported("c", "count", 0, since_ms=NOW_MS - 50_000, segments=7, recent=0),
)


def test_progress_is_the_sum_of_what_workers_report_and_what_is_left_follows_from_the_rate() -> None:
    shown = picture(a_job_that_runs(), LogBounds(0, 8), (), {}, reports=REPORTS)
    (row,) = shown.jobs
    assert row.since_ms == NOW_MS - 90_000
    lines, count = row.tasks
    assert lines.since_ms == NOW_MS - 70_000
    assert lines.progress == Progress(100, 11.0, 500, 2_000, 30.0)
    assert count.progress == Progress(7, 0.0)
    assert [(one.published, one.behind) for one in shown.groups] == [(7, 0)] * 3
    told = as_json(shown)["jobs"][0]
    assert told["tasks"]["lines"][1] == {"peer": "b.0", "slot": 1, "state": "active"}
    assert told["progress"]["lines"]["left_s"] == 30.0
    assert json.loads(json.dumps(told))["progress"]["count"]["total"] is None
    text = text_of(shown, now_ms=NOW_MS)
    assert "25 %" in text
    assert "30 s" in text
    assert "b.0" in text


def test_what_is_done_is_not_claimed_while_a_worker_has_not_reported() -> None:
    shown = picture(a_job_that_runs(), LogBounds(0, 8), (), {}, reports=REPORTS[:1])
    lines, count = shown.jobs[0].tasks
    assert lines.progress == Progress(90, 10.0)
    assert count.progress is None


def test_peers_of_a_release_without_reports_show_times_of_the_entries_that_were_played() -> None:
    shown = picture(a_job_that_runs(), LogBounds(0, 8), (), {}, times={5: NOW_MS - 9_000, 6: NOW_MS - 8_000})
    (row,) = shown.jobs
    assert row.since_ms == NOW_MS - 9_000
    assert {task.since_ms for task in row.tasks} == {NOW_MS - 8_000}
    assert [group.reported_ms for group in shown.groups] == [None] * 3
    (row,) = picture(a_job_that_runs(), LogBounds(0, 8), (), {}).jobs
    assert row.since_ms is None
    assert "entry 5" in text_of(evolve(shown, jobs=(row,)), now_ms=NOW_MS)


def test_everything_fits_80_columns_and_is_whole_in_json() -> None:
    gossip = GossipReport(123_456, 1_000, 2_345, 67_890, 3_456, 12_345_678, 23_456_789)
    silences = {group: Silence(7.25, 10.0) for group in ("a", "b", "c")}
    audit = AuditReport(NOW_MS, "servers", "1", 60, (RuleVerdict("S1", "votes", "broken", 2),))
    shown = picture(
        a_job_that_runs(),
        LogBounds(0, 12_345_678),
        (Published("a", 7, bytes(16)),),
        {7: bytes(16)},
        silences,
        reports=[evolve(one, gossip=gossip) for one in REPORTS],
        audit=audit,
    )
    long = "worker-07.example.org-0123456789abcdef"
    groups = tuple(
        evolve(row, group=f"{long}-{row.group}", sites=("10.0.0.7:41234",)) for row in shown.groups
    )
    text = text_of(evolve(shown, groups=groups), 80, NOW_MS + 86_400_000)
    assert max(map(len, text.splitlines())) <= 80
    assert "gossip: 98 % of 377,403 entries came from peers" in text
    assert "BROKEN: S1; 1 of 1 rules had data" in text
    told = as_json(shown)
    assert told["audit"]["verdict"] == "broken"
    assert told["groups"][0]["gossip"]["redundant"] == 67_890


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0 s"), (59.9, "59 s"), (61, "1 min 1 s"), (7_260, "2 h 1 min"), (200_000, "2 d")],
)
def test_spans_have_their_largest_units(seconds: float, told: str) -> None:
    assert span(seconds) == told


def test_moments_are_short_and_no_clock_is_beyond_them() -> None:
    assert moment(NOW_MS, NOW_MS + 1_000) == "22:13:20Z"
    assert moment(NOW_MS, NOW_MS + 86_400_000) == "11-14 22:13Z"
    assert moment(NOW_MS, NOW_MS + 400 * 86_400_000) == "2023-11-14"
    assert moment(2**63, NOW_MS) == f"{2**63} ms"


def test_a_look_that_takes_too_long_is_given_up_and_says_which_option_bounds_it() -> None:
    async def never() -> LogPort:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    observer = LastingObserver(never, 0.02)
    with pytest.raises(OnyxlogError, match=r"within 0\.02 s \(--timeout\)"):
        observer.look()
    observer.close()


def test_an_observer_stays_connected_between_looks_and_connects_anew_after_a_failed_one() -> None:
    log = MemoryLog(newest_origin=first_origin(Parameters()))
    opened: list[MemoryPort] = []

    async def open_port() -> LogPort:
        opened.append(log.open())
        return opened[-1]

    observer = LastingObserver(open_port, 60)
    assert observer.look().groups == observer.look().groups == ()
    assert len(opened) == 1
    asyncio.run_coroutine_threadsafe(expired(log, opened[0]), observer._loop).result()
    with pytest.raises(SessionExpiredError):
        observer.look()
    assert observer.look().peers == 0
    assert len(opened) == 2
    observer.close()
    assert not log.ports, "its session is over"


async def expired(log: MemoryLog, port: MemoryPort) -> None:
    log.expire(port)
