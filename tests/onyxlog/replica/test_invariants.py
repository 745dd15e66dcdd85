"""Each invariant finds what it is for, and nothing in a replica that came about by playing."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from onyxlog.replica.commands import SubmitJob
from onyxlog.replica.invariants import INVARIANTS, step_violations, violations
from onyxlog.replica.pool import GroupArc
from onyxlog.replica.replica import PeerState, Replica, VirtualPeer
from onyxlog.replica.table import Table
from tests.onyxlog.replica.scripts import Log, job, ring, worker


def played() -> Replica:
    log = ring("abc")
    for group in "abc":
        log.write(worker(group, f"{group}1"), group)
    log.write(SubmitJob(job()), "client")
    return log.replica


FINE = played()
IN, MAP, OUT = ("count", "in"), ("count", "map"), ("count", "out")

PLANTED: list[tuple[str, dict[str, Any]]] = [
    ("workers_exist_and_have_one_task", {"allocations": FINE.allocations.set(IN, FINE.allocations[MAP])}),
    ("workers_exist_and_have_one_task", {"allocations": FINE.allocations.set(IN, ("ghost",))}),
    ("workers_exist_and_have_one_task", {"allocations": FINE.allocations.set(IN, ("b1", "a1"))}),
    ("only_active_jobs_show", {"jobs": Table()}),
    ("only_active_jobs_show", {"killed": Table({"count": 3})}),
    ("a_job_has_all_it_needs_or_nobody", {"allocations": FINE.allocations.without(OUT)}),
    ("a_job_has_all_it_needs_or_nobody", {"allocations": FINE.allocations.set(IN, ("a1", "b1"))}),
    ("slots_are_those_of_the_workers", {"slots": FINE.slots.update({("count", "in", "ghost"): 0})}),
    ("slots_are_those_of_the_workers", {"slots": Table()}),
    ("who_has_workers_has_a_coordinator", {"coordinators": Table()}),
    ("who_has_workers_has_a_coordinator", {"coordinators": Table({"count": "ghost"})}),
    ("who_has_workers_has_a_coordinator", {"allocation_versions": Table()}),
    ("states_are_those_of_the_peers", {"peer_states": FINE.peer_states.without("a1")}),
    ("states_are_those_of_the_peers", {"peer_states": FINE.peer_states.set("a1", PeerState.IDLE)}),
    ("peers_are_of_groups_that_joined", {"peers": FINE.peers.set("a1", VirtualPeer("z", "h:1"))}),
    ("peers_are_of_groups_that_joined", {"orphans": Table({"x": VirtualPeer("a", "h:1")})}),
    ("a_group_is_in_one_place", {"prepared": Table({"a": "z"}), "accepted": Table({"b": "z"})}),
    ("a_group_is_in_one_place", {"prepared": Table({"a": "y"}), "accepted": Table({"a": "z"})}),
    ("a_group_is_in_one_place", {"prepared": Table({"z": "y"})}),
    ("a_group_is_in_one_place", {"left": Table({"a": 1})}),
    ("the_ring_is_one_cycle_over_all", {"pairs": FINE.pairs.without("a")}),
    ("the_ring_is_one_cycle_over_all", {"pairs": Table({"a": "b", "b": "a", "c": "c"})}),
    ("the_ring_is_one_cycle_over_all", {"pairs": Table({"a": "b", "b": "c", "c": "b"})}),
    ("every_group_has_an_arc_of_a_connected_pool", {"arcs": FINE.arcs.without("a")}),
    ("every_group_has_an_arc_of_a_connected_pool", {"arcs": Table(dict.fromkeys("abc", GroupArc(0, 1)))}),
    ("every_group_has_an_arc_of_a_connected_pool", {"streams": 3}),
    ("no_position_is_ahead", {"groups": FINE.groups.set("a", 999)}),
]


def test_a_replica_that_was_played_violates_nothing() -> None:
    assert FINE.allocations
    assert violations(FINE) == ()


@pytest.mark.parametrize(
    ("name", "changes"), PLANTED, ids=[f"{n}-{name}" for n, (name, _) in enumerate(PLANTED)]
)
def test_a_planted_violation_is_found(name: str, changes: dict[str, Any]) -> None:
    found = violations(evolve(FINE, **changes))
    assert any(complaint.startswith(f"{name}:") for complaint in found), found


def test_missing_tags_are_found() -> None:
    requirements = FINE.jobs["count"].requirements
    first = evolve(requirements.tasks[0], required_tags=("gpu",))
    wanted = evolve(requirements, tasks=(first, *requirements.tasks[1:]))
    changed = evolve(FINE, jobs=Table({"count": evolve(FINE.jobs["count"], requirements=wanted)}))
    assert any("lacks tags" in complaint for complaint in violations(changed))


def test_every_invariant_has_a_planted_violation() -> None:
    names = {name for name, _ in PLANTED} | {"workers_have_the_tags_of_their_task"}
    assert names == {invariant.__name__ for invariant in INVARIANTS}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"slots": FINE.slots.update({("count", "in", FINE.allocations[IN][0]): 5})},
            "although the worker stayed",
        ),
        ({"coordinators": Table({"count": FINE.allocations[OUT][0]})}, "stayed"),
        ({"allocation_versions": Table({"count": 99})}, "its version from"),
    ],
)
def test_a_step_that_moves_what_could_stay_is_found(changes: dict[str, Any], complaint: str) -> None:
    (found,) = step_violations(FINE, evolve(FINE, **changes))
    assert complaint in found


def test_a_group_that_comes_back_is_found() -> None:
    old = Log().replica
    (found,) = step_violations(evolve(old, left=Table({"a": 1})), evolve(old, groups=Table({"a": 2})))
    assert found == "a came back after it left"


def test_a_joiner_that_is_forgotten_is_found() -> None:
    old = evolve(FINE, accepted=Table({"a": "z"}))
    (found,) = step_violations(old, FINE)
    assert found == "z was joining, and is nowhere"
    assert step_violations(old, evolve(FINE, aborted=Table({"z": 1}))) == ()
