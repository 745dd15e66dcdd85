"""Words are counted exactly on real processes of which one is killed midway; the full size is a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.onyxlog.word_count import Size, run

pytestmark = pytest.mark.processes


@pytest.mark.timeout(600)
def test_no_word_is_lost_when_a_peer_is_killed(tmp_path: Path) -> None:
    """`run` checks every count."""
    size = Size(segments=150_000, peers=5, killed=1, checkpoint_interval_ms=100, servers=1, kill_at=0.05)
    outcomes = run(size, tmp_path)
    assert [outcome.job for outcome in outcomes] == ["counted", "placed"]
    assert all(outcome.attempts >= 2 for outcome in outcomes)
    assert all(outcome.written >= 3 * size.segments for outcome in outcomes)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_million_segments_on_eight_peers_of_which_two_are_killed(tmp_path: Path) -> None:
    outcomes = run(Size(), tmp_path)
    assert all(outcome.attempts >= 2 for outcome in outcomes)
