"""A log is truncated while it is written, read and followed: nobody waits long enough for an election."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.onyxlog.truncation import KEPT, measure
from tests.processes.cluster import Cluster


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_log_is_truncated_under_load_without_an_election(tmp_path: Path) -> None:
    """D-20. `python -m tests.onyxlog.truncation` does it with a million entries, and tells the stalls."""
    with Cluster(tmp_path, env={"ZRAFT_CLIENT__FOUR_LETTER_WORDS": "*"}) as cluster:
        cluster.start_all()
        found = asyncio.run(measure(cluster, entries=5_000, peers=3_000, before_s=0.5))
    assert found.terms[0] == found.terms[1]
    assert found.visible >= KEPT
    for seen in (found.before, found.during):
        assert seen.appends.count > 0
        assert seen.reads.count > 0
        assert seen.deliveries.count > 0
