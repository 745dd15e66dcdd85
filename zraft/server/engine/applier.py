"""The applier: it applies committed entries to the state machine and hands each result to the client that waits for it here.

This is the one loop in which a command's effects become visible: first its watch events, then its reply, then
the next command, so that on each connection everything leaves in zxid order (D-15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from zraft.groups.identity import Identity
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind
from zraft.server.clients.audit import AuditTap
from zraft.server.clients.connection import ClientConnection, Phase
from zraft.server.clients.errands import Errand
from zraft.server.clients.table import Clients
from zraft.server.coordination.expiry import SessionExpiry
from zraft.server.coordination.origin import NumberedBatch, OriginStream
from zraft.server.coordination.touches import TouchReporter
from zraft.tree.commands.ordinary import LOOPS, UNWATCHED
from zraft.tree.machine import LEADER, Machine
from zraft.tree.sessions.session import Session
from zraft_core.errors import Code
from zraft_core.znodes.txn import (
    ATTACH,
    CLOSE_SESSION,
    CREATE_SESSION,
    EXPIRE,
    REGISTER,
    Run,
    command_count,
    unpack_entry,
)

SESSION_COMMANDS: Final = frozenset({ATTACH, CREATE_SESSION, CLOSE_SESSION, EXPIRE, REGISTER})
"""The commands after which something beside the tree has changed."""

MEASURED_BYTES: Final = 8_192
"""The work for entries of at least this size is measured: reading the clock is a hundredth of it."""

BATCH_HEAD_BYTES: Final = 40
"""How many bytes of a packed batch hold its server, instance, boot and number; searching for all of it would cost more."""

EXPIRE_RESULTS: Final = frozenset({Code.OK, Code.UNKNOWN_SESSION, Code.BAD_VERSION})
"""The results of a leader's EXPIRE. Any other result shows that a faulty origin made something that only looks like one."""


def _holds(payload: bytes, blob: bytes) -> bool:
    """Return whether the batch stands unchanged in the entry.

    It is found by its head, which no other batch shares, and then compared.
    """
    at = payload.find(blob[:BATCH_HEAD_BYTES])
    return at >= 0 and payload.startswith(blob, at)


class Applier:
    """Taker of the coordination group's entries: a `zraft.groups.machine.EntryTaker`.

    Args:
        on_answered: gets (arrival in ms, number of commands) of commands of this server's clients that were
            applied.
        on_applied: gets (index, bytes, commands, seconds) of each entry that is carried out; the seconds of work
            that it took are 0 if it was not measured, as small ones are not.
        on_members: gets the membership and index of each MEMBERSHIP entry.
        work_s: returns the seconds that this thread has worked so far.

    Attributes:
        expiry: the leader's table of touches while this server leads; every applied run of a session is a
            touch.
        audit: is told of this server's own batches, and of the leader's while this server leads, so that each
            write is told of once; None if nothing is audited.
    """

    stopped = False
    """It never stops: an entry that it cannot carry out ends this server."""

    def __init__(
        self,
        *,
        identity: Identity,
        machine: Machine,
        origin: OriginStream,
        touches: TouchReporter,
        clients: Clients,
        on_answered: Callable[[float, int], None],
        on_applied: Callable[[int, int, int, float], None] = lambda _index, _size, _commands, _took_s: None,
        on_members: Callable[[Membership, int], None] = lambda _membership, _index: None,
        work_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._identity = identity
        self._me = (identity.server, identity.instance)
        self._boot = identity.boot
        self._machine = machine
        self._origin = origin
        self._touches = touches
        self._clients = clients
        self._sessions = clients.sessions
        self._on_answered = on_answered
        self._on_applied = on_applied
        self._on_members = on_members
        self._work_s = work_s
        self.expiry: SessionExpiry | None = None
        self._rest: Iterator[None] | None = None
        """The rest of an entry that is applied in part; see `halfway`."""
        self.audit: AuditTap | None = None

    def restored(self) -> None:
        """Take note that a snapshot has replaced the state."""
        self._rest = None

    @property
    def halfway(self) -> bool:
        """True if the entry after the last one that is carried out is applied in part.

        The state is then that of a command in the middle of the entry, which clients may see. What is about
        whole entries, such as snapshots and digests, has to wait.
        """
        return self._rest is not None

    def apply(self, entry: Entry) -> bool:
        """Apply the next entry, or the rest of it, command by command.

        Returns:
            False if so many watchers were told of it that the rest waits for another turn: call it again
            then.

        Raises:
            CopiedDirectoryError: another process registered this boot, or a later one, of this very directory
                (D-1).
            ProtocolError: the entry cannot be read.
        """
        size, took_s = len(entry.payload), 0.0
        if entry.kind is EntryKind.COMMANDS:
            began = self._work_s() if size >= MEASURED_BYTES and self._rest is None else 0.0
            if self._rest is None:
                self._rest = self._steps(entry)
            for _ in self._rest:
                return False
            self._rest = None
            if began:
                took_s = self._work_s() - began
        else:
            if entry.kind is EntryKind.MEMBERSHIP:
                membership = Membership.decode(entry.payload)
                self._machine.set_members(
                    [(server, m.instance) for server, m in membership.members.items() if m.instance]
                )
                self._on_members(membership, entry.index)
            self._machine.pass_entry(entry.index, entry.term)
        self._on_applied(entry.index, size + 1, entry.count, took_s)
        return True

    def _steps(self, entry: Entry) -> Iterator[None]:
        """Apply an entry of commands, and yield wherever enough is done for one turn."""
        machine = self._machine
        log_time, wall_time, batches = unpack_entry(entry.payload)
        if machine.watched is not UNWATCHED or self.audit is not None:
            self._look_who_follows()
        machine.begin_entry(entry.index, entry.term, entry.position, log_time, wall_time)
        for server, instance, boot, seq, runs in batches:
            if not machine.begin_batch(server, instance, boot, seq):
                machine.skip_batch(command_count(runs))
                continue
            mine = (server, instance) == self._me
            if mine and boot > self._boot:
                raise self._identity.copied(boot)
            batch = None
            if mine and boot == self._boot:
                batch = self._origin.take_applied(seq, self._clients.turn.now)
            if batch is not None and not (
                entry.payload.endswith(batch.message.blob) or _holds(entry.payload, batch.message.blob)
            ):
                # A batch never changes (D-2), so this is not the one that was sent. Its clients must find out anew what
                # became of their requests.
                self._disown(batch)
                batch = None
            if batch is None:
                yield from self._apply_foreign(runs, mine, server == LEADER)
            else:
                yield from self._apply_own(runs, batch)

    def _look_who_follows(self) -> None:
        """Note who has to be told what happens in an entry. Whoever begins to follow meanwhile sets this again."""
        machine, clients = self._machine, self._clients
        machine.observed = self.audit is not None or clients.is_followed
        machine.watched = clients.watched if machine.observed else UNWATCHED

    def _disown(self, batch: NumberedBatch) -> None:
        """Refuse the owners of a batch that is not the one sent, because its results are no answers to their commands."""
        for owner in dict.fromkeys(batch.owners):
            if isinstance(owner, Errand):
                owner.complete(Code.SYSTEM_ERROR, self._machine.last_zxid)
            elif owner is not None and owner.phase is not Phase.CLOSED:
                self._clients.refuse(
                    owner,
                    f"the log holds another batch {batch.message.seq} of this server than it sent: a peer changed it",
                )

    def _apply_foreign(self, runs: Sequence[Run], mine: bool, leaders: bool) -> Iterator[None]:
        """Apply a batch whose clients are connected elsewhere, or were to an earlier process; only events matter here."""
        machine = self._machine
        audit = self.audit if self.expiry is not None and leaders else None
        execute = machine.execute if audit is None else audit.executing(machine)
        events = machine.events
        expiry = self.expiry
        machine.answered = audit is not None
        for session, ids, commands in runs:
            code = machine.begin_run(session, ids)
            if expiry is not None and session and code == Code.OK:
                expiry.touch(session)
            at, count = 0, len(commands)
            while at < count:
                command = commands[at]
                try:
                    opcode = command[0]
                    is_ordinary, more_than_the_tree = opcode in LOOPS, opcode in SESSION_COMMANDS
                except (TypeError, LookupError):
                    # This is no command at all. A faulty origin brought it into every server's log; its result is a code.
                    is_ordinary = more_than_the_tree = False
                if is_ordinary and audit is None:
                    done = machine.execute_ordinary(commands, at, None)
                    if done:
                        at += done
                        continue
                at += 1
                result = execute(command)
                if events:
                    enough = self._clients.publish(events, machine.last_zxid)
                    events.clear()
                    if enough:
                        yield
                # A session that begins elsewhere is news only to a leader, which watches over all of them.
                if more_than_the_tree and (opcode != CREATE_SESSION or self.expiry is not None):
                    self._session_command(session, command, result, None, mine)
        if audit is not None:
            audit.finish(runs)

    def _apply_own(self, runs: Sequence[Run], batch: NumberedBatch) -> Iterator[None]:
        """Apply this server's own batch, and give every result to the connection that waits for it."""
        machine = self._machine
        audit = self.audit
        execute = machine.execute if audit is None else audit.executing(machine)
        events = machine.events
        expiry = self.expiry
        cut_at = batch.cut_at
        told_before = self._clients.told_total
        machine.answered = True
        for (session, ids, commands), owner in zip(runs, batch.owners, strict=True):
            code = machine.begin_run(session, ids)
            alive = owner is not None and owner.phase is not Phase.CLOSED
            if session and code == Code.OK:
                self._touches.acknowledged(session, cut_at)
                if expiry is not None:
                    expiry.touch(session)
            elif code == Code.SESSION_MOVED and alive:
                # The session has moved to another connection: the error is never sent (trap 19).
                self._clients.close(owner)
                alive = False
            at, count = 0, len(commands)
            while at < count:
                if audit is None and commands[at][0] in LOOPS and not (alive and owner.is_interleaved):
                    results: list[Any] | None = [] if alive else None
                    at += machine.execute_ordinary(commands, at, results)
                    if results:
                        owner.complete_run(results, machine.last_zxid)
                    if at == count:
                        break
                command = commands[at]
                at += 1
                result = execute(command)
                if events:
                    enough = self._clients.publish(events, machine.last_zxid)
                    events.clear()
                    if enough:
                        yield
                        alive = alive and owner.phase is not Phase.CLOSED
                if command[0] in SESSION_COMMANDS:
                    self._session_command(session, command, result, owner, True)
                    if not session:
                        if alive:
                            self._sessions.on_attach(owner, result, cut_at)
                        continue
                if alive:
                    owner.complete(result, machine.last_zxid)
        if audit is not None:
            audit.finish(runs)
        told = self._clients.told_total - told_before
        if told or self._origin.is_slowed:
            self._origin.on_told(batch, told)
        if batch.owners != [None]:  # the server's own register is nobody's request
            for arrived_at, count in batch.arrivals:
                self._on_answered(arrived_at, count)

    def _session_command(
        self, session: int, command: tuple[Any, ...], result: Any, owner: ClientConnection | None, mine: bool
    ) -> None:
        """Do what it means beside the tree that a session began, moved or ended, or that a boot was registered."""
        opcode = command[0]
        if opcode == REGISTER:
            # A register of this very boot that could not be understood does not show which process sent it.
            understood = result in (Code.OK, Code.BAD_ARGUMENTS)
            if (
                mine
                and understood
                and command[1] != self._identity.boot_id
                and self._machine.rows[self._me].boot == self._boot
            ):
                raise self._identity.copied(self._boot)
        elif result.__class__ is Session:
            if self.expiry is not None:
                self.expiry.touch(result.id)
            if opcode == ATTACH:  # nobody had one that is created
                self._sessions.on_session_moved(result.id, owner)
        elif opcode == CLOSE_SESSION and result == Code.OK:
            if self.expiry is not None:
                self.expiry.ended(session)
            self._sessions.on_session_moved(session, owner)
        elif opcode == EXPIRE and result in EXPIRE_RESULTS:
            if self.expiry is not None:
                self.expiry.ended(command[1])
            if result == Code.OK:
                self._clients.expired_total += 1
                self._sessions.on_session_moved(command[1], None)
