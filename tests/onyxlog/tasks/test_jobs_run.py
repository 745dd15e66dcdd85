"""Jobs run to their end, over real connections on loopback, whatever happens to workers meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onyxlog.jobs.aggregates import Aggregation
from onyxlog.jobs.grouping import GroupBy
from onyxlog.jobs.specification import Delivery, Job, Plugin, Task, TaskKind
from onyxlog.jobs.triggers import Complete, Trigger
from onyxlog.jobs.validation import check
from onyxlog.jobs.windows import Global, Window
from onyxlog.plugins.collecting import collected, forget
from onyxlog.replica.commands import CompleteJob, ExhaustInput, SealOutput, SignalReady
from onyxlog.tasks.runner import RunnerSettings
from tests.onyxlog.tasks.attempts import Groups
from tests.onyxlog.tasks.functions import counts, split

HERE = "tests.onyxlog.tasks.functions"


@pytest.fixture
def out(request: pytest.FixtureRequest) -> Any:
    name = request.node.name
    forget(name)
    yield collected(name)
    forget(name)


def word_count(name: str, lines: int, delivery: Delivery, **more: Any) -> Job:
    """Windows count, so this is for state that is exactly-once."""
    return Job(
        id="words",
        workflow=(("read", "split"), ("split", "count"), ("count", "write")),
        catalog=(
            Task(
                "read",
                TaskKind.INPUT,
                plugin=Plugin("generated", {"function": f"{HERE}:line", "count": lines, "partitions": 4}),
                batch_size=20,
            ),
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
            Task(
                "read",
                TaskKind.INPUT,
                plugin=Plugin("generated", {"function": f"{HERE}:line", "count": lines, "partitions": 3}),
                batch_size=20,
            ),
            Task("split", function=f"{HERE}:split"),
            Task("write", TaskKind.OUTPUT, plugin=Plugin("collecting", {"name": name})),
        ),
        **more,
    )


WORDS_AT = {"read": ["a.1", "b.1"], "split": ["a.2", "b.2"], "count": ["a.3", "b.3", "c.1"], "write": ["c.2"]}


def result_of(written: list[Any]) -> dict[str, int]:
    return {segment["group"]: segment["result"] for segment in written}


@pytest.mark.parametrize("threads", [False, True])
def test_a_word_count_over_three_groups_counts_every_word_once(
    out: list[Any], threads: bool, request: Any
) -> None:
    job = word_count(request.node.name, 300, Delivery.EXACTLY_ONCE_STATE)
    check(job)

    async def run() -> Groups:
        async with Groups("a", "b", "c", settings=RunnerSettings(threads=threads)) as groups:
            await groups.begin(job, WORDS_AT, 7)
            await groups.completed()
            return groups

    groups = asyncio.run(run())
    assert len(out) == len(counts(300))
    assert result_of(out) == counts(300)
    appended = groups.appended
    assert [c for c in appended if not isinstance(c, SignalReady)] == [
        ExhaustInput("words", "read"),
        SealOutput("words", "write"),
        CompleteJob("words"),
    ]
    assert {c.peer for c in appended if isinstance(c, SignalReady)} == {
        p for ps in WORDS_AT.values() for p in ps
    }
    assert {c.allocation_version for c in appended if isinstance(c, SignalReady)} == {7}


@pytest.mark.parametrize("delivery", list(Delivery))
def test_every_segment_comes_through_once_when_nothing_fails(
    out: list[Any], delivery: Delivery, request: Any
) -> None:
    async def run() -> None:
        async with Groups("a", "b") as groups:
            job = spread(request.node.name, 200, delivery=delivery)
            await groups.begin(job, {"read": ["a.1", "b.1"], "split": ["a.2", "b.2"], "write": ["b.3"]}, 3)
            await groups.completed()

    asyncio.run(run())
    expected = [
        segment["at"] for number in range(200) for segment in split({"number": number, "line": "x y z"})
    ]
    assert sorted(segment["at"] for segment in out) == sorted(expected)
