"""`zraft recover` asks before it does anything, and what it shows is what an operator has to know."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.unit.offline.states import CLUSTER, opened, server_directory
from zraft.cli import offline_options
from zraft.cli.recover_command import recover

PLACE = ("--id", "1", "--cluster", "1=127.0.0.1:2181,2=127.0.0.1:2182")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """With somebody at a terminal."""
    monkeypatch.setattr(offline_options, "_somebody_is_there", lambda: True)
    return CliRunner()


def typed(run: CliRunner, directory: Path, text: str) -> Result:
    return run.invoke(recover, ["--data", str(directory), *PLACE], input=f"{text}\n")


def test_it_shows_where_the_directory_ends_and_asks_for_the_clusters_id(
    run: CliRunner, tmp_path: Path
) -> None:
    instance = server_directory(tmp_path, count=3)
    result = typed(run, tmp_path, "yes")
    assert result.exit_code == 1
    for said in (
        f"cluster:      {CLUSTER.hex()}",
        "term:         4",
        "last entry:   index 8, term 1; all of the log, no snapshot",
        "last write:   2023-11-14T22:13:20Z (",
        "7 znodes, 1 sessions",
        f"1   voter     a:1                     {instance.hex()} <- this directory",
        "CAN LOSE WRITES",
        "type the first 8 characters of the cluster id",
        f"found 'yes', expected the first 8 characters of the cluster id, {CLUSTER.hex()[:8]!r}",
    ):
        assert said in result.output, said
    assert not list(tmp_path.glob("aside-*"))


def test_what_was_typed_is_what_was_shown_then_it_is_done(run: CliRunner, tmp_path: Path) -> None:
    instance = server_directory(tmp_path, count=3)
    result = typed(run, tmp_path, CLUSTER.hex()[:8].upper())
    assert result.exit_code == 0, result.output
    assert f"old data:  {tmp_path}/aside-{instance.hex()}" in result.output
    directory, _, machine, *_ = opened(tmp_path)
    assert directory.cluster != CLUSTER
    assert "/n2" in machine.nodes
    assert "--cluster 1=127.0.0.1:2181,2=127.0.0.1:2182 --key FILE" in result.output
