"""Reasons why a partition takes or delivers no messages, as far as its replica on this server knows. Pure.

Nothing here is remembered: a trouble is read from the replica when an operator asks.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from attrs import frozen

from zraft.groups.host import GroupHost
from zraft.groups.replica import HostedReplica
from zraft.groups.statistics import AbsentVoter
from zraft.raft.membership.quorum import majority
from zraft.raft.membership.value import Membership
from zraft.raft.role import Role
from zraft.server.partitions.hosted_partition import HostedPartition
from zraft.server.partitions.settings import LEADERLESS_MS
from zraft_core.ids import GroupId, ServerId

PENDING_MS: Final = 2_000
"""Messages to several partitions take less than this while all of them work."""


class TroubleKind(StrEnum):
    """Kinds of troubles, as metrics and JSON name them."""

    NO_MAJORITY = "no_majority"
    NO_LEADER = "no_leader"
    COPY_FAILED = "copy_failed"
    """What this server's disk holds of it cannot be used."""
    DISK_FULL = "disk_full"
    """The leader's disk takes no more deliveries."""
    WAITING = "waiting"
    """Messages wait for other partitions."""
    FOUNDING = "founding"
    """It has no first entry yet."""


@frozen
class Trouble:
    """The trouble of one partition.

    Attributes:
        for_ms: since when, as far as that is known: without a leader, or the age of the oldest message that waits.
        voters: how many servers vote, and `absent` those of them that do not answer.
        leader: the server that leads, as far as this server knows.
        error: why the copy here cannot be used.
        pending: how many messages wait. `awaited` has, by the partition that they wait for, how many; a message may
            wait for several.
    """

    group: GroupId
    kind: TroubleKind
    for_ms: int | None = None
    voters: int = 0
    absent: tuple[AbsentVoter, ...] = ()
    leader: ServerId | None = None
    error: str = ""
    pending: int = 0
    awaited: tuple[tuple[GroupId, int], ...] = ()


def trouble_of(hosted: HostedPartition, host: GroupHost, run_ms: int) -> Trouble | None:
    """Return what is wrong with a partition of which `host` has a replica; None if nothing is known to be."""
    group = hosted.group
    replica = host.groups[group]
    raft = replica.raft
    error = hosted.machine.error or hosted.failure
    if error:
        return Trouble(group, TroubleKind.COPY_FAILED, leader=raft.leader, error=error)
    if replica.retired or not raft.is_voter:
        return None  # those who vote know better
    if raft.leader is None:
        return _without_leader(replica, host)
    if raft.role is not Role.LEADER:
        return None
    if host.held:
        return Trouble(group, TroubleKind.DISK_FULL, leader=raft.leader)
    if hosted.machine.partition is None:
        return Trouble(group, TroubleKind.FOUNDING, leader=raft.leader)
    return None if hosted.leadership is None else _waiting(hosted, run_ms)


def _without_leader(replica: HostedReplica, host: GroupHost) -> Trouble | None:
    group, membership = replica.group, replica.raft.membership
    for_ms = host.leaderless_ms(group)
    if for_ms is None or for_ms < LEADERLESS_MS:
        return None
    absent = host.absent_voters(group)
    gone = {one.server for one in absent}
    kind = TroubleKind.NO_LEADER if _may_decide(membership, gone) else TroubleKind.NO_MAJORITY
    return Trouble(group, kind, for_ms, len(membership.electorate), absent)


def _may_decide(membership: Membership, gone: set[ServerId]) -> bool:
    """Return whether a majority answers; of the outgoing voters, too, while members change."""
    return all(
        len(gone.intersection(voters)) <= len(voters) - majority(len(voters))
        for voters in (membership.voters, membership.outgoing)
        if voters
    )


def _waiting(hosted: HostedPartition, run_ms: int) -> Trouble | None:
    leadership = hosted.leadership
    assert leadership is not None
    found = leadership.statistics(run_ms)
    if not found.pending or found.pending_age_ms < PENDING_MS:
        return None
    awaited = tuple(sorted(found.awaited.items(), key=lambda one: (-one[1], one[0])))
    return Trouble(
        hosted.group,
        TroubleKind.WAITING,
        found.pending_age_ms,
        pending=found.pending,
        awaited=awaited,
    )
