"""Whether a server belongs to its cluster, from what its disk holds (D-1)."""

from __future__ import annotations

import pytest

from zraft.ids import Instance, ServerId
from zraft.raft.log import Log
from zraft.raft.messages import HardState
from zraft.server.belonging import Belonging
from zraft.server.bootstrap import Roster
from zraft.server.driver_types import DriverSettings, Identity, Stored
from zraft.server.outbox import Outbox

INSTANCES = {ServerId(n): Instance(bytes([n]) * 16) for n in (1, 2, 3)}
ROSTER: Roster = tuple(sorted(INSTANCES.items()))


def _started(hard_state: HardState, roster: Roster | None) -> Belonging:
    me = ServerId(1)
    identity = Identity(me, INSTANCES[me], 2, b"boot id!", None)
    outbox = Outbox(me)
    return Belonging(
        identity, list(INSTANCES), DriverSettings(), Stored(hard_state, roster, Log()), {}, outbox
    )


@pytest.mark.parametrize(
    ("hard_state", "roster", "founded"),
    [
        (HardState(0, None), None, False),
        (HardState(0, None), ROSTER, False),
        (HardState(1, ServerId(3)), ROSTER, True),
        (HardState(1, None), None, False),
    ],
    ids=["empty", "agreed, no more", "has voted", "taken in, no founder"],
)
def test_d1_a_founder_that_has_a_term_asks_nobody_again_whether_all_agree(
    hard_state: HardState, roster: Roster | None, founded: bool
) -> None:
    """Seed 600356: another founder's disk was lost meanwhile, its successor did not agree, and nobody led any more."""
    assert _started(hard_state, roster).bootstrap.founded is founded
