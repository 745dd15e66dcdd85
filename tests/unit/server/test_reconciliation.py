"""The leader's next change of the membership, for every situation that an operator or a disk can make (D-1, D-18)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest

from zraft.raft.membership.value import Membership
from zraft.raft.messages import UNKNOWN_INSTANCE, Member, MemberRole
from zraft.server.coordination.reconciliation import (
    DEAD_AFTER_MS,
    JOIN_VALID_MS,
    JoinRequest,
    MembershipSituation,
    is_as_wanted,
    next_step,
    refusals,
)
from zraft.tree.members import WantedMember
from zraft_core.ids import Instance, ServerId

VOTER, LEARNER, OBSERVER = MemberRole.VOTER, MemberRole.LEARNER, MemberRole.OBSERVER
NOW = 100_000


def disk(name: str) -> Instance:
    return Instance(name.encode().ljust(16, b"."))


def address(server: int) -> str:
    return f"10.0.0.{server}:2181"


def member(server: int, role: MemberRole = VOTER, name: str | None = None) -> Member:
    return Member(disk(name or f"disk {server}"), role, address(server))


def situation(
    members: Mapping[int, Member],
    wanted: Mapping[int, bool],
    *,
    joins: Mapping[int, tuple[str, int]] | None = None,
    silent: Mapping[int, int] | None = None,
    caught_up: tuple[int, ...] = (),
    unheard: tuple[int, ...] = (),
    me: int = 1,
) -> MembershipSituation:
    return MembershipSituation(
        me=ServerId(me),
        membership=Membership({ServerId(s): m for s, m in members.items()}),
        wanted={ServerId(s): WantedMember(voter, address(s)) for s, voter in wanted.items()},
        joins={ServerId(s): JoinRequest(disk(name), at) for s, (name, at) in (joins or {}).items()},
        silent_ms={ServerId(s): ms for s, ms in (silent or {}).items()},
        caught_up=frozenset(map(ServerId, caught_up)),
        now_ms=NOW,
        unheard=frozenset(map(ServerId, unheard)),
    )


def roles(step: object) -> dict[int, tuple[MemberRole, Instance]]:
    assert step is not None
    members = step.members  # type: ignore[attr-defined]
    assert members is not None
    return {server: (m.role, m.instance) for server, m in members.items()}


THREE = {1: member(1), 2: member(2), 3: member(3)}


def test_nothing_happens_while_all_is_as_wanted() -> None:
    assert next_step(situation(THREE, {1: True, 2: True, 3: True})) is None


def test_as_wanted_means_that_there_is_no_next_step() -> None:
    """Every configuration of three servers and every wish: the leader may look no further exactly when all is as wished."""
    settled = 0
    for roles_now in product((None, VOTER, LEARNER, OBSERVER), repeat=3):
        members = {n + 1: member(n + 1, role) for n, role in enumerate(roles_now) if role is not None}
        for parts in product((None, True, False), repeat=3):
            wanted = {n + 1: part for n, part in enumerate(parts) if part is not None}
            now = situation(
                members, wanted, caught_up=(1, 2, 3), silent=dict.fromkeys(members, DEAD_AFTER_MS)
            )
            if is_as_wanted(now.membership, now.wanted):
                settled += 1
                assert next_step(now) is None
    assert settled == 3**3, "each server is no member, votes or observes, as wanted"
    moved = {ServerId(1): WantedMember(True, "10.9.9.9:2181")}
    assert not is_as_wanted(Membership({ServerId(1): member(1)}), moved)
    assert is_as_wanted(Membership({ServerId(1): member(1)}), {ServerId(1): WantedMember(True, "")})


def test_a_new_server_is_a_learner_before_it_was_ever_seen() -> None:
    step = next_step(situation(THREE, {1: True, 2: True, 3: True, 4: True}))
    assert roles(step)[4] == (LEARNER, UNKNOWN_INSTANCE)


def test_a_new_observer_never_becomes_a_learner() -> None:
    step = next_step(situation(THREE, {1: True, 2: True, 3: True, 4: False}))
    assert roles(step)[4] == (OBSERVER, UNKNOWN_INSTANCE)
    present = {**THREE, 4: member(4, OBSERVER)}
    assert next_step(situation(present, {1: True, 2: True, 3: True, 4: False}, caught_up=(4,))) is None


def test_a_disk_that_shows_itself_fills_the_place_kept_for_it() -> None:
    present = {**THREE, 4: Member(UNKNOWN_INSTANCE, LEARNER, address(4))}
    step = next_step(situation(present, dict.fromkeys(range(1, 5), True), joins={4: ("new", NOW)}))
    assert roles(step)[4] == (LEARNER, disk("new"))


def test_a_learner_votes_only_when_it_has_caught_up() -> None:
    present = {**THREE, 4: member(4, LEARNER)}
    wanted = dict.fromkeys(range(1, 5), True)
    assert next_step(situation(present, wanted)) is None
    assert roles(next_step(situation(present, wanted, caught_up=(4,))))[4] == (VOTER, disk("disk 4"))


def test_d1_a_lost_disk_leaves_before_the_new_one_learns() -> None:
    """The old disk's votes are forgotten with it: it must not be counted under the new one's name."""
    wanted = dict.fromkeys((1, 2, 3), True)
    joins = {3: ("fresh", NOW)}
    silent = {3: DEAD_AFTER_MS}
    step = next_step(situation(THREE, wanted, joins=joins, silent=silent))
    assert set(roles(step)) == {1, 2}
    without = {1: member(1), 2: member(2)}
    step = next_step(situation(without, wanted, joins=joins, silent=silent))
    assert roles(step)[3] == (LEARNER, disk("fresh"))


def test_d1_an_empty_disk_does_not_drive_out_a_server_that_runs() -> None:
    """A second process with the same number, started with an empty directory by mistake."""
    wanted = dict.fromkeys((1, 2, 3), True)
    there = situation(THREE, wanted, joins={3: ("other", NOW)}, silent={3: 200})
    assert next_step(there) is None
    assert "share a number" in refusals(there)[ServerId(3)]


def test_a_request_to_join_that_is_no_longer_repeated_counts_for_nothing() -> None:
    wanted = dict.fromkeys((1, 2, 3), True)
    late = {3: ("fresh", NOW - JOIN_VALID_MS - 1)}
    assert next_step(situation(THREE, wanted, joins=late, silent={3: DEAD_AFTER_MS})) is None


def test_a_stranger_is_told_that_it_is_one() -> None:
    there = situation(THREE, dict.fromkeys((1, 2, 3), True), joins={9: ("nine", NOW)})
    assert next_step(there) is None
    assert "zraft member add 9 " in refusals(there)[ServerId(9)]


def test_a_working_voter_goes_only_when_its_replacement_votes() -> None:
    """3 is replaced by 4: there is never a moment with fewer voters than before."""
    wanted = {1: True, 2: True, 4: True}
    present = {**THREE, 4: member(4, LEARNER)}
    assert next_step(situation(present, wanted)) is None
    promoted = next_step(situation(present, wanted, caught_up=(4,)))
    assert roles(promoted)[4][0] is VOTER
    assert 3 in roles(promoted)
    step = next_step(situation({**THREE, 4: member(4)}, wanted))
    assert set(roles(step)) == {1, 2, 4}


def test_a_dead_voter_goes_at_once() -> None:
    wanted = {1: True, 2: True, 4: True}
    present = {**THREE, 4: member(4, LEARNER)}
    step = next_step(situation(present, wanted, silent={3: DEAD_AFTER_MS}))
    assert set(roles(step)) == {1, 2, 4}


def test_the_last_voters_stay_until_others_vote() -> None:
    wanted = {4: True, 5: True}
    present = {**THREE, 4: member(4, LEARNER), 5: Member(UNKNOWN_INSTANCE, LEARNER, address(5))}
    assert next_step(situation(present, wanted, silent={2: DEAD_AFTER_MS, 3: DEAD_AFTER_MS})) is not None
    only_one = {1: member(1), 4: member(4, LEARNER)}
    assert next_step(situation(only_one, {4: True})) is None


def test_a_voter_becomes_an_observer_and_back_through_learning() -> None:
    step = next_step(situation(THREE, {1: True, 2: True, 3: False}))
    assert roles(step)[3][0] is OBSERVER
    present = {1: member(1), 2: member(2), 3: member(3, OBSERVER)}
    step = next_step(situation(present, dict.fromkeys((1, 2, 3), True), caught_up=(3,)))
    assert roles(step)[3][0] is LEARNER


def test_a_working_voter_becomes_an_observer_only_when_those_vote_who_are_to() -> None:
    """Of 1, 2 and 3, 2 has lost its disk and is to go, 4 is to vote instead of 1: {2, 3} could decide nothing."""
    wanted = {1: False, 3: True, 4: True}
    present = {**THREE, 4: member(4, LEARNER)}
    assert next_step(situation(present, wanted, silent={2: DEAD_AFTER_MS - 1})) is None
    gone = roles(next_step(situation(present, wanted, silent={2: DEAD_AFTER_MS})))
    assert (gone[1][0], 2 in gone) == (VOTER, False)
    promoted = roles(next_step(situation(present, wanted, caught_up=(4,))))
    assert (promoted[1][0], promoted[4][0]) == (VOTER, VOTER)
    rest = {1: member(1), 3: member(3), 4: member(4)}
    assert roles(next_step(situation(rest, wanted)))[1][0] is OBSERVER


def test_a_dead_voter_becomes_an_observer_at_once() -> None:
    wanted = {1: True, 2: True, 3: False, 4: True}
    present = {**THREE, 4: member(4, LEARNER)}
    assert roles(next_step(situation(present, wanted, silent={3: DEAD_AFTER_MS})))[3][0] is OBSERVER


@pytest.mark.parametrize("wanted", [{1: True, 2: True}, {1: True, 2: True, 3: False}])
def test_a_change_that_leaves_those_who_answer_without_a_majority_waits(wanted: dict[int, bool]) -> None:
    """3 is to vote no longer while 2 is down: {1, 2} could not even decide to take 3 back."""
    step = next_step(situation(THREE, wanted, silent={2: DEAD_AFTER_MS}))
    assert step is not None
    assert step.members is None
    assert "[2] do not answer" in step.reason
    step = next_step(situation(THREE, wanted))
    assert step is not None
    assert step.members is not None
    both = next_step(situation(THREE, {1: True}, silent={2: DEAD_AFTER_MS}))
    assert set(roles(both)) == {1}, "2 goes with it, so nobody is missing"


def test_a_new_leader_takes_no_working_voter_out_before_it_has_heard_who_decides_then() -> None:
    """Seed 3004224: the disks of 1 and 5 were lost just before the election, and 6 left 3 and 4 alone among four."""
    five = {server: member(server) for server in (1, 3, 4, 5, 6)}
    wanted = {1: False, 3: True, 4: True, 5: True}
    early = roles(next_step(situation(five, wanted, unheard=(1, 5), me=4)))
    assert {server for server, (role, _) in early.items() if role is VOTER} == {3, 4, 5, 6}
    then = next_step(situation({**five, 1: member(1, OBSERVER)}, wanted, unheard=(1, 4, 5), me=3))
    assert then is not None
    assert then.members is None
    assert "[4, 5] do not answer" in then.reason
    heard = next_step(situation(five, wanted, me=4))
    assert set(roles(heard)) == {1, 3, 4, 5}


def test_what_need_not_wait_is_done_while_another_change_waits() -> None:
    step = next_step(situation(THREE, {1: True, 2: True, 3: False, 5: False}, silent={2: DEAD_AFTER_MS}))
    assert roles(step)[5][0] is OBSERVER


def test_a_changed_address_is_a_change_of_its_own() -> None:
    there = situation(THREE, dict.fromkeys((1, 2, 3), True))
    moved = {**there.wanted, ServerId(2): WantedMember(True, "elsewhere:1")}
    step = next_step(MembershipSituation(there.me, there.membership, moved, {}, {}, frozenset(), NOW))
    assert step is not None
    assert step.members is not None
    assert step.members[ServerId(2)].address == "elsewhere:1"
