"""Groups on a log in memory: joining, dying, restarting, being overtaken by garbage collection."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from attrs import evolve

from onyxlog.api import Client, JobState
from onyxlog.errors import WorkflowError
from onyxlog.jobs.barriers import Barrier, WorkerKey
from onyxlog.jobs.checkpoints import Checkpoint, CompletedCheckpoint
from onyxlog.jobs.specification import Delivery, Job
from onyxlog.peer.backoff import PROVEN_S
from onyxlog.peer.group import PeerGroup
from onyxlog.peer.idle_runner import run_nothing
from onyxlog.peer.log.port import LogPort, first_origin
from onyxlog.peer.outbox import Outbox
from onyxlog.peer.settings import GroupSettings
from onyxlog.peer.turns import Append
from onyxlog.replica.commands import CompleteJob, GroupLeave, KillJob, Record, SubmitJob
from onyxlog.replica.replica import JoinMode, Parameters
from onyxlog.tasks.checkpoints import CheckpointStore
from tests.onyxlog.peer.fleets import Scene
from tests.onyxlog.peer.jobs import a_job
from tests.onyxlog.simulation.memory_log import MemoryLog
from zraft_client.errors import NotSentError, SessionExpiredError, UnknownOutcomeError

pytestmark = pytest.mark.loops("virtual")

BOTH = pytest.mark.parametrize("join", list(JoinMode))


@BOTH
async def test_groups_that_start_together_all_join_and_agree(join: JoinMode) -> None:
    scene = Scene(join)
    scene.start(7)
    replica = await scene.settled()
    assert len(replica.groups) == 7
    assert len(replica.peers) == 14
    assert not replica.orphans
    await scene.fleet.stop()
    assert not scene.log.ports


@BOTH
async def test_a_group_whose_session_expires_is_gone_and_comes_back_under_a_new_id(join: JoinMode) -> None:
    """O-10, D-19: the ring's watcher, or the session's will, writes the leave; the living group starts anew."""
    scene = Scene(join)
    groups = scene.start(4)
    before = await scene.settled()
    old = groups[2].id
    scene.log.expire(scene.port(groups[2]))
    after = await scene.settled()
    assert old not in after.groups
    assert groups[2].id in after.groups
    assert groups[2].incarnations == 2
    assert after.groups.keys() - before.groups.keys() == {groups[2].id}
    await scene.fleet.stop()


@BOTH
async def test_groups_that_die_at_once_are_all_noticed_and_the_ring_tightens(join: JoinMode) -> None:
    scene = Scene(join)
    groups = scene.start(9)
    await scene.settled()
    for group in groups[2:6]:
        port = scene.port(group)
        scene.log.hold(port)  # it does not even learn of it
        scene.log.expire(port)
        scene.fleet.groups.remove(group)
    replica = await scene.settled()
    assert len(replica.groups) == 5
    assert len(replica.peers) == 10
    for group in groups[2:6]:
        group.start().cancel()
    await scene.fleet.stop()


@BOTH
async def test_all_groups_die_at_once_and_new_ones_still_get_in(join: JoinMode) -> None:
    """Progress after the end of everybody: refused joiners look after a member each."""
    scene = Scene(join)
    dead = scene.start(3)
    await scene.settled()
    for group in dead:
        scene.log.hold(scene.port(group))
        scene.log.expire(scene.port(group))
        scene.fleet.groups.remove(group)
    scene.start(4)
    replica = await scene.settled()
    assert len(replica.groups) == 4
    for group in dead:
        group.start().cancel()
    await scene.fleet.stop()


@BOTH
async def test_a_group_that_stops_leaves_and_its_tasks_go_to_others(join: JoinMode) -> None:
    scene = Scene(join)
    groups = scene.start(3)
    await scene.settled()
    async with Client(scene.log.open()) as client:
        await client.start()
        await client.submit_job(a_job("job"))
        replica = await scene.settled()
        assert sum(map(len, replica.allocations.values())) == 6
        left = groups[1].id
        runner = scene.runners[left or ""]
        await groups[1].stop()
        scene.fleet.groups.remove(groups[1])
        assert runner.closed
        replica = await scene.settled()
        assert left in replica.left
        assert sum(map(len, replica.allocations.values())) == 4
    await scene.fleet.stop()


@BOTH
async def test_a_group_that_was_overtaken_by_garbage_collection_goes_on_from_the_origin(
    join: JoinMode,
) -> None:
    """Regression 9 of Onyx: a subscriber that was paused across a gc installed the wrapper of the replica as the replica."""
    scene = Scene(join)
    groups = scene.start(4)
    await scene.settled()
    async with Client(scene.log.open()) as client:
        await client.start()
        await client.submit_job(a_job("before"))
        await scene.settled()
        paused = groups[1]
        incarnation = paused.incarnation
        assert incarnation is not None
        scene.log.hold(scene.port(paused))
        await client.kill_job("before")
        await client.submit_job(a_job("after"))
        collected = await client.gc()
        assert collected.stored
        assert collected.jobs == ("before",)
        assert scene.log.first > incarnation.core.version
        await asyncio.sleep(1)
        assert {task.job for task in incarnation.running.values()} == {"before"}
        scene.log.release(scene.port(paused))
        replica = await scene.settled()
        assert paused.incarnation is incarnation, "it must not have begun again"
        assert {task.job for task in incarnation.running.values()} == {"after"}
        assert list(replica.jobs) == ["after"]
        assert not replica.killed
    await scene.fleet.stop()


@BOTH
async def test_a_group_that_was_declared_dead_while_it_was_overtaken_begins_again(join: JoinMode) -> None:
    scene = Scene(join)
    groups = scene.start(4)
    await scene.settled()
    paused = groups[0]
    old = paused.id
    assert old is not None
    scene.log.hold(scene.port(paused))
    async with Client(scene.log.open()) as client:
        await client.start()
        await client.append(GroupLeave(old))
        for _ in range(3):  # so often that it is forgotten even as one that left
            await client.gc()
        assert old not in client.replica.left
    scene.log.release(scene.port(paused))
    replica = await scene.settled()
    assert old not in replica.groups
    assert paused.id in replica.groups
    await scene.fleet.stop()


@BOTH
async def test_a_virtual_peer_that_fails_leaves_and_comes_back_under_a_new_id(join: JoinMode) -> None:
    scene = Scene(join)
    (group,) = scene.start(1)
    await scene.settled()
    async with Client(scene.log.open()) as client:
        await client.start()
        await client.submit_job(a_job("job", tasks=2))
        before = await scene.settled()
        incarnation = group.incarnation
        assert incarnation is not None
        failed = min(incarnation.running)
        incarnation.failed(failed, RuntimeError("planted"))
        after = await scene.settled()
        assert failed in before.peers
        assert failed not in after.peers
        assert len(after.peers) == 2
        assert group.incarnations == 1
        assert (await client.job_state("job")).state is JobState.RUNNING
    await scene.fleet.stop()


async def test_a_runner_that_cannot_start_a_task_costs_only_its_virtual_peer() -> None:
    scene = Scene(JoinMode.DIRECT)
    (group,) = scene.start(1)
    await scene.settled()
    assert group.id is not None
    runner = scene.runners[group.id]
    start, failures = runner.start, 3

    async def fail_at_first(task):  # type: ignore[no-untyped-def]
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise OSError("planted: no room")
        await start(task)

    runner.start = fail_at_first  # type: ignore[method-assign]
    async with Client(scene.log.open()) as client:
        await client.start()
        await client.submit_job(a_job("job", tasks=2))
        replica = await scene.settled()
        assert failures < 0
        assert len(replica.peers) == 2
        assert group.incarnations == 1
    await scene.fleet.stop()


async def test_a_failure_inside_begins_the_group_again_with_a_growing_pause() -> None:
    scene = Scene(JoinMode.RING)
    (group,) = scene.start(1)
    await asyncio.sleep(0.1)
    failed_at = []
    for _ in range(8):
        scene.log.expire(scene.port(group))
        failed_at.append(asyncio.get_running_loop().time())
        old = group.id
        await group.until(lambda incarnation, old=old: incarnation.group != old)  # type: ignore[misc]
    pauses = [b - a for a, b in pairwise(failed_at)]
    assert pauses[-1] > 8 * pauses[0]
    assert group.incarnations == 9
    await asyncio.sleep(PROVEN_S + 1)  # what lived so long begins as if for the first time
    began = asyncio.get_running_loop().time()
    scene.log.expire(scene.port(group))
    await scene.settled()
    incarnation = group.incarnation
    assert incarnation is not None
    assert incarnation._began - began < 1
    await scene.fleet.stop()


async def test_entries_that_a_task_says_are_appended_in_order() -> None:
    scene = Scene(JoinMode.DIRECT)
    (group,) = scene.start(1)
    await scene.settled()
    incarnation = group.incarnation
    assert incarnation is not None
    for number in range(20):
        incarnation.append(KillJob(f"job-{number}", 0))
    await scene.settled()
    said = [e.command.job for e in scene.log.entries if isinstance(e.command, KillJob)]
    assert said == [f"job-{number}" for number in range(20)]
    await scene.fleet.stop()


async def test_digests_are_published_at_common_positions_and_are_equal() -> None:
    scene = Scene(JoinMode.RING)
    scene.start(5)
    replica = await scene.settled()
    async with Client(scene.log.open()) as client:
        await client.start()
        await client.caught_up()
        published = await client.digests()
        assert {one.group for one in published} == set(replica.groups)
        assert {(one.position, one.chain) for one in published} == {(replica.version, client.chain)}
    await scene.fleet.stop()


async def test_another_job_under_the_same_id_is_refused_and_the_same_one_is_not() -> None:
    from onyxlog.api import JobIdTakenError
    from onyxlog.errors import EntryError

    scene = Scene(JoinMode.DIRECT)
    scene.start(2)
    await scene.settled()
    async with Client(scene.log.open()) as client:
        await client.start()
        first = await client.submit_job(a_job("job"))
        assert await client.submit_job(a_job("job")) == first
        with pytest.raises((JobIdTakenError, EntryError)):
            await client.submit_job(a_job("job", tasks=4))
        assert await client.kill_job("job", "enough")
        assert not await client.kill_job("job")
        assert await client.await_job_completion("job") is JobState.KILLED
        assert client.reason_of("job") == "enough"
        with pytest.raises(JobIdTakenError, match="is over"):
            await client.submit_job(a_job("job"))
        assert sum(isinstance(e.command, SubmitJob) for e in scene.log.entries) == 1
    await scene.fleet.stop()


async def test_a_group_that_no_server_takes_can_be_stopped_at_once() -> None:
    async def never() -> LogPort:
        await asyncio.sleep(3_600)
        raise AssertionError("it was stopped")

    group = PeerGroup(GroupSettings(), never, run_nothing)
    task = group.start()
    await asyncio.sleep(1)
    await group.stop()
    assert task.done()
    assert asyncio.get_running_loop().time() < 2


@BOTH
async def test_a_group_is_stopped_while_it_begins_without_a_server(join: JoinMode) -> None:
    scene = Scene(join)
    (group,) = scene.start(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for port in scene.log.ports:
        scene.log.hold(port)
    await asyncio.sleep(1)
    await group.stop()
    assert asyncio.get_running_loop().time() < 2
    assert not scene.log.ports


async def test_appends_that_certainly_did_not_happen_are_tried_again_and_keep_their_order() -> None:
    log = MemoryLog(newest_origin=first_origin(Parameters()))
    port = log.open()
    append, refusals = port.append, 10

    async def refuse_at_first(record: Record) -> int:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise NotSentError("planted: no server")
        return await append(record)

    port.append = refuse_at_first  # type: ignore[method-assign]
    outbox = Outbox(port, lambda *_: None)
    for number in range(5):
        outbox.put(Append(number, Record(KillJob(f"job-{number}", 0), "g")))
    task = asyncio.get_running_loop().create_task(outbox.run())
    await outbox.drained()
    assert [str(entry.command.job) for entry in log.entries if isinstance(entry.command, KillJob)] == [
        f"job-{number}" for number in range(5)
    ]
    task.cancel()


async def test_an_append_of_unknown_outcome_begins_the_group_again() -> None:
    scene = Scene(JoinMode.DIRECT)
    (group,) = scene.start(1)
    await scene.settled()
    old, port = group.id, scene.port(group)

    async def unknown(record: Record) -> int:
        raise UnknownOutcomeError("planted")

    port.append = unknown  # type: ignore[method-assign]
    incarnation = group.incarnation
    assert incarnation is not None
    incarnation.append(KillJob("job", 0))
    replica = await scene.settled()
    assert old not in replica.groups
    assert group.id in replica.groups
    await scene.fleet.stop()


async def test_a_group_whose_leave_cannot_be_told_any_more_stops_at_once() -> None:
    """Its session is over, so others hear of its end in another way: nothing is left to wait for."""
    scene = Scene(JoinMode.DIRECT)
    (group,) = scene.start(1)
    await scene.settled()

    async def ended(record: Record) -> int:
        raise SessionExpiredError("planted")

    scene.port(group).append = ended  # type: ignore[method-assign]
    before = asyncio.get_running_loop().time()
    await scene.fleet.stop()
    assert asyncio.get_running_loop().time() - before < 1


async def _with_checkpoint(client: Client, job: str) -> None:
    barrier = Barrier(1, 1)
    store = CheckpointStore(client.port, job)
    await store.put_part(barrier, WorkerKey("task-1", 0), {})
    await store.complete(
        1, CompletedCheckpoint(Checkpoint(job, barrier, {WorkerKey("task-1", 0): barrier}), ())
    )


def a_job_after(before: str, name: str) -> Job:
    return evolve(a_job(name), resume_from=before, delivery=Delivery.EXACTLY_ONCE_STATE)


async def test_garbage_collection_removes_checkpoints_of_completed_jobs_that_nobody_resumes_from() -> None:
    scene = Scene(JoinMode.DIRECT)
    scene.start(2)
    await scene.settled()
    async with Client(scene.log.open()) as client:
        await client.start()
        for name in ("completed", "resumed", "killed"):
            await client.submit_job(a_job(name))
            await _with_checkpoint(client, name)
        await client.kill_job("killed")
        await client.append(CompleteJob("completed", client.replica.jobs["completed"].submitted))
        await client.append(CompleteJob("resumed", client.replica.jobs["resumed"].submitted))
        await client.submit_job(a_job_after("resumed", "next"))
        assert (await client.gc()).jobs == ("completed", "killed", "resumed")
        assert set(await client.port.states("checkpoints")) == {"resumed", "killed"}
        await client.clear_job_data("killed")
        await client.kill_job("next")
        assert (await client.gc()).jobs == ("next",)
        assert set(await client.port.states("checkpoints")) == {"resumed"}, (
            "who was to go on from it may come"
        )
    await scene.fleet.stop()


async def test_a_job_that_would_silently_begin_with_nothing_is_refused() -> None:
    scene = Scene(JoinMode.DIRECT)
    scene.start(1)
    await scene.settled()
    async with Client(scene.log.open()) as client:
        await client.start()
        await client.submit_job(a_job("before"))
        with pytest.raises(WorkflowError, match="resume_from: found no checkpoint of job before"):
            await client.submit_job(a_job_after("before", "after"))
        assert list(client.replica.jobs) == ["before"]
        await _with_checkpoint(client, "before")
        await client.kill_job("before")
        await client.submit_job(a_job_after("before", "after"))
        assert list(client.replica.jobs) == ["after"]
    await scene.fleet.stop()
