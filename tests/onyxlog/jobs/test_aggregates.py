"""What aggregates make of segments; merging parts makes what all of them make."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onyxlog.errors import WorkflowError
from onyxlog.jobs.aggregates import Aggregation, aggregate
from onyxlog.jobs.segments import canonical, decoded
from tests.onyxlog.jobs.samples import HERE

SEGMENTS = [{"n": 3, "word": "to"}, {"n": -1, "word": "be"}, {"n": 7, "word": "to"}]
ALL = [
    (Aggregation("count"), 3),
    (Aggregation("sum", "n"), 9),
    (Aggregation("min", "n"), -1),
    (Aggregation("max", "n"), 7),
    (Aggregation("average", "n"), 3.0),
    (Aggregation("conj"), SEGMENTS),
    (Aggregation("conj", "n"), [3, -1, 7]),
    (Aggregation("by-key", "word"), {"to": 2, "be": 1}),
    (Aggregation("by-key", "word", Aggregation("conj", "n")), {"to": [3, 7], "be": [-1]}),
    (
        Aggregation("by-key", "word", Aggregation("by-key", "n", Aggregation("max", "n"))),
        {"to": {3: 3, 7: 7}, "be": {-1: -1}},
    ),
    (Aggregation(f"{HERE}:Longest"), "to"),
    (Aggregation(f"{HERE}:Longest", params={"least": 3}), ""),
]


@pytest.mark.parametrize(("aggregation", "expected"), ALL)
def test_an_aggregate_makes_of_segments_what_its_name_says(aggregation: Aggregation, expected: Any) -> None:
    of = aggregate(aggregation)
    assert of.result(reduce(of.add, SEGMENTS, of.initial())) == expected


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (Aggregation("count"), 0),
        (Aggregation("sum", "n"), 0),
        (Aggregation("min", "n"), None),
        (Aggregation("average", "n"), None),
        (Aggregation("conj"), []),
        (Aggregation("by-key", "n"), {}),
    ],
)
def test_an_aggregate_of_nothing_has_a_result(aggregation: Aggregation, expected: Any) -> None:
    of = aggregate(aggregation)
    assert of.result(of.initial()) == expected


segments = st.lists(
    st.fixed_dictionaries({"n": st.integers(-5, 5), "word": st.sampled_from(["to", "be", "or"])}), max_size=12
)


@pytest.mark.parametrize("aggregation", [aggregation for aggregation, _ in ALL], ids=lambda each: each.name)
@settings(max_examples=60)
@given(segments, st.integers(0, 12))
def test_merging_two_parts_makes_what_all_segments_make_and_states_survive_checkpoints(
    aggregation: Aggregation, of: list[Any], cut: int
) -> None:
    how = aggregate(aggregation)
    whole = how.result(reduce(how.add, of, how.initial()))
    parts = [reduce(how.add, part, how.initial()) for part in (of[:cut], of[cut:])]
    stored = [decoded(canonical(part)) for part in parts]
    assert stored == parts
    assert how.result(how.merge(*stored)) == whole
    if not aggregation.name.endswith("conj") and aggregation.of is None:
        assert how.result(how.merge(*[decoded(canonical(part)) for part in reversed(parts)])) == whole


@pytest.mark.parametrize("aggregation", [aggregation for aggregation, _ in ALL], ids=lambda each: each.name)
def test_a_result_does_not_change_when_more_is_added(aggregation: Aggregation) -> None:
    how = aggregate(aggregation)
    state = reduce(how.add, SEGMENTS, how.initial())
    before = how.result(state)
    told = canonical(before)
    reduce(how.add, SEGMENTS, state)
    assert canonical(before) == told


def test_sums_of_integers_are_exact_however_large() -> None:
    how = aggregate(Aggregation("sum", "n"))
    many = [{"n": 2**53 + 1}] * 3
    assert how.result(reduce(how.add, many, how.initial())) == 3 * (2**53 + 1)


def test_an_unknown_aggregate_is_told_with_the_nearest() -> None:
    with pytest.raises(
        WorkflowError, match=r"here: no aggregate 'averge' \(did you mean 'average'\?\): expected"
    ):
        aggregate(Aggregation("averge", "n"), "here")


def test_a_segment_without_the_key_is_an_error_not_a_guess() -> None:
    how = aggregate(Aggregation("sum", "n"))
    with pytest.raises(KeyError):
        how.add(how.initial(), {"m": 1})
