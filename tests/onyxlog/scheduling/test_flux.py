"""Flux policies: kill, continue and recover, and what they do when workers come, leave, or are wanted elsewhere."""

from __future__ import annotations

from attrs import evolve

from onyxlog.scheduling.flux import flux_kills
from onyxlog.scheduling.reconfigure import reconfigure
from onyxlog.scheduling.requirements import FluxPolicy, JobScheduler
from tests.onyxlog.scheduling.builders import (
    counts,
    decided,
    grouped,
    job,
    job_counts,
    problem,
    task,
    without,
    workers,
)

KILL = job("a", (grouped("g", FluxPolicy.KILL), task("x")))
RECOVER = job("a", (grouped("g:2", FluxPolicy.RECOVER), task("x")))
CONTINUE = job("a", (grouped("g", FluxPolicy.CONTINUE), task("x")))


def test_a_worker_of_a_grouped_task_that_leaves_kills_the_job() -> None:
    present = {("a", "g"): ("p0", "p1"), ("a", "x"): ("p2",), ("b", "x"): ("p3",)}
    jobs = (KILL, job("b", "x"))
    assert flux_kills(jobs, present, ("p1",)) == ("a",)
    assert flux_kills(jobs, present, ("p2", "p3")) == ()
    assert flux_kills((CONTINUE,), present, ("p0",)) == ()
    assert flux_kills((RECOVER,), present, ("p0",)) == ()


def test_a_machine_that_dies_kills_by_any_of_its_peers() -> None:
    """3.2, 11: the id of the group matches no allocation, so that nothing was killed."""
    present = {("a", "g"): ("p0", "p5"), ("b", "g"): ("p6",)}
    jobs = (KILL, evolve(KILL, id="b"), evolve(KILL, id="c"))
    assert flux_kills(jobs, present, frozenset({"p4", "p5", "p6"})) == ("a", "b")
    assert flux_kills(jobs, present, {"the group's own id"}) == ()


def test_a_task_with_policy_kill_neither_grows_nor_shrinks() -> None:
    before = decided(problem(workers(6), KILL))
    assert counts(reconfigure(before)) == {"a/g": 3, "a/x": 3}
    more = reconfigure(evolve(before, workers=workers(10)))
    assert counts(more) == {"a/g": 3, "a/x": 7}
    fewer = reconfigure(without(before, *before.present["a", "x"][:2]))
    assert fewer.allocations["a", "g"] == before.present["a", "g"]
    assert counts(fewer) == {"a/g": 3, "a/x": 1}


def test_a_new_job_takes_no_worker_of_a_frozen_task() -> None:
    """Three of six is each job's share, but the first cannot go on with less than four."""
    before = decided(problem(workers(6), job("a", (grouped("g:3-3", FluxPolicy.KILL), task("x")))))
    after = reconfigure(evolve(before, jobs=(*before.jobs, job("b", "x"))))
    assert job_counts(after, "a", "b") == [4, 2]
    assert after.allocations["a", "g"] == before.present["a", "g"]


def test_a_job_without_room_for_the_rest_of_its_minimum_begins_anew() -> None:
    """All workers that are left are frozen on one task, and the other has nobody."""
    before = decided(problem(workers(4), job("a", (grouped("g:1", FluxPolicy.KILL), task("x:1-1")))))
    assert counts(reconfigure(before)) == {"a/g": 3, "a/x": 1}
    after = reconfigure(without(before, *before.present["a", "x"]))
    assert counts(after) == {"a/g": 2, "a/x": 1}


def test_recovery_takes_a_worker_from_wherever_it_can_be_had() -> None:
    before = decided(problem(workers(4), RECOVER))
    assert counts(reconfigure(before)) == {"a/g": 2, "a/x": 2}
    after = reconfigure(without(before, before.present["a", "g"][0]))
    assert counts(after) == {"a/g": 2, "a/x": 1}
    assert before.present["a", "g"][1] in after.allocations["a", "g"]


def test_recovery_takes_a_worker_from_another_job() -> None:
    before = decided(problem(workers(6), RECOVER, job("b", "x")))
    assert job_counts(reconfigure(before), "a", "b") == [3, 3]
    after = reconfigure(without(before, before.present["a", "g"][0]))
    assert counts(after) == {"a/g": 2, "a/x": 1, "b/x": 2}


def test_a_task_with_policy_recover_does_not_grow_beyond_what_it_has() -> None:
    before = decided(problem(workers(4), RECOVER))
    after = reconfigure(evolve(before, workers=workers(9)))
    assert after.allocations["a", "g"] == before.present["a", "g"]
    assert counts(after)["a/x"] == 7


def test_a_task_with_policy_continue_grows_and_shrinks() -> None:
    before = decided(problem(workers(4), CONTINUE))
    assert counts(reconfigure(without(before, before.present["a", "g"][0]))) == {"a/g": 2, "a/x": 1}
    assert counts(reconfigure(evolve(before, workers=workers(8)))) == {"a/g": 4, "a/x": 4}


def test_a_policy_without_grouping_means_nothing() -> None:
    loose = job("a", (task("g", flux_policy=FluxPolicy.KILL), task("x")))
    before = decided(problem(workers(4), loose))
    assert counts(reconfigure(evolve(before, workers=workers(8)))) == {"a/g": 4, "a/x": 4}
    assert flux_kills((loose,), before.present, before.present["a", "g"]) == ()


def test_two_frozen_jobs_that_both_lack_a_worker_are_not_both_broken_up() -> None:
    """What the later one gives up is enough for the earlier."""
    tasks = (grouped("g:2-2", FluxPolicy.KILL), task("x:1-1"))
    before = decided(problem(workers(6), job("a", tasks), job("b", tasks)))
    gone = (*before.present["a", "x"], *before.present["b", "x"])
    after = reconfigure(without(before, *gone))
    assert after.allocations["a", "g"] == before.present["a", "g"]
    assert job_counts(after, "a", "b") == [3, 0]


def test_greedy_leaves_frozen_tasks_of_later_jobs_alone() -> None:
    later = job("b", (grouped("g:2-2", FluxPolicy.RECOVER),))
    before = decided(problem(workers(3), job("a", "x:4"), later, scheduler=JobScheduler.GREEDY))
    assert job_counts(reconfigure(before), "a", "b") == [0, 2]
    after = reconfigure(evolve(before, workers=workers(6)))
    assert job_counts(after, "a", "b") == [4, 2]
    assert after.allocations["b", "g"] == before.present["b", "g"]


def test_two_frozen_jobs_keep_what_they_have_when_nothing_happens() -> None:
    """The second one's claim is more than it has, and must not break up the first, whose floor is more than its share."""
    first = job("a", (grouped("g", FluxPolicy.KILL), task("x:1-2"), task("y:1-1")))
    before = decided(problem(workers(7), first))
    assert counts(reconfigure(before)) == {"a/g": 4, "a/x": 2, "a/y": 1}
    second = job("b", (task("x:1-2"), grouped("g:3-4", FluxPolicy.KILL)))
    after = decided(evolve(before, workers=workers(10), jobs=(first, second)))
    assert job_counts(reconfigure(after), "a", "b") == [6, 4]
    assert reconfigure(after).allocations == after.present
