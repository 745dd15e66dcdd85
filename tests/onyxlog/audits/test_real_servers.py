"""What whole servers wrote, topics among it: every table has its rows, and no rule finds anything in them."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.tables import TABLES
from onyxlog.audits.tables.table import I64_MAX
from tests.onyxlog.audits.conftest import MESSAGES
from tests.onyxlog.audits.reading import read


def test_deliveries_are_the_same_on_all_servers_and_what_was_started(served: Path) -> None:
    by_server: dict[int, set[Any]] = defaultdict(set)
    for row in read(served, "deliveries"):
        assert row.destinations is not None
        assert row.group in row.destinations
        by_server[row.server].add(
            (row.group, row.offset, row.chain, row.payload_digest, row.producer, row.number)
        )
    assert by_server[1] == by_server[2] == by_server[3]
    assert len(by_server[1]) == MESSAGES // 2 * 3 + MESSAGES // 2 + 5 * 3
    started = {
        (row.producer, row.number, row.payload_digest)
        for row in read(served, "multicast")
        if row.kind == "start"
    }
    assert {(producer, number, digest) for *_, digest, producer, number in by_server[1]} == {
        (producer, number, digest) for producer, number, digest in started
    }


def test_every_partition_begins_with_a_heartbeat_interval_for_claims(served: Path) -> None:
    found = Counter((row.server, row.kind, row.position) for row in read(served, "claims"))
    assert found == {(server, "configure", 1): 3 for server in (1, 2, 3)}


def test_journals_tell_who_led_by_whose_votes_and_how_far_all_was_committed(served: Path) -> None:
    events = read(served, "events")
    led = [row for row in events if row.kind == "became_leader"]
    assert sum(row.group == 0 for row in led) >= 2
    assert len({row.group for row in led}) == 4
    assert len({(row.group, row.term) for row in led}) == len(led)
    assert all(row.server in row.votes and len(row.votes) >= 2 for row in led)
    committed = {(row.group, row.index, row.term) for row in events if row.kind == "committed"}
    logged = {(row.group, row.index, row.term) for row in read(served, "entries")}
    assert committed
    assert committed <= logged
    boots = Counter(row.server for row in events if row.kind == "opened")
    assert sorted(boots.values()) == [1, 1, 2]


def test_one_directory_alone_proves_what_its_journal_says(served: Path) -> None:
    for server in (1, 2, 3):
        alone = read(served / str(server), "entries", group="0")
        events = read(served / str(server), "events")
        noted = max(row.index for row in events if row.kind == "committed" and row.group == 0)
        assert max(row.index for row in alone) == noted


def test_no_rule_finds_anything_in_what_servers_wrote(served: Path) -> None:
    tables = {name: read(served, name, entries="written", payloads="true") for name in TABLES}
    for name in (
        "entries",
        "commands",
        "hard_states",
        "members",
        "deliveries",
        "multicast",
        "claims",
        "events",
    ):
        assert tables[name], name
    tables["entry_payloads"] = read(served, "entries", entries="live", payloads="true", group="0")
    assert all(-I64_MAX <= row.session <= I64_MAX for row in tables["commands"])
    found = [one.line() for rule in RULES.values() for one in rule.judged(tables)]
    assert found == []
