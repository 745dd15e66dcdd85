"""A picture of a fleet of peers, as values: what `onyxlog status` shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from attrs import asdict, evolve, frozen

from onyxlog.ids import GroupId, JobId, PeerId, Position, Site, TaskName
from onyxlog.job_status import JobState
from onyxlog.peer.log.port import LogBounds, Silence
from onyxlog.peer.publishing import Published
from onyxlog.replica.replica import JoinMode, PeerState, Replica
from onyxlog.replica.rescheduling import problem
from onyxlog.scheduling.waiting import reasons_to_wait
from zraft_core.fleets import AuditReport, GossipReport, GroupReport, WorkerReport


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

    `watches`: the group whose pulse it looks after. `published`: the position that it published last, with a digest or in
    a report; `behind`: entries between that and the log's end. `silence`: how long the service has heard nothing of it;
    None where the service does not tell. `reported_ms`: the group's clock in its newest report; None if it is of a
    release that writes none. `gossip`: None without gossip.
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
    reported_ms: int | None = None
    gossip: GossipReport | None = None

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
class Progress:
    """Progress of a task, the sum of its workers' reports.

    `segments`: since the workers began; `per_s`: segments per second of the last reports. `done`, `total`: how far an
    input has read, in its own units; None unless all of its workers know it. `left_s`: how long the rest takes at the
    present rate; None if that is not known.
    """

    segments: int
    per_s: float
    done: int | None = None
    total: int | None = None
    left_s: float | None = None


@frozen
class TaskRow:
    """One task of a job.

    `workers`: the task's workers with their slots and states. `since_ms`: when the first of them began; None if it is
    not known. `progress`: None if none of them has reported.
    """

    task: TaskName
    workers: tuple[tuple[PeerId, int, PeerState], ...]
    since_ms: int | None = None
    progress: Progress | None = None


@frozen
class JobRow:
    """One job.

    `since`: the position at which it was submitted, or came to its end; `since_ms`: its writer's clock there, None if
    nobody remembers it. `reason` says what a waiting job waits for.
    """

    job: JobId
    state: JobState
    since: Position
    coordinator: PeerId | None
    tasks: tuple[TaskRow, ...]
    reason: str = ""
    since_ms: int | None = None


@frozen
class FleetStatus:
    """A fleet.

    `groups` are in the order of the ring, from the lowest id; `ring_closed`: one cycle covers all of them. `audit`: the
    one that was published last.
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
    audit: AuditReport | None = None

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
    *,
    reports: Iterable[GroupReport] = (),
    times: Mapping[Position, int] = MappingProxyType({}),
    audit: AuditReport | None = None,
) -> FleetStatus:
    """Return the picture of a fleet.

    `chains`: the digest chain's value at positions that this program has played. `silences`: as far as the
    service tells them. `times`: the writers' clocks at positions that this program has played.
    """
    reported = {one.group: one for one in reports}
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
                _reported(
                    _group_row(
                        replica, group, peers_of.get(group, []), working, shown.get(group), bounds, chains
                    ),
                    reported.get(group),
                    bounds,
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
        jobs=_job_rows(replica, _Reports.of(reported.values(), times)),
        audit=audit,
    )


def _reported(row: GroupRow, report: GroupReport | None, bounds: LogBounds) -> GroupRow:
    """Return the row with what the group reports of itself, which may be newer than its digest."""
    if report is None:
        return row
    position = max(report.position, -1 if row.published is None else row.published)
    return evolve(
        row,
        published=position,
        behind=max(0, bounds.end - 1 - position),
        reported_ms=report.at_ms,
        gossip=report.gossip,
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


@frozen
class _Reports:
    """Workers by (peer, job, task) with the interval of their report, and times by position."""

    workers: Mapping[tuple[PeerId, JobId, TaskName], tuple[WorkerReport, int]]
    times: Mapping[Position, int]

    @classmethod
    def of(cls, reports: Iterable[GroupReport], times: Mapping[Position, int]) -> _Reports:
        workers = {}
        told: dict[Position, int] = {}
        for report in reports:
            for worker in report.workers:
                workers[worker.peer, worker.job, worker.task] = (worker, report.interval_ms)
            told |= {job.since: job.since_ms for job in report.jobs or () if job.since_ms is not None}
        return cls(workers, told | dict(times))

    def task(self, replica: Replica, job: JobId, row: TaskRow) -> TaskRow:
        """Return the task's row with times and progress, as far as its workers report them."""
        found = [
            known
            for peer, _, _ in row.workers
            if (known := self.workers.get((peer, job, row.task))) is not None
        ]
        if not found:
            # A release that reports nothing: when the tasks of the job were divided last.
            divided = replica.allocation_versions.get(job)
            return evolve(
                row, since_ms=None if divided is None or not row.workers else self.times.get(divided)
            )
        since = min(worker.since_ms for worker, _ in found)
        return evolve(
            row, since_ms=since or None, progress=_progress(found, complete=len(found) == len(row.workers))
        )


def _progress(found: Iterable[tuple[WorkerReport, int]], *, complete: bool) -> Progress:
    segments, per_s, done_per_s = 0, 0.0, 0.0
    done: int | None = 0
    total: int | None = 0
    for worker, interval_ms in found:
        segments += worker.segments
        per_s += worker.recent * 1000 / interval_ms
        done_per_s += worker.recent_done * 1000 / interval_ms
        done = None if done is None or worker.done is None else done + worker.done
        total = None if total is None or worker.total is None else total + worker.total
    if done is None or total is None or not complete:
        return Progress(segments, per_s)
    left = max(0, total - done)
    left_s = 0.0 if not left else left / done_per_s if done_per_s else None
    return Progress(segments, per_s, done, total, left_s)


def _job_rows(replica: Replica, reports: _Reports) -> tuple[JobRow, ...]:
    rows = []
    reasons = reasons_to_wait(problem(replica))
    for job, known in replica.jobs.items():
        tasks = tuple(
            reports.task(
                replica,
                job,
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
    return tuple(evolve(row, since_ms=reports.times.get(row.since)) for row in rows)


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
                "reported_ms": row.reported_ms,
                "gossip": None if row.gossip is None else asdict(row.gossip),
            }
            for row in status.groups
        ],
        "jobs": [
            {
                "job": row.job,
                "state": row.state.value,
                "reason": row.reason,
                "since": row.since,
                "since_ms": row.since_ms,
                "coordinator": row.coordinator,
                "tasks": {
                    task.task: [
                        {"peer": peer, "slot": slot, "state": state.value}
                        for peer, slot, state in task.workers
                    ]
                    for task in row.tasks
                },
                "progress": {
                    task.task: {
                        "since_ms": task.since_ms,
                        **asdict(task.progress or Progress(0, 0.0)),
                        "reported": task.progress is not None,
                    }
                    for task in row.tasks
                },
            }
            for row in status.jobs
        ],
        "audit": None if status.audit is None else _audit_json(status.audit),
    }


def _audit_json(audit: AuditReport) -> dict[str, Any]:
    return {**asdict(audit), "rules": [asdict(rule) for rule in audit.rules], "verdict": audit.verdict}
