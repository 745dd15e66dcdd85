"""The replica: what all peers know after the same prefix of the log, as one frozen value.

The keys are those of Onyx' replica, flattened: a nested map there is a table here whose keys are tuples. What
can be computed from other keys (which peers a group has, which task a peer runs) is not kept.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from attrs import field, frozen

from onyxlog.ids import BEFORE_ALL, GroupId, JobId, PeerId, Position, Site, TaskName
from onyxlog.replica.pool import STREAMS_MIN, GroupArc
from onyxlog.replica.table import Table
from onyxlog.scheduling.requirements import JobRequirements, JobScheduler

VERSION: Final = 1
"""The version of what entries mean. A change to what an entry does to a replica needs another version."""


class JoinMode(StrEnum):
    """Ways in which groups join and leave; the whole cluster has the same one."""

    RING = "ring"
    """Onyx' three entries: each group watches the pulse of another, in a ring."""
    DIRECT = "direct"
    """One entry joins a group; the leave is the will of the group's session."""


@frozen
class Parameters:
    """Parameters that all peers must agree on.

    They are written once, when the log is begun, and are part of every origin.
    """

    job_scheduler: JobScheduler = JobScheduler.BALANCED
    join: JoinMode = JoinMode.DIRECT
    version: int = VERSION
    """Peers and clients refuse a log of another version than theirs."""


@frozen
class VirtualPeer:
    """A virtual peer and what it offers."""

    group: GroupId
    site: Site
    tags: tuple[str, ...] = ()


class PeerState(StrEnum):
    """A virtual peer's state, which the thesis' entries signal-ready and backpressure change."""

    IDLE = "idle"
    WARMING_UP = "warming-up"
    """The peer has a task, which has not said that it runs."""
    ACTIVE = "active"
    BACKPRESSURE = "backpressure"


@frozen
class SubmittedJob:
    """A job that is not over."""

    requirements: JobRequirements
    submitted: Position


@frozen
class Replica:
    """Replica: what all peers know. All tables are immutable; their order is that of their keys."""

    parameters: Parameters = Parameters()
    version: Position = BEFORE_ALL
    """The position of the entry that was applied last."""

    groups: Table[GroupId, Position] = field(factory=Table)
    """Groups that have joined, and when."""
    pairs: Table[GroupId, GroupId] = field(factory=Table)
    """watcher -> watched: one cycle over all groups, if there are at least two and they join by the ring."""
    prepared: Table[GroupId, GroupId] = field(factory=Table)
    """watcher -> joiner: the watcher was asked to watch the joiner."""
    accepted: Table[GroupId, GroupId] = field(factory=Table)
    """watcher -> joiner: the watcher does so, and the joiner is to accept."""
    aborted: Table[GroupId, Position] = field(factory=Table)
    """Groups whose join was given up, and which may try again."""
    left: Table[GroupId, Position] = field(factory=Table)
    """Groups that are gone: a late entry of theirs does nothing. The second garbage collection after forgets them."""

    collected: Position = BEFORE_ALL
    """The position of the newest garbage collection."""

    streams: int = STREAMS_MIN
    """The number of streams of the gossip pool."""
    arcs: Table[GroupId, GroupArc] = field(factory=Table)
    """The streams that each group subscribes to and publishes on; see `onyxlog.replica.pool`."""

    peers: Table[PeerId, VirtualPeer] = field(factory=Table)
    """Virtual peers of groups that have joined."""
    orphans: Table[PeerId, VirtualPeer] = field(factory=Table)
    """Virtual peers of groups that have not joined yet."""
    peer_states: Table[PeerId, PeerState] = field(factory=Table)
    """The state of each of `peers`."""

    jobs: Table[JobId, SubmittedJob] = field(factory=Table)
    killed: Table[JobId, Position] = field(factory=Table)
    completed: Table[JobId, Position] = field(factory=Table)
    allocations: Table[tuple[JobId, TaskName], tuple[PeerId, ...]] = field(factory=Table)
    slots: Table[tuple[JobId, TaskName, PeerId], int] = field(factory=Table)
    """The smallest free number of a task, kept as long as the peer stays on it: state of grouped tasks depends on it.
    """
    coordinators: Table[JobId, PeerId] = field(factory=Table)
    allocation_versions: Table[JobId, Position] = field(factory=Table)
    exhausted: Table[tuple[JobId, TaskName], Position] = field(factory=Table)
    sealed: Table[tuple[JobId, TaskName], Position] = field(factory=Table)
