"""Fleets of peers, from what they publish in znodes beside their logs (`zraft_core.fleets`). Pure.

A server plays no fleet's log. So tasks are shown as the groups that run them report them, and not as a replica would have
them; `onyxlog status` plays the log. All that is read here was written by others: it is checked, and bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import asdict, frozen

from zraft.admin.console.values import (
    AuditShown,
    Fleet,
    FleetGroup,
    FleetJob,
    FleetTask,
    FleetWorker,
    GossipNumbers,
    RuleShown,
)
from zraft.server.operators.inner_clients import Message
from zraft_core.errors import ProtocolError
from zraft_core.fleets import (
    AuditReport,
    GroupReport,
    JobReport,
    WorkerReport,
    decode_audit,
    decode_report,
    digest_position,
    inline_data,
)

FLEETS_MAX: Final = 8
GROUPS_MAX: Final = 200
"""Groups of one fleet that are shown."""
JOBS_SHOWN_MAX: Final = 100
"""Jobs of one fleet that are shown: the newest."""
WORKERS_SHOWN_MAX: Final = 50
"""Virtual peers of one task that are named."""
REPORT_BYTES_MAX: Final = 65_536
"""A longer report is not read: it would hold the loop."""
REPORTS_BYTES_MAX: Final = 1 << 20
"""The bound of all groups of a fleet together; more is not read."""
UNREADABLE_MAX: Final = 5


@frozen
class Pulse:
    """A group's pulse: its name, and what the server knows of its session."""

    group: str
    silent_ms: int | None = None
    timeout_ms: int | None = None


@frozen
class Told:
    """Published data of a group: those of two znodes, and when it last wrote its report (None: never)."""

    report: GroupReport | None = None
    written_ms: int | None = None
    position: int | None = None


@frozen
class FleetRead:
    """Data that were read of one fleet. `jobs` are the names of specifications, of which there are `jobs_total`."""

    tenancy: str
    end: int | None
    entries: int | None
    pulses: tuple[Pulse, ...]
    pulses_total: int
    told: Mapping[str, Told]
    jobs: Sequence[str]
    jobs_total: int
    audit: AuditReport | None
    unreadable: tuple[str, ...]


def owners_requests(paths: Sequence[str]) -> list[Message]:
    """Return the requests for the sessions behind pulses; the ids count from 1."""
    return [{"id": at, "type": "owners", "path": path} for at, path in enumerate(paths, 1)]


def pulses_of(answer: Mapping[str, Any]) -> tuple[Pulse, ...]:
    """Return the pulses in an answer to `owners_requests`, in the order of their names."""
    rows = [(str(name), silent_ms, timeout_ms) for name, _, silent_ms, timeout_ms in answer["owners"]]
    return tuple([Pulse(*row) for row in sorted(rows)])


def told_of(
    report: bytes | None, written_ms: int | None, digest: bytes | None, group: str
) -> tuple[Told, str]:
    """Return what a group has published, and what is wrong with it; empty if nothing is."""
    found, wrong = Told(), ""
    try:
        if report:
            data = decode_report(inline_data(report, group), f"report of {group}")
            found = Told(data, written_ms, data.position)
    except ProtocolError as error:
        wrong = str(error)
    try:
        if digest:
            position = digest_position(inline_data(digest, group), f"digest of {group}")
            found = Told(found.report, found.written_ms, max(position, found.position or 0))
    except ProtocolError as error:
        wrong = wrong or str(error)
    return found, wrong


def audit_of(data: bytes | None) -> tuple[AuditReport | None, str]:
    """Return a published audit, and what is wrong with it; empty if nothing is."""
    try:
        return (decode_audit(inline_data(data, "audit"), "audit") if data else None), ""
    except ProtocolError as error:
        return None, str(error)


def fleet_of(read: FleetRead, now_ms: int) -> Fleet:
    """Return a fleet as it is shown; `now_ms` is wall time."""
    groups = tuple(
        [_group(pulse, read.told.get(pulse.group, Told()), read.end, now_ms) for pulse in read.pulses]
    )
    reports = [
        told.report
        for pulse in read.pulses
        if (told := read.told.get(pulse.group)) is not None and told.report
    ]
    jobs = _jobs(reports, read.jobs)
    left_out = max(len(jobs), read.jobs_total) - min(len(jobs), JOBS_SHOWN_MAX)
    return Fleet(
        read.tenancy,
        read.end,
        read.entries,
        groups,
        read.pulses_total - len(groups),
        tuple(jobs[-JOBS_SHOWN_MAX:]),
        left_out,
        _sum([one.gossip for one in groups if one.gossip is not None]),
        None if read.audit is None else _audit(read.audit),
        read.unreadable[:UNREADABLE_MAX],
    )


def _group(pulse: Pulse, told: Told, end: int | None, now_ms: int) -> FleetGroup:
    report = told.report
    gossip = None
    if report is not None and report.gossip is not None:
        counted = report.gossip
        gossip = GossipNumbers(
            counted.from_peers,
            counted.from_servers,
            counted.own,
            counted.redundant,
            counted.received_bytes,
            counted.sent_bytes,
        )
    return FleetGroup(
        pulse.group,
        pulse.silent_ms,
        pulse.timeout_ms,
        told.position,
        None if told.position is None or end is None else max(0, end - 1 - told.position),
        None if told.written_ms is None else max(0, now_ms - told.written_ms),
        None if report is None else report.peers,
        None if report is None else len(report.workers),
        gossip,
    )


def _sum(found: Sequence[GossipNumbers]) -> GossipNumbers | None:
    if not found:
        return None
    return GossipNumbers(
        *[sum(counts) for counts in zip(*(asdict(one).values() for one in found), strict=True)]
    )


def _jobs(reports: Sequence[GroupReport], specifications: Iterable[str]) -> list[FleetJob]:
    """Return jobs in the order of their positions, before them those of which nobody tells a position."""
    workers: dict[str, dict[str, list[tuple[WorkerReport, int]]]] = {}
    for report in reports:
        for worker in report.workers:
            workers.setdefault(worker.job, {}).setdefault(worker.task, []).append(
                (worker, report.interval_ms)
            )
    # After the group with the lowest id has left, its report stands beside that of the next one for a while.
    telling = max(
        (one for one in reports if one.jobs is not None), key=lambda one: one.position, default=None
    )
    told: dict[str, JobReport] = {} if telling is None else {job.job: job for job in telling.jobs or ()}
    names = dict.fromkeys([*sorted({*specifications, *workers} - told.keys()), *told])
    found = []
    for name in names:
        tasks = tuple([_task(task, some) for task, some in sorted(workers.get(name, {}).items())])
        job = told.get(name)
        state = job.state if job is not None else "running" if tasks else "unknown"
        found.append(
            FleetJob(
                name,
                state,
                None if job is None else job.since,
                None if job is None else job.since_ms,
                tasks if state == "running" else (),
            )
        )
    return found


def _task(task: str, found: Sequence[tuple[WorkerReport, int]]) -> FleetTask:
    workers = sorted((worker for worker, _ in found), key=lambda worker: (worker.slot, worker.peer))
    done = total = left_ms = None
    if all(worker.done is not None and worker.total is not None for worker in workers):
        done = sum(worker.done or 0 for worker in workers)
        total = sum(worker.total or 0 for worker in workers)
        per_ms = sum(worker.recent_done / interval_ms for worker, interval_ms in found)
        left = max(0, total - done)
        left_ms = 0 if not left else round(left / per_ms) if per_ms else None
    return FleetTask(
        task,
        tuple(
            [
                FleetWorker(worker.peer, worker.slot, worker.since_ms, worker.segments)
                for worker in workers[:WORKERS_SHOWN_MAX]
            ]
        ),
        min(worker.since_ms for worker in workers),
        sum(worker.segments for worker in workers),
        sum(worker.recent * 1000 / interval_ms for worker, interval_ms in found),
        done,
        total,
        left_ms,
    )


def _audit(report: AuditReport) -> AuditShown:
    return AuditShown(
        report.at_ms,
        report.title,
        report.version,
        report.seconds,
        report.verdict,
        tuple([RuleShown(rule.rule, rule.title, rule.verdict, rule.violations) for rule in report.rules]),
    )
