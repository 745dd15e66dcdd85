"""`zraft ls` asks servers for little: a directory may have a hundred thousand children."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from tests.client.conftest import ClusterThread
from zraft.cli.main import main
from zraft_client import BlockingClient

NAMES = [f"child-{number:03}" for number in range(30)]


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    """A server with a directory of some children."""
    started = ClusterThread(1)
    try:
        with BlockingClient(started.hosts) as client:
            client.create("/many")
            for name in NAMES:
                client.create(f"/many/{name}")
        yield started
    finally:
        started.close()


def listed(cluster: ClusterThread, *options: str) -> tuple[list[str], list[str]]:
    """The lines that `zraft ls /many` prints, and the types of the requests that it sends about znodes."""
    before = len(cluster.requests())
    done = CliRunner().invoke(main, ["ls", "/many", "--connect", cluster.hosts, *options])
    assert done.exit_code == 0, done.output
    asked = [kind for kind in cluster.requests()[before:] if kind in ("children", "exists", "read")]
    return done.stdout.splitlines(), asked


def test_names_cost_one_request_however_many_there_are(cluster: ClusterThread) -> None:
    assert listed(cluster) == (NAMES, ["children"])


@pytest.mark.parametrize("option", ["--json", "--output=json", "--long"])
def test_what_has_stats_asks_for_each_znode_once(cluster: ClusterThread, option: str) -> None:
    lines, asked = listed(cluster, option)
    assert asked == ["children", *["exists"] * len(NAMES)]
    if "json" in option:
        rows = list(map(json.loads, lines))
        assert [(row["name"], row["numChildren"]) for row in rows] == [(name, 0) for name in NAMES]
    else:
        assert [line.split()[-1] for line in lines[1:-1]] == NAMES
