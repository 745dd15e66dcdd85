"""A client machine of a distributed benchmark: it needs only the head's address, and does what the board says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Protocol, Self

from zraft_bench.distributed.board import Board
from zraft_bench.distributed.clock_offset import ClockOffset, ClockSample, offset_of
from zraft_bench.distributed.messages import (
    END,
    JOB,
    RUN,
    Began,
    ClientClaim,
    End,
    Job,
    Outcome,
    Ping,
    Pong,
    Ready,
    RunInfo,
    Start,
)
from zraft_bench.load.generator import Generator, LoadError
from zraft_bench.load.measure import Spread, default_spread, orders_for
from zraft_bench.load.process import Order
from zraft_bench.results import Machine, Part

CLOCK_SAMPLES: Final = 7
CLOCK_TIMEOUT_S: Final = 30.0

Say = Callable[[str], None]
Clock = Callable[[], float]


class Load(Protocol):
    """Load on the servers: `generator.Generator`, or a replacement."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    async def prepare(self) -> None:
        """Connect, and create what the workload reads."""

    async def run(self, start_s: float, *, on_began: Callable[[float], None] = ...) -> tuple[Part, ...]:
        """Put the load on the servers from `start_s` on, and return what each process measured."""


MakeLoad = Callable[[Sequence[Order]], Load]


async def measure_offset(board: Board, number: int, clock: Clock) -> ClockOffset | None:
    """Measure the offset of our clock to the head's, through the board; return None if the head ended the run.

    Raises:
        BoardError: the board was lost, or the head did not answer.
    """
    samples = []
    for ping in range(1, CLOCK_SAMPLES + 1):
        asked = clock()
        # Numbers go on over the whole run, so that no answer to an earlier question is taken for this one's.
        question = Ping(number=time.monotonic_ns())
        await board.put(f"ping/{number}", question)

        def answered(view: Board, expected: int = question.number) -> Pong | End | None:
            pong = view.get(Pong, f"pong/{number}")
            return pong if pong is not None and pong.number == expected else view.get(End, END)

        answer: Pong | End = await board.wait(answered, f"the head's answer to ping {ping}", CLOCK_TIMEOUT_S)
        if isinstance(answer, End):
            return None
        samples.append(ClockSample(asked, clock(), answer.head_s))
    return offset_of(samples)


class ClientAgent:
    """Agent of a client machine, which takes part in every test that names it until the head ends the run."""

    def __init__(
        self,
        board: Board,
        machine: Machine,
        *,
        say: Say,
        load: MakeLoad = Generator,
        clock: Clock = time.monotonic,
    ) -> None:
        self._board = board
        self._machine = machine
        self._say = say
        self._load = load
        self._clock = clock
        self.number = 0

    async def run(self) -> str:
        """Take part; return why it ended.

        Raises:
            BoardError: the board was lost.
        """
        while True:
            # A cluster that is used again still shows an earlier run, until its new head has cleared the board.
            run = await self._board.wait(_open_run, "a head")
            self.number = await self._board.claim("client", ClientClaim(machine=self._machine))
            self._say(f"client machine {self.number}, waiting for a test")
            end = await self._tests(run.run)
            if end is not None:
                await self._board.take_leave(f"bye/client/{self.number}", end)
                return end.reason

    async def _tests(self, run: str) -> End | None:
        """Take part in all tests of a run; return None if another run has taken its place."""
        done = ""
        while True:
            found: Job | End | RunInfo = await self._board.wait(partial(self._next, run, done), "a test")
            if isinstance(found, End):
                return found
            if isinstance(found, RunInfo):
                return None
            done = found.name
            self._say(f"test {done}: {found.workload.title()}")
            await self._take_part(found)

    def _next(self, run: str, done: str, board: Board) -> Job | End | RunInfo | None:
        now = board.get(RunInfo, RUN)
        if now is None:
            return None
        if now.run != run:
            return now
        end = board.get(End, END)
        if end is not None:
            return end
        job = board.get(Job, JOB)
        return job if job is not None and job.name != done and self.number in job.clients else None

    async def _take_part(self, job: Job) -> None:
        place = job.clients.index(self.number)
        usual = default_spread()
        orders = orders_for(
            job.workload,
            target="zraft",
            hosts=job.hosts,
            place=job.place,
            spread=Spread(job.processes or usual.processes, job.connections),
            machine=place,
            machines=len(job.clients),
        )
        ready = f"ready/{job.name}/{self.number}"
        outcome = f"outcome/{job.name}/{self.number}"
        try:
            async with self._load(orders) as load:
                await load.prepare()
                offset = await measure_offset(self._board, self.number, self._clock)
                if offset is None:
                    return
                await self._board.put(ready, Ready())
                (start,) = await self._board.wait(lambda board: self._start(board, job), "the start")
                if start is None:
                    self._say(f"test {job.name} was given up")
                    return
                parts = await self._run(load, start, job, offset)
        except LoadError as error:
            # whichever of the two the head waits for
            await self._board.put(ready, Ready(error=str(error)))
            await self._board.put(outcome, Outcome(error=str(error)))
            return
        for number, part in enumerate(parts):
            await self._board.put(f"part/{job.name}/{self.number}/{number}", part)
        await self._board.put(outcome, Outcome(parts=len(parts)))

    def _start(self, board: Board, job: Job) -> tuple[Start | None] | None:
        """Return the start of `job`, or (None,) if the head gave it up."""
        start = board.get(Start, f"start/{job.name}")
        if start is not None:
            return (start,)
        now = board.get(Job, JOB)
        given_up = END in board.view or now is None or now.name != job.name
        return (None,) if given_up else None

    async def _run(self, load: Load, start: Start, job: Job, offset: ClockOffset) -> tuple[Part, ...]:
        began: list[float] = []
        parts = await load.run(start.offset_s, on_began=began.append)
        at = began[0] if began else min(part.began_s for part in parts)
        await self._board.put(
            f"began/{job.name}/{self.number}",
            Began(head_s=at + offset.offset_s, uncertainty_s=offset.uncertainty_s),
        )
        return parts


def _open_run(board: Board) -> RunInfo | None:
    return None if END in board.view else board.get(RunInfo, RUN)


async def answer_pings(board: Board, clock: Clock) -> None:
    """Answer for the head what `measure_offset` asks, for ever."""
    answered: dict[int, int] = {}

    def asked(view: Board) -> list[tuple[int, Ping]] | None:
        found = []
        for number in view.numbers("ping"):
            ping = view.get(Ping, f"ping/{number}")
            if ping is not None and answered.get(number) != ping.number:
                found.append((number, ping))
        return found or None

    while True:
        questions = await board.wait(asked, "a question for the time")
        now = clock()
        for number, ping in questions:
            answered[number] = ping.number
        await asyncio.gather(
            *(board.put(f"pong/{n}", Pong(number=ping.number, head_s=now)) for n, ping in questions)
        )
