"""Head, servers and clients of a distributed benchmark over a dictionary in memory (Z-26): no sockets, virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

import pytest

from tests.event_loops import EVERY_LOOP
from tests.ipv6 import has_ipv6
from zraft_bench.distributed.board import Board, BoardError, MemoryDictionary
from zraft_bench.distributed.client_agent import ClientAgent
from zraft_bench.distributed.clock_offset import ClockSample, offset_of, skew_of
from zraft_bench.distributed.head import Head, Plan
from zraft_bench.distributed.membership import restart_servers, voters_of
from zraft_bench.distributed.messages import (
    END,
    JOB,
    RUN,
    ClientClaim,
    End,
    Job,
    Membership,
    Ready,
    RunInfo,
    ServerClaim,
)
from zraft_bench.distributed.server_agent import ServerAgent, address_towards
from zraft_bench.distributed.supervision import Said, Wish, understand
from zraft_bench.load.generator import LoadError
from zraft_bench.load.histogram import Histogram
from zraft_bench.load.process import Order
from zraft_bench.load.workload import Workload
from zraft_bench.processes import ServerError
from zraft_bench.records import to_plain
from zraft_bench.results import Machine, Part, Run
from zraft_core.address import Address

pytestmark = pytest.mark.loops("virtual")

MACHINE = Machine(name="m", cores=2, system="Linux", python="CPython 3.11")
TESTS = (Workload(entries=10, workers=2, seconds_min=1.0), Workload(entries=20, workers=4, seconds_min=1.0))


class FakeLoad:
    """Measures nothing: every process did 100 requests in the time asked for."""

    def __init__(self, orders: Sequence[Order], clock: Callable[[], float], fails: str = "") -> None:
        self.orders = orders
        self._clock = clock
        self._fails = fails

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def prepare(self) -> None:
        if self._fails == "prepare":
            raise LoadError("cannot connect")
        await asyncio.sleep(0.3)

    async def run(
        self, start_s: float, *, on_began: Callable[[float], None] = lambda _: None
    ) -> tuple[Part, ...]:
        await asyncio.sleep(start_s)
        began = self._clock()
        on_began(began)
        if self._fails == "run":
            raise LoadError("a load process ended with code 1")
        if self._fails == "silent":
            await asyncio.sleep(1e9)
        await asyncio.sleep(1.0)
        latencies = Histogram()
        latencies.add([0.001] * 100)
        return tuple(
            Part(
                workers=order.share.workers,
                connections=1,
                acknowledged=100,
                began_s=began,
                ended_s=self._clock(),
                latencies=latencies,
            )
            for order in self.orders
        )


class Scripted:
    """An operator who says these lines, one each time something is asked of the head's console."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[Said] = asyncio.Queue()

    async def says(self) -> Said:
        return await self.lines.get()


class Stage:
    """A head and some clients that share a dictionary."""

    def __init__(self, *, fails: dict[int, str] | None = None, clients: int = 2) -> None:
        self.dictionary = MemoryDictionary()
        self.said: list[str] = []
        self.saved: list[Run] = []
        self.orders: list[Sequence[Order]] = []
        self.fails = fails or {}
        self.clients = clients
        self.operator = Scripted()
        self.ended: list[str] = []

    def plan(self, **changes: Any) -> Plan:
        given: dict[str, Any] = {
            "hosts": lambda: "a:1,b:2",
            "servers": 2,
            "clients": self.clients,
            "tests": TESTS,
            "processes": 2,
        }
        return Plan(**given | changes)

    async def client(self, number: int) -> None:
        loop = asyncio.get_running_loop()

        # Machines' clocks have nothing in common.
        def clock() -> float:
            return loop.time() + 1000.0 * number

        def make(orders: Sequence[Order]) -> FakeLoad:
            self.orders.append(orders)
            return FakeLoad(orders, clock, self.fails.get(number, ""))

        agent = ClientAgent(self.dictionary.board(), MACHINE, say=lambda _: None, load=make, clock=clock)
        self.ended.append(await agent.run())

    async def play(self, plan: Plan, on_say: Callable[[str], None] = lambda _: None) -> Run:
        loop = asyncio.get_running_loop()

        def say(text: str) -> None:
            self.said.append(text)
            on_say(text)

        head = Head(
            self.dictionary.board(),
            plan,
            Run(kind="distributed", id="r1", started="now", version="0", machines=(MACHINE,)),
            say=say,
            save=self.saved.append,
            operator=self.operator if plan.supervised else None,
            clock=loop.time,
        )
        await head.announce()
        clients = []
        for number in range(1, self.clients + 1):
            clients.append(loop.create_task(self.client(number)))
            await asyncio.sleep(0.01)
        try:
            async with asyncio.timeout(10_000):
                return await head.run()
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)


async def test_a_plan_is_carried_out_by_machines_that_know_only_the_board() -> None:
    stage = Stage()
    result: Run = await stage.play(stage.plan())
    assert [(one.number, one.state) for one in result.tests] == [(1, "ok"), (2, "ok")]
    for one in result.tests:
        assert one.sharing.machines == 2
        assert one.sharing.workers == 2 * one.workload.workers
        assert one.acknowledged == 400  # two machines, two processes each
    assert len(result.machines) == 3
    assert stage.saved[-1] == result
    # Each machine has its own workers of all, none twice.
    first = sorted(order.share.first_worker for orders in stage.orders[:2] for order in orders)
    assert first == [0, 1, 2, 3]
    assert {order.hosts for orders in stage.orders for order in orders} == {"a:1,b:2"}
    assert stage.ended == ["finished", "finished"]


async def test_the_start_is_an_offset_and_the_skew_is_measured_over_unlike_clocks() -> None:
    """Flaw 24: clocks a thousand seconds apart neither delay nor confuse anything."""
    stage = Stage()
    result: Run = await stage.play(stage.plan())
    for one in result.tests:
        assert one.skew is not None
        assert one.skew.spread_ms < 1.0
        assert one.skew.uncertainty_ms < 1.0
        assert one.elapsed_s == pytest.approx(1.0, abs=0.01)


async def test_nobody_begins_before_everybody_is_ready() -> None:
    stage = Stage()
    seen: list[tuple[int, bool]] = []

    async def watch(board: Board) -> None:
        while True:
            ready = sum(board.get(Ready, f"ready/1.1/{n}") is not None for n in (1, 2))
            seen.append((ready, "start/1.1" in board.view))
            await asyncio.sleep(0.001)

    board = stage.dictionary.board()
    watching = asyncio.get_running_loop().create_task(watch(board))
    await stage.play(stage.plan(tests=TESTS[:1]))
    watching.cancel()
    assert (2, True) in seen
    assert (0, True) not in seen
    assert (1, True) not in seen


@pytest.mark.parametrize(
    ("how", "reason", "kept"),
    [
        ("prepare", "client machine 2 is not ready: cannot connect", 0),
        ("run", "client machine 2: a load process ended with code 1", 0),
        ("silent", "in vain for the results of all client machines", 200),
    ],
)
async def test_a_machine_that_fails_fails_the_test_and_not_the_run(how: str, reason: str, kept: int) -> None:
    stage = Stage(fails={2: how})
    result: Run = await stage.play(stage.plan(tests=TESTS[:1]))
    (one,) = result.tests
    assert one.state == "failed"
    assert reason in one.reason
    assert one.acknowledged >= kept
    assert stage.saved[-1].tests == result.tests


async def test_after_a_failed_test_the_next_one_is_run() -> None:
    stage = Stage(fails={2: "prepare"})
    result: Run = await stage.play(stage.plan())
    assert [(one.number, one.state) for one in result.tests] == [(1, "failed"), (2, "failed")]
    assert stage.ended == ["finished", "finished"]


async def test_what_was_read_is_removed_from_the_board() -> None:
    stage = Stage()
    await stage.play(stage.plan())
    left = {key.partition("/")[0] for key in stage.dictionary.entries}
    assert left == {RUN, JOB, END, "client", "ping", "pong", "bye"}


@pytest.mark.parametrize("ended", [True, False])
async def test_machines_that_come_before_the_head_wait_for_its_run(ended: bool) -> None:
    """A cluster that was measured before still shows the earlier run, finished or broken off."""
    stage = Stage(clients=1)
    job = Job(name="9.9", hosts="a:1", place="p", workload=TESTS[0], clients=(1,))
    earlier = {RUN: to_plain(RunInfo(run="r0", servers=2, clients=1)), JOB: to_plain(job)}
    stage.dictionary.entries = earlier | ({END: {"reason": "finished"}} if ended else {})
    stage.dictionary.entries["client/1"] = {"machine": {"name": "m"}}

    early = asyncio.get_running_loop().create_task(stage.client(1))
    await asyncio.sleep(1.0)
    stage.clients = 0  # no others come
    result = await stage.play(stage.plan(clients=1, tests=TESTS[:1]))
    await early
    assert result.tests[0].state == "ok"
    assert stage.ended == ["finished"]


async def test_a_run_begins_with_an_empty_board() -> None:
    stage = Stage()
    stage.dictionary.entries = {
        "client/7": {"machine": {}},
        END: {"reason": "finished"},
        "job": {"name": "1.1"},
    }
    result: Run = await stage.play(stage.plan(tests=TESTS[:1]))
    assert result.tests[0].state == "ok"


async def test_supervised_a_test_is_repeated_and_the_first_attempt_is_kept() -> None:
    stage = Stage()
    script = ["note a backup was running", "r", "n quiet now", "c", "c"]

    def answer(text: str) -> None:
        if text.startswith("Enter"):
            while script:
                line = script.pop(0)
                stage.operator.lines.put_nowait(understand(line))
                if not line.startswith("n"):
                    return

    result: Run = await stage.play(stage.plan(supervised=True), answer)
    assert [(one.number, one.attempt, one.superseded) for one in result.tests] == [
        (1, 1, True),
        (1, 2, False),
        (2, 1, False),
    ]
    assert [one.comment for one in result.tests] == ["a backup was running", "quiet now", ""]


async def test_supervised_status_is_told_and_a_break_keeps_what_there_is() -> None:
    stage = Stage()

    def answer(text: str) -> None:
        if text.startswith("test 1 of 2") and stage.said.count(text) == 1:
            stage.operator.lines.put_nowait(understand("s"))
            stage.operator.lines.put_nowait(understand("what?"))
        if text.startswith("Enter"):
            stage.operator.lines.put_nowait(understand("b"))

    result: Run = await stage.play(stage.plan(supervised=True), answer)
    assert [one.number for one in result.tests] == [1]
    assert result.tests[0].ok
    assert stage.said.count("test 1 of 2: write, 10 entries of 100 B, 2 workers") == 2
    assert any(text.startswith("not understood: 'what?'") for text in stage.said)
    assert stage.ended == ["by the operator"] * 2


async def test_a_break_ends_a_test_that_is_under_way() -> None:
    stage = Stage(fails={1: "silent", 2: "silent"})

    def answer(text: str) -> None:
        if text.startswith("test 1 of 2"):
            stage.operator.lines.put_nowait(understand("break"))

    result: Run = await stage.play(stage.plan(supervised=True), answer)
    (one,) = result.tests
    assert "broken off" in one.reason


async def test_the_state_of_a_long_test_is_told_every_half_minute() -> None:
    stage = Stage(fails={2: "silent"})
    await stage.play(stage.plan(tests=TESTS[:1], overtime_s=300.0))
    assert stage.said.count("test 1 of 1: write, 10 entries of 100 B, 2 workers") >= 8


@pytest.mark.parametrize(
    ("line", "wish", "text"),
    [
        ("", Wish.GO_ON, ""),
        ("  Continue\n", Wish.GO_ON, ""),
        ("r", Wish.REPEAT, ""),
        ("n  it was noisy ", Wish.COMMENT, "it was noisy"),
        ("comment x", Wish.COMMENT, "x"),
        ("n", Wish.UNKNOWN, "n"),
        ("s", Wish.STATUS, ""),
        ("quit", Wish.BREAK, ""),
        ("repeat it please", Wish.UNKNOWN, "repeat it please"),
        ("yes", Wish.UNKNOWN, "yes"),
    ],
)
def test_what_operators_say_is_understood_or_refused(line: str, wish: Wish, text: str) -> None:
    assert understand(line) == Said(wish, text)


# -- servers

REAL_TIME = pytest.mark.loops(*EVERY_LOOP)
"""Blocking calls go to threads: real time, of which nothing takes any."""


class FakeServer:
    def __init__(self, fails: bool = False) -> None:
        self.events: list[str] = []
        self._fails = fails

    def start(self) -> None:
        self.events.append("start")

    def restart(self) -> None:
        self.events.append("restart")
        if self._fails:
            raise ServerError("does not serve")

    def stop(self) -> None:
        self.events.append("stop")


async def _serve(server: FakeServer, director: Callable[[Board], Coroutine[Any, Any, None]]) -> list[object]:
    dictionary = MemoryDictionary()
    board = dictionary.board()
    made: list[object] = []

    def make(number: int, address: Address, member: Membership) -> FakeServer:
        made.append((number, str(address), member.cluster))
        return server

    await board.put(RUN, RunInfo(run="r", servers=2, clients=1))
    agent = ServerAgent(dictionary.board(), Address("h", 7), MACHINE, make, say=lambda _: None)
    task = asyncio.get_running_loop().create_task(agent.run())
    async with asyncio.timeout(50):
        await director(board)
        made.append(await task)
    return made


async def test_who_takes_leave_needs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head may have ended the servers before it came."""
    board = MemoryDictionary().board()
    lost: list[str] = []

    async def put(key: str, value: object) -> bool:
        lost.append(key)
        raise BoardError("no answer within the deadline of the call")

    monkeypatch.setattr(board, "put", put)
    await board.take_leave("bye/client/2", End())
    assert lost == ["bye/client/2"]


@REAL_TIME
async def test_a_server_asks_to_be_let_in_restarts_and_takes_leave() -> None:
    server = FakeServer()

    async def director(board: Board) -> None:
        claim = await board.wait(lambda b: b.get(ServerClaim, "server/2"), "the claim")
        assert claim.address == "h:7"
        await board.put("member/2", Membership(cluster="1=g:1,2=h:7", key="secret"))
        await restart_servers(board, [2], 1, 10.0)
        await restart_servers(board, [2], 2, 10.0)
        await board.put(END, End())
        await board.wait(lambda b: b.get(End, "bye/server/2"), "its leave")

    assert await _serve(server, director) == [(2, "h:7", "1=g:1,2=h:7"), "finished"]
    assert server.events == ["start", "restart", "restart", "stop"]


@REAL_TIME
async def test_a_server_that_does_not_come_back_is_told() -> None:
    async def director(board: Board) -> None:
        await board.put("member/2", Membership(cluster="c", key=""))
        with pytest.raises(BoardError, match="server 2 was not restarted: does not serve"):
            await restart_servers(board, [2], 1, 10.0)
        await board.put(END, End(reason="given up"))

    assert (await _serve(FakeServer(fails=True), director))[-1] == "given up"


@REAL_TIME
async def test_a_server_that_was_never_let_in_starts_nothing() -> None:
    server = FakeServer()

    async def director(board: Board) -> None:
        await board.put(END, End(reason="broken off"))

    assert await _serve(server, director) == ["broken off"]
    assert server.events == []


async def test_two_that_claim_at_once_get_different_numbers() -> None:
    dictionary = MemoryDictionary()
    boards = [dictionary.board() for _ in range(5)]
    assert sorted(
        await asyncio.gather(*(board.claim("client", ClientClaim(machine=MACHINE)) for board in boards))
    ) == [1, 2, 3, 4, 5]


def test_voters_are_read_from_the_operators_command() -> None:
    listed = '{"members": [{"server": 1, "role": "voter"}, {"server": 2, "role": "learner"}]}'
    assert voters_of(listed) == {1}


# -- clocks


def test_the_offset_is_taken_from_the_shortest_round_trip() -> None:
    samples = [
        ClockSample(10.0, 10.4, 500.0),
        ClockSample(20.0, 20.002, 510.001),
        ClockSample(30.0, 31.0, 520.9),
    ]
    offset = offset_of(samples)
    assert offset.offset_s == pytest.approx(490.0)
    assert offset.uncertainty_s == pytest.approx(0.001)


def test_the_skew_has_the_uncertainty_of_the_two_worst_clocks() -> None:
    skew = skew_of([(5.0, 0.001), (5.02, 0.002), (5.01, 0.0005)])
    assert skew is not None
    assert skew.spread_ms == pytest.approx(20.0)
    assert skew.uncertainty_ms == pytest.approx(3.0)
    assert skew_of([]) is None


async def test_a_wait_ends_with_the_dictionary() -> None:
    board = MemoryDictionary().board()
    loop = asyncio.get_running_loop()
    loop.call_later(1.0, board.fail, BoardError("no server has answered for 60 s"))
    with pytest.raises(BoardError, match="no server has answered"):
        await board.wait(lambda _: None, "anything")
    with pytest.raises(BoardError, match="no server"):
        await board.wait(lambda _: True, "anything")


async def test_a_wait_says_what_it_waited_for() -> None:
    with pytest.raises(BoardError, match="waited 3 s in vain for a miracle"):
        await MemoryDictionary().board().wait(lambda _: None, "a miracle", 3.0)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        pytest.param(
            "::1", marks=pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")
        ),
    ],
)
def test_a_machine_offers_the_address_that_it_has_towards_the_head(host: str) -> None:
    offered = address_towards(Address(host, 2181))
    assert offered.host == host
    assert 0 < offered.port < 65_536
