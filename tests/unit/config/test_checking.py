"""`zraft config check`: what each line of a settings file does, and every mistake in it with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from zraft.cli.main import main
from zraft.config.checking import HIDDEN, CheckedFile, Verdict, check_file, toml_lines

GOOD = """\
id = 1
data = "data"
address = "10.0.0.1:2181"
key = "cluster.key"

[admin]
address = "127.0.0.1:8080"

[cluster]
1 = "10.0.0.1:2181"
2 = "10.0.0.2:2181"
3 = "10.0.0.3:2181"

[auth]
super_digest = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="

[raft]
heartbeat_ticks = 20
"""


def checked(tmp_path: Path, text: str, name: str = "zraft.toml", **flags: str) -> CheckedFile:
    file = tmp_path / name
    file.write_text(text)
    return check_file(file, flags)


def places(found: CheckedFile) -> list[tuple[int | None, str]]:
    return [(one.line, one.name) for one in found.settings]


def errors(found: CheckedFile) -> list[tuple[int | None, str]]:
    return [(one.line, one.text) for one in found.settings if one.verdict is Verdict.ERROR]


def test_a_good_file_is_explained_line_by_line_and_keeps_its_secrets(tmp_path: Path) -> None:
    found = checked(tmp_path, GOOD)
    assert found.good
    assert found.missing == ()
    assert places(found) == [
        (1, "id"),
        (2, "data"),
        (3, "address"),
        (4, "key"),
        (7, "admin"),
        (9, "cluster"),
        (15, "auth.super_digest"),
        (18, "raft.heartbeat_ticks"),
    ]
    assert found.settings[6].value == HIDDEN
    assert "xQJmx" not in str(found)
    assert "at least this often" in found.settings[7].text


@pytest.mark.parametrize(
    ("old", "new", "line", "part"),
    [
        ("heartbeat_ticks = 20", "hearbeat_ticks = 20", 18, "did you mean raft.heartbeat_ticks?"),
        (
            "heartbeat_ticks = 20",
            "heartbeat_ticks = 0",
            18,
            "found 0, expected a whole number from 1 to 20000",
        ),
        ("heartbeat_ticks = 20", "election_timeout_ticks = 100", 18, "expected at least three times"),
        ("10.0.0.1:2181", "10.0.0.1:2182", 3, "have different ports"),
        ('key = "cluster.key"', "", None, "a cluster of 3 servers needs one"),
        ("id = 1", "id = 1\nwal = 5", 2, "expected a table, [wal]"),
        ("id = 1", "id = ", 1, "this is not TOML"),
    ],
)
def test_each_mistake_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, line: int | None, part: str
) -> None:
    found = checked(tmp_path, GOOD.replace(old, new, 1))
    assert not found.good
    [place] = [at for at, said in errors(found) if part in said]
    assert place == line


def test_a_mistake_does_not_hide_the_next_one(tmp_path: Path) -> None:
    wrong = GOOD.replace("id = 1", "id = 0").replace("heartbeat_ticks", "hearbeat_ticks")
    assert [line for line, _ in errors(checked(tmp_path, wrong))] == [1, 18]


def test_what_is_missing_is_listed_and_hides_no_broken_rule(tmp_path: Path) -> None:
    found = checked(tmp_path, "[raft]\nheartbeat_ticks = 200\n")
    assert found.missing == ("id", "data", "address", "cluster")
    assert [line for line, _ in errors(found)] == [1]
    assert "raft.election_timeout_ticks" in errors(found)[0][1]
    whole = checked(tmp_path, "[raft]\n", id="1", data="d", address="127.0.0.1:1", cluster="1=127.0.0.1:1")
    assert (whole.good, whole.missing) == (True, ())


ZOO = """\
# a comment
tickTime=2000
dataDir=data
clientPort=2181
initLimit=5
skipACL=yes
mystery=secret
ssl.keyStore.password=secret
"""


def test_a_zoo_cfg_is_explained_by_what_its_keys_are_here(tmp_path: Path) -> None:
    found = checked(tmp_path, ZOO, "zoo.cfg")
    assert found.good, errors(found)
    verdicts = {one.name: one.verdict for one in found.settings}
    assert verdicts["tickTime"] is Verdict.OK
    assert verdicts["initLimit"] is Verdict.IGNORED
    assert verdicts["skipACL"] is verdicts["mystery"] is Verdict.WARNING
    assert "secret" not in [one.value for one in found.settings]
    assert places(found)[:2] == [(2, "tickTime"), (3, "dataDir")]


@pytest.mark.parametrize(
    ("line", "number", "part"),
    [
        ("clientPort=many", 9, "many"),
        ("zraft.raft.hearbeat_ticks=1", 9, "no such knob"),
        ("server.1=nowhere", 9, "expected server.1=HOST"),
    ],
)
def test_a_mistake_in_a_zoo_cfg_has_its_line(tmp_path: Path, line: str, number: int, part: str) -> None:
    found = checked(tmp_path, f"{ZOO}{line}\n", "zoo.cfg")
    assert [place for place, text in errors(found) if part in text] == [number]


def test_lines_of_sections_stand_for_what_is_inside_them() -> None:
    assert toml_lines("raft = { heartbeat_ticks = 1 }\n")["raft.heartbeat_ticks"] == 1
    assert toml_lines('x = 1\n[wal]\nslow_fsync_ms = 1\n"tail_bytes_max" = 2\n')["wal.tail_bytes_max"] == 4


def test_the_command_prints_problems_as_compilers_do_and_exits_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zraft.cli.listings.listing_options.output_width", lambda: 80)
    file = tmp_path / "zraft.toml"
    file.write_text(GOOD.replace("heartbeat_ticks = 20", "heartbeat_ticks = 0"))
    result = CliRunner().invoke(main, ["config", "check", str(file)])
    assert result.exit_code == 2
    assert f"{file}:18: raft.heartbeat_ticks: found 0" in result.output
    rows = [line for line in result.output.splitlines() if not line.startswith(str(file))]
    assert max(map(len, rows)) <= 80
    file.write_text("tick_time_ms = 1000\n")
    result = CliRunner().invoke(main, ["config", "check", str(file), "--json", "--set", "id=1"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["line"] == 1
    assert CliRunner().invoke(main, ["config", "check", str(tmp_path / "none")]).exit_code == 2


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_prints_a_script_that_asks_the_program(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_ZRAFT_COMPLETE={shell}_complete" in result.output


def test_commands_that_are_imported_late_are_completed() -> None:
    from click.shell_completion import ShellComplete

    completer = ShellComplete(main, {}, "zraft", "_ZRAFT_COMPLETE")
    assert [one.value for one in completer.get_completions(["topic"], "cre")] == ["create"]
    assert "--recursive" in [one.value for one in completer.get_completions(["ls"], "--")]
    assert [one.value for one in completer.get_completions(["ls", "--output"], "j")] == ["json"]
