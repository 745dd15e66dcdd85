"""Exactly-once state: numbered barriers that flow with the segments, and cut them at one point everywhere.

These are asynchronous barrier snapshots (Carbone et al., 2015). The coordinator has inputs send barrier n
after what they have read so far. A worker with several inputs reads no more from one that brought barrier n
until all have; then its state is that of all segments before the barrier and none after it. It stores that
state, sends barrier n on, and continues. When all workers have stored, checkpoint n is complete: after a
failure all workers begin again from there, inputs at the positions that they stored. Channels between workers
must keep the order of what is sent.

Pure: the caller stores and sends; time is ticks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from onyxlog.errors import OnyxlogError
from onyxlog.ids import Position, TaskName

C = TypeVar("C", bound=Hashable)


class BarrierError(OnyxlogError):
    """A channel brought something that the barrier protocol rules out; the worker has to begin again."""


class Barrier(NamedTuple):
    """A barrier. `version`: the job's allocation version; workers ignore barriers of another one."""

    version: Position
    number: int


class WorkerKey(NamedTuple):
    """A worker as checkpoints name it. The virtual peer that has the slot may change."""

    task: TaskName
    slot: int


class Alignment(Generic[C]):
    """Alignment of the barriers on the channels into one worker.

    An input's only channel is the coordinator.
    """

    def __init__(self, version: Position, channels: Iterable[C], after: int = 0) -> None:
        """Begin after the checkpoint with the number `after`."""
        self._version = version
        self._open = set(channels)
        assert self._open, "a worker has at least one channel"
        self._known = frozenset(self._open)
        self._blocked: set[C] = set()
        self._aligned = after
        self._number: int | None = None

    @property
    def ended(self) -> bool:
        """True if nothing will come any more, from any channel."""
        return not self._open

    @property
    def final(self) -> Barrier:
        """The barrier below which a worker stores its last state, once all has ended.

        It stored no state there before.
        """
        return Barrier(self._version, self._aligned + 1)

    @property
    def aligning(self) -> int | None:
        """The number of the barrier that some channels have brought and others have not."""
        return self._number

    def is_blocked(self, channel: C) -> bool:
        """Return whether nothing may be read from this channel until the barriers are aligned."""
        return channel in self._blocked

    def on_barrier(self, channel: C, barrier: Barrier) -> Barrier | None:
        """Take a barrier. If all channels have brought it now, return it: store, send it on, and read from all again.

        Raises:
            BarrierError: another barrier has to come next on this channel.
        """
        if barrier.version < self._version:
            return None
        self._check(channel, barrier)
        self._number = barrier.number
        self._blocked.add(channel)
        return self._aligned_now()

    def on_end(self, channel: C) -> Barrier | None:
        """Note that nothing will come from this channel any more, so that no barrier waits for it.

        Return the barrier that is complete thereby, if any.

        Raises:
            BarrierError: the channel ended before, or it is blocked and so cannot have said anything.
        """
        self._check_open(channel, "its end")
        self._open.discard(channel)
        return self._aligned_now()

    def _aligned_now(self) -> Barrier | None:
        if self._number is None or self._blocked != self._open:
            return None
        barrier = Barrier(self._version, self._number)
        self._aligned, self._number = self._number, None
        self._blocked.clear()
        return barrier

    def _check(self, channel: C, barrier: Barrier) -> None:
        self._check_open(channel, f"barrier {barrier.number}")
        if barrier.version > self._version:
            raise BarrierError(
                f"channel {channel!r} brought a barrier of allocation version {barrier.version}, this worker is of "
                f"{self._version}: it has missed a reallocation"
            )
        if self._number is not None and barrier.number != self._number:
            raise BarrierError(
                f"channel {channel!r} brought barrier {barrier.number}, others have brought {self._number}"
            )
        if barrier.number <= self._aligned:
            raise BarrierError(
                f"channel {channel!r} brought barrier {barrier.number} after {self._aligned} was complete"
            )

    def _check_open(self, channel: C, what: str) -> None:
        if channel not in self._known:
            raise BarrierError(f"{what} came from {channel!r}, which is no channel into this worker")
        if channel in self._blocked:
            raise BarrierError(
                f"channel {channel!r} brought {what} while it was blocked by barrier {self._number}"
            )
        if channel not in self._open:
            raise BarrierError(f"channel {channel!r} brought {what} after its end")
