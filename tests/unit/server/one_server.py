"""One server's client side in memory: real bytes in and out, and a log that is applied when the test says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zraft.groups.identity import Identity
from zraft.raft.messages import Entry, EntryKind
from zraft.server.clients.settings import ClientSettings
from zraft.server.clients.table import Clients
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft.server.coordination.origin import OriginSettings, OriginStream
from zraft.server.coordination.touches import TouchReporter
from zraft.server.engine.applier import Applier
from zraft.tree.machine import Machine
from zraft_core.ids import Instance, ServerId
from zraft_core.wire.client import Pong, Received, Reply, WatchEvent, ZkClientCodec
from zraft_core.wire.connect import NO_PASSWORD, ConnectResponse
from zraft_core.znodes.txn import (
    ATTACH,
    CREATE,
    EXPIRE,
    FLAG_EPHEMERAL,
    Command,
    pack_batch,
    pack_entry,
    unpack_entry,
)

ME = ServerId(1)
INSTANCE = Instance(b"1" * 16)
OTHER = ServerId(2)
OTHER_INSTANCE = Instance(b"2" * 16)
BOOT = 3
BOOT_ID = b"boot id!"
TIMEOUT_MS = 6_000
PASSWORD_BYTE = b"p"


def create(path: str, data: bytes = b"", *, ephemeral: bool = False) -> Command:
    """A create as a session's command."""
    return (CREATE, path, data, None, FLAG_EPHEMERAL if ephemeral else 0, 0)


class Client:
    """The client's end of one connection."""

    def __init__(self, server: OneServer, connection: ZooKeeperConnection, last_zxid_seen: int = 0) -> None:
        self.codec = ZkClientCodec(last_zxid_seen=last_zxid_seen)
        self.connection = connection
        self.received: list[Received] = []
        self.closed = False
        self.greeting: ConnectResponse | None = None
        self._server = server
        connection.handle = self

    def send(self, *parts: bytes | tuple[int, bytes]) -> None:
        """One read of the socket brings all `parts`."""
        self.connection.data_received(b"".join(p if isinstance(p, bytes) else p[1] for p in parts))

    def take(self) -> list[Received]:
        """What was received since the last call."""
        taken, self.received = self.received, []
        return taken

    def replies(self) -> list[Reply]:
        return [one for one in self.take() if isinstance(one, Reply)]

    def feed(self, data: bytes, *, close: bool) -> None:
        for one in self.codec.receive(data):
            if isinstance(one, ConnectResponse):
                self.greeting = one
            else:
                self.received.append(one)
        self.closed = self.closed or close

    @property
    def session(self) -> int:
        assert self.greeting is not None, "the client was not greeted"
        return self.greeting.session


class OneServer:
    """Clients, origin stream, state machine and applier, wired as the driver does it.

    `propose` puts the batches that are due into the log, `apply` applies what is there, `flush` writes; `run`
    does all three until nothing moves.
    """

    def __init__(
        self,
        *,
        origin: OriginSettings | None = None,
        clients: ClientSettings | None = None,
    ) -> None:
        self.machine = Machine(members=[(ME, INSTANCE), (OTHER, OTHER_INSTANCE)])
        self.touches = TouchReporter(BOOT, 1_000)
        self.origin = OriginStream(ME, INSTANCE, BOOT, origin or OriginSettings())
        self.clients = Clients(
            machine=self.machine,
            origin=self.origin,
            touches=self.touches,
            settings=clients or ClientSettings(),
            entropy=lambda size: PASSWORD_BYTE * size,
            four_letter_word=lambda word, argument: word.encode() + argument,
        )
        self.applier = Applier(
            identity=Identity(ME, INSTANCE, BOOT, BOOT_ID, None),
            machine=self.machine,
            origin=self.origin,
            touches=self.touches,
            clients=self.clients,
            on_answered=lambda arrived_ms, count: None,
            on_applied=lambda *entry: self.applied.append(entry),
            work_s=self._work,
        )
        self.applied: list[tuple[int, int, int, float]] = []
        """Index, bytes, commands and measured seconds of each entry."""
        self._worked_s = 0.0
        self.clients.availability.serving = True
        self.now = self.clients.turn.now = 0
        self.log: list[bytes] = []
        self.index = 0
        self._foreign_seq = 0

    # -- time and liveness

    def advance(self, ms: int) -> None:
        self.now += ms
        self.clients.turn.now = self.now

    def _work(self) -> float:
        """Between two looks at the clock, a second of work is done."""
        self._worked_s += 1
        return self._worked_s

    def acknowledge_touches(self) -> None:
        """A leader takes every session's newest touch."""
        for session, at in list(self.touches._touched.items()):
            self.touches.acknowledged(session, at)

    # -- clients

    def connect(
        self,
        *,
        session: int = 0,
        password: bytes = NO_PASSWORD,
        last_zxid_seen: int = 0,
        read_only: bool | None = False,
        then: Sequence[bytes] = (),
    ) -> Client:
        """A client that has sent its connect request, and `then` behind it; nothing is applied yet."""
        connection = self.clients.connect("127.0.0.1:1", (("ip", "127.0.0.1"),))
        assert connection is not None
        client = Client(self, connection, last_zxid_seen)
        request = client.codec.connect(
            timeout_ms=TIMEOUT_MS, session=session, password=password, read_only=read_only
        )
        client.send(request, *then)
        return client

    def attached(self, **how: Any) -> Client:
        """A client with a session."""
        client = self.connect(**how)
        self.run()
        assert client.greeting is not None, "the client was not greeted"
        return client

    # -- the log

    def turn(self) -> None:
        """Take in who waited to be attached."""

    def propose(self) -> None:
        self.clients.begin_turn()
        self.origin.cut(self.now)
        self.log.extend(message.blob for message in self.origin.due(self.now))

    def apply(self) -> None:
        """Everything in the log is one entry."""
        if self.log:
            blobs, self.log = self.log, []
            payload = pack_entry(0, 0, blobs)
            self.index += 1
            count = sum(len(run[2]) for batch in unpack_entry(payload)[2] for run in batch[4])
            entry = Entry(
                index=self.index,
                term=1,
                kind=EntryKind.COMMANDS,
                position=self.machine.position + 1,
                count=count,
                payload=payload,
            )
            while not self.applier.apply(entry):
                self.between_pieces()
                self.clients.begin_turn()

    def between_pieces(self) -> None:
        """An entry is applied in part, and its rest in the next turn."""

    def flush(self) -> None:
        for connection, data, close in self.clients.flush(self.now):
            connection.handle.feed(data, close=close)

    def run(self) -> None:
        while True:
            self.turn()
            self.propose()
            if not self.log:
                break
            self.apply()
        self.flush()

    # -- what happens elsewhere

    def other_server(self, *runs: tuple[int, Sequence[Command]]) -> None:
        """A batch of another server, in the log behind what was proposed here."""
        self._foreign_seq += 1
        packed = [(session, (), list(commands)) for session, commands in runs]
        self.log.append(pack_batch(OTHER, OTHER_INSTANCE, 1, self._foreign_seq, packed))

    def moved(self, client: Client) -> None:
        """The client's session is attached through another server."""
        assert client.greeting is not None
        self.other_server((0, [(ATTACH, client.session, TIMEOUT_MS, client.greeting.password)]))

    def expired(self, client: Client) -> None:
        """The leader ends the client's session."""
        record = self.machine.sessions[client.session]
        command = (EXPIRE, client.session, record.attach_position, record.write_position, 0, TIMEOUT_MS, 0)
        self.log.append(pack_batch(ServerId(0), Instance(b""), 0, 0, [(0, (), [command])]))


__all__ = ["Client", "OneServer", "Pong", "Reply", "WatchEvent", "create"]
