"""What every simulated server process does: it turns when something arrived, writes frames, and loses its power.

A turn happens when something arrived or when the process asked to be woken; everything that arrived since the last turn is
one turn's input, as in a real event loop. A crash keeps of the disk what a real one would: everything fsynced, and any part
of what was not. Which parts of the product run in a process is for its kind to say.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from tests.simulation.disk import ProcessDied
from tests.simulation.network import decode_datagram
from tests.simulation.profile import Profile
from tests.simulation.schedule import Schedule
from tests.simulation.server_disk import ServerDisk
from zraft.storage.errors import DiskFullError
from zraft.storage.records import Record
from zraft.transport.messages import PeerMessage, Sender
from zraft_core.errors import StorageError
from zraft_core.ids import Instance, ServerId

INBOX_MAX: Final = 400
"""Datagrams that wait for a stopped process; a kernel's socket buffer holds about as many."""

RETRY_FULL_DISK_MS: Final = 40


class FrameObserver(Protocol):
    """Who watches what a process writes."""

    def writing(self, process: Any, records: Sequence[Record]) -> None: ...
    def durable(self, process: Any, records: Sequence[Record]) -> None: ...


D = TypeVar("D", bound=ServerDisk)
W = TypeVar("W", bound=FrameObserver)


class SimulatedProcess(ABC, Generic[D, W]):
    """One server's process: up or down, running or stopped.

    Attributes:
        image: its disk, which outlives the process.
        calm: after healing its disk takes no longer than usual.
        log_waits: the log's disk takes its time; no write ends before this is taken back.
        on_death: called when a planned step of the disk was the end of the process, which is down by then.
    """

    def __init__(
        self,
        server: ServerId,
        schedule: Schedule,
        profile: Profile,
        seed: str,
        observer: W,
    ) -> None:
        self.server = server
        self._schedule = schedule
        self._profile = profile
        self._seed = seed
        self._rng = random.Random(f"{seed}/process/{server}")
        self._observer = observer
        self._wipes = 0
        self.image: D = self._new_disk(self._disk_rng())
        self.sender = Sender(server, Instance(b""), 0)
        self.boots = 0
        self.turns = 0
        self.stopped_until_ms = 0
        self.calm = False
        self.log_waits = False
        self.on_death: Callable[[], None] = lambda: None
        self._turn_at: int | None = None
        self._inbox: deque[tuple[Sender, bytes]] = deque()
        self._frame: list[Record] | None = None
        self._frame_done = False
        self._tasks: deque[Any] = deque()
        """Of the snapshot disk."""

    # -- what a kind of process says

    @property
    @abstractmethod
    def up(self) -> bool:
        """Whether the process runs, or is stopped."""

    @abstractmethod
    def _start(self) -> None:
        """Start from whatever the disk holds, perhaps also the frame that was on its way when the last life ended."""

    @abstractmethod
    def _new_disk(self, rng: random.Random) -> D: ...

    @abstractmethod
    def _take_turn(self) -> None:
        """Feed what arrived, and carry out what comes of it."""

    @abstractmethod
    def _lose_memory(self) -> None:
        """Nothing is left of what only the process had: `up` is false from now on."""

    @abstractmethod
    def _compact(self) -> None:
        """Let the log give back what it was told to; no frame is being written."""

    @abstractmethod
    def _perform(self, task: Any) -> None:
        """Do a task of the snapshot disk.

        Raises:
            StorageError: the disk failed.
        """

    @property
    def _may_boot(self) -> bool:
        """Whether whoever supervises it would start it."""
        return True

    def _compacting(self) -> int | None:
        """How far the log was to be given back when the power failed."""
        return None

    @property
    def _task_ms_max(self) -> int:
        """How long the snapshot disk needs for a task."""
        return self._profile.fsync_ms_max

    def _end(self, why: StorageError) -> None:
        """The disk failed: the process ends (D-10)."""
        raise why

    # -- life

    def boot(self) -> None:
        """Start from whatever the disk holds; nothing happens if it is up."""
        if self.up or not self._may_boot:
            return
        self.boots += 1
        self._until_death(self._start)

    def _take_in_flight(self) -> list[Record] | None:
        """What was on its way to the disk; it is there now, or it is not."""
        in_flight, self._frame = self._frame, None
        return in_flight

    def _until_death(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call it. The power may fail at a step of the disk that was planned for that."""
        try:
            call(*arguments)
        except ProcessDied:
            if self.up:
                self.crash()
            else:
                self.image.crash(power=True)
            self.on_death()

    def _later(self, delay_ms: int, call: Callable[..., None], *arguments: Any) -> None:
        """Call it then, if this life of the process lasts so long."""
        self._schedule.after(delay_ms, self._if_alive, self.boots, call, *arguments)

    def _if_alive(self, boot: int, call: Callable[..., None], *arguments: Any) -> None:
        if self.up and boot == self.boots:
            self._until_death(call, *arguments)

    @property
    def stopped(self) -> bool:
        return self._schedule.now_ms < self.stopped_until_ms

    @property
    def frame_in_flight(self) -> Sequence[Record] | None:
        """What is on its way to the disk."""
        return self._frame

    def _disk_rng(self) -> random.Random:
        return random.Random(f"{self._seed}/disk/{self.server}/{self._wipes}")

    def crash(self, *, power: bool | None = None) -> None:
        """The process is gone, and what was not fsynced: if the power failed, which is rolled unless given."""
        if not self.up:
            return
        # Where the disk itself was the end of the process, what was done is done.
        at_the_disk = self.image.disk.died
        task = self._tasks[0] if self._tasks else None
        if self._frame is not None and not self._frame_done:
            if not at_the_disk:
                self.image.tear(self._frame, task)
        else:
            self._frame = None
            compact_to = self._compacting()
            if not at_the_disk and (task is not None or compact_to is not None):
                self.image.tear(None, task, compact_to)
        self.image.crash(True if at_the_disk else power)
        self._lose_memory()
        self._tasks.clear()
        self._frame_done = False
        self._turn_at = None
        self._inbox.clear()
        self.stopped_until_ms = 0

    def wipe(self) -> None:
        """The disk is replaced by an empty one; the process is down."""
        assert not self.up
        self._wipes += 1
        self._frame = None
        self.image = self._new_disk(self._disk_rng())

    def stop(self, until_ms: int) -> None:
        """SIGSTOP: no turns; sockets fill up."""
        self.stopped_until_ms = max(self.stopped_until_ms, until_ms)

    def resume(self) -> None:
        """SIGCONT."""
        self.stopped_until_ms = self._schedule.now_ms
        self._request_turn(self._schedule.now_ms)

    def wake(self) -> None:
        """Somebody inside the process has something to do."""
        self._request_turn(self._schedule.now_ms)

    # -- turns

    def datagram(self, sender: Sender, data: bytes) -> None:
        if self.up and len(self._inbox) < INBOX_MAX:
            self._inbox.append((sender, data))
            self._request_turn(self._schedule.now_ms)

    def _arrived(self) -> Iterator[tuple[Sender, Sequence[PeerMessage]]]:
        while self._inbox:
            sender, data = self._inbox.popleft()
            yield sender, decode_datagram(data)

    def _request_turn(self, when_ms: int) -> None:
        # It may be down: what called has perhaps just found out that its disk failed.
        if self.up and (self._turn_at is None or when_ms < self._turn_at):
            self._plan_turn(when_ms)

    def _plan_turn(self, when_ms: int) -> None:
        self._turn_at = when_ms
        self._schedule.at(when_ms, self._if_alive, self.boots, self._turn, when_ms)

    def _turn(self, planned_ms: int) -> None:
        if self._turn_at != planned_ms:
            return
        if self.stopped:
            self._plan_turn(self.stopped_until_ms)
            return
        self._turn_at = None
        self._take_turn()

    # -- disk

    def _take_durable(self) -> bool:
        """Whether the frame that was in flight is durable since the last turn."""
        done = self._frame_done
        if done:
            self._frame, self._frame_done = None, False
        return done

    def _write(self, records: list[Record]) -> None:
        assert self._frame is None, "a second frame while one is in flight"
        profile, rng = self._profile, self._rng
        self._observer.writing(self, records)
        self._frame = records
        delay = rng.randint(0, profile.fsync_ms_max)
        if not self.calm and rng.random() < profile.slow_fsync:
            delay += rng.randint(0, profile.slow_fsync_ms_max)
        self._later(delay, self._written)

    def _written(self) -> None:
        if self._frame is None:
            return
        if self.log_waits:
            self._later(1, self._written)
            return
        try:
            self.image.append(self._frame)
        except DiskFullError:
            self._later(RETRY_FULL_DISK_MS, self._written)
            return
        except StorageError as error:
            self._end(error)
            return
        self._observer.durable(self, self._frame)
        self._frame_done = True
        self._compact()
        self._request_turn(self._schedule.now_ms)

    def _queue(self, tasks: Sequence[object]) -> None:
        """Hand tasks to the snapshot disk, which does one after the other."""
        idle = not self._tasks
        self._tasks.extend(tasks)
        if tasks and idle:
            self._begin_task()

    def _begin_task(self) -> None:
        self._later(self._rng.randint(0, self._task_ms_max), self._next_task)

    def _next_task(self) -> None:
        """The snapshot disk has done its first task."""
        try:
            self._perform(self._tasks.popleft())
        except StorageError as error:
            self._end(error)
            return
        if self._tasks:
            self._begin_task()
        self._request_turn(self._schedule.now_ms)
