"""All windows of a task together: what they emit, what they do, and one snapshot of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from onyxlog.errors import EntryError
from onyxlog.jobs.aggregates import Aggregation
from onyxlog.jobs.segments import canonical
from onyxlog.jobs.specification import Job
from onyxlog.jobs.task_windows import TaskWindows
from onyxlog.jobs.triggers import Complete, Segments, Trigger, Watermark
from onyxlog.jobs.windows import EVERYTHING, Fixed, Global, Window
from tests.onyxlog.jobs.functions import TOLD
from tests.onyxlog.jobs.samples import HERE, word_count


@pytest.fixture(autouse=True)
def told() -> Iterator[None]:
    TOLD.clear()
    yield
    TOLD.clear()


def job() -> Job:
    return word_count(
        windows=(
            Window("all", "count", Global(), Aggregation("count")),
            Window("tens", "count", Fixed(10), Aggregation("sum", "n"), "at"),
        ),
        triggers=(
            Trigger("total", "all", Segments(2), emit="result"),
            Trigger(
                "both",
                "tens",
                Watermark(),
                emit=f"{HERE}:emit_twice",
                sync=f"{HERE}:remember",
                params={"label": "x"},
            ),
            Trigger("silent", "all", Complete(), sync=f"{HERE}:remember"),
        ),
    )


BATCH = [{"word": "to", "n": 1, "at": 1}, {"word": "be", "n": 5, "at": 12}, {"word": "to", "n": 3, "at": 3}]


def test_what_fires_is_emitted_and_done() -> None:
    windows = TaskWindows(job(), "count")
    assert windows
    firings = windows.apply(BATCH) + windows.apply([{"word": "be", "n": 7, "at": 25}])
    assert [(firing.trigger, firing.group, firing.result) for firing in firings] == [
        ("total", "to", 2),
        ("both", "to", 1),
        ("both", "to", 4),
        ("total", "be", 2),
        ("both", "be", 5),
    ]
    emitted = windows.emitted(firings)
    assert emitted[0] == {"group": "to", "start": EVERYTHING.start, "end": EVERYTHING.end, "result": 2}
    assert emitted[1:3] == [{"label": "x", "result": 1}] * 2
    assert len(emitted) == 8
    assert TOLD == []
    windows.sync(firings)
    assert [firing for firing in firings if firing.trigger == "both"] == TOLD


def test_the_end_of_the_input_tells_the_rest() -> None:
    windows = TaskWindows(job(), "count")
    windows.apply(BATCH)
    firings = windows.complete()
    assert sorted((firing.trigger, firing.group, firing.result) for firing in firings) == [
        ("both", "be", 5),
        ("silent", "be", 1),
        ("silent", "to", 2),
        ("total", "be", 1),
    ]
    assert [firing.trigger for firing in firings if not windows.emitted([firing])] == ["silent", "silent"]


def test_one_snapshot_holds_all_windows_and_new_ones_begin_empty() -> None:
    windows = TaskWindows(job(), "count")
    windows.apply(BATCH)
    again = TaskWindows(job(), "count")
    again.restore([windows.snapshot()])
    assert again.snapshot() == windows.snapshot()
    assert len(again) == len(windows) == 4
    other = evolve(
        job(),
        windows=(job().windows[0], Window("new", "count", Global(), Aggregation("count"))),
        triggers=(job().triggers[0], Trigger("t", "new", Complete(), emit="result")),
    )
    changed = TaskWindows(other, "count")
    changed.restore([windows.snapshot()])
    assert [firing.window for firing in changed.complete()] == ["all"]


def test_a_task_without_windows_has_none() -> None:
    windows = TaskWindows(job(), "split")
    assert not windows
    assert windows.grouping is None
    assert windows.apply([{"a": 1}]) == windows.complete() == windows.tick(5) == []


@pytest.mark.parametrize(
    "snapshot",
    [
        b"",
        canonical([2, {"keys": ["word"]}, {}]),
        canonical([1, {"keys": ["word"]}, []]),
        canonical([1, None, {}]),
        canonical(5),
    ],
)
def test_bytes_that_are_no_snapshot_of_a_task_are_an_error(snapshot: bytes) -> None:
    with pytest.raises(EntryError, match="a checkpoint of a task's windows cannot be read"):
        TaskWindows(job(), "count").restore([snapshot])


def test_clocks_and_time_reach_all_windows() -> None:
    windows = TaskWindows(job(), "count")
    windows.apply(BATCH[:2])
    assert windows.tick(1_000) == []
    assert [firing.result for firing in windows.apply([{"word": "or", "n": 1, "at": 100}])] == [5]
