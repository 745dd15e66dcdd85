"""What one leadership knows of the members, and what it makes of it (D-1, D-5)."""

from __future__ import annotations

import random

import pytest

from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import AppendEntriesReply, HardState, HeartbeatReply, Member, MemberRole
from zraft.raft.settings import RaftSettings
from zraft.server.coordination import membership_keeper, reconciliation
from zraft.server.coordination.membership_keeper import (
    ANSWER_INTERVAL_MS,
    LEAVE_MS,
    LOOK_INTERVAL_MS,
    PROGRESS_INTERVAL_MS,
    MembershipKeeper,
)
from zraft.server.coordination.reconciliation import Step
from zraft.transport.messages import Join, MemberReport, NotMember, Welcome
from zraft.tree.machine import Machine
from zraft.tree.members import WantedMember
from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.topics.registry_commands import CreateGroup, CreateTopic, Placed, PlaceGroup

ONE, TWO, NINE = ServerId(1), ServerId(2), ServerId(9)
CLUSTER = b"c" * 16


def disk(name: str) -> Instance:
    return Instance(name.encode().ljust(16, b"."))


class Leader:
    """Server 1 leads alone; server 2 learns from it, and answers as the test says."""

    def __init__(self) -> None:
        self.now = 0
        members = {ONE: Member(disk("one")), TWO: Member(disk("old"), MemberRole.LEARNER)}
        self.raft = Raft(
            group=GroupId(0),
            server=ONE,
            instance=disk("one"),
            settings=RaftSettings(),
            hard_state=HardState(),
            log=Log(),
            membership=Membership(members),
            rng=random.Random(1),
        )
        self.machine = Machine()
        self.machine.members = {ONE: WantedMember(True, "h:1"), TWO: WantedMember(True, "h:2")}
        self.keeper = MembershipKeeper(ONE, 2, 0)
        self.raft.hasten_election()
        for _ in range(5):
            self.pass_time(10)
        assert self.raft.may_change_membership

    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.raft.tick(ms)
        for _ in range(3):
            ready = self.raft.ready()
            if ready.write is not None:
                self.raft.persisted(ready.write.number)

    def hear(self, name: str, *, match: int | None = None) -> None:
        """Server 2, with that disk, answers the newest round, and that it holds the log up to `match`."""
        term = self.raft.term
        end = self.raft.log.last_index if match is None else match
        self.raft.step(TWO, disk(name), HeartbeatReply(GroupId(0), term, self.raft.round, end))
        if match is not None:
            self.raft.step(TWO, disk(name), AppendEntriesReply(GroupId(0), term, True, match))

    def step(self, *, applied: int | None = None) -> None:
        self.machine.index = self.raft.commit_index if applied is None else applied
        self.keeper.step(self.raft, self.machine, (), self.now)
        self.pass_time(0)

    def role_of_two(self) -> tuple[MemberRole, Instance]:
        member = self.raft.membership.members[TWO]
        return member.role, member.instance


def test_a_learner_that_holds_what_was_committed_votes() -> None:
    leader = Leader()
    for _ in range(20):
        leader.hear("old", match=leader.raft.log.last_index)
        leader.step()
        leader.pass_time(50)
        if leader.raft.membership.joint:
            break
    assert leader.role_of_two() == (MemberRole.VOTER, disk("old"))


def test_a_leader_rests_again_when_a_server_that_asked_to_be_let_in_asks_no_more() -> None:
    leader = Leader()
    wanted = leader.machine.members
    join = Join(CLUSTER, "h:2", 2)
    leader.keeper.on_join(TWO, disk("old"), join, leader.raft, CLUSTER, wanted, leader.now)
    for _ in range(20):
        leader.hear("old", match=leader.raft.log.last_index)
        leader.step()
        leader.pass_time(50)
    assert leader.role_of_two() == (MemberRole.VOTER, disk("old"))
    assert not leader.keeper.has_settled(leader.raft.membership)
    for _ in range(reconciliation.JOIN_VALID_MS // 50 + 4):
        leader.hear("old", match=leader.raft.log.last_index)
        leader.step()
        leader.pass_time(50)
    assert leader.keeper.has_settled(leader.raft.membership)


def test_nothing_changes_before_it_is_known_what_was_wanted_when_the_last_change_ended() -> None:
    """Seed 2000016: a server was removed by a wish that another had overtaken, committed and not yet applied."""
    leader = Leader()
    for joint in (True, False):
        for _ in range(20):
            leader.hear("old", match=leader.raft.log.last_index)
            leader.step()
            leader.pass_time(50)
            if leader.raft.membership.joint == joint:
                break
        assert leader.raft.membership.joint == joint
    leader.hear("old", match=leader.raft.log.last_index)
    leader.pass_time(0)
    changed = leader.raft.members_changed_index
    assert leader.raft.may_change_membership
    del leader.machine.members[TWO]
    leader.pass_time(50)
    leader.step(applied=changed - 1)
    assert leader.role_of_two() == (MemberRole.VOTER, disk("old"))
    for _ in range(0, LEAVE_MS + 50, 50):
        assert leader.role_of_two()[0] is MemberRole.VOTER
        leader.hear("old")
        leader.pass_time(50)
        leader.step(applied=changed)
    assert leader.role_of_two()[0] is not MemberRole.VOTER


def test_a_member_that_answers_has_a_moment_to_let_its_clients_go_and_begins_anew_if_it_stays() -> None:
    """Its clients had writes under way that nobody could answer any more."""
    leader = Leader()
    for _ in range(20):
        leader.hear("old", match=leader.raft.log.last_index)
        leader.step()
        leader.pass_time(50)
    assert leader.role_of_two() == (MemberRole.VOTER, disk("old"))
    wish = leader.machine.members.pop(TWO)
    leader.step()
    leader.pass_time(LEAVE_MS - 50)
    leader.step()
    leader.machine.members[TWO] = wish
    leader.pass_time(50)
    leader.step()
    del leader.machine.members[TWO]
    for _ in range(0, LEAVE_MS, 50):
        leader.hear("old", match=leader.raft.log.last_index)
        leader.pass_time(50)
        leader.step()
        assert leader.role_of_two() == (MemberRole.VOTER, disk("old"))
    leader.pass_time(50)
    leader.step()
    assert leader.role_of_two()[0] is not MemberRole.VOTER


def test_who_does_not_answer_is_given_no_moment() -> None:
    leader = Leader()
    leader.machine.members[TWO] = WantedMember(False, "h:2")
    leader.hear("old", match=leader.raft.log.last_index)
    for _ in range(0, reconciliation.DEAD_AFTER_MS + 50, 50):
        leader.step()
        leader.pass_time(50)
    assert leader.role_of_two() == (MemberRole.OBSERVER, disk("old"))
    del leader.machine.members[TWO]
    leader.step()
    assert TWO not in leader.raft.membership.members


def test_a_leader_that_has_only_just_been_elected_promotes_nobody() -> None:
    """It does not know yet what was committed a moment ago: nothing, a server with an empty log would hold."""
    leader = Leader()
    leader.hear("old", match=0)
    leader.step()
    leader.pass_time(0)
    leader.step()
    assert leader.role_of_two()[0] is MemberRole.LEARNER


def test_d1_what_the_lost_disk_had_caught_up_with_says_nothing_of_the_new_one() -> None:
    """The simulator's seed 7: the learner's disk was replaced between two looks, and the empty one voted at once."""
    leader = Leader()
    leader.machine.members[TWO] = WantedMember(False, "h:2")  # so that it is not promoted while it is well
    for _ in range(20):
        leader.hear("old", match=leader.raft.log.last_index)
        leader.step()
        leader.pass_time(PROGRESS_INTERVAL_MS)
    leader.step()
    assert leader.role_of_two() == (MemberRole.OBSERVER, disk("old"))
    members = leader.raft.membership.members
    new = Member(disk("new"), MemberRole.LEARNER, "h:2")
    assert leader.raft.change_membership({**members, TWO: new}) is not None
    leader.machine.members[TWO] = WantedMember(True, "h:2")
    leader.pass_time(LOOK_INTERVAL_MS)
    leader.hear("new")
    leader.step()
    assert leader.role_of_two() == (MemberRole.LEARNER, disk("new"))


def test_who_asks_to_be_let_in_is_welcomed_once_it_is_a_member() -> None:
    leader = Leader()
    join = Join(CLUSTER, "h:2", 2)
    wanted = leader.machine.members
    answer = leader.keeper.on_join(TWO, disk("old"), join, leader.raft, CLUSTER, wanted, leader.now)
    assert isinstance(answer, Welcome)
    assert Membership.decode(answer.membership) == leader.raft.membership


def test_a_stranger_is_told_so_now_and_then_and_another_clusters_is_not_answered() -> None:
    leader = Leader()
    wanted = leader.machine.members

    def ask(cluster: bytes) -> object:
        join = Join(cluster, "h:9", 2)
        return leader.keeper.on_join(NINE, disk("nine"), join, leader.raft, CLUSTER, wanted, leader.now)

    assert ask(b"d" * 16) is None
    assert isinstance(ask(CLUSTER), NotMember)
    assert ask(CLUSTER) is None
    leader.pass_time(ANSWER_INTERVAL_MS)
    assert isinstance(ask(CLUSTER), NotMember)


def test_d5_the_level_of_all_is_that_of_the_member_that_can_do_least() -> None:
    leader = Leader()
    membership = leader.raft.membership
    assert leader.keeper.level_of_all(membership) == 0, "one has not said"
    leader.keeper.on_report(TWO, disk("old"), MemberReport(1, ()))
    assert leader.keeper.level_of_all(membership) == 1
    leader.keeper.on_report(TWO, disk("old"), MemberReport(3, ()))
    assert leader.keeper.level_of_all(membership) == 2, "no more than this leader can do itself"


def test_why_a_change_waits_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader()
    monkeypatch.setattr(membership_keeper, "next_step", lambda situation: Step(None, "this waits: why"))
    for _ in range(3):
        leader.pass_time(LOOK_INTERVAL_MS)
        leader.step()
    assert leader.keeper.notices == ["this waits: why"]
    assert leader.raft.membership_committed


def _voter(leader: Leader) -> None:
    """Server 2 votes."""
    for _ in range(40):
        leader.hear("old", match=leader.raft.log.last_index)
        leader.step()
        leader.pass_time(50)
    assert leader.role_of_two() == (MemberRole.VOTER, disk("old"))


def _is_taken_out(leader: Leader, *, answers: bool) -> bool:
    for _ in range(80):
        if answers or leader.raft.membership.joint:
            leader.hear("old", match=leader.raft.log.last_index)
        leader.step()
        leader.pass_time(50)
        if TWO not in leader.raft.membership.members or leader.raft.membership.joint:
            return True
    return False


def test_d18_who_is_removed_leaves_when_the_partitions_on_its_disk_have_moved() -> None:
    leader = Leader()
    _voter(leader)
    registry = leader.machine.registry
    registry.apply(CreateTopic("t", 1), 101)
    registry.apply(CreateGroup(101, ((ONE, disk("one")), (TWO, disk("old")))), 102)
    leader.machine.members = {ONE: WantedMember(True, "h:1")}
    assert not _is_taken_out(leader, answers=True)
    assert (
        leader.keeper.notices.count(
            "server 2 leaves when the partitions of topics on its disk have moved, or when it is stopped (see `zraft "
            "topic describe`)"
        )
        == 1
    )
    registry.apply(PlaceGroup(GroupId(102), ((ONE, disk("one")),)), 103)
    assert not _is_taken_out(leader, answers=True), "it is on its way"
    registry.apply(Placed(GroupId(102), ((ONE, disk("one")),)), 104)
    assert _is_taken_out(leader, answers=True)


def test_d18_partitions_of_a_server_that_is_silent_are_not_waited_for() -> None:
    leader = Leader()
    _voter(leader)
    registry = leader.machine.registry
    registry.apply(CreateTopic("t", 1), 101)
    registry.apply(CreateGroup(101, ((ONE, disk("one")), (TWO, disk("old")))), 102)
    leader.machine.members = {ONE: WantedMember(True, "h:1")}
    keeper = leader.keeper
    silent = {TWO: reconciliation.DEAD_AFTER_MS}
    keeper._silences = lambda raft, now_ms: silent  # type: ignore[method-assign]
    assert keeper._wanted(leader.raft, leader.machine, leader.now) == leader.machine.members
    silent[TWO] -= 1
    assert TWO in keeper._wanted(leader.raft, leader.machine, leader.now)
