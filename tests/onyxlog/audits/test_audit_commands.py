"""What `onyxlog audit` and `audit-follow` look at before they start Spark, which takes long: paths, places, ports."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from onyxlog.audits import running, session
from onyxlog.main import main
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import RealFileSystem
from zraft_core.ids import ServerId


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, with a server's data directory `good`; whoever starts Spark fails the test."""

    def begun(_: object) -> None:
        pytest.fail("Spark was started before everything was looked at")

    monkeypatch.setattr(session, "find_java", begun)
    monkeypatch.chdir(tmp_path)
    directory = DataDirectory.open(
        RealFileSystem(), str(tmp_path / "good"), server=ServerId(1), entropy=os.urandom
    )
    directory.close()
    (tmp_path / "good" / "wal").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no directory")
    return tmp_path


@pytest.fixture
def closed() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def run(line: str) -> Result:
    return CliRunner().invoke(main, line.split())


@pytest.mark.parametrize("command", ["audit", "audit-follow --once"])
@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("/nothere", "/nothere: no such file or directory"),
        ("good absent-*", "absent-*: no such file or directory"),
        ("empty", "empty: found no data directory of a server"),
        ("file", "file: found no data directory of a server"),
        (
            "good --master local[many]",
            "--master: found 'local[many]', expected local[CORES] or spark://HOST:PORT",
        ),
        ("good --master nonsense", "--master: found 'nonsense'"),
        ("good --master spark://nowhere", "--master: found 'nowhere', expected HOST:PORT"),
        ("good --master spark://127.0.0.1:{closed}", "--master: 127.0.0.1:{closed}: Connection refused"),
        ("good --memory 2x", "--memory: found '2x', expected a size such as 2g"),
    ],
)
def test_what_is_wrong_is_told_before_spark_starts(
    data: Path, closed: int, command: str, rest: str, said: str
) -> None:
    before = sorted(data.rglob("*"))
    result = run(f"{command} {rest.format(closed=closed)}")
    assert result.exit_code == 2, result.output
    assert said.format(closed=closed) in result.output
    assert sorted(data.rglob("*")) == before, "nothing is made either"


def test_that_nobody_listens_where_to_publish_is_told_before_spark_starts(data: Path, closed: int) -> None:
    result = run(f"audit good --publish --connect 127.0.0.1:{closed}")
    assert result.exit_code == 2, result.output
    assert f"127.0.0.1:{closed}: Connection refused" in result.output


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("audit good --results /nothere", "/nothere: no such file or directory (--results)"),
        ("audit --results file", "file: expected JSON"),
        ("audit good --out file/report", "--out: file/report cannot be made: file is no directory"),
        ("audit good --tables file/tables", "--tables: file/tables cannot be made: file is no directory"),
        (
            "audit-follow good --checkpoint file/x",
            "--checkpoint: file/x cannot be made: file is no directory",
        ),
        ("audit-follow good --checkpoint other", "other: is the checkpoint of an audit of /elsewhere"),
    ],
)
def test_places_are_looked_at_before_spark_starts(data: Path, line: str, said: str) -> None:
    (data / "other").mkdir()
    (data / "other" / "paths.json").write_text(json.dumps(["/elsewhere"]))
    result = run(line)
    assert result.exit_code == 2, result.output
    assert said in result.output


def test_a_session_is_brief_if_there_is_little_to_read(
    generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log segments, snapshots and journals of all three servers count, but for what a running server has reserved."""
    data = tmp_path / "data"
    shutil.copytree(generated, data)
    newest = [max((server / "wal").iterdir()) for server in data.iterdir()]
    assert len(newest) == 3
    for segment in newest:
        os.truncate(segment, 64 << 20)
    counted = sum(file.stat().st_size for file in data.rglob("*") if file.is_file() and file not in newest)
    assert counted > 0
    asked = running.Asked(paths=(str(data),), rules=())
    monkeypatch.setattr(running, "SMALL_BYTES", counted)
    assert running.is_small(asked)
    monkeypatch.setattr(running, "SMALL_BYTES", counted - 1)
    assert not running.is_small(asked)


def test_a_place_that_may_not_be_written_to_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(data / "empty"))
    result = run(f"audit good --out {data}/empty/report")
    assert result.exit_code == 2
    assert f"--out: {data}/empty/report cannot be made: {data}/empty may not be written to" in result.output
