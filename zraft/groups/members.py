"""The next safe step from the members that a group has to those that it should have (D-1, D-18). Pure.

Where replicas should be is somebody else's policy. Steps are values, computed from the group as it is now: whatever
interrupted the last one, the comparison goes on from there. `zraft.groups.placing` has leaders carry them out.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from zraft.raft.membership.value import Membership
from zraft.raft.messages import Member, MemberRole
from zraft_core.ids import Instance, ServerId


@frozen
class AddLearner:
    """That disk is to follow. An older disk of the same server, if it does not vote, gives way."""

    server: ServerId
    instance: Instance


@frozen
class Exchange:
    """These are to vote and nobody else: who is missing is promoted, who is too much leaves, in one change."""

    voters: tuple[ServerId, ...]


@frozen
class RemoveLearner:
    """It is neither wanted nor counted on."""

    server: ServerId


@frozen
class Await:
    """These learners have to catch up before anything else is safe."""

    servers: tuple[ServerId, ...]


Step = AddLearner | Exchange | RemoveLearner | Await


def next_step(
    present: Membership, wanted: Mapping[ServerId, Instance], matches: Mapping[ServerId, int], index: int
) -> Step | None:
    """What to do first; None if the members are as wanted.

    New disks are added and catch up one after the other as learners, and only when all of them have does the group
    change its voters, at once (joint consensus): it never has fewer of them that hold its log than before.

    Args:
        present: the newest configuration, not joint.
        wanted: the disk of each server that is to vote, at least one.
        matches: how far the members' logs are known to agree with the leader's.
        index: what a learner has to have reached to vote.
    """
    assert wanted, "a group without members cannot be had by changing it"
    for server, member in present.members.items():
        if server in wanted or member.voter:
            continue
        return RemoveLearner(server)
    lagging = []
    replaced: list[ServerId] = []
    for server, instance in sorted(wanted.items()):
        known = present.members.get(server)
        if known is not None and known.voter and known.instance != instance:
            # Another disk of a voter: the old one has to leave before the new one can come.
            replaced.append(server)
        elif known is None or known.instance != instance:
            return AddLearner(server, instance)
        elif not known.voter and matches.get(server, 0) < index:
            lagging.append(server)
    if lagging:
        return Await(tuple(lagging))
    voters = tuple(server for server in sorted(wanted) if server not in replaced)
    if not voters:
        # All are replaced: keep one of the old disks until a new one can take over.
        voters = (replaced[0],) if present.voters != (replaced[0],) else ()
        if not voters:
            return None
    if voters == present.voters:
        return None
    return Exchange(voters)


def target_of(step: AddLearner | Exchange | RemoveLearner, present: Membership) -> Mapping[ServerId, Member]:
    """The members after a step: what `Raft.change_membership` takes."""
    match step:
        case AddLearner(server, instance):
            return present.with_member(server, Member(instance, MemberRole.LEARNER))
        case RemoveLearner(server):
            return present.without(server)
        case Exchange(voters):
            return {server: Member(present.members[server].instance) for server in voters}
