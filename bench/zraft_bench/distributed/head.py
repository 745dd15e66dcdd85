"""The head of a distributed benchmark: configures the tests, starts them together and gathers the results.

It works through a board only. A test goes like this: the head writes `job`; each client machine connects,
warms up, measures its clock against the head's and writes `ready`; then the head writes `start`, and each
begins the same offset after it saw that. No date decides anything. Completion is what the clients saw
acknowledged. A machine that stays silent fails the test, not the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final

from attrs import evolve, frozen

from zraft_bench.distributed.board import Board, BoardError
from zraft_bench.distributed.client_agent import answer_pings
from zraft_bench.distributed.clock_offset import skew_of
from zraft_bench.distributed.messages import (
    END,
    JOB,
    RUN,
    Began,
    ClientClaim,
    End,
    Job,
    Outcome,
    Ready,
    RunInfo,
    Start,
)
from zraft_bench.distributed.supervision import HELP, Operator, Said, Wish
from zraft_bench.load.generator import OVERTIME_S, READY_TIMEOUT_S
from zraft_bench.load.workload import Workload
from zraft_bench.results import OK, Machine, Part, Run, TestResult, combine, failed, nothing

STATUS_EVERY_S: Final = 30.0
BYE_TIMEOUT_S: Final = 10.0
ATTEMPTS_MAX: Final = 100


@frozen(kw_only=True)
class Plan:
    """Settings of the head. No other machine is configured."""

    hosts: Callable[[], str]
    servers: int
    clients: int
    tests: tuple[Workload, ...]
    processes: int | None = None
    connections: int | None = None
    start_offset_s: float = 0.5
    supervised: bool = False
    ready_timeout_s: float = READY_TIMEOUT_S
    overtime_s: float = OVERTIME_S
    status_every_s: float = STATUS_EVERY_S


class Head:
    """Head of a run, which carries out a plan.

    Args:
        plan: what to run.
        board: through which it runs.
        say: shows a line to the operator.
        save: called with the run after each test, and whenever a comment or a repetition changes it.
        operator: whom to ask when supervised.
        between: awaited between two tests, such as to restart the servers.
    """

    def __init__(
        self,
        board: Board,
        plan: Plan,
        run: Run,
        *,
        say: Callable[[str], None],
        save: Callable[[Run], None],
        operator: Operator | None = None,
        between: Callable[[], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert operator is not None or not plan.supervised
        self._board = board
        self._plan = plan
        self.run_values = run
        self._say = say
        self._save = save
        self._operator = operator
        self._between = between
        self._clock = clock
        self._results: list[TestResult] = []
        self._clients: tuple[int, ...] = ()
        self._broken = ""
        self._now = "waiting for machines"
        self._asking = False
        self._answers: asyncio.Queue[Said] = asyncio.Queue()

    async def announce(self) -> None:
        """Forget what an earlier run left on the board, and write who runs this one.

        Raises:
            BoardError: the board was lost.
        """
        # `run` is removed first and written last: a machine that sees it sees a board of its own run.
        for key in sorted(self._board.view, key=lambda key: key != RUN):
            await self._board.remove(key)
        await self._board.put(
            RUN, RunInfo(run=self.run_values.id, servers=self._plan.servers, clients=self._plan.clients)
        )

    async def run(self) -> Run:
        """Run all tests; return the run with all results. The other machines are told the end in any case.

        Raises:
            BoardError: the cluster is gone, or the machines did not come.
        """
        answering = asyncio.get_running_loop().create_task(answer_pings(self._board, self._clock))
        status = asyncio.get_running_loop().create_task(self._tell_status())
        listening = None
        if self._plan.supervised:
            listening = asyncio.get_running_loop().create_task(self._listen())
        try:
            await self._gather_clients()
            for number, workload in enumerate(self._plan.tests, 1):
                if number > 1 and self._between is not None:
                    self._now = "between two tests"
                    await self._between()
                await self._attempts(number, workload)
                if self._broken:
                    self._say(f"broken off: {self._broken}")
                    break
        finally:
            with contextlib.suppress(BoardError):
                await self._end()
            # This comes last: a machine that is still preparing asks for the time before it sees the end.
            for task in (answering, status, listening):
                if task is not None:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, BoardError):
                        await task
        return self.run_values

    # -- machines

    async def _gather_clients(self) -> None:
        wanted = self._plan.clients
        self._say(f"waiting for {wanted} client machines")
        numbers = await self._board.wait(
            lambda board: found if len(found := board.numbers("client")) >= wanted else None,
            f"{wanted} client machines",
        )
        self._clients = tuple(numbers[:wanted])
        machines = list(self.run_values.machines)
        for number in self._clients:
            claim = self._board.get(ClientClaim, f"client/{number}")
            assert claim is not None
            machines.append(_named(claim.machine, f"client {number}"))
        self._keep(evolve(self.run_values, machines=tuple(machines)))

    async def _end(self) -> None:
        await self._board.put(END, End(reason=self._broken or "finished"))
        expected = {f"bye/client/{n}" for n in self._board.numbers("client")}
        expected |= {f"bye/server/{n}" for n in self._board.numbers("server")}
        await self._board.wait(
            lambda board: expected <= board.view.keys(), "the machines to take leave", BYE_TIMEOUT_S
        )

    # -- tests

    async def _attempts(self, number: int, workload: Workload) -> None:
        """Run a test as often as the operator wants; the last attempt counts, all are kept."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            self._now = f"test {number} of {len(self._plan.tests)}: {workload.title()}"
            self._say(self._now + (f", attempt {attempt}" if attempt > 1 else ""))
            began = self._clock()
            result = await self._test(number, attempt, workload)
            self._results = [
                evolve(one, superseded=True) if one.number == number else one for one in self._results
            ]
            self._results.append(result)
            self._keep(evolve(self.run_values, tests=tuple(self._results)))
            self._now = f"test {number} took {self._clock() - began:.0f} s"
            self._say(_verdict(result))
            if self._broken or not self._plan.supervised or not await self._wants_again():
                return

    async def _test(self, number: int, attempt: int, workload: Workload) -> TestResult:
        name = f"{number}.{attempt}"
        job = Job(
            name=name,
            hosts=self._plan.hosts(),
            place=f"bench-{name}",
            workload=workload,
            clients=self._clients,
            processes=self._plan.processes,
            connections=self._plan.connections,
        )
        reason = ""
        try:
            await self._board.put(JOB, job)
            await self._all_ready(job)
            await self._board.put(f"start/{name}", Start(offset_s=self._plan.start_offset_s))
            await self._all_done(job)
        except BoardError as error:
            reason = str(error)
        machines = [found for n in self._clients if (found := self._parts(name, n))]
        if not machines:
            result = nothing(
                number=number,
                attempt=attempt,
                target="zraft",
                servers=self._plan.servers,
                workload=workload,
                reason=reason or "no client machine measured anything",
            )
        else:
            began = [one for n in self._clients if (one := self._board.get(Began, f"began/{name}/{n}"))]
            result = combine(
                number=number,
                attempt=attempt,
                target="zraft",
                servers=self._plan.servers,
                workload=workload,
                machines=machines,
                skew=skew_of([(one.head_s, one.uncertainty_s) for one in began]),
            )
            result = failed(result, reason) if reason else result
        await self._clear(name)
        return result

    async def _all_ready(self, job: Job) -> None:
        def ready(board: Board) -> bool | None:
            found = {n: board.get(Ready, f"ready/{job.name}/{n}") for n in job.clients}
            for number, one in found.items():
                if one is not None and one.error:
                    raise BoardError(f"client machine {number} is not ready: {one.error}")
            return True if all(found.values()) else None

        await self._unless_broken(
            self._board.wait(ready, "all client machines to be ready", self._plan.ready_timeout_s)
        )

    async def _all_done(self, job: Job) -> None:
        limit = self._plan.start_offset_s + job.workload.seconds_min + 2 * job.workload.deadline_s

        def done(board: Board) -> bool | None:
            found = {n: board.get(Outcome, f"outcome/{job.name}/{n}") for n in job.clients}
            for number, one in found.items():
                if one is not None and one.error:
                    raise BoardError(f"client machine {number}: {one.error}")
            return True if all(found.values()) else None

        await self._unless_broken(
            self._board.wait(done, "the results of all client machines", limit + self._plan.overtime_s)
        )

    async def _unless_broken(self, waiting: Awaitable[bool]) -> None:
        """Await something, unless the operator ends the run meanwhile.

        Raises:
            BoardError: the operator ended the run, or the board failed.
        """
        work = asyncio.ensure_future(waiting)
        try:
            while not work.done():
                await asyncio.wait([work], timeout=0.2)
                if self._broken:
                    raise BoardError(f"broken off: {self._broken}")
            work.result()
        finally:
            work.cancel()

    def _parts(self, name: str, client: int) -> list[Part]:
        outcome = self._board.get(Outcome, f"outcome/{name}/{client}")
        if outcome is None or outcome.error:
            return []
        parts = (self._board.get(Part, f"part/{name}/{client}/{n}") for n in range(outcome.parts))
        return [part for part in parts if part is not None]

    async def _clear(self, name: str) -> None:
        """Clear the board: what has been read is in the results file."""
        with contextlib.suppress(BoardError):
            for kind in ("start", "ready", "began", "outcome", "part"):
                for key in [key for key in self._board.view if _belongs(key, kind, name)]:
                    await self._board.remove(key)

    # -- the operator

    async def _listen(self) -> None:
        """Take everything said while tests run; `_wants_again` takes the answers that it asked for from the same queue."""
        assert self._operator is not None
        while True:
            said = await self._operator.says()
            if said.wish is Wish.STATUS:
                self._say(self._now)
            elif said.wish is Wish.COMMENT:
                self._comment(said.text)
            elif said.wish is Wish.BREAK:
                self._broken = said.text or "by the operator"
                self._answers.put_nowait(said)
            elif said.wish is Wish.UNKNOWN:
                self._say(f"not understood: {said.text!r}. {HELP}")
            elif self._asking:
                self._answers.put_nowait(said)

    async def _wants_again(self) -> bool:
        self._say(HELP)
        self._asking = True
        try:
            said = await self._answers.get()
        finally:
            self._asking = False
        return said.wish is Wish.REPEAT

    def _comment(self, text: str) -> None:
        """Add a comment to the newest result, or to the run if there is none yet."""
        if self._results:
            last = self._results[-1]
            self._results[-1] = evolve(last, comment=f"{last.comment}; {text}" if last.comment else text)
            self._keep(evolve(self.run_values, tests=tuple(self._results)))
        else:
            before = self.run_values.comment
            self._keep(evolve(self.run_values, comment=f"{before}; {text}" if before else text))
        self._say("noted")

    async def _tell_status(self) -> None:
        while True:
            await asyncio.sleep(self._plan.status_every_s)
            self._say(self._now)

    def _keep(self, run: Run) -> None:
        self.run_values = run
        self._save(run)


def _belongs(key: str, kind: str, name: str) -> bool:
    return key == f"{kind}/{name}" or key.startswith(f"{kind}/{name}/")


def _named(machine: Machine, what: str) -> Machine:
    return evolve(machine, name=f"{machine.name} ({what})")


def _verdict(result: TestResult) -> str:
    if result.latency is None or not result.latency.count:
        return f"test {result.number} failed: {result.reason}"
    p = result.latency.percentiles
    skew = "" if result.skew is None else f", began within {result.skew.spread_ms:.1f} ms"
    mark = "" if result.state == OK else f" FAILED: {result.reason}"
    return f"test {result.number}: {result.per_second:,.0f}/s, p50 {p['50']:.2f} ms, p99 {p['99']:.2f} ms{skew}{mark}"
