"""Checkpoints: when they are taken, when one is complete, where its parts are, and which parts are obsolete. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import field, frozen

from onyxlog.errors import EntryError
from onyxlog.ids import JobId, Position, TaskName
from onyxlog.jobs.barriers import Barrier, WorkerKey
from onyxlog.jobs.segments import canonical, decoded

FORMAT: Final = 1


@frozen
class Checkpoint:
    """All that a job needs to continue from barrier `barrier`: where each worker's state is.

    A worker that had finished before has stored its last state at an earlier barrier. Numbers of barriers
    grow over allocation versions.
    """

    job: JobId
    barrier: Barrier
    parts: Mapping[WorkerKey, Barrier] = field(factory=dict, hash=False)

    def slots_of(self, task: TaskName) -> tuple[int, ...]:
        """Return the slots of the workers that the task had."""
        return tuple(sorted(worker.slot for worker in self.parts if worker.task == task))

    def path_of(self, worker: WorkerKey) -> str:
        """Return the path of a worker's state below the tenancy's `state/`."""
        return part_path(self.job, self.parts[worker], worker)


@frozen
class CompletedCheckpoint:
    """A complete checkpoint.

    Store `checkpoint` at `latest_path`; after that, what is at and below the paths `over` may be removed.
    """

    checkpoint: Checkpoint
    over: tuple[str, ...]


def latest_path(job: JobId) -> str:
    """Return where the last complete checkpoint of a job is written, below `state/`. Its parts are stored before it."""
    return f"checkpoints/{job}/latest"


def part_path(job: JobId, barrier: Barrier, worker: WorkerKey) -> str:
    """Return where a worker stores its state, below `state/`.

    Another allocation version has another path, so a worker that does not know yet that it was replaced
    spoils nothing.
    """
    return f"{barrier_path(job, barrier)}/{worker.task}-{worker.slot}"


def barrier_path(job: JobId, barrier: Barrier) -> str:
    """Return the path above all parts of a checkpoint."""
    return f"{version_path(job, barrier.version)}/{barrier.number}"


def version_path(job: JobId, version: Position) -> str:
    """Return the path above all parts that workers of an allocation version stored."""
    return f"checkpoints/{job}/parts/{version}"


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as bytes."""
    parts = [
        [worker.task, worker.slot, barrier.version, barrier.number]
        for worker, barrier in sorted(checkpoint.parts.items())
    ]
    return canonical([FORMAT, checkpoint.job, checkpoint.barrier.version, checkpoint.barrier.number, parts])


def decode_checkpoint(data: bytes, where: str) -> Checkpoint:
    """Decode what `encode_checkpoint` made.

    Raises:
        EntryError: the bytes are anything else; the message begins with `where`.
    """
    try:
        version, job, allocation, number, parts = decoded(data)
        if version != FORMAT:
            raise EntryError(f"{where}: a checkpoint of format {version!r}, this version reads {FORMAT}")
        return Checkpoint(
            _of(str, job),
            Barrier(_of(int, allocation), _of(int, number)),
            {
                WorkerKey(_of(str, task), _of(int, slot)): Barrier(_of(int, at), _of(int, stored))
                for task, slot, at, stored in parts
            },
        )
    except EntryError:
        raise
    except (ValueError, TypeError) as error:
        raise EntryError(f"{where}: not a checkpoint: {error}") from error


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, found {value!r}")
    return value


class CheckpointCoordinator:
    """Coordinator of a job's checkpoints, for one allocation version.

    One checkpoint is under way at a time. One that is not complete in time is given up, and its barriers do
    no harm: the next has a higher number.
    """

    def __init__(
        self,
        job: JobId,
        version: Position,
        workers: Iterable[WorkerKey],
        *,
        interval_ticks: int,
        timeout_ticks: int,
        last: Checkpoint | None = None,
    ) -> None:
        """Begin from the checkpoint `last`, from which all workers began; None if they began from nothing."""
        assert last is None or last.barrier.version < version, f"{last} is not older than {version}"
        assert interval_ticks > 0, f"{interval_ticks=}"
        assert timeout_ticks > 0, f"{timeout_ticks=}"
        self._job = job
        self._version = version
        self._workers = frozenset(workers)
        self._interval = interval_ticks
        self._timeout = timeout_ticks
        self._number = last.barrier.number if last else 0
        # Versions whose parts are stored, or may be, as far as it is known here; not those that never
        # completed a checkpoint.
        self._standing = {last.barrier} if last else set()
        self._finished: dict[WorkerKey, Barrier] = {}
        self._stored: set[WorkerKey] = set()
        self._under_way: Barrier | None = None
        self._begun = 0
        self._next: int | None = None
        self.given_up = 0
        """The number of checkpoints that were not complete in time."""

    @property
    def under_way(self) -> Barrier | None:
        """The barrier of the checkpoint that is being taken, or None."""
        return self._under_way

    def tick(self, now: int) -> Barrier | None:
        """Return the barrier that all inputs have to send now, if it is time."""
        if self._next is None:
            self._next = now + self._interval
        if self._under_way is not None:
            if now - self._begun < self._timeout:
                return None
            self._under_way = None
            self.given_up += 1
        if now < self._next or self._workers <= self._finished.keys():
            return None
        return self.begin(now)

    def begin(self, now: int) -> Barrier:
        """Begin a checkpoint at once, before its time. None may be under way."""
        assert self._under_way is None, f"{self._under_way} is under way"
        self._number += 1
        self._begun, self._next = now, now + self._interval
        self._stored = set()
        self._under_way = Barrier(self._version, self._number)
        self._standing.add(self._under_way)
        return self._under_way

    def on_stored(self, worker: WorkerKey, barrier: Barrier) -> CompletedCheckpoint | None:
        """Note that a worker's state is stored at `part_path`; return the checkpoint if that makes it complete.

        Reports of barriers that are over, or by strangers, are ignored.
        """
        if barrier != self._under_way or worker not in self._workers:
            return None
        self._stored.add(worker)
        return self._complete()

    def on_finished(self, worker: WorkerKey, barrier: Barrier) -> CompletedCheckpoint | None:
        """Note that a worker's inputs have ended, and that its last state is stored at `part_path` of `barrier`.

        That barrier is the one after the last that the worker stored for: it will not store for that one. It
        takes no part in later checkpoints. A second report with another barrier is ignored.
        """
        if barrier.version != self._version or worker not in self._workers:
            return None
        self._standing.add(self._finished.setdefault(worker, barrier))
        return self._complete()

    def _complete(self) -> CompletedCheckpoint | None:
        if self._under_way is None or not self._workers <= self._stored | self._finished.keys():
            return None
        barrier, self._under_way = self._under_way, None
        # A worker that stored for this barrier and finished afterwards belongs to it with what it stored for it.
        parts = {
            worker: barrier if worker in self._stored else self._finished[worker]
            for worker in sorted(self._workers)
        }
        checkpoint = Checkpoint(self._job, barrier, parts)
        # All later checkpoints need what a worker stored when it finished.
        needed = {*parts.values(), *self._finished.values()}
        over, self._standing = self._standing - needed, self._standing & needed
        return CompletedCheckpoint(
            checkpoint, tuple(_path_when_over(self._job, old, self._version) for old in sorted(over))
        )


def _path_when_over(job: JobId, barrier: Barrier, version: Position) -> str:
    """Return the path that is obsolete with an older version once this one has a checkpoint."""
    return barrier_path(job, barrier) if barrier.version == version else version_path(job, barrier.version)
