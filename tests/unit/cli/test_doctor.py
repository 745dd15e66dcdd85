"""`zraft doctor`: what follows from what was seen, which exit code that is, and what a file on this machine shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from click.testing import CliRunner

from zraft.cli.doctor.doctor_command import exit_code, listing_of
from zraft.cli.doctor.exposure_rules import EXPOSURE_RULES, HARMLESS
from zraft.cli.doctor.findings import DAY_S, Finding, Severity, judged
from zraft.cli.doctor.health_rules import HEALTH_RULES
from zraft.cli.doctor.looking import file_sight
from zraft.cli.doctor.sights import Disk, FileSight, ServerSight, Sights
from zraft.cli.listings.listing_options import rendered
from zraft.cli.main import main
from zraft.config.sections import FOUR_LETTER_WORDS_DEFAULT
from zraft.transport.keys import create_key_file

NOW_S = 1_800_000_000.0
NUMBERS = {"raft_applied_index": "9", "raft_voters": "3", "raft_members": "3"}


def server(number: int, mode: str | None = "follower", **changes: Any) -> ServerSight:
    more: Mapping[str, Any] = changes.pop("numbers", {})
    seen = ServerSight(
        name=f"10.0.0.{number}:2181",
        mode=mode,
        version="1",
        numbers=NUMBERS | dict(more),
        knobs={"admin": "127.0.0.1:8080", "client.connections_max": "100"},
        plain=False,
        tls=True,
        certificate_ends_s=NOW_S + 90 * DAY_S,
        clock_ahead_s=0.2,
        disk=Disk(free=50 * 2**30, size=100 * 2**30),
        log_bytes=2**27,
    )
    return evolve(seen, **changes)


HEALTHY = (server(1), server(2, "leader", numbers={"synced_followers": "2", "learners": "2"}), server(3))


def cluster(*changed: ServerSight, **changes: Any) -> Sights:
    """A healthy cluster with these servers in the places of those that have their names."""
    by_name = {one.name: one for one in HEALTHY} | {one.name: one for one in changed}
    return Sights(now_s=NOW_S, servers=tuple(by_name.values()), **changes)


def findings(sights: Sights) -> tuple[Finding, ...]:
    return judged(sights, (*HEALTH_RULES, *EXPOSURE_RULES))


def checks(sights: Sights) -> list[tuple[str, str]]:
    return [(one.severity.name.lower(), one.check) for one in findings(sights)]


def test_nothing_is_found_in_a_healthy_cluster() -> None:
    assert checks(cluster()) == []


def test_nothing_is_concluded_from_what_was_not_seen() -> None:
    blind = [ServerSight(name=f"s{n}", mode="leader" if n == 1 else "follower") for n in (1, 2, 3)]
    assert checks(Sights(now_s=NOW_S, servers=tuple(blind))) == []
    assert checks(Sights(now_s=NOW_S)) == []
    assert checks(Sights(now_s=NOW_S, files=(FileSight(name="f"),))) == []


def setting(**knobs: str) -> ServerSight:
    return server(1, knobs={name.replace("__", "."): value for name, value in knobs.items()} | ADMIN)


ADMIN = {"admin": "127.0.0.1:8080"}
DOWN = server(3, None, silent="no answer", numbers={})


@pytest.mark.parametrize(
    ("sights", "expected"),
    [
        (cluster(DOWN), [("error", "unreachable"), ("error", "no-spare")]),
        (cluster(server(3, None)), [("error", "not-serving"), ("error", "no-spare")]),
        (cluster(server(2, "follower")), [("error", "no-leader")]),
        (cluster(server(3, "leader")), [("error", "several-leaders")]),
        (
            Sights(
                now_s=NOW_S,
                servers=(server(1, "standalone", numbers={"raft_voters": "1", "raft_members": "1"}),),
            ),
            [("note", "one-voter")],
        ),
        (
            cluster(*(server(n, numbers={"raft_voters": "2"}) for n in (1, 3))),
            [("warning", "even-voters")],
        ),
        (Sights(now_s=NOW_S, servers=HEALTHY[1:2]), [("note", "not-all-asked")]),
        (
            cluster(server(2, "leader", numbers={"synced_followers": "1", "learners": "2"})),
            [("warning", "behind")],
        ),
        (cluster(server(1, numbers={"disk_full": "1"})), [("error", "disk-full")]),
        (cluster(server(1, disk=Disk(free=5, size=100), log_bytes=1)), [("warning", "disk-low")]),
        (cluster(server(1, disk=Disk(free=1, size=100), log_bytes=0)), [("error", "disk-low")]),
        (cluster(server(1, log_bytes=60 * 2**30)), [("warning", "log-large")]),
        (cluster(server(1, numbers={"p99_fsynctime": "80"})), [("warning", "disk-slow")]),
        (cluster(server(1, numbers={"num_alive_connections": "80"})), [("warning", "limit-near")]),
        (cluster(server(1, numbers={"num_alive_connections": "79"})), []),
        (
            cluster(
                server(1, numbers={"open_file_descriptor_count": "9", "max_file_descriptor_count": "10"})
            ),
            [("warning", "limit-near")],
        ),
        (cluster(server(1, numbers={"connection_rejected": "2"})), [("warning", "limit-reached")]),
        (
            cluster(server(1, numbers={"approximate_data_size": str(2**30), "os.memory.max": "2048"})),
            [("warning", "memory")],
        ),
        (cluster(server(1, numbers={"digest_alarms_total": "1"})), [("error", "states-differ")]),
        (cluster(server(1, numbers={"snapshots_failed_total": "1"})), [("warning", "snapshots-fail")]),
        (cluster(server(1, numbers={"loop_stall_ms_max": "1500.0"})), [("note", "stalls")]),
        (
            cluster(
                server(2, "leader", numbers={"raft_applied_index": "10", "topic_partitions_in_trouble": "2"})
            ),
            [("error", "partitions-in-trouble")],
        ),
        (cluster(server(1, numbers={"partitions_under_replicated": "1"})), [("warning", "under-replicated")]),
        (cluster(server(1, clock_ahead_s=-7.0)), [("warning", "clocks")]),
        (cluster(server(1, version="2")), [("warning", "releases")]),
        (cluster(server(1, plain=True)), [("warning", "plain-text")]),
        (cluster(server(1, plain=True, loopback=True)), [("note", "plain-text")]),
        (cluster(server(1, certificate_ends_s=NOW_S + 10 * DAY_S)), [("warning", "certificate")]),
        (cluster(server(1, certificate_ends_s=NOW_S + 2 * DAY_S)), [("error", "certificate")]),
        (cluster(server(1, certificate_ends_s=NOW_S - DAY_S)), [("error", "certificate")]),
        (cluster(server(1, knobs={"admin": "none"})), [("note", "no-metrics")]),
        (cluster(server(1, knobs={"admin": "0.0.0.0:8080"})), [("warning", "admin-open")]),
        (cluster(setting(insecure_peers="true")), [("error", "no-cluster-key")]),
        (cluster(setting(client__four_letter_words="ruok,dump")), [("warning", "four-letter-words")]),
        (cluster(setting(raft__election_timeout_ticks="50")), [("warning", "unusual-setting")]),
        (cluster(setting(snapshot__keep="1")), [("warning", "unusual-setting")]),
        (cluster(setting(cluster="1=a:1,2=b:1")), [("warning", "even-voters")]),
        (cluster(setting(cluster="1=a:1,2=b:1:observer")), []),
        (cluster(setting(log_level="debug")), [("note", "unusual-setting")]),
        (cluster(setting(client__connections_per_address_max="0")), [("note", "no-limit-per-address")]),
        (cluster(open_root=True, open_topics=True), [("warning", "open-root"), ("warning", "open-topics")]),
        (cluster(files=(FileSight(name="f", problem="id: not set"),)), [("error", "configuration")]),
        (cluster(files=(FileSight(name="f", modes={"key": 0o604}),)), [("error", "permissions")]),
        (
            cluster(files=(FileSight(name="f", modes={"key": 0o640, "data": 0o700}),)),
            [("note", "permissions")],
        ),
        (
            cluster(files=(FileSight(name="f", disk=Disk(free=9, size=10, kind="tmpfs")),)),
            [("error", "data-volatile")],
        ),
    ],
)
def test_each_trouble_has_its_finding_and_no_other(sights: Sights, expected: list[tuple[str, str]]) -> None:
    assert checks(sights) == expected


def test_every_finding_says_what_why_and_what_to_do_in_80_columns() -> None:
    sights = cluster(
        DOWN, server(1, plain=True, knobs={"admin": "0.0.0.0:1", "insecure_peers": "true"}), open_root=True
    )
    found = findings(sights)
    assert all(one.found and one.why and one.do.endswith(".") for one in found)
    listing = listing_of(found, ("ACLs: nobody answered.",))
    text = rendered(listing.parts, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "Not looked at:\n  ACLs: nobody answered.\n" in text
    assert text.endswith("3 errors, 3 warnings, 0 notes\n")
    first = json.loads(json.dumps(listing.values[0]))
    assert first["severity"] == "error"
    assert set(first) == {"severity", "check", "where", "found", "why", "do"}


@pytest.mark.parametrize(
    ("severities", "expected"),
    [
        ([], 0),
        ([Severity.NOTE], 0),
        ([Severity.NOTE, Severity.WARNING], 4),
        ([Severity.WARNING, Severity.ERROR], 1),
    ],
)
def test_the_worst_finding_decides_the_exit_code(severities: list[Severity], expected: int) -> None:
    assert exit_code([Finding(one, "check", "where", "found", "why", "do") for one in severities]) == expected


def test_the_harmless_words_are_those_that_servers_answer_by_default() -> None:
    assert frozenset(FOUR_LETTER_WORDS_DEFAULT) == HARMLESS


def test_a_file_is_looked_at_with_what_it_names(tmp_path: Path) -> None:
    create_key_file(tmp_path / "cluster.key")
    (tmp_path / "data").mkdir(mode=0o755)
    file = tmp_path / "zraft.toml"
    file.write_text(
        'id = 1\ndata = "data"\naddress = "127.0.0.1:2181"\ncluster = "1=127.0.0.1:2181"\nkey = "cluster.key"\n'
    )
    seen = file_sight(file)
    assert (seen.problem, seen.loopback) == ("", True)
    assert seen.modes == {str(tmp_path / "cluster.key"): 0o600, str(tmp_path / "data"): 0o755}
    assert seen.disk is not None
    assert seen.disk.size > 0
    result = CliRunner().invoke(main, ["doctor", "--offline", "--config", str(file), "--json"])
    assert result.exit_code == 4, result.output
    assert "permissions" in [json.loads(line)["check"] for line in result.output.splitlines()]
    file.write_text("id = 0\n")
    assert "id" in file_sight(file).problem


def test_no_server_at_all_is_no_diagnosis() -> None:
    result = CliRunner().invoke(main, ["doctor", "--connect", "127.0.0.1:1"])
    assert (result.exit_code, "no server answers" in result.output) == (1, True)
    assert CliRunner().invoke(main, ["doctor", "--offline"]).exit_code == 2
