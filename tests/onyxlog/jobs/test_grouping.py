"""Equal keys go to one worker, on every peer alike, and buckets are spread evenly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onyxlog.jobs import grouping as grouping_module
from onyxlog.jobs.grouping import BUCKETS, GroupBy, bucket_of, grouping, key_bytes, sources_of, table_of
from tests.onyxlog.jobs.samples import HERE

KEYS: list[Any] = ["word", "", "ä", 0, 1, -1, 2**63, 1.5, None, b"x", ["a", 1], {"b": 1, "a": [2]}]


def test_buckets_never_change_as_state_is_stored_by_them() -> None:
    assert [bucket_of(key) for key in KEYS] == GOLDEN


GOLDEN = [2118, 4044, 2623, 584, 2477, 3985, 305, 2485, 1368, 712, 3812, 2057]


def test_buckets_do_not_hang_on_the_hash_seed_of_the_process() -> None:
    program = (
        "from onyxlog.jobs.grouping import bucket_of\n"
        "from tests.onyxlog.jobs.test_grouping import KEYS\n"
        "print([bucket_of(key) for key in KEYS])"
    )
    for seed in ("0", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        found = subprocess.run(
            [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
        )
        assert found.stdout.strip() == str(GOLDEN)


numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.booleans()
scalars = numbers | st.text(max_size=4) | st.none() | st.binary(max_size=4)
keys = scalars | st.lists(scalars, max_size=3)


@settings(max_examples=150)
@given(keys, keys)
def test_keys_have_the_same_bytes_if_and_only_if_they_are_equal(one: Any, other: Any) -> None:
    assert (key_bytes(one) == key_bytes(other)) is (one == other)


@settings(max_examples=100)
@given(numbers)
def test_a_number_is_one_key_however_it_is_written(number: Any) -> None:
    forms = [number, [number]]
    if float(number) == number:
        forms += [float(number), [float(number)]]
    if abs(number) < 2**63 and int(number) == number:
        forms += [int(number), [int(number)]]
    assert len({bucket_of(form) for form in forms if not isinstance(form, list)}) == 1
    assert len({bucket_of(form) for form in forms if isinstance(form, list)}) == 1


@pytest.mark.parametrize("order", [(1, True, 1.0), (True, 1.0, 1), (1.0, 1, True)])
def test_what_was_asked_before_does_not_change_an_answer(order: tuple[Any, ...]) -> None:
    """The memory of buckets goes by Python's equality, so that one answer must do for all that are equal."""
    by = grouping(GroupBy(("k",)))
    assert {by.bucket({"k": key}) for key in order} == {bucket_of(1)}
    assert by.bucket({"k": "1"}) == bucket_of("1") != bucket_of(1)


def test_the_memory_of_buckets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping_module, "REMEMBERED", 10)
    by = grouping(GroupBy(("k",)))
    for number in range(35):
        assert by.bucket({"k": str(number)}) == bucket_of(str(number))
        assert len(by._buckets) <= 10
    assert by._buckets


def test_keys_are_one_value_several_values_or_what_a_function_says() -> None:
    segment = {"a": 1, "b": "x", "n": 7}
    assert grouping(GroupBy(("a",))).key(segment) == 1
    assert grouping(GroupBy(("a", "b", "c"))).key(segment) == [1, "x", None]
    assert grouping(GroupBy(("c",))).key(segment) is None
    assert grouping(GroupBy(function=f"{HERE}:parity")).key(segment) == 1


def test_a_key_that_is_not_plain_is_an_error() -> None:
    with pytest.raises(TypeError):
        bucket_of({1, 2})


slots = st.sets(st.integers(0, 60), min_size=1, max_size=40)


@settings(max_examples=50)
@given(slots)
def test_each_slot_has_one_run_of_buckets_and_none_is_longer_by_more_than_one(of: set[int]) -> None:
    table = table_of(list(of))
    assert len(table) == BUCKETS
    assert list(table) == sorted(table)
    sizes = Counter(table)
    assert set(sizes) == of
    assert max(sizes.values()) - min(sizes.values()) <= 1


def test_the_order_in_which_slots_are_named_does_not_matter() -> None:
    assert table_of([3, 1, 2]) == table_of([1, 2, 3])


def test_words_are_spread_over_workers() -> None:
    table = table_of(range(8))
    counts = Counter(table[bucket_of(f"word-{number}")] for number in range(8_000))
    assert min(counts.values()) > 850
    assert max(counts.values()) < 1150


@settings(max_examples=50)
@given(slots, slots)
def test_a_worker_reads_the_states_that_hold_its_buckets_and_no_others(old: set[int], new: set[int]) -> None:
    before, after = table_of(list(old)), table_of(list(new))
    for slot in new:
        needed = {before[bucket] for bucket in range(BUCKETS) if after[bucket] == slot}
        assert set(sources_of(slot, new, old, grouped=True)) == needed


@settings(max_examples=50)
@given(slots, slots)
def test_without_grouping_each_old_state_is_read_by_exactly_one_worker(old: set[int], new: set[int]) -> None:
    read = [source for slot in new for source in sources_of(slot, new, old, grouped=False)]
    assert sorted(read) == sorted(old)


def test_workers_that_stay_as_they_are_read_their_own_state_only() -> None:
    for grouped in (True, False):
        assert [sources_of(slot, [0, 2, 5], [5, 0, 2], grouped=grouped) for slot in (0, 2, 5)] == [
            (0,),
            (2,),
            (5,),
        ]
