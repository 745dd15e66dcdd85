"""Jobs run to their end, over real connections on loopback, whatever happens to workers meanwhile."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest

from onyxlog.jobs.aggregates import Aggregation
from onyxlog.jobs.checkpoints import decode_checkpoint
from onyxlog.jobs.flow_conditions import FlowCondition
from onyxlog.jobs.grouping import GroupBy
from onyxlog.jobs.lifecycles import Lifecycle
from onyxlog.jobs.predicates import Predicate
from onyxlog.jobs.specification import Delivery, Job, Plugin, Task, TaskKind
from onyxlog.jobs.triggers import Complete, Trigger
from onyxlog.jobs.validation import check
from onyxlog.jobs.windows import Global, Window
from onyxlog.plugins.collecting import collected, forget
from onyxlog.replica.commands import CompleteJob, ExhaustInput, SealOutput, SignalReady
from onyxlog.tasks.items import Batch
from onyxlog.tasks.processing import Outcome, Processing
from onyxlog.tasks.runner import RunnerSettings
from tests.onyxlog.tasks import gates
from tests.onyxlog.tasks.attempts import SUBMITTED, Groups
from tests.onyxlog.tasks.functions import counts, split
from tests.onyxlog.tasks.gates import Gate

HERE = "tests.onyxlog.tasks.functions"


@pytest.fixture
def out(request: pytest.FixtureRequest) -> Any:
    name = request.node.name
    forget(name)
    yield collected(name)
    forget(name)


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Any:
    name = request.node.name
    yield gates.gate(name)
    gates.forget(name)


def read_task(lines: int, partitions: int) -> Task:
    options = {"function": f"{HERE}:line", "count": lines, "partitions": partitions}
    return Task("read", TaskKind.INPUT, plugin=Plugin("generated", options), batch_size=20)


def gated(job: Job, name: str) -> Job:
    """The job with its input behind the gate of that name."""
    read = job.task("read")
    assert read.plugin is not None
    plugin = Plugin("tests.onyxlog.tasks.gates:GatedInput", {**read.plugin.options, "gate": name})
    behind = attrs.evolve(read, plugin=plugin, batch_timeout_ms=1)
    return attrs.evolve(job, catalog=tuple(behind if task == read else task for task in job.catalog))


def lines_read(groups: Groups) -> int:
    """How many the two workers of the input have read in this attempt."""
    return sum(groups.runners[name].statistics()[f"{name}.1"].segments for name in ("a", "b"))


async def until_read(groups: Groups, lines: int) -> None:
    await groups.until(lambda: lines_read(groups) >= lines)


def word_count(name: str, lines: int, delivery: Delivery, **more: Any) -> Job:
    """Windows count, so this is for state that is exactly-once."""
    return Job(
        id="words",
        workflow=(("read", "split"), ("split", "count"), ("count", "write")),
        catalog=(
            read_task(lines, 4),
            Task("split", function=f"{HERE}:split"),
            Task("count", TaskKind.REDUCE, group_by=GroupBy(("word",))),
            Task("write", TaskKind.OUTPUT, plugin=Plugin("collecting", {"name": name})),
        ),
        windows=(Window("by-word", "count", Global(), Aggregation("count")),),
        triggers=(Trigger("told", "by-word", Complete(), emit="result"),),
        delivery=delivery,
        checkpoint_interval_ms=20,
        **more,
    )


def spread(name: str, lines: int, **more: Any) -> Job:
    """Every word to the output, as it is."""
    return Job(
        id="spread",
        workflow=(("read", "split"), ("split", "write")),
        catalog=(
            read_task(lines, 3),
            Task("split", function=f"{HERE}:split"),
            Task("write", TaskKind.OUTPUT, plugin=Plugin("collecting", {"name": name})),
        ),
        **more,
    )


WORDS_AT = {"read": ["a.1", "b.1"], "split": ["a.2", "b.2"], "count": ["a.3", "b.3", "c.1"], "write": ["c.2"]}


def result_of(written: list[Any]) -> dict[str, int]:
    return {segment["group"]: segment["result"] for segment in written}


@pytest.mark.parametrize("threads", [False, True])
async def test_a_word_count_over_three_groups_counts_every_word_once(
    out: list[Any], threads: bool, request: Any
) -> None:
    job = word_count(request.node.name, 300, Delivery.EXACTLY_ONCE_STATE)
    check(job)

    async def run() -> Groups:
        async with Groups("a", "b", "c", settings=RunnerSettings(threads=threads)) as groups:
            await groups.begin(job, WORDS_AT, 7)
            await groups.completed()
            return groups

    groups = await run()
    assert len(out) == len(counts(300))
    assert result_of(out) == counts(300)
    appended = groups.appended
    assert [c for c in appended if not isinstance(c, SignalReady)] == [
        ExhaustInput("words", SUBMITTED, "read"),
        SealOutput("words", SUBMITTED, "write"),
        CompleteJob("words", SUBMITTED),
    ]
    assert {c.peer for c in appended if isinstance(c, SignalReady)} == {
        p for ps in WORDS_AT.values() for p in ps
    }
    assert {c.allocation_version for c in appended if isinstance(c, SignalReady)} == {7}


@pytest.mark.parametrize("delivery", list(Delivery))
async def test_every_segment_comes_through_once_when_nothing_fails(
    out: list[Any], delivery: Delivery, request: Any
) -> None:
    async with Groups("a", "b") as groups:
        job = spread(request.node.name, 200, delivery=delivery)
        await groups.begin(job, {"read": ["a.1", "b.1"], "split": ["a.2", "b.2"], "write": ["b.3"]}, 3)
        await groups.completed()
    expected = [
        segment["at"] for number in range(200) for segment in split({"number": number, "line": "x y z"})
    ]
    assert sorted(segment["at"] for segment in out) == sorted(expected)


@pytest.mark.parametrize("checkpointed", [False, True])
async def test_counts_are_exact_although_a_group_dies_midway(
    out: list[Any], gate: Gate, checkpointed: bool, request: Any
) -> None:
    """Those that are left are another number for each task: positions and groups go to other workers."""
    job = gated(word_count(request.node.name, 4_000, Delivery.EXACTLY_ONCE_STATE), request.node.name)
    if not checkpointed:
        job = attrs.evolve(job, checkpoint_interval_ms=1_000_000)
    gate.limit = 500  # of 1,000 in each partition

    async with Groups("a", "b", "c") as groups:
        await groups.begin(job, WORDS_AT, 7)
        if checkpointed:
            await groups.until(lambda: any("parts/7" in path for path in groups.log.states))
        await until_read(groups, 1_000)
        assert checkpointed is any("parts/7" in path for path in groups.log.states)
        await groups.kill("b")
        places = {"read": ["a.1"], "split": ["a.2", "c.1"], "count": ["a.3", "c.3"], "write": ["c.2"]}
        await groups.begin(job, places, 12)
        gate.open()
        await groups.completed()
    assert result_of(out) == counts(4_000)


async def test_a_job_begins_from_its_checkpoint_not_from_the_start(
    out: list[Any], gate: Gate, request: Any
) -> None:
    """The first attempt can read half, and does; the second begins from a checkpoint that was begun after that."""
    job = gated(word_count(request.node.name, 6_000, Delivery.EXACTLY_ONCE_STATE), request.node.name)
    gate.limit = 750  # of 1,500 in each partition
    segments = []

    async with Groups("a", "b", "c") as groups:
        await groups.begin(job, WORDS_AT, 7)
        await until_read(groups, 3_000)
        under_way = checkpoint_of(groups) + 1
        await groups.until(lambda: checkpoint_of(groups) > under_way)
        await groups.begin(job, WORDS_AT, 9)
        gate.open()
        await groups.completed()
        segments.append(lines_read(groups))
    assert result_of(out) == counts(6_000)
    assert 0 < sum(segments) < 6_000
    assert sum(segments) == 3_000


def checkpoint_of(groups: Groups) -> int:
    """The number of the last that is complete; 0: none."""
    found = [data for path, data in groups.log.states.items() if "/latest/" in path and data]
    return max((decode_checkpoint(data, "latest").barrier.number for data in found), default=0)


async def test_broken_connections_lose_and_repeat_nothing(out: list[Any], gate: Gate, request: Any) -> None:
    job = gated(word_count(request.node.name, 6_000, Delivery.EXACTLY_ONCE_STATE), request.node.name)
    reconnects: list[int] = []

    async with Groups("a", "b", "c") as groups:
        await groups.begin(job, WORDS_AT, 7)
        for number in range(6):
            gate.limit = 200 * (number + 1)  # of 1,500 in each partition
            await until_read(groups, 800 * number + 400)
            for runner in groups.runners.values():
                runner.break_connections()
        gate.open()
        await groups.completed()
        reconnects.extend(runner.plane_statistics().reconnects for runner in groups.runners.values())
    assert result_of(out) == counts(6_000)
    assert sum(reconnects) > 0


async def test_at_least_once_every_segment_arrives_although_a_group_dies(
    out: list[Any], gate: Gate, request: Any
) -> None:
    job = spread(request.node.name, 4_000, delivery=Delivery.AT_LEAST_ONCE, pending_max=500)
    job = gated(job, request.node.name)
    gate.limit = 667  # of 1,333 or 1,334 in each partition

    async with Groups("a", "b", "c") as groups:
        await groups.begin(job, {"read": ["a.1", "b.1"], "split": ["a.2", "b.2"], "write": ["c.3"]}, 3)
        await until_read(groups, 1_000)
        await groups.kill("b")
        await groups.begin(job, {"read": ["a.1"], "split": ["c.2"], "write": ["c.3"]}, 8)
        gate.open()
        await groups.completed()
    expected = {f"{number}.{part}" for number in range(4_000) for part in range(3)}
    assert {segment["at"] for segment in out} == expected


async def test_a_segment_that_got_lost_is_sent_again_from_its_root(
    out: list[Any], request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker drops the first batch that it is given, and tells nobody."""
    job = spread(
        request.node.name, 50, delivery=Delivery.AT_LEAST_ONCE, pending_timeout_ms=300, pending_max=30
    )
    process = Processing.process
    lost: list[Batch] = []

    def losing(self: Processing, batch: Batch) -> Outcome:
        if not lost and self.context.peer == "b.1":
            lost.append(batch)
            return Outcome()
        return process(self, batch)

    monkeypatch.setattr(Processing, "process", losing)

    async def run() -> int:
        async with Groups("a", "b") as groups:
            await groups.begin(job, {"read": ["a.1"], "split": ["b.1", "b.2"], "write": ["a.2"]}, 3)
            await groups.completed()
            return groups.runners["a"].statistics()["a.1"].replayed

    replayed = await run()
    assert replayed == len(lost[0].segments) > 0
    assert sorted(segment["at"] for segment in out) == sorted(
        f"{n}.{part}" for n in range(50) for part in range(3)
    )


async def test_an_exception_kills_the_job_and_says_where(out: list[Any], request: Any) -> None:
    job = spread(request.node.name, 50)
    split_and_fail = attrs.evolve(job.task("write"), function=f"{HERE}:fail_on_ring")
    job = attrs.evolve(job, catalog=(job.task("read"), job.task("split"), split_and_fail))

    async def run() -> str:
        async with Groups("a") as groups:
            await groups.begin(job, {"read": ["a.1"], "split": ["a.2"], "write": ["a.3"]}, 3)
            return await groups.killed()

    reason = await run()
    assert "job spread, task write" in reason
    assert "fail_on_ring raised ValueError: no rings here" in reason
    assert "'word': 'ring'" in reason


def changed(job: Job, name: str, **more: Any) -> Job:
    """The job with another task of this name."""
    return attrs.evolve(
        job,
        catalog=tuple(attrs.evolve(task, **more) if task.name == name else task for task in job.catalog),
    )


SPREAD = spread("nobody", 50)
COUNTED = word_count("nobody", 50, Delivery.EXACTLY_ONCE_STATE)
RAISING = Predicate(f"{HERE}:raise_on")


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (
            changed(SPREAD, "write", group_by=GroupBy(function=f"{HERE}:raise_on")),
            "task split: group_by of task write raised ValueError: not this one on {'word':",
        ),
        (
            attrs.evolve(
                changed(SPREAD, "write", group_by=GroupBy(function=f"{HERE}:raise_on")),
                delivery=Delivery.BEST_EFFORT,
            ),
            "task split: group_by of task write raised ValueError: not this one on {'word':",
        ),
        (
            attrs.evolve(SPREAD, flow_conditions=(FlowCondition("split", ("write",), RAISING),)),
            "task split: a flow condition raised ValueError: not this one",
        ),
        (
            attrs.evolve(COUNTED, flow_conditions=(FlowCondition("count", ("write",), RAISING),)),
            "task count: a flow condition raised ValueError: not this one",
        ),
        (
            attrs.evolve(
                changed(SPREAD, "split", function=f"{HERE}:raise_on"),
                flow_conditions=(FlowCondition("split", ("write",), RAISING, True, on_exception=True),),
            ),
            "task split: a flow condition raised ValueError: not this one",
        ),
        (
            attrs.evolve(
                changed(SPREAD, "split", function=f"{HERE}:raise_on"),
                lifecycles=(Lifecycle("split", f"{HERE}:RaisingVerdict"),),
            ),
            "raise_on raised ValueError: not this one on {'number': .*}; and handle_exception raised OSError: no verdict",
        ),
        (
            attrs.evolve(
                COUNTED,
                windows=(attrs.evolve(COUNTED.windows[0], aggregation=Aggregation(f"{HERE}:Unplain")),),
            ),
            "task count: the state of windows raised TypeError: .*set",
        ),
    ],
)
async def test_whatever_of_a_users_fails_kills_the_job_instead_of_failing_again_and_again(
    job: Job, reason: str
) -> None:
    """An exception that nobody had thought of would be the virtual peer's failure, and come again with the next attempt."""
    check(job)

    async def run() -> str:
        async with Groups("a") as groups:
            await groups.begin(job, {task.name: [f"a.{n}"] for n, task in enumerate(job.catalog)}, 3)
            return await groups.killed()

    assert re.search(reason, (await run()))
