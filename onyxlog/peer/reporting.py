"""Reports of a group about itself, for people: its tasks and their progress, gossip's savings, and when jobs changed.

`onyxlog status` and servers' consoles read it. Nothing of it enters the replica, and no peer reads another's report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from attrs import evolve, frozen

from onyxlog.errors import EntryError
from onyxlog.gossip.buffer import Offered, Source
from onyxlog.gossip.outputs import GossipCounters
from onyxlog.ids import GroupId, JobId, PeerId, Position
from onyxlog.peer.log.port import LogPort
from onyxlog.peer.task_runner import WorkerStatistics
from onyxlog.replica.effects import StartTask
from onyxlog.replica.replica import Replica
from zraft_client.errors import FailedError, SessionExpiredError, UnknownOutcomeError
from zraft_core.fleets import (
    JOBS_MAX,
    WORKERS_MAX,
    GossipReport,
    GroupReport,
    JobReport,
    WorkerReport,
    encode_report,
    report_path,
)

QUIET_FACTOR: Final = 12
"""Intervals after which a report is written in which only counts of the group have changed."""
FIRST_S: Final = 1.0
"""Seconds between two attempts until there is something to report."""
TIMES_SPARE: Final = 1_000
"""Positions of jobs that are gone whose times are kept, before they are forgotten together."""

log = structlog.get_logger()


@frozen
class Counted:
    """Counts of a group's workers at one moment, `at_ms` since 1970."""

    at_ms: int
    workers: Mapping[PeerId, WorkerStatistics]


class JobTimes:
    """The writers' clocks at the positions at which jobs were submitted or ended, as far as this group played them."""

    def __init__(self) -> None:
        self._times: dict[Position, int] = {}

    def note(self, before: Replica, after: Replica, at_ms: int) -> None:
        """Note the time of the entry that led from one replica to the next, if it changed jobs."""
        same = before.jobs is after.jobs and before.completed is after.completed
        if not at_ms or (same and before.killed is after.killed):
            return
        self._times[after.version] = at_ms
        jobs = (len(after.jobs), len(after.completed), len(after.killed))
        if len(self._times) > sum(jobs) + TIMES_SPARE:
            known = {one.submitted for one in after.jobs.values()}
            known |= {*after.completed.values(), *after.killed.values()}
            self._times = {position: time for position, time in self._times.items() if position in known}

    def at(self, position: Position) -> int | None:
        """Return the time of the entry at this position, if it is known."""
        return self._times.get(position)


def report_of(
    group: GroupId,
    replica: Replica,
    running: Mapping[PeerId, StartTask],
    now: Counted,
    before: Counted,
    gossip: GossipCounters | None,
    times: JobTimes,
) -> GroupReport:
    """Return the report of a group.

    The group with the lowest id tells the jobs of the fleet for all.
    """
    workers = []
    for peer, task in sorted(running.items())[:WORKERS_MAX]:
        counted = now.workers.get(peer)
        if counted is None:
            continue
        last = before.workers.get(peer)
        if last is None or last.began_ms != counted.began_ms:
            last = WorkerStatistics(done=counted.done)
        workers.append(
            WorkerReport(
                peer=peer,
                job=task.job,
                task=task.task,
                slot=task.slot,
                since_ms=counted.began_ms,
                segments=counted.segments,
                recent=max(0, counted.segments - last.segments),
                done=counted.done,
                total=counted.total,
                recent_done=max(0, (counted.done or 0) - (last.done or 0)),
            )
        )
    tells_jobs = next(iter(replica.groups), None) == group
    return GroupReport(
        group=group,
        at_ms=now.at_ms,
        position=max(0, replica.version),
        interval_ms=max(1, now.at_ms - before.at_ms),
        peers=sum(1 for peer in replica.peers.values() if peer.group == group),
        workers=tuple(workers),
        gossip=None if gossip is None else _gossip(gossip),
        jobs=_jobs(replica, times) if tells_jobs else None,
    )


def _gossip(counted: GossipCounters) -> GossipReport:
    applied = counted.applied
    return GossipReport(
        from_peers=applied[Source.GOSSIP.value] + applied[Source.PEER.value],
        own=applied[Source.OWN.value],
        from_servers=applied[Source.LOG.value] + applied[Source.TAIL.value],
        redundant=counted.offered[Offered.KNOWN.value],
        reads=sum(counted.reads.values()) + counted.looks,
        received_bytes=counted.received_bytes,
        sent_bytes=counted.sent_bytes,
    )


def _jobs(replica: Replica, times: JobTimes) -> tuple[JobReport, ...]:
    """Return the newest jobs of the fleet, the oldest of them first."""
    working: set[JobId] = {job for (job, _), workers in replica.allocations.items() if workers}
    found = [
        (known.submitted, job, "running" if job in working else "waiting")
        for job, known in replica.jobs.items()
    ]
    found += [(position, job, "completed") for job, position in replica.completed.items()]
    found += [(position, job, "killed") for job, position in replica.killed.items()]
    return tuple(
        JobReport(job, state, position, times.at(position))
        for position, job, state in sorted(found)[-JOBS_MAX:]
    )


class Reporter:
    """Writer of a group's report, at every interval in which its tasks or the jobs changed, and now and then otherwise.

    `look` returns the report of now, or None if there is nothing to report yet.
    """

    def __init__(
        self, port: LogPort, group: GroupId, *, every_s: float, look: Callable[[], GroupReport | None]
    ) -> None:
        self._port = port
        self._group = group
        self._every_s = every_s
        self._look = look
        self._written: GroupReport | None = None
        self.writes = 0

    async def run(self) -> None:
        """Write until cancelled."""
        quiet = 0
        while True:
            report = self._look()
            if report is not None:
                quiet += 1
                if self._is_due(report, quiet):
                    quiet = 0
                    await self._write(report)
            # A group is a member soon after its start, and then it is to be seen.
            await asyncio.sleep(self._every_s if self._written else min(self._every_s, FIRST_S))

    def _is_due(self, report: GroupReport, quiet: int) -> bool:
        written = self._written
        if written is None or (report.workers, report.jobs) != (written.workers, written.jobs):
            return True
        same = evolve(written, at_ms=report.at_ms, interval_ms=report.interval_ms)
        return quiet >= QUIET_FACTOR and report != same

    async def _write(self, report: GroupReport) -> None:
        try:
            await self._port.put_state(report_path(self._group), encode_report(report))
            self.writes += 1
        except SessionExpiredError:
            raise
        except (FailedError, UnknownOutcomeError, EntryError) as error:
            # Nothing depends on it, and the next one says all that this one did.
            log.warning("report not written", group=self._group, error=str(error))
        self._written = report
