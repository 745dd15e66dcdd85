"""How soon a server whose state differs stops serving (D-26): in entries after the divergence, and in time after those.

Times and the distance of the points are scaled down here (`SCALED` in tests/simulation/simulation.py): 64 entries for 1,024,
200 ms for a second between two verdicts, 100 ms for a second between two reports. The bound is made of the same parts.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.directed import Scene
from tests.simulation.planted import differing
from tests.simulation.profile import TICK_TIME_MS
from zraft.groups.digests import DivergedError
from zraft.server.coordination.membership_keeper import LOOK_INTERVAL_MS

POINTS_EVERY: Final = 64
VERDICT_MS: Final = 200
ROUND_TRIP_MS: Final = 2 * 2 + 40
"""Two messages of at most 2 ms, and what their receivers may sleep."""

AFTER_POINT_MS: Final = TICK_TIME_MS // 2 + VERDICT_MS + LOOK_INTERVAL_MS + ROUND_TRIP_MS
"""After a majority and the server itself passed a point: a report, a verdict, and their way."""

ENTRY_MS_MIN: Final = 2
"""One entry at a time is on its way, and takes a message there and one back."""

AFTER_POINT_ENTRIES: Final = AFTER_POINT_MS // ENTRY_MS_MIN


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("from_index", [65, 100, 126, 127, 130])
def test_server_that_differs_stops_within_a_point_and_a_verdict(from_index: int, leads: bool) -> None:
    """D-26: at most `POINTS_EVERY` entries to the next point, then those of one report and one verdict."""
    with Scene(clients=4) as scene:
        servers = scene.found()
        liar = servers[0] if leads else servers[1]
        point = -(-from_index // POINTS_EVERY) * POINTS_EVERY
        with differing(liar.server, from_index), scene.busy():
            # A digest is noted when the entry after it begins.
            scene.until(
                lambda: scene.applied(liar) > point and sum(scene.applied(s) > point for s in servers) >= 2,
                "the point is passed",
            )
            began = scene.simulation.raft_checks.differs_since
            assert began is not None, f"entry {from_index} has no commands: nothing differs"
            with pytest.raises(DivergedError, match=f"since entry {point} at the latest"):
                scene.until(lambda: False, "it stops", AFTER_POINT_MS)
        assert from_index <= began < from_index + 4
        behind = scene.applied(liar) - from_index
        assert behind <= POINTS_EVERY + AFTER_POINT_ENTRIES, f"it served {behind} entries more"
