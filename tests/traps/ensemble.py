"""Three servers of the simulator without its adversary: each fault happens when the test says so.

Drivers, log, disk and codec are those that ship; clock, network and sockets are simulated, so that seconds pass in
milliseconds and every run is the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from attrs import evolve

from tests.simulation.jute import (
    XID_PING,
)
from tests.simulation.network import Network
from tests.simulation.process import Process
from tests.simulation.profile import ELECTION_TIMEOUT_MS, HEARTBEAT_MS, TICK_TIME_MS, Mode, roll
from tests.simulation.schedule import Schedule
from tests.simulation.sockets import Socket
from tests.traps.peer import Peer, connect_bytes
from tests.traps.protocol import (
    PING_REQUEST,
    Answer,
    Ask,
)
from zraft.raft.settings import RaftSettings
from zraft.server.coordination.origin import OriginSettings
from zraft.server.engine.settings import DriverSettings
from zraft.storage.records import Record
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.transport.messages import PeerMessage, Sender
from zraft.tree.settings import Settings
from zraft_core.errors import StorageError
from zraft_core.ids import ServerId

SERVERS: Final = (ServerId(1), ServerId(2), ServerId(3))
SESSION_MS: Final = 3_000
"""The timeout that every client asks for. A third of it, after which a server gives its clients up, outlasts an election."""

EXPIRY_MS: Final = SESSION_MS + 2 * TICK_TIME_MS + 400
"""How long after its last touch a session may stand: a report, a scan, a round and a commit."""

PING_MS: Final = SESSION_MS // 5
REAP_MS: Final = 100
PATIENCE_MS: Final = 5_000
"""Of simulated time."""

_CALM: Final = evolve(
    roll(0),
    mode=Mode.ALL,
    gentle=True,
    servers=len(SERVERS),
    clients=0,
    loss=0.0,
    duplicate=0.0,
    late=0.0,
    delay_ms_max=2,
    reorder=0.0,
    fsync_ms_max=1,
    slow_fsync=0.0,
    snipe=0.0,
    wipes=False,
    fragment=False,
)


class SocketPeer(Peer):
    """A client at the end of a simulated socket."""

    def __init__(self) -> None:
        super().__init__()
        self.socket: Socket | None = None


class _Ended:
    """What a socket tells its client; `Peer.closed` is a fact there, and a call here."""

    def __init__(self, peer: SocketPeer) -> None:
        self._peer = peer

    def received(self, socket: Socket, data: bytes) -> None:
        self._peer.feed(data)

    def closed(self, socket: Socket) -> None:
        self._peer.closed = True


class Ensemble:
    """Servers 1 to 3, started; with a leader when the constructor returns."""

    def __init__(self, tree: Settings | None = None) -> None:
        self.schedule = Schedule()
        self.network = Network(
            self.schedule,
            _CALM,
            random.Random("traps/network"),
            self._deliver,
            lambda server: self.servers[server].sender,
        )
        self._rng = random.Random("traps/sockets")
        self._sockets = 0
        self._withheld: set[tuple[ServerId, type]] = set()
        settings = DriverSettings(
            raft=RaftSettings(
                election_timeout_ticks=ELECTION_TIMEOUT_MS,
                heartbeat_ticks=HEARTBEAT_MS,
                resend_ticks=HEARTBEAT_MS,
            ),
            origin=OriginSettings(resend_ms=80),
            tree=tree
            or Settings(tick_time_ms=TICK_TIME_MS, session_timeout_ms_min=400, session_timeout_ms_max=4_000),
            reap_interval_ms=REAP_MS,
        )
        self.servers = {
            server: Process(
                server,
                lambda _: SERVERS,
                settings,
                self.schedule,
                _CALM,
                "traps",
                self,
                in_service=True,
            )
            for server in SERVERS
        }
        for process in self.servers.values():
            process.boot()
        self.until(lambda: self.leader is not None and self._all_serve())

    # -- time

    @property
    def now_ms(self) -> int:
        return self.schedule.now_ms

    def pass_ms(self, ms: int) -> None:
        self.schedule.run_until(self.now_ms + ms)

    def until(self, condition: Callable[[], object], what: str = "what was to happen") -> None:
        """Let time pass until `condition` holds."""
        end = self.now_ms + PATIENCE_MS
        while not condition():
            assert self.now_ms < end, f"waited {PATIENCE_MS} ms in vain for {what}"
            self.pass_ms(1)

    def pass_alive(self, ms: int, *peers: Peer) -> None:
        """Let time pass in which these clients, and no others, ping."""
        end = self.now_ms + ms
        while self.now_ms < end:
            for peer in peers:
                peer.say(PING_REQUEST)
            self.pass_ms(min(PING_MS, end - self.now_ms))
        for peer in peers:
            peer.heard = [one for one in peer.heard if not isinstance(one, Answer) or one.xid != XID_PING]

    # -- servers

    def position(self, server: ServerId) -> int:
        """Of the last command that it has applied."""
        driver = self.servers[server].driver
        return 0 if driver is None else driver.machine.position

    @property
    def leader(self) -> ServerId | None:
        """The one that leads and has a quorum, as far as it knows; a stopped one knows nothing."""
        serving = [
            server
            for server, process in self.servers.items()
            if process.leads and not process.stopped and process.driver and process.driver.serving
        ]
        return serving[0] if len(serving) == 1 else None

    @property
    def followers(self) -> list[ServerId]:
        return [server for server in SERVERS if server != self.leader]

    def _all_serve(self) -> bool:
        return all(p.driver is not None and p.driver.serving for p in self.servers.values())

    def wait_leader(self, *, other_than: ServerId | None = None) -> ServerId:
        self.until(lambda: self.leader not in (None, other_than), "a leader")
        assert self.leader is not None
        return self.leader

    def cut(self, sender: ServerId, to: ServerId) -> None:
        """From now on everything that `sender` sends to `to` is lost."""
        self.network.cut([(sender, to)])

    def join(self, sender: ServerId, to: ServerId) -> None:
        self.network.join([(sender, to)])

    def withhold(self, kind: type[PeerMessage], to: ServerId) -> None:
        """From now on messages of this kind do not reach `to`; all others do."""
        self._withheld.add((to, kind))

    def release(self, kind: type[PeerMessage], to: ServerId) -> None:
        self._withheld.remove((to, kind))

    # -- clients

    def dial(
        self,
        server: ServerId,
        *,
        session: int = 0,
        password: bytes = bytes(16),
        last_zxid: int = 0,
    ) -> SocketPeer:
        """A client whose connect request is on its way."""
        self._sockets += 1
        peer = SocketPeer()
        socket = Socket(
            self.schedule,
            self._rng,
            self._sockets,
            _Ended(peer),
            self.servers[server],
            slow_ms=0,
            fragment=False,
        )
        peer.socket = socket
        peer.carry = socket.to_server
        socket.open()
        peer.say_bytes(
            connect_bytes(session=session, password=password, last_zxid=last_zxid, timeout_ms=SESSION_MS)
        )
        return peer

    def connect(self, server: ServerId) -> SocketPeer:
        """A client with a session of its own."""
        peer = self.dial(server)
        self.until(lambda: peer.greeting, "a greeting")
        return peer

    def resume(self, peer: SocketPeer, server: ServerId) -> SocketPeer:
        """The session of `peer` on a new connection."""
        again = self.dial(server, session=peer.session, password=peer.password)
        self.until(lambda: again.greeting, "a greeting")
        return again

    def ask(self, peer: SocketPeer, *asks: Ask) -> list[Answer]:
        """The answers to `asks`; events are dropped."""
        peer.take()
        peer.say(*asks)
        self.until(lambda: sum(isinstance(h, Answer) for h in peer.heard) >= len(asks), f"answers to {asks}")
        return peer.answers()

    def one(self, peer: SocketPeer, ask: Ask) -> Answer:
        (answer,) = self.ask(peer, ask)
        return answer

    # -- what processes tell their observer

    def booted(self, process: Process, in_flight: Sequence[Record] | None) -> None:
        pass

    def turned(self, process: Process) -> None:
        if not process.image.joined and process.driver is not None and process.driver.cluster is not None:
            process.image.join(process.driver.cluster)

    def sending(self, sender: Sender, to: ServerId, messages: Sequence[PeerMessage]) -> None:
        passing = [message for message in messages if (to, type(message)) not in self._withheld]
        if passing:
            self.network.send(sender, to, passing)

    def writing(self, process: Process, records: Sequence[Record]) -> None:
        pass

    def durable(self, process: Process, records: Sequence[Record]) -> None:
        pass

    def accepted(self, process: Process, socket: Socket) -> None:
        pass

    def snapshot(self, process: Process, info: SnapshotInfo, *, received: bool) -> None:
        pass

    def compacting(self, process: Process, index: int) -> None:
        pass

    def ended(self, process: Process, why: StorageError) -> None:
        raise why

    def output(self, process: Process, socket: Socket, data: bytes) -> None:
        pass

    def _deliver(self, to: ServerId, sender: Sender, data: bytes) -> None:
        self.servers[to].datagram(sender, data)
