"""A server of a release that is too old ends with a sentence, not with a traceback and not with a guess (D-5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.cluster import Cluster
from tests.unit.offline.states import found_at, rich, server_directory
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft_core.znodes.txn import FEATURE

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


def ends_alone(directory: Path) -> str:
    """What server 1 says when it is started on the directory that was put into its place."""
    with Cluster(directory, servers=1) as cluster:
        cluster.start(1)
        assert cluster.wait_exit(1) == 1
        text = cluster.servers[1].log_text()
    assert "Traceback" not in text, text
    assert f"feature level {FEATURE_LEVEL_MAX + 1}, this release knows 1 to {FEATURE_LEVEL_MAX}" in text
    assert "corrupt" not in text
    return text


def test_d5_a_snapshot_of_a_newer_level_is_no_damaged_one(tmp_path: Path) -> None:
    machine = rich()
    machine.feature_level = FEATURE_LEVEL_MAX + 1
    found_at(tmp_path / "server-1", machine)
    text = ends_alone(tmp_path)
    assert text.startswith("Error: the image is of feature level"), text
    assert text.count("\n") <= 2


def test_d5_a_level_in_the_log_that_is_not_known_ends_the_server(tmp_path: Path) -> None:
    server_directory(tmp_path / "server-1", (FEATURE, FEATURE_LEVEL_MAX + 1), count=2)
    text = ends_alone(tmp_path)
    assert "server failed" in text
    assert "the log from entry" in text
