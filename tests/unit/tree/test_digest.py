"""The state digest: equal for equal states whenever it is asked for, different for different ones (D-26)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tree.scenario import EPHEMERAL, ONE, SEQUENTIAL, TWO, Scenario, create
from zraft.tree import digest as digest_module
from zraft.tree.digest import MODULUS
from zraft_core.znodes.acl import ALL, READ
from zraft_core.znodes.txn import DELETE, REGISTER, SET_DATA, SETTINGS


def story(ask_every: int | None) -> Scenario:
    """A history with every kind of change; the digest is asked for every `ask_every` steps, if at all."""
    scenario = Scenario()
    other = scenario.new_session(TWO)
    steps: list[Any] = [
        lambda: scenario.without_session((REGISTER, b"boot"), TWO),
        lambda: scenario.create("/a", b"x"),
        lambda: scenario.create("/a/s-", flags=SEQUENTIAL),
        lambda: scenario.create("/a/e", None, flags=EPHEMERAL, session=other, origin=TWO),
        lambda: scenario.create("/r", acl=((ALL, "ip", "10.0.0.0/8"), (READ, "world", "anyone"))),
        lambda: scenario.set_data("/a", b"y"),
        lambda: scenario.multi(create("/m"), (SET_DATA, "/m", None, 0), (DELETE, "/a/s-0000000000", 0)),
        lambda: scenario.multi(
            create("/n"), (SET_DATA, "/a", b"lost", -1), (DELETE, "/r", 0), (DELETE, "/no", 0)
        ),
        lambda: scenario.attach(other.id, ONE),
        lambda: scenario.by_leader((SETTINGS, {"tick_time_ms": 1234})),
        lambda: scenario.close(other),
        lambda: scenario.delete("/r"),
        lambda: scenario.create("/r", b"again"),
    ]
    for number, step in enumerate(steps):
        step()
        if ask_every is not None and number % ask_every == 0:
            assert scenario.machine.digest() == scenario.machine.full_digest()
    return scenario


def test_digest_does_not_depend_on_when_it_is_asked_for() -> None:
    machines = [story(ask_every).machine for ask_every in (None, 1, 2, 3, 5)]
    assert len({machine.digest() for machine in machines}) == 1
    assert len({machine.image() for machine in machines}) == 1
    assert all(machine.full_digest() == machine.digest() for machine in machines)


def test_asking_twice_gives_the_same_and_fits_in_128_bits() -> None:
    machine = story(2).machine
    assert 0 <= machine.digest() == machine.digest() < MODULUS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", b"other"), ("data", None), ("acl", ((1, "world", "anyone"),)), ("czxid", 1), ("mzxid", 1),
        ("pzxid", 1),
        ("ctime", 1), ("mtime", 1), ("version", 9), ("creates", 9), ("aversion", 9), ("ephemeral_owner", 9),
    ],
)  # fmt: skip
def test_every_field_of_a_znode_counts(field: str, value: object) -> None:
    scenario = story(None)
    before = scenario.machine.full_digest(), scenario.machine.image()
    setattr(scenario.node("/a"), field, value)
    assert scenario.machine.full_digest() != before[0]
    assert scenario.machine.image() != before[1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("password", b"x" * 16),
        ("timeout_ms", 1),
        ("owner", (3, b"x", 1)),
        ("attach_position", 77),
        ("write_position", 77),
    ],
)
def test_every_field_of_a_session_counts(field: str, value: object) -> None:
    scenario = story(None)
    before = scenario.machine.full_digest(), scenario.machine.image()
    setattr(scenario.session, field, value)
    assert scenario.machine.full_digest() != before[0]
    assert scenario.machine.image() != before[1]


@pytest.mark.parametrize("counter", ["last_zxid", "position", "index", "term"])
def test_every_counter_counts(counter: str) -> None:
    machine = story(None).machine
    before = machine.digest(), machine.image()
    setattr(machine, counter, getattr(machine, counter) + 1)
    assert machine.digest() != before[0]
    assert machine.image() != before[1]


def test_log_time_counts() -> None:
    machine = story(None).machine
    before = machine.digest(), machine.image()
    machine.begin_entry(
        machine.index, machine.term, machine.position + 1, machine.log_time + 1, machine.wall_time
    )
    assert machine.digest() != before[0]
    assert machine.image() != before[1]


@pytest.mark.parametrize(("field", "value"), [("boot", 7), ("seq", 77), ("boot_id", b"other")])
def test_every_field_of_an_origin_row_counts(field: str, value: object) -> None:
    machine = story(None).machine
    before = machine.digest(), machine.image()
    setattr(machine.rows[TWO], field, value)
    assert machine.digest() != before[0]
    assert machine.image() != before[1]


def test_settings_and_faults_count() -> None:
    scenario = story(None)
    machine = scenario.machine
    scenario.by_leader((SETTINGS, {"tick_time_ms": 1000}))
    before = machine.digest()
    machine._tree.settings = machine.settings.changed({"tick_time_ms": 999}, 1) or machine.settings
    after = machine.digest()
    machine.origins.faults += 1
    assert len({before, after, machine.digest()}) == 3


def test_many_marks_are_worked_off_before_the_digest_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks are bounded, and a fold in between changes nothing."""
    monkeypatch.setattr(digest_module, "DIRTY_MAX", 10)
    monkeypatch.setattr(digest_module, "FOLD_BATCH", 7)
    monkeypatch.setattr(digest_module, "PENDING_AT_POINT", 5)
    scenario = Scenario()
    sessions = [scenario.new_session() for _ in range(30)]
    most = 0
    for number in range(60):
        scenario.create(f"/n{number}", session=sessions[number % 30])
        if number % 3 == 0:
            scenario.delete(f"/n{number}")
        digest = scenario.machine._tree.digest
        most = max(most, len(digest.dirty_nodes), len(digest.dirty_sessions))
    assert 10 < most < 30
    assert scenario.machine.digest() == scenario.machine.full_digest()


def test_servers_with_different_hash_seeds_agree() -> None:
    """D-5: the order of sets and dicts by hash must not reach the state, the results or the events."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-W", "error", "-m", "tests.unit.tree.replay"]
    runs = [
        subprocess.run(
            command,
            cwd=root,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].splitlines()) == 3
