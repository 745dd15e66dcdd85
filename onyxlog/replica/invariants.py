"""Invariants of every replica, and of each step to the next: named, and checked by tests and audits after every entry.

They are those of Onyx' replica (allocations, slots, coordinators, ring membership), and ours: one cycle over
all groups, arcs of the gossip pool, states of workers, and that what may stay does stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from onyxlog.replica import pool
from onyxlog.replica.replica import JoinMode, PeerState, Replica

Invariant = Callable[[Replica], Iterator[str]]


def workers_exist_and_have_one_task(replica: Replica) -> Iterator[str]:
    """Check that each worker exists, has one task, and that tasks' workers are sorted."""
    tasks = Counter(worker for workers in replica.allocations.values() for worker in workers)
    yield from (f"worker {worker} has {count} tasks" for worker, count in tasks.items() if count > 1)
    yield from (f"worker {worker} is no peer" for worker in tasks if worker not in replica.peers)
    for key, workers in replica.allocations.items():
        if not workers or list(workers) != sorted(workers):
            yield f"workers of {key} are {workers}, expected some, sorted"


def only_active_jobs_show(replica: Replica) -> Iterator[str]:
    """Check that tables about running jobs have only active jobs."""
    shown = {
        "allocations": {job for job, _ in replica.allocations},
        "slots": {job for job, _, _ in replica.slots},
        "coordinators": set(replica.coordinators),
        "allocation_versions": set(replica.allocation_versions),
        "exhausted": {job for job, _ in replica.exhausted},
        "sealed": {job for job, _ in replica.sealed},
    }
    for where, jobs in shown.items():
        yield from (f"job {job} of {where} is not active" for job in sorted(jobs) if job not in replica.jobs)
    for one, other in (("jobs", "killed"), ("jobs", "completed"), ("killed", "completed")):
        both = sorted(getattr(replica, one).keys() & getattr(replica, other).keys())
        yield from (f"job {job} is in {one} and {other}" for job in both)


def a_job_has_all_it_needs_or_nobody(replica: Replica) -> Iterator[str]:
    """Check that each job has at least its minimum of workers for each task, or none at all."""
    for id, job in replica.jobs.items():
        tasks = job.requirements.tasks
        counts = {task.name: len(replica.allocations.get((id, task.name), ())) for task in tasks}
        if not any(counts.values()):
            continue
        for task in tasks:
            count = counts[task.name]
            if count < max(task.min_peers, 1):
                yield f"task {task.name} of job {id} has {count} workers, expected {max(task.min_peers, 1)}"
            if task.max_peers is not None and count > task.max_peers:
                yield f"task {task.name} of job {id} has {count} workers, expected {task.max_peers} at most"


def workers_have_the_tags_of_their_task(replica: Replica) -> Iterator[str]:
    """Check that workers have the tags that their tasks require."""
    for (id, name), workers in replica.allocations.items():
        tasks = replica.jobs[id].requirements.tasks if id in replica.jobs else ()
        required = next((set(task.required_tags) for task in tasks if task.name == name), None)
        if required is None:
            yield f"job {id} has no task {name}"
            continue
        for worker in workers:
            peer = replica.peers.get(worker)
            if peer is not None and not required <= set(peer.tags):
                yield f"worker {worker} lacks tags of task {name} of job {id}"


def slots_are_those_of_the_workers(replica: Replica) -> Iterator[str]:
    """Check that each worker has a slot, and each slot one worker."""
    expected = {(*key, worker) for key, workers in replica.allocations.items() for worker in workers}
    if set(replica.slots) != expected:
        yield f"slots differ from allocations by {sorted(set(replica.slots) ^ expected)}"
    taken = Counter((job, task, slot) for (job, task, _), slot in replica.slots.items())
    yield from (f"slot {key} has {count} workers" for key, count in taken.items() if count > 1)


def who_has_workers_has_a_coordinator(replica: Replica) -> Iterator[str]:
    """Check that exactly the jobs with workers have a coordinator, which is one of these."""
    workers: dict[str, set[str]] = {}
    for (job, _), each in replica.allocations.items():
        workers.setdefault(job, set()).update(each)
    if set(replica.coordinators) != set(workers):
        yield f"jobs with coordinators are {sorted(replica.coordinators)}, with workers {sorted(workers)}"
    for job, coordinator in replica.coordinators.items():
        if coordinator not in workers.get(job, ()):
            yield f"coordinator {coordinator} of job {job} does not work on it"
    yield from (f"job {job} has no version" for job in workers if job not in replica.allocation_versions)


def states_are_those_of_the_peers(replica: Replica) -> Iterator[str]:
    """Check that each peer has a state, which is idle if it has no task."""
    if set(replica.peer_states) != set(replica.peers):
        yield f"states differ from peers by {sorted(set(replica.peer_states) ^ set(replica.peers))}"
    busy = {worker for workers in replica.allocations.values() for worker in workers}
    for peer, state in replica.peer_states.items():
        if (state is PeerState.IDLE) == (peer in busy):
            yield f"peer {peer} is {state.value}, and {'has' if peer in busy else 'has not'} a task"


def peers_are_of_groups_that_joined(replica: Replica) -> Iterator[str]:
    """Check that peers belong to groups that have joined, and are no orphans."""
    for peer, each in replica.peers.items():
        if each.group not in replica.groups:
            yield f"peer {peer} is of {each.group}, which has not joined"
        if peer in replica.orphans:
            yield f"peer {peer} is an orphan too"
    for peer, each in replica.orphans.items():
        if each.group in replica.groups or each.group in replica.left:
            yield f"orphan {peer} is of {each.group}, which is no more to join"


def a_group_is_in_one_place(replica: Replica) -> Iterator[str]:
    """Check that each group joins, helps or is a member at one place only."""
    joining = Counter((*replica.prepared.values(), *replica.accepted.values()))
    helping = Counter((*replica.prepared, *replica.accepted))
    yield from (f"{joiner} joins {count} times at once" for joiner, count in joining.items() if count > 1)
    yield from (f"{watcher} helps {count} joiners" for watcher, count in helping.items() if count > 1)
    yield from (
        f"{watcher} helps, but has not joined" for watcher in helping if watcher not in replica.groups
    )
    places = Counter((*replica.groups, *replica.left, *replica.aborted, *joining))
    yield from (f"{group} is in {count} places" for group, count in places.items() if count > 1)


def the_ring_is_one_cycle_over_all(replica: Replica) -> Iterator[str]:
    """Check that the ring is one cycle over all groups, if groups join by the ring."""
    if replica.parameters.join is JoinMode.DIRECT:
        if replica.pairs or replica.prepared or replica.accepted:
            yield "there is a ring, although groups join directly"
        return
    expected = set(replica.groups) if len(replica.groups) > 1 else set()
    if set(replica.pairs) != expected:
        yield f"the ring has {sorted(replica.pairs)}, expected {sorted(expected)}"
        return
    if not expected:
        return
    start = at = min(expected)
    seen = set()
    while at not in seen and at in replica.pairs:
        seen.add(at)
        at = replica.pairs[at]
    if at != start or seen != expected:
        yield f"from {start} the ring leads to {at} over {sorted(seen)}, expected back over all"


def every_group_has_an_arc_of_a_connected_pool(replica: Replica) -> Iterator[str]:
    """Check that each group has an arc of a pool that is connected."""
    if set(replica.arcs) != set(replica.groups):
        yield f"arcs differ from groups by {sorted(set(replica.arcs) ^ set(replica.groups))}"
    order = pool.ends_in_order(replica.streams)
    used = {arc.ends for arc in replica.arcs.values()}
    yield from (f"there is no arc {ends}" for ends in used if ends not in order)
    missing = [ends for ends in order[: replica.streams] if ends not in used]
    if len(replica.groups) >= replica.streams and missing:
        yield f"arcs {missing} of the cycle have nobody"
    if replica.streams != pool.streams_for(len(replica.groups), replica.streams):
        yield f"there are {replica.streams} streams for {len(replica.groups)} groups"


def no_position_is_ahead(replica: Replica) -> Iterator[str]:
    """Check that no recorded position is above the replica's."""
    names = ("groups", "aborted", "left", "killed", "completed", "allocation_versions", "exhausted", "sealed")
    for name in names:
        for key, position in getattr(replica, name).items():
            if position > replica.version:
                yield f"{name} of {key} is {position}, after {replica.version}"


INVARIANTS: Final[tuple[Invariant, ...]] = (
    workers_exist_and_have_one_task,
    only_active_jobs_show,
    a_job_has_all_it_needs_or_nobody,
    workers_have_the_tags_of_their_task,
    slots_are_those_of_the_workers,
    who_has_workers_has_a_coordinator,
    states_are_those_of_the_peers,
    peers_are_of_groups_that_joined,
    a_group_is_in_one_place,
    the_ring_is_one_cycle_over_all,
    every_group_has_an_arc_of_a_connected_pool,
    no_position_is_ahead,
)


def violations(replica: Replica) -> tuple[str, ...]:
    """Return what violates any invariant; nothing for a replica that came about by playing a log."""
    return tuple(
        f"{invariant.__name__}: {complaint}" for invariant in INVARIANTS for complaint in invariant(replica)
    )


def step_violations(old: Replica, new: Replica) -> tuple[str, ...]:
    """Return what one entry did and must not do."""
    return tuple(_step(old, new))


def _step(old: Replica, new: Replica) -> Iterator[str]:
    for key, slot in old.slots.items():
        if key in new.slots and new.slots[key] != slot:
            yield f"slot of {key} went from {slot} to {new.slots[key]} although the worker stayed"
    for job, coordinator in old.coordinators.items():
        stays = any(coordinator in workers for (each, _), workers in new.allocations.items() if each == job)
        if stays and new.coordinators[job] != coordinator:
            yield f"job {job} got coordinator {new.coordinators[job]} although {coordinator} stayed"
    for job in new.jobs:
        was = {key: workers for key, workers in old.allocations.items() if key[0] == job}
        now = {key: workers for key, workers in new.allocations.items() if key[0] == job}
        versions = old.allocation_versions.get(job), new.allocation_versions.get(job)
        if (was != now) != (versions[0] != versions[1]):
            yield f"job {job} went from {was} to {now}, and its version from {versions[0]} to {versions[1]}"
    for group in old.left:
        if group in new.groups:
            yield f"{group} came back after it left"
    joining = {*new.prepared.values(), *new.accepted.values()}
    for joiner in sorted({*old.prepared.values(), *old.accepted.values()} - joining):
        if joiner not in new.groups and joiner not in new.aborted and joiner not in new.left:
            yield f"{joiner} was joining, and is nowhere"
