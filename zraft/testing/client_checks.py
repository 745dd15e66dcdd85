"""Owns what clients were promised: every reply and event is compared with the one history.

Checked here, each promise under its name: `fifo`, `session order`, `applied once`, `acknowledged`,
`zxid order`, `read`, `watch`, `real time`, `sync`, `expiry`, `ended`. The history itself comes from the
committed log (`zraft.testing.model`); nothing here asks the product what it thinks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from zraft.errors import Code
from zraft.ids import Instance, ServerId
from zraft.testing import jute
from zraft.testing.broken import BrokenPromiseError
from zraft.testing.clients import Call, SimulatedClient
from zraft.testing.jute import Reader, Stat
from zraft.testing.model import History, Outcome, Version
from zraft.testing.sockets import Socket
from zraft.tree import txn

NEVER: Final = -1_000_000


class Trail:
    """The writes that one connection sent, in order, and where they were found in the history."""

    __slots__ = ("client", "found", "owner", "sent", "session", "socket")

    def __init__(self, client: int, socket: Socket, session: int) -> None:
        self.client = client
        self.socket = socket
        self.session = session
        self.owner: tuple[ServerId, Instance, int] | None = None
        self.sent: list[Call] = []
        self.found = 0


class ClientChecks:
    """All clients' promises. `live_ms` tells the time in which at least one server ran (D-11)."""

    def __init__(self, history: History, live_ms: Callable[[], int], *, gentle: bool) -> None:
        self.history = history
        self.gentle = gentle
        self._live_ms = live_ms
        self.clients: list[SimulatedClient] = []
        self.acknowledged_zxid = 0
        self._trails: dict[int, Trail] = {}
        self._by_client: dict[int, list[Trail]] = {}
        self._candidates: dict[int, list[tuple[Trail, int]]] = {}
        self._answered: dict[int, int] = {}
        self.commands = self.replies = self.events = self.reads = self.writes = self.syncs = 0
        self.rearmed = self.expired = self.told = self.ambiguous = 0

    def fail(self, checker: str, found: str) -> NoReturn:
        raise BrokenPromiseError(checker, found)

    # -- connections
    def opened(self, client: SimulatedClient, socket: Socket) -> None:
        trail = Trail(client.number, socket, client.session)
        self._trails[socket.number] = trail
        self._by_client.setdefault(client.number, []).append(trail)

    def accepted(self, socket: Socket, owner: tuple[ServerId, Instance, int]) -> None:
        """A server process took the connection: what it logs for it carries this owner."""
        self._trails[socket.number].owner = owner

    def attached(self, client: SimulatedClient, socket: Socket, session: int) -> None:
        if client.session and session != client.session:
            self.fail("session", f"C{client.number} resumes {client.session:x} and gets {session:x}")
        if session not in self.history.sessions and session not in self.history.ended:
            self.fail("session", f"C{client.number} is given session {session:x}, which no log entry created")
        self._trails[socket.number].session = session

    def invoked(self, client: SimulatedClient, socket: Socket, call: Call) -> None:
        self.commands += call.opcode != jute.PING
        call.floor = self.acknowledged_zxid
        if call.signature is not None:
            self._trails[socket.number].sent.append(call)

    def answered(self, session: int) -> None:
        """A server hands output to the connection of a session."""
        self._answered[session] = self._live_ms()

    def told_expired(self, client: SimulatedClient) -> None:
        self.told += 1
        if client.session and client.session not in self.history.ended:
            self.fail(
                "ended", f"C{client.number} is told that session {client.session:x} expired; it did not"
            )

    # -- the history grows
    def applied(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            opcode = outcome.command[0]
            if opcode in (txn.CREATE_SESSION, txn.ATTACH):
                if outcome.code is Code.OK:
                    self._attached_in_history(outcome)
            elif opcode == txn.EXPIRE:
                if outcome.code is Code.OK:
                    self._expired(outcome)
            elif opcode not in (txn.REGISTER, txn.SETTINGS) and outcome.code not in (
                Code.SESSION_EXPIRED,
                Code.SESSION_MOVED,
            ):
                self._written(outcome)

    def _attached_in_history(self, outcome: Outcome) -> None:
        """The session's writes that follow come from one of the connections that this attach can be."""
        session = outcome.session
        candidates = [
            (trail, 0)
            for trail in self._trails.values()
            if trail.owner == outcome.owner
            and trail.found == 0
            and (
                trail.session == session or (trail.session == 0 and outcome.command[0] == txn.CREATE_SESSION)
            )
        ]
        if not candidates:
            self.fail(
                "session order", f"session {session:x} attaches at {outcome.zxid:x}: no connection asked"
            )
        self._candidates[session] = candidates

    def _written(self, outcome: Outcome) -> None:
        """Each connection's writes stand in the log in order, without a gap, none twice, none invented."""
        signature = signature_of(outcome.command)
        remaining = [
            (trail, nth + 1)
            for trail, nth in self._candidates.get(outcome.session, ())
            if nth < len(trail.sent) and trail.sent[nth].signature == signature
        ]
        if not remaining:
            expected = [
                trail.sent[nth].signature if nth < len(trail.sent) else "nothing"
                for trail, nth in self._candidates.get(outcome.session, ())
            ]
            self.fail(
                "session order",
                f"session {outcome.session:x}: {signature} at {outcome.zxid:x} is not the next write of its "
                f"connection, which is {expected}",
            )
        self._candidates[outcome.session] = remaining
        self.writes += 1
        if len(remaining) > 1:
            self.ambiguous += 1
            return
        trail, nth = remaining[0]
        trail.found = nth
        call = trail.sent[nth - 1]
        if outcome.zxid <= call.floor:
            self.fail(
                "real time",
                f"C{trail.client}: write at {outcome.zxid:x} was sent after {call.floor:x} had been acknowledged",
            )
        if nth == 1:
            # D-3a: the server closed older connections of this session before it queued this attach.
            for older in self._by_client[trail.client]:
                if older is trail:
                    break
                if older.owner == trail.owner:
                    older.owner = None

    def _expired(self, outcome: Outcome) -> None:
        self.expired += 1
        session = outcome.session
        timeout = outcome.command[5]
        age = self._live_ms() - self._answered.get(session, NEVER)
        if age < timeout * 2 // 3:
            self.fail(
                "expiry",
                f"session {session:x} (timeout {timeout} ms) expires {age} ms after an answer: "
                "its client still counts itself connected",
            )
        if self.gentle:
            for client in self.clients:
                if client.session == session and not client.dead:
                    self.fail(
                        "expiry", f"session {session:x} of running C{client.number} expires in a gentle run"
                    )

    # -- replies and events
    def _order(self, client: SimulatedClient, zxid: int, what: str) -> None:
        if zxid < client.last_zxid:
            self.fail("zxid order", f"C{client.number}: zxid {zxid:x} after {client.last_zxid:x} ({what})")
        if zxid > self.history.zxid:
            self.fail(
                "zxid order", f"C{client.number}: zxid {zxid:x}, the history ends at {self.history.zxid:x}"
            )
        ended = self.history.ended.get(client.session)
        if ended is not None and zxid > ended:
            self.fail(
                "ended", f"C{client.number} gets zxid {zxid:x}, its session ended at {ended:x} ({what})"
            )

    def event(self, client: SimulatedClient, zxid: int, kind: int, path: str) -> None:
        """A watch fires once, for the first change after it was armed, before any reply that shows it."""
        self.events += 1
        watches, history = client.watches, self.history
        if watches.rearming is not None:
            watches.rearming[3].append((kind, path))
            return
        self._order(client, zxid, f"event {kind} {path}")
        fired = False
        for armed, child in ((watches.data, False), (watches.child, True)):
            since = armed.get(path)
            if since is not None and history.next_event(path, child, since, zxid) == (zxid, kind):
                del armed[path]
                fired = True
        if not fired:
            self.fail(
                "watch",
                f"C{client.number}: event {kind} of {path} at {zxid:x} without such a change or watch "
                f"(armed since: data {watches.data.get(path)}, child {watches.child.get(path)})",
            )
        # Every earlier change must have been told first.
        self._overtaken(client, zxid - 1, f"event {kind} {path} at {zxid:x}")
        client.last_zxid = max(client.last_zxid, zxid)

    def _overtaken(self, client: SimulatedClient, zxid: int, what: str) -> None:
        if client.watches.rearming is not None:
            return
        for armed, child in ((client.watches.data, False), (client.watches.child, True)):
            for path, since in armed.items():
                missed = self.history.next_event(path, child, since, zxid)
                if missed is not None:
                    self.fail(
                        "watch",
                        f"C{client.number}: {what} overtakes event {missed[1]} of {path} at {missed[0]:x}, "
                        f"watched since {since:x}",
                    )

    def reply(self, client: SimulatedClient, call: Call, zxid: int, err: int, reader: Reader) -> None:
        self.replies += 1
        self._order(client, zxid, f"reply to {call.opcode} {call.path}")
        if call.opcode == jute.SET_WATCHES:
            self._rearmed(client, zxid)
        self._overtaken(client, zxid, f"reply to {call.opcode} {call.path} at {zxid:x}")
        if call.signature is not None:
            self._acknowledged(client, call, zxid, err, reader)
        elif call.opcode == jute.SYNC:
            self.syncs += 1
            if err or reader.text() != call.path:
                self.fail("sync", f"C{client.number}: sync answered with error {err}")
            if zxid < call.floor:
                self.fail(
                    "sync",
                    f"C{client.number}: sync at {zxid:x} misses {call.floor:x}, acknowledged before it",
                )
        elif call.opcode not in (jute.PING, jute.SET_WATCHES):
            self._read(client, call, zxid, err, reader)
        if err == 0:
            reader.finish()

    def _acknowledged(self, client: SimulatedClient, call: Call, zxid: int, err: int, reader: Reader) -> None:
        outcome = self.history.outcome(zxid)
        who = f"C{client.number}: write {call.signature}"
        if (
            outcome is None
            or outcome.session != client.session
            or signature_of(outcome.command) != call.signature
        ):
            self.fail("acknowledged", f"{who} is acknowledged at {zxid:x}, where the history has {outcome}")
        if outcome.code is Code.SESSION_MOVED:
            self.fail("acknowledged", f"{who} of a moved session is answered")
        if err != outcome.code:
            self.fail(
                "acknowledged", f"{who} at {zxid:x} is answered {err}, the history says {outcome.code!r}"
            )
        self.acknowledged_zxid = max(self.acknowledged_zxid, zxid)
        if err:
            return
        if call.opcode in (jute.CREATE, jute.CREATE2):
            path = reader.text()
            if path != outcome.result:
                self.fail(
                    "acknowledged", f"{who} at {zxid:x} created {outcome.result}, the answer says {path}"
                )
            if call.opcode == jute.CREATE2:
                self._same_stat(client, call, zxid, reader.stat(), self.history.at(path, zxid))
        elif call.opcode == jute.SET_DATA:
            self._same_stat(client, call, zxid, reader.stat(), self.history.at(call.path, zxid))
        elif call.opcode == jute.MULTI:
            self._multi(client, call, outcome, reader)

    def _multi(self, client: SimulatedClient, call: Call, outcome: Outcome, reader: Reader) -> None:
        who = f"C{client.number}: multi {call.signature} at {outcome.zxid:x}"
        failed = isinstance(outcome.result, tuple)
        for nth, opcode in enumerate(call.operations):
            kind, done, err = reader.multi_header()
            if failed:
                if (kind, done) != (-1, False) or reader.integer() != err or err != outcome.result[nth]:
                    self.fail(
                        "acknowledged", f"{who}: result {nth} is {kind, done, err}, not {outcome.result}"
                    )
            elif (kind, done, err) != (opcode, False, 0):
                self.fail("acknowledged", f"{who}: result {nth} is {kind, done, err}")
            elif opcode == jute.CREATE:
                if reader.text() != outcome.result[nth]:
                    self.fail(
                        "acknowledged", f"{who}: result {nth} is another path than {outcome.result[nth]}"
                    )
            elif opcode == jute.SET_DATA:
                self._same_stat(client, call, outcome.zxid, reader.stat(), outcome.result[nth])
        if reader.multi_header() != (-1, True, -1):
            self.fail("acknowledged", f"{who}: no terminator")

    def _read(self, client: SimulatedClient, call: Call, zxid: int, err: int, reader: Reader) -> None:
        self.reads += 1
        node = self.history.at(call.path, zxid)
        who = f"C{client.number}: read {call.opcode} of {call.path} at {zxid:x}"
        if err not in (0, Code.NO_NODE) or (err == 0) != (node is not None):
            self.fail("read", f"{who} is answered {err}, the history has {node}")
        watches = client.watches
        if err:
            if call.watch and call.opcode == jute.EXISTS:
                watches.data.setdefault(call.path, zxid)
            return
        assert node is not None
        if call.opcode == jute.GET_DATA:
            data = reader.blob()
            if data != node.data:
                self.fail("read", f"{who} is {data!r}, the history has {node.data!r}")
        if call.opcode in (jute.GET_CHILDREN, jute.GET_CHILDREN2):
            names = reader.texts()
            if len(names) != len(node.children) or set(names) != node.children:
                self.fail("read", f"{who} is {sorted(names)}, the history has {sorted(node.children)}")
            if call.watch:
                watches.child.setdefault(call.path, zxid)
        elif call.watch:
            watches.data.setdefault(call.path, zxid)
        if call.opcode != jute.GET_CHILDREN:
            self._same_stat(client, call, zxid, reader.stat(), node)

    def _same_stat(
        self, client: SimulatedClient, call: Call, zxid: int, stat: Stat, node: Version | None
    ) -> None:
        if node is None:
            self.fail(
                "read", f"C{client.number}: {call.path} at {zxid:x} has a stat, the history has no such znode"
            )
        seen = (
            stat.czxid,
            stat.mzxid,
            stat.pzxid,
            stat.version,
            stat.cversion,
            stat.ephemeral_owner,
            stat.data_length,
            stat.num_children,
        )
        expected = (
            node.czxid,
            node.mzxid,
            node.pzxid,
            node.version,
            node.cversion,
            node.owner,
            len(node.data or b""),
            len(node.children),
        )
        if seen != expected:
            self.fail(
                "read", f"C{client.number}: stat of {call.path} at {zxid:x} is {seen}, expected {expected}"
            )

    # -- watches across connections
    def rearming(self, client: SimulatedClient) -> tuple[list[str], list[str], list[str]]:
        """The lists of a setWatches: data watches on nodes that existed, on nodes that did not, on children."""
        watches = client.watches
        watches.rearming = (watches.data, watches.child, client.last_zxid, [])
        watches.data, watches.child = {}, {}
        data: list[str] = []
        exist: list[str] = []
        for path, since in watches.rearming[0].items():
            (exist if self.history.at(path, since) is None else data).append(path)
        return data, exist, list(watches.rearming[1])

    def lost(self, client: SimulatedClient) -> None:
        """The connection is gone, and with it its watches at the server."""
        watches = client.watches
        if not client.rearms:
            watches.data, watches.child, watches.rearming = {}, {}, None
        elif watches.rearming is not None:
            data, child, _, told = watches.rearming
            for kind, path in told:
                if kind == jute.EVENT_CHILDREN:
                    child.pop(path, None)
                else:
                    data.pop(path, None)
                    if kind == jute.EVENT_DELETED:
                        child.pop(path, None)
            watches.data, watches.child, watches.rearming = data, child, None

    def _rearmed(self, client: SimulatedClient, zxid: int) -> None:
        """What happened while the client was away is told at once, by state; the rest is armed again."""
        self.rearmed += 1
        watches, history = client.watches, self.history
        assert watches.rearming is not None
        data, child, relative, told = watches.rearming
        watches.rearming = None
        expected: list[tuple[int, str]] = []
        for path, since in data.items():
            node = history.at(path, zxid)
            if history.at(path, since) is None:
                if node is not None:
                    expected.append((jute.EVENT_CREATED, path))
                    continue
            elif node is None:
                expected.append((jute.EVENT_DELETED, path))
                continue
            elif node.mzxid > relative:
                expected.append((jute.EVENT_CHANGED, path))
                continue
            watches.data[path] = zxid
        for path in child:
            node = history.at(path, zxid)
            if node is None:
                if (jute.EVENT_DELETED, path) not in expected:
                    expected.append((jute.EVENT_DELETED, path))
            elif node.pzxid > relative:
                expected.append((jute.EVENT_CHILDREN, path))
            else:
                watches.child[path] = zxid
        if sorted(expected) != sorted(set(told)):
            self.fail(
                "watch",
                f"C{client.number}: setWatches relative to {relative:x} at {zxid:x} tells {sorted(told)}, "
                f"expected {sorted(expected)}",
            )

    # -- the end
    def assert_saw_enough(self) -> None:
        """A checker that was never fed would always pass."""
        seen = {
            "commands": self.commands,
            "replies": self.replies,
            "reads": self.reads,
            "writes": self.writes,
            "syncs": self.syncs,
        }
        for name, least in (("commands", 200), ("replies", 100), ("reads", 30), ("writes", 30), ("syncs", 3)):
            if seen[name] < least:
                self.fail("saw enough", f"only {seen[name]} {name}, at least {least} expected: {seen}")


def signature_of(command: txn.Command) -> tuple[object, ...]:
    """What identifies a command to the client that sent it."""
    opcode = command[0]
    if opcode in (txn.CREATE, txn.CREATE2):
        return (opcode, command[1], command[2], command[4])
    if opcode == txn.MULTI:
        return (jute.MULTI, tuple(signature_of(part) for part in command[1]))
    return tuple(command)
