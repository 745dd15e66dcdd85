"""A run that is stopped goes on, a piece that fails or does not end is told and keeps nothing else from running."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner

from tests.long import __main__ as command
from tests.long.pieces import RUN_S_MAX, Piece
from tests.long.record import Outcome, Record, Result, state_of, table
from tests.long.running import environment, last_line, run_piece


def piece(name: str, *scripts: str, needs_root: bool = False) -> Piece:
    words = tuple((sys.executable, "-c", script) for script in scripts)
    return Piece(name, "It is tried.", words, 60, needs_root)


def run_all(place: Path, *chosen: Piece) -> Record:
    record = Record(place)
    command.run_all(chosen, record, place)
    return record


def test_what_is_finished_is_not_done_again_and_what_failed_is(tmp_path: Path) -> None:
    count = (
        "from pathlib import Path; p = Path({!r}); p.write_text(p.read_text() + 'x' if p.exists() else 'x')"
    )
    done, failing = tmp_path / "done", tmp_path / "failing"
    chosen = (
        piece("fails", count.format(str(failing)) + "; raise SystemExit(1)"),
        piece("works", count.format(str(done))),
    )
    for _ in range(2):
        record = run_all(tmp_path, *chosen)
        assert record.of("fails").result is Result.FAILED
        assert record.of("works").result is Result.OK
    assert failing.read_text() == "xx"
    assert done.read_text() == "x"


def test_a_run_ends_after_two_hours_and_the_next_one_goes_on(tmp_path: Path) -> None:
    clock_s = 0.0

    def run(piece: Piece, log: Path, bound_s: float) -> Outcome:
        nonlocal clock_s
        clock_s += RUN_S_MAX - 60 if piece.name == "lasting" else 59
        return Outcome(Result.OK, said="done")

    chosen = tuple(piece(name, "pass") for name in ("lasting", "fits", "waits"))
    record = Record(tmp_path)
    command.run_all(chosen, record, tmp_path, run=run, now=lambda: clock_s)
    assert [record.of(one.name).result for one in chosen] == [Result.OK, Result.OK, Result.WAITS]
    assert record.of("waits").result.is_failure
    command.run_all(chosen, record, tmp_path, run=run, now=lambda: clock_s)
    assert record.of("waits").result is Result.OK


def test_commands_of_a_piece_run_though_one_before_failed(tmp_path: Path) -> None:
    outcome = run_piece(piece("one", "raise SystemExit(3)", "print('the second ran')"), tmp_path / "log", 60)
    assert outcome.result is Result.FAILED
    assert outcome.said == "the second ran"


def test_a_piece_without_tests_fails_unless_it_may_be_empty(tmp_path: Path) -> None:
    empty = piece("empty", "raise SystemExit(5)")
    record = run_all(tmp_path, empty, evolve(empty, name="allowed", may_be_empty=True))
    assert record.of("empty").result is Result.FAILED
    assert record.of("allowed").result is Result.OK


def test_a_piece_that_outlives_its_time_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    outcome = run_piece(piece("hangs", script, "print('not begun')"), tmp_path / "log", 3, grace_s=0.2)
    assert outcome.result is Result.OUT_OF_TIME
    assert "not begun" not in (tmp_path / "log").read_text().splitlines()
    child = int((tmp_path / "pids").read_text())
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and "\nState:\tZ" not in Path(f"/proc/{child}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_command_that_ends_by_itself_when_it_is_interrupted_may_clean_up(tmp_path: Path) -> None:
    script = (
        "import time\n"
        "try:\n    print('began', flush=True); time.sleep(600)\n"
        "except KeyboardInterrupt:\n    print('cleaned up')"
    )
    outcome = run_piece(piece("slow", script), tmp_path / "log", 3)
    assert (outcome.result, outcome.said) == (Result.OUT_OF_TIME, "cleaned up")


def test_what_cannot_be_done_here_is_told_and_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "cannot", lambda: "images are built as root only")
    record = run_all(
        tmp_path, piece("images", "raise SystemExit(1)", needs_root=True), piece("other", "pass")
    )
    assert record.of("images") == Outcome(Result.CANNOT, said="images are built as root only")
    assert not record.of("images").result.is_failure
    assert record.of("other").result is Result.OK


def test_servers_that_are_started_are_configured_by_nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZRAFT_ID", "9")
    monkeypatch.setenv("ZRAFT_COMPAT", "/somewhere")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    found = environment()
    assert "ZRAFT_ID" not in found
    assert "PYTHONDONTWRITEBYTECODE" not in found
    assert found["ZRAFT_COMPAT"] == "/somewhere"


def test_the_summary_has_a_line_for_each_piece_with_its_time_and_last_words(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.save("power-cuts", Outcome(Result.OK, 725.4, "15 passed in 12:05"))
    record.save("chaos", Outcome(Result.OUT_OF_TIME, 60.0, "interrupted"))
    lines = table(("power-cuts", "chaos", "audits"), Record(tmp_path)).splitlines()
    assert [" ".join(line.split()) for line in lines[2:]] == [
        "| power-cuts | ok | 12:05 | 15 passed in 12:05 |",
        "| chaos | out of time | 1:00 | interrupted |",
        "| audits | not run | 0:00 | |",
        "| all | | 13:05 | |",
    ]


def test_the_last_line_is_the_verdict_without_colours_and_rules(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("much\n\x1b[32m===== 3 passed, 1 skipped in 2.5s =====\x1b[0m\n\n")
    assert last_line(log) == "3 passed, 1 skipped in 2.5s"


def git(*words: str, cwd: Path) -> None:
    who = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a",
    }
    subprocess.run(["git", *words], cwd=cwd, env={**os.environ, **who}, check=True, capture_output=True)


def test_the_state_is_what_is_in_the_checkout_whether_or_not_it_is_committed(tmp_path: Path) -> None:
    git("init", cwd=tmp_path)
    (tmp_path / "one").write_text("1")
    written = state_of(tmp_path)
    git("add", "one", cwd=tmp_path)
    git("commit", "-m", "One", cwd=tmp_path)
    assert state_of(tmp_path) == written
    (tmp_path / "one").write_text("2")
    changed = state_of(tmp_path)
    (tmp_path / "new").touch()
    assert len({written, changed, state_of(tmp_path)}) == 3
    # What is staged is left as it is.
    status = subprocess.run(
        ["git", "status", "--short"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert status.stdout == " M one\n?? new\n"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command with two small pieces of its own; where it keeps its records."""
    monkeypatch.setattr(command, "PLACE", tmp_path)
    monkeypatch.setattr(command, "state_of", lambda checkout: "0000001f" + "0" * 32)

    def few(python: str, seed: int, out: Path) -> Sequence[Piece]:
        return piece("prints", f"print('seed {seed}')"), piece("fails", "raise SystemExit('broken')")

    monkeypatch.setattr(command, "pieces", few)
    return tmp_path


def test_the_command_prints_its_seed_first_sums_up_and_fails_if_a_piece_did(told: Path) -> None:
    shown = CliRunner().invoke(command.main, [])
    assert shown.exit_code == 1
    assert shown.output.startswith("state 0000001f0000, seed 31 (repeat with --seed 31)")
    assert "   | broken" in shown.output
    summary = (told / "0000001f0000-31" / "summary.md").read_text()
    assert "| prints | ok " in summary
    assert "| fails  | failed " in summary
    assert "| seed 31 |" in summary


def test_one_piece_is_chosen_by_its_name_and_done_again_only_if_that_is_asked_for(told: Path) -> None:
    first, again, fresh = (
        CliRunner().invoke(command.main, ["--only", "prints", *more]) for more in ([], [], ["--fresh"])
    )
    assert first.exit_code == again.exit_code == fresh.exit_code == 0
    assert "ok after" in first.output
    assert "finished earlier" in again.output
    assert "ok after" in fresh.output


def test_another_seed_is_another_run(told: Path) -> None:
    CliRunner().invoke(command.main, ["--only", "prints"])
    assert "seed 5\n" in CliRunner().invoke(command.main, ["--only", "prints", "--seed", "5"]).output


def test_a_name_that_is_none_is_refused_with_where_the_names_are(told: Path) -> None:
    shown = CliRunner().invoke(command.main, ["--only", "nonsense"])
    assert shown.exit_code == 2
    assert "found nonsense, expected names that --list shows" in shown.output


def test_the_list_shows_every_piece_and_does_nothing(told: Path) -> None:
    shown = CliRunner().invoke(command.main, ["--list"])
    assert [line.split()[0] for line in shown.output.splitlines()] == ["prints", "fails"]
    assert not list(told.iterdir())
