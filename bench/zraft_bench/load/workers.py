"""Workers of one process: they send what a workload asks for and record what they see.

Clock and targets are handed in. Inside the measured time a request costs two readings of the clock and one
append to a list; durations are sorted into the histogram in between, `DRAIN_AT` at a time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from zraft_bench.load.histogram import Histogram
from zraft_bench.load.pacing import due_times
from zraft_bench.load.workload import Operation, Share, Values, Workload
from zraft_bench.results import FAILURES_KEPT, Part
from zraft_bench.targets.target import RequestFailedError, Target

DRAIN_AT: Final = 65_536
FAILURE_TEXTS_MAX: Final = 100
FAILURE_TEXT_LENGTH: Final = 200
FAILURE_PAUSE_S: Final = 0.05
"""A pause after a failed request, so that workers of a dead cluster do not spin."""

Clock = Callable[[], float]


class Recorder:
    """Record of what the workers of a process measured since it was made."""

    def __init__(self) -> None:
        self._drained = Histogram()
        self._service_drained = Histogram()
        self.durations: list[float] = []
        self.services: list[float] = []
        self.rounds: list[float] = []
        self.failures: dict[str, int] = {}
        self.failed = 0
        self.unknown = 0
        self.not_asked = 0
        self.late_max = 0.0
        self.last_answer = 0.0

    def drain(self) -> None:
        """Move the noted durations into the histograms."""
        self._drained.add(self.durations)
        self._service_drained.add(self.services)
        self.durations.clear()
        self.services.clear()

    def fail(self, error: RequestFailedError) -> None:
        """Count a failed request, and keep its text unless there are many."""
        if error.unknown:
            self.unknown += 1
        else:
            self.failed += 1
        text = str(error)[:FAILURE_TEXT_LENGTH]
        if text in self.failures or len(self.failures) < FAILURE_TEXTS_MAX:
            self.failures[text] = self.failures.get(text, 0) + 1

    def part(
        self, *, workers: int, connections: int, began: float, ended: float, cpu_s: float, open_loop: bool
    ) -> Part:
        """Return all that was recorded, as one part of a result."""
        self.drain()
        return Part(
            workers=workers,
            connections=connections,
            acknowledged=self._drained.count,
            failed=self.failed,
            unknown=self.unknown,
            not_asked=self.not_asked,
            failures=dict(sorted(self.failures.items(), key=lambda one: -one[1])[:FAILURES_KEPT]),
            began_s=began,
            ended_s=ended,
            rounds_s=tuple(self.rounds),
            latencies=self._drained,
            service=self._service_drained if open_loop else None,
            late_s_max=self.late_max,
            cpu_s=cpu_s,
        )


class Load:
    """The workers of `share` over `targets`, worker by worker in turn over the connections."""

    def __init__(
        self,
        workload: Workload,
        share: Share,
        targets: Sequence[Target],
        *,
        clock: Clock = time.monotonic,
        cpu_clock: Clock = time.process_time,
    ) -> None:
        assert targets
        self._workload = workload
        self._share = share
        self._targets = targets
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._values = Values(workload.value_bytes, workload.seed + share.first_worker)
        self._recorder = Recorder()
        self._give_up = float("inf")

    async def prepare(self) -> None:
        """Connect, make the keys of these workers, and warm up."""
        for target in self._targets:
            await target.open()
        keys = [key for worker in self._share for key in self._share.entries_of(self._workload, worker)]
        await self._targets[0].prepare(keys, self._values.next())
        if self._workload.warm_up_s:
            if self._workload.rate is None:
                await self._rounds(self._workload.warm_up_s)
            else:
                await self._open_loop(self._workload.warm_up_s)
        self._recorder = Recorder()

    async def run(self) -> Part:
        """Run the load for the measured time."""
        began, cpu = self._clock(), self._cpu_clock()
        if self._workload.rate is None:
            await self._rounds(self._workload.seconds_min)
        else:
            await self._open_loop(self._workload.seconds_min)
        ended = max(self._recorder.last_answer, began)
        return self._recorder.part(
            workers=self._share.workers,
            connections=len(self._targets),
            began=began,
            ended=ended,
            cpu_s=self._cpu_clock() - cpu,
            open_loop=self._workload.rate is not None,
        )

    async def finish(self) -> None:
        """Leave the keys, which later tests do not use."""

    async def close(self) -> None:
        """Close the connections of all targets."""
        await asyncio.gather(*(target.close() for target in self._targets))

    # -- closed loop

    async def _rounds(self, seconds: float) -> None:
        """Run at least one round, and no further one once the time is over."""
        began = self._clock()
        self._give_up = began + seconds + self._workload.deadline_s
        while True:
            round_began = self._clock()
            await asyncio.gather(*(self._closed_worker(worker) for worker in self._share))
            now = self._clock()
            if not self._recorder.not_asked:
                self._recorder.rounds.append(now - round_began)
            if now - began >= seconds:
                return

    async def _closed_worker(self, worker: int) -> None:
        target, clock, recorder = self._target_of(worker), self._clock, self._recorder
        durations = recorder.durations
        rng = random.Random(f"{self._workload.seed}/{worker}")
        entries = self._share.entries_of(self._workload, worker)
        for place, key in enumerate(entries):
            sent = clock()
            if sent > self._give_up:
                recorder.not_asked += len(entries) - place
                return
            try:
                await self._request(target, key, rng)
            except RequestFailedError as error:
                recorder.last_answer = clock()
                recorder.fail(error)
                await asyncio.sleep(FAILURE_PAUSE_S)
                continue
            recorder.last_answer = answered = clock()
            durations.append(answered - sent)
            if len(durations) >= DRAIN_AT:
                recorder.drain()

    # -- open loop

    async def _open_loop(self, seconds: float) -> None:
        start = self._clock()
        await asyncio.gather(*(self._open_worker(worker, start, seconds) for worker in self._share))

    async def _open_worker(self, worker: int, start: float, seconds: float) -> None:
        workload, clock, recorder = self._workload, self._clock, self._recorder
        assert workload.rate is not None
        target = self._target_of(worker)
        rng = random.Random(f"{workload.seed}/{worker}")
        keys = self._share.entries_of(workload, worker) or range(workload.entries)
        dues = due_times(
            workload.rate,
            self._share.all_workers,
            worker,
            seconds,
            poisson=workload.poisson,
            seed=workload.seed,
        )
        for number, offset in enumerate(dues):
            due = start + offset
            if (left := due - clock()) > 0:
                await asyncio.sleep(left)
            sent = clock()
            if sent > start + seconds + workload.deadline_s:
                recorder.not_asked += 1 + sum(1 for _ in dues)
                return
            recorder.late_max = max(recorder.late_max, sent - due)
            try:
                await self._request(target, keys[number % len(keys)], rng)
            except RequestFailedError as error:
                recorder.last_answer = clock()
                recorder.fail(error)
                continue
            recorder.last_answer = answered = clock()
            recorder.durations.append(answered - due)
            recorder.services.append(answered - sent)
            if len(recorder.durations) >= DRAIN_AT:
                recorder.drain()

    # -- both

    def _target_of(self, worker: int) -> Target:
        return self._targets[worker % len(self._targets)]

    async def _request(self, target: Target, key: int, rng: random.Random) -> None:
        operation = self._workload.operation
        if operation is Operation.WRITE:
            await target.write(key, self._values.next())
        elif operation is Operation.READ or rng.random() < self._workload.read_share:
            await target.read(key)
        else:
            await target.write(key, self._values.next())
