"""A cluster in the test's own loop that speaks the native protocol and keeps its promises on sequence numbers.

One state, any number of ports. A write under (session, seq) is carried out once, its answer kept until the floor passes;
a number at or below the floor is refused, so that a client that repeats wrongly is seen. `tests/client/processes` holds the
same client to real servers; this one can fail exactly where a test wants it to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final, cast

import msgpack
from attrs import define, field

from zraft_core.errors import Code

WINDOW: Final = 1024


class Fault(Enum):
    """What becomes of one request."""

    CUT_BEFORE = "the connection ends, and nothing was done"
    CUT_AFTER = "it is done, and the connection ends without an answer"
    REFUSE = "refused before it was taken: retriable"
    UNKNOWN = "it is done, and answered with unknown"
    UNKNOWN_UNDONE = "nothing is done, and it is answered with unknown"
    SILENCE = "it is never answered"


class Refused(Exception):
    def __init__(self, code: Code, text: str = "") -> None:
        super().__init__(text or code.name)
        self.code = code


@define
class Node:
    data: bytes
    czxid: int
    mzxid: int
    version: int = 0
    owner: int = 0
    children: set[str] = field(factory=set)
    created: int = 0

    def stat(self) -> dict[str, int]:
        return {
            "czxid": self.czxid,
            "mzxid": self.mzxid,
            "ctime": 0,
            "mtime": 0,
            "version": self.version,
            "cversion": self.created,
            "aversion": 0,
            "ephemeralOwner": self.owner,
            "dataLength": len(self.data),
            "numChildren": len(self.children),
            "pzxid": 0,
        }


@define
class KeptSession:
    password: bytes
    floor: int = 0
    kept: dict[int, dict[str, Any]] = field(factory=dict)
    executed: list[int] = field(factory=list)
    """Numbers in the order in which they were carried out."""
    repeats: int = 0
    will: tuple[str, str, bytes] | None = None


@define(eq=False)
class Subscribed:
    connection: FakeConnection
    id: int
    what: tuple[str, ...]
    """("dictionary", name), ("log", directory, prefix) or ("path", path, recursive)."""
    credit: int
    next: int = 0
    first: int = -1
    """Where the log began when it was told last."""
    pending: dict[Any, None] = field(factory=dict)


class FakeCluster:
    """Listens at `addresses`. `faults` are taken by the next requests of the types they are queued for."""

    def __init__(self) -> None:
        self.zxid = 0x1_0000_0000
        self.position = 0
        self.dictionaries: dict[str, dict[Any, tuple[Any, int, int]]] = {}
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self.sessions: dict[int, KeptSession] = {}
        self.requests: list[Mapping[str, Any]] = []
        self.transports: set[asyncio.Transport] = set()
        """All that are not lost yet, whatever was said on them."""
        self.connections: set[FakeConnection] = set()
        self.accepted = 0
        self.faults: dict[str, deque[Fault]] = {}
        self.subscribed: list[Subscribed] = []
        self.log_end: dict[str, int] = {}
        self.log_first: dict[str, int] = {}
        self.servers: list[asyncio.Server] = []
        self.addresses: list[tuple[str, int]] = []
        self.refuse_hello = 0
        self.limit = 1_048_575
        self.timeout_ms: int | None = None
        self.members: list[dict[str, Any]] = []

    # -- life

    async def listen(self, count: int = 1) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            server = await loop.create_server(lambda: FakeConnection(self), "127.0.0.1", 0)
            self.servers.append(server)
            self.addresses.append(server.sockets[0].getsockname()[:2])

    async def stop_listening(self, number: int) -> None:
        await _stop_listening(self.servers[number])

    async def close(self) -> None:
        for server in self.servers:
            await _stop_listening(server)
        self.cut()
        # Also those that are closed and wait for a client to read: the loop is about to end.
        for transport in list(self.transports):
            transport.abort()
        for _ in range(LOOP_TURNS):
            await asyncio.sleep(0)

    @property
    def hosts(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    # -- faults

    def fault(self, kind: str, *faults: Fault) -> None:
        """The next requests of this type (or of any, "*") meet these, one each."""
        self.faults.setdefault(kind, deque()).extend(faults)

    def fault_of(self, kind: str) -> Fault | None:
        for name in (kind, "*"):
            if self.faults.get(name):
                return self.faults[name].popleft()
        return None

    def cut(self) -> None:
        for connection in list(self.connections):
            connection.cut()

    def expire(self, session: int) -> None:
        """The session ends: its ephemerals go, its will is made, its connections are closed."""
        kept = self.sessions.pop(session)
        for path in [path for path, node in self.nodes.items() if node.owner == session]:
            self._removed(path)
        if kept.will is not None:
            parent, prefix, data = kept.will
            self.create(parent.rstrip("/") + "/" + prefix, data, 2, 0)
        for connection in list(self.connections):
            if connection.session == session:
                connection.cut()

    # -- writes

    def next_zxid(self) -> int:
        self.zxid += 1
        self.position += 1
        return self.zxid

    def write(self, message: Mapping[str, Any], session: int) -> dict[str, Any]:
        """The answer's fields. Once per (session, seq)."""
        seq = message.get("seq")
        if seq is None:
            return self.execute(message, session)
        kept = self.sessions.get(session)
        if kept is None:
            return self.refusal(Code.SESSION_EXPIRED)
        kept.floor = max(kept.floor, message["floor"])
        kept.kept = {number: answer for number, answer in kept.kept.items() if number > kept.floor}
        if seq <= kept.floor:
            return self.refusal(Code.BAD_ARGUMENTS, "seq at or below the floor")
        if seq in kept.kept:
            kept.repeats += 1
            return kept.kept[seq]
        if seq > kept.floor + WINDOW:
            return self.refusal(Code.THROTTLED_OP)
        answer = self.execute(message, session)
        kept.kept[seq] = answer
        kept.executed.append(seq)
        return answer

    def refusal(self, code: Code, text: str = "", **more: Any) -> dict[str, Any]:
        retriable = code is Code.THROTTLED_OP
        return {
            "type": "error",
            "success": False,
            "code": code.name,
            "error": text or code.name,
            "retriable": retriable,
            "unknown": False,
            **more,
        }

    def execute(self, message: Mapping[str, Any], session: int) -> dict[str, Any]:
        zxid = self.next_zxid()
        try:
            found = self.command(message, session)
        except Refused as refused:
            return self.refusal(refused.code, str(refused), zxid=zxid, position=self.position)
        return {"type": "result", "success": True, "zxid": zxid, "position": self.position, **found}

    def command(self, message: Mapping[str, Any], session: int) -> dict[str, Any]:
        name = message.get("dictionary", "default")
        match message["type"]:
            case "put":
                return self.put(name, message["key"], message["value"], message.get("version"))
            case "delete":
                return self.delete(name, message["key"], message.get("version"))
            case "increment":
                entry = self.dictionaries.get(name, {}).get(message["key"])
                value = (0 if entry is None else entry[0]) + message.get("amount", 1)
                return {"value": value, **self.put(name, message["key"], value, None)}
            case "append":
                data = message["data"]
                if data["action"] == "change":
                    return self.put("default", data["key"], data["value"], None)
                return self.delete("default", data["key"], None)
            case "create":
                return self.create(message["path"], message["data"], message.get("flags", 0), session)
            case "set":
                return self.set(message["path"], message["data"], message.get("version"))
            case "remove":
                self.checked(message["path"], message.get("version"))
                if self.nodes[message["path"]].children:
                    raise Refused(Code.NOT_EMPTY)
                self._removed(message["path"])
                return {}
            case "check":
                self.checked(message["path"], message["version"])
                return {}
            case "multi":
                return self.multi(message["operations"], session)
            case "truncate":
                return self.truncate(message)
            case "will":
                parent = message["parent"]
                self.sessions[session].will = (
                    None if parent is None else (parent, message["prefix"], message["data"])
                )
                return {}
        raise Refused(Code.UNIMPLEMENTED, message["type"])

    def put(self, name: str, key: Any, value: Any, version: int | None) -> dict[str, Any]:
        entries = self.dictionaries.setdefault(name, {})
        entry = entries.get(key)
        if version == -1 and entry is not None:
            raise Refused(Code.NODE_EXISTS)
        if version is not None and version >= 0:
            if entry is None:
                raise Refused(Code.NO_NODE)
            if entry[1] != version:
                raise Refused(Code.BAD_VERSION)
        new = 0 if entry is None else entry[1] + 1
        entries[key] = (value, new, self.zxid)
        self.changed(name, key)
        return {"version": new, "mzxid": self.zxid}

    def delete(self, name: str, key: Any, version: int | None) -> dict[str, Any]:
        entries = self.dictionaries.get(name, {})
        if key not in entries:
            raise Refused(Code.NO_NODE)
        if version not in (None, -1, entries[key][1]):
            raise Refused(Code.BAD_VERSION)
        del entries[key]
        self.changed(name, key)
        return {}

    def create(self, path: str, data: bytes, flags: int, session: int) -> dict[str, Any]:
        parent = path.rpartition("/")[0] or "/"
        if parent not in self.nodes:
            raise Refused(Code.NO_NODE, parent)
        if flags & 2:
            path += f"{self.log_end.get(parent, 0):010d}"
        if path in self.nodes:
            raise Refused(Code.NODE_EXISTS, path)
        if flags & 1 and not session:
            raise Refused(Code.BAD_ARGUMENTS, "an ephemeral without a session")
        self.log_end[parent] = self.log_end.get(parent, 0) + 1
        node = self.nodes[path] = Node(data, self.zxid, self.zxid, owner=session if flags & 1 else 0)
        self.nodes[parent].children.add(path.rpartition("/")[2])
        self.event("created", path)
        self.appended(parent)
        return {"path": path, "stat": node.stat()}

    def set(self, path: str, data: bytes, version: int | None) -> dict[str, Any]:
        node = self.checked(path, version)
        node.data, node.mzxid, node.version = data, self.zxid, node.version + 1
        self.event("changed", path)
        return {"stat": node.stat()}

    def checked(self, path: str, version: int | None) -> Node:
        if path not in self.nodes:
            raise Refused(Code.NO_NODE, path)
        if version not in (None, -1, self.nodes[path].version):
            raise Refused(Code.BAD_VERSION, path)
        return self.nodes[path]

    def _removed(self, path: str) -> None:
        del self.nodes[path]
        parent, _, name = path.rpartition("/")
        self.nodes[parent or "/"].children.discard(name)
        self.event("deleted", path)

    def multi(self, operations: tuple[Mapping[str, Any], ...], session: int) -> dict[str, Any]:
        """All or nothing, on copies. Events and pushes of a multi that fails do not happen in tests."""
        before = {path: (node.data, node.version, set(node.children)) for path, node in self.nodes.items()}
        entries = {name: dict(found) for name, found in self.dictionaries.items()}
        nodes = dict(self.nodes)
        try:
            return {"results": [self.command(one, session) for one in operations]}
        except Refused:
            self.nodes, self.dictionaries = nodes, entries
            for path, (data, version, children) in before.items():
                node = self.nodes[path]
                node.data, node.version, node.children = data, version, children
            raise

    def truncate(self, message: Mapping[str, Any]) -> dict[str, Any]:
        directory, first = message["directory"], message["first"]
        names = list(self.checked(directory, None).children)
        if not self.log_first.get(directory, 0) <= first <= self.log_end.get(directory, 0):
            raise Refused(Code.BAD_ARGUMENTS, f"first: {first}")
        for name in names:
            if int(name[-10:]) < first:
                self._removed(f"{directory}/{name}")
        if message.get("origin_path"):
            self.put_znode(message["origin_path"], message["origin_data"])
        self.log_first[directory] = first
        self.appended(directory)
        return {}

    def put_znode(self, path: str, data: bytes) -> None:
        if path in self.nodes:
            self.set(path, data, None)
        else:
            self.create(path, data, 0, 0)

    # -- reads

    def read(self, message: Mapping[str, Any]) -> dict[str, Any]:
        entries = self.dictionaries.get(message.get("dictionary", "default"), {})
        match message["type"]:
            case "get" if "key" in message:
                entry = entries.get(message["key"])
                if entry is None:
                    return {"found": False, "value": None, "version": None, "mzxid": None}
                return {"found": True, "value": entry[0], "version": entry[1], "mzxid": entry[2]}
            case "get":
                return {"state": {key: entry[0] for key, entry in entries.items()}}
            case "items":
                names = sorted(entries, key=repr)
                after = message.get("after")
                rest = [key for key in names if after is None or repr(key) > after]
                page = rest[: message.get("limit", 1000)]
                after_page = repr(page[-1]) if len(page) < len(rest) else None
                return {"items": [[key, *entries[key]] for key in page], "next": after_page}
            case "size":
                return {"size": len(entries)}
            case "read":
                node = self.checked(message["path"], None)
                return {"data": node.data, "stat": node.stat()}
            case "exists":
                node = self.nodes.get(message["path"])  # type: ignore[assignment]
                return {"stat": None if node is None else node.stat()}
            case "children":
                node = self.checked(message["path"], None)
                return {"names": sorted(node.children), "stat": node.stat()}
            case "owners":
                node = self.checked(message["path"], None)
                nodes = {name: self.nodes[f"{message['path']}/{name}"] for name in sorted(node.children)}
                rows = [[name, one.owner, 0, 10_000] for name, one in nodes.items() if one.owner]
                return {"owners": rows, "leads": True}
            case "log":
                entries_, following = self.log(message["directory"], message["prefix"], message["first"])
                limit = message.get("limit", 1000)
                if len(entries_) > limit:
                    entries_ = entries_[:limit]
                    following = entries_[-1][0] + 1
                first = self.log_first.get(message["directory"], 0)
                end = self.log_end.get(message["directory"], 0)
                return {"entries": entries_, "next": following, "first": first, "end": end}
            case "sync" | "ping":
                return {}
            case "diagnostic":
                return {"status": "Leader", "log": {"commitIndex": self.position}}
            case "members":
                return {"members": self.members}
            case "config":
                return {"server": 4}
        raise Refused(Code.UNIMPLEMENTED, message["type"])

    def log(self, directory: str, prefix: str, first: int) -> tuple[list[tuple[int, bytes, int]], int]:
        names = sorted(self.checked(directory, None).children, key=lambda name: name[-10:])
        found = []
        for name in names:
            if name.startswith(prefix) and int(name[-10:]) >= first:
                node = self.nodes[f"{directory}/{name}"]
                found.append((int(name[-10:]), node.data, node.czxid))
        return found, max(first, self.log_end.get(directory, 0))

    # -- pushes

    def changed(self, name: str, key: Any) -> None:
        for one in self.subscribed:
            if one.what == ("dictionary", name):
                one.pending[key] = None
                self.push(one)

    def appended(self, directory: str) -> None:
        for one in self.subscribed:
            if one.what[:2] == ("log", directory):
                self.push(one)

    def event(self, kind: str, path: str) -> None:
        for one in self.subscribed:
            if one.what[0] == "path" and (
                path == one.what[1] or (one.what[2] and path.startswith(one.what[1]))
            ):
                one.connection.send(
                    {"id": one.id, "type": "event", "kind": kind, "path": path, "zxid": self.zxid}
                )

    def push(self, one: Subscribed) -> None:
        """What changed since, if there is credit."""
        if one.credit <= 0:
            return
        if one.what[0] == "log":
            entries, following = self.log(one.what[1], one.what[2], one.next)
            first = self.log_first.get(one.what[1], 0)
            if entries or first != one.first:
                one.next, one.first = following, first
                size = one.connection.send(
                    {
                        "id": one.id,
                        "type": "entries",
                        "zxid": self.zxid,
                        "entries": entries,
                        "next": following,
                        "first": first,
                    }
                )
                one.credit -= size
        elif one.pending:
            entries_ = self.dictionaries.get(one.what[1], {})
            changes = [[key, *entries_[key]] if key in entries_ else [key] for key in one.pending]
            one.pending.clear()
            self.changes(one, changes, initial=False, complete=True)

    def changes(self, one: Subscribed, changes: list[Any], *, initial: bool, complete: bool) -> None:
        one.credit -= one.connection.send(
            {
                "id": one.id,
                "type": "changes",
                "zxid": self.zxid,
                "changes": changes,
                "initial": initial,
                "complete": complete,
            }
        )

    def subscribe(self, connection: FakeConnection, message: Mapping[str, Any]) -> Callable[[], None]:
        """What to do after the acknowledgement."""
        number, credit = message["id"], message.get("credit", 0)
        if "log" in message:
            what: tuple[Any, ...] = ("log", message["log"], message["prefix"])
            self.checked(message["log"], None)
            one = Subscribed(connection, number, what, credit, next=message["first"])
            self.subscribed.append(one)
            return lambda: self.push(one)
        if "path" in message:
            what = ("path", message["path"], message["recursive"])
            self.subscribed.append(Subscribed(connection, number, what, 0))
            return lambda: None
        one = Subscribed(connection, number, ("dictionary", message["dictionary"]), credit)
        self.subscribed.append(one)

        def begin() -> None:
            rows = [[key, *e] for key, e in self.dictionaries.get(message["dictionary"], {}).items()]
            parts = [rows[start : start + 2] for start in range(0, len(rows), 2)] or [[]]
            for place, part in enumerate(parts):
                self.changes(one, part, initial=True, complete=place == len(parts) - 1)

        return begin


LOOP_TURNS: Final = 5
"""More than a transport takes to be made, or to be lost."""

WRITES: Final = frozenset(
    (
        *("put", "delete", "increment", "append", "create", "set", "remove", "multi", "truncate", "will"),
        *("create_topic", "alter_topic", "retain_topic", "delete_topic"),
        *("register_producer", "close_producer"),
    )
)


async def _stop_listening(server: asyncio.Server) -> None:
    """Close it, but not between the two steps in which asyncio takes a client: that leaves a socket without an owner."""
    loop = asyncio.get_running_loop()
    for socket in server.sockets:
        loop.remove_reader(socket.fileno())
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)
    server.close()


class FakeConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.session = 0
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Transport | None = None
        self._unpacker = msgpack.Unpacker(use_list=False, strict_map_key=False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert hasattr(transport, "write")  # uvloop's transports are no subclasses
        opened = cast(asyncio.Transport, transport)
        self._transport = self._opened = opened
        self.cluster.transports.add(opened)
        self.cluster.connections.add(self)
        self.cluster.accepted += 1

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._opened is not None
        self.cluster.transports.discard(self._opened)
        self._forget()

    def _forget(self) -> None:
        self._transport = None
        self.cluster.connections.discard(self)
        self.cluster.subscribed = [one for one in self.cluster.subscribed if one.connection is not self]

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._forget()

    def send(self, message: Mapping[str, Any]) -> int:
        data: bytes = msgpack.packb(message)
        if self._transport is not None:
            self._transport.write(data)
        return len(data)

    def data_received(self, data: bytes) -> None:
        if len(data) and self._transport is None:
            return
        self._unpacker.feed(data)
        before = self._unpacker.tell()
        for message in self._unpacker:
            length, before = self._unpacker.tell() - before, self._unpacker.tell()
            if length > self.cluster.limit:
                self.send({"type": "error", "success": False, "error": "client.jute_maxbuffer"})
                if self._transport is not None:
                    self._transport.close()
                self._forget()
            if self._transport is None:
                return
            self._take(message)

    def _take(self, message: Mapping[str, Any]) -> None:
        cluster, kind = self.cluster, message["type"]
        cluster.requests.append(message)
        fault = cluster.fault_of(kind)
        if fault is Fault.CUT_BEFORE:
            self.cut()
            return
        if fault is Fault.SILENCE:
            return
        if fault in (Fault.REFUSE, Fault.UNKNOWN_UNDONE):
            unknown = fault is Fault.UNKNOWN_UNDONE
            answer = cluster.refusal(Code.CONNECTION_LOSS) | {"retriable": True, "unknown": unknown}
            self.send({"id": message["id"], **answer})
            return
        then: Callable[[], None] | None = None
        try:
            if kind in WRITES:
                answer = cluster.write(message, self.session)
            elif kind == "hello":
                answer = self._hello(message)
            elif kind == "subscribe":
                then = cluster.subscribe(self, message)
                answer = {}
            elif kind == "credit":
                self._credit(message)
                return
            elif kind in ("unsubscribe", "close", "auth"):
                answer = self._simple(message)
            else:
                answer = cluster.read(message)
        except Refused as refused:
            answer = cluster.refusal(refused.code, str(refused))
        if fault is Fault.CUT_AFTER:
            self.cut()
            return
        if fault is Fault.UNKNOWN:
            answer = cluster.refusal(Code.CONNECTION_LOSS) | {"retriable": True, "unknown": True}
        self.send({"id": message["id"], "type": "result", "success": True, "zxid": cluster.zxid, **answer})
        if then is not None:
            then()
        if kind == "close":
            self.cut_gently()

    def cut_gently(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _hello(self, message: Mapping[str, Any]) -> dict[str, Any]:
        cluster = self.cluster
        session = message.get("session")
        if session is not None:
            kept = cluster.sessions.get(session)
            if kept is None or kept.password != message["password"]:
                raise Refused(Code.SESSION_EXPIRED)
            for other in list(cluster.connections):
                if other is not self and other.session == session:
                    other.cut()
        else:
            session = 0x100 + cluster.accepted
            cluster.sessions[session] = KeptSession(f"{session:016x}".encode())
        self.session = session
        return {
            "session": session,
            "password": cluster.sessions[session].password,
            "timeout_ms": cluster.timeout_ms or message["timeout_ms"],
            "server": 1,
            "cluster": b"fake",
        }

    def _simple(self, message: Mapping[str, Any]) -> dict[str, Any]:
        cluster = self.cluster
        if message["type"] == "unsubscribe":
            cluster.subscribed = [
                one
                for one in cluster.subscribed
                if one.connection is not self or one.id != message["subscription"]
            ]
        elif message["type"] == "close" and self.session in cluster.sessions:
            session, self.session = self.session, 0
            cluster.expire(session)
        elif message["type"] == "auth" and message["credentials"] == b"wrong":
            raise Refused(Code.AUTH_FAILED)
        return {}

    def _credit(self, message: Mapping[str, Any]) -> None:
        for one in self.cluster.subscribed:
            if one.connection is self and one.id == message["id"]:
                one.credit += message["bytes"]
                self.cluster.push(one)


@asynccontextmanager
async def fake_cluster(count: int = 1) -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.listen(count)
    try:
        yield cluster
    finally:
        await cluster.close()
