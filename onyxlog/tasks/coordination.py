"""Coordination of a job by one of its workers: the common start, checkpoints, and the job's completion.

There is one per attempt; docs/explanation/onyxlog.md, "Exactly once".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from onyxlog.ids import PeerId
from onyxlog.jobs.barriers import Barrier, WorkerKey
from onyxlog.jobs.checkpoints import CheckpointCoordinator, CompletedCheckpoint, encode_checkpoint
from onyxlog.jobs.specification import Delivery, Job, TaskKind
from onyxlog.replica.commands import Command, CompleteJob, ExhaustInput, SealOutput
from onyxlog.tasks.checkpoints import CheckpointStore
from onyxlog.tasks.items import Ask, Finished, Inject, Item, Recover, Stored
from onyxlog.tasks.layout import JobLayout, Seat

TICK_S: Final = 0.02

log = structlog.get_logger()


class Coordination:
    """Coordination of one attempt of a job.

    Args:
        direct: send an item to a worker.
        append: have a command written to the log.
        now_ms: a monotonic clock.
    """

    def __init__(
        self,
        job: Job,
        layout: JobLayout,
        store: CheckpointStore,
        *,
        direct: Callable[[Seat, Item], None],
        append: Callable[[Command], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._job = job
        self._layout = layout
        self._store = store
        self._direct = direct
        self._append = append
        self._now_ms = now_ms
        self._seats = {seat.peer: seat for seat in layout.seats}
        self._inputs = [
            seat for task in job.catalog if task.kind is TaskKind.INPUT for seat in layout.of(task.name)
        ]
        self._core: CheckpointCoordinator | None = None
        self._asked: list[Seat] = []
        self._recovery: Recover | None = None
        self._finished: set[PeerId] = set()
        self._completed = False
        self._to_complete: asyncio.Queue[CompletedCheckpoint] = asyncio.Queue()
        self.checkpoints = 0

    async def run(self) -> None:
        """Coordinate for as long as the attempt lasts. What the log's service raises is raised."""
        if self._job.delivery is not Delivery.EXACTLY_ONCE_STATE:
            return
        last = await self._store.take_over(self._layout.version, self._job.resume_from)
        self._core = CheckpointCoordinator(
            self._job.id,
            self._layout.version,
            [_key(seat) for seat in self._layout.seats],
            interval_ticks=self._job.checkpoint_interval_ms,
            timeout_ticks=self._job.checkpoint_timeout_ms,
            last=last,
        )
        self._recovery = Recover(encode_checkpoint(last) if last else b"")
        for seat in self._asked:
            self._direct(seat, self._recovery)
        await asyncio.gather(self._complete_checkpoints(), self._begin_checkpoints(self._core))

    def on_item(self, peer: PeerId, item: Item) -> None:
        """Take an item from a worker."""
        seat = self._seats[peer]
        match item:
            case Ask():
                if self._recovery is None:
                    self._asked.append(seat)
                else:
                    self._direct(seat, self._recovery)
            case Stored(epoch) if self._core is not None:
                self._note(self._core.on_stored(_key(seat), Barrier(self._layout.version, epoch)))
            case Finished(epoch):
                self._finished.add(peer)
                if self._core is not None:
                    self._note(self._core.on_finished(_key(seat), Barrier(self._layout.version, epoch)))
                if len(self._finished) == len(self._seats):
                    self._complete_job()
            case _:
                log.warning("not for a coordinator", job=self._job.id, peer=peer, item=type(item).__name__)

    def _note(self, completed: CompletedCheckpoint | None) -> None:
        if completed is not None:
            self._to_complete.put_nowait(completed)

    async def _begin_checkpoints(self, core: CheckpointCoordinator) -> None:
        while True:
            barrier = core.tick(self._now_ms())
            if barrier is not None:
                for seat in self._inputs:
                    self._direct(seat, Inject(barrier.number))
            await asyncio.sleep(TICK_S)

    async def _complete_checkpoints(self) -> None:
        while True:
            if not await self._store.complete(self._layout.version, await self._to_complete.get()):
                log.info("another coordinator has taken over", job=self._job.id, version=self._layout.version)
                return
            self.checkpoints += 1

    def _complete_job(self) -> None:
        if self._completed:
            return
        self._completed = True
        job = self._job
        for task in job.catalog:
            if task.kind is TaskKind.INPUT:
                self._append(ExhaustInput(job.id, self._layout.submitted, task.name))
        for task in job.catalog:
            if task.kind is TaskKind.OUTPUT:
                self._append(SealOutput(job.id, self._layout.submitted, task.name))
        self._append(CompleteJob(job.id, self._layout.submitted))


def _key(seat: Seat) -> WorkerKey:
    return WorkerKey(seat.task, seat.slot)
