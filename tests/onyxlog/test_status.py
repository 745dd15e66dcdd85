"""The picture that `onyxlog status` shows, and the commands' errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner
from rich.console import Console

from onyxlog.job_status import JobState, job_status
from onyxlog.main import main
from onyxlog.peer.log.port import LogBounds, Silence
from onyxlog.peer.publishing import Published
from onyxlog.peer_command import _advertised
from onyxlog.replica.replica import JoinMode, Parameters, Replica, SubmittedJob, VirtualPeer
from onyxlog.replica.table import Table
from onyxlog.scheduling.requirements import JobRequirements, TaskRequirements
from onyxlog.status import Agreement, as_json, is_closed, picture, ring_of
from onyxlog.status_view import view
from zraft_core.address import Address


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
    console = Console(width=160)
    with console.capture() as captured:
        console.print(view(shown))
    text = captured.get()
    assert "REPLICAS DIFFER" in text
    assert "ring closed" in text
    assert json.loads(json.dumps(as_json(shown)))["groups"][1]["agreement"] == "different"


def test_a_group_that_may_be_dead_is_shown_with_when_it_was_heard_of() -> None:
    silences = {"a": Silence(0.4, 10.0), "b": Silence(7.25, 10.0), "c": Silence(None, 10.0)}
    shown = picture(a_ring("a", "b", "c", "d"), LogBounds(0, 8), (), {}, silences)
    assert [row.silent for row in shown.groups] == [False, True, False, False]
    console = Console(width=160)
    with console.capture() as captured:
        console.print(view(shown))
    lines = {words[0]: " ".join(words) for line in captured.get().splitlines() if (words := line.split())}
    assert "   1 silent" in captured.get()
    assert lines["a"].startswith("a 0.4 s ago b ")
    assert lines["b"].startswith("b 7.2 s ago (timeout 10 s) c ")
    assert lines["c"].startswith("c - d ")
    assert lines["d"].startswith("d - a ")
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
    console = Console(width=160)
    with console.capture() as captured:
        console.print(view(shown))
    assert "needs 4 virtual peers, 3 are there" in captured.get()
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
