"""Whose checkpoint counts: coordinators that have not heard of their end complete nothing that anybody begins from."""

from __future__ import annotations

import asyncio

import pytest

from onyxlog.errors import EntryError
from onyxlog.jobs.barriers import Barrier, WorkerKey
from onyxlog.jobs.checkpoints import Checkpoint, CompletedCheckpoint
from onyxlog.tasks.checkpoints import CheckpointStore, forget_checkpoints
from tests.onyxlog.simulation.memory_log import MemoryLog, MemoryPort

READ = WorkerKey("read", 0)


def checkpoint(version: int, number: int) -> Checkpoint:
    barrier = Barrier(version, number)
    return Checkpoint("job", barrier, {READ: barrier})


def completed(version: int, number: int, *over: str) -> CompletedCheckpoint:
    return CompletedCheckpoint(checkpoint(version, number), over)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def port(log: MemoryLog) -> MemoryPort:
    return log.open()


@pytest.fixture
def store(port: MemoryPort) -> CheckpointStore:
    return CheckpointStore(port, "job")


async def test_a_version_begins_from_what_the_one_before_completed(
    store: CheckpointStore, port: MemoryPort
) -> None:
    assert await store.take_over(3) is None
    assert await store.complete(3, completed(3, 1))
    assert await store.complete(3, completed(3, 2))
    assert await store.take_over(8) == checkpoint(3, 2)
    assert await store.take_over(11) == checkpoint(3, 2)


async def test_a_coordinator_that_was_overtaken_completes_nothing_that_counts_and_removes_nothing(
    store: CheckpointStore, port: MemoryPort
) -> None:
    await store.take_over(3)
    await port.put_state("checkpoints/job/parts/3/1/read-0", b"needed")
    await store.complete(3, completed(3, 1))
    assert await store.take_over(8) == checkpoint(3, 1)
    assert not await store.complete(3, completed(3, 2, "checkpoints/job/parts/3/1"))
    assert await port.state("checkpoints/job/parts/3/1/read-0") == b"needed"
    assert await store.take_over(9) == checkpoint(3, 1)


async def test_what_is_completed_while_another_takes_over_is_seen_by_him_or_sees_him() -> None:
    """In all interleavings: the parts of the checkpoint that he begins from are not removed."""
    lost = []
    for steps in range(40):
        log = MemoryLog()

        async def run(steps: int = steps, log: MemoryLog = log) -> None:
            old, new = CheckpointStore(log.open(), "job"), CheckpointStore(log.open(), "job")
            await old.take_over(3)
            for number in (1, 2):
                await old.put_part(Barrier(3, number), READ, {"number": number})
            await old.complete(3, completed(3, 1))
            completing = asyncio.ensure_future(old.complete(3, completed(3, 2, "checkpoints/job/parts/3/1")))
            for _ in range(steps):
                await asyncio.sleep(0)
            found = await new.take_over(8)
            await completing
            assert found is not None
            try:
                parts = await new.parts(found, "read", [0])
            except EntryError:
                lost.append(steps)
            else:
                assert parts == {0: {"number": found.barrier.number}}
            assert await new.take_over(9) == found

        await run()
    assert not lost


async def test_a_job_begins_from_the_checkpoint_of_another_until_it_has_its_own(
    store: CheckpointStore, port: MemoryPort
) -> None:
    await store.complete(3, completed(3, 4))
    other = CheckpointStore(port, "other")
    assert await other.take_over(20, "job") == checkpoint(3, 4)
    own = Checkpoint("other", Barrier(20, 5), {})
    await other.complete(20, CompletedCheckpoint(own, ()))
    assert await other.take_over(23, "job") == own
    assert await CheckpointStore(port, "third").take_over(23, "nobody") is None


async def test_what_is_over_is_removed(log: MemoryLog, store: CheckpointStore) -> None:
    await store.take_over(3)
    await store.put_part(Barrier(3, 1), READ, {})
    await store.complete(3, completed(3, 1))
    await store.take_over(8)
    await store.complete(8, completed(8, 2, "checkpoints/job/parts/3"))
    assert sorted(log.states) == ["checkpoints/job/latest/0000000008"]


async def test_versions_that_never_completed_a_checkpoint_leave_nothing_once_a_later_one_has(
    log: MemoryLog, store: CheckpointStore
) -> None:
    """However often workers come and go, a job's state takes no more room."""
    for version in (3, 5, 8):
        await store.take_over(version)
        await store.put_part(Barrier(version, 1), READ, {})
    await store.put_part(Barrier(3, 2), READ, {})
    await store.complete(8, completed(8, 1))
    assert sorted(log.states) == [
        "checkpoints/job/latest/0000000008",
        "checkpoints/job/parts/8/1/read-0",
    ]


async def test_a_jobs_checkpoints_can_be_forgotten(
    log: MemoryLog, store: CheckpointStore, port: MemoryPort
) -> None:
    await store.take_over(3)
    await store.put_part(Barrier(3, 1), READ, {})
    await port.put_state("positions/job/read/0", b"7")
    await port.put_state("positions/job2/read/0", b"7")
    await forget_checkpoints(port, "job")
    assert list(log.states) == ["positions/job2/read/0"]


async def test_a_part_that_is_missing_or_damaged_is_named(store: CheckpointStore, port: MemoryPort) -> None:
    with pytest.raises(EntryError, match="state/checkpoints/job/parts/3/1/read-0: expected a part"):
        await store.parts(checkpoint(3, 1), "read", [0])
    await port.put_state("checkpoints/job/parts/3/1/read-0", b"x")
    with pytest.raises(EntryError, match="state/checkpoints/job/parts/3/1/read-0: not a part"):
        await store.parts(checkpoint(3, 1), "read", [0])
