"""One worker in one attempt of a job: what comes in, the task's processing, what goes out, barriers and acks.

There is a coroutine per worker, none per segment. Users' code runs in the worker's thread, a batch at a time.
Messages of others to the worker (acks, where to begin, barriers to inject) are taken at once, beside the
batches.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, TypeVar

import structlog
from attrs import field, frozen

from onyxlog.access import NOBODY, Access
from onyxlog.errors import OnyxlogError
from onyxlog.ids import PeerId
from onyxlog.jobs.acking import owner_of
from onyxlog.jobs.barriers import Barrier, WorkerKey
from onyxlog.jobs.checkpoints import Checkpoint, decode_checkpoint
from onyxlog.jobs.grouping import BUCKETS, adopts, sources_of, table_of
from onyxlog.jobs.lifecycles import Hook, Hooks, hooks
from onyxlog.jobs.specification import Delivery, Job, Task, TaskKind
from onyxlog.peer.task_runner import TaskHost, WorkerStatistics
from onyxlog.plugins.plugin import PluginContext
from onyxlog.replica.commands import SignalReady
from onyxlog.tasks.channels import Inlet
from onyxlog.tasks.checkpoints import CheckpointStore
from onyxlog.tasks.coordination import Coordination
from onyxlog.tasks.items import (
    Acks,
    Ask,
    Batch,
    Finished,
    Inject,
    Item,
    Purpose,
    Recover,
    Retry,
    Stored,
)
from onyxlog.tasks.layout import JobLayout, Seat
from onyxlog.tasks.plane import Channel, DataPlane
from onyxlog.tasks.processing import UNROOTED, Destination, Outcome, Processing
from onyxlog.tasks.threads import TaskThread

T = TypeVar("T")
TIMER_S: Final = 0.05
START_RETRY_S: Final = 0.5

log = structlog.get_logger()


@frozen(kw_only=True)
class Surroundings:
    """Surroundings that all workers of a group share."""

    host: TaskHost
    plane: DataPlane
    rng: Random
    hosts: str = ""
    """The addresses of the log's servers, for plugins that talk to them."""
    access: Access = NOBODY
    """The identity that plugins show there."""


@frozen
class Part:
    """Part of a checkpoint: what workers of a task held, as far as this worker now owns it."""

    windows: tuple[bytes, ...] = ()
    outputs: dict[int, Any] = field(factory=dict)
    positions: dict[int, int] = field(factory=dict)


class TaskWorker(ABC):
    """A worker. Run it once; `stop` it, also after it ended."""

    def __init__(
        self, job: Job, layout: JobLayout, seat: Seat, around: Surroundings, thread: TaskThread
    ) -> None:
        self.job = job
        self.layout = layout
        self.seat = seat
        self.me = layout.worker(seat)
        self.task: Task = job.task(seat.task)
        self.ready = False
        self.finished = False
        self.paused = False
        """True if a worker of the job reported full buffers: inputs wait."""
        self._around = around
        self._host = around.host
        self._plane = around.plane
        self._thread = thread
        self._store = CheckpointStore(around.host.port, job.id)
        self._key = WorkerKey(seat.task, seat.slot)
        self._index = layout.index_of(seat)
        self._slots = [each.slot for each in layout.of(seat.task)]
        self._exactly_once = job.delivery is Delivery.EXACTLY_ONCE_STATE
        self._tracked = job.delivery is Delivery.AT_LEAST_ONCE
        self._wake = asyncio.Event()
        self._data: dict[Destination, Channel] = {}
        self._acks: dict[int, Channel] = {}
        self._directions: dict[PeerId, Channel] = {}
        self._to_coordinator: Channel | None = None
        self._coordination: Coordination | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._recovery: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._hooks: Hooks | None = None
        self._processing: Processing | None = None
        self._started = False
        self._cut = 0
        """The number of the checkpoint that was taken last, or begun from."""
        self._next_tick = 0.0
        self._batches = self._segments = self._emitted = 0
        self._began_ms = time.time_ns() // 1_000_000
        """The time by this machine's clock; only people are shown it."""

    # -- its life

    async def run(self) -> None:
        """Run until cancelled, `finished` or not: a coordinator is needed until the job is over.

        What fails is raised: TaskError, WorkflowError and ChannelError are the job's fault.
        """
        work = asyncio.ensure_future(self._run())
        try:
            await asyncio.wait((work, self._failure), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            await self._failure
        finally:
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def stop(self, why: str) -> None:
        """End everything of the worker; `run` was cancelled or has ended."""
        for task in tuple(self._beside):
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        self._plane.unregister(self.me)
        for channel in self._channels():
            channel.close()
        try:
            await self._call_after_stop(why)
        finally:  # a group that leaves waits only so long for user code
            try:
                await self._close_plugin()
            finally:
                self._thread.close()

    async def _call_after_stop(self, why: str) -> None:
        processing = self._processing
        if not self._started or processing is None:
            return
        try:
            await self._thread.last(lambda: processing.hooks.after_task_stop(processing.context, why))
        except Exception as error:
            log.warning(
                "a hook failed",
                job=self.job.id,
                task=self.task.name,
                hook=Hook.AFTER_TASK_STOP.value,
                error=repr(error),
            )

    def statistics(self) -> WorkerStatistics:
        """Return the counts of batches and segments."""
        done, total = self._progress() or (None, None)
        return WorkerStatistics(
            self._batches,
            self._segments,
            self._emitted,
            self._pending(),
            self._replayed(),
            self._began_ms,
            done,
            total,
        )

    @property
    def is_full(self) -> bool:
        """True if what comes in has to wait for this worker."""
        return False

    async def _run(self) -> None:
        self._plane.register(self.me, self)
        self._connect()
        if self.layout.coordinator == self.seat.peer:
            self._coordinate()
        await self._begin_task()
        part = await self._recover()
        await self._open(part)
        self.ready = True
        self._host.append(SignalReady(self.seat.peer, self.layout.version))
        await self._work()
        self.finished = True
        self._tell(Finished(self._cut))

    async def _begin_task(self) -> None:
        job, seat = self.job, self.seat
        found = await self._thread.run(
            lambda: hooks(seat.task, job.lifecycles, f"job {job.id!r}: lifecycles")
        )
        self._hooks = found
        processing = await self._thread.run(
            lambda: Processing(job, seat, self.layout, found, self._around.rng)
        )
        self._processing = processing
        context = processing.context
        while not await self._may_start(processing):
            await self._wait(START_RETRY_S)
        self._started = True
        await self._guarded(Hook.BEFORE_TASK_START, lambda: found.before_task_start(context))

    async def _may_start(self, processing: Processing) -> bool:
        return await self._guarded(Hook.START_TASK, lambda: processing.hooks.may_start(processing.context))

    async def _recover(self) -> Part:
        if not self._exactly_once:
            return Part()
        self._tell(Ask())
        encoded = await self._recovery
        if not encoded:
            return Part()
        checkpoint = decode_checkpoint(encoded, f"checkpoint of job {self.job.id}, from its coordinator")
        self._cut = checkpoint.barrier.number
        part = await self._my_part(checkpoint)
        if part.windows:
            mine = self._my_buckets()
            windows = self.processing.windows
            await self._guarded(
                "the checkpoint of windows",
                lambda: windows.restore(part.windows, lambda bucket: bucket in mine),
            )
        return part

    async def _my_part(self, checkpoint: Checkpoint) -> Part:
        """Read the parts of which something is this worker's; positions of inputs may be in any."""
        old, slot, slots = checkpoint.slots_of(self.task.name), self.seat.slot, self._slots
        of_windows = sources_of(slot, slots, old, grouped=self.task.group_by is not None) if old else ()
        adopted = [other for other in old if self.adopts(other)]
        wanted = old if self.task.kind is TaskKind.INPUT else {*of_windows, *adopted}
        held = await self._store.parts(checkpoint, self.task.name, wanted)
        return Part(
            tuple(held[other]["windows"] for other in of_windows if held[other]["windows"]),
            {other: held[other]["output"] for other in adopted},
            {partition: at for part in held.values() for partition, at in part["positions"].items()},
        )

    def adopts(self, slot: int) -> bool:
        """Return whether this worker owns what the worker at `slot` left behind."""
        return adopts(self.seat.slot, self._slots, slot)

    def _my_buckets(self) -> frozenset[int]:
        if self.task.group_by is None:
            return frozenset(range(BUCKETS))
        table = table_of(self._slots)
        return frozenset(bucket for bucket, slot in enumerate(table) if slot == self.seat.slot)

    # -- what kinds of tasks differ in

    @abstractmethod
    async def _open(self, part: Part) -> None:
        """Open the plugin at the position of the checkpoint."""

    @abstractmethod
    async def _work(self) -> None:
        """Work until there is nothing more to do, and the last part of a checkpoint is stored."""

    @abstractmethod
    async def _conclude(self, outcome: Outcome) -> None:
        """Do what is due now that the rest of the outcome was sent (writing, acks, retries); then wait for credit."""

    @abstractmethod
    async def _close_plugin(self) -> None: ...

    def _pending(self) -> int:
        return 0

    def _replayed(self) -> int:
        return 0

    def _progress(self) -> tuple[int, int] | None:
        """Return how far the worker has read, and how far there is to read, if it knows both."""
        return None

    # -- channels

    def on_open(self, inlet: Inlet) -> None:
        """Do nothing: most channels are read as items come; a consumer keeps those with data."""
        return

    def on_arrival(self, inlet: Inlet) -> None:
        """Take what arrived on a channel: data wakes the worker, other items are handled at once."""
        if inlet.purpose is Purpose.DATA:
            self._wake.set()
            return
        while len(inlet):
            try:
                self._on_told(inlet, inlet.take())
            except Exception as error:
                self._fail(error)

    def on_credit(self) -> None:
        """Wake the worker, which may send again."""
        self._wake.set()

    def _on_told(self, inlet: Inlet, item: Item) -> None:
        if inlet.purpose is Purpose.COORDINATION:
            if self._coordination is not None:
                self._coordination.on_item(inlet.sender.peer, item)
            return
        match item:
            case Recover(checkpoint):
                if not self._recovery.done():
                    self._recovery.set_result(checkpoint)
            case Inject(epoch):
                self._on_inject(epoch)
            case Acks(values):
                self._on_acks(list(values.items()))
            case Retry(roots):
                self._on_retry(list(roots))
            case _:
                raise OnyxlogError(f"{self._where}: {type(item).__name__} on a channel for {inlet.purpose}")
        self._wake.set()

    def _on_inject(self, epoch: int) -> None:
        raise OnyxlogError(f"{self._where}: told to inject a barrier, which only inputs do")

    def _on_acks(self, values: list[tuple[int, int]]) -> None:
        raise OnyxlogError(f"{self._where}: got acks, which only inputs do")

    def _on_retry(self, roots: list[int]) -> None:
        raise OnyxlogError(f"{self._where}: was asked for roots again, which only inputs have")

    def _connect(self) -> None:
        for name in self.job.downstream(self.task.name):
            for seat in self.layout.of(name):
                self._data[name, seat.slot] = self._channel(Purpose.DATA, seat)
        coordinator = self.layout.seat_of(self.layout.coordinator)
        assert coordinator is not None, "a coordinator works for its job"
        self._to_coordinator = self._channel(Purpose.COORDINATION, coordinator)

    def _channel(self, purpose: Purpose, to: Seat) -> Channel:
        return self._plane.connect(purpose, self.me, self.layout.worker(to), to.site)

    def _channels(self) -> list[Channel]:
        some = [*self._data.values(), *self._acks.values(), *self._directions.values()]
        return some if self._to_coordinator is None else [*some, self._to_coordinator]

    def _tell(self, item: Item) -> None:
        """Tell the coordinator."""
        assert self._to_coordinator is not None
        self._to_coordinator.send(item)

    def _coordinate(self) -> None:
        for seat in self.layout.seats:
            self._directions[seat.peer] = self._channel(Purpose.DIRECTION, seat)
        self._coordination = Coordination(
            self.job,
            self.layout,
            self._store,
            direct=lambda seat, item: self._directions[seat.peer].send(item),
            append=self._host.append,
            now_ms=_now_ms,
        )
        self._spawn(self._coordination.run())

    def _ack(self, values: list[tuple[int, int]]) -> None:
        """Send acks to the inputs that own the roots."""
        by_owner: dict[int, dict[int, int]] = {}
        for root, value in values:
            by_owner.setdefault(owner_of(root), {})[root] = value
        for owner, acks in by_owner.items():
            self._to_owner(owner).send(Acks(acks))

    def _ask_again(self, roots: list[int]) -> None:
        by_owner: dict[int, list[int]] = {}
        for root in roots:
            by_owner.setdefault(owner_of(root), []).append(root)
        for owner, again in by_owner.items():
            self._to_owner(owner).send(Retry(again))

    def _to_owner(self, owner: int) -> Channel:
        channel = self._acks.get(owner)
        if channel is None:
            channel = self._acks[owner] = self._channel(Purpose.ACKS, self.layout.seats[owner])
        return channel

    # -- work that all kinds share

    @property
    def processing(self) -> Processing:
        """The task's processing. Valid once the worker has begun."""
        assert self._processing is not None
        return self._processing

    @property
    def _where(self) -> str:
        return f"job {self.job.id}, task {self.task.name}, slot {self.seat.slot}"

    async def _guarded(self, at: str, function: Callable[[], T]) -> T:
        """Run users' code in the worker's thread. If it raises, this raises TaskError."""
        processing = self.processing
        return await self._thread.run(lambda: processing.guarded(at, function))

    async def _process(self, work: Callable[[], Outcome]) -> Outcome:
        outcome = await self._thread.run(work)
        self._batches += 1
        for destination, batch in outcome.sends:
            self._emitted += len(batch.segments)
            self._data[destination].send(batch)
        return outcome

    async def _wait_credit(self) -> None:
        """Wait until every next worker may get something: a worker that is ahead of one waits for all."""
        while not all(channel.has_credit for channel in self._data.values()):
            await self._wait(None)

    async def _wait(self, timeout_s: float | None) -> None:
        """Wait until something happened, or the time is over."""
        self._wake.clear()
        if timeout_s is None:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    @property
    def _timer_s(self) -> float | None:
        """Return how long to sleep at most."""
        return TIMER_S if self.processing.has_timers else None

    async def _on_batch(self, batch: Batch) -> None:
        self._segments += len(batch.segments)
        await self._conclude(await self._process(lambda: self.processing.process(batch)))
        if self.processing.has_after_batch:
            await self._thread.run(self.processing.after_batch)

    async def _tick(self) -> None:
        """Fire timers, if it is time for that."""
        now = asyncio.get_running_loop().time()
        if not self.processing.has_timers or now < self._next_tick:
            return
        self._next_tick = now + TIMER_S
        await self._conclude(await self._process(lambda: self.processing.tick(int(now * 1000))))

    def _broadcast(self, item: Item) -> None:
        for channel in self._data.values():
            channel.send(item)

    async def _windows_now(self) -> bytes | None:
        if not self.processing.windows:
            return None
        return await self._guarded("the state of windows", self.processing.windows.snapshot)

    async def _store_part(self, number: int, part: dict[str, Any]) -> None:
        await self._store.put_part(Barrier(self.layout.version, number), self._key, part)

    async def _store_and_tell(self, number: int, part: dict[str, Any]) -> None:
        await self._store_part(number, part)
        self._tell(Stored(number))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something beside; its failure is the worker's."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._beside.add(task)
        task.add_done_callback(self._on_beside_ended)

    def _on_beside_ended(self, task: asyncio.Task[None]) -> None:
        self._beside.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
            # the exception is retrieved here, so that asyncio does not warn that nobody did
            self._failure.exception()

    def _plugin_context(self) -> PluginContext:
        return PluginContext(
            self.job.id,
            self.task.name,
            self.seat.peer,
            self.seat.slot,
            f"job {self.job.id!r}: catalog: task {self.task.name!r}",
            self._thread.run,
            self._around.hosts,
            self._around.access,
            self.adopts,
        )


def rooted(values: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pairs that have a root."""
    return [(root, value) for root, value in values if root != UNROOTED]


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
