"""Client of a tenancy: submit jobs and follow them, collect the log's garbage, read the log, run peers.

async with await connect(native_ports("127.0.0.1:2181", "default")) as client:
    await client.submit_job(job)
    assert await client.await_job_completion(job.id) is JobState.COMPLETED
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Set
from typing import Final

from attrs import frozen

from onyxlog.errors import OnyxlogError, OvertakenError, WorkflowError
from onyxlog.ids import GroupId, JobId, Position
from onyxlog.job_status import JobState, JobStatus, job_status
from onyxlog.jobs.specification import Job, decode_job, encode_job
from onyxlog.jobs.validation import check
from onyxlog.peer.fleet import Fleet
from onyxlog.peer.follower import Follower, Played
from onyxlog.peer.log.port import LogPort, OpenPort
from onyxlog.peer.publishing import Published, decode, path_of
from onyxlog.peer.settings import GroupSettings
from onyxlog.peer.task_runner import MakeRunner
from onyxlog.plugins.plugin import INPUTS, OUTPUTS
from onyxlog.replica.collection import unwatched
from onyxlog.replica.commands import Command, Gc, KillJob, SubmitJob
from onyxlog.replica.playing import play
from onyxlog.replica.replica import JoinMode, Replica
from onyxlog.tasks.checkpoints import CheckpointStore, forget_checkpoints
from zraft_client.errors import NoNodeError
from zraft_core.errors import ProtocolError
from zraft_core.fleets import (
    AUDIT,
    DIGESTS,
    REPORTS,
    AuditReport,
    GroupReport,
    decode_audit,
    decode_report,
    encode_audit,
    report_path,
)

CLIENT_ID_BYTES: Final = 8
READS_AT_ONCE: Final = 64

__all__ = [
    "Client",
    "Collected",
    "JobIdTakenError",
    "JobState",
    "JobStatus",
    "Played",
    "UnknownJobError",
    "connect",
    "start_peers",
]


class JobIdTakenError(OnyxlogError):
    """Error of a job whose id another job had before. Ids cannot be used again; choose another one."""


class UnknownJobError(OnyxlogError, KeyError):
    """The log has no such job: it was never submitted, or it is over and was collected."""

    __str__ = OnyxlogError.__str__


@frozen
class Collected:
    """The outcome of a garbage collection. `stored` is False if a newer origin was there already."""

    position: Position
    stored: bool
    jobs: tuple[JobId, ...]
    """Jobs that were over and are now forgotten."""


class Client:
    """A client that follows the log while it is open. It belongs to one event loop."""

    def __init__(
        self,
        port: LogPort,
        *,
        client: str | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._port = port
        self.id = f"client-{secrets.token_hex(CLIENT_ID_BYTES)}" if client is None else client
        self._follower = Follower(port, self.id, now_ms)

    async def start(self) -> None:
        """Begin to follow the log.

        Raises:
            OnyxlogError: no peer has begun this log yet.
        """
        try:
            await self._follower.start()
        except NoNodeError as error:
            raise OnyxlogError(
                "there is no log: no peer was ever started in this tenancy; start one, or name another (--tenancy)"
            ) from error

    async def close(self) -> None:
        """Close this client and its port, which ends the session."""
        await self._follower.close()
        await self._port.close()

    @property
    def port(self) -> LogPort:
        """The log's port, for reads that this class does not have."""
        return self._port

    @property
    def replica(self) -> Replica:
        """The replica as far as the log was read; `caught_up` waits for the rest."""
        return self._follower.replica

    @property
    def chain(self) -> bytes:
        """The digest chain's value at `replica.version`."""
        return self._follower.chain

    def on_played(self, told: Callable[[Played], None]) -> None:
        """Add a function that is called after each entry that is played from now on.

        It must neither block nor raise.
        """
        self._follower.listeners.append(told)

    async def changed(self) -> None:
        """Wait until another entry was played."""
        version = self.replica.version
        await self._follower.until(lambda: self.replica.version != version)

    def reason_of(self, job: JobId) -> str:
        """Return why a job was killed if this client read that entry, otherwise an empty string."""
        return self._follower.reasons.get(job, "")

    async def caught_up(self) -> Replica:
        """Return the replica with everything that the log had when this was called."""
        return await self._follower.caught_up()

    async def append(self, command: Command) -> Position:
        """Append any entry, for programs that know what they do. Return when it was played here."""
        return await self._follower.say(command)

    # -- jobs

    async def submit_job(self, job: Job, *, importing: bool = True) -> Position:
        """Store the job and submit it, once, and return the position at which it is known.

        Repeating the call does nothing.

        `importing`: import the job's functions first, to see that they exist. Pass False where they are not
        installed.

        Raises:
            WorkflowError: the job cannot run, or it resumes from a job that has left no checkpoint. The
                message names every fault and its place.
            JobIdTakenError: another job has or had this id.
        """
        check(job, importing=importing, inputs=INPUTS, outputs=OUTPUTS)
        requirements = job.requirements()
        replica = await self.caught_up()
        known = replica.jobs.get(job.id)
        over = replica.completed.get(job.id, replica.killed.get(job.id))
        if over is not None:
            raise JobIdTakenError(
                f"job {job.id}: is over since position {over}; submit under an id of its own"
            )
        if known is None:
            await self._check_resumption(job)
            await self._port.put_job(job.id, encode_job(job))
            await self._follower.say(SubmitJob(requirements))
            known = self.replica.jobs.get(job.id)
        if known is not None and known.requirements.hash != requirements.hash:
            raise JobIdTakenError(
                f"job {job.id}: found another job under this id, submitted at position {known.submitted}; "
                "submit under an id of its own"
            )
        return self.replica.version if known is None else known.submitted

    async def _check_resumption(self, job: Job) -> None:
        """Refuse a job that resumes from nothing: its workers would begin empty and not tell anybody."""
        begun_from = job.resume_from
        if begun_from is not None and await CheckpointStore(self._port, begun_from).newest() is None:
            raise WorkflowError(
                f"job {job.id}: resume_from: found no checkpoint of job {begun_from}: it has none yet, or it completed and "
                "was collected; submit without it to begin with nothing"
            )

    async def kill_job(self, job: JobId, reason: str = "") -> bool:
        """Kill a job; return whether it was running or waiting until now.

        Raises:
            UnknownJobError: there is no such job.
        """
        replica = await self.caught_up()
        if job not in replica.jobs:
            if job not in replica.killed and job not in replica.completed:
                raise UnknownJobError(f"job {job}: the log knows no such job; known are {_some(replica)}")
            return False
        await self._follower.say(KillJob(job, replica.jobs[job].submitted, reason))
        return job in self.replica.killed

    async def job_state(self, job: JobId) -> JobStatus:
        """Return the state of a job, after all entries that the log has now."""
        await self.caught_up()
        return job_status(self.replica, job)

    async def await_job_completion(self, job: JobId) -> JobState:
        """Wait until the job is over, and return COMPLETED, KILLED or COLLECTED.

        Put a timeout around it to wait no longer than that.

        Raises:
            UnknownJobError: there is no such job.
        """
        replica = await self.caught_up()
        if job not in replica.jobs and job not in replica.completed and job not in replica.killed:
            raise UnknownJobError(f"job {job}: the log knows no such job; known are {_some(replica)}")
        await self._follower.until(lambda: job not in self.replica.jobs)
        state = job_status(self.replica, job).state
        return JobState.COLLECTED if state is JobState.UNKNOWN else state

    # -- the log

    async def gc(self) -> Collected:
        """Forget what is over on all peers and truncate the log; its new origin is the replica as of this call.

        Checkpoints and positions of completed jobs are removed, unless a job that is not over resumes from
        them. Those, and those of killed jobs, from which another may resume, stay until `clear_job_data`.
        """
        before = await self.caught_up()
        over = {*before.completed, *before.killed}
        position = await self._follower.say(Gc(self.id, await self._gone(before)))
        forgotten = tuple(sorted(over - {*self.replica.completed, *self.replica.killed}))
        origin = self._follower.take_origin(position)
        stored = origin is not None and await self._port.store_origin(origin)
        for job in forgotten:
            await self._port.forget_job(job)
        for job in await self._finished_with(before.completed.keys() & {*forgotten}):
            await forget_checkpoints(self._port, job)
        for group in sorted(before.left.keys() - self.replica.left.keys()):
            await self._port.remove_state(path_of(group))
        await self._forget_reports()
        return Collected(position, stored, forgotten)

    async def _forget_reports(self) -> None:
        """Remove the reports of groups that are gone, also where a release collected that did not know of reports."""
        for group in await self._port.states(REPORTS):
            if group not in self.replica.groups:
                await self._port.remove_state(report_path(group))

    async def _finished_with(self, jobs: Set[JobId]) -> list[JobId]:
        """Return the completed jobs from which no unfinished job resumes."""
        if not jobs:
            return []
        begun_from = set()
        for other in self.replica.jobs:
            try:
                begun_from.add(decode_job(await self._port.job(other), f"jobs/{other}").resume_from)
            except NoNodeError:
                continue  # the job ended and was collected meanwhile
        return sorted(jobs - begun_from)

    async def _gone(self, replica: Replica) -> tuple[GroupId, ...]:
        """Return the groups that never joined, that nobody watches, and that have no pulse any more."""
        if replica.parameters.join is not JoinMode.RING:
            return ()
        return tuple([group for group in unwatched(replica) if not await self._port.is_alive(group)])

    async def subscribe_to_log(self) -> AsyncIterator[Played]:
        """Yield all entries from the origin on with the replica after each, then every new one, for ever.

        If entries were truncated before they were read, one item without an entry follows, and then the later
        entries.
        """
        origin = await self._port.origin()
        replica, chain = origin.replica, origin.chain
        while True:
            try:
                async for batch in self._port.tail(replica.version + 1):
                    for entry in batch:
                        step = play(replica, entry, chain)
                        replica, chain = step.replica, step.chain
                        yield Played(entry, replica, chain)
                return
            except OvertakenError:
                origin = await self._port.origin()
                if origin.position > replica.version:
                    replica, chain = origin.replica, origin.chain
                    yield Played(None, replica, chain)

    async def digests(self) -> tuple[Published, ...]:
        """Return what each group has published of its digest chain.

        Groups that are gone stay listed until garbage collection.
        """
        groups = await self._port.states(DIGESTS)
        return tuple([decode(data, path) for path, data in await self._states(map(path_of, groups))])

    async def reports(self) -> tuple[GroupReport, ...]:
        """Return what groups of the fleet report of themselves: tasks, progress, gossip.

        Groups of an earlier release report nothing. A report that this release cannot read is left out, because
        nothing but what people see depends on it.
        """
        groups = [group for group in await self._port.states(REPORTS) if group in self.replica.groups]
        found = []
        for path, data in await self._states(map(report_path, groups)):
            try:
                found.append(decode_report(data, path))
            except ProtocolError:
                continue
        return tuple(found)

    async def last_audit(self) -> AuditReport | None:
        """Return the audit that was published last; None if there is none that this release can read."""
        data = await self._port.state(AUDIT)
        try:
            return None if data is None else decode_audit(data, AUDIT)
        except ProtocolError:
            return None

    async def _states(self, paths: Iterable[str]) -> list[tuple[str, bytes]]:
        """Return each of these paths that has data, with its data."""
        left = list(paths)
        found: list[tuple[str, bytes]] = []
        for start in range(0, len(left), READS_AT_ONCE):
            some = left[start : start + READS_AT_ONCE]
            read = await asyncio.gather(*(self._port.state(path) for path in some))
            found += [(path, data) for path, data in zip(some, read, strict=True) if data is not None]
        return found

    async def clear_job_data(self, job: JobId) -> None:
        """Remove what a job that is over has left behind: its specification, checkpoints and positions.

        Raises:
            OnyxlogError: the job is not over.
        """
        replica = await self.caught_up()
        if job in replica.jobs:
            raise OnyxlogError(f"job {job}: is not over; kill it first")
        await self._port.forget_job(job)
        await forget_checkpoints(self._port, job)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _some(replica: Replica) -> str:
    names = [*replica.jobs, *replica.completed, *replica.killed]
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "") if names else "none"


async def connect(open_port: OpenPort) -> Client:
    """Return a started client with a session of its own. Close it, or use it as an async context manager."""
    client = Client(await open_port())
    try:
        await client.start()
    except BaseException:
        await client.close()
        raise
    return client


async def publish_audit(open_port: OpenPort, report: AuditReport) -> None:
    """Store the summary of an audit in a tenancy, in the place of the one before. It needs no log there."""
    port = await open_port()
    try:
        await port.put_state(AUDIT, encode_audit(report))
    finally:
        await port.close()


def start_peers(
    open_port: OpenPort, make_runner: MakeRunner, settings: GroupSettings, groups: int = 1
) -> Fleet:
    """Start peer groups in the background of this process. Call `stop`, or use the fleet as an async context manager."""
    fleet = Fleet(open_port, make_runner)
    for _ in range(groups):
        fleet.start(settings)
    return fleet
