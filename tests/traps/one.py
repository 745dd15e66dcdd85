"""One server in memory, spoken to in raw bytes; everything it is asked is answered before the call returns."""

from __future__ import annotations

from tests.traps.peer import Peer, connect_bytes
from tests.traps.protocol import Answer, Ask
from tests.unit.server.one_server import OneServer
from zraft.server.clients.settings import ClientSettings
from zraft_core.ids import Instance, ServerId
from zraft_core.znodes.txn import EXPIRE, REAP, Command, pack_batch

ADDRESS = "10.0.0.7"


class Server(OneServer):
    """`OneServer` for clients that share no codec with it."""

    def __init__(self, clients: ClientSettings | None = None) -> None:
        super().__init__(clients=clients)

    def peer(self, data: bytes | None = None, *, address: str = ADDRESS) -> Peer:
        """A client that has sent `data`, a connect request for a new session unless it is given."""
        connection = self.clients.connect(f"{address}:40000", (("ip", address),))
        assert connection is not None
        peer = Peer()
        peer.carry = connection.data_received
        connection.handle = peer
        peer.say_bytes(connect_bytes() if data is None else data)
        self.settle()
        return peer

    def settle(self) -> None:
        """Until nothing moves."""
        self.run()
        while self.clients.wants_turn:
            self.clients.begin_turn()
            self.run()

    def ask(self, peer: Peer, *asks: Ask) -> list[Answer]:
        """The answers to `asks`, all sent at once, in the order in which they came; events are dropped."""
        peer.say(*asks)
        self.settle()
        return peer.answers()

    def one(self, peer: Peer, ask: Ask) -> Answer:
        """The only answer to `ask`."""
        (answer,) = self.ask(peer, ask)
        return answer

    def done(self, peer: Peer, *asks: Ask) -> list[Answer]:
        """`ask`, for what must succeed."""
        answers = self.ask(peer, *asks)
        assert [answer.err for answer in answers] == [0] * len(asks)
        return answers

    def expire(self, peer: Peer) -> None:
        """The leader ends the session of `peer`."""
        record = self.machine.sessions[peer.session]
        command = (
            EXPIRE,
            record.id,
            record.attach_position,
            record.write_position,
            0,
            record.timeout_ms,
            0,
        )
        self._by_the_leader([command])

    def reap(self, *paths: str) -> None:
        """A leader's round takes all of `paths` for due; what is not stays."""
        commands: list[Command] = []
        for path in paths:
            node = self.machine.nodes.get(path)
            assert node is not None, f"{path} is gone already"
            commands.append((REAP, path, node.czxid))
        self._by_the_leader(commands)

    def _by_the_leader(self, commands: list[Command]) -> None:
        self.log.append(pack_batch(ServerId(0), Instance(b""), 0, 0, [(0, (), commands)]))
        self.apply()
        self.settle()
