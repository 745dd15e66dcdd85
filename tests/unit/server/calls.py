"""Counts the calls that a client's write costs three servers: driven by events, one write under way at a time."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from attrs import frozen

from tests.unit.groups.calls import Calls
from zraft.groups.identity import Identity
from zraft.groups.recovery import Stored
from zraft.raft.log import Log
from zraft.raft.messages import HardState
from zraft.raft.settings import RaftSettings
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft.server.engine.driver import Driver
from zraft.server.engine.effects import Effects
from zraft.server.engine.settings import DriverSettings
from zraft.transport.messages import PeerMessage, Sender
from zraft_core.ids import Instance, ServerId
from zraft_core.wire.client import ZkClientCodec
from zraft_core.znodes.txn import CREATE, SET_DATA, Command

DISKS: Final = {ServerId(number): Instance(bytes([number]) * 16) for number in (1, 2, 3)}

HOP_MS: Final = 1
"""What a datagram takes, what a frame takes to become durable, and a client to ask for the next write."""

SETTLES_MS: Final = 3_000

WALL_EPOCH_MS: Final = 1_700_000_000_000


class DrivenClient:
    """A client of one server, whose bytes are handed over.

    Attributes:
        answers: how often it was told something.
        told: what it was told, byte by byte.
    """

    def __init__(self, driver: Driver) -> None:
        self._codec = ZkClientCodec()
        self._request = self._codec.connect(timeout_ms=60_000)
        connection = driver.connect("127.0.0.1:1", ())
        assert connection is not None
        self._connection: ZooKeeperConnection = connection
        connection.handle = self._answered
        self.answers = 0
        self.told = b""

    def will_write(self, command: Command) -> None:
        """Let `send` send this."""
        self._request = self._codec.write(command)[1]

    def will_ping(self) -> None:
        """Let `send` ask whether the server is there."""
        self._request = self._codec.ping()

    def send(self) -> None:
        """Ask for a session the first time, and then for what was said last."""
        self._connection.data_received(self._request)

    def _answered(self, data: bytes, close: bool) -> None:
        assert not close, "the client was hung up on"
        self.answers += bool(data)
        self.told += data


@frozen
class Datagram:
    """What a server says to another one."""

    sender: Sender
    messages: Sequence[PeerMessage]


DEFAULTS: Final = RaftSettings()


class ThreeDrivers:
    """A cluster that was founded a moment ago, whose servers have a turn when something arrived that wants one, or when it
    is due. As in the server's own loop, what other servers say is settled without a turn if that is enough.

    Attributes:
        now: the time, in ms.
        calls, turns, settled: of each server, since `forget` was called last.
    """

    def __init__(self, raft: RaftSettings = DEFAULTS) -> None:
        self.now = 0
        self._events: list[tuple[int, int, ServerId, Callable[[], None] | Datagram | None]] = []
        self._number = 0
        self._wakes_at: dict[ServerId, int] = {}
        self.forget()
        self.drivers = {
            server: Driver(
                settings=DriverSettings(raft=raft),
                identity=Identity(server, instance, 1, b"boot id!", None),
                peers=tuple(DISKS),
                stored=Stored(HardState(), None, Log()),
                rng=random.Random(server),
                entropy=lambda size: b"e" * size,
                four_letter_word=lambda word, argument: word.encode(),
                now_ms=0,
            )
            for server, instance in DISKS.items()
        }
        for server in DISKS:
            self._turn(server)
        self._pass(SETTLES_MS)
        (self.leader,) = (server for server, driver in self.drivers.items() if driver.leadership is not None)
        self._client = self.client(self.leader)
        self.ask(self.leader, self._client, (CREATE, "/a", b"", None, 0, -1))

    def forget(self) -> None:
        """Count from here on."""
        self.calls = {server: Calls() for server in DISKS}
        self.turns: Counter[ServerId] = Counter()
        self.settled: Counter[ServerId] = Counter()

    def write(self, data: bytes) -> None:
        """Set a znode's data through the leader, and go on until its client has the answer."""
        self.ask(self.leader, self._client, (SET_DATA, "/a", data, -1))

    def rest(self) -> None:
        """Go on until all servers have applied what was written."""
        self._pass(SETTLES_MS)

    def client(self, server: ServerId) -> DrivenClient:
        """Return a client of that server, which has a session."""
        client = DrivenClient(self.drivers[server])
        self.at(HOP_MS, server, client.send)
        self._until_answered(client, 1)
        return client

    def ask(
        self, server: ServerId, client: DrivenClient, command: Command, behind: DrivenClient | None = None
    ) -> int:
        """Let the client of that server write; return the ms until it has its answer.

        Args:
            behind: asks for the same a ms before.
        """
        for number, one in enumerate((client,) if behind is None else (behind, client), 1):
            one.will_write(command)
            self.at(number * HOP_MS, server, one.send)
        return self._until_answered(client, client.answers + 1)

    def _until_answered(self, client: DrivenClient, answers: int) -> int:
        began = self.now
        while client.answers < answers:
            self.step()
        return self.now - began

    # -- what happens when

    def _pass(self, ms: int) -> None:
        end = self.now + ms
        while self._events[0][0] <= end:
            self.step()
        self.now = end

    def at(self, ms: int, server: ServerId, event: Callable[[], None] | Datagram | None) -> None:
        """Let this happen to the server in so many ms; None is its alarm."""
        self._number += 1
        heapq.heappush(self._events, (self.now + ms, self._number, server, event))

    def step(self) -> None:
        """Go on to what happens next, and let the server do what follows from it."""
        self.now, _, server, event = heapq.heappop(self._events)
        if event is None:
            if self._wakes_at[server] == self.now:
                self._turn(server)
            return
        # As in the server's own loop.
        if isinstance(event, Datagram):
            self._arrived(server, event)
            return
        self.drivers[server].clients.arrived = self.now
        with self.calls[server].counted():
            event()
            wants_turn = self.drivers[server].on_clients()
        if wants_turn:
            self._turn(server)

    def _turn(self, server: ServerId) -> None:
        driver = self.drivers[server]
        self.turns[server] += 1
        with self.calls[server].counted():
            effects = driver.turn(self.now, WALL_EPOCH_MS + self.now)
        self._carry_out(server, effects)

    def _arrived(self, server: ServerId, datagram: Datagram) -> None:
        """Do what follows from what another server said."""
        driver = self.drivers[server]
        with self.calls[server].counted():
            driver.pass_time(self.now)
            driver.receive(datagram.sender, datagram.messages)
            said = driver.answer()
            effects = driver.settle() if said is None else None
        if said is not None:
            for to, messages in said:
                self._send(server, to, messages)
        elif effects is not None:
            self.settled[server] += 1
            self._carry_out(server, effects)
        else:
            self._turn(server)

    def _carry_out(self, server: ServerId, effects: Effects) -> None:
        if effects.write is not None:
            self.at(HOP_MS, server, lambda: self._persisted(server))
        for to, messages in effects.sends:
            self._send(server, to, messages)
        for connection, data, close in effects.outputs:
            connection.handle(data, close)
        self._wakes_at[server] = max(effects.wake_at, self.now + 1)
        self.at(self._wakes_at[server] - self.now, server, None)

    def _persisted(self, server: ServerId) -> None:
        driver = self.drivers[server]
        driver.persisted()
        for to, messages in driver.acknowledge()[0]:
            self._send(server, to, messages)

    def _send(self, server: ServerId, to: ServerId, messages: Sequence[PeerMessage]) -> None:
        """Let messages of a server arrive at another one."""
        self.at(HOP_MS, to, Datagram(Sender(server, DISKS[server], 1), messages))
