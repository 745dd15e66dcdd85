"""Owns the reference history: what the committed log means, computed without the product's state machine.

`History.apply` replays the committed entries into a tree written for clarity only (no digest, no watches,
no speed) and remembers every version of every znode, so that a client's read can be compared with the
state *at the zxid of its reply*, and a watch event with the change that must have caused it.

Semantics: ZooKeeper's (`docs/reference/protocol-zookeeper.md`), rules D-2, D-3, D-11, D-12, D-15, D-16.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from attrs import evolve, frozen

from tests.simulation import native_model, rights, topic_model
from tests.simulation.broken import BrokenPromiseError
from tests.simulation.native_model import Answer
from tests.simulation.rights import Acl, Ids
from zraft_core.errors import Code
from zraft_core.ids import Instance, ServerId, zxid_after
from zraft_core.topics.codec import decode_registry
from zraft_core.znodes import txn

EVENT_CREATED: Final = 1
EVENT_DELETED: Final = 2
EVENT_CHANGED: Final = 3
EVENT_CHILDREN: Final = 4

CONTAINER: Final = 0
"""The time to live of a container."""

TTL_MS_MAX: Final = 2**40 - 1

CONFIG: Final = "/zookeeper/config"
QUOTA_ROOT: Final = "/zookeeper/quota"
LIMITS: Final = "zookeeper_limits"
STATS: Final = "zookeeper_stats"

CREATES: Final = (txn.CREATE, txn.CREATE2, txn.CREATE_CONTAINER, txn.CREATE_TTL)


@frozen
class Version:
    """One state of one znode. `creates` counts children ever created, `children` those that exist.

    Times are log time in milliseconds. `ttl_ms` is None for what stays until somebody deletes it; `since_ms` is when
    the time to live began anew, `touched_ms` when anything changed here.
    """

    data: bytes | None
    czxid: int
    mzxid: int
    pzxid: int
    version: int = 0
    creates: int = 0
    owner: int = 0
    children: frozenset[str] = frozenset()
    acl: Acl = rights.OPEN
    aversion: int = 0
    ttl_ms: int | None = None
    since_ms: int = 0
    touched_ms: int = 0

    @property
    def cversion(self) -> int:
        """As on the wire: creates and deletes of direct children."""
        return self.creates * 2 - len(self.children)

    @property
    def size(self) -> int:
        """Bytes of data."""
        return len(self.data or b"")


class Event(NamedTuple):
    """One change that watchers may be told of, with the ACL that stood at its path then."""

    zxid: int
    kind: int
    path: str
    acl: Acl


@frozen
class Outcome:
    """One applied command: where it stands in the history and what it answered."""

    zxid: int
    position: int
    index: int
    session: int
    owner: tuple[ServerId, Instance, int]
    ids: Ids
    command: txn.Command
    code: Code
    result: Any
    """(path, version) of a create, the version of a setData and setACL, the version that a REAP removed, a list of
    these for a multi, or a tuple of codes if it failed; session id of a create session."""


class SessionState:
    """What the replicated state knows of one session (D-3, D-11)."""

    __slots__ = (
        "attach_position",
        "ephemerals",
        "floor",
        "kept",
        "owner",
        "password",
        "timeout_ms",
        "will",
        "write_position",
    )

    def __init__(
        self, owner: tuple[ServerId, Instance, int], password: bytes, timeout_ms: int, position: int
    ) -> None:
        self.owner = owner
        self.password = password
        self.timeout_ms = timeout_ms
        self.attach_position = self.write_position = position
        self.ephemerals: dict[str, None] = {}
        self.floor = 0
        self.kept: dict[int, Answer] = {}
        self.will: Any = None
        """((parent, prefix, data), ids)."""


class RefusedError(Exception):
    """A command's failure; carries its code."""

    def __init__(self, code: Code) -> None:
        self.code = code
        super().__init__(code)


class History:
    """The one order of everything that happened, extended by each newly committed entry."""

    def __init__(self) -> None:
        self.zxid = 0
        self.position = 0
        self.index = 0
        self.log_time = 0
        self.settings = {"quota_enforced": 0, "container_never_used_ms_max": 300_000}
        self.feature_level = 1
        self.wanted: dict[ServerId, tuple[bool, str]] = {}
        """Who is to belong to the cluster: whether it is to vote, and its address."""
        self.rows: dict[tuple[ServerId, Instance], tuple[int, int]] = {}
        self.sessions: dict[int, SessionState] = {}
        self.nodes: dict[str, Version] = {}
        self.versions: dict[str, list[tuple[int, Version | None]]] = {}
        self.events: list[Event] = []
        """Everything that watchers may be told of, in order."""
        self.owned: dict[int, set[str]] = {}
        """Paths of which a session ever had an ephemeral."""
        self.ended: dict[int, int] = {}
        """zxid at which a session ended."""
        self.firsts: dict[str, int] = {}
        """Where truncated directories begin."""
        self.hidden: dict[str, native_model.Hidden] = {}
        """What of each watchers were not told yet."""
        self.to_tell: list[tuple[str, Acl]] = []
        """What watchers are told of with the next command."""
        self.wills_done = self.wills_dropped = 0
        self.topics = topic_model.Topics()
        self.outcomes: list[Outcome] = []
        self._zxid_outcome: dict[int, Outcome] = {}
        self._owner: tuple[ServerId, Instance, int] = (ServerId(0), Instance(b""), 0)
        self.ids: Ids = ()
        """What the connection had proved whose command is applied."""
        self._undo: list[Callable[[], object]] | None = None
        """While a multi runs: how to take its steps back, in order of execution."""
        born = Version(b"", 0, 0, 0)
        for path, node in (
            ("/", evolve(born, children=frozenset({"zookeeper"}))),
            ("/zookeeper", evolve(born, children=frozenset({"quota", "config"}))),
            ("/zookeeper/quota", born),
            ("/zookeeper/config", evolve(born, acl=((rights.READ, "world", "anyone"),))),
        ):
            self.nodes[path] = node
            self.versions[path] = [(0, node)]

    # -- questions of the checkers
    def at(self, path: str, zxid: int) -> Version | None:
        """The znode as it was after everything up to `zxid`."""
        versions = self.versions.get(path)
        if not versions:
            return None
        nth = bisect_right(versions, zxid, key=_zxid_of)
        return versions[nth - 1][1] if nth else None

    def outcome(self, zxid: int) -> Outcome | None:
        return self._zxid_outcome.get(zxid)

    def events_after(self, zxid: int) -> int:
        """Where the events later than `zxid` begin in `events`."""
        return bisect_right(self.events, zxid, key=_zxid_of)

    def ephemerals_of(self, session: int, zxid: int) -> set[str]:
        """Paths of a session's ephemerals at `zxid`."""
        found = set()
        for path in self.owned.get(session, ()):
            node = self.at(path, zxid)
            if node is not None and node.owner == session:
                found.add(path)
        return found

    def descendants(self, path: str, first: int, last: int) -> tuple[int, int]:
        """How many znodes were below `path` during all, and during any part, of the time from `first` to `last`."""
        prefix = path if path == "/" else path + "/"
        always = ever = 0
        for below, versions in self.versions.items():
            if below == "/" or not below.startswith(prefix):
                continue
            at_first = bisect_right(versions, first, key=_zxid_of)
            at_last = bisect_right(versions, last, key=_zxid_of)
            states = [version for _, version in versions[max(0, at_first - 1) : at_last]]
            if not at_first:
                states.append(None)
            ever += any(state is not None for state in states)
            always += all(state is not None for state in states)
        return always, ever

    def overdue(self, slack_ms: int) -> list[str]:
        """Znodes that should have gone by themselves long ago."""
        found = []
        for path, node in self.nodes.items():
            silent_ms = self.log_time - node.touched_ms
            if silent_ms > slack_ms and self._is_due(node, self.log_time - slack_ms):
                found.append(path)
        return found

    # -- growing
    def apply(self, index: int, term: int, payload: bytes) -> list[Outcome]:
        """Replay one COMMANDS entry; its outcomes in order."""
        if index <= self.index:
            raise BrokenPromiseError("history", f"entry {index} after {self.index}")
        self.index = index
        log_time, _, batches = txn.unpack_entry(payload)
        self.log_time = max(self.log_time, log_time)
        first = len(self.outcomes)
        native_model.drain(self)
        for server, instance, boot, seq, runs in batches:
            # Every command has its position, also of a batch that apply skips (D-16).
            if server != 0 and not self._accept((server, instance), boot, seq):
                self.position += sum(len(commands) for _, _, commands in runs)
                continue
            self._owner = (server, instance, boot)
            for session, ids, commands in runs:
                moved = (
                    session != 0 and session in self.sessions and self.sessions[session].owner != self._owner
                )
                self.ids = ids
                for command in commands:
                    self.position += 1
                    self.zxid = zxid_after(self.zxid, term)
                    self._command(session, moved, command)
        return self.outcomes[first:]

    def set_members(self, origins: Iterable[tuple[ServerId, Instance]]) -> None:
        """A committed MEMBERSHIP entry: rows exist exactly for the disks that are members (D-3)."""
        self.rows = {origin: self.rows.get(origin, (0, 0)) for origin in origins}

    def _accept(self, origin: tuple[ServerId, Instance], boot: int, seq: int) -> bool:
        """D-2: exactly the next batch of the row, or the first of a higher boot."""
        if origin not in self.rows:
            return False
        row_boot, row_seq = self.rows[origin]
        if not ((boot == row_boot and seq == row_seq + 1) or (boot > row_boot and seq == 1)):
            return False
        self.rows[origin] = (boot, seq)
        return True

    def _command(self, session: int, moved: bool, command: txn.Command) -> None:
        code, subject = Code.OK, session
        result: Any = None
        for path, acl in self.to_tell:
            self.event(EVENT_DELETED, path, acl)
        self.to_tell.clear()
        try:
            opcode = command[0]
            if opcode == txn.CREATE_SESSION:
                subject = result = self._create_session(command)
            elif opcode == txn.ATTACH:
                subject = command[1]
                self._attach(command)
            elif opcode == txn.EXPIRE:
                subject = command[1]
                self._expire(command)
            elif opcode == txn.REAP:
                result = self._reap(command[1], command[2])
            elif opcode == txn.SETTINGS:
                self.settings.update(command[1])
            elif opcode == txn.FEATURE:
                self._raise(command[1])
            elif opcode == txn.MEMBERS:
                result = self._members(*command[1:])
            elif opcode == txn.REGISTER:
                pass
            elif session == 0 and self.feature_level >= native_model.LEVEL:
                result = self.operation(session, command)
            elif session not in self.sessions:
                raise RefusedError(Code.SESSION_EXPIRED)
            elif moved:
                raise RefusedError(Code.SESSION_MOVED)
            else:
                self.sessions[session].write_position = self.position
                if opcode == txn.CLOSE_SESSION:
                    self._end(session)
                elif opcode == txn.MULTI:
                    code, result = self.multi(session, command[1])
                elif opcode == txn.ONCE and self.feature_level >= native_model.LEVEL:
                    result = native_model.answer_to(self, session, command)
                else:
                    result = self.operation(session, command)
        except RefusedError as error:
            code = error.code
        outcome = Outcome(
            self.zxid, self.position, self.index, subject, self._owner, self.ids, command, code, result
        )
        self.outcomes.append(outcome)
        self._zxid_outcome[self.zxid] = outcome

    def _raise(self, level: int) -> None:
        if level <= self.feature_level:
            raise RefusedError(Code.BAD_ARGUMENTS)
        before, self.feature_level = self.feature_level, level
        if before < 5 <= level and self.wanted:
            self._show_members()

    def _members(self, replace: bool, version: int, changes: Any) -> Version:
        """What operators and the leader ask for; clients of the simulation do not."""
        if self.feature_level < 2:
            raise RefusedError(Code.UNIMPLEMENTED)
        if not self.wanted and self._owner[0] != 0:  # 0 is the leader itself
            raise RefusedError(Code.RECONFIG_IN_PROGRESS)
        node = self.nodes[CONFIG]
        if version not in (-1, node.mzxid):
            raise RefusedError(Code.BAD_VERSION)
        wanted = self.wanted_after(replace, changes)
        if wanted is None:
            raise RefusedError(Code.BAD_ARGUMENTS)
        if not any(votes for votes, _ in wanted.values()):
            raise RefusedError(Code.NEW_CONFIG_NO_QUORUM)
        self.wanted = wanted
        return self._show_members()

    def _show_members(self) -> Version:
        node = self.nodes[CONFIG]
        lines: list[str] = []
        for server, (votes, address) in sorted(self.wanted.items()):
            if not address:
                lines = []
                break
            host, _, port = address.rpartition(":")
            part = "participant" if votes else "observer"
            election = port if self.feature_level < 5 else "0"
            lines.append(f"server.{server}={host}:{port}:{election}:{part};{host}:{port}")
        data = "\n".join([*lines, f"version={self.zxid:x}"]).encode() if lines else b""
        self.store(CONFIG, evolve(node, data=data, mzxid=self.zxid, version=-1, touched_ms=self.log_time))
        self.event(EVENT_CHANGED, CONFIG, node.acl)
        return self.nodes[CONFIG]

    def wanted_after(self, replace: bool, changes: Any) -> dict[ServerId, tuple[bool, str]] | None:
        """The wish after such changes; None if two servers would have one address. Who is not wanted may be taken away."""
        wanted = {} if replace else dict(self.wanted)
        for server, part, address in changes:
            if not part:
                wanted.pop(server, None)
            elif address and any(row[1] == address for other, row in wanted.items() if other != server):
                return None
            else:
                wanted[server] = (part == 1, address)
        return wanted

    # -- sessions
    def _create_session(self, command: txn.Command) -> int:
        number = self._owner[0] << 56 | self.zxid & 2**56 - 1
        session = number - 2**64 if number >= 2**63 else number
        self.sessions[session] = SessionState(self._owner, command[2], command[1], self.position)
        return session

    def _attach(self, command: txn.Command) -> None:
        state = self.sessions.get(command[1])
        if state is None or state.password != command[3]:
            raise RefusedError(Code.SESSION_EXPIRED)
        state.owner = self._owner
        state.attach_position = state.write_position = self.position
        state.timeout_ms = command[2]

    def _expire(self, command: txn.Command) -> None:
        """D-11: nothing happens if the session attached or wrote since the leader read its table."""
        state = self.sessions.get(command[1])
        if state is None or (state.attach_position, state.write_position) != (command[2], command[3]):
            raise RefusedError(Code.UNKNOWN_SESSION)
        self._end(command[1])

    def _end(self, session: int) -> None:
        state = self.sessions.pop(session)
        self.ended[session] = self.zxid
        self.topics.end_session(session, self.zxid)
        hidden = native_model.hidden_ephemerals(self, session)
        for path in sorted([*state.ephemerals, *hidden]):
            if path in hidden:
                self.event(EVENT_DELETED, path, hidden[path])
            else:
                self._remove(path)
        if state.will is not None:
            done = native_model.carry_out(self, state.will)
            self.wills_done += done
            self.wills_dropped += not done

    def _change_topics(self, session: int, command: txn.Command) -> Any:
        if self.feature_level < topic_model.LEVEL:
            raise RefusedError(Code.UNIMPLEMENTED)
        try:
            return self.topics.change(
                decode_registry(command[1]), session, self.ids, self.nodes["/"].acl, self.zxid
            )
        except topic_model.RefusedError as error:
            raise RefusedError(error.code) from error

    # -- lifetimes (D-12)
    def _is_due(self, node: Version, log_time: int) -> bool:
        """Whether an empty znode's time has come, in log time: only setData begins a time to live anew."""
        age = log_time - node.since_ms
        if node.ttl_ms is None or node.children:
            return False
        if node.ttl_ms != CONTAINER:
            return age > node.ttl_ms
        never_used_ms_max = self.settings["container_never_used_ms_max"]
        return node.creates > 0 or 0 < never_used_ms_max < age

    def _reap(self, path: str, czxid: int) -> Version:
        """The leader proposed it some time ago: only what is due now goes."""
        node = self._node(path)
        if node.czxid != czxid:
            raise RefusedError(Code.NO_NODE)
        if node.children:
            raise RefusedError(Code.NOT_EMPTY)
        if not self._is_due(node, self.log_time):
            raise RefusedError(Code.BAD_VERSION)
        self._remove(path)
        return node

    # -- znodes
    def operation(self, session: int, command: txn.Command) -> Any:
        opcode = command[0]
        if opcode in native_model.OPCODES:
            if self.feature_level < native_model.LEVEL:
                raise RefusedError(Code.UNIMPLEMENTED)
            return native_model.operation(self, session, command)
        if opcode == txn.TOPICS:
            return self._change_topics(session, command)
        if opcode in CREATES:
            return self._create(session, command)
        if opcode == txn.DELETE:
            return self._delete(command[1], command[2])
        if opcode == txn.DELETE_CONTAINER:
            return self._delete_container(command[1])
        if opcode == txn.SET_DATA:
            return self._set(command[1], command[2], command[3])
        if opcode == txn.SET_ACL:
            return self._set_acl(command[1], command[2], command[3])
        if opcode == txn.CHECK:
            return self._check(command[1], command[2])
        raise BrokenPromiseError("history", f"command {command!r} is in the log, no client sent such a one")

    def multi(self, session: int, commands: tuple[txn.Command, ...]) -> tuple[Code, Any]:
        undo: list[Callable[[], object]] = []
        self._undo = undo
        events = len(self.events)
        results: list[Any] = []
        for nth, command in enumerate(commands):
            try:
                results.append(self.operation(session, command))
            except RefusedError as error:
                self._undo = None
                for step in reversed(undo):
                    step()
                del self.events[events:]
                later = len(commands) - nth - 1
                codes = [Code.OK] * nth + [error.code] + [Code.RUNTIME_INCONSISTENCY] * later
                return Code.OK, tuple(codes)
        self._undo = None
        return Code.OK, results

    def _node(self, path: str) -> Version:
        node = self.nodes.get(path)
        if node is None:
            raise RefusedError(Code.NO_NODE)
        return node

    def _demand(self, node: Version, bit: int) -> None:
        """The right to do something to a znode."""
        if not rights.grants(node.acl, bit, self.ids):
            raise RefusedError(Code.NO_AUTH)

    def store(self, path: str, version: Version | None) -> None:
        versions = self.versions.setdefault(path, [])
        if self._undo is not None:
            self._undo.append(
                partial(self._restore, path, self.nodes.get(path), versions, list(versions[-1:]))
            )
        if version is None:
            del self.nodes[path]
        else:
            self.nodes[path] = version
        if versions and versions[-1][0] == self.zxid:
            versions[-1] = (self.zxid, version)
        else:
            versions.append((self.zxid, version))

    def _restore(
        self,
        path: str,
        node: Version | None,
        versions: list[tuple[int, Version | None]],
        last: list[tuple[int, Version | None]],
    ) -> None:
        if node is None:
            del self.nodes[path]
        else:
            self.nodes[path] = node
        versions.pop()
        if last and (not versions or versions[-1][0] != last[0][0]):
            versions += last

    def _create(self, session: int, command: txn.Command) -> tuple[str, Version]:
        opcode, path, data, asked_acl, flags, ttl_ms = command
        if opcode == txn.CREATE_TTL:
            if flags not in (5, 6) or not 0 < ttl_ms <= TTL_MS_MAX:
                raise RefusedError(Code.BAD_ARGUMENTS)
        elif flags >= 5:
            raise RefusedError(Code.BAD_ARGUMENTS)
        acl = rights.stored(asked_acl, self.ids)
        if acl is None:
            raise RefusedError(Code.INVALID_ACL)
        parent_path, name = split(path)
        parent = self._node(parent_path)
        self._demand(parent, rights.CREATE)
        if flags in (2, 3, 6):
            name = f"{name}{parent.creates:010d}"
            path = f"{path}{parent.creates:010d}"
        if path in self.nodes:
            raise RefusedError(Code.NODE_EXISTS)
        if name[-10:].isdigit() and len(name) >= 10 and int(name[-10:]) < self.firsts.get(parent_path, 0):
            raise RefusedError(Code.BAD_ARGUMENTS)
        if parent.owner:
            raise RefusedError(Code.NO_CHILDREN_FOR_EPHEMERALS)
        self._demand_room(path, 1, len(data or b""))
        # The opcode decides what it is: flag 4 makes a container only with createContainer.
        owner = session if flags in (1, 3) and opcode in (txn.CREATE, txn.CREATE2) else 0
        lifetime = {txn.CREATE_CONTAINER: CONTAINER, txn.CREATE_TTL: ttl_ms}.get(opcode)
        if owner:
            ephemerals = self.sessions[session].ephemerals
            ephemerals[path] = None
            self.owned.setdefault(session, set()).add(path)
            if self._undo is not None:
                self._undo.append(partial(ephemerals.pop, path))
        zxid, now = self.zxid, self.log_time
        node = Version(
            data, zxid, zxid, zxid, owner=owner, acl=acl, ttl_ms=lifetime, since_ms=now, touched_ms=now
        )
        self.store(path, node)
        self.store(
            parent_path,
            evolve(
                parent,
                pzxid=zxid,
                creates=parent.creates + 1,
                children=parent.children | {name},
                touched_ms=now,
            ),
        )
        if name == STATS and path.startswith(QUOTA_ROOT):
            self._recount(parent_path[len(QUOTA_ROOT) :])
        self._changed(path)
        self.event(EVENT_CREATED, path, acl)
        self.event(EVENT_CHILDREN, parent_path, parent.acl)
        return path, self.nodes[path]

    def _delete(self, path: str, version: int) -> None:
        self._demand(self._node(split(path)[0]), rights.DELETE)
        node = self._node(path)
        if version not in (-1, node.version):
            raise RefusedError(Code.BAD_VERSION)
        if node.children:
            raise RefusedError(Code.NOT_EMPTY)
        self._remove(path)

    def _delete_container(self, path: str) -> None:
        """What a client asks for: any empty znode but an ephemeral, with the rights of a delete."""
        node = self.nodes.get(path)
        if node is not None and node.owner and not node.children:
            raise RefusedError(Code.BAD_VERSION)
        self._delete(path, -1)

    def forget(self, path: str) -> Version:
        """The znode alone goes."""
        node = self.nodes[path]
        if node.owner in self.sessions:
            ephemerals = self.sessions[node.owner].ephemerals
            del ephemerals[path]
            if self._undo is not None:
                self._undo.append(partial(ephemerals.__setitem__, path, None))
        self.store(path, None)
        return node

    def _remove(self, path: str) -> None:
        node = self.forget(path)
        parent_path, name = split(path)
        parent = self.nodes[parent_path]
        self.store(
            parent_path,
            evolve(parent, pzxid=self.zxid, children=parent.children - {name}, touched_ms=self.log_time),
        )
        self._changed(path)
        self.event(EVENT_DELETED, path, node.acl)
        self.event(EVENT_CHILDREN, parent_path, parent.acl)

    def _set(self, path: str, data: bytes | None, version: int) -> Version:
        node = self._node(path)
        self._demand(node, rights.WRITE)
        self._demand_room(path, 0, len(data or b"") - node.size)
        if version not in (-1, node.version):
            raise RefusedError(Code.BAD_VERSION)
        since = node.since_ms if node.ttl_ms in (None, CONTAINER) else self.log_time
        self.store(
            path,
            evolve(
                node,
                data=data,
                mzxid=self.zxid,
                version=node.version + 1,
                since_ms=since,
                touched_ms=self.log_time,
            ),
        )
        self._changed(path)
        self.event(EVENT_CHANGED, path, node.acl)
        return self.nodes[path]

    def _set_acl(self, path: str, asked_acl: Acl, version: int) -> Version:
        """No watch is told, and nothing but `aversion` moves."""
        acl = rights.stored(asked_acl, self.ids)
        if acl is None:
            raise RefusedError(Code.INVALID_ACL)
        node = self._node(path)
        self._demand(node, rights.ADMIN)
        if version not in (-1, node.aversion):
            raise RefusedError(Code.BAD_VERSION)
        self.store(path, evolve(node, acl=acl, aversion=node.aversion + 1))
        return self.nodes[path]

    def _check(self, path: str, version: int) -> None:
        node = self._node(path)
        self._demand(node, rights.READ)
        if version not in (-1, node.version):
            raise RefusedError(Code.BAD_VERSION)

    def event(self, kind: int, path: str, acl: Acl) -> None:
        self.events.append(Event(self.zxid, kind, path, acl))

    # -- quotas: the usage is counted anew after every change, not kept up to date as the product does. That is the
    # same as long as clients make and remove limits and usage together, and no quota stands below another.
    def _top(self, path: str) -> str | None:
        """The path with a quota that is `path` or above it."""
        while path != "/":
            if f"{QUOTA_ROOT}{path}/{LIMITS}" in self.nodes:
                return path
            path, _ = split(path)
        return None

    def _usage(self, top: str) -> tuple[int, int]:
        """(znodes, bytes of data) of a subtree, with its top."""
        below = [self.nodes[path] for path in self._walk(top)]
        return len(below), sum(node.size for node in below)

    def _walk(self, path: str) -> Iterator[str]:
        node = self.nodes.get(path)
        if node is not None:
            yield path
            for name in node.children:
                yield from self._walk(f"{path}/{name}")

    def _demand_room(self, path: str, more_znodes: int, more_bytes: int) -> None:
        """A hard limit refuses what adds to a usage that would then be above it."""
        top = self._top(path)
        if top is None or not self.settings["quota_enforced"]:
            return
        limits = self.nodes[f"{QUOTA_ROOT}{top}/{LIMITS}"].data or b""
        znodes, size = self._usage(top)
        for key, used, more in (
            (b"countHardLimit", znodes, more_znodes),
            (b"byteHardLimit", size, more_bytes),
        ):
            hard = re.search(key + rb"=(\d+)", limits)
            if hard and more and used + more > int(hard[1]):
                raise RefusedError(Code.QUOTA_EXCEEDED)

    def _changed(self, path: str) -> None:
        """Something was made, removed or set here."""
        top = self._top(path)
        if top is not None:
            self._recount(top)

    def _recount(self, top: str) -> None:
        path = f"{QUOTA_ROOT}{top}/{STATS}"
        stats = self.nodes.get(path)
        text = b"count=%d,bytes=%d" % self._usage(top)
        if stats is not None and stats.data != text:
            self.store(path, evolve(stats, data=text))


def split(path: str) -> tuple[str, str]:
    """Parent and name of a path."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def _zxid_of(record: tuple[Any, ...]) -> int:
    zxid: int = record[0]
    return zxid
