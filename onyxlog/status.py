"""A picture of a fleet of peers, as values: what `onyxlog status` shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from attrs import evolve, frozen

from onyxlog.ids import GroupId, JobId, PeerId, Position, Site, TaskName
from onyxlog.job_status import JobState
from onyxlog.peer.log.port import LogBounds, Silence
from onyxlog.peer.publishing import Published
from onyxlog.replica.replica import JoinMode, PeerState, Replica
from onyxlog.replica.rescheduling import problem
from onyxlog.scheduling.waiting import reasons_to_wait


class Agreement(StrEnum):
    """Comparisons of what a group published with what this program played itself."""

    SAME = "same"
    DIFFERENT = "different"
    """The group's digest chain differs: it computed something else from the same log."""
    UNKNOWN = "unknown"
    """The group has published nothing yet, or a position that this program has not played."""


SILENT: Final = 2 / 3
"""A share of the session's timeout. A live group is heard of twice in it; a group that is silent longer may be dead.
"""


@frozen
class GroupRow:
    """One group.

    `watches`: the group whose pulse it looks after. `behind`: entries between what it published and the log's
    end. `silence`: how long the service has heard nothing of it; None where the service does not tell.
    """

    group: GroupId
    watches: GroupId | None
    peers: int
    working: int
    sites: tuple[Site, ...]
    published: Position | None
    chain: bytes | None
    behind: int | None
    agreement: Agreement
    silence: Silence | None = None

    @property
    def silent(self) -> bool:
        """True if the group may be dead although its session continues."""
        silence = self.silence
        return (
            silence is not None
            and silence.silent_s is not None
            and silence.silent_s > SILENT * silence.timeout_s
        )


@frozen
class TaskRow:
    """One task of a job."""

    task: TaskName
    workers: tuple[tuple[PeerId, int, PeerState], ...]
    """The task's workers with their slots and states."""


@frozen
class JobRow:
    """One job. `reason` says what a waiting job waits for."""

    job: JobId
    state: JobState
    since: Position
    coordinator: PeerId | None
    tasks: tuple[TaskRow, ...]
    reason: str = ""


@frozen
class FleetStatus:
    """A fleet.

    `groups` are in the order of the ring, from the lowest id; `ring_closed`: one cycle covers all of them.
    """

    join: JoinMode
    job_scheduler: str
    first: Position
    end: Position
    chain: bytes
    groups: tuple[GroupRow, ...]
    ring_closed: bool
    joining: tuple[GroupId, ...]
    orphans: int
    peers: int
    idle: int
    jobs: tuple[JobRow, ...]

    @property
    def agreed(self) -> bool:
        """True if no group is known to differ."""
        return all(row.agreement is not Agreement.DIFFERENT for row in self.groups)


def ring_of(replica: Replica) -> tuple[GroupId, ...]:
    """Return the groups in the order in which each watches the next, from the lowest id, without those off its cycle."""
    order: dict[GroupId, None] = {}
    current = min(replica.groups, default=None)
    while current is not None and current not in order:
        order[current] = None
        current = replica.pairs.get(current)
    return tuple(order)


def is_closed(replica: Replica) -> bool:
    """Return whether everybody is watched, in one cycle. A lone group watches nobody; direct joins need no ring."""
    groups = len(replica.groups)
    if replica.parameters.join is JoinMode.DIRECT or groups < 2:
        return not replica.pairs
    ring = ring_of(replica)
    return len(ring) == groups == len(replica.pairs) and replica.pairs[ring[-1]] == ring[0]


def picture(
    replica: Replica,
    bounds: LogBounds,
    published: Iterable[Published],
    chains: Mapping[Position, bytes],
    silences: Mapping[GroupId, Silence] = MappingProxyType({}),
) -> FleetStatus:
    """Return the picture of a fleet.

    `chains`: the digest chain's value at positions that this program has played. `silences`: as far as the
    service tells them.
    """
    shown = {one.group: one for one in published}
    groups = [*ring_of(replica)] if replica.pairs else []
    groups += [group for group in replica.groups if group not in set(groups)]
    peers_of: dict[GroupId, list[PeerId]] = {}
    for peer, known in replica.peers.items():
        peers_of.setdefault(known.group, []).append(peer)
    working = {peer for workers in replica.allocations.values() for peer in workers}
    return FleetStatus(
        join=replica.parameters.join,
        job_scheduler=replica.parameters.job_scheduler.value,
        first=bounds.first,
        end=bounds.end,
        chain=chains.get(replica.version, b""),
        groups=tuple(
            evolve(
                _group_row(
                    replica, group, peers_of.get(group, []), working, shown.get(group), bounds, chains
                ),
                silence=silences.get(group),
            )
            for group in groups
        ),
        ring_closed=is_closed(replica),
        joining=tuple(sorted({*replica.prepared.values(), *replica.accepted.values(), *replica.aborted})),
        orphans=len(replica.orphans),
        peers=len(replica.peers),
        idle=len(replica.peers) - len(working),
        jobs=_job_rows(replica),
    )


def _group_row(
    replica: Replica,
    group: GroupId,
    peers: list[PeerId],
    working: set[PeerId],
    published: Published | None,
    bounds: LogBounds,
    chains: Mapping[Position, bytes],
) -> GroupRow:
    agreement = Agreement.UNKNOWN
    if published is not None and published.position in chains:
        same = published.chain == chains[published.position]
        agreement = Agreement.SAME if same else Agreement.DIFFERENT
    return GroupRow(
        group=group,
        watches=replica.pairs.get(group),
        peers=len(peers),
        working=sum(peer in working for peer in peers),
        sites=tuple(sorted({replica.peers[peer].site for peer in peers} - {""})),
        published=None if published is None else published.position,
        chain=None if published is None else published.chain,
        behind=None if published is None else max(0, bounds.end - 1 - published.position),
        agreement=agreement,
    )


def _job_rows(replica: Replica) -> tuple[JobRow, ...]:
    rows = []
    reasons = reasons_to_wait(problem(replica))
    for job, known in replica.jobs.items():
        tasks = tuple(
            TaskRow(
                task.name,
                tuple(
                    (
                        peer,
                        replica.slots.get((job, task.name, peer), 0),
                        replica.peer_states.get(peer, PeerState.IDLE),
                    )
                    for peer in replica.allocations.get((job, task.name), ())
                ),
            )
            for task in known.requirements.tasks
        )
        state = JobState.RUNNING if any(task.workers for task in tasks) else JobState.WAITING
        reason = reasons.get(job, "")
        rows.append(JobRow(job, state, known.submitted, replica.coordinators.get(job), tasks, reason))
    rows.sort(key=lambda row: row.since)
    rows += [JobRow(job, JobState.COMPLETED, at, None, ()) for job, at in replica.completed.items()]
    rows += [JobRow(job, JobState.KILLED, at, None, ()) for job, at in replica.killed.items()]
    return tuple(rows)


def as_json(status: FleetStatus) -> dict[str, Any]:
    """Return the status for programs, with digests in hexadecimal."""
    return {
        "join": status.join.value,
        "job_scheduler": status.job_scheduler,
        "log": {"first": status.first, "end": status.end, "chain": status.chain.hex()},
        "ring_closed": status.ring_closed,
        "agreed": status.agreed,
        "joining": list(status.joining),
        "peers": {"all": status.peers, "idle": status.idle, "orphans": status.orphans},
        "groups": [
            {
                "group": row.group,
                "watches": row.watches,
                "peers": row.peers,
                "working": row.working,
                "sites": list(row.sites),
                "position": row.published,
                "chain": None if row.chain is None else row.chain.hex(),
                "behind": row.behind,
                "agreement": row.agreement.value,
                "heard_s_ago": None if row.silence is None else row.silence.silent_s,
                "session_timeout_s": None if row.silence is None else row.silence.timeout_s,
                "silent": row.silent,
            }
            for row in status.groups
        ],
        "jobs": [
            {
                "job": row.job,
                "state": row.state.value,
                "reason": row.reason,
                "since": row.since,
                "coordinator": row.coordinator,
                "tasks": {
                    task.task: [
                        {"peer": peer, "slot": slot, "state": state.value}
                        for peer, slot, state in task.workers
                    ]
                    for task in row.tasks
                },
            }
            for row in status.jobs
        ],
    }
