"""The `TaskRunner` of a peer group: starts and stops the workers of its virtual peers, and reports what fails."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from random import Random
from typing import Final

import structlog
from attrs import frozen

from onyxlog.access import NOBODY, Access
from onyxlog.errors import WorkflowError
from onyxlog.ids import JobId, PeerId, Site
from onyxlog.jobs.lifecycles import Verdict
from onyxlog.jobs.specification import Job, TaskKind, decode_job
from onyxlog.peer.task_runner import MakeRunner, PlaneStatistics, TaskHost, WorkerStatistics
from onyxlog.replica.commands import BackpressureOff, BackpressureOn, KillJob
from onyxlog.replica.effects import StartTask, StopTask
from onyxlog.replica.replica import PeerState, Replica
from onyxlog.tasks.channels import WINDOW
from onyxlog.tasks.consumer import Consumer
from onyxlog.tasks.items import ChannelError
from onyxlog.tasks.layout import layout_of
from onyxlog.tasks.plane import DataPlane
from onyxlog.tasks.pressure import Pressure
from onyxlog.tasks.processing import TaskError
from onyxlog.tasks.producer import Producer
from onyxlog.tasks.threads import TaskThread
from onyxlog.tasks.worker import Surroundings, TaskWorker
from zraft.transport.keys import ClusterKey
from zraft_core.address import Address

__all__ = ["RunnerSettings", "runner_of"]

ANY_LOOPBACK: Final = Address("127.0.0.1", 0)
LOOK_S: Final = 0.25
REASON_MAX: Final = 2_000
"""The most characters of a killed job's reason, as it is stored in the log."""

log = structlog.get_logger()


@frozen(kw_only=True)
class RunnerSettings:
    """Settings of a runner.

    `address`: where other groups reach this one, port 0: any. `advertise`: what they dial instead.

    `keys`: the cluster's; without, only loopback unless `insecure_peers`. `threads`: users' code runs in a
    thread per virtual peer; without, in the group's event loop, where it must never block. `window`: items
    between two workers. `pressure_s`: how long a worker stands still with full buffers, or has room again,
    before it reports that in the log. `hosts`: where the log's servers are, and `access`: the identity shown
    there, for plugins.
    """

    tenancy: str = "default"
    address: Address = ANY_LOOPBACK
    advertise: Address | None = None
    keys: Sequence[ClusterKey] | None = None
    insecure_peers: bool = False
    hosts: str = ""
    access: Access = NOBODY
    threads: bool = True
    window: int = WINDOW
    pressure_s: float = 1.0


@frozen
class _Running:
    """Task that a virtual peer runs."""

    worker: TaskWorker
    task: asyncio.Task[None]
    pressure: Pressure


class JobRunner:
    """The tasks of one incarnation of a group. Make it with `start_runner`."""

    def __init__(self, host: TaskHost, settings: RunnerSettings, plane: DataPlane, rng: Random) -> None:
        self._host = host
        self._settings = settings
        self._plane = plane
        self._around = Surroundings(
            host=host, plane=plane, rng=rng, hosts=settings.hosts, access=settings.access
        )
        self._running: dict[PeerId, _Running] = {}
        self._jobs: dict[JobId, Job] = {}
        self._states: object = None
        self._closed = False
        self._looking = asyncio.get_running_loop().create_task(self._look())

    @property
    def site(self) -> Site:
        """The address at which this group's workers are reached."""
        return self._plane.site

    async def start(self, task: StartTask) -> None:
        """Start a task, as `TaskRunner.start` says.

        Raises:
            WorkflowError: the job's znode lacks the task.
        """
        await self._end(task.peer, "reallocated")
        layout = layout_of(self._host.replica, task.job)
        if layout is None or layout.version != task.version:
            return  # another entry overtook it, which has a start or a stop of its own
        seat = layout.seat_of(task.peer)
        if seat is None or seat.task != task.task:
            return
        try:
            job = await self._job(task.job)
            kind = Producer if job.task(task.task).kind is TaskKind.INPUT else Consumer
        except KeyError:
            raise WorkflowError(
                f"job {task.job}: its znode knows no task {task.task}, its entry does"
            ) from None
        if self._closed:
            return  # perhaps while the job was read
        thread = TaskThread(f"{task.job}/{task.task}/{seat.slot}", inline=not self._settings.threads)
        worker = kind(job, layout, seat, self._around, thread)
        running = _Running(
            worker,
            asyncio.get_running_loop().create_task(self._run(worker)),
            Pressure(self._settings.pressure_s),
        )
        self._running[task.peer] = running
        log.info(
            "task starts", job=job.id, task=seat.task, slot=seat.slot, peer=seat.peer, version=layout.version
        )

    async def stop(self, task: StopTask) -> None:
        """Stop a virtual peer's worker."""
        await self._end(task.peer, task.why)
        if task.why == "left":
            self._plane.forget_peer(task.peer)

    def replica_changed(self, replica: Replica) -> None:
        """Tell workers when backpressure of their jobs begins or ends."""
        if replica.peer_states is self._states:
            return
        self._states = replica.peer_states
        for running in self._running.values():
            worker = running.worker
            worker.paused = any(
                replica.peer_states.get(seat.peer) is PeerState.BACKPRESSURE for seat in worker.layout.seats
            )

    async def close(self) -> None:
        """Stop all workers and close their channels.

        It may be called again if it was cancelled: it then does the rest.
        """
        self._closed = True
        self._looking.cancel()
        for peer in tuple(self._running):
            await self._end(peer, "left")
        await self._plane.close()

    # -- what others look at

    def statistics(self) -> dict[PeerId, WorkerStatistics]:
        """Return the statistics of each virtual peer's worker."""
        return {peer: running.worker.statistics() for peer, running in self._running.items()}

    def plane_statistics(self) -> PlaneStatistics:
        """Return the statistics of the group's channels."""
        return self._plane.statistics()

    def break_connections(self) -> None:
        """Break connections with other groups; they are made again, and nothing is lost."""
        self._plane.disconnect()

    @property
    def workers(self) -> dict[PeerId, TaskWorker]:
        """The workers that run now, by virtual peer."""
        return {peer: running.worker for peer, running in self._running.items()}

    # -- carrying it out

    async def _job(self, job_id: JobId) -> Job:
        job = self._jobs.get(job_id)
        if job is None:
            data = await self._host.port.job(job_id)
            job = self._jobs[job_id] = decode_job(data, f"jobs/{job_id}")
            for other in [other for other in self._jobs if other not in self._host.replica.jobs]:
                if other != job_id:
                    del self._jobs[other]
        return job

    async def _run(self, worker: TaskWorker) -> None:
        """Run a task. What fails by the job's fault kills the job; anything else is the virtual peer's failure."""
        try:
            await worker.run()
        except (TaskError, WorkflowError, ChannelError) as error:
            if isinstance(error, TaskError) and error.verdict is Verdict.RESTART:
                self._host.failed(worker.seat.peer, error)
                return
            log.warning("job is killed", job=worker.job.id, reason=str(error))
            self._host.append(KillJob(worker.job.id, worker.layout.submitted, str(error)[:REASON_MAX]))
        except Exception as error:
            log.exception("task failed", job=worker.job.id, task=worker.task.name, peer=worker.seat.peer)
            self._host.failed(worker.seat.peer, error)

    async def _end(self, peer: PeerId, why: str) -> None:
        running = self._running.pop(peer, None)
        if running is None:
            return
        running.task.cancel()
        try:
            await asyncio.wait((running.task,))
        finally:
            await running.worker.stop(why)

    async def _look(self) -> None:
        """Report in the log which workers stand still with full buffers."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            for peer, running in self._running.items():
                worker = running.worker
                batches = worker.statistics().batches
                told = running.pressure.look(loop.time(), is_full=worker.is_full, batches=batches)
                if told is not None:
                    self._host.append(BackpressureOn(peer) if told else BackpressureOff(peer))


async def start_runner(host: TaskHost, settings: RunnerSettings, rng: Random | None = None) -> JobRunner:
    """Listen, and be ready for tasks.

    Raises:
        ConfigError: the address cannot be listened on, or must not be without a key.
    """
    plane = DataPlane(settings.tenancy, settings.keys, window=settings.window)
    await plane.listen(settings.address, insecure_peers=settings.insecure_peers, advertise=settings.advertise)
    return JobRunner(host, settings, plane, rng or Random(secrets.randbits(64)))


def runner_of(settings: RunnerSettings) -> MakeRunner:
    """Return what makes a runner for each incarnation of a peer group."""

    async def make(host: TaskHost) -> JobRunner:
        return await start_runner(host, settings)

    return make
