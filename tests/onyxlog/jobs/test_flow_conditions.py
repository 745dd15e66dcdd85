"""Where segments go: conditions that decide alone, those that add up, exceptions, and keys that are left behind."""

from __future__ import annotations

from typing import Any

import pytest

from onyxlog.errors import WorkflowError
from onyxlog.jobs.flow_conditions import Action, FlowCondition, Route, Router, router
from onyxlog.jobs.predicates import Predicate, decider
from tests.onyxlog.jobs.samples import HERE

ALWAYS = Predicate(f"{HERE}:always")
NEVER = Predicate(none_of=(ALWAYS,))
EVEN = Predicate(f"{HERE}:even")
NEXT = ("a", "b", "c")


def above(limit: int) -> Predicate:
    return Predicate(f"{HERE}:above", {"limit": limit})


def made(*conditions: FlowCondition) -> Router:
    return router("task", conditions, NEXT)


def where(of: Router, n: int) -> Route:
    new = {"n": n}
    return of.route({}, new, [new])


def test_without_conditions_everything_goes_everywhere() -> None:
    assert made().everywhere == Route(NEXT)
    assert where(made(), 1) == Route(NEXT)


def test_conditions_of_other_tasks_do_not_count() -> None:
    assert made(FlowCondition("other", (":none",), ALWAYS, short_circuit=True)).everywhere == Route(NEXT)


def test_with_conditions_a_segment_for_which_none_holds_goes_nowhere() -> None:
    assert where(made(FlowCondition("task", ("a",), NEVER)), 1) == Route()


def test_conditions_that_hold_add_up_and_name_each_task_once() -> None:
    of = made(
        FlowCondition("task", ("a", "b"), EVEN, exclude_keys=("x",)),
        FlowCondition("task", ("b", "c"), above(5), exclude_keys=("x", "y")),
    )
    assert where(of, 2) == Route(("a", "b"), ("x",))
    assert where(of, 7) == Route(("b", "c"), ("x", "y"))
    assert where(of, 8) == Route(("a", "b", "c"), ("x", "y"))
    assert where(of, 1) == Route()


def test_the_first_short_circuit_that_holds_decides_alone() -> None:
    of = made(
        FlowCondition("task", ("a",), above(10), short_circuit=True),
        FlowCondition("task", (":none",), EVEN, short_circuit=True),
        FlowCondition("task", (":all",), ALWAYS),
    )
    assert where(of, 12) == Route(("a",))
    assert where(of, 2) == Route()
    assert where(of, 3) == Route(NEXT)


def test_predicates_after_one_that_decided_are_not_asked() -> None:
    of = made(
        FlowCondition("task", ("a",), ALWAYS, short_circuit=True),
        FlowCondition("task", ("b",), EVEN),
    )
    assert of.route({}, {}, [{}]) == Route(("a",))  # EVEN would raise KeyError


def test_a_condition_of_all_tasks_is_for_the_edges_that_a_task_has() -> None:
    errors = FlowCondition(":all", ("c", "errors"), ALWAYS)
    assert where(router("task", (errors,), ("b", "c")), 1) == Route(("c",))
    assert where(router("c", (errors,), ("errors",)), 1) == Route(("errors",))


def test_retry_goes_nowhere_and_says_so() -> None:
    of = made(FlowCondition("task", (":none",), EVEN, short_circuit=True, action=Action.RETRY))
    assert where(of, 2) == Route(retry=True)
    assert where(of, 1) == Route()


def test_predicates_get_the_old_segment_the_new_one_and_all_new_ones() -> None:
    seen: list[Any] = []

    def record(*of: Any) -> bool:
        seen.append(of)
        return True

    of = made(FlowCondition("task", ("a",), ALWAYS))
    object.__setattr__(of._normal[0], "test", record)
    old, new, other = {"n": 0}, {"n": 1}, {"n": 2}
    of.route(old, new, [new, other])
    assert seen == [(old, new, [new, other])]


def test_exceptions_go_where_their_own_conditions_say_and_become_segments() -> None:
    of = made(
        FlowCondition(
            "task",
            ("c",),
            Predicate(f"{HERE}:is_arithmetic"),
            short_circuit=True,
            on_exception=True,
            transform=f"{HERE}:described",
            exclude_keys=("secret",),
        ),
    )
    assert of.everywhere == Route(NEXT)
    assert of.exceptional({"n": 1}, ZeroDivisionError("by 0")) == (
        Route(("c",), ("secret",)),
        {"n": 1, "error": "by 0"},
    )
    assert of.exceptional({"n": 1}, KeyError("k")) is None


def test_an_exception_without_a_transform_sends_the_segment_itself() -> None:
    of = made(FlowCondition("task", ("c",), ALWAYS, short_circuit=True, on_exception=True))
    assert of.exceptional({"n": 1}, KeyError("k")) == (Route(("c",)), {"n": 1})


def test_excluded_keys_are_taken_out_of_a_copy() -> None:
    segment = {"a": 1, "b": 2}
    assert Route(("x",), ("b", "c")).stripped(segment) == {"a": 1}
    assert segment == {"a": 1, "b": 2}
    assert Route(("x",)).stripped(segment) is segment


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        (above(1), True),
        (above(3), False),
        (Predicate(all_of=(above(1), EVEN)), True),
        (Predicate(all_of=(above(1), above(3))), False),
        (Predicate(any_of=(above(3), EVEN)), True),
        (Predicate(any_of=(above(3), above(4))), False),
        (Predicate(none_of=(above(3), above(4))), True),
        (Predicate(none_of=(above(3), EVEN)), False),
        (Predicate(all_of=(Predicate(none_of=(above(3),)), Predicate(any_of=(EVEN,)))), True),
    ],
)
def test_predicates_combine(predicate: Predicate, holds: bool) -> None:
    new = {"n": 2}
    assert decider(predicate)({}, new, [new]) is holds


def test_no_more_parts_of_a_predicate_are_asked_than_needed() -> None:
    assert decider(Predicate(any_of=(ALWAYS, EVEN)))({}, {}, [])
    assert not decider(Predicate(all_of=(NEVER, EVEN)))({}, {}, [])
    assert not decider(Predicate(none_of=(ALWAYS, EVEN)))({}, {}, [])


def test_a_predicate_of_a_wrong_form_is_told() -> None:
    with pytest.raises(WorkflowError, match=r"flow_conditions\[0\]: predicate: expected one of"):
        made(FlowCondition("task", ("a",), Predicate()))
