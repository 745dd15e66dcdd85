"""AdminServer's JSON, field by field as ZooKeeper's answers it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from tests.unit.admin.values import STATUS, FakeAdminReports
from tests.unit.wire.reports import CONFIGURATION, DUMP, LEADER
from zraft.admin.commands import COMMAND_NAMES, run_command
from zraft.monitoring.statistics import Listing
from zraft.server.operators.status import MemberStatus, SnapshotStatus

# What ZooKeeper's AdminServer answered to each command, beside `command` and `error`; 3.9 has no more of them.
FIELDS: dict[str, set[str]] = {
    "configuration": {
        *("client_port", "data_dir", "data_log_dir", "tick_time", "max_client_cnxns", "min_session_timeout"),
        *("max_session_timeout", "server_id", "client_port_listen_backlog"),
    },
    "connection_stat_reset": set(),
    "connections": {"connections", "secure_connections"},
    "dirs": {"datadir_size", "logdir_size"},
    "dump": {"expiry_time_to_session_ids", "session_id_to_ephemeral_paths"},
    "get_trace_mask": {"tracemask"},
    "hash": {"digests"},
    "initial_configuration": {"initial_configuration"},
    "is_read_only": {"read_only"},
    "last_snapshot": {"zxid", "timestamp"},
    "leader": {"is_leader", "leader_id", "leader_ip"},
    "observer_connection_stat_reset": set(),
    "observers": {"synced_observers", "observers"},
    "ruok": set(),
    "server_stats": {"version", "read_only", "server_stats", "proposal_stats", "node_count"},
    "stat_reset": set(),
    "stats": {
        *("version", "read_only", "server_stats", "proposal_stats", "node_count"),
        *("connections", "secure_connections"),
    },
    "voting_view": {"current_config"},
    "watch_summary": {"num_connections", "num_paths", "num_total_watches"},
    "watches": {"session_id_to_watched_paths"},
    "watches_by_path": {"path_to_session_ids"},
}


def run(name: str, reports: FakeAdminReports | None = None, **parameters: str) -> dict[str, Any]:
    answer = run_command(name, reports or FakeAdminReports(LEADER), parameters)
    # What cannot be written as JSON fails here.
    found: dict[str, Any] = json.loads(json.dumps(answer))
    return found


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_command_has_the_fields_of_zookeepers_and_no_other(name: str) -> None:
    answer = run(name)
    assert answer.keys() == FIELDS[name] | {"command", "error"}
    assert answer["command"] == name
    assert answer["error"] is None


def test_all_commands_of_adminserver_are_there() -> None:
    others = {"environment", "monitor", "set_trace_mask", "system_properties", "zabstate"}
    assert set(COMMAND_NAMES) == FIELDS.keys() | others


@pytest.mark.parametrize(
    ("name", "primary"),
    [
        *(
            ("conf", "configuration"),
            ("config", "configuration"),
            ("cons", "connections"),
            ("mntr", "monitor"),
        ),
        *(("env", "environment"), ("envi", "environment"), ("isro", "is_read_only"), ("lead", "leader")),
        *(("lsnp", "last_snapshot"), ("icfg", "initial_configuration"), ("obsr", "observers")),
        *(("srvr", "server_stats"), ("stat", "stats"), ("wchc", "watches"), ("wchp", "watches_by_path")),
        *(("wchs", "watch_summary"), ("sysp", "system_properties"), ("gtmk", "get_trace_mask")),
    ],
)
def test_short_names_answer_with_the_primary_name(name: str, primary: str) -> None:
    assert run(name)["command"] == primary


def test_an_unknown_command_is_an_answer_with_an_error() -> None:
    assert run("nonesuch") == {"command": "nonesuch", "error": "Unknown command: nonesuch"}


def test_a_server_that_does_not_serve_says_so_but_tells_its_environment() -> None:
    reports = FakeAdminReports(statistics=None, current=evolve(STATUS, statistics=None))
    for name in COMMAND_NAMES:
        error = run(name, reports)["error"]
        if name in ("environment", "get_trace_mask", "system_properties", "zabstate"):
            assert error is None
        elif name == "set_trace_mask":
            assert error == "setTraceMask requires long traceMask argument"
        else:
            assert error == "This ZooKeeper instance is not currently serving requests"


def test_connections_are_listed_with_all_their_numbers_and_apart_if_they_are_secure() -> None:
    answer = run("connections")
    assert answer["connections"] == [
        {
            "remote_socket_address": "127.0.0.1:40001",
            "interest_ops": 1,
            "outstanding_requests": 0,
            "packets_received": 9,
            "packets_sent": 9,
            "session_id": 0x100000A8E6B0000,
            "last_operation": "GETC",
            "established": 1795294429807,
            "session_timeout": 10000,
            "last_cxid": 8,
            "last_zxid": 3,
            "last_response_time": 698540,
            "last_latency": 2,
            "min_latency": 0,
            "avg_latency": 4,
            "max_latency": 12,
        }
    ]
    assert answer["secure_connections"] == [
        {
            "remote_socket_address": "[::1]:40002",
            "interest_ops": 0,
            "outstanding_requests": 3,
            "packets_received": 20,
            "packets_sent": 19,
        }
    ]


def test_monitor_lists_what_mntr_lists_without_its_prefix() -> None:
    answer = run("monitor")
    assert answer["znode_count"] == 5
    assert answer["server_state"] == "leader"
    assert answer["avg_latency"] == 0.1235
    assert not any(name.startswith("zk_") for name in answer)


def test_dump_and_watches_are_keyed_by_decimal_numbers() -> None:
    assert run("dump")["session_id_to_ephemeral_paths"] == {str(0x100000A8E6B0000): ["/a/e"]}
    assert run("dump")["expiry_time_to_session_ids"] == {"1795294432000": [0x100000A8E6B0000]}
    assert run("watches")["session_id_to_watched_paths"] == {"1": ["/a/none", "/a"]}
    assert run("watches_by_path")["path_to_session_ids"] == {"/a/none": [1], "/a": [1]}


def test_what_was_left_out_is_counted() -> None:
    reports = FakeAdminReports(LEADER)
    reports.listed = Listing(reports.listed.items, 10)
    reports.by_path = Listing(reports.by_path.items, 5)
    reports.dumped = evolve(DUMP, ephemerals=Listing(DUMP.ephemerals.items, 6))
    assert run("connections", reports)["left_out"] == 8
    assert run("watches_by_path", reports)["left_out"] == 3
    assert run("dump", reports)["left_out"] == 5


def test_leader_and_voting_view_are_of_ensembles_only() -> None:
    assert run("leader") | {"command": None} == {
        "is_leader": True,
        "leader_id": 1,
        "leader_ip": "127.0.0.1",
        "command": None,
        "error": None,
    }
    assert run("voting_view")["current_config"]["3"] == {
        "server_addresses": ["[::1]:2183"],
        "election_addresses": [],
        "client_address": "[::1]:2183",
        "learner_type": "participant",
    }
    alone = FakeAdminReports(
        LEADER,
        configured=evolve(CONFIGURATION, members=CONFIGURATION.members[:1]),
        current=evolve(STATUS, members=STATUS.members[:1]),
    )
    assert run("leader", alone)["error"] == "server is not initialized"
    assert run("voting_view", alone)["current_config"] == {}
    assert run("zabstate", alone) == {"voting": False, "zabstate": "", "command": "zabstate", "error": None}


def test_resets_reset() -> None:
    reports = FakeAdminReports(LEADER)
    run("srst", reports)
    run("connection_stat_reset", reports)
    assert reports.changes == ["server", "connections"]


def test_the_trace_mask_is_a_long() -> None:
    reports = FakeAdminReports(LEADER)
    assert run("stmk", reports, traceMask="-8")["tracemask"] == -8
    assert run("gtmk", reports)["tracemask"] == -8
    for wrong in ("", "x", str(1 << 63)):
        expected = f"setTraceMask requires long traceMask argument, got {wrong}"
        assert run("stmk", reports, traceMask=wrong)["error"] == expected
    assert reports.mask == -8


def test_system_properties_are_the_knobs() -> None:
    assert run("sysp")["zraft.client.jute_maxbuffer"] == "1048575"


def test_the_last_snapshot_is_told_in_seconds_and_as_minus_one_before_the_first() -> None:
    assert run("lsnp")["zxid"] == "ffffffffffffffff"
    reports = FakeAdminReports(LEADER)
    taken = SnapshotStatus(index=90, zxid=0x100000042, taken_ms=1_700_000_000_999, items=7, size_bytes=1_000)
    reports.current = evolve(STATUS, snapshot=taken)
    answer = run("last_snapshot", reports)
    assert (answer["zxid"], answer["timestamp"]) == ("100000042", 1_700_000_000)


def test_observers_are_listed_and_do_not_vote() -> None:
    assert LEADER.leader is not None
    reports = FakeAdminReports(evolve(LEADER, leader=evolve(LEADER.leader, synced_observers=1)))
    observer = MemberStatus(4, "127.0.0.1:2184", leads=False, is_me=True, part="observer")
    reports.current = evolve(STATUS, server=4, members=(observer, *STATUS.members[1:]))
    answer = run("obsr", reports)
    assert answer["synced_observers"] == 1
    assert answer["observers"] == [{"sid": 4, "address": "127.0.0.1:2184"}]
    assert run("zabstate", reports)["voting"] is False
