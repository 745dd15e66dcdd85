"""The next safe step from the members that a group has to those that it should have (D-1, D-18). Pure.

Another module decides where replicas should be. Steps are values, computed from the group as it is now: if
the last one was interrupted, the comparison continues from there. `zraft.groups.placing` lets leaders carry
them out.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from zraft.raft.membership.value import Membership
from zraft.raft.messages import Member, MemberRole
from zraft_core.ids import Instance, ServerId


@frozen
class AddLearner:
    """Let that disk follow the group as a learner. An older disk of the same server gives way if it does not vote."""

    server: ServerId
    instance: Instance


@frozen
class ReplaceVoters:
    """Let these servers vote and no others, in one change: missing ones are promoted, superfluous ones leave."""

    voters: tuple[ServerId, ...]


@frozen
class RemoveLearner:
    """Remove a learner that is not wanted."""

    server: ServerId


@frozen
class Await:
    """Wait until these learners have caught up; nothing else is safe before."""

    servers: tuple[ServerId, ...]


Step = AddLearner | ReplaceVoters | RemoveLearner | Await


def next_step(
    present: Membership, wanted: Mapping[ServerId, Instance], matches: Mapping[ServerId, int], index: int
) -> Step | None:
    """Return what to do first; None if the members are as wanted.

    New disks are added as learners, one after the other, and catch up. Only when all of them have does the
    group change its voters, at once (joint consensus): it never has fewer voters that hold its log than
    before.

    Args:
        present: the newest configuration, not joint.
        wanted: the disk of each server that is to vote, at least one.
        matches: index up to which each member's log is known to agree with the leader's.
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
            # This is another disk of a voter: the old one has to leave before the new one can come.
            replaced.append(server)
        elif known is None or known.instance != instance:
            return AddLearner(server, instance)
        elif not known.voter and matches.get(server, 0) < index:
            lagging.append(server)
    if lagging:
        return Await(tuple(lagging))
    voters = tuple(server for server in sorted(wanted) if server not in replaced)
    if not voters:
        # All disks are replaced: one of the old ones stays until a new one can take over.
        voters = (replaced[0],) if present.voters != (replaced[0],) else ()
        if not voters:
            return None
    if voters == present.voters:
        return None
    return ReplaceVoters(voters)


def target_of(
    step: AddLearner | ReplaceVoters | RemoveLearner, present: Membership
) -> Mapping[ServerId, Member]:
    """Return the members after a step, as `Raft.change_membership` takes them."""
    match step:
        case AddLearner(server, instance):
            return present.with_member(server, Member(instance, MemberRole.LEARNER))
        case RemoveLearner(server):
            return present.without(server)
        case ReplaceVoters(voters):
            return {server: Member(present.members[server].instance) for server in voters}
