"""Notes of running clusters of `zraft dev`: who leaves them, who believes them, and for which addresses."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from zraft.cli.dev_clusters import (
    NOTES_MAX,
    DevCluster,
    announced,
    notes,
    notes_directory,
    running_at,
    touched_by,
)
from zraft.cli.operator_options import servers_and_cluster
from zraft_core.address import Address

HERE = "127.0.0.1"


def at(*ports: int, host: str = HERE) -> tuple[Address, ...]:
    return tuple(Address(host, port) for port in ports)


def cluster(*ports: int) -> DevCluster:
    return DevCluster(at(*ports), Path("/data"), Path("/data/cluster.key"))


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


def unheard(text: str) -> None:
    raise AssertionError(text)


def test_a_cluster_is_known_as_long_as_it_runs(environ: Mapping[str, str]) -> None:
    with announced(cluster(3001, 3002), environ, unheard):
        [note] = notes(environ)
        assert note.running
        assert note.cluster == cluster(3001, 3002)
    assert notes(environ) == []


def test_what_a_killed_process_left_is_not_a_running_cluster_but_a_hint(environ: Mapping[str, str]) -> None:
    with announced(cluster(3001), environ, unheard):
        [file] = notes_directory(environ).glob("*.json")
        text = file.read_text()
    file.write_text(text)  # as a SIGKILL leaves it: there, and nobody locks it
    known = notes(environ)
    assert [note.running for note in known] == [False]
    assert running_at(at(3001), known) is None
    assert touched_by(at(3001, 9), known) == cluster(3001)


def test_a_cluster_is_found_by_its_own_addresses_only(environ: Mapping[str, str]) -> None:
    with (
        announced(cluster(3001, 3002, 3003), environ, unheard),
        announced(cluster(4001, 4002), environ, unheard),
    ):
        known = notes(environ)
    assert running_at(at(3001, 3002, 3003), known) == cluster(3001, 3002, 3003)
    assert running_at(at(3002), known) == cluster(3001, 3002, 3003)
    assert running_at(at(4002, host="localhost"), known) == cluster(4001, 4002)
    for others in (at(3001, 3002, 3003, 3004), at(3001, 4001), at(3001, host="10.0.0.1"), at(5000)):
        assert running_at(others, known) is None, others


def test_servers_that_nobody_chose_are_those_of_the_cluster_that_runs_there(
    environ: Mapping[str, str],
) -> None:
    usual = at(3001, 3002, 3003)
    with announced(cluster(3001, 3002), environ, unheard):
        two = notes(environ)
        assert servers_and_cluster(usual, two, chosen=False) == (at(3001, 3002), cluster(3001, 3002))
        assert servers_and_cluster(usual, two, chosen=True) == (usual, None)
    with announced(cluster(3002, 3003), environ, unheard):
        assert servers_and_cluster(usual, notes(environ), chosen=False) == (usual, None)
    with announced(cluster(3001, 3002, 3003, 3004), environ, unheard):
        assert servers_and_cluster(usual, notes(environ), chosen=False)[0] == usual


def test_the_note_of_a_later_cluster_at_the_same_port_outlives_the_earlier_one(
    environ: Mapping[str, str],
) -> None:
    later = DevCluster(at(3001), Path("/other"), None)
    with announced(later, environ, unheard):
        with announced(cluster(3001), environ, unheard):
            pass
        assert notes(environ) == []
        with announced(cluster(3001), environ, unheard), announced(later, environ, unheard):
            assert [note.cluster for note in notes(environ)] == [later]


def test_nobody_elses_directory_or_note_is_believed(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = notes_directory(environ)
    told: list[str] = []
    with announced(cluster(3001), environ, unheard):
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        assert notes(environ) == []
        with announced(cluster(3002), environ, told.append):
            assert "belongs to somebody else" in told.pop()
        monkeypatch.undo()
        directory.chmod(0o770)
        assert notes(environ) == []
        directory.chmod(0o700)
        (directory / "3001.json").chmod(0o666)
        assert notes(environ) == []
        (directory / "3001.json").chmod(0o600)
        assert len(notes(environ)) == 1
        elsewhere = {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}
        notes_directory(elsewhere).parent.mkdir(parents=True)
        notes_directory(elsewhere).symlink_to(directory)
        assert notes(elsewhere) == []
        with announced(cluster(3002), elsewhere, told.append):
            assert len(told) == 1
        (directory / "9.json").symlink_to(directory / "3001.json")
        assert len(notes(environ)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        '{"servers": [], "data": "/d", "key": null}',
        '{"servers": ["nowhere"], "data": "/d", "key": null}',
        '{"servers": ["127.0.0.1:1", 2], "data": "/d", "key": null}',
        '{"servers": ["127.0.0.1:1"], "data": "/d", "key": 7}',
        json.dumps({"servers": ["127.0.0.1:1"], "data": "/" * 20_000, "key": None}),
    ],
)
def test_a_file_that_is_no_note_is_passed_over(environ: Mapping[str, str], text: str) -> None:
    with announced(cluster(3001), environ, unheard):
        (notes_directory(environ) / "1.json").write_text(text)
        assert [note.cluster for note in notes(environ)] == [cluster(3001)]


def test_a_named_pipe_in_the_place_of_a_note_is_not_waited_for(environ: Mapping[str, str]) -> None:
    notes_directory(environ).mkdir(parents=True, mode=0o700)
    os.mkfifo(notes_directory(environ) / "1.json")
    assert notes(environ) == []


def test_of_very_many_notes_the_newest_are_read(environ: Mapping[str, str]) -> None:
    with announced(cluster(3001), environ, unheard):
        for number in range(NOTES_MAX + 5):
            old = notes_directory(environ) / f"old-{number}.json"
            old.write_text("{}")
            os.utime(old, (1, 1))
        assert running_at(at(3001), notes(environ)) == cluster(3001)


def test_a_cluster_runs_without_a_place_for_notes(tmp_path: Path) -> None:
    (tmp_path / "zraft").write_text("a file in the way")
    told: list[str] = []
    with announced(cluster(3001), {"XDG_STATE_HOME": str(tmp_path)}, told.append):
        [text] = told
    assert text.startswith("commands will not find the key by themselves")
    assert notes({"XDG_STATE_HOME": str(tmp_path)}) == []
