"""The parts of an incarnation: pauses, published digests, watches, tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from onyxlog.errors import EntryError
from onyxlog.peer import publishing
from onyxlog.peer.backoff import (
    JOIN_MEAN_MS,
    JOIN_MEAN_MS_MAX,
    RESTART_MEAN_MS_MAX,
    join_again_ms,
    restart_ms,
)
from onyxlog.peer.log.port import first_origin
from onyxlog.peer.outbox import Outbox
from onyxlog.peer.publishing import DigestPublisher, Published
from onyxlog.peer.task_runner import PlaneStatistics, WorkerStatistics
from onyxlog.peer.turns import Append
from onyxlog.peer.watching import Watching
from onyxlog.peer.workers import Workers
from onyxlog.replica.codec import name_of
from onyxlog.replica.commands import AddVirtualPeer, Gc, KillJob, Record
from onyxlog.replica.effects import StartTask, StopTask
from onyxlog.replica.replica import Parameters, Replica
from tests.onyxlog.simulation.memory_log import MemoryLog, MemoryPort

pytestmark = pytest.mark.loops("virtual")


def spawn(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(coroutine)


def begun() -> MemoryLog:
    return MemoryLog(newest_origin=first_origin(Parameters()))


# -- pauses


def test_joins_are_tried_again_after_200_ms_on_average_for_each_group_that_waits() -> None:
    draws = [number / 100 for number in range(100)]
    mean = sum(join_again_ms(0, draw) for draw in draws) / len(draws)
    assert abs(mean - JOIN_MEAN_MS) < 2
    assert join_again_ms(4, 0.5) == 5 * JOIN_MEAN_MS
    assert join_again_ms(1_000, 0.5) == JOIN_MEAN_MS_MAX


def test_pauses_before_a_restart_double_up_to_a_bound() -> None:
    pauses = [restart_ms(failures, 0.5) for failures in range(1, 12)]
    assert pauses[1] == 2 * pauses[0]
    assert pauses[-1] == RESTART_MEAN_MS_MAX == restart_ms(10_000, 0.5)


def test_entries_are_called_as_in_onyx() -> None:
    assert name_of(AddVirtualPeer("p", "g", "")) == "add-virtual-peer"
    assert name_of(Gc("c")) == "gc"


# -- published digests


def test_what_is_published_is_read_back_and_anything_else_is_an_error() -> None:
    one = Published("g", 7, b"chain")
    assert publishing.decode(publishing.encode(one), "p") == one
    for wrong in (
        b"",
        b"\xc1",
        b"\x93\x01\x02\x03",
        b"\x94\x02\xa1g\x07\xc4\x01c",
        b"\x94\x01\xa1g\xa17\xc4\x01c",
    ):
        with pytest.raises(EntryError, match=r"^digests/g: "):
            publishing.decode(wrong, "digests/g")


async def test_digests_are_written_at_multiples_and_after_quiet_and_one_at_a_time() -> None:
    log = begun()
    port = log.open()
    publisher = DigestPublisher(port, "g", every=10, quiet_s=5)
    task = spawn(publisher.run())
    for position in range(25):
        publisher.applied(position, bytes([position]))
        await asyncio.sleep(0.01)
        if position == 15:
            # the loop is at position 15, the last multiple is written
            assert publisher.written == Published("g", 10, bytes([10]))
    assert publisher.writes == 3
    await asyncio.sleep(4)
    assert publisher.writes == 3
    await asyncio.sleep(2)
    assert publisher.written == Published("g", 24, bytes([24]))
    await asyncio.sleep(60)
    assert publisher.writes == 4, "nothing has changed since"
    assert publishing.decode(log.states["digests/g"], "") == publisher.written
    task.cancel()


# -- the outbox


async def test_the_outbox_keeps_the_order_and_tells_the_positions() -> None:
    log = begun()
    told: list[tuple[int, int]] = []
    outbox = Outbox(log.open(), lambda append, position, _: told.append((append.number, position)))
    for number in range(5):
        outbox.put(Append(number, Record(KillJob(f"job-{number}", 0), "g")))
    task = spawn(outbox.run())
    await outbox.drained()
    assert told == [(number, number) for number in range(5)]
    task.cancel()


# -- watches


class Pulses:
    """A log on which groups live, and what a watcher was told."""

    def __init__(self, *groups: str) -> None:
        self.log = begun()
        self.owners = {group: self.log.open() for group in groups}
        self.told: list[str] = []
        self.port = self.log.open()
        self.watching = Watching(self.port, self.told.append, spawn)

    async def begin(self) -> None:
        for group, port in self.owners.items():
            await port.show_pulse(group)

    async def die(self, group: str) -> None:
        await self.owners[group].close()
        await asyncio.sleep(0.01)


async def test_the_ring_s_watch_moves_and_tells_only_of_whom_it_is_on() -> None:
    pulses = Pulses("a", "b", "c")
    await pulses.begin()
    for subject in ("a", "b", "c"):
        pulses.watching.watch(subject)
        await asyncio.sleep(0.01)
    await pulses.die("a")
    assert pulses.told == []
    await pulses.die("c")
    assert pulses.told == ["c"]
    pulses.watching.watch("b")
    await asyncio.sleep(0.01)
    pulses.watching.watch(None)
    await asyncio.sleep(0.01)
    await pulses.die("b")
    assert pulses.told == ["c"]


async def test_watches_that_were_superseded_before_they_were_set_are_never_asked_for() -> None:
    pulses = Pulses("a", "b", "c", "d")
    await pulses.begin()
    for subject in ("a", "b", "c", "d"):
        pulses.watching.watch(subject)
    await asyncio.sleep(0.01)
    assert pulses.port.statistics().watches <= 2
    await pulses.die("d")
    assert pulses.told == ["d"]


async def test_the_joiner_is_watched_beside_the_neighbour() -> None:
    pulses = Pulses("neighbour", "joiner")
    await pulses.begin()
    pulses.watching.watch("neighbour")
    pulses.watching.watch_joiner("joiner")
    await asyncio.sleep(0.01)
    await pulses.die("joiner")
    await pulses.die("neighbour")
    assert pulses.told == ["joiner", "neighbour"]


async def test_who_is_gone_already_is_told_of() -> None:
    pulses = Pulses("a")
    await pulses.begin()
    pulses.watching.watch("never there")
    pulses.watching.look_once("a")
    pulses.watching.look_once("nobody")
    await asyncio.sleep(0.01)
    assert sorted(pulses.told) == ["never there", "nobody"]


async def test_the_failure_detector_looks_once_a_second_until_it_is_stopped() -> None:
    pulses = Pulses("a", "b")
    await pulses.begin()
    pulses.watching.detect("a")
    await asyncio.sleep(10.5)
    assert pulses.port.statistics().reads == 11
    await pulses.die("a")
    await asyncio.sleep(1)
    assert pulses.told == ["a"]
    pulses.watching.detect("b")
    await asyncio.sleep(0.5)
    pulses.watching.stop_detecting()
    assert pulses.watching.detected is None
    await pulses.die("b")
    await asyncio.sleep(5)
    assert pulses.told == ["a"]


# -- tasks


class SlowRunner:
    """Takes a second for everything; starts of job "bad" fail."""

    site = ""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def start(self, task: StartTask) -> None:
        await asyncio.sleep(1)
        if task.job == "bad":
            raise ValueError("planted")
        self.told.append(f"start {task.peer} {task.job}")

    async def stop(self, task: StopTask) -> None:
        await asyncio.sleep(1)
        self.told.append(f"stop {task.peer} {task.job}")

    def replica_changed(self, replica: Replica) -> None:
        pass

    def statistics(self) -> dict[str, WorkerStatistics]:
        return {}

    def plane_statistics(self) -> PlaneStatistics:
        return PlaneStatistics()

    async def close(self) -> None:
        pass


def a_start(peer: str, job: str, version: int = 0) -> StartTask:
    return StartTask(peer, job, "task", 0, version)


async def test_tasks_of_a_virtual_peer_are_brought_one_at_a_time_and_only_to_the_newest() -> None:
    runner = SlowRunner()
    workers = Workers(runner, lambda peer, error: None, spawn)
    for position, job in enumerate(("one", "two", "three")):
        workers.want(position, a_start("p", job))
        await asyncio.sleep(0.1)
    workers.want(3, a_start("q", "one"))
    await asyncio.sleep(5)
    assert runner.told == ["start p one", "start q one", "start p three"]
    assert workers.settled
    assert {peer: task.job for peer, task in workers.running.items()} == {"p": "three", "q": "one"}
    workers.want(4, a_start("p", "three"))
    workers.want(5, StopTask("q", "one", "killed"))
    await asyncio.sleep(5)
    assert runner.told[3:] == ["stop q one"], "what is so already is not asked for"
    assert set(workers.running) == {"p"}


async def test_a_start_that_fails_is_told_and_does_not_run() -> None:
    failed: list[str] = []
    workers = Workers(SlowRunner(), lambda peer, error: failed.append(f"{peer}: {error}"), spawn)
    workers.want(0, a_start("p", "bad"))
    await asyncio.sleep(5)
    assert failed == ["p: planted"]
    assert not workers.running
    workers.want(1, a_start("p", "good"))
    await asyncio.sleep(5)
    assert set(workers.running) == {"p"}


async def test_a_virtual_peer_that_is_out_is_stopped_whether_it_runs_or_is_about_to() -> None:
    runner = SlowRunner()
    workers = Workers(runner, lambda peer, error: None, spawn)
    workers.want(0, a_start("p", "one"))
    await asyncio.sleep(3)
    workers.want(1, a_start("q", "one"))
    await asyncio.sleep(0.1)
    workers.forget("p", 2)
    workers.forget("q", 2)
    workers.forget("r", 2)
    await asyncio.sleep(5)
    assert not workers.running
    assert sorted(runner.told) == ["start p one", "start q one", "stop p one", "stop q one"]


async def test_a_port_that_fails_while_a_watch_is_set_is_the_failure_of_who_spawned_it() -> None:
    log = begun()
    port: MemoryPort = log.open()
    tasks: list[asyncio.Task[None]] = []

    def note(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks.append(spawn(coroutine))
        return tasks[-1]

    watching = Watching(port, lambda group: None, note)
    log.expire(port)
    watching.watch("a")
    await asyncio.gather(*tasks, return_exceptions=True)
    assert tasks[0].exception() is not None
