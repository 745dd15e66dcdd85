"""Logs carried out again: equal states, and a witness where a server or the state machine itself was wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from onyxlog.audits.rules import reexecution as r
from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.check import Check, judged
from onyxlog.audits.rules.violation import Violation, order_of
from onyxlog.audits.tables.snapshots import SnapshotRow
from tests.onyxlog.audits.executed import INSTANCE, NOTED, PLACE, SERVER, SESSION, entries, rows
from tests.onyxlog.audits.reading import read
from zraft.offline.replay import apply_entry
from zraft.tree.machine import Machine
from zraft_core.znodes import txn

ALONE = r.Reexecution(r.nothing_loaded)
CHECKS = {promise: ALONE.check(promise) for promise in (r.STATES, *r.OBSERVERS)}


def tables() -> dict[str, list[Any]]:
    of_entries, of_events = rows()
    return {"entry_payloads": of_entries, "events": of_events, "snapshots": []}


def state_after(index: int) -> Machine:
    machine = Machine()
    for entry in entries()[:index]:
        apply_entry(machine, entry)
    return machine


def snapshot(index: int) -> SnapshotRow:
    digest = state_after(index).digest().to_bytes(16, "big")
    return SnapshotRow(**PLACE, file="server-4/snap", group=0, index=index, digest=digest)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_log_that_was_carried_out_as_it_stands_breaks_nothing(check: Check) -> None:
    assert judged(check, tables()) == []


def test_the_log_does_what_is_judged() -> None:
    """Otherwise the test above means nothing."""
    machine = state_after(6)
    assert {"/q/n-0000000001", "/once", "/e"} <= {path for path, _ in machine.nodes.items()}
    assert machine.find("/e").ephemeral_owner in machine.sessions  # type: ignore[union-attr]
    assert state_after(7).find("/e") is None


@pytest.mark.parametrize("index", NOTED)
def test_a_state_that_the_log_does_not_lead_to_is_found_at_its_index(index: int) -> None:
    planted = tables()
    planted["events"] = [
        evolve(row, digest=bytes(16)) if row.index == index else row for row in planted["events"]
    ]
    (found,) = judged(CHECKS[r.STATES], planted)
    assert (found.rule, found.server, found.group, found.index) == ("S6", 4, 0, index)
    assert (found.file, found.offset) == ("server-4/journal", index)
    assert found.found == bytes(16).hex()
    assert found.expected.startswith(state_after(index).digest().to_bytes(16, "big").hex())


def test_a_snapshot_that_is_not_the_fold_of_the_log_is_found() -> None:
    planted = tables()
    planted["snapshots"] = [evolve(snapshot(4), digest=bytes(16))]
    found = judged(CHECKS[r.STATES], planted)
    assert [(one.index, one.file) for one in found] == [(4, "server-4/snap")]


def test_one_replay_finds_what_one_for_each_promise_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was planted into the state machine, and with a state that the log does not lead to."""
    wrong(monkeypatch, txn.ONCE, carried_out_again)
    wrong(monkeypatch, txn.CLOSE_SESSION, ephemeral_left)
    wrong(monkeypatch, txn.CREATE, number_again)
    planted = tables()
    planted["events"] = [evolve(row, digest=bytes(16)) for row in planted["events"]]
    alone = [one for check in CHECKS.values() for one in judged(check, planted)]
    assert {one.promise for one in alone} == CHECKS.keys()
    together = judged(ALONE.check(*CHECKS), planted)
    assert sorted(together, key=order_of) == sorted(alone, key=order_of)


def test_commands_are_judged_in_the_fullest_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """States are, in each: a server may have applied the same log to something else."""
    wrong(monkeypatch, txn.CREATE, number_again)
    given = tables()
    whole = given["entry_payloads"]
    given["entry_payloads"] = [evolve(row, server=3, instance="03") for row in whole[:-1]] + whole
    given["events"] += [evolve(row, server=3, instance="03", digest=bytes(16)) for row in given["events"]]
    found = judged(ALONE.check(r.STATES, r.NUMBERS), given)
    assert [one.server for one in found if one.promise == r.NUMBERS] == [4]
    assert {one.server for one in found if one.promise == r.STATES} == {3}


def test_a_log_is_replayed_from_each_snapshot_on() -> None:
    """Each piece by itself: so a state that is wrong before a snapshot says nothing against one after it."""
    loaded: list[int] = []

    def load(row: r.StateRow) -> Machine:
        loaded.append(row.index)
        return state_after(row.index)

    given = tables()
    given["snapshots"] = [snapshot(3), snapshot(6)]
    given["entry_payloads"] = [row for row in given["entry_payloads"] if row.index > 3]
    check = r.Reexecution(load).check(r.STATES)
    assert judged(check, given) == []
    assert loaded == [3, 6]
    given["events"] = [evolve(row, digest=bytes(16)) for row in given["events"]]
    assert [one.index for one in judged(check, given)] == [5, 7]


def test_what_follows_a_gap_is_not_judged() -> None:
    planted = tables()
    planted["events"] = [evolve(row, digest=bytes(16)) for row in planted["events"]]
    planted["entry_payloads"] = [row for row in planted["entry_payloads"] if row.index != 3]
    assert judged(CHECKS[r.STATES], planted) == []


def test_snapshots_on_the_disk_are_the_fold_of_the_logs_between_them(generated: Path) -> None:
    """Each is compared, and each but the last is replayed upon, from its file."""
    check = next(check for check in RULES["S6"].checks if check.promise == r.STATES)
    given: dict[str, list[Any]] = {
        "entry_payloads": read(generated, "entries", entries="live", payloads="true", group="0"),
        "snapshots": read(generated, "snapshots"),
        "events": [],
    }
    assert len(given["snapshots"]) >= 6
    assert judged(check, given) == []
    for at, row in enumerate(given["snapshots"]):
        spoiled = [*given["snapshots"]]
        spoiled[at] = evolve(row, digest=bytes(16))
        found = judged(check, {**given, "snapshots": spoiled})
        assert [(one.server, one.index, one.file) for one in found] == [(row.server, row.index, row.file)]


# Bugs of the state machine itself -----------------------------------------------------------------------------------


def wrong(monkeypatch: pytest.MonkeyPatch, opcode: int, change: Callable[[Machine, Any, Any], Any]) -> None:
    """Change what commands of this kind come to."""
    original = Machine.execute

    def execute(self: Machine, command: Any) -> object:
        result = original(self, command)
        return change(self, command, result) if command[0] == opcode else result

    monkeypatch.setattr(Machine, "execute", execute)


def only(promise: str) -> Iterator[Violation]:
    for name, check in CHECKS.items():
        if name != r.STATES:
            for one in judged(check, tables()):
                assert one.promise == promise, one.line()
                yield one


def carried_out_again(machine: Machine, command: Any, result: Any) -> Any:
    return machine.last_zxid, machine.position, *result[2:]


def ephemeral_left(machine: Machine, command: Any, result: Any) -> Any:
    before = state_after(6).find("/e")
    assert before is not None
    machine.nodes.insert("/e", before)
    return result


def number_again(machine: Machine, command: Any, result: Any) -> Any:
    if result.__class__ is tuple and result[0] == "/q/n-0000000001":
        return "/q/n-0000000000", result[1]
    return result


def test_a_numbered_command_that_is_carried_out_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch, txn.ONCE, carried_out_again)
    (found,) = only(r.ONCE_ONLY)
    assert (found.rule, found.server, found.index, found.offset) == ("S8", 4, 6, 600)
    assert found.subject.startswith("command 1 of session")


def test_an_ephemeral_that_is_left_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch, txn.CLOSE_SESSION, ephemeral_left)
    (found,) = only(r.EPHEMERALS)
    assert (found.rule, found.index, found.expected) == ("S10", 7, "/e gone")


def test_a_number_that_is_given_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch, txn.CREATE, number_again)
    (found,) = only(r.NUMBERS)
    assert (found.rule, found.index, found.found) == ("S11", 4, "0")


def test_numbers_begin_anew_below_a_parent_that_was_deleted_in_whatever_way_and_made_again() -> None:
    """A soak found it: parents that a native client or a transaction had deleted were taken for the ones before."""
    judge, machine = r.GrowingNumbers(), state_after(6)
    (row, *_) = tables()["entry_payloads"]
    machine.begin_entry(8, 1, machine.position + 1, 8, 8)
    assert machine.begin_batch(SERVER, INSTANCE, 1, 5)
    machine.begin_run(SESSION, ())
    made = ((txn.CREATE, "/p", b"", None, 0, 0), (txn.CREATE, "/p/n-", b"", None, txn.FLAG_SEQUENTIAL, 0))
    gone = ((txn.DELETE, "/p/n-0000000000", -1), (txn.DELETE, "/p", -1))
    in_one = ((txn.MULTI, gone),)
    by_native = tuple((txn.ONCE, number, 0, one) for number, one in enumerate(gone, 2))
    found: list[Violation] = []
    numbers: list[str] = []
    for command in (*made, *gone, *made, *in_one, *made, *by_native, *made):
        result = machine.execute(command)
        numbers += [result[0][-1]] if result.__class__ is tuple and str(result[0]).startswith("/p/") else []
        found += judge.on_executed(r.Executed(row, machine.position, SESSION, command, result), machine)
    assert numbers == ["0"] * 4
    assert found == []
