"""Why a job waits, in words: what is short, and who has it."""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve

from onyxlog.scheduling.reconfigure import reconfigure
from onyxlog.scheduling.requirements import JobScheduler, Problem, TaskScheduler
from onyxlog.scheduling.waiting import reasons_to_wait
from tests.onyxlog.scheduling.builders import decided, job, problem, task, workers
from tests.onyxlog.scheduling.problems import random_problem

GPU = (task("x", required_tags=("gpu",)), task("y:2", required_tags=("gpu",)), task("z"))
EITHER = (task("x", required_tags=("a",)), task("y", required_tags=("b",)))


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (problem(workers(3), job("j", "x:2 y z")), "needs 4 virtual peers, 3 are there"),
        (problem(workers(1), job("j", "x y")), "needs 2 virtual peers, 1 is there"),
        (problem((), job("j", "x")), "needs 1 virtual peer, 0 are there"),
        (
            problem(workers(6, tags={0: "gpu", 1: "gpu ssd"}), job("j", GPU)),
            "needs 3 virtual peers with the tag gpu, 2 are there",
        ),
        (
            problem(workers(4, tags={0: "a"}), job("j", (task("x", required_tags=("a", "b")),))),
            "needs 1 virtual peer with the tags a and b, 0 are there",
        ),
        (
            problem(workers(3, tags={0: "a b"}), job("j", EITHER)),
            "needs virtual peers with the tags of its tasks, and too few have them",
        ),
        (
            problem(workers(4, sites=2), job("j", "x y z", TaskScheduler.COLOCATED)),
            "needs 3 virtual peers on one site, as it is colocated; the largest site has 2",
        ),
        (
            problem(workers(5, sites=2), job("j", "x:2 y:2 z:2", TaskScheduler.COLOCATED)),
            "needs 6 virtual peers, 5 are there",
        ),
        (
            problem(workers(8, sites=2), job("j", "x:3 y:2", TaskScheduler.COLOCATED)),
            None,
        ),
        (
            problem(workers(9, sites=3), job("j", "x:4 y:2", TaskScheduler.COLOCATED)),
            "needs 4 times 2 virtual peers, each time on one site, as it is colocated; there is room for 3",
        ),
        (
            problem(workers(5), job("first", "x:4"), job("j", "x:2 y"), scheduler=JobScheduler.GREEDY),
            "needs 3 virtual peers, and other jobs have 5 of the 5 that are there",
        ),
        (
            problem(
                workers(9),
                job("first", "x", percentage=70),
                job("j", "x", percentage=40),
                scheduler=JobScheduler.PERCENTAGE,
            ),
            "its 40 percent do not fit beside those of the jobs that run (at most 100 in all)",
        ),
    ],
)
def test_a_job_that_waits_says_what_it_needs_and_what_is_there(asked: Problem, reason: str | None) -> None:
    assert reasons_to_wait(decided(asked)).get("j") == reason


def test_a_job_that_runs_has_no_reason_to_wait() -> None:
    assert reasons_to_wait(decided(problem(workers(4), job("a", "x y"), job("b", "x y")))) == {}


@pytest.mark.parametrize("seed", range(200))
def test_whoever_waits_has_a_reason_and_it_is_no_other_job_if_there_is_none(seed: int) -> None:
    asked = random_problem(Random(seed))
    plan = reconfigure(asked)
    running = {name for name, _ in plan.allocations}
    reasons = reasons_to_wait(evolve(asked, present=plan.allocations))
    assert reasons.keys() == {one.id for one in asked.jobs} - running
    for one in asked.jobs:
        alone = evolve(asked, jobs=(one,))
        reason = reasons_to_wait(decided(alone)).get(one.id, "")
        assert "other jobs" not in reason, "there is no other job"
        assert "do not fit beside" not in reason
        if one.id in reasons and reason:
            assert reasons[one.id] == reason, "what it lacks has nothing to do with the others"
