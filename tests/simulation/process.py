"""Owns one simulated server of a cluster: the shipped driver around its disk, with its boots, its clock and its sockets.

The process runs the shipped `zraft.server.engine.driver.Driver` on the shipped write-ahead log. It turns when something
arrived or when the driver asked to be woken.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from attrs import evolve

from tests.simulation.adoption_checks import AdoptionChecks
from tests.simulation.broken import BrokenPromiseError
from tests.simulation.disk_image import DiskImage
from tests.simulation.profile import Profile
from tests.simulation.rights import ADDRESS_ID
from tests.simulation.schedule import Schedule
from tests.simulation.simulated_process import FrameObserver, SimulatedProcess
from tests.simulation.sockets import Socket
from zraft.groups.hosted_groups import Hosting
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
from zraft_core.ids import ServerId

RETRY_BOOT_MS: Final = 40

WALL_EPOCH_MS: Final = 1_700_000_000_000


class Observer(FrameObserver, Protocol):
    """Who watches processes: the checkers, through the simulation."""

    def booted(self, process: Process, in_flight: Sequence[Record] | None) -> None: ...
    def turned(self, process: Process) -> None: ...
    def sending(self, sender: Sender, to: ServerId, messages: Sequence[PeerMessage]) -> None: ...
    def accepted(self, process: Process, socket: Socket) -> None: ...
    def snapshot(self, process: Process, info: SnapshotInfo, *, received: bool) -> None: ...
    def compacting(self, process: Process, index: int) -> None: ...
    def ended(self, process: Process, why: StorageError) -> None: ...
    def output(self, process: Process, socket: Socket, data: bytes) -> None: ...


class Process(SimulatedProcess[DiskImage, Observer]):
    """One server: up or down, running or stopped."""

    def __init__(
        self,
        server: ServerId,
        peers: Callable[[Process], Sequence[ServerId]],
        settings: DriverSettings,
        schedule: Schedule,
        profile: Profile,
        seed: str,
        observer: Observer,
        *,
        in_service: bool,
    ) -> None:
        super().__init__(server, schedule, profile, seed, observer)
        self.in_service = in_service
        """False for one that was not added yet, or was shut down for good: nobody starts it."""
        self._peers = peers
        self._settings = settings
        self._wiped_at_boot = 0
        self.adoptions = AdoptionChecks(server)
        self.must_be_replaced = False
        """It says that what is on its disk is not enough to start from."""
        self.may_be_damaged = False
        """Its disk was spoiled on purpose while it was down: it may refuse to start."""
        self.features = settings.features
        self.driver: Driver | None = None
        self.stored = Stored(HardState(), None, Log())
        self.booted_at_ms = 0
        self.wall_skew_ms = 0
        self.frozen_ms = 0
        self._clock_offset_ms = self._rng.randint(0, 10_000_000)
        self._wake_ms = 0
        self.settled = 0
        """The number of times that it wrote, applied or answered without a turn."""
        self._wants_turn = False
        """True if the driver was given something from inside of its process."""
        self._asked_ms = 0
        self._counted = (0, 0, 0)
        """The clock, the time that the server counted as passed, and its boot, when the last turn ended."""
        """When the driver wants its next turn, whatever arrives."""
        self._client_events: list[tuple[str, Socket, bytes]] = []
        self._sockets: dict[int, Socket] = {}
        self._compact_to: int | None = None
        self._performed: list[tuple[Task, Result]] = []

    @property
    def _running(self) -> Driver:
        assert self.driver is not None
        return self.driver

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
    def leads(self) -> bool:
        return self.driver is not None and self.driver.role is Role.LEADER

    @property
    def clock_ms(self) -> int:
        """This machine's monotonic clock; every machine's began at another moment."""
        return self._schedule.now_ms + self._clock_offset_ms - self.frozen_ms

    # -- life
    @property
    def _may_boot(self) -> bool:
        return self.in_service and not self.must_be_replaced

    def _start(self) -> None:
        self.booted_at_ms = self._schedule.now_ms
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
            hosting=self._hosting(),
        )
        self.sender = Sender(self.server, identity.instance, identity.boot)
        self._observer.booted(self, self._take_in_flight())
        self._wake_ms = self._schedule.now_ms
        self._request_turn(self._schedule.now_ms)

    def _hosting(self) -> Hosting | None:
        """With what it hosts groups of topics, if it does."""
        return None

    def _new_disk(self, rng: random.Random) -> DiskImage:
        return DiskImage(self.server, rng)

    def crash(self, *, sockets_silent: bool = False, power: bool | None = None) -> None:
        """As of every process; `sockets_silent`: clients are not told."""
        if self.driver is None:
            return
        super().crash(power=power)
        for socket in self._sockets.values():
            socket.close_from_server(silently=sockets_silent)
        self._sockets.clear()

    def _compacting(self) -> int | None:
        return self._compact_to

    def _lose_memory(self) -> None:
        self.driver = self._compact_to = None
        self._performed.clear()
        self._client_events.clear()

    def wipe(self) -> None:
        super().wipe()
        self._wiped_at_boot = self.boots
        self.must_be_replaced = self.may_be_damaged = False

    def wake(self) -> None:
        self._wants_turn = True
        super().wake()

    # -- input
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
    def _take_turn(self) -> None:
        driver = self._running
        rings = self._schedule.now_ms >= self._wake_ms
        wanted = self._wants_turn or bool(self._performed)
        self._wants_turn = False
        if self._take_durable():
            driver.persisted()
            for to, messages in driver.acknowledge()[0]:
                self._observer.sending(self.sender, to, messages)
        performed, self._performed = self._performed, []
        for task, result in performed:
            driver.performed(task, result)
        arrived = bool(self._inbox)
        if arrived:
            driver.pass_time(self.clock_ms)
        for sender, messages in self._arrived():
            driver.receive(sender, messages)
        events, self._client_events = self._client_events, []
        if events:
            driver.clients.arrived = self.clock_ms
        for kind, socket, data in events:
            self._feed(driver, kind, socket, data)
        heard = bool(events)
        if not (wanted or (heard and driver.on_clients())) and self._does_without_turn(
            driver, rings=rings, arrived=arrived
        ):
            return
        self.turns += 1
        effects = driver.turn(self.clock_ms, self._schedule.now_ms + WALL_EPOCH_MS + self.wall_skew_ms)
        if driver.mistakes:
            # The server drops such a message and lives; here every peer is ours, so somebody is wrong.
            _, mistake = driver.mistakes.popleft()
            raise BrokenPromiseError("no mistakes", mistake)
        self._took(driver, effects)

    def _took(self, driver: Driver, effects: Effects) -> None:
        """Check and carry out what a turn, or what stood in its place, asks for."""
        self._check_time(driver, effects.wake_at)
        self._observer.turned(self)
        connections = [
            socket.connection for socket in self._sockets.values() if socket.connection is not None
        ]
        self.adoptions.turned(driver, effects.sends, effects.outputs, connections)
        if self.driver is not None:  # its disk has not failed
            self._carry_out(effects)

    def _does_without_turn(self, driver: Driver, *, rings: bool, arrived: bool) -> bool:
        """Send answers and heartbeats, write and apply at once where nothing else follows, as the server's own loop does.

        What arrived beside them waits for the next turn that something gives a reason for. `rings`: the alarm does;
        `arrived`: other servers have said something.
        """
        said = driver.answer()
        if said is None:
            effects = driver.settle() if arrived and not rings else None
            if effects is None:
                return False
            self.settled += 1
            self._took(driver, effects)
            return True
        for to, messages in said:
            self._observer.sending(self.sender, to, messages)
        if rings:
            beat = driver.beat(self.clock_ms)
            if beat is None:
                return False
            heartbeats, wake_at = beat
            for to, message in heartbeats:
                self._observer.sending(self.sender, to, [message])
        elif said:
            wake_at = driver.put_off()
        else:
            self._request_turn(self._wake_ms)
            return True
        self._check_time(driver, wake_at)
        self._wake_at(wake_at)
        return True

    def _wake_at(self, wake_at: int) -> None:
        now = self._schedule.now_ms
        self._wake_ms = max(now + 1, now + wake_at - self.clock_ms)
        self._request_turn(self._wake_ms)

    def _check_time(self, driver: Driver, wake_at: int) -> None:
        """D-11: a process that was woken no later than it asked for has counted all the time between."""
        asked_ms, before, self._asked_ms = self._asked_ms, self._counted, wake_at
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
        self._queue(effects.tasks)
        self._wake_at(effects.wake_at)

    def _hang_up(self, socket: Socket) -> None:
        self._sockets.pop(socket.number, None)
        socket.close_from_server()

    # -- disk
    def _end(self, why: StorageError) -> None:
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

    def _perform(self, task: Task) -> None:
        result = self.image.perform(task)
        self._performed.append((task, result))
        if isinstance(task, (Finish, Complete)) and isinstance(result, SnapshotInfo):
            self._observer.snapshot(self, result, received=isinstance(task, Complete))


_ANYONE: Final = (ADDRESS_ID,)
