"""Hooks are called where and in the order that the job says, with what the class `Hook` promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from onyxlog.errors import WorkflowError
from onyxlog.jobs.lifecycles import Hook, Hooks, Lifecycle, TaskContext, Verdict, hooks
from tests.onyxlog.jobs.functions import CALLS
from tests.onyxlog.jobs.samples import HERE


@pytest.fixture(autouse=True)
def calls() -> Iterator[list[Any]]:
    CALLS.clear()
    yield CALLS
    CALLS.clear()


def context() -> TaskContext:
    return TaskContext("job", "split", "peer-1", 0, {})


def of(*names: str, task: str = "split", params: dict[str, Any] | None = None) -> Hooks:
    return hooks("split", [Lifecycle(task, f"{HERE}:{name}", params or {}) for name in names])


def test_hooks_are_called_in_the_order_of_the_job_and_stopping_in_reverse(calls: list[Any]) -> None:
    both, given = of("FIRST", "SECOND"), context()
    assert both.may_start(given)
    both.after_read_batch(given, [{"n": 1}])
    both.after_task_stop(given, "killed")
    assert [call[:2] for call in calls] == [
        ("first", "start_task"),
        ("second", "start_task"),
        ("first", "after_read_batch"),
        ("second", "after_read_batch"),
        ("second", "after_task_stop"),
        ("first", "after_task_stop"),
    ]


def test_lifecycles_of_other_tasks_are_not_called_and_those_of_all_are() -> None:
    assert not of("FIRST", task="other").has(Hook.START_TASK)
    assert of("FIRST", task=":all").has(Hook.START_TASK)


def test_a_task_starts_only_if_nobody_objects() -> None:
    assert not of("FIRST", "UNWILLING", "SECOND").may_start(context())
    assert of().may_start(context())


def test_resources_of_earlier_hooks_are_there_for_later_ones(calls: list[Any]) -> None:
    given = context()
    of("FIRST", "SECOND").before_task_start(given)
    assert calls == [("first", "before_task_start", {}), ("second", "before_task_start", {"first": 1})]
    assert given.resources == {"first": 1, "second": 2}


def test_params_are_given_as_keywords(calls: list[Any]) -> None:
    of("FIRST", params={"a": 1}).may_start(context())
    assert calls == [("first", "start_task", {"a": 1})]


def test_the_first_that_does_not_defer_decides_about_an_exception(calls: list[Any]) -> None:
    assert of("FIRST", "SECOND").verdict(context(), "apply", KeyError()) is Verdict.RESTART
    assert [call[0] for call in calls] == ["first", "second"]
    assert of("SECOND", "FIRST").verdict(context(), Hook.BEFORE_BATCH, KeyError()) is Verdict.RESTART


def test_an_exception_that_everybody_defers_kills_the_job() -> None:
    assert of("FIRST").verdict(context(), "apply", KeyError()) is Verdict.KILL
    assert of().verdict(context(), "apply", KeyError()) is Verdict.KILL


def test_a_verdict_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="'raise' is not a valid Verdict"):
        of("RAISING").verdict(context(), "apply", KeyError())


def test_stopping_calls_everybody_although_some_raise(calls: list[Any]) -> None:
    with pytest.raises(OSError, match="raising") as caught:
        of("FIRST", "RAISING", "SECOND", "RAISING").after_task_stop(context(), "left")
    assert [call[0] for call in calls] == ["raising", "second", "raising", "first"]
    assert caught.value.__notes__ == ["also: OSError('raising')"]


def test_hooks_that_nobody_has_are_known_not_to_be_there() -> None:
    assert not of("FIRST").has(Hook.BEFORE_BATCH)
    assert of("FIRST").has(Hook.HANDLE_EXCEPTION)
    every = of("FIRST")
    every.before_batch(context())
    every.after_apply(context(), [], [])
    every.after_batch(context())
    every.after_ack(context(), [])
    every.after_retry(context(), [])
    assert CALLS == []


def test_an_object_without_any_hook_is_an_error_that_names_them() -> None:
    with pytest.raises(
        WorkflowError, match=r"lifecycles\[0\]: calls: .* has none of start_task, before_task_start"
    ):
        of("Misspelt")


def test_every_method_of_hooks_belongs_to_a_hook() -> None:
    """A hook that is named but never called would be a promise without effect."""
    methods = {name for name in vars(Hooks) if not name.startswith("_")} - {"has"}
    renamed = {Hook.START_TASK: "may_start", Hook.HANDLE_EXCEPTION: "verdict"}
    assert methods == {renamed.get(hook, hook.value) for hook in Hook}
