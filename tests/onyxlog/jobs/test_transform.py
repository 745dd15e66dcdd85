"""A task's function over a batch: an answer for each segment, whatever the function does."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from onyxlog.errors import WorkflowError
from onyxlog.jobs.functions import resolve
from onyxlog.jobs.specification import Task
from onyxlog.jobs.transform import AnswerError, Failed, Transform, segments_of, transform
from tests.onyxlog.jobs.samples import HERE

BATCH = [{"n": 1}, {"n": 2}]


def of(name: str, bulk: bool = False, **params: Any) -> Transform:
    made = transform(Task("t", function=f"{HERE}:{name}", bulk=bulk, params=params))
    assert made is not None
    return made


def test_a_task_without_a_function_has_none() -> None:
    assert transform(Task("t")) is None


def test_a_function_may_answer_many_segments_one_or_none() -> None:
    assert of("split", separator=",")([{"line": "a,b"}, {"line": "c"}]) == [
        [{"word": "a"}, {"word": "b"}],
        [{"word": "c"}],
    ]
    assert of("drop")(BATCH) == [[], []]


def test_a_segment_whose_function_raises_does_not_keep_others_from_theirs() -> None:
    failed, fine = of("fails_on_odd")(BATCH)
    assert isinstance(failed, Failed)
    assert isinstance(failed.exception, ArithmeticError)
    assert fine == [{"n": 2}]


def test_a_bulk_function_answers_for_all_segments_of_a_batch() -> None:
    assert of("doubled", bulk=True)(BATCH) == [[{"n": 1}] * 2, [{"n": 2}] * 2]


@pytest.mark.parametrize(
    ("name", "bulk", "message"),
    [
        ("wrong", False, "expected a segment, a list of segments or None, found 'no segment'"),
        ("wrong_in_list", False, "expected a list of segments, found one with 3"),
        (
            "one_too_few",
            True,
            "a function with `bulk` answers a list with an item for each of 2 segments, found 1 items",
        ),
        ("drop", True, "a list with an item for each of 2 segments, found None"),
    ],
)
def test_a_wrong_answer_is_the_failure_of_its_segments(name: str, bulk: bool, message: str) -> None:
    answers = of(name, bulk=bulk)(BATCH)
    assert len(answers) == 2
    for answer in answers:
        assert isinstance(answer, Failed)
        assert isinstance(answer.exception, AnswerError)
        assert message in str(answer.exception)


def test_a_huge_wrong_answer_makes_no_huge_message() -> None:
    with pytest.raises(AnswerError) as caught:
        segments_of("x" * 10_000)
    assert len(str(caught.value)) < 400


def test_a_function_is_given_the_resources_that_lifecycles_have_made_until_then() -> None:
    resources: dict[str, Any] = {}
    made = transform(
        Task("t", function=f"{HERE}:looked_up", params={"suffix": "!"}, resources=("names",)),
        "task",
        resources,
    )
    assert made is not None
    (failed,) = made([{"n": 1}])
    assert isinstance(failed, Failed)
    assert "no lifecycle has made 'names'" in str(failed.exception)
    resources |= {"names": {1: "one"}, "other": 5}
    assert made([{"n": 1}]) == [[{"n": 1, "name": "one!"}]]


def test_tuples_and_other_maps_are_taken_too() -> None:
    proxy = MappingProxyType({"n": 1})
    assert segments_of(proxy) == [proxy]
    assert segments_of((proxy, {"n": 2})) == [proxy, {"n": 2}]
    assert segments_of([]) == []


def test_a_function_that_is_not_there_is_told_before_anything_runs() -> None:
    with pytest.raises(WorkflowError, match=r"task: function: .* has no 'splitt' \(did you mean 'split'\?\)"):
        of("splitt")


def test_a_module_that_raises_when_it_is_imported_is_told_like_one_that_is_not_there() -> None:
    with pytest.raises(
        WorkflowError, match=r"module 'tests\.onyxlog\.jobs\.broken' raises RuntimeError .*: no licence"
    ):
        resolve("tests.onyxlog.jobs.broken:f")
