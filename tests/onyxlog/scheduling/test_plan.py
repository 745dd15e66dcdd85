"""What hangs on allocations: coordinators, slots, which jobs changed, and equal results in every process."""

from __future__ import annotations

import os
import subprocess
import sys

from attrs import evolve

from onyxlog.scheduling.coordinators import coordinators
from onyxlog.scheduling.reconfigure import reconfigure
from onyxlog.scheduling.slots import slots
from tests.onyxlog.scheduling.builders import decided, job, problem, without, workers


def test_a_coordinator_stays_as_long_as_it_works_on_the_job() -> None:
    allocations = {("a", "x"): ("p1", "p4"), ("a", "y"): ("p2",), ("b", "x"): ("p0", "p3")}
    assert coordinators({}, allocations) == {"a": "p1", "b": "p0"}
    assert coordinators({"a": "p2", "b": "p3", "c": "p4"}, allocations) == {"a": "p2", "b": "p3"}
    assert coordinators({"a": "p0", "b": "p9"}, allocations) == {"a": "p1", "b": "p0"}


def test_a_coordinator_is_the_smallest_of_all_tasks() -> None:
    assert coordinators({}, {("a", "x"): ("p2",), ("a", "y"): ("p1",)}) == {"a": "p1"}


def test_a_slot_is_the_smallest_free_number_and_stays() -> None:
    first = slots({}, {("a", "x"): ("p1", "p2", "p3")})
    assert first == {("a", "x", "p1"): 0, ("a", "x", "p2"): 1, ("a", "x", "p3"): 2}
    # p1 left, p0 and p4 came: one takes its slot, the other the next
    second = slots(first, {("a", "x"): ("p0", "p2", "p3", "p4")})
    assert second == {("a", "x", "p0"): 0, ("a", "x", "p2"): 1, ("a", "x", "p3"): 2, ("a", "x", "p4"): 3}
    # a hole remains while nobody comes, and a slot is of one task only
    third = slots(second, {("a", "x"): ("p2", "p4"), ("a", "y"): ("p3",)})
    assert third == {("a", "x", "p2"): 1, ("a", "x", "p4"): 3, ("a", "y", "p3"): 0}


class Counted(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_a_worker_that_comes_to_a_large_task_is_not_compared_with_each_pair_of_the_others() -> None:
    peers = tuple(f"p{number:04}" for number in range(1_000))
    present = {("a", "x", peer): Counted(number) for number, peer in enumerate(peers)}
    Counted.compared = 0
    found = slots(present, {("a", "x"): (*peers, "p1000")})
    assert found["a", "x", "p1000"] == 1_000
    assert 0 < Counted.compared < 5_000


def test_a_task_that_shrinks_keeps_its_lowest_slots() -> None:
    """So that slots of a task stay dense, as far as nobody moves for it."""
    before = decided(problem(workers(4), job("a", "x")))
    turned = {("a", "x", peer): 3 - slot for (_, _, peer), slot in before.slots.items()}
    after = reconfigure(evolve(before, jobs=(job("a", "x:1-2"),), slots=turned))
    assert after.allocations == {("a", "x"): ("p02", "p03")}
    assert after.slots == {("a", "x", "p02"): 1, ("a", "x", "p03"): 0}


def test_changed_names_every_job_whose_workers_are_others() -> None:
    before = decided(problem(workers(7), job("a", "x"), job("b", "x"), job("c", "x:1-1")))
    assert reconfigure(before).changed == ()
    lost = before.present["b", "x"][0]
    after = reconfigure(without(before, lost))
    assert "b" in after.changed
    assert "c" not in after.changed
    assert reconfigure(evolve(before, jobs=before.jobs[:2])).changed == ("a", "c")


def test_a_worker_whose_task_is_over_has_another_before_one_that_idles() -> None:
    """The fewest workers notice that a job is over: one that worked goes on working, the idle one idles on."""
    before = decided(problem(workers(3), job("a", "x:1-1"), job("b", "x:1-1")))
    assert before.present == {("a", "x"): ("p00",), ("b", "x"): ("p01",)}
    after = reconfigure(evolve(before, jobs=(before.jobs[1], job("c", "x:1-1"))))
    assert after.allocations == {("b", "x"): ("p01",), ("c", "x"): ("p00",)}
    later = evolve(
        before, workers=(before.workers[1], before.workers[2]), jobs=(before.jobs[1], job("c", "x:1-1"))
    )
    assert reconfigure(later).allocations == {("b", "x"): ("p01",), ("c", "x"): ("p02",)}


def test_plans_are_the_same_whatever_the_hash_seed() -> None:
    """Sets and maps iterate by it (3.2, 10): the same problems in other processes have the same plans."""
    program = (
        "from random import Random\n"
        "from hashlib import blake2b\n"
        "from onyxlog.scheduling.reconfigure import reconfigure\n"
        "from tests.onyxlog.scheduling.problems import random_problem\n"
        "plans = [reconfigure(random_problem(Random(seed), size=12)) for seed in range(40)]\n"
        "text = repr([(list(p.allocations.items()), p.coordinators, list(p.slots.items()), p.changed) for p in plans])\n"
        "print(len(text), blake2b(text.encode()).hexdigest())\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(told) == 1
    assert int(told.pop().split()[0]) > 5000
