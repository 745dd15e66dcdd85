"""Minutes of faults on real servers, and what their clients were told is held to every promise.

Not part of a usual run: `.ci/test -m chaos tests/chaos -s`. Each failure shows the command that repeats its plan.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from tests.chaos.workloads import SET_UP
from zraft.checkers import check_histories
from zraft.checkers.history import (
    Connected,
    Disconnected,
    Event,
    Expired,
    Kind,
    Operation,
    Outcome,
    Record,
    decode_file,
)
from zraft.checkers.registers import Present

ROOT = Path(__file__).parents[2]
START = dict.fromkeys(SET_UP, Present("first", 0))

pytestmark = [pytest.mark.chaos, pytest.mark.processes, pytest.mark.timeout(1_800)]


def chaos(out: Path, seed: int, *words: str, code: int = 0) -> str:
    """Run the command; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--seed", str(seed), "--out", str(out), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def histories(out: Path) -> list[list[Record]]:
    return [list(decode_file(path.read_text().splitlines())) for path in sorted(out.glob("client-*.jsonl"))]


def test_two_minutes_of_every_fault_break_no_promise(tmp_path: Path, seed: int) -> None:
    chaos(tmp_path / "out", seed, "--minutes", "2.5")


def test_five_servers_break_no_promise(tmp_path: Path, seed: int) -> None:
    chaos(tmp_path / "out", seed, "--minutes", "1.5", "--servers", "5")


def test_network_namespaces_break_no_promise(tmp_path: Path, seed: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    chaos(tmp_path / "out", seed, "--minutes", "1.5", "--network", "namespaces")


def test_replaced_disks_and_members_break_no_promise(tmp_path: Path, seed: int) -> None:
    chaos(
        tmp_path / "out", seed, "--minutes", "2", "--faults", "wipe,member,transfer,kill,stop-short,loss,cut"
    )


def test_servers_that_answer_sync_without_asking_the_leader_are_found_out(tmp_path: Path) -> None:
    # For so long that on a slow machine, too, a register is written right before somebody else syncs and reads it.
    shown = chaos(tmp_path / "out", 21, "--minutes", "1", "--planted", "local_sync", code=1)
    assert "linearizable" in shown
    assert "again: " in shown


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[list[Record]]:
    """Histories of a short run with kills, which every checker accepts."""
    out = tmp_path_factory.mktemp("chaos") / "out"
    chaos(out, 1, "--minutes", "0.4", "--faults", "kill,cut")
    found = histories(out)
    assert sum(len(history) for history in found) > 5_000
    assert not check_histories(found, start=START)
    return found


def planted(recorded: list[list[Record]], change: dict[int, Record | None]) -> list[str]:
    """What the checkers say once the records with these ids were replaced or taken away."""
    changed = [
        [new for record in history if (new := change.get(id(record), record)) is not None]
        for history in recorded
    ]
    return [violation.checker for violation in check_histories(changed, start=START)]


def of_kind(recorded: list[list[Record]], kind: Kind) -> list[Operation]:
    return [
        record
        for history in recorded
        for record in history
        if isinstance(record, Operation) and record.kind is kind and record.outcome is Outcome.OK
    ]


def test_a_stale_read_planted_into_a_real_history_is_caught(recorded: list[list[Record]]) -> None:
    reads = sorted(of_kind(recorded, Kind.SYNC_GET), key=lambda one: one.invoked_us)
    reads = [one for one in reads if one.path == "/r/0" and one.client < 900]
    old, new = reads[0], reads[-1]
    assert (old.version or 0) < (new.version or 0)
    stale = evolve(new, value=old.value, version=old.version, mzxid=old.mzxid)
    assert {"linearizable", "read"} <= set(planted(recorded, {id(new): stale}))


def test_a_lost_write_planted_into_a_real_history_is_caught(recorded: list[list[Record]]) -> None:
    last = [one for one in of_kind(recorded, Kind.SET) if one.path == "/r/0"][-1]
    lost = evolve(last, version=(last.version or 0) + 1)
    assert "linearizable" in planted(recorded, {id(last): lost})


def test_a_lost_event_planted_into_a_real_history_is_caught(recorded: list[list[Record]]) -> None:
    watcher = next(
        history
        for history in recorded
        if any(isinstance(record, Operation) and record.kind is Kind.ADD_WATCH for record in history)
    )
    written = {(one.path, one.zxid) for one in of_kind(recorded, Kind.SET)}
    events = [
        one
        for place, one in enumerate(watcher)
        if isinstance(one, Event) and (one.path, one.zxid) in written and is_outlived(watcher[place + 1 :])
    ]
    assert len(events) > 50
    caught = [bool("watch" in planted(recorded, {id(one): None})) for one in events[:: len(events) // 5][:5]]
    assert all(caught), caught


def is_outlived(later: list[Record]) -> bool:
    """Whether an event's connection went on for two answers, the first of which may be that of restored watches.

    That an event is missing shows in what comes after it: a connection that ends may have ended before it.
    """
    answers = 0
    for record in later:
        match record:
            case Connected() | Disconnected() | Expired():
                return False
            case Operation() if record.outcome is not Outcome.UNKNOWN:
                answers += 1
                if answers == 2:
                    return True
    return False


def test_a_repeated_create_planted_into_a_real_history_is_caught(recorded: list[list[Record]]) -> None:
    first, other = [one for one in of_kind(recorded, Kind.CREATE) if one.path == "/q/item-"][:2]
    assert "sequence" in planted(recorded, {id(other): evolve(other, value=first.value)})


def test_a_run_that_cannot_be_is_refused_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "empty or new directory" in chaos(tmp_path, 1, code=2)
    assert "--faults" in chaos(tmp_path / "out", 1, "--faults", "earthquake", code=2)
