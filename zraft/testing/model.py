"""Owns the reference history: what the committed log means, computed without the product's state machine.

`History.apply` replays the committed entries into a tree written for clarity only (no digest, no watches,
no speed) and remembers every version of every znode, so that a client's read can be compared with the
state *at the zxid of its reply*, and a watch event with the change that must have caused it.

Semantics: ZooKeeper's (`docs/COMPATIBILITY.md`), rules D-2, D-3, D-11, D-15, D-16.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from attrs import frozen

from zraft.errors import Code
from zraft.ids import Instance, ServerId, zxid_after
from zraft.testing.broken import BrokenPromiseError
from zraft.tree import txn

EVENT_CREATED: Final = 1
EVENT_DELETED: Final = 2
EVENT_CHANGED: Final = 3
EVENT_CHILDREN: Final = 4


@frozen
class Version:
    """One state of one znode. `creates` counts children ever created, `children` those that exist."""

    data: bytes | None
    czxid: int
    mzxid: int
    pzxid: int
    version: int
    creates: int
    owner: int
    children: frozenset[str]

    @property
    def cversion(self) -> int:
        """As on the wire: creates and deletes of direct children."""
        return self.creates * 2 - len(self.children)


@frozen
class Outcome:
    """One applied command: where it stands in the history and what it answered."""

    zxid: int
    position: int
    index: int
    session: int
    owner: tuple[ServerId, Instance, int]
    command: txn.Command
    code: Code
    result: Any
    """Path of a create, list of per-operation results of a multi, session id of a create session."""


class SessionState:
    """What the replicated state knows of one session (D-3, D-11)."""

    __slots__ = ("attach_position", "ephemerals", "owner", "password", "timeout_ms", "write_position")

    def __init__(
        self, owner: tuple[ServerId, Instance, int], password: bytes, timeout_ms: int, position: int
    ) -> None:
        self.owner = owner
        self.password = password
        self.timeout_ms = timeout_ms
        self.attach_position = self.write_position = position
        self.ephemerals: dict[str, None] = {}


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
        self.rows: dict[tuple[ServerId, Instance], tuple[int, int]] = {}
        self.sessions: dict[int, SessionState] = {}
        self.nodes: dict[str, Version] = {}
        self.versions: dict[str, list[tuple[int, Version | None]]] = {}
        self.data_events: dict[str, list[tuple[int, int]]] = {}
        self.child_events: dict[str, list[tuple[int, int]]] = {}
        self.ended: dict[int, int] = {}
        """zxid at which a session ended."""
        self.outcomes: list[Outcome] = []
        self._zxid_outcome: dict[int, Outcome] = {}
        self._owner: tuple[ServerId, Instance, int] = (ServerId(0), Instance(b""), 0)
        self._undo: list[Callable[[], object]] | None = None
        """While a multi runs: how to take its steps back, in order of execution."""
        root = Version(b"", 0, 0, 0, 0, 0, 0, frozenset())
        self.nodes["/"] = root
        self.versions["/"] = [(0, root)]

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

    def next_event(self, path: str, child: bool, since: int, upto: int) -> tuple[int, int] | None:
        """The first (zxid, event type) on a path after `since` and not after `upto`."""
        events = (self.child_events if child else self.data_events).get(path)
        if not events or events[-1][0] <= since:
            return None
        found = events[bisect_right(events, since, key=_zxid_of)]
        return found if found[0] <= upto else None

    # -- growing
    def apply(self, index: int, term: int, payload: bytes) -> list[Outcome]:
        """Replay one COMMANDS entry; its outcomes in order."""
        if index <= self.index:
            raise BrokenPromiseError("history", f"entry {index} after {self.index}")
        self.index = index
        _, _, batches = txn.unpack_entry(payload)
        first = len(self.outcomes)
        for server, instance, boot, seq, runs in batches:
            # Every command has its position, also of a batch that apply skips (D-16).
            if server != 0 and not self._accept((server, instance), boot, seq):
                self.position += sum(len(commands) for _, _, commands in runs)
                continue
            self._owner = (server, instance, boot)
            for session, _, commands in runs:
                moved = (
                    session != 0 and session in self.sessions and self.sessions[session].owner != self._owner
                )
                for command in commands:
                    self.position += 1
                    self.zxid = zxid_after(self.zxid, term)
                    self._command(session, moved, command)
        return self.outcomes[first:]

    def _accept(self, origin: tuple[ServerId, Instance], boot: int, seq: int) -> bool:
        """D-2: exactly the next batch of the row, or the first of a higher boot."""
        row_boot, row_seq = self.rows.get(origin, (0, 0))
        if not ((boot == row_boot and seq == row_seq + 1) or (boot > row_boot and seq == 1)):
            return False
        self.rows[origin] = (boot, seq)
        return True

    def _command(self, session: int, moved: bool, command: txn.Command) -> None:
        code, result, subject = Code.OK, None, session
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
            elif opcode in (txn.REGISTER, txn.SETTINGS):
                pass
            elif session not in self.sessions:
                raise RefusedError(Code.SESSION_EXPIRED)
            elif moved:
                raise RefusedError(Code.SESSION_MOVED)
            else:
                self.sessions[session].write_position = self.position
                if opcode == txn.CLOSE_SESSION:
                    self._end(session)
                elif opcode == txn.MULTI:
                    code, result = self._multi(session, command[1])
                else:
                    result = self._operation(session, command)
        except RefusedError as error:
            code = error.code
        outcome = Outcome(self.zxid, self.position, self.index, subject, self._owner, command, code, result)
        self.outcomes.append(outcome)
        self._zxid_outcome[self.zxid] = outcome

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
        for path in list(state.ephemerals):
            self._remove(path)

    # -- znodes
    def _operation(self, session: int, command: txn.Command) -> Any:
        opcode = command[0]
        if opcode in (txn.CREATE, txn.CREATE2):
            return self._create(session, command)
        if opcode == txn.DELETE:
            return self._delete(command[1], command[2])
        if opcode == txn.SET_DATA:
            return self._set(command[1], command[2], command[3])
        if opcode == txn.CHECK:
            return self._check(command[1], command[2])
        raise BrokenPromiseError("history", f"command {command!r} is in the log, no client sent such a one")

    def _multi(self, session: int, commands: tuple[txn.Command, ...]) -> tuple[Code, Any]:
        undo: list[Callable[[], object]] = []
        self._undo = undo
        results: list[Any] = []
        for nth, command in enumerate(commands):
            try:
                results.append(self._operation(session, command))
            except RefusedError as error:
                self._undo = None
                for step in reversed(undo):
                    step()
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

    def _store(self, path: str, version: Version | None) -> None:
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

    def _create(self, session: int, command: txn.Command) -> str:
        path: str = command[1]
        data, flags = command[2], command[4]
        parent_path, name = split(path)
        parent = self._node(parent_path)
        if flags & txn.FLAG_SEQUENTIAL:
            name = f"{name}{parent.creates:010d}"
            path = f"{path}{parent.creates:010d}"
        if path in self.nodes:
            raise RefusedError(Code.NODE_EXISTS)
        if parent.owner:
            raise RefusedError(Code.NO_CHILDREN_FOR_EPHEMERALS)
        owner = session if flags & txn.FLAG_EPHEMERAL else 0
        if owner:
            ephemerals = self.sessions[session].ephemerals
            ephemerals[path] = None
            if self._undo is not None:
                self._undo.append(partial(ephemerals.pop, path))
        zxid = self.zxid
        self._store(path, Version(data, zxid, zxid, zxid, 0, 0, owner, frozenset()))
        self._store(
            parent_path,
            Version(
                parent.data,
                parent.czxid,
                parent.mzxid,
                zxid,
                parent.version,
                parent.creates + 1,
                parent.owner,
                parent.children | {name},
            ),
        )
        self._event(self.data_events, path, EVENT_CREATED)
        self._event(self.child_events, parent_path, EVENT_CHILDREN)
        return path

    def _delete(self, path: str, version: int) -> None:
        parent_path, _ = split(path)
        self._node(parent_path)
        node = self._node(path)
        if version not in (-1, node.version):
            raise RefusedError(Code.BAD_VERSION)
        if node.children:
            raise RefusedError(Code.NOT_EMPTY)
        self._remove(path)

    def _remove(self, path: str) -> None:
        node = self.nodes[path]
        if node.owner in self.sessions:
            ephemerals = self.sessions[node.owner].ephemerals
            del ephemerals[path]
            if self._undo is not None:
                self._undo.append(partial(ephemerals.__setitem__, path, None))
        parent_path, name = split(path)
        parent = self.nodes[parent_path]
        self._store(path, None)
        self._store(
            parent_path,
            Version(
                parent.data,
                parent.czxid,
                parent.mzxid,
                self.zxid,
                parent.version,
                parent.creates,
                parent.owner,
                parent.children - {name},
            ),
        )
        self._event(self.data_events, path, EVENT_DELETED)
        self._event(self.child_events, path, EVENT_DELETED)
        self._event(self.child_events, parent_path, EVENT_CHILDREN)

    def _set(self, path: str, data: bytes | None, version: int) -> Version:
        node = self._node(path)
        if version not in (-1, node.version):
            raise RefusedError(Code.BAD_VERSION)
        new = Version(
            data, node.czxid, self.zxid, node.pzxid, node.version + 1, node.creates, node.owner, node.children
        )
        self._store(path, new)
        self._event(self.data_events, path, EVENT_CHANGED)
        return new

    def _check(self, path: str, version: int) -> None:
        if version not in (-1, self._node(path).version):
            raise RefusedError(Code.BAD_VERSION)

    def _event(self, events: dict[str, list[tuple[int, int]]], path: str, kind: int) -> None:
        happened = events.setdefault(path, [])
        happened.append((self.zxid, kind))
        if self._undo is not None:
            self._undo.append(happened.pop)


def split(path: str) -> tuple[str, str]:
    """Parent and name of a path."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def _zxid_of(pair: tuple[int, Any]) -> int:
    return pair[0]
