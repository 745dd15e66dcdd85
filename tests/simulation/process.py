"""Owns one simulated server process: its disk, its boots, its event loop and its sockets.

The process runs the shipped `zraft.server.engine.driver.Driver` on the shipped write-ahead log. A turn happens when
something arrived or when the driver asked to be woken; everything that arrived since the last turn is one
turn's input, as in a real event loop. A crash keeps of the disk what a real one would: everything fsynced,
and any part of what was not.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from attrs import evolve

from tests.simulation.adoption_checks import AdoptionChecks
from tests.simulation.broken import BrokenPromiseError
from tests.simulation.disk_image import DiskImage
from tests.simulation.profile import Profile
from tests.simulation.rights import ADDRESS_ID
from tests.simulation.schedule import Schedule
from tests.simulation.sockets import Socket
from zraft.groups.recovery import Stored
from zraft.groups.snapshots.tasks import Complete, Finish, Result, Task
from zraft.raft.log import Log
from zraft.raft.messages import HardState
from zraft.raft.role import Role
from zraft.server.engine.driver import Driver
from zraft.server.engine.effects import Effects
from zraft.server.engine.settings import DriverSettings
from zraft.storage.errors import CorruptionError, DiskFullError, FsyncError, WriteError
from zraft.storage.records import Record
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.transport.messages import PeerMessage, Sender
from zraft_core.errors import StorageError
from zraft_core.ids import Instance, ServerId

INBOX_MAX: Final = 400
"""Datagrams that wait for a stopped process; a kernel's socket buffer holds about as many."""

RETRY_FULL_DISK_MS: Final = 40

RETRY_BOOT_MS: Final = 40

WALL_EPOCH_MS: Final = 1_700_000_000_000


class Observer(Protocol):
    """Who watches processes: the checkers, through the simulation."""

    def booted(self, process: Process, in_flight: Sequence[Record] | None) -> None: ...
    def turned(self, process: Process) -> None: ...
    def sending(self, sender: Sender, to: ServerId, messages: Sequence[PeerMessage]) -> None: ...
    def writing(self, process: Process, records: Sequence[Record]) -> None: ...
    def durable(self, process: Process, records: Sequence[Record]) -> None: ...
    def accepted(self, process: Process, socket: Socket) -> None: ...
    def snapshot(self, process: Process, info: SnapshotInfo, *, received: bool) -> None: ...
    def compacting(self, process: Process, index: int) -> None: ...
    def ended(self, process: Process, why: StorageError) -> None: ...
    def output(self, process: Process, socket: Socket, data: bytes) -> None: ...


class Process:
    """One server: up or down, running or stopped."""

    def __init__(
        self,
        server: ServerId,
        peers: Callable[[Process], Sequence[ServerId]],
        settings: DriverSettings,
        schedule: Schedule,
        profile: Profile,
        seed: str,
        decode: Callable[[bytes], Sequence[PeerMessage]],
        observer: Observer,
        *,
        in_service: bool,
    ) -> None:
        self.server = server
        self.in_service = in_service
        """False for one that was not added yet, or was shut down for good: nobody starts it."""
        self._peers = peers
        self._settings = settings
        self._schedule = schedule
        self._profile = profile
        self._seed = seed
        self._rng = random.Random(f"{seed}/process/{server}")
        self._decode = decode
        self._observer = observer
        self.image = DiskImage(server, random.Random(f"{seed}/disk/{server}/0"))
        self._wipes = 0
        self._wiped_at_boot = 0
        self.adoptions = AdoptionChecks(server)
        self.must_be_replaced = False
        """It says that what is on its disk is not enough to start from."""
        self.may_be_damaged = False
        """Its disk was spoiled on purpose while it was down: it may refuse to start."""
        self.features = settings.features
        self.driver: Driver | None = None
        self.stored = Stored(HardState(), None, Log())
        self.sender = Sender(server, Instance(b""), 0)
        self.boots = 0
        self.booted_at_ms = 0
        self.stopped_until_ms = 0
        self.wall_skew_ms = 0
        self.frozen_ms = 0
        self.calm = False
        self._clock_offset_ms = self._rng.randint(0, 10_000_000)
        self._turn_at: int | None = None
        self._wake_ms = 0
        self._asked_ms = 0
        self._counted = (0, 0, 0)
        """The clock, the time that the server counted as passed, and its boot, when the last turn ended."""
        """When the driver wants its next turn, whatever arrives."""
        self._inbox: deque[tuple[Sender, bytes]] = deque()
        self._client_events: list[tuple[str, Socket, bytes]] = []
        self._sockets: dict[int, Socket] = {}
        self._frame: list[Record] | None = None
        self._frame_number = 0
        self._frame_done = False
        self.log_waits = False
        """The log's disk takes its time: no write ends before this is taken back."""
        self._compact_to: int | None = None
        self._tasks: deque[Task] = deque()
        self._task_number = 0
        self._performed: list[tuple[Task, Result]] = []
        self.turns = 0

    @property
    def up(self) -> bool:
        return self.driver is not None

    @property
    def opened(self) -> bool:
        """Whether the disk that it has was ever used."""
        return self.image.opened

    @property
    def first_disk(self) -> bool:
        """Whether the disk was never replaced."""
        return self._wipes == 0

    def wiped_since(self, boots: int) -> bool:
        """Whether the disk is another than that of an earlier boot."""
        return self._wiped_at_boot >= boots and self._wipes > 0

    @property
    def outside(self) -> bool:
        """It runs and takes part in nothing: it waits to be taken in."""
        return self.driver is not None and self.driver.raft is None

    @property
    def stopped(self) -> bool:
        return self._schedule.now_ms < self.stopped_until_ms

    @property
    def leads(self) -> bool:
        return self.driver is not None and self.driver.role is Role.LEADER

    @property
    def frame_in_flight(self) -> Sequence[Record] | None:
        return self._frame

    @property
    def clock_ms(self) -> int:
        """This machine's monotonic clock; every machine's began at another moment."""
        return self._schedule.now_ms + self._clock_offset_ms - self.frozen_ms

    # -- life
    def boot(self) -> None:
        """Start from whatever the disk holds."""
        if self.driver is not None or not self.in_service or self.must_be_replaced:
            return
        self.boots += 1
        self.booted_at_ms = self._schedule.now_ms
        in_flight, self._frame = self._frame, None
        entropy = random.Random(f"{self._seed}/entropy/{self.server}/{self.boots}")
        try:
            identity, stored = self.image.open(entropy.randbytes)
        except CorruptionError:
            if not self.may_be_damaged:
                raise
            self.image.crash()
            self.must_be_replaced = True
            return
        except (DiskFullError, WriteError, FsyncError):
            # It says so and ends; whoever supervises it tries again.
            self.image.crash()
            self._frame = in_flight
            self._schedule.after(RETRY_BOOT_MS, self.boot)
            return
        self.may_be_damaged = False
        self.stored = stored
        self.adoptions = AdoptionChecks(self.server)
        self.driver = Driver(
            settings=evolve(self._settings, features=self.features),
            identity=identity,
            peers=self._peers(self),
            stored=stored,
            rng=random.Random(f"{self._seed}/driver/{self.server}/{self.boots}"),
            entropy=entropy.randbytes,
            four_letter_word=lambda word, argument: word.encode(),
            now_ms=self.clock_ms,
        )
        self.sender = Sender(self.server, identity.instance, identity.boot)
        self._observer.booted(self, in_flight)
        self._wake_ms = self._schedule.now_ms
        self._request_turn(self._schedule.now_ms)

    def crash(self, *, sockets_silent: bool = False, power: bool | None = None) -> None:
        """The process is gone, and what was not fsynced: if the power failed, which is rolled unless given."""
        if self.driver is None:
            return
        # Where the disk itself was the end of the process, what was done is done.
        at_the_disk = self.image.disk.died
        task = self._tasks[0] if self._tasks else None
        if self._frame is not None and not self._frame_done:
            if not at_the_disk:
                self.image.tear(self._frame, task)
        else:
            self._frame = None
            if not at_the_disk and (task is not None or self._compact_to is not None):
                self.image.tear(None, task, self._compact_to)
        self.image.crash(True if at_the_disk else power)
        self._compact_to = None
        self._tasks.clear()
        self._performed.clear()
        self._task_number += 1
        self.driver = None
        self._frame_done = False
        self._frame_number += 1
        self._turn_at = None
        self._inbox.clear()
        self._client_events.clear()
        self.stopped_until_ms = 0
        for socket in self._sockets.values():
            socket.close_from_server(silently=sockets_silent)
        self._sockets.clear()

    def wipe(self) -> None:
        """The disk is replaced by an empty one; the process is down."""
        assert self.driver is None
        self._wipes += 1
        self._wiped_at_boot = self.boots
        self._frame = None
        self.must_be_replaced = self.may_be_damaged = False
        self.image = DiskImage(self.server, random.Random(f"{self._seed}/disk/{self.server}/{self._wipes}"))

    def stop(self, until_ms: int) -> None:
        """SIGSTOP: no turns; sockets fill up."""
        self.stopped_until_ms = max(self.stopped_until_ms, until_ms)

    def resume(self) -> None:
        """SIGCONT."""
        self.stopped_until_ms = self._schedule.now_ms
        if self.driver is not None:
            self._request_turn(self._schedule.now_ms)

    def wake(self) -> None:
        """Somebody inside the process has something to do."""
        if self.driver is not None:
            self._wake_ms = self._schedule.now_ms
            self._request_turn(self._schedule.now_ms)

    # -- input
    def datagram(self, sender: Sender, data: bytes) -> None:
        if self.driver is None or len(self._inbox) >= INBOX_MAX:
            return
        self._inbox.append((sender, data))
        self._request_turn(self._schedule.now_ms)

    def accept(self, socket: Socket) -> None:
        if self.driver is None:
            socket.close_from_server()
            return
        self._sockets[socket.number] = socket
        self._client_event("accept", socket, b"")

    def received(self, socket: Socket, data: bytes) -> None:
        self._client_event("data", socket, data)

    def closed(self, socket: Socket) -> None:
        self._client_event("lost", socket, b"")

    def _client_event(self, kind: str, socket: Socket, data: bytes) -> None:
        if self.driver is not None:
            self._client_events.append((kind, socket, data))
            self._request_turn(self._schedule.now_ms)

    # -- turns
    def _request_turn(self, when_ms: int) -> None:
        if self.driver is None:
            return  # what called has just found out that its disk failed
        if self._turn_at is None or when_ms < self._turn_at:
            self._turn_at = when_ms
            self._schedule.at(when_ms, self._turn, when_ms, self.boots)

    def _turn(self, planned_ms: int, boot: int) -> None:
        driver = self.driver
        if driver is None or self._turn_at != planned_ms or boot != self.boots:
            return
        if self.stopped:
            self._turn_at = self.stopped_until_ms
            self._schedule.at(self.stopped_until_ms, self._turn, self.stopped_until_ms, boot)
            return
        self._turn_at = None
        regular = self._schedule.now_ms >= self._wake_ms
        wanted = regular or bool(self._client_events) or bool(self._performed)
        if self._frame_done:
            self._frame, self._frame_done = None, False
            driver.persisted()
        performed, self._performed = self._performed, []
        for task, result in performed:
            driver.performed(task, result)
        if self._inbox:
            driver.pass_time(self.clock_ms)
        while self._inbox:
            sender, data = self._inbox.popleft()
            driver.receive(sender, self._decode(data))
        if self._client_events:
            events, self._client_events = self._client_events, []
            for kind, socket, data in events:
                self._feed(driver, kind, socket, data)
        if not wanted and not driver.wants_turn:
            # As in the server's own loop: what arrived waits for the next turn that something gives a reason for.
            self._request_turn(self._wake_ms)
            return
        self.turns += 1
        effects = driver.turn(self.clock_ms, self._schedule.now_ms + WALL_EPOCH_MS + self.wall_skew_ms)
        self._check_time(driver, effects)
        if driver.mistakes:
            # The server drops such a message and lives; here every peer is ours, so somebody is wrong.
            _, mistake = driver.mistakes.popleft()
            raise BrokenPromiseError("no mistakes", mistake)
        self._observer.turned(self)
        connections = [
            socket.connection for socket in self._sockets.values() if socket.connection is not None
        ]
        self.adoptions.turned(driver, effects.sends, effects.outputs, connections)
        if self.driver is not None:  # its disk has not failed
            self._carry_out(effects)

    def _check_time(self, driver: Driver, effects: Effects) -> None:
        """D-11: a process that was woken no later than it asked for has counted all the time between."""
        asked_ms, before, self._asked_ms = self._asked_ms, self._counted, effects.wake_at
        self._counted = counted = (self.clock_ms, driver.clock.run, self.boots)
        passed, run = counted[0] - before[0], counted[1] - before[1]
        if before[2] == self.boots and counted[0] <= asked_ms and run != passed:
            raise BrokenPromiseError("no time lost", f"of {passed} ms between two turns {run} counted")

    def _feed(self, driver: Driver, kind: str, socket: Socket, data: bytes) -> None:
        if kind == "accept":
            connection = driver.connect(f"10.0.0.{socket.number % 250}:{socket.number}", _ANYONE)
            if connection is None:
                self._hang_up(socket)
                return
            connection.handle = socket
            socket.connection = connection
            self._observer.accepted(self, socket)
        elif socket.connection is not None and socket.number in self._sockets:
            if kind == "data":
                socket.connection.data_received(data)
            else:
                self._sockets.pop(socket.number)
                socket.connection.connection_lost()

    def _carry_out(self, effects: Effects) -> None:
        for to, messages in effects.sends:
            self._observer.sending(self.sender, to, messages)
        for connection, data, close in effects.outputs:
            socket = connection.handle
            if socket.number not in self._sockets:
                continue
            if data:
                self._observer.output(self, socket, data)
                socket.to_client(data)
            if close:
                self._hang_up(socket)
        if effects.write is not None:
            assert self._frame is None, "a second frame while one is in flight"
            self._write(effects.write)
        self.adoptions.kept([socket.connection for socket in self._sockets.values()])
        if effects.compact_to is not None:
            self._observer.compacting(self, effects.compact_to)
            self._compact_to = effects.compact_to
            if self._frame is None:
                self._compact()
        if self.driver is None:
            return
        if effects.tasks:
            idle = not self._tasks
            self._tasks.extend(effects.tasks)
            if idle:
                self._begin_task()
        now = self._schedule.now_ms
        self._wake_ms = max(now + 1, now + effects.wake_at - self.clock_ms)
        self._request_turn(self._wake_ms)

    def _hang_up(self, socket: Socket) -> None:
        self._sockets.pop(socket.number, None)
        socket.close_from_server()

    # -- disk
    def _write(self, records: list[Record]) -> None:
        profile, rng = self._profile, self._rng
        self._observer.writing(self, records)
        self._frame = records
        self._frame_number += 1
        delay = rng.randint(0, profile.fsync_ms_max)
        if not self.calm and rng.random() < profile.slow_fsync:
            delay += rng.randint(0, profile.slow_fsync_ms_max)
        self._schedule.after(delay, self._written, self._frame_number)

    def _written(self, number: int) -> None:
        if self.driver is None or number != self._frame_number or self._frame is None:
            return
        if self.log_waits:
            self._schedule.after(1, self._written, number)
            return
        try:
            self.image.append(self._frame)
        except DiskFullError:
            self._schedule.after(RETRY_FULL_DISK_MS, self._written, number)
            return
        except StorageError as error:
            self._end(error)
            return
        self._observer.durable(self, self._frame)
        self._frame_done = True
        self._compact()
        self._request_turn(self._schedule.now_ms)

    def _end(self, why: StorageError) -> None:
        """The disk failed: the process ends (D-10)."""
        if self.driver is not None:
            self._observer.ended(self, why)

    def _compact(self) -> None:
        if self._compact_to is None:
            return
        index, self._compact_to = self._compact_to, None
        try:
            self.image.compact(index)
        except DiskFullError:
            pass
        except StorageError as error:
            self._end(error)

    def _begin_task(self) -> None:
        self._schedule.after(
            self._rng.randint(0, self._profile.fsync_ms_max), self._perform, self._task_number
        )

    def _perform(self, number: int) -> None:
        """The snapshot disk has done its first task."""
        if self.driver is None or number != self._task_number:
            return
        task = self._tasks.popleft()
        try:
            result = self.image.perform(task)
        except StorageError as error:
            self._end(error)
            return
        self._performed.append((task, result))
        if isinstance(task, (Finish, Complete)) and isinstance(result, SnapshotInfo):
            self._observer.snapshot(self, result, received=isinstance(task, Complete))
        if self._tasks:
            self._begin_task()
        self._request_turn(self._schedule.now_ms)


_ANYONE: Final = (ADDRESS_ID,)
