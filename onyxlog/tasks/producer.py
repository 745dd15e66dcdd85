"""The worker of an input task: reads its partitions, and tracks every segment that it read."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import structlog

from onyxlog.errors import EntryError
from onyxlog.jobs.lifecycles import Hook
from onyxlog.jobs.specification import Job
from onyxlog.plugins.plugin import Chunk, Input, make_input
from onyxlog.tasks.checkpoints import position_path
from onyxlog.tasks.items import BarrierItem, Batch, End
from onyxlog.tasks.layout import JobLayout, Seat
from onyxlog.tasks.processing import Outcome
from onyxlog.tasks.reading import Partitions, Pending
from onyxlog.tasks.threads import TaskThread
from onyxlog.tasks.worker import Part, Surroundings, TaskWorker, rooted

POSITIONS_S: Final = 1.0
"""Seconds between stores of inputs' positions, where no checkpoint does that."""
LATE_S: Final = 0.2
"""Seconds between searches for roots whose time is over."""

log = structlog.get_logger()


class Producer(TaskWorker):
    """Worker that reads as long as every next worker may get more, and none reported full buffers."""

    def __init__(
        self, job: Job, layout: JobLayout, seat: Seat, around: Surroundings, thread: TaskThread
    ) -> None:
        super().__init__(job, layout, seat, around, thread)
        self._source: Input | None = None
        self._opened: Partitions | None = None
        self._pending_roots: Pending | None = None
        self._injected: deque[int] = deque()
        self._stored_positions: dict[int, int] = {}

    @property
    def _partitions(self) -> Partitions:
        assert self._opened is not None
        return self._opened

    async def _open(self, part: Part) -> None:
        assert self.task.plugin is not None
        source = self._source = make_input(self.task.plugin, self._plugin_context())
        mine = range(self._index, await source.partitions(), len(self._slots))
        positions = part.positions
        if not self._exactly_once:
            positions = self._stored_positions = await self._positions(mine)
        self._opened = await Partitions.open(source, mine, positions)
        if self._tracked:
            self._pending_roots = Pending(
                self.layout.number_of(self.seat),
                self._around.rng,
                timeout_ms=self.job.pending_timeout_ms,
                pending_max=self.job.pending_max,
            )

    async def _close_plugin(self) -> None:
        if self._opened is not None:
            await self._opened.close()
        if self._source is not None:
            await self._source.close()

    def _pending(self) -> int:
        return 0 if self._pending_roots is None else len(self._pending_roots)

    def _replayed(self) -> int:
        return 0 if self._pending_roots is None else self._pending_roots.replayed

    def _progress(self) -> tuple[int, int] | None:
        return None if self._opened is None else self._opened.progress()

    async def _positions(self, mine: range) -> dict[int, int]:
        """Read from the service where reading of these partitions continues."""
        paths = {partition: position_path(self.job.id, self.task.name, partition) for partition in mine}
        found = await asyncio.gather(*(self._host.port.state(path) for path in paths.values()))
        positions = {}
        for (partition, path), data in zip(paths.items(), found, strict=True):
            if data is None:
                continue
            if not data.isdigit():
                raise EntryError(f"state/{path}: expected a position in decimal digits, found {data[:40]!r}")
            positions[partition] = int(data)
        return positions

    def _on_inject(self, epoch: int) -> None:
        self._injected.append(epoch)

    def _on_acks(self, values: list[tuple[int, int]]) -> None:
        pending = self._pending_roots
        if pending is None:
            return
        done = pending.settle(values)
        if done and self.processing.hooks.has(Hook.AFTER_ACK):
            self._spawn(self._call_after(Hook.AFTER_ACK, done))

    def _on_retry(self, roots: list[int]) -> None:
        if self._pending_roots is not None:
            self._pending_roots.retry(roots)

    async def _call_after(self, hook: Hook, segments: list[object]) -> None:
        processing = self.processing
        call = processing.hooks.after_ack if hook is Hook.AFTER_ACK else processing.hooks.after_retry
        await self._guarded(hook, lambda: call(processing.context, segments))  # type: ignore[arg-type]

    async def _work(self) -> None:
        if not self._exactly_once:
            self._spawn(self._store_positions())
        look_at = 0.0
        while True:
            while self._injected:
                await self._inject(self._injected.popleft())
            pending = self._pending_roots
            now = asyncio.get_running_loop().time()
            if pending is not None and now >= look_at:
                look_at = now + LATE_S
                pending.find_late(int(now * 1000))
            await self._tick()
            if pending is not None and pending.has_late:
                await self._send_again(pending)
            elif self.paused or (pending is not None and pending.is_full):
                await self._wait(LATE_S)
            elif not self._partitions.exhausted:
                await self._read()
            elif pending is not None and len(pending):
                await self._wait(LATE_S)
            else:
                break
        await self._finish()

    async def _read(self) -> None:
        found = await self._partitions.read(self.task.batch_size)
        if found is None:
            if not self._partitions.exhausted:
                await self._wait(self.task.batch_timeout_ms / 1000)
            return
        partition, chunk = found
        await self._on_batch(self._batch(partition, chunk))

    def _batch(self, partition: int, chunk: Chunk) -> Batch:
        pending = self._pending_roots
        if pending is None:
            return Batch(chunk.segments)
        return pending.begin(partition, chunk, int(asyncio.get_running_loop().time() * 1000))

    async def _send_again(self, pending: Pending) -> None:
        batch = pending.again(self.task.batch_size, int(asyncio.get_running_loop().time() * 1000))
        if self.processing.hooks.has(Hook.AFTER_RETRY):
            await self._call_after(Hook.AFTER_RETRY, batch.segments)
        log.info(
            "segments are sent again", job=self.job.id, task=self.task.name, segments=len(batch.segments)
        )
        await self._on_batch(batch)

    async def _conclude(self, outcome: Outcome) -> None:
        if outcome.acks:
            self._on_acks(rooted(outcome.acks))  # all roots in it are its own
        if outcome.retries:
            self._on_retry(outcome.retries)
        await self._wait_credit()

    async def _inject(self, epoch: int) -> None:
        self._cut = epoch
        part = await self._part()
        self._broadcast(BarrierItem(epoch))
        self._spawn(self._store_and_tell(epoch, part))

    async def _part(self) -> dict[str, object]:
        windows = await self._windows_now()
        return {"windows": windows, "output": None, "positions": dict(self._partitions.positions)}

    async def _finish(self) -> None:
        await self._conclude(await self._process(self.processing.complete))
        self._broadcast(End())
        if self._exactly_once:
            self._cut += 1
            await self._store_part(self._cut, await self._part())
        else:
            await self._store_positions_now()

    async def _store_positions(self) -> None:
        while True:
            await asyncio.sleep(POSITIONS_S)
            await self._store_positions_now()

    async def _store_positions_now(self) -> None:
        pending = self._pending_roots
        positions = self._partitions.positions if pending is None else pending.positions()
        for partition, position in tuple(positions.items()):
            if self._stored_positions.get(partition, 0) != position:
                path = position_path(self.job.id, self.task.name, partition)
                await self._host.port.put_state(path, str(position).encode())
                self._stored_positions[partition] = position
