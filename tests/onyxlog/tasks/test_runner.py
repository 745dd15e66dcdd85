"""What a group's runner makes of starts, stops, failures and full buffers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import attrs
import pytest

from onyxlog.jobs.lifecycles import Lifecycle
from onyxlog.jobs.specification import Delivery, Job, Plugin, Task, TaskKind
from onyxlog.plugins.collecting import collected, forget
from onyxlog.replica.commands import BackpressureOff, BackpressureOn, KillJob, SignalReady
from onyxlog.replica.effects import StartTask, StopTask
from onyxlog.replica.replica import PeerState
from onyxlog.replica.table import Table
from onyxlog.tasks.pressure import Pressure
from onyxlog.tasks.runner import RunnerSettings
from tests.onyxlog.tasks.attempts import Groups

HERE = "tests.onyxlog.tasks.test_runner"
GATE = threading.Event()
WAITING = threading.Event()
CALLS: list[tuple[str, str]] = []


def wait_for_gate(segment: Any) -> Any:
    WAITING.set()
    GATE.wait(20)
    return segment


def raises(segment: Any) -> Any:
    raise ValueError("always")


class Recorded:
    """Hooks that tell what was called."""

    @staticmethod
    def start_task(context: Any) -> bool:
        CALLS.append((context.task, "start_task"))
        return CALLS.count((context.task, "start_task")) > 1

    @staticmethod
    def before_task_start(context: Any) -> dict[str, Any]:
        CALLS.append((context.task, "before_task_start"))
        return {}

    @staticmethod
    def after_task_stop(context: Any, why: str) -> None:
        CALLS.append((context.task, f"after_task_stop {why}"))

    @staticmethod
    def after_ack(context: Any, segments: Any) -> None:
        CALLS.append((context.task, f"after_ack {len(segments)}"))


class Restarting:
    @staticmethod
    def handle_exception(context: Any, at: str, exception: Exception) -> str:
        CALLS.append((context.task, f"{at} {exception}"))
        return "restart"


@pytest.fixture(autouse=True)
def fresh() -> Any:
    GATE.clear()
    WAITING.clear()
    CALLS.clear()
    forget("out")
    yield
    GATE.set()
    forget("out")


def chain(segments: int = 3, function: str | None = None, **more: Any) -> Job:
    """From an input to an output, which has the function."""
    return Job(
        id="chain",
        workflow=(("in", "out"),),
        catalog=(
            Task(
                "in",
                TaskKind.INPUT,
                plugin=Plugin("sequence", {"segments": [{"n": n} for n in range(segments)]}),
                batch_size=1,
            ),
            Task(
                "out",
                TaskKind.OUTPUT,
                function=function,
                batch_size=1,
                plugin=Plugin("collecting", {"name": "out"}),
            ),
        ),
        **more,
    )


PLACES = {"in": ["a.1"], "out": ["b.1"]}


async def test_a_start_that_was_overtaken_starts_nothing() -> None:
    async with Groups("a", "b") as groups:
        await groups.begin(chain(), PLACES, 5)
        await groups.completed()
        await groups.runners["a"].start(StartTask("a.1", "chain", "in", 0, 4))
        assert not groups.runners["a"].workers


async def test_after_a_stop_nothing_of_the_task_runs() -> None:
    async with Groups("a", "b", settings=RunnerSettings(threads=True)) as groups:
        await groups.begin(chain(100, f"{HERE}:wait_for_gate"), PLACES, 5)
        await groups.until(lambda: groups.runners["b"].statistics()["b.1"].segments > 0)
        GATE.set()
        await groups.runners["b"].stop(StopTask("b.1", "chain", "killed"))
        written = len(collected("out"))
        assert not groups.runners["b"].workers
        await asyncio.sleep(0.05)
        assert len(collected("out")) == written
        await groups.runners["b"].stop(StopTask("b.1", "chain", "killed"))  # again does nothing


async def test_a_function_that_blocks_does_not_stop_the_groups_loop() -> None:
    async with Groups("a", "b", settings=RunnerSettings(threads=True)) as groups:
        await groups.begin(chain(3, f"{HERE}:wait_for_gate"), PLACES, 5)
        await groups.until(lambda: groups.runners["b"].statistics()["b.1"].segments > 0)
        GATE.set()
        await groups.completed()
    assert [segment["n"] for segment in collected("out")] == [0, 1, 2]


async def test_hooks_are_called_and_a_task_waits_until_it_may_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyxlog.tasks.worker.START_RETRY_S", 0.01)
    job = chain(2, lifecycles=(Lifecycle("in", f"{HERE}:Recorded"),), delivery=Delivery.AT_LEAST_ONCE)

    async with Groups("a", "b") as groups:
        await groups.begin(job, PLACES, 5)
        await groups.completed()
    acked = [call for call in CALLS if "after_ack" in call[1]]
    assert sum(int(call[1].split()[1]) for call in acked) == 2
    assert [call for call in CALLS if call not in acked] == [
        ("in", "start_task"),
        ("in", "start_task"),
        ("in", "before_task_start"),
        ("in", "after_task_stop left"),
    ]


async def test_a_lifecycle_that_says_restart_makes_the_virtual_peer_fail_not_the_job() -> None:
    job = chain(1, f"{HERE}:raises", lifecycles=(Lifecycle("out", f"{HERE}:Restarting"),))

    async with Groups("a", "b") as groups:
        await groups.begin(job, PLACES, 5)
        while not groups.hosts["b"].failures:
            groups.told.clear()
            await groups.told.wait()
        assert [peer for peer, _ in groups.hosts["b"].failures] == ["b.1"]
        assert not [command for command in groups.appended if isinstance(command, KillJob)]
    assert CALLS == [("out", "apply always")]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"function": "tests.onyxlog.nowhere:f"}, "module 'tests.onyxlog.nowhere' cannot be imported"),
        ({"plugin": Plugin("colecting", {"name": "x"})}, "did you mean 'collecting'"),
        ({"plugin": Plugin("collecting", {"nam": "x"})}, "plugin 'collecting': options:"),
    ],
)
async def test_a_job_that_cannot_run_here_is_killed_and_the_reason_says_where(
    changed: Any, reason: str
) -> None:
    job = chain()
    job = attrs.evolve(job, catalog=(job.task("in"), attrs.evolve(job.task("out"), **changed)))

    async def run() -> str:
        async with Groups("a", "b") as groups:
            await groups.begin(job, PLACES, 5)
            return await groups.killed()

    found = await run()
    assert reason in found
    assert "chain" in found
    assert "out" in found


async def test_buffers_that_stay_full_are_told_to_the_log_and_inputs_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onyxlog.tasks.runner.LOOK_S", 0.01)

    async with Groups("a", "b", settings=RunnerSettings(threads=True, window=4, pressure_s=0.03)) as groups:
        await groups.begin(chain(200, f"{HERE}:wait_for_gate"), PLACES, 5)
        await groups.until(lambda: BackpressureOn("b.1") in groups.appended)
        a = groups.runners["a"]
        replica = groups.hosts["a"].replica
        a.replica_changed(attrs.evolve(replica, peer_states=Table({"b.1": PeerState.BACKPRESSURE})))
        GATE.set()
        await groups.until(lambda: BackpressureOff("b.1") in groups.appended)
        read = a.statistics()["a.1"].segments
        await asyncio.sleep(0.1)
        assert a.statistics()["a.1"].segments <= read + 1 < 200
        a.replica_changed(attrs.evolve(replica, peer_states=Table({"b.1": PeerState.ACTIVE})))
        await groups.completed()
    assert [segment["n"] for segment in collected("out")] == list(range(200))


def test_a_worker_that_is_only_slower_than_its_input_is_not_under_pressure() -> None:
    pressure = Pressure(1.0)
    assert [pressure.look(at / 4, is_full=True, batches=at) for at in range(1, 40)] == [None] * 39


def test_a_worker_that_stands_still_with_full_buffers_is_until_it_has_room_again() -> None:
    pressure = Pressure(1.0)
    told = [
        pressure.look(at, is_full=is_full, batches=batches)
        for at, is_full, batches in (
            (0.0, True, 7),
            (0.5, True, 7),
            (1.0, True, 7),
            (1.5, True, 7),  # a second of standing still
            (2.0, True, 8),  # it works again, and is full still
            (3.5, True, 9),
            (4.0, False, 12),
            (4.5, True, 13),
            (5.0, False, 14),
            (6.0, False, 15),  # a second of having room
        )
    ]
    assert told == [None, None, None, True, None, None, None, None, None, False]


async def test_memory_is_bounded_by_windows_while_a_receiver_takes_nothing() -> None:
    async def run() -> int:
        async with Groups("a", "b", settings=RunnerSettings(threads=True, window=4)) as groups:
            await groups.begin(chain(60, f"{HERE}:wait_for_gate"), PLACES, 5)
            await groups.until(lambda: groups.runners["b"].statistics()["b.1"].segments > 0)
            await asyncio.sleep(0.1)
            read = groups.runners["a"].statistics()["a.1"].segments
            GATE.set()
            await groups.completed()
            return read

    # the window, the batch that is worked on, and the one that was read before credit was waited for
    assert await run() <= 4 + 4 + 2


async def test_a_task_says_that_it_is_ready_once_everything_is_open() -> None:
    async with Groups("a", "b") as groups:
        await groups.begin(chain(), PLACES, 5)
        await groups.completed()
        assert [c for c in groups.appended if isinstance(c, SignalReady)] == [
            SignalReady("a.1", 5),
            SignalReady("b.1", 5),
        ]


async def test_a_runner_that_is_closed_while_a_job_is_read_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Groups("a", "b") as groups:
        runner, port = groups.runners["a"], groups.hosts["a"].port
        asked, answer = asyncio.Event(), asyncio.Event()
        job_of = port.job

        async def slowly(job_id: str) -> bytes:
            asked.set()
            await answer.wait()
            return await job_of(job_id)

        monkeypatch.setattr(port, "job", slowly)
        beginning = asyncio.ensure_future(groups.begin(chain(), PLACES, 5))
        await asked.wait()
        await runner.close()
        answer.set()
        await beginning
        assert not runner.workers


async def test_a_close_that_takes_too_long_is_given_up_and_done_again() -> None:
    """A group that leaves waits only so long for user code; what it did not get to is closed all the same."""
    async with Groups("a", "b", settings=RunnerSettings(threads=True)) as groups:
        await groups.begin(chain(100, f"{HERE}:wait_for_gate"), PLACES, 5)
        await groups.until(WAITING.is_set)
        runner = groups.runners["b"]
        work = runner._running["b.1"].task
        closing = asyncio.ensure_future(runner.close())
        await groups.until(work.done)
        closing.cancel()  # it waits for the function, which does not end
        with pytest.raises(asyncio.CancelledError):
            await closing
        GATE.set()
        await runner.close()
        host, port = runner.site.split(":")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, int(port))
