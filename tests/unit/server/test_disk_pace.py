"""A leader whose disk does not keep pace lets another one lead, and only then."""

from __future__ import annotations

import random

import pytest

from tests.so_far import so_far
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import (
    AppendEntriesReply,
    HardState,
    Member,
    PreVoteReply,
    RequestVoteReply,
    TimeoutNow,
)
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft.server.coordination.disk_pace import (
    COOL_DOWN_MS,
    RETRY_MS,
    SLOW_IN_A_ROW,
    DiskPace,
    best_successor,
)
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId

SLOW_MS = 100
INSTANCES = {ServerId(n): Instance(bytes([n]) * 16) for n in (1, 2, 3)}
ME, TWO, THREE = map(ServerId, (1, 2, 3))


def _raft() -> Raft:
    return Raft(
        group=COORDINATION_GROUP,
        server=ME,
        instance=INSTANCES[ME],
        settings=RaftSettings(),
        hard_state=HardState(),
        log=Log(),
        membership=Membership({s: Member(i) for s, i in INSTANCES.items()}),
        rng=random.Random(1),
    )


def _write(raft: Raft) -> int:
    ready = raft.ready()
    return ready.write.number if ready.write is not None else 0


def _lead() -> Raft:
    """Server 1 leads, and everything it wrote so far is durable."""
    raft = _raft()
    raft.hasten_election()
    raft.tick(1)
    raft.step(TWO, INSTANCES[TWO], PreVoteReply(COORDINATION_GROUP, 1, True))
    raft.persisted(_write(raft))
    raft.step(TWO, INSTANCES[TWO], RequestVoteReply(COORDINATION_GROUP, 1, True))
    assert raft.role is Role.LEADER
    raft.persisted(_write(raft))
    _acknowledge(raft, TWO, THREE)
    raft.ready()
    return raft


def _acknowledge(raft: Raft, *servers: ServerId) -> None:
    for server in servers:
        raft.step(
            server,
            INSTANCES[server],
            AppendEntriesReply(COORDINATION_GROUP, raft.term, True, raft.log.last_index, raft.round),
        )


def _frames(
    raft: Raft, pace: DiskPace, ms: int, count: int = 1, *, overtaken: bool = True, at: int = 0
) -> int:
    """Frames that take `ms` each; the moment after the last."""
    for _ in range(count):
        pace.began(at)
        at += ms
        pace.ended(at, overtaken=overtaken)
        pace.step(raft, at)
    return at


@pytest.fixture
def pace() -> DiskPace:
    return DiskPace(SLOW_MS, 300)


def test_slow_writes_in_a_row_that_the_others_overtook_hand_the_leadership_on_once(pace: DiskPace) -> None:
    raft = _lead()
    at = _frames(raft, pace, SLOW_MS, SLOW_IN_A_ROW - 1)
    assert not so_far(raft.transferring)
    at = _frames(raft, pace, SLOW_MS, at=at)
    assert raft.transferring
    assert pace.handovers_total == 1
    assert "wal.slow_fsync_ms" in pace.notices[0]
    _frames(raft, pace, SLOW_MS, 10, at=at)
    assert pace.handovers_total == 1


@pytest.mark.parametrize(
    ("ms", "overtaken"), [(SLOW_MS - 1, True), (SLOW_MS, False)], ids=["not slow", "the others are no faster"]
)
def test_a_leader_that_is_no_slower_than_the_others_leads_on(
    pace: DiskPace, ms: int, overtaken: bool
) -> None:
    raft = _lead()
    _frames(raft, pace, ms, 20, overtaken=overtaken)
    assert not raft.transferring


def test_one_quick_write_begins_the_count_anew(pace: DiskPace) -> None:
    raft = _lead()
    at = _frames(raft, pace, SLOW_MS, SLOW_IN_A_ROW - 1)
    at = _frames(raft, pace, 1, at=at)
    _frames(raft, pace, SLOW_MS, SLOW_IN_A_ROW - 1, at=at)
    assert not raft.transferring


def _stuck_with_an_entry(raft: Raft, *others: ServerId) -> None:
    """A write is under way that does not end; `others` have what is in it."""
    assert raft.propose(b"entry", 1) is not None
    raft.ready()
    _acknowledge(raft, *others)


def test_a_full_disk_is_given_an_election_timeout(pace: DiskPace) -> None:
    raft = _lead()
    pace.began(0)
    pace.full(True)
    _stuck_with_an_entry(raft, TWO, THREE)
    assert raft.commit_index > raft.durable_index
    pace.step(raft, 299)
    assert not so_far(raft.transferring)
    pace.step(raft, 300)
    assert raft.transferring
    assert "full" in pace.notices[0]


def test_a_write_that_does_not_end_counts_before_it_ends(pace: DiskPace) -> None:
    raft = _lead()
    pace.began(0)
    _stuck_with_an_entry(raft, TWO, THREE)
    pace.step(raft, SLOW_IN_A_ROW * SLOW_MS - 1)
    assert not raft.transferring
    pace.step(raft, SLOW_IN_A_ROW * SLOW_MS)
    assert raft.transferring


def test_nothing_is_handed_to_those_who_cannot_write_either(pace: DiskPace) -> None:
    """All disks are full: an election would end with nobody, since a candidate's own vote has to be written."""
    raft = _lead()
    pace.began(0)
    pace.full(True)
    _stuck_with_an_entry(raft)
    pace.step(raft, 10_000)
    assert not raft.transferring
    assert raft.holds_back


def test_it_goes_to_the_one_whose_disk_took_what_this_one_did_not(pace: DiskPace) -> None:
    raft = _lead()
    pace.began(0)
    pace.full(True)
    _stuck_with_an_entry(raft, THREE)
    # Two of three: the leader's own copy does not count, so nothing is committed yet.
    assert raft.commit_index <= raft.durable_index
    _acknowledge(raft, THREE)
    assert best_successor(raft) == THREE
    assert best_successor(raft, raft.log.last_index) == THREE


def test_a_server_whose_write_does_not_end_does_not_stand_for_election(pace: DiskPace) -> None:
    raft = _raft()
    pace.began(0)
    pace.full(True)
    pace.step(raft, 300)
    raft.tick(10_000)
    assert so_far(raft.role) is Role.FOLLOWER
    pace.full(False)
    pace.ended(400, overtaken=True)
    pace.step(raft, 400)
    raft.tick(10_000)
    assert raft.role is Role.PRE_CANDIDATE


def test_a_server_whose_write_does_not_end_does_not_take_the_leadership_that_it_is_offered(
    pace: DiskPace,
) -> None:
    """Else the cluster would wait for a vote that is never cast."""
    raft = _raft()
    raft.leader = TWO
    pace.began(0)
    pace.full(True)
    pace.step(raft, 300)
    raft.step(TWO, INSTANCES[TWO], TimeoutNow(COORDINATION_GROUP, 0))
    assert raft.role is Role.FOLLOWER


def test_an_attempt_that_fails_is_repeated_after_a_while_and_one_that_succeeds_is_not(pace: DiskPace) -> None:
    raft = _lead()
    at = _frames(raft, pace, SLOW_MS, SLOW_IN_A_ROW)
    assert so_far(raft.transferring)
    raft.tick(300)
    assert raft.role is Role.LEADER
    assert not so_far(raft.transferring)
    _acknowledge(raft, TWO, THREE)
    pace.step(raft, at + RETRY_MS - 1)
    assert not so_far(raft.transferring)
    pace.step(raft, at + RETRY_MS)
    assert raft.transferring
    assert pace.handovers_total == 2
    raft.role = Role.FOLLOWER
    at += RETRY_MS
    pace.step(raft, at)
    other = _lead()
    _frames(other, pace, SLOW_MS, SLOW_IN_A_ROW, at=at)
    assert not other.transferring, "it comes back, and is off at once again"
    _frames(other, pace, SLOW_MS, SLOW_IN_A_ROW, at=at + COOL_DOWN_MS)
    assert other.transferring


def test_slowness_counts_for_nothing_where_the_knob_is_zero() -> None:
    pace = DiskPace(0, 300)
    raft = _lead()
    _frames(raft, pace, 60_000, 10)
    assert not raft.transferring
    pace.began(0)
    assert not pace.is_stuck(10**9)
