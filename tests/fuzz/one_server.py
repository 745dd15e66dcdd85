"""A cluster of one server in memory: the shipped driver, a clock that is told, a disk that answers when told."""

from __future__ import annotations

import random
from typing import Final

from tests.fuzz.outcome import PROMISE
from tests.simulation.broken import BrokenPromiseError
from zraft.groups.identity import Identity
from zraft.groups.recovery import Stored
from zraft.raft.log import Log
from zraft.raft.messages import HardState
from zraft.server.clients.settings import ClientSettings
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft.server.coordination.origin import OriginSettings
from zraft.server.engine.driver import Driver
from zraft.server.engine.settings import DriverSettings
from zraft.tree.settings import Settings
from zraft_core.ids import Instance, ServerId

SERVER: Final = ServerId(1)
TURN_MS: Final = 2
START_TURNS_MAX: Final = 1_000
FRAME_BYTES_MAX: Final = 64 * 1024
OUTSTANDING_BYTES_MAX: Final = 1024 * 1024
"""Far below what ships, so that a few requests reach it and others have to wait."""

OUTPUT_BYTES_MAX: Final = 8 * 1024 * 1024


class Client:
    """The far end of one connection."""

    def __init__(self, connection: ZooKeeperConnection) -> None:
        self.connection = connection
        self.received = bytearray()
        self.closed = False


class OneServer:
    """Turns are taken by hand; while `stalled` nothing becomes durable, as on a full disk."""

    def __init__(
        self,
        rng: random.Random,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        outstanding_bytes_max: int = OUTSTANDING_BYTES_MAX,
    ) -> None:
        self.now_ms = 1_000_000
        self.stalled = False
        self._writing = False
        self.driver = Driver(
            settings=DriverSettings(
                origin=OriginSettings(unapplied_bytes_max=outstanding_bytes_max),
                clients=ClientSettings(jute_maxbuffer=frame_bytes_max, output_bytes_max=OUTPUT_BYTES_MAX),
                tree=Settings(data_bytes_max=frame_bytes_max),
            ),
            identity=Identity(SERVER, Instance(rng.randbytes(16)), 1, rng.randbytes(8), None),
            peers=(SERVER,),
            stored=Stored(HardState(), None, Log()),
            rng=rng,
            entropy=rng.randbytes,
            four_letter_word=lambda word, argument: word.encode(),
            now_ms=self.now_ms,
            addresses={SERVER: "127.0.0.1:2181"},
        )
        for _ in range(START_TURNS_MAX):
            # Until its boot is registered, too: that first batch may have to be repeated.
            if self.driver.serving and self.driver.clients.availability.serving and self.idle:
                return
            self.turn()
        raise BrokenPromiseError(PROMISE, "a server alone does not begin to serve")

    def connect(self, number: int) -> Client:
        """A client that has said nothing yet."""
        connection = self.driver.connect(f"10.0.0.1:{number}", (("ip", "10.0.0.1"),))
        assert connection is not None
        client = Client(connection)
        connection.handle = client
        return client

    def turn(self) -> int:
        """One turn; how many bytes it had for clients."""
        if self._writing and not self.stalled:
            self._writing = False
            self.driver.persisted()
        self.now_ms += TURN_MS
        effects = self.driver.turn(self.now_ms, self.now_ms)
        if effects.write is not None:
            self._writing = True
        size = 0
        for connection, data, close in effects.outputs:
            size += len(data)
            client = connection.handle
            if client is not None and not client.closed:
                client.received += data
                client.closed = close
        return size

    @property
    def idle(self) -> bool:
        """Whether nothing that clients asked for is left to do."""
        clients = self.driver.clients
        return (
            self.driver.origin.idle
            and not self._writing
            and not clients._backlogged
            and not any(c.queue or c.dirty for c in clients.connections)
        )
