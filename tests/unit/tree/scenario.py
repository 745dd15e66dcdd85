"""Drives a Machine the way the server does, one batch per call, so that tests read as a client's story."""

from __future__ import annotations

from typing import Any

from zraft.tree.children import names_of
from zraft.tree.machine import Machine
from zraft.tree.node import Znode
from zraft.tree.sessions.session import Session
from zraft_core.errors import Code
from zraft_core.ids import Instance, ServerId
from zraft_core.znodes.acl import Ids
from zraft_core.znodes.stat import Stat
from zraft_core.znodes.txn import (
    ATTACH,
    CLOSE_SESSION,
    CREATE,
    CREATE_SESSION,
    DELETE,
    EXPIRE,
    MULTI,
    SET_DATA,
    Command,
)

ONE = (ServerId(1), Instance(b"1" * 16))
TWO = (ServerId(2), Instance(b"2" * 16))
THREE = (ServerId(3), Instance(b"3" * 16))
PASSWORD = b"0123456789abcdef"
NOBODY: Ids = (("ip", "10.9.8.7"),)
PERSISTENT, EPHEMERAL, SEQUENTIAL, EPHEMERAL_SEQUENTIAL = range(4)


class Scenario:
    """A machine with three members, of which server 1, boot 1 has a session."""

    def __init__(self) -> None:
        self.machine = Machine([ONE, TWO, THREE])
        self.term = 1
        self.index = 0
        self.wall_time = 1_700_000_000_000
        self.next = {ONE: (1, 1), TWO: (1, 1), THREE: (1, 1)}
        self.session = self.new_session()

    def entry(self) -> None:
        """The next entry begins; a second has passed."""
        self.index += 1
        self.wall_time += 1000
        machine = self.machine
        machine.begin_entry(
            self.index, self.term, machine.position + 1, machine.log_time + 1000, self.wall_time
        )

    def batch(self, origin: tuple[ServerId, Instance] = ONE) -> None:
        """An entry with the next batch of `origin` begins."""
        self.entry()
        boot, seq = self.next[origin]
        assert self.machine.begin_batch(*origin, boot, seq)
        self.next[origin] = boot, seq + 1

    def restart(self, origin: tuple[ServerId, Instance] = ONE) -> None:
        self.next[origin] = self.next[origin][0] + 1, 1

    def without_session(self, command: Command, origin: tuple[ServerId, Instance] = ONE) -> Any:
        self.batch(origin)
        assert self.machine.begin_run(0, ()) is Code.OK
        return self.machine.execute(command)

    def by_leader(self, command: Command) -> Any:
        self.entry()
        assert self.machine.begin_batch(ServerId(0), Instance(b""), 0, 0)
        assert self.machine.begin_run(0, ()) is Code.OK
        return self.machine.execute(command)

    def new_session(self, origin: tuple[ServerId, Instance] = ONE, timeout_ms: int = 10_000) -> Session:
        session = self.without_session((CREATE_SESSION, timeout_ms, PASSWORD), origin)
        assert isinstance(session, Session)
        return session

    def attach(self, session_id: int, origin: tuple[ServerId, Instance], password: bytes = PASSWORD) -> Any:
        return self.without_session((ATTACH, session_id, 10_000, password), origin)

    def run(
        self,
        command: Command,
        session: Session | None = None,
        ids: Ids = NOBODY,
        origin: tuple[ServerId, Instance] = ONE,
    ) -> Any:
        """One command of a session, in an entry of its own."""
        self.batch(origin)
        self.machine.begin_run((session or self.session).id, ids)
        return self.machine.execute(command)

    def create(self, path: str, data: bytes | None = b"", acl: Any = None, flags: int = 0, **how: Any) -> Any:
        """The final path, or the code."""
        result = self.run((CREATE, path, data, acl, flags, None), **how)
        return result if isinstance(result, Code) else result[0]

    def delete(self, path: str, version: int = -1, **how: Any) -> Any:
        return self.run((DELETE, path, version), **how)

    def set_data(self, path: str, data: bytes | None = b"", version: int = -1, **how: Any) -> Any:
        return self.run((SET_DATA, path, data, version), **how)

    def multi(self, *parts: Command, **how: Any) -> Any:
        return self.run((MULTI, parts), **how)

    def close(self, session: Session | None = None, **how: Any) -> Any:
        return self.run((CLOSE_SESSION,), session, **how)

    def expire(self, session: Session) -> Any:
        """As a leader does that sees the session as it is now."""
        return self.by_leader(expire_command(session))

    def node(self, path: str) -> Znode:
        node = self.machine.nodes.get(path)
        assert node is not None, f"{path} does not exist"
        return node

    def stat(self, path: str) -> Stat:
        return self.node(path).stat()

    def names(self, path: str) -> list[str]:
        return sorted(names_of(path, self.node(path).children))

    def events(self) -> list[tuple[int, str]]:
        """(type, path) of what happened since the last call."""
        events = [(event_type, path) for event_type, path, _ in self.machine.events]
        self.machine.events.clear()
        return events


def expire_command(session: Session) -> Command:
    return (EXPIRE, session.id, session.attach_position, session.write_position, 0, session.timeout_ms, 0)


def create(path: str, data: bytes | None = b"", flags: int = 0, acl: Any = None) -> Command:
    """The command, for multis."""
    return (CREATE, path, data, acl, flags, None)
