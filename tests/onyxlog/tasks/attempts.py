"""Groups with runners around one log in memory, and attempts of jobs that the test makes up: no scheduler, no entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from onyxlog.ids import GroupId, PeerId
from onyxlog.jobs.specification import Job, encode_job
from onyxlog.peer.log.port import LogPort
from onyxlog.replica.commands import Command, CompleteJob, KillJob
from onyxlog.replica.effects import StartTask, StopTask
from onyxlog.replica.replica import Replica, VirtualPeer
from onyxlog.replica.replica import SubmittedJob as ReplicaJob
from onyxlog.replica.table import Table
from onyxlog.tasks.runner import JobRunner, RunnerSettings, start_runner
from tests.onyxlog.simulation.memory_log import MemoryLog

SUBMITTED: Final = 3
"""Where every job stands in the log."""

Places = Mapping[str, Sequence[PeerId]]
"""The workers of each task, in the order of their slots; a peer "a.1" is of group "a"."""


class Host:
    """A peer group whose log is a list."""

    def __init__(self, group: GroupId, port: LogPort, told: asyncio.Event) -> None:
        self.group = group
        self.port = port
        self.replica = Replica()
        self.appended: list[Command] = []
        self.failures: list[tuple[PeerId, BaseException]] = []
        self._told = told

    def append(self, command: Command) -> None:
        self.appended.append(command)
        self._told.set()

    def failed(self, peer: PeerId, error: BaseException) -> None:
        self.failures.append((peer, error))
        self._told.set()


class Groups:
    """Use as an async context manager."""

    def __init__(
        self, *names: GroupId, settings: RunnerSettings | None = None, log: MemoryLog | None = None
    ) -> None:
        self.names = names
        self.settings = settings or RunnerSettings(threads=False)
        self.log = log or MemoryLog()
        self.told = asyncio.Event()
        self.hosts: dict[GroupId, Host] = {}
        self.runners: dict[GroupId, JobRunner] = {}
        self.running: dict[PeerId, StartTask] = {}

    async def __aenter__(self) -> Groups:
        for number, name in enumerate(self.names):
            host = self.hosts[name] = Host(name, self.log.open(), self.told)
            self.runners[name] = await start_runner(host, self.settings, Random(number))
        return self

    async def __aexit__(self, *_: object) -> None:
        for runner in self.runners.values():
            await runner.close()

    async def begin(self, job: Job, places: Places, version: int) -> None:
        """Have an attempt begin: what runs already begins again, who has no place any more stops."""
        await self.hosts[next(iter(self.hosts))].port.put_job(job.id, encode_job(job))
        peers = {
            peer: VirtualPeer(peer.partition(".")[0], self.runners[peer.partition(".")[0]].site)
            for workers in places.values()
            for peer in workers
        }
        replica = Replica(
            jobs=Table({job.id: ReplicaJob(job.requirements(), SUBMITTED)}),
            peers=Table(peers),
            allocations=Table({(job.id, task): tuple(sorted(workers)) for task, workers in places.items()}),
            slots=Table(
                {
                    (job.id, task, peer): slot
                    for task, workers in places.items()
                    for slot, peer in enumerate(workers)
                }
            ),
            coordinators=Table({job.id: min(peers)}),
            allocation_versions=Table({job.id: version}),
        )
        for host in self.hosts.values():
            host.replica = replica
        for peer in set(self.running) - set(peers):
            gone = self.running.pop(peer)
            if (runner := self.runners.get(peer.partition(".")[0])) is not None:
                await runner.stop(StopTask(peer, gone.job, "reallocated"))
        for task, workers in places.items():
            for slot, peer in enumerate(workers):
                self.running[peer] = StartTask(peer, job.id, task, slot, version)
                await self.runners[peer.partition(".")[0]].start(self.running[peer])

    async def kill(self, group: GroupId) -> None:
        """The group's process dies: nobody is told."""
        await self.runners.pop(group).close()
        del self.hosts[group]

    async def until(self, holds: Callable[[], bool], timeout_s: float = 50) -> None:
        """For what tells nobody."""
        async with asyncio.timeout(timeout_s):
            while True:
                self.raise_failures()
                if holds():
                    return
                await asyncio.sleep(0.001)

    async def completed(self, timeout_s: float = 50) -> None:
        """Until a coordinator says that the job is complete; an AssertionError if anything fails before."""
        async with asyncio.timeout(timeout_s):
            while not any(isinstance(command, CompleteJob) for command in self.appended):
                self.raise_failures()
                self.told.clear()
                await self.told.wait()

    async def killed(self, timeout_s: float = 50) -> str:
        """The reason for which the job is killed."""
        async with asyncio.timeout(timeout_s):
            while True:
                for command in self.appended:
                    if isinstance(command, KillJob):
                        return command.reason
                self.told.clear()
                await self.told.wait()

    @property
    def appended(self) -> list[Command]:
        return [command for host in self.hosts.values() for command in host.appended]

    def raise_failures(self) -> None:
        for host in self.hosts.values():
            for peer, error in host.failures:
                raise AssertionError(f"{peer} failed") from error
            for command in host.appended:
                assert not isinstance(command, KillJob), command.reason
