"""What a chaos run makes of its servers' logs and ends, without starting any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos.servers import DISK_FULL, SNAPSHOT_FAILED, Servers
from tests.so_far import so_far
from zraft_core.address import Address


@pytest.fixture
def servers(tmp_path: Path) -> Servers:
    return Servers(tmp_path, {1: Address("127.0.0.1", 40_001)}, {1: {}}, None, {})


def logged(servers: Servers, event: str, **fields: str) -> None:
    with servers.all[1].log.open("a") as log:
        log.write(json.dumps({"event": event, "level": "error", **fields}) + "\n")


def test_an_error_is_a_violation_unless_a_fault_that_struck_accounts_for_it(servers: Servers) -> None:
    logged(servers, DISK_FULL)
    assert len(servers.check_logs()[0]) == 1
    servers.all[1].may_log |= {DISK_FULL}
    found, events = servers.check_logs()
    assert not found
    assert events[DISK_FULL] == 1


def test_a_snapshot_that_fails_is_accounted_for_by_a_full_disk_and_by_nothing_else(servers: Servers) -> None:
    servers.all[1].may_log |= {SNAPSHOT_FAILED}
    logged(servers, SNAPSHOT_FAILED, problem="no snapshot could be written: no space left; free some")
    assert not servers.check_logs()[0]
    logged(servers, SNAPSHOT_FAILED, problem="no snapshot could be written: Input/output error")
    assert [violation.checker for violation in servers.check_logs()[0]] == ["log"]


def test_a_traceback_is_a_violation(servers: Servers) -> None:
    servers.all[1].log.write_text("Traceback (most recent call last):\n")
    assert [violation.checker for violation in servers.check_logs()[0]] == ["log"]


def test_a_start_that_has_said_nothing_is_told_from_one_that_has(servers: Servers) -> None:
    """SIGTERM ends an interpreter that has not come to the server yet; later it must end with code 0."""
    server = servers.all[1]
    assert server.silent
    logged(servers, "of an earlier start")
    server.log_began = server.log.stat().st_size
    assert server.silent
    logged(servers, "server starting")
    assert not server.silent


def test_a_server_may_refuse_to_start_on_a_full_disk_but_not_end_there(
    servers: Servers, tmp_path: Path
) -> None:
    """Seed 44 filled the disk of a server that another fault had just ended: its next boot could not be written down."""
    server = servers.all[1]
    server.data.mkdir()
    assert not so_far(server.may_refuse_to_start)
    server.disk_full = True
    assert so_far(server.may_refuse_to_start)
    server.log.write_text("Error: meta.tmp: no space left; free some on this file system\n")
    assert so_far(server.may_refuse_to_start)
    logged(servers, "server starting")
    assert not so_far(server.may_refuse_to_start)
    server.log_began = server.log.stat().st_size
    assert so_far(server.may_refuse_to_start), "that was an earlier start"
    servers.free_disk(1)
    assert not server.may_refuse_to_start
