"""The worker of a task that gets segments from other workers: functions, reduces and outputs."""

from __future__ import annotations

from collections import deque

from onyxlog.jobs.barriers import Alignment, Barrier
from onyxlog.jobs.specification import Job, TaskKind
from onyxlog.plugins.plugin import Output, make_output
from onyxlog.tasks.channels import Inlet
from onyxlog.tasks.items import BarrierItem, Batch, ChannelError, End, Purpose
from onyxlog.tasks.layout import JobLayout, Seat
from onyxlog.tasks.processing import Outcome
from onyxlog.tasks.threads import TaskThread
from onyxlog.tasks.worker import Part, Surroundings, TaskWorker, rooted


class Consumer(TaskWorker):
    """Worker that takes batches from its inlets in turn.

    It takes none from an inlet that brought a barrier which others have yet to bring.
    """

    def __init__(
        self, job: Job, layout: JobLayout, seat: Seat, around: Surroundings, thread: TaskThread
    ) -> None:
        super().__init__(job, layout, seat, around, thread)
        self._inlets: deque[Inlet] = deque()
        self._output: Output | None = None

    def on_open(self, inlet: Inlet) -> None:
        """Keep a channel that brings data, to take batches from it."""
        if inlet.purpose is Purpose.DATA:
            self._inlets.append(inlet)

    @property
    def is_full(self) -> bool:
        """True if a channel with data is nearly full."""
        return self.ready and any(inlet.is_full for inlet in self._inlets)

    async def _open(self, part: Part) -> None:
        senders = [seat.peer for name in self.job.upstream(self.task.name) for seat in self.layout.of(name)]
        self._alignment: Alignment[str] = Alignment(self.layout.version, senders, self._cut)
        if self.task.kind is TaskKind.OUTPUT:
            assert self.task.plugin is not None
            self._output = make_output(self.task.plugin, self._plugin_context())
            await self._output.open(part.outputs if self._exactly_once else None)

    async def _close_plugin(self) -> None:
        if self._output is not None:
            await self._output.close()

    async def _work(self) -> None:
        while not self._alignment.ended:
            await self._tick()
            inlet = self._next_inlet()
            if inlet is None:
                await self._wait(self._timer_s)
                continue
            item = inlet.take()
            if isinstance(item, Batch):
                await self._on_batch(self._gathered(item, inlet))
            elif isinstance(item, BarrierItem):
                cut = Barrier(self.layout.version, item.epoch)
                await self._cut_if(self._alignment.on_barrier(inlet.sender.peer, cut))
            elif isinstance(item, End):
                await self._cut_if(self._alignment.on_end(inlet.sender.peer))
            else:
                raise ChannelError(f"{self._where}: {type(item).__name__} on a channel for data")
        await self._finish()

    def _next_inlet(self) -> Inlet | None:
        inlets, alignment = self._inlets, self._alignment
        for _ in range(len(inlets)):
            inlets.rotate(-1)
            inlet = inlets[0]
            if len(inlet) and not alignment.is_blocked(inlet.sender.peer):
                return inlet
        return None

    def _gathered(self, batch: Batch, inlet: Inlet) -> Batch:
        """Add the batches behind it, up to the task's batch size: small ones cost as much as large ones."""
        room = self.task.batch_size - len(batch.segments)
        if room <= 0 or not isinstance(following := inlet.first, Batch) or len(following.segments) > room:
            return batch
        segments, roots, values = list(batch.segments), list(batch.roots or ()), list(batch.values or ())
        while (
            isinstance(following, Batch) and len(segments) + len(following.segments) <= self.task.batch_size
        ):
            inlet.take()
            segments += following.segments
            roots += following.roots or ()
            values += following.values or ()
            following = inlet.first
        return Batch(segments, roots, values) if batch.roots is not None else Batch(segments)

    async def _conclude(self, outcome: Outcome) -> None:
        if outcome.written and self._output is not None:
            await self._output.write(outcome.written)
        if outcome.acks:
            if self._output is not None:
                # Acknowledged segments are durable, whatever becomes of this process.
                await self._output.flush()
            self._ack(rooted(outcome.acks))
        if outcome.retries:
            self._ask_again(outcome.retries)
        await self._wait_credit()

    async def _cut_if(self, cut: Barrier | None) -> None:
        """Take the checkpoint's part if all inlets have brought the barrier."""
        if cut is None:
            return
        self._cut = cut.number
        windows = await self._windows_now()
        self._broadcast(BarrierItem(cut.number))
        part = await self._part_with(windows)
        self._spawn(self._store_and_tell(cut.number, part))

    async def _part_with(self, windows: bytes | None) -> dict[str, object]:
        output = None if self._output is None else await self._output.flush()
        return {"windows": windows, "output": output, "positions": {}}

    async def _finish(self) -> None:
        await self._conclude(await self._process(self.processing.complete))
        self._broadcast(End())
        if self._exactly_once:
            self._cut += 1
            await self._store_part(self._cut, await self._part_with(await self._windows_now()))
        elif self._output is not None:
            await self._output.flush()
