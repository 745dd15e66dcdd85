"""Planted bugs of members, of disks that are replaced, of feature levels and of states that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import evolve

from tests.simulation.planted_registry import Patch, plant, replaced
from tests.simulation.profile import Mode
from tests.simulation.raft_checks import RaftChecks
from zraft.raft import election as election_module
from zraft.raft import state as state_module
from zraft.raft.core import Raft
from zraft.raft.membership import quorum as quorum_module
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind
from zraft.raft.replication import Replication
from zraft.raft.role import Role
from zraft.server.coordination import membership_keeper as keeper_module
from zraft.server.coordination import reconciliation as reconciliation_module
from zraft.server.coordination.group import CoordinationGroup
from zraft.server.coordination.membership_keeper import MembershipKeeper
from zraft.server.engine.applier import Applier
from zraft.tree.origins import Origins
from zraft_core.ids import ServerId


@plant("Ongaro 4.3", "a joint configuration decides with a majority of its new half", Mode.MEMBERS)
def joint_counts_one_half() -> Sequence[Patch]:
    def agreed(membership: Membership, value_of: Any) -> int:
        return quorum_module.majority_value(map(value_of, membership.voters))

    return [(state_module, "agreed_value", agreed)]


@plant("Ongaro 4.3", "an election in a joint configuration is won with its new half", Mode.MEMBERS)
def joint_elects_one_half() -> Sequence[Patch]:
    def result(membership: Membership, votes: Any) -> Any:
        return quorum_module.majority_vote(membership.voters, votes)

    return [(election_module, "vote_result", result)]


@plant("Ongaro 4.2.1", "learners count for commit", Mode.MEMBERS)
def learner_counts() -> Sequence[Patch]:
    def agreed(membership: Membership, value_of: Any) -> int:
        values: list[int] = sorted(map(value_of, membership.members), reverse=True)
        return values[len(membership.voters) // 2]

    return [(state_module, "agreed_value", agreed)]


@plant("Ongaro 4.3", "the final configuration follows a joint one that is not committed", Mode.MEMBERS)
def final_too_early() -> Sequence[Patch]:
    original = Raft.change_membership

    def change(self: Raft, target: Any) -> int | None:
        index = original(self, target)
        if index is not None and self.membership.joint:
            self._append_membership(self.membership.final())
        return index

    return [(Raft, "change_membership", change)]


@plant("Ongaro 4.1", "a change begins before the one before it is committed", Mode.MEMBERS)
def two_changes_at_once() -> Sequence[Patch]:
    def may_change(self: Raft) -> bool:
        return self.role is Role.LEADER and not self.membership.joint and self._is_voter

    return [
        (Raft, "_may_change", may_change),
        (keeper_module, "_has_applied_the_last", lambda raft, machine: True),
    ]


@plant("D-1", "what a lost disk acknowledged counts for its successor", Mode.WIPES)
def progress_of_lost_disk() -> Sequence[Patch]:
    return [(Replication, "remove", lambda self, server: None)]


@plant("D-3", "the origin row of a replaced disk stays", Mode.WIPES)
def row_of_lost_disk() -> Sequence[Patch]:
    original = Origins.set_members

    def set_members(self: Origins, members: Any) -> None:
        original(self, [*self.rows, *members])

    return [(Origins, "set_members", set_members)]


@plant("D-18", "a learner votes before it has caught up", Mode.MEMBERS)
def promoted_blindly() -> Sequence[Patch]:
    original = reconciliation_module._promote

    def promote(situation: Any) -> Any:
        return original(evolve(situation, caught_up=frozenset(situation.membership.members)))

    return [(reconciliation_module, "_promote", promote)]


@plant("D-18", "a voter goes before those vote who are to replace it", Mode.MEMBERS)
def removed_first() -> Sequence[Patch]:
    original = reconciliation_module.next_step

    def next_step(situation: Any) -> Any:
        members = situation.membership.members
        kept = {server: member for server, member in members.items() if server in situation.wanted}
        if len(kept) < len(members) and any(member.voter for member in kept.values()):
            return reconciliation_module.Step(kept, "removed first")
        return original(situation)

    return [(keeper_module, "next_step", next_step)]


@plant("Ongaro 3.10", "a late order to lead is obeyed in a later term", Mode.MEMBERS)
def late_transfer() -> Sequence[Patch]:
    def obeys(self: Raft, sender: ServerId, message: Any) -> bool:
        return self.role is Role.FOLLOWER and self._is_voter

    return [(Raft, "_obeys_timeout_now", obeys)]


@plant("Ongaro 4.2.3", "nobody tells a removed server that it was", Mode.MEMBERS)
def removed_and_not_told() -> Sequence[Patch]:
    return [
        (MembershipKeeper, "not_member", lambda self, *arguments: None),
        (CoordinationGroup, "_remove", lambda self, index: None),
    ]


@plant("D-5", "the leader raises the feature level that it knows, whatever the others know")
def feature_level_blindly_raised() -> Sequence[Patch]:
    return [(MembershipKeeper, "level_of_all", lambda self, membership: 2)]


def _differs_from(server: int, index: int) -> Sequence[Patch]:
    original = Applier.apply

    def apply(self: Applier, entry: Entry) -> bool:
        before = self._machine.index
        is_done = original(self, entry)
        if entry.kind is EntryKind.COMMANDS and self._me[0] == server and before < index <= entry.index:
            # As a wrong count of bytes would: no client can see it.
            self._machine.marks.total += 1
        return is_done

    return [(Applier, "apply", apply), (RaftChecks, "COMPARES", False)]


@plant("D-26", "server 2 computes something else from some entry on; the servers find out by themselves")
def one_differs() -> Sequence[Patch]:
    return _differs_from(2, 150)


@contextmanager
def differing(server: ServerId, index: int) -> Iterator[None]:
    """Inside, that server computes something else with the entry at `index`, if there are commands in it."""
    with replaced(*_differs_from(server, index)):
        yield
