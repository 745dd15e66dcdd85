"""Owns what clients were promised: every reply and event is compared with the one history.

Checked here, each promise under its name: `fifo`, `session order`, `identity`, `acknowledged`, `zxid order`,
`read`, `read only`, `real time`, `sync`, `expiry`, `ended`, `lifetime`; `watch` is in `tests.simulation.watch_checks`.
The history itself comes from the committed log (`tests.simulation.model`); nothing here asks the product what it thinks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NoReturn

from tests.simulation import jute, rights
from tests.simulation.broken import BrokenPromiseError
from tests.simulation.calls import Call
from tests.simulation.clients import SimulatedClient
from tests.simulation.jute import Reader, Stat
from tests.simulation.model import CREATES, History, Outcome, Version
from tests.simulation.natives import Natives
from tests.simulation.operations import LIMITS as QUOTA_LIMITS
from tests.simulation.operations import STATS as QUOTA_STATS
from tests.simulation.sockets import Socket
from tests.simulation.watch_checks import WatchChecks
from zraft_core.errors import Code
from zraft_core.ids import Instance, ServerId
from zraft_core.znodes import txn

NEVER: Final = -1_000_000

NAMES: Final = {
    jute.SET_ACL: "setACL",
    jute.GET_ACL: "getACL",
    jute.CREATE_CONTAINER: "createContainer",
    jute.CREATE_TTL: "createTTL",
    jute.DELETE_CONTAINER: "deleteContainer",
    jute.MULTI_READ: "multiRead",
    jute.GET_EPHEMERALS: "getEphemerals",
    jute.GET_ALL_CHILDREN_NUMBER: "getAllChildrenNumber",
    jute.WHO_AM_I: "whoAmI",
    jute.SET_WATCHES2: "setWatches2",
    jute.ADD_WATCH: "addWatch",
    jute.CHECK_WATCHES: "checkWatches",
    jute.REMOVE_WATCHES: "removeWatches",
}
"""Operations that are counted by name when they succeed."""

KINDS: Final = (
    *NAMES.values(),
    "auth",
    "auth refused",
    "NOAUTH to a read",
    "NOAUTH to a write",
    "INVALIDACL",
    "QUOTAEXCEEDED",
    "NOWATCHER",
    "container in a multi",
    "container reaped",
    "TTL reaped",
    "REAP in vain",
    "quota set",
    "usage read",
    "failed multi below a quota",
    "persistent event",
    "recursive event",
    "event withheld",
    "read without quorum",
    "NOTREADONLY",
)
"""What a long range of seeds must have seen, each at least once."""

REPLY_TYPES: Final = {jute.CREATE_CONTAINER: jute.CREATE2, jute.CREATE_TTL: jute.CREATE2}
"""Under which type a multi answers an operation (trap 12)."""


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

    def __init__(
        self, history: History, now_ms: Callable[[], int], live_ms: Callable[[], int], *, gentle: bool
    ) -> None:
        self.history = history
        self.gentle = gentle
        self.kinds: Counter[str] = Counter()
        self._watches = WatchChecks(history, self.fail, self.kinds)
        self._now_ms = now_ms
        self._live_ms = live_ms
        self._renewed_ms: dict[str, int] = {}
        """When the write was sent that last began a znode's time to live, if it is known whose it was."""
        self.used_ms: dict[int, int] = {}
        """When a client last sent anything in a session, reads and pings as well: each of them keeps it alive."""
        self.clients: list[SimulatedClient] = []
        self.natives: Natives | None = None
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

    def attached(self, client: SimulatedClient, socket: Socket, session: int, *, read_only: bool) -> None:
        if read_only:
            if not client.reader or client.session:
                self.fail("read only", f"C{client.number} did not ask for a server that only reads")
            if session in self.history.sessions or session in self.history.ended:
                self.fail(
                    "read only", f"C{client.number} is given session {session:x} of the log without a quorum"
                )
            return
        if client.session and session != client.session:
            self.fail("session", f"C{client.number} resumes {client.session:x} and gets {session:x}")
        if session not in self.history.sessions and session not in self.history.ended:
            self.fail("session", f"C{client.number} is given session {session:x}, which no log entry created")
        self._trails[socket.number].session = session

    def invoked(self, client: SimulatedClient, socket: Socket, call: Call) -> None:
        self.commands += call.opcode != jute.PING
        self.used_ms[client.session] = self._now_ms()
        call.floor = self.acknowledged_zxid
        if call.signature is not None and not client.doomed and not client.read_only:
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
            if self.natives is not None and self.natives.owns(outcome):
                self.natives.applied(outcome)
                if opcode != txn.EXPIRE:
                    continue
            if opcode in (txn.CREATE_SESSION, txn.ATTACH):
                if outcome.code is Code.OK:
                    self._attached_in_history(outcome)
            elif opcode == txn.EXPIRE:
                if outcome.code is Code.OK:
                    self._expired(outcome)
            elif opcode == txn.REAP:
                self._reaped(outcome)
            elif opcode not in (
                txn.REGISTER,
                txn.SETTINGS,
                txn.FEATURE,
                txn.MEMBERS,
                txn.TOPICS,
            ) and outcome.code not in (
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
        certain = len(remaining) == 1
        trail, nth = remaining[0]
        call = trail.sent[nth - 1]
        for path in renewed_by(outcome):
            self._renewed_ms[path] = call.invoked_ms if certain else NEVER
        if not certain:
            self.ambiguous += 1
            return
        trail.found = nth
        if outcome.ids != call.ids:
            self.fail(
                "identity",
                f"C{trail.client}: {signature} at {outcome.zxid:x} was sent as {call.ids}, is done as {outcome.ids}",
            )
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

    def _reaped(self, outcome: Outcome) -> None:
        """Nobody's clock may make a znode go early (D-12): log time never runs faster than time itself."""
        if outcome.code is not Code.OK:
            self.kinds["REAP in vain"] += 1
            return
        path, node = outcome.command[1], outcome.result
        self.kinds["TTL reaped" if node.ttl_ms else "container reaped"] += 1
        age = self._now_ms() - self._renewed_ms.get(path, NEVER)
        least = node.ttl_ms or (0 if node.creates else self.history.settings["container_never_used_ms_max"])
        if age <= least:
            self.fail(
                "lifetime",
                f"{path} goes at {outcome.zxid:x}, {age} ms after it was asked for; {least} ms were due",
            )

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
        if client.watches.rearming is None:
            self._order(client, zxid, f"event {kind} {path}")
        self._watches.event(client, zxid, kind, path)
        if client.watches.rearming is None:
            client.last_zxid = max(client.last_zxid, zxid)

    def reply(self, client: SimulatedClient, call: Call, zxid: int, err: int, reader: Reader) -> None:
        self.replies += 1
        if call.opcode == jute.AUTH:
            self._authenticated(client, call, zxid, err)
            reader.finish()
            return
        self._order(client, zxid, f"reply to {call.opcode} {call.path}")
        if call.opcode in (jute.SET_WATCHES, jute.SET_WATCHES2):
            if err:
                self.fail("watch", f"C{client.number}: setWatches is answered {err}")
            self._watches.rearmed(client, zxid)
            self.rearmed += 1
        self._watches.overtaken(client, zxid, f"reply to {call.opcode} {call.path} at {zxid:x}")
        if client.read_only and (call.signature is not None or call.opcode == jute.SYNC):
            if err != Code.NOT_READ_ONLY:
                self.fail("read only", f"C{client.number}: {call.opcode} without a quorum is answered {err}")
            self.kinds["NOTREADONLY"] += 1
        elif call.signature is not None:
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
        elif call.opcode not in (jute.PING, jute.SET_WATCHES, jute.SET_WATCHES2, jute.CLOSE):
            self.reads += 1
            self.kinds["read without quorum"] += client.read_only
            self._answered_read(client, call, zxid, err, reader)
        if err == 0:
            self.kinds[NAMES.get(call.opcode, "other")] += 1
            reader.finish()

    def _authenticated(self, client: SimulatedClient, call: Call, zxid: int, err: int) -> None:
        """Its answer has no zxid (trap 20); what is answered after it is answered to who this is now."""
        if zxid or err != (0 if call.path == "digest" else Code.AUTH_FAILED):
            self.fail("identity", f"C{client.number}: auth with {call.path} is answered {err} at {zxid:x}")
        self.kinds["auth refused" if err else "auth"] += 1
        if not err:
            if client.watches.ids_before is None:
                client.watches.ids_before = client.ids
            client.ids = call.ids

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
            self._count_refusal(err)
            return
        if call.path == QUOTA_LIMITS or (call.operations and not isinstance(outcome.result, tuple)):
            self._count_success(call, outcome)
        if call.opcode in CREATES:
            path = reader.text()
            if path != outcome.result[0]:
                self.fail(
                    "acknowledged", f"{who} at {zxid:x} created {outcome.result[0]}, the answer says {path}"
                )
            if call.opcode != jute.CREATE:
                self._same_stat(client, call, zxid, reader.stat(), self.history.at(path, zxid))
        elif call.opcode in (jute.SET_DATA, jute.SET_ACL):
            self._same_stat(client, call, zxid, reader.stat(), self.history.at(call.path, zxid))
        elif call.opcode == jute.MULTI:
            self._multi(client, call, outcome, reader)

    def _multi(self, client: SimulatedClient, call: Call, outcome: Outcome, reader: Reader) -> None:
        who = f"C{client.number}: multi {call.signature} at {outcome.zxid:x}"
        failed = isinstance(outcome.result, tuple)
        if failed:
            for code in outcome.result:
                self._count_refusal(code)
            if any(str(part[1]).startswith("/z/") for part in outcome.command[1]):
                self.kinds["failed multi below a quota"] += 1
        for nth, opcode in enumerate(call.operations):
            kind, done, err = reader.multi_header()
            if failed:
                if (kind, done) != (-1, False) or reader.integer() != err or err != outcome.result[nth]:
                    self.fail(
                        "acknowledged", f"{who}: result {nth} is {kind, done, err}, not {outcome.result}"
                    )
            elif (kind, done, err) != (REPLY_TYPES.get(opcode, opcode), False, 0):
                self.fail("acknowledged", f"{who}: result {nth} is {kind, done, err}")
            elif opcode in CREATES:
                path, node = outcome.result[nth]
                if reader.text() != path:
                    self.fail("acknowledged", f"{who}: result {nth} is another path than {path}")
                if opcode != jute.CREATE:
                    self._same_stat(client, call, outcome.zxid, reader.stat(), node)
            elif opcode == jute.SET_DATA:
                self._same_stat(client, call, outcome.zxid, reader.stat(), outcome.result[nth])
        if reader.multi_header() != (-1, True, -1):
            self.fail("acknowledged", f"{who}: no terminator")

    def _count_refusal(self, code: int) -> None:
        names = {
            Code.NO_AUTH: "NOAUTH to a write",
            Code.INVALID_ACL: "INVALIDACL",
            Code.QUOTA_EXCEEDED: "QUOTAEXCEEDED",
        }
        if code in names:
            self.kinds[names[Code(code)]] += 1

    def _count_success(self, call: Call, outcome: Outcome) -> None:
        """Of a write that does more than one thing, or one that means more."""
        if call.path == QUOTA_LIMITS or any(part[1] == QUOTA_LIMITS for part in outcome.command[1]):
            self.kinds["quota set"] += 1
        elif {jute.CREATE_CONTAINER, jute.CREATE_TTL} & set(call.operations):
            self.kinds["container in a multi"] += 1

    def _answered_read(
        self, client: SimulatedClient, call: Call, zxid: int, err: int, reader: Reader
    ) -> None:
        """Anything that is not a write."""
        opcode = call.opcode
        if opcode in (jute.GET_DATA, jute.EXISTS, jute.GET_CHILDREN, jute.GET_CHILDREN2):
            self._read(client, call, zxid, err, reader)
        elif opcode == jute.GET_ACL:
            self._read_acl(client, call, zxid, err, reader)
        elif opcode == jute.MULTI_READ:
            self._multi_read(client, call, zxid, err, reader)
        elif opcode == jute.GET_ALL_CHILDREN_NUMBER:
            self._read_count(client, call, zxid, err, reader)
        elif opcode in (jute.ADD_WATCH, jute.CHECK_WATCHES, jute.REMOVE_WATCHES):
            self._on_watches(client, call, err, reader)
        elif err:
            self.fail("read", f"C{client.number}: {opcode} of {call.path} at {zxid:x} is answered {err}")
        elif opcode == jute.GET_EPHEMERALS:
            found, own = reader.texts(), self.history.ephemerals_of(client.session, zxid)
            expected = sorted(path for path in own if path.startswith(call.path))
            if sorted(found) != expected:
                self.fail(
                    "read",
                    f"C{client.number}: ephemerals below {call.path} at {zxid:x} are {found}, not {expected}",
                )
        else:
            assert opcode == jute.WHO_AM_I, f"an operation that no simulated client sends: {opcode}"
            users = {(scheme, who.partition(":")[0]) for scheme, who in call.ids if scheme != "super"}
            told = reader.pairs()
            if set(told) != users:
                self.fail("identity", f"C{client.number}: whoAmI at {zxid:x} is {told}, not {users}")

    def _readable(self, path: str, zxid: int, ids: rights.Ids, bits: int = rights.READ) -> Version | Code:
        """What these ids find there: the znode, or the code to answer."""
        node = self.history.at(path, zxid)
        if node is None:
            return Code.NO_NODE
        if not rights.grants(node.acl, bits, ids):
            return Code.NO_AUTH
        return node

    def _code(self, who: str, err: int, found: Version | Code) -> Version | None:
        """The answer's code must be that of the history; the znode if there is one."""
        expected = found if isinstance(found, Code) else Code.OK
        if err != expected:
            self.fail("read", f"{who} is answered {err}, the history has {found}")
        self.kinds["NOAUTH to a read"] += expected is Code.NO_AUTH
        return None if isinstance(found, Code) else found

    def _read(self, client: SimulatedClient, call: Call, zxid: int, err: int, reader: Reader) -> None:
        who = f"C{client.number}: read {call.opcode} of {call.path} at {zxid:x}"
        node = self._code(who, err, self._readable(call.path, zxid, call.ids))
        children = call.opcode in (jute.GET_CHILDREN, jute.GET_CHILDREN2)
        # exists waits for what is not there yet, but not for what it may not see (trap 7).
        if call.watch and (node is not None or (call.opcode == jute.EXISTS and err == Code.NO_NODE)):
            self._watches.registered(client, call, zxid, child=children)
        if node is None:
            return
        self.kinds["usage read"] += call.path == QUOTA_STATS
        if call.opcode == jute.GET_DATA:
            self._same_data(who, reader, node)
        if children:
            self._same_names(who, reader, node)
        if call.opcode != jute.GET_CHILDREN:
            self._same_stat(client, call, zxid, reader.stat(), node)

    def _same_data(self, who: str, reader: Reader, node: Version) -> None:
        data = reader.blob()
        if data != node.data:
            self.fail("read", f"{who} is {data!r}, the history has {node.data!r}")

    def _same_names(self, who: str, reader: Reader, node: Version) -> None:
        names = reader.texts()
        if len(names) != len(node.children) or set(names) != node.children:
            self.fail("read", f"{who} is {sorted(names)}, the history has {sorted(node.children)}")

    def _read_acl(self, client: SimulatedClient, call: Call, zxid: int, err: int, reader: Reader) -> None:
        who = f"C{client.number}: getACL of {call.path} at {zxid:x}"
        found = self._readable(call.path, zxid, call.ids, rights.READ | rights.ADMIN)
        node = self._code(who, err, found)
        if node is None:
            return
        acl, expected = reader.acl(), rights.shown(node.acl, call.ids)
        if acl != expected:
            self.fail("read", f"{who} as {call.ids} is {acl}, expected {expected}")
        self._same_stat(client, call, zxid, reader.stat(), node)

    def _multi_read(self, client: SimulatedClient, call: Call, zxid: int, err: int, reader: Reader) -> None:
        """Each part is answered by itself."""
        self._code(f"C{client.number}: multiRead", err, Version(None, 0, 0, 0))
        for opcode, path in call.parts:
            who = f"C{client.number}: {opcode} of {path} in a multiRead at {zxid:x}"
            kind, done, code = reader.multi_header()
            node = self._code(who, code, self._readable(path, zxid, call.ids))
            if (kind, done) != (-1 if node is None else opcode, False) or (
                node is None and reader.integer() != code
            ):
                self.fail("read", f"{who} has type {kind}")
            if node is None:
                continue
            if opcode == jute.GET_DATA:
                self._same_data(who, reader, node)
                self._same_stat(client, call, zxid, reader.stat(), node)
            else:
                self._same_names(who, reader, node)
        if reader.multi_header() != (-1, True, -1):
            self.fail("read", f"C{client.number}: multiRead without a terminator")

    def _read_count(self, client: SimulatedClient, call: Call, zxid: int, err: int, reader: Reader) -> None:
        """Counted while others go on: what was there all the time counts, what was there for a while may."""
        who = f"C{client.number}: getAllChildrenNumber of {call.path} at {zxid:x}"
        if err:
            self._code(who, err, self._readable(call.path, zxid, call.ids))
            return
        number = reader.integer()
        since = client.answered_zxid
        least, most = self.history.descendants(call.path, since, zxid)
        if not least <= number <= most:
            self.fail("read", f"{who} is {number}, the history has {least} to {most} since {since:x}")

    def _on_watches(self, client: SimulatedClient, call: Call, err: int, reader: Reader) -> None:
        who = f"C{client.number}: {call.opcode} of {call.path}, {call.number}"
        if call.opcode == jute.ADD_WATCH:
            if err or reader.integer():
                self.fail("watch", f"{who} is answered {err}")
            self._watches.added(client, call)
            return
        expected = 0 if self._watches.has(client, call.path, call.number) else Code.NO_WATCHER
        if err != expected:
            self.fail("watch", f"{who} is answered {err}, expected {expected!r}")
        self.kinds["NOWATCHER"] += err != 0
        if not err and call.opcode == jute.REMOVE_WATCHES:
            self._watches.removed(client, call.path, call.number)

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
            stat.aversion,
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
            node.aversion,
            node.owner,
            node.size,
            len(node.children),
        )
        if seen != expected:
            self.fail(
                "read", f"C{client.number}: stat of {call.path} at {zxid:x} is {seen}, expected {expected}"
            )

    # -- watches across connections
    def rearming(self, client: SimulatedClient) -> tuple[list[str], list[str], list[str]]:
        """The lists of a setWatches."""
        return self._watches.rearming(client)

    def lost(self, client: SimulatedClient) -> None:
        """The connection is gone."""
        self._watches.lost(client)

    # -- the end
    def assert_saw_enough(self) -> None:
        """A checker that was never fed would always pass."""
        if self.shortfall is not None:
            self.fail("saw enough", self.shortfall)

    @property
    def shortfall(self) -> str | None:
        """Of what there was too little for the checks to mean something; None: enough of all."""
        seen = {
            "commands": self.commands,
            "replies": self.replies,
            "reads": self.reads,
            "writes": self.writes,
            "syncs": self.syncs,
        }
        for name, least in (("commands", 200), ("replies", 100), ("reads", 30), ("writes", 30), ("syncs", 3)):
            if seen[name] < least:
                return f"only {seen[name]} {name}, at least {least} expected: {seen}"
        return None


def signature_of(command: txn.Command) -> tuple[object, ...]:
    """What identifies a command to the client that sent it."""
    if command[0] == txn.MULTI:
        return (jute.MULTI, tuple(signature_of(part) for part in command[1]))
    return tuple(command)


def renewed_by(outcome: Outcome) -> list[str]:
    """Paths that a write made, or whose time to live it began anew."""
    parts: list[tuple[txn.Command, Any]] = [(outcome.command, outcome.result)]
    if outcome.command[0] == txn.MULTI:
        if isinstance(outcome.result, tuple):
            return []
        parts = list(zip(outcome.command[1], outcome.result, strict=True))
    if outcome.code is not Code.OK:
        return []
    return [
        result[0] if command[0] in CREATES else command[1]
        for command, result in parts
        if command[0] in CREATES or (command[0] == txn.SET_DATA and result.ttl_ms)
    ]
