"""A job as a value: one form for znodes and files, a hash that tells jobs apart, and errors that say where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import msgpack
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from onyxlog.errors import EntryError, WorkflowError
from onyxlog.jobs.plain import DEPTH_MAX, from_plain, to_plain
from onyxlog.jobs.segments import canonical
from onyxlog.jobs.specification import Job, Task, decode_job, encode_job, job_from_plain, job_hash
from onyxlog.jobs.validation import problems
from onyxlog.scheduling.requirements import FluxPolicy, TaskRequirements
from tests.onyxlog.jobs.samples import with_everything, word_count
from tests.onyxlog.jobs.strategies import jobs


def test_a_job_with_everything_is_the_same_after_messagepack_and_after_plain_values() -> None:
    job = with_everything()
    assert decode_job(encode_job(job), "/jobs/words") == job
    assert job_from_plain(to_plain(job)) == job


def test_a_job_is_the_same_after_json() -> None:
    job = evolve(with_everything(), metadata={})  # bytes have no JSON
    assert job_from_plain(json.loads(json.dumps(to_plain(job)))) == job


def test_what_is_as_by_default_is_not_written() -> None:
    assert to_plain(Task("split", function="a.b:c")) == {"name": "split", "function": "a.b:c"}


def test_equal_jobs_have_equal_hashes_however_maps_were_made() -> None:
    one = word_count(metadata={"a": 1, "b": {"x": 1, "y": 2}})
    other = word_count(metadata={"b": {"y": 2, "x": 1}, "a": 1})
    assert job_hash(one) == job_hash(other)
    assert encode_job(one) == encode_job(other)


@pytest.mark.parametrize(
    "changes",
    [{"pending_max": 1}, {"metadata": {"a": 1}}, {"id": "other"}, {"windows": ()}, {"percentage": 10}],
)
def test_another_job_has_another_hash(changes: dict[str, Any]) -> None:
    assert job_hash(word_count(**changes)) != job_hash(word_count())


def test_the_hash_does_not_hang_on_the_hash_seed_of_the_process() -> None:
    program = (
        "from tests.onyxlog.jobs.samples import with_everything\n"
        "from onyxlog.jobs.specification import job_hash\n"
        "print(job_hash(with_everything()).hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {job_hash(with_everything()).hex()}


def test_requirements_are_what_schedulers_need_and_nothing_else() -> None:
    requirements = word_count().requirements()
    assert requirements.id == "words"
    assert requirements.hash == job_hash(word_count())
    assert requirements.edges == (("lines", "split"), ("split", "count"), ("count", "store"))
    lines, split, count, store = requirements.tasks
    assert lines == TaskRequirements("lines", input=True)
    assert split == TaskRequirements("split")
    assert count == TaskRequirements("count", 2, 4, grouped=True, flux_policy=FluxPolicy.RECOVER)
    assert store == TaskRequirements("store", required_tags=("big", "disk"), output=True)


def test_neighbours_are_in_the_order_of_the_workflow() -> None:
    job = word_count(workflow=(("a", "c"), ("a", "b"), ("b", "c"), ("a", "c")))
    assert job.downstream("a") == ("c", "b")
    assert job.upstream("c") == ("a", "b")


def changed(*path: Any, to: Any) -> Any:
    """The plain form of a job with one thing in it replaced."""
    plain = json.loads(json.dumps(to_plain(word_count())))
    inner = plain
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return plain


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (
            changed("workfow", to=[]),
            "job: unknown 'workfow' (did you mean 'workflow'?); known are id, workflow,",
        ),
        (changed("id", to=3), "job: id: expected a string, found 3"),
        (
            changed("catalog", 1, "kind", to="functoin"),
            "job: catalog[1]: kind: expected one of input, function,",
        ),
        (changed("catalog", 1, "kind", to="functoin"), "found 'functoin' (did you mean 'function'?)"),
        (
            changed("catalog", 1, "batch_size", to="5"),
            "job: catalog[1]: batch_size: expected an integer, found '5'",
        ),
        (
            changed("catalog", 1, "batch_size", to=True),
            "job: catalog[1]: batch_size: expected an integer, found True",
        ),
        (changed("catalog", 1, "bulk", to=1), "job: catalog[1]: bulk: expected true or false, found 1"),
        (changed("catalog", 1, "params", to=[1]), "job: catalog[1]: params: expected a map, found [1]"),
        (changed("catalog", 1, to="split"), "job: catalog[1]: expected a map with name, kind, function,"),
        (changed("catalog", 1, to={}), "job: catalog[1]: 'name' is missing"),
        (changed("catalog", 2, "group_by", "kyes", to=[]), "group_by: unknown 'kyes' (did you mean 'keys'?)"),
        (changed("workflow", 0, to=["a"]), "job: workflow[0]: expected 2 items, found 1: ['a']"),
        (changed("workflow", 0, 1, to=None), "job: workflow[0][1]: expected a string, found None"),
        (changed("workflow", to="a -> b"), "job: workflow: expected a list, found 'a -> b'"),
        (
            changed("windows", 0, "over", to={"type": "fxied", "range": 5}),
            "job: windows[0]: over: type: expected one of fixed, sliding, global, session, found 'fxied' (did you mean",
        ),
        (changed("windows", 0, "over", to="fixed"), "job: windows[0]: over: 'range' is missing"),
        (
            changed("windows", 0, "over", to=5),
            "over: type: expected one of fixed, sliding, global, session, found 5",
        ),
        (changed("windows", 0, "over", to={"gap": 5}), "sliding, global, session, found None"),
        (
            changed("triggers", 0, "on", "cuont", to=5),
            "job: triggers[0]: on: unknown 'cuont' (did you mean 'count'?)",
        ),
        (changed("triggers", 0, "evict", to=None), "evict: expected one of none, all, found None"),
        ([], "job: expected a map with id, workflow,"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_where_it_is(plain: Any, message: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        job_from_plain(plain)
    assert message in str(caught.value)


def test_what_has_no_messagepack_is_told_with_where_it_is() -> None:
    with pytest.raises(WorkflowError, match=r"metadata: a\[0\]\.b is a set, where a plain value is expected"):
        job_from_plain({**to_plain(word_count()), "metadata": {"a": [{"b": {1}}]}})
    with pytest.raises(WorkflowError, match=r"metadata: a has the key 1, where a string is expected"):
        job_from_plain({**to_plain(word_count()), "metadata": {"a": {1: 2}}})
    with pytest.raises(WorkflowError, match=r"metadata: a is 18446744073709551616, beyond 64 bits"):
        job_from_plain({**to_plain(word_count()), "metadata": {"a": 2**64}})


def test_a_type_without_fields_may_be_written_as_its_name_alone() -> None:
    plain = changed("triggers", 0, "on", to="complete")
    assert job_from_plain(plain) == job_from_plain(changed("triggers", 0, "on", to={"type": "complete"}))


def test_nesting_is_bounded_so_that_no_file_exhausts_the_stack() -> None:
    deep: Any = "a.b:c"
    for _ in range(100_000):
        deep = {"none_of": [deep]}
    condition = {"source": "split", "to": ["count"], "predicate": deep}
    with pytest.raises(WorkflowError, match=f"nested deeper than {DEPTH_MAX}"):
        job_from_plain(changed("flow_conditions", to=[condition]))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        canonical({"id": 1}),
        canonical([1]),
        canonical([1, {}]),
        canonical([1, []]),
        b"\x91" * 100_000,
        encode_job(word_count())[:-1],
        encode_job(word_count()) + b"\x00",
    ],
)
def test_bytes_that_are_no_job_are_an_error_with_the_znode(data: bytes) -> None:
    with pytest.raises(EntryError, match=r"^/onyx/t/jobs/words: "):
        decode_job(data, "/onyx/t/jobs/words")


def test_a_job_of_a_later_format_is_refused() -> None:
    data = msgpack.packb([2, to_plain(word_count())])
    with pytest.raises(EntryError, match="a job of format 2, this version reads 1"):
        decode_job(data, "/jobs/words")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_never_anything_but_an_entry_error(data: bytes) -> None:
    with pytest.raises(EntryError):
        decode_job(data, "here")


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def refusal_of(plain: Any) -> str | None:
    try:
        job_from_plain(plain)
    except WorkflowError as error:
        return str(error)
    return None


@settings(max_examples=8)
@given(plain_values)
def test_arbitrary_plain_values_are_a_job_or_a_workflow_error(value: Any) -> None:
    """In every place of a job that is there."""
    base = to_plain(with_everything())
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, item in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(item, (dict, list)):
                walk(item)

    walk(base)
    assert len(places) > 100
    refused = 0
    for node, key in places:
        before, node[key] = node[key], value
        refused += refusal_of(base) is not None
        node[key] = before
    assert refused > 20
    assert job_from_plain(base) == with_everything()


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=3), plain_values, max_size=4))
def test_parameters_come_back_as_they_were(params: dict[str, Any]) -> None:
    task = Task("split", function="a:b", params=params)
    assert from_plain(Task, to_plain(task), "task") == task
    job = word_count(metadata=params)
    assert decode_job(encode_job(job), "here") == job


@settings(max_examples=30)
@given(jobs, jobs)
def test_any_job_comes_back_as_it_was_and_is_told_from_any_other(one: Job, other: Job) -> None:
    """Also from JSON, as there are no bytes in it; also those that cannot run, and validation says so in order."""
    assert decode_job(encode_job(one), "here") == one
    assert job_from_plain(json.loads(json.dumps(to_plain(one)))) == one
    assert (job_hash(one) == job_hash(other)) is (one == other)
    assert job_hash(evolve(one)) == job_hash(one)
    assert all(problem.startswith("job ") for problem in problems(one))
