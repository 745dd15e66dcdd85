"""The history file: private, bounded, without passwords, and never in the way."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from zraft.shell.history import LINES_MAX, LineHistory, history_file


def test_the_file_is_where_xdg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert history_file({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "zraft" / "shell_history"
    monkeypatch.setenv("HOME", str(tmp_path))
    for environ in ({}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}):
        assert history_file(environ) == tmp_path / ".local" / "state" / "zraft" / "shell_history"


def test_lines_are_kept_for_the_next_shell_latest_first(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "down" / "history"
    one = LineHistory(file)
    assert list(one.load_history_strings()) == []
    for line in ("ls /", "  ", "addauth digest bob:secret", " addauth x", "get /a"):
        one.store_string(line)
    assert list(LineHistory(file).load_history_strings()) == ["get /a", "ls /"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert one.failure is None


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text("".join(f"line {n}\n" for n in range(2 * LINES_MAX + 1)))
    loaded = list(LineHistory(file).load_history_strings())
    assert len(loaded) == LINES_MAX
    assert loaded[0] == f"line {2 * LINES_MAX}"
    assert file.read_text().splitlines() == loaded[::-1]
    assert [one.name for one in tmp_path.iterdir()] == ["history"]


def test_a_file_that_cannot_be_used_costs_the_history_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = LineHistory(tmp_path / "file" / "history")
    history.store_string("ls /")
    assert isinstance(history.failure, OSError)
    directory = LineHistory(tmp_path)
    assert list(directory.load_history_strings()) == []
    assert isinstance(directory.failure, OSError)
