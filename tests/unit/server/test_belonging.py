"""Whether a server belongs to its cluster, from what its disk holds (D-1)."""

from __future__ import annotations

import pytest

from zraft.groups.identity import Identity
from zraft.groups.outbox import PeerOutbox
from zraft.groups.recovery import Stored
from zraft.groups.roster import Roster
from zraft.raft.log import Log
from zraft.raft.messages import HardState
from zraft.server.coordination.belonging import Belonging
from zraft.server.engine.settings import DriverSettings
from zraft.transport.messages import Hello, NotMember, Sender
from zraft_core.ids import Instance, ServerId

INSTANCES = {ServerId(n): Instance(bytes([n]) * 16) for n in (1, 2, 3)}
ROSTER: Roster = tuple(sorted(INSTANCES.items()))


def _started(hard_state: HardState, roster: Roster | None, *, founds: bool = True) -> Belonging:
    me = ServerId(1)
    identity = Identity(me, INSTANCES[me], 2, b"boot id!", None)
    outbox = PeerOutbox(me)
    return Belonging(
        identity,
        list(INSTANCES),
        DriverSettings(founds=founds),
        Stored(hard_state, roster, Log()),
        {},
        outbox,
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


def _hello(belonging: Belonging, server: int, hello: Hello) -> None:
    sender = Sender(ServerId(server), INSTANCES[ServerId(server)], 1)
    belonging.on_hello(sender, hello, None, None, serving=False, now_ms=0)


def test_who_founds_nothing_says_what_it_waits_for_and_what_to_do() -> None:
    place = _started(HardState(0, None), None, founds=False)
    for _ in range(2):
        assert place.problem(led=False) is None
        waiting = place.waiting(led=False)
        assert waiting is not None
        assert "founds no cluster" in waiting
        assert "`zraft import" in waiting
        assert "founds=true" in waiting
        _hello(place, 2, Hello(None, None, False))
        _hello(place, 3, Hello(None, None, False))


def test_who_cannot_found_without_one_that_founds_nothing_names_it() -> None:
    place = _started(HardState(0, None), None)
    _hello(place, 2, Hello(None, (), False))
    _hello(place, 3, Hello(None, None, False))
    waiting = place.waiting(led=False)
    assert waiting is not None
    assert "server 2 founds no cluster" in waiting


def test_joining_with_an_empty_disk_is_no_problem_but_waited_for() -> None:
    """It is planned, and was logged as an error."""
    place = _started(HardState(0, None), None)
    _hello(place, 2, Hello(b"c" * 16, None, False))
    place.seek(0)
    assert place.problem(led=False) is None
    assert "waiting until the leader of cluster" in (place.waiting(led=False) or "")
    place.on_not_member(ServerId(2), NotMember(b"c" * 16, 9), None)
    assert place.problem(led=False) is None
    assert "`zraft member add 1" in (place.waiting(led=False) or "")
