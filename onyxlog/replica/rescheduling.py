"""New division of the work in the replica, after workers or jobs changed."""

from __future__ import annotations

from functools import lru_cache

from attrs import evolve

from onyxlog.ids import JobId, PeerId, Position
from onyxlog.replica.replica import PeerState, Replica, SubmittedJob, VirtualPeer
from onyxlog.replica.table import Table
from onyxlog.scheduling.reconfigure import Plan, reconfigure
from onyxlog.scheduling.requirements import JobRequirements, Problem, Worker


def jobs_in_order(replica: Replica) -> tuple[JobRequirements, ...]:
    """Return jobs in the order in which they were submitted, by which schedulers prefer them."""
    return replica.jobs.view(_requirements)


def _requirements(jobs: Table[JobId, SubmittedJob]) -> tuple[JobRequirements, ...]:
    return tuple(job.requirements for job in sorted(jobs.values(), key=lambda job: job.submitted))


# All peers ask for all workers after each entry, and hardly any of them ever changes.
@lru_cache(maxsize=16_384)
def _worker(id: PeerId, peer: VirtualPeer) -> Worker:
    return Worker(id, peer.site, frozenset(peer.tags))


def _workers(peers: Table[PeerId, VirtualPeer]) -> tuple[Worker, ...]:
    return tuple(map(_worker, peers, peers.values()))


def problem(replica: Replica) -> Problem:
    """Return what the schedulers decide from."""
    return Problem(
        replica.parameters.job_scheduler,
        replica.peers.view(_workers),
        jobs_in_order(replica),
        replica.allocations,
        replica.coordinators,
        replica.slots,
    )


def rescheduled(replica: Replica, position: Position) -> Replica:
    """Return the replica with the work divided between its peers and jobs."""
    plan = reconfigure(problem(replica))
    versions = replica.allocation_versions.update(
        {job: position for job in plan.changed if job in replica.jobs}
    ).where_not(lambda job: job not in replica.jobs)
    return evolve(
        replica,
        allocations=replica.allocations.replaced(plan.allocations),
        slots=replica.slots.replaced(plan.slots),
        coordinators=replica.coordinators.replaced(plan.coordinators),
        allocation_versions=versions,
        peer_states=replica.peer_states.replaced(_states(replica, plan)),
    )


def _states(replica: Replica, plan: Plan) -> dict[PeerId, PeerState]:
    """Set all workers of a changed job to begin again, and workers without a task to idle."""
    changed = frozenset(plan.changed)
    busy = {
        worker: PeerState.WARMING_UP
        if job in changed
        else replica.peer_states.get(worker, PeerState.WARMING_UP)
        for (job, _), workers in plan.allocations.items()
        for worker in workers
    }
    return {peer: busy.get(peer, PeerState.IDLE) for peer in replica.peers}
