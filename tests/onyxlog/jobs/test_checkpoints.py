"""When checkpoints are taken and complete, and which parts nobody needs any more."""

from __future__ import annotations

import pytest

from onyxlog.errors import EntryError
from onyxlog.jobs.barriers import Barrier, WorkerKey
from onyxlog.jobs.checkpoints import (
    Checkpoint,
    CheckpointCoordinator,
    CompletedCheckpoint,
    barrier_path,
    decode_checkpoint,
    encode_checkpoint,
    latest_path,
    part_path,
    version_path,
)
from onyxlog.jobs.segments import canonical

A, B = WorkerKey("a", 0), WorkerKey("b", 3)


def coordinator(last: Checkpoint | None = None, version: int = 9) -> CheckpointCoordinator:
    return CheckpointCoordinator("job", version, [A, B], interval_ticks=10, timeout_ticks=30, last=last)


def of(completed: CompletedCheckpoint | None) -> Checkpoint:
    assert completed is not None
    return completed.checkpoint


def test_a_checkpoint_is_taken_every_interval_and_one_at_a_time() -> None:
    c = coordinator()
    assert [c.tick(now) for now in (100, 109)] == [None, None]
    assert c.tick(110) == Barrier(9, 1)
    assert c.tick(125) is None
    c.on_stored(A, Barrier(9, 1))
    assert of(c.on_stored(B, Barrier(9, 1))).barrier == Barrier(9, 1)
    assert c.tick(126) == Barrier(9, 2)


def test_a_checkpoint_is_complete_when_all_workers_have_stored() -> None:
    c = coordinator()
    barrier = c.begin(0)
    assert c.on_stored(B, barrier) is None
    assert c.on_stored(B, barrier) is None
    assert of(c.on_stored(A, barrier)) == Checkpoint("job", barrier, {A: barrier, B: barrier})
    assert c.under_way is None


def test_what_strangers_and_late_ones_tell_does_nothing() -> None:
    c = coordinator()
    barrier = c.begin(0)
    c.on_stored(A, barrier)
    assert c.on_stored(WorkerKey("b", 4), barrier) is None
    assert c.on_stored(B, Barrier(8, barrier.number)) is None
    assert c.on_stored(B, Barrier(9, barrier.number - 1)) is None
    assert c.on_finished(B, Barrier(8, 1)) is None
    assert c.under_way == barrier


def test_a_checkpoint_that_is_not_complete_in_time_is_given_up_and_its_parts_are_over() -> None:
    c = coordinator()
    first = c.begin(0)
    c.on_stored(A, first)
    assert c.tick(29) is None
    second = c.tick(30)
    assert second == Barrier(9, 2)
    assert c.given_up == 1
    assert c.on_stored(B, first) is None
    c.on_stored(A, second)
    assert c.on_stored(B, second) == CompletedCheckpoint(
        Checkpoint("job", second, {A: second, B: second}), (barrier_path("job", first),)
    )


def test_numbers_go_on_after_a_checkpoint_of_an_older_allocation_whose_parts_are_over_then() -> None:
    old = Checkpoint("job", Barrier(5, 41), {A: Barrier(5, 41), B: Barrier(5, 40)})
    c = coordinator(last=old)
    barrier = c.begin(0)
    assert barrier == Barrier(9, 42)
    c.on_stored(A, barrier)
    completed = c.on_stored(B, barrier)
    assert completed is not None
    assert completed.over == (version_path("job", 5),)
    assert all(old.path_of(worker).startswith(completed.over[0] + "/") for worker in (A, B))


def test_a_worker_that_finished_stays_in_all_later_checkpoints_with_its_last_state() -> None:
    c = coordinator()
    first = c.begin(0)
    c.on_stored(A, first)
    assert of(c.on_finished(B, first)).parts == {A: first, B: first}
    second = c.begin(10)
    completed = c.on_stored(A, second)
    assert of(completed).parts == {A: second, B: first}
    assert completed is not None
    assert completed.over == (), "the part of B still stands at the first"
    third = c.begin(20)
    completed = c.on_stored(A, third)
    assert completed is not None
    assert completed.over == (barrier_path("job", second),)


def test_a_worker_that_stored_and_finished_afterwards_belongs_to_the_checkpoint_with_what_it_stored() -> None:
    c = coordinator()
    barrier = c.begin(0)
    c.on_stored(B, barrier)
    assert c.on_finished(B, Barrier(9, 2)) is None
    assert of(c.on_stored(A, barrier)).parts == {A: barrier, B: barrier}
    second = c.begin(10)
    assert of(c.on_stored(A, second)).parts == {A: second, B: Barrier(9, 2)}


def test_no_more_checkpoints_are_taken_once_all_workers_have_finished() -> None:
    c = coordinator()
    c.tick(0)
    c.on_finished(A, Barrier(9, 1))
    c.on_finished(B, Barrier(9, 1))
    assert c.tick(1000) is None


def test_paths_tell_job_version_number_task_and_slot() -> None:
    assert latest_path("j") == "checkpoints/j/latest"
    assert part_path("j", Barrier(9, 4), B) == "checkpoints/j/parts/9/4/b-3"


def test_a_checkpoint_is_the_same_after_it_was_stored() -> None:
    checkpoint = Checkpoint("job", Barrier(9, 4), {B: Barrier(9, 3), A: Barrier(9, 4)})
    again = decode_checkpoint(encode_checkpoint(checkpoint), "here")
    assert again == checkpoint
    assert again.parts == checkpoint.parts


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", canonical({}), canonical([1, "j", 1, 1]), canonical([1, "j", 1, "1", []]),
     canonical([1, "j", 1, 1, [["a", 0, 1]]]), canonical([1, 5, 1, 1, []]), canonical([1, "j", 1, 1, 3])],
)  # fmt: skip
def test_bytes_that_are_no_checkpoint_are_an_error_with_the_znode(data: bytes) -> None:
    with pytest.raises(EntryError, match=r"^checkpoints/j/latest: not a checkpoint: "):
        decode_checkpoint(data, "checkpoints/j/latest")


def test_a_checkpoint_of_a_later_format_is_refused() -> None:
    with pytest.raises(EntryError, match="a checkpoint of format 2, this version reads 1"):
        decode_checkpoint(canonical([2, "j", 1, 1, []]), "here")
