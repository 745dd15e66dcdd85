"""Jobs to begin from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import evolve

from onyxlog.jobs.aggregates import Aggregation
from onyxlog.jobs.flow_conditions import Action, FlowCondition
from onyxlog.jobs.grouping import GroupBy
from onyxlog.jobs.lifecycles import Lifecycle
from onyxlog.jobs.predicates import Predicate
from onyxlog.jobs.specification import Job, Plugin, Task, TaskKind
from onyxlog.jobs.triggers import Evict, Punctuation, Segments, Trigger, Watermark
from onyxlog.jobs.windows import Extent, Fixed, Global, Session, Sliding, Window
from onyxlog.scheduling.requirements import FluxPolicy

HERE = "tests.onyxlog.jobs.functions"


def word_count(**changes: Any) -> Job:
    job = Job(
        id="words",
        workflow=(("lines", "split"), ("split", "count"), ("count", "store")),
        catalog=(
            Task(
                "lines", TaskKind.INPUT, plugin=Plugin("sequence", {"segments": [{"line": "to be or not"}]})
            ),
            Task("split", function=f"{HERE}:split", params={"separator": " "}, batch_size=100),
            Task(
                "count",
                TaskKind.REDUCE,
                group_by=GroupBy(("word",)),
                flux=FluxPolicy.RECOVER,
                min_peers=2,
                max_peers=4,
            ),
            Task("store", TaskKind.OUTPUT, plugin=Plugin("dictionary"), tags=("disk", "big", "disk")),
        ),
        windows=(Window("all", "count", Global(), Aggregation("count")),),
        triggers=(Trigger("told", "all", Segments(1000), emit="result"),),
    )
    return evolve(job, **changes)


def with_everything() -> Job:
    """A job with something of every class."""
    anything = Predicate(
        any_of=(
            Predicate(f"{HERE}:always"),
            Predicate(all_of=(Predicate(f"{HERE}:above", {"limit": 3}), Predicate(f"{HERE}:even"))),
            Predicate(none_of=(Predicate(f"{HERE}:always"),)),
        )
    )
    return word_count(
        flow_conditions=(
            FlowCondition(
                "split",
                ("count",),
                Predicate(f"{HERE}:is_arithmetic"),
                short_circuit=True,
                on_exception=True,
                transform=f"{HERE}:described",
            ),
            FlowCondition(
                "lines", (":none",), Predicate(f"{HERE}:always"), short_circuit=True, action=Action.RETRY
            ),
            FlowCondition("split", (":all",), anything, exclude_keys=("secret",)),
        ),
        lifecycles=(Lifecycle(":all", f"{HERE}:FIRST", {"p": 1}), Lifecycle("split", f"{HERE}:SECOND")),
        windows=(
            Window("all", "count", Global(), Aggregation("by-key", "word", Aggregation("sum", "n"))),
            Window("hours", "count", Fixed(3_600_000, 5), Aggregation("average", "n"), "at"),
            Window("recent", "count", Sliding(60_000, 15_000), Aggregation("conj"), "at"),
            Window(
                "visits", "count", Session(30_000), Aggregation(f"{HERE}:Longest", params={"least": 2}), "at"
            ),
        ),
        triggers=(
            Trigger("told", "all", Segments(1000), emit="result"),
            Trigger(
                "hourly", "hours", Watermark(delay_ms=10), emit=f"{HERE}:emit_twice", params={"label": "h"}
            ),
            Trigger("marks", "recent", Punctuation(Predicate(f"{HERE}:is_mark")), sync=f"{HERE}:remember"),
            Trigger("ends", "visits", Watermark(), emit="result", evict=Evict.ALL),
        ),
        metadata={"owner": "us", "tags": [1, None, 2.5, b"x"]},
    )


def sessions(extents: Iterable[Extent]) -> tuple[Extent, ...]:
    """All stretches that overlap made one; sorted. In whatever order they come, the result is the same."""
    merged: list[Extent] = []
    for extent in sorted(extents):
        if merged and extent.start < merged[-1].end:
            merged[-1] = Extent(merged[-1].start, max(merged[-1].end, extent.end))
        else:
            merged.append(extent)
    return tuple(merged)
