"""Workers of a job in one attempt, computed from the replica, the same by all. Pure."""

from __future__ import annotations

from attrs import field, frozen

from onyxlog.ids import GroupId, JobId, PeerId, Position, Site, TaskName
from onyxlog.replica.replica import Replica
from onyxlog.tasks.items import ChannelEnd


@frozen
class Seat:
    """A worker's place: its task, its slot, and where it is reached."""

    task: TaskName
    slot: int
    peer: PeerId
    group: GroupId
    site: Site


@frozen
class JobLayout:
    """All workers of a job while its allocations are as they became at `version`; sorted by task and slot.

    `submitted`: the job's position in the log.
    """

    job: JobId
    submitted: Position
    version: Position
    seats: tuple[Seat, ...]
    coordinator: PeerId
    _by_task: dict[TaskName, tuple[Seat, ...]] = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        by_task: dict[TaskName, tuple[Seat, ...]] = {}
        for seat in self.seats:
            by_task[seat.task] = (*by_task.get(seat.task, ()), seat)
        object.__setattr__(self, "_by_task", by_task)

    def of(self, task: TaskName) -> tuple[Seat, ...]:
        """Return the workers of a task in the order of their slots."""
        return self._by_task.get(task, ())

    def seat_of(self, peer: PeerId) -> Seat | None:
        """Return the seat of a peer, or None if it does not work for the job."""
        return next((seat for seat in self.seats if seat.peer == peer), None)

    def index_of(self, seat: Seat) -> int:
        """Return a worker's rank among the workers of its task."""
        return self.of(seat.task).index(seat)

    def number_of(self, seat: Seat) -> int:
        """Return a worker's rank among all workers of the job: it is in the upper bits of the roots that it owns."""
        return self.seats.index(seat)

    def worker(self, seat: Seat) -> ChannelEnd:
        """Return the address of a seat's worker."""
        return ChannelEnd(self.job, self.version, seat.peer)


def layout_of(replica: Replica, job: JobId) -> JobLayout | None:
    """Return the layout of a job; None if nobody works for it."""
    coordinator = replica.coordinators.get(job)
    if coordinator is None:
        return None
    seats = []
    for (of, task), peers in replica.allocations.items():
        if of == job:
            for peer in peers:
                virtual = replica.peers[peer]
                seats.append(Seat(task, replica.slots[of, task, peer], peer, virtual.group, virtual.site))
    seats.sort(key=lambda seat: (seat.task, seat.slot))
    return JobLayout(
        job, replica.jobs[job].submitted, replica.allocation_versions[job], tuple(seats), coordinator
    )
