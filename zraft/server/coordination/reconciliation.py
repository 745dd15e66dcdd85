"""The steps by which the leader changes the group's membership into what operators want, one safe step at a time.

A step is a pure function of the present facts: who belongs to the group, who is wanted, which disks asked to
be let in, who answers and who has caught up. Nothing that matters is remembered, so a change survives any
change of leader: the next one looks at the same facts and goes on (D-1, D-18; dissertation, chapter 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import evolve, frozen

from zraft.raft.membership.value import Membership
from zraft.raft.messages import UNKNOWN_INSTANCE, Member, MemberRole
from zraft.tree.members import Wanted
from zraft_core.ids import Instance, ServerId

DEAD_AFTER_MS: Final = 3_000
"""A member that says nothing for so long may be replaced by another disk that shows its number."""

JOIN_VALID_MS: Final = 2_000
"""How long a request to be let in counts: an empty disk repeats it, and one that stopped asking is not waited for."""


@frozen
class JoinRequest:
    """A request of an empty disk to be let in as some server."""

    instance: Instance
    at_ms: int


@frozen
class MembershipSituation:
    """The facts that the leader knows at this moment.

    Attributes:
        silent_ms: by member, how long it has said nothing to this leader.
        caught_up: learners that hold all that was committed a moment ago.
        unheard: members that have said nothing at all to this leader yet. This does not make them dead, but a
            leader that was elected a moment ago does not count on them either.
    """

    me: ServerId
    membership: Membership
    wanted: Wanted
    joins: Mapping[ServerId, JoinRequest]
    silent_ms: Mapping[ServerId, int]
    caught_up: frozenset[ServerId]
    now_ms: int
    unheard: frozenset[ServerId] = frozenset()


@frozen
class Step:
    """The next configuration and the reason for it; or only the reason why nothing can be done for a server that waits."""

    members: Mapping[ServerId, Member] | None
    reason: str


def is_as_wanted(membership: Membership, wanted: Wanted) -> bool:
    """Return whether the members are exactly the wanted ones, each in its role and at its address.

    Then only a new disk can require a change.
    """
    members = membership.members
    if len(members) != len(wanted):
        return False
    for server, wish in wanted.items():
        member = members.get(server)
        if (
            member is None
            or member.role is not (MemberRole.VOTER if wish.voter else MemberRole.OBSERVER)
            or (wish.address and wish.address != member.address)
        ):
            return False
    return True


def next_step(situation: MembershipSituation) -> Step | None:
    """Return the next change of the membership; None if all is as wanted or only time can help.

    There is one change at a time, in this order: members that have to go, disks that are replaced, new
    members, changed roles and addresses, learners that may vote now. A change that would leave too few voters
    that answer is not begun.
    """
    waits = None
    for decide in (_remove, _let_in, _add, _adjust, _promote):
        step = decide(situation)
        if step is None:
            continue
        assert step.members is not None
        silent = _silent_majority(situation, step.members)
        if not silent:
            return step
        waits = waits or Step(
            None,
            f"{step.reason}, but this waits: of those who would vote then, {silent} do not answer. Start them, or "
            "remove them first",
        )
    return waits


def _silent_majority(situation: MembershipSituation, members: Mapping[ServerId, Member]) -> list[ServerId]:
    """Return the silent ones of these voters if the others could decide nothing without them; else an empty list.

    Such a change could not be undone either: it holds from the moment it is in the log. A member that has not
    answered yet counts as silent: a new leader that took a working voter out while two disks were lost left a
    group of four with two.
    """
    voters = [server for server, member in members.items() if member.voter]
    silent = [server for server in voters if server in situation.unheard or _is_dead(situation, server)]
    return silent if 2 * (len(voters) - len(silent)) <= len(voters) else []


def refusals(situation: MembershipSituation) -> dict[ServerId, str]:
    """Return the servers that asked to be let in and cannot be, each with the reason, for the log."""
    told: dict[ServerId, str] = {}
    for server, join in situation.joins.items():
        member = situation.membership.members.get(server)
        if server not in situation.wanted:
            told[server] = (
                f"server {server} is not a member: `zraft member add {server} HOST:PORT` lets it in"
            )
        elif (
            member is not None
            and member.instance not in (join.instance, UNKNOWN_INSTANCE)
            and not _is_dead(situation, server)
        ):
            told[server] = (
                f"an empty disk (instance {join.instance.hex()}) asks to be let in as server {server}, but server "
                f"{server} (instance {member.instance.hex()}) is running: two processes share a number. Stop one"
            )
    return told


def _is_dead(situation: MembershipSituation, server: ServerId) -> bool:
    return server != situation.me and situation.silent_ms.get(server, 0) >= DEAD_AFTER_MS


def _asking(situation: MembershipSituation, server: ServerId) -> Instance | None:
    join = situation.joins.get(server)
    if join is None or situation.now_ms - join.at_ms > JOIN_VALID_MS:
        return None
    return join.instance


def _complete(situation: MembershipSituation) -> bool:
    """Return whether all servers that are to vote do."""
    members = situation.membership.members
    return all(
        server in members and members[server].voter for server, wish in situation.wanted.items() if wish.voter
    )


def _remove(situation: MembershipSituation) -> Step | None:
    """Remove members that are not wanted.

    A voter that works goes only when all servers that are to vote do, so the group is never weaker than
    before.
    """
    members, wanted = situation.membership.members, situation.wanted
    complete = _complete(situation)
    gone = [
        server
        for server, member in members.items()
        if server not in wanted and (complete or not member.voter or _is_dead(situation, server))
    ]
    kept = {server: member for server, member in members.items() if server not in gone}
    if not gone or not any(member.voter for member in kept.values()):
        return None
    return Step(kept, f"servers {gone} are no longer wanted")


def _let_in(situation: MembershipSituation) -> Step | None:
    """Let in a disk that is not the one counted on: the old one goes for good (its votes are lost), the new one learns."""
    members = dict(situation.membership.members)
    for server in situation.wanted:
        instance = _asking(situation, server)
        member = members.get(server)
        if instance is None or member is None or member.instance == instance:
            continue
        if member.instance == UNKNOWN_INSTANCE:
            members[server] = evolve(member, instance=instance)
            return Step(members, f"server {server} has shown its disk")
        if not _is_dead(situation, server):
            continue
        if member.voter:
            del members[server]
            if not any(other.voter for other in members.values()):
                continue
            return Step(members, f"the disk of server {server} was lost; it is replaced")
        members[server] = evolve(member, instance=instance)
        return Step(members, f"the disk of server {server} was replaced")
    return None


def _add(situation: MembershipSituation) -> Step | None:
    members = dict(situation.membership.members)
    new = [server for server in situation.wanted if server not in members]
    for server in new:
        wish = situation.wanted[server]
        role = MemberRole.LEARNER if wish.voter else MemberRole.OBSERVER
        members[server] = Member(_asking(situation, server) or UNKNOWN_INSTANCE, role, wish.address)
    return Step(members, f"servers {sorted(new)} are new") if new else None


def _adjust(situation: MembershipSituation) -> Step | None:
    """Change roles and addresses as wanted; a member that is to vote becomes a learner first.

    A voter becomes an observer only when those that are to vote do: a dead voter that is not wanted may
    prevent that for a time.
    """
    members = dict(situation.membership.members)
    complete = _complete(situation)
    changed = []
    for server, wish in situation.wanted.items():
        member = members.get(server)
        if member is None:
            continue
        role = member.role
        if wish.voter and role is MemberRole.OBSERVER:
            role = MemberRole.LEARNER
        elif not wish.voter and (not member.voter or complete or _is_dead(situation, server)):
            role = MemberRole.OBSERVER
        address = wish.address or member.address
        if role is not member.role or address != member.address:
            members[server] = evolve(member, role=role, address=address)
            changed.append(server)
    if not changed or not any(member.voter for member in members.values()):
        return None
    return Step(members, f"servers {changed} change their part or address")


def _promote(situation: MembershipSituation) -> Step | None:
    members = dict(situation.membership.members)
    ready = [
        server
        for server, member in members.items()
        if member.role is MemberRole.LEARNER
        and member.instance != UNKNOWN_INSTANCE
        and server in situation.caught_up
        and situation.wanted.get(server) is not None
        and situation.wanted[server].voter
    ]
    for server in ready:
        members[server] = evolve(members[server], role=MemberRole.VOTER)
    return Step(members, f"servers {ready} have caught up and vote") if ready else None
