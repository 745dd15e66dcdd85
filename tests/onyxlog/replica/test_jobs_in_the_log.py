"""What entries about workers and jobs do to allocations, and what peers have to do then."""

from __future__ import annotations

import pytest

from onyxlog.replica import assignments
from onyxlog.replica.commands import (
    BackpressureOff,
    BackpressureOn,
    CompleteJob,
    ExhaustInput,
    Gc,
    GroupLeave,
    JoinDirect,
    KillJob,
    Leave,
    SealOutput,
    SignalReady,
    SubmitJob,
)
from onyxlog.replica.effects import RestartGroup, RestartPeer, StartTask, StopTask
from onyxlog.replica.progress import all_exhausted
from onyxlog.replica.replica import PeerState, Replica
from onyxlog.replica.table import Table
from onyxlog.scheduling.requirements import FluxPolicy
from tests.onyxlog.replica.scripts import DIRECT, Log, job, worker
from tests.so_far import so_far


def fleet(groups: str, workers: int = 1) -> Log:
    """`a1`, `a2`… are the workers of `a`."""
    log = Log(Replica(parameters=DIRECT))
    for group in groups:
        log.write(JoinDirect(group), group)
        for number in range(1, workers + 1):
            log.write(worker(group, f"{group}{number}"), group)
    return log


def who(log: Log, id: str = "count") -> set[str]:
    return {peer for (each, _), peers in log.replica.allocations.items() if each == id for peer in peers}


def test_a_job_starts_when_enough_workers_are_there() -> None:
    log = fleet("ab")
    log.write(SubmitJob(job()), "client")
    assert not log.replica.allocations
    log.write(JoinDirect("c"), "c")
    log.write(worker("c", "c1"), "c")
    position = log.replica.version
    started = [log.effects(group, f"{group}1") for group in "abc"]
    assert all(
        isinstance(effect, StartTask) and effect.version == position
        for effects in started
        for effect in effects
    )
    assert {effect.task for effects in started for effect in effects} == {"in", "map", "out"}  # type: ignore[union-attr]
    assert set(log.replica.peer_states.values()) == {PeerState.WARMING_UP}


def test_a_job_is_submitted_once() -> None:
    log = fleet("abc")
    log.write(SubmitJob(job()), "client")
    before = log.replica
    log.write(SubmitJob(job(map_workers=2)), "client")
    assert log.step.diff is None
    assert log.replica.jobs == before.jobs


@pytest.mark.parametrize("kind", [KillJob, CompleteJob])
def test_a_job_that_is_over_is_not_begun_again(kind: type[KillJob | CompleteJob]) -> None:
    log = fleet("abc")
    log.write(SubmitJob(job()), "client")
    end = kind("count", log.submitted("count"))
    log.write(end, "client")
    assert not log.replica.allocations
    assert set(log.replica.peer_states.values()) == {PeerState.IDLE}
    why = "killed" if kind is KillJob else "completed"
    assert log.effects("a", "a1") == (StopTask("a1", "count", why),)
    log.write(SubmitJob(job()), "client")
    assert log.step.diff is None
    log.write(end, "client")
    assert log.step.diff is None


def test_workers_of_a_killed_job_go_on_with_the_next() -> None:
    log = fleet("abc")
    log.write(SubmitJob(job("one")), "client")
    log.write(SubmitJob(job("two")), "client")
    assert not who(log, "two")
    log.write(KillJob("one", log.submitted("one")), "client")
    assert who(log, "two") == {"a1", "b1", "c1"}
    (effect,) = log.effects("a", "a1")
    assert isinstance(effect, StartTask)
    assert effect.job == "two"


def test_all_workers_of_a_job_begin_again_when_one_leaves() -> None:
    log = fleet("abcd")
    log.write(SubmitJob(job()), "client")
    assert who(log) == {"a1", "b1", "c1", "d1"}
    log.write(Leave("d1", "d"), "d")
    position = log.replica.version
    for group in "abc":
        (effect,) = log.effects(group, f"{group}1")
        assert isinstance(effect, StartTask)
        assert effect.version == position
    assert log.effects("d", "d1") == (StopTask("d1", "count", "left"), RestartPeer("d1"))


def test_a_worker_leaves_by_its_own_group_only() -> None:
    log = fleet("ab")
    log.write(Leave("a1", "b"), "b")
    assert log.step.diff is None
    log.write(Leave("nobody", "a"), "a")
    assert log.step.diff is None


def test_a_worker_that_did_not_leave_is_not_restarted() -> None:
    log = fleet("ab", workers=2)
    log.write(Leave("a1", "a"), "a")
    assert log.effects("a", "a2") == ()
    assert log.effects("b", "b1", "b2") == ()


@pytest.mark.parametrize(("policy", "killed"), [(FluxPolicy.KILL, True), (FluxPolicy.CONTINUE, False)])
def test_a_dead_machine_kills_the_jobs_whose_grouped_task_it_worked_on(
    policy: FluxPolicy, killed: bool
) -> None:
    """Onyx looked for the id of the group among the allocated workers, and so killed nothing."""
    log = fleet("abcd", workers=2)
    log.write(SubmitJob(job(grouped=True, policy=policy)), "client")
    victim = log.replica.peers[log.replica.allocations["count", "map"][0]].group
    log.write(GroupLeave(victim), victim)
    assert ("count" in log.replica.killed) == killed
    assert ("count" in log.replica.jobs) != killed
    stopped = [e for g in "abcd" for e in log.effects(g, f"{g}1", f"{g}2") if isinstance(e, StopTask)]
    if killed:
        assert {effect.why for effect in stopped} == {"killed", "left"}


def test_a_worker_that_leaves_kills_the_job_whose_grouped_task_it_worked_on() -> None:
    log = fleet("abcd")
    log.write(SubmitJob(job(grouped=True, policy=FluxPolicy.KILL)), "client")
    (peer, *_) = log.replica.allocations["count", "map"]
    log.write(Leave(peer, peer[0]), peer[0])
    assert "count" in log.replica.killed


def test_an_orphan_that_leaves_is_forgotten() -> None:
    log = Log(Replica(parameters=DIRECT))
    log.write(worker("a", "a1"), "a")
    log.write(Leave("a1", "a"), "a")
    assert not log.replica.orphans
    assert log.effects("a", "a1") == (RestartPeer("a1"),)


def test_slots_are_kept_as_long_as_a_worker_stays() -> None:
    log = fleet("abcdef")
    log.write(SubmitJob(job(map_workers=2)), "client")
    before = dict(log.replica.slots)
    log.write(GroupLeave("f"), "f")
    after = dict(log.replica.slots)
    assert all(after[key] == slot for key, slot in before.items() if key in after)


def test_ready_counts_for_the_allocation_it_speaks_of() -> None:
    log = fleet("abc")
    log.write(SubmitJob(job()), "client")
    version = log.replica.allocation_versions["count"]
    for group in "abc":
        log.write(SignalReady(f"{group}1", version), group)
        assert log.replica.peer_states[f"{group}1"] is PeerState.ACTIVE
    assert set(log.replica.peer_states.values()) == {PeerState.ACTIVE}
    log.write(JoinDirect("d"), "d")
    log.write(worker("d", "d1"), "d")
    assert set(log.replica.peer_states.values()) == {PeerState.WARMING_UP}
    log.write(SignalReady("a1", version), "a")
    assert log.step.diff is None
    assert log.replica.peer_states["a1"] is PeerState.WARMING_UP


def test_that_workers_are_ready_does_not_go_over_all_workers_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone_over = []

    def counting(allocations: Table[tuple[str, str], tuple[str, ...]]) -> dict[str, tuple[str, str]]:
        gone_over.append(allocations)
        return {peer: key for key, workers in allocations.items() for peer in workers}

    monkeypatch.setattr(assignments, "_tasks", counting)
    log = fleet("abcdef")
    log.write(SubmitJob(job()), "client")
    gone_over.clear()
    for group in "abcdef":
        log.write(SignalReady(f"{group}1", log.replica.allocation_versions["count"]), group)
        assert log.effects(group, f"{group}1") == ()
    assert set(log.replica.peer_states.values()) == {PeerState.ACTIVE}
    assert gone_over == [log.replica.allocations]


def test_backpressure_is_of_active_workers_only() -> None:
    log = fleet("abc")
    log.write(SubmitJob(job()), "client")
    log.write(BackpressureOn("a1"), "a")
    assert log.step.diff is None
    log.write(SignalReady("a1", log.replica.allocation_versions["count"]), "a")
    log.write(BackpressureOn("a1"), "a")
    assert so_far(log.replica.peer_states["a1"]) is PeerState.BACKPRESSURE
    log.write(BackpressureOff("a1"), "a")
    assert log.replica.peer_states["a1"] is PeerState.ACTIVE
    log.write(BackpressureOff("a1"), "a")
    assert log.step.diff is None


def test_a_job_is_complete_when_its_last_output_is_sealed() -> None:
    log = fleet("abc")
    log.write(SubmitJob(job()), "client")
    log.write(ExhaustInput("count", log.submitted("count"), "map"), "b")
    assert log.step.diff is None
    log.write(ExhaustInput("count", log.submitted("count"), "in"), "a")
    assert all_exhausted(log.replica, "count")
    log.write(SealOutput("count", log.submitted("count"), "map"), "b")
    assert log.step.diff is None
    log.write(SealOutput("count", log.submitted("count"), "out"), "c")
    assert list(log.replica.completed) == ["count"]
    assert not log.replica.exhausted
    assert not log.replica.sealed
    assert log.effects("a", "a1") == (StopTask("a1", "count", "completed"),)


@pytest.mark.parametrize("late", [KillJob, CompleteJob, ExhaustInput, SealOutput])
def test_what_is_said_late_of_a_job_does_nothing_to_another_under_its_id(
    late: type[KillJob | CompleteJob | ExhaustInput | SealOutput],
) -> None:
    """Said before the first was over; it comes after it was killed, collected, and its id submitted again."""
    log = fleet("abc")
    log.write(SubmitJob(job()), "client")
    first = log.submitted("count")
    of_task = {ExhaustInput: "in", SealOutput: "out"}
    said = late("count", first, *([of_task[late]] if late in of_task else []))
    log.write(KillJob("count", first), "client")
    log.write(Gc("tidy"), "tidy")
    log.write(SubmitJob(job()), "client")
    before = log.replica
    log.write(said, "a")
    assert log.step.diff is None
    assert (log.replica.jobs, log.replica.exhausted, log.replica.sealed) == (
        before.jobs,
        before.exhausted,
        before.sealed,
    )


@pytest.mark.parametrize(
    "command",
    [ExhaustInput("no", 0, "in"), SealOutput("no", 0, "out"), CompleteJob("no", 0), KillJob("no", 0)],
)
def test_an_entry_about_an_unknown_job_does_nothing(
    command: ExhaustInput | SealOutput | CompleteJob | KillJob,
) -> None:
    log = fleet("a")
    before = log.replica
    log.write(command)
    assert log.step.diff is None
    assert log.replica.jobs is before.jobs


def test_a_group_that_is_out_stops_its_tasks_and_begins_again() -> None:
    log = fleet("abc")
    log.write(SubmitJob(job()), "client")
    log.write(GroupLeave("c"), "c")
    stop, restart = log.effects("c", "c1")
    assert stop == StopTask("c1", "count", "left")
    assert restart == RestartGroup()


def test_a_group_that_begins_where_it_is_out_already_is_told_by_whatever_entry_comes_next() -> None:
    log = fleet("abc")
    log.write(GroupLeave("c"), "c")
    log.write(KillJob("no", 0), "client")
    assert log.effects("c", "c1") == (RestartGroup(),)
    assert log.effects("b", "b1") == ()
