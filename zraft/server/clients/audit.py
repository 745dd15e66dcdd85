"""The audit log's lines: who wrote what where, and how it ended, one line per write in ZooKeeper's form.

Tab-separated `key=value`: time, session, user, ip, operation, znode, znode_type, acl, result. ZooKeeper has the time from
its logging library. Data, passwords and their hashes never stand in a line: a digest id is shown by its user. Pure:
commands and their results in, bytes out.

Source: ZooKeeper's administrator's guide, "Audit Logging".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from attrs import frozen

from zraft.tree.machine import Machine
from zraft.tree.node import CONFIG
from zraft_core.errors import Code, ProtocolError
from zraft_core.topics.codec import decode_registry
from zraft_core.topics.registry_commands import AlterTopic, CreateTopic, DeleteTopic, GiveUp, RetainTopic
from zraft_core.topics.registry_values import Result
from zraft_core.znodes import txn
from zraft_core.znodes.acl import Ids, user_of
from zraft_core.znodes.events import NODE_DELETED, Event
from zraft_core.znodes.txn import Command, Run

TEXT_CHARS_MAX: Final = 4_096
"""A path or an id is shown up to this length, so that a line stays one that tools can read."""

_OPERATIONS: Final = {
    txn.CREATE: "create",
    txn.CREATE2: "create",
    txn.CREATE_CONTAINER: "create",
    txn.CREATE_TTL: "create",
    txn.DELETE: "delete",
    txn.DELETE_CONTAINER: "delete",
    txn.REAP: "delete",
    txn.SET_DATA: "setData",
    txn.SET_ACL: "setAcl",
    txn.CHECK: "check",
    txn.MEMBERS: "reconfig",
    txn.PUT: "put",
    txn.ADD: "add",
    txn.WILL: "will",
    txn.TRUNCATE: "truncate",
}
_OF_TOPICS: Final = {
    CreateTopic: "create_topic",
    AlterTopic: "alter_topic",
    RetainTopic: "retain_topic",
    DeleteTopic: "delete_topic",
}
"""The native protocol's names, as in the lines of what was denied."""
_CREATES: Final = frozenset({txn.CREATE, txn.CREATE2, txn.CREATE_CONTAINER, txn.CREATE_TTL})
_SESSION_ENDS: Final = frozenset({txn.CLOSE_SESSION, txn.EXPIRE})
_TYPES: Final = (
    "persistent",
    "ephemeral",
    "persistent_sequential",
    "ephemeral_sequential",
    "container",
    "persistent_with_ttl",
    "persistent_sequential_with_ttl",
)
_PERMISSIONS: Final = ((1, "r"), (2, "w"), (4, "c"), (8, "d"), (16, "a"))
_SERVER: Final = "zraft"
_REPEATED: Final = object()
_DENIED: Final = object()
"""`denied_line` has written the line of this one."""
_UNPRINTABLE: Final = {
    number: f"\\u{number:04x}" for number in (*range(32), *range(127, 160), 0x2028, 0x2029)
}


def server_line(operation: str, wall_ms: int) -> bytes:
    """Return the line for `serverStart` or `serverStop`."""
    return f"{_time(wall_ms)}user={_SERVER}\toperation={operation}\tresult=success\n".encode()


@frozen
class Denial:
    """A request about topics that an ACL forbids, and what it was about: a topic, or the name of a consumer."""

    session: int
    ids: Ids
    operation: str
    what: str
    name: str


def denied_line(denial: Denial, wall_ms: int) -> bytes:
    """Return the line of a request about topics that was denied."""
    who = _who(denial.session, denial.ids)
    about = f"{denial.what}={_shown(denial.name)}"
    line = f"{_time(wall_ms)}{who}operation={_shown(denial.operation)}\t{about}\tresult=failure\n"
    return line.encode("utf-8", "backslashreplace")


def dropped_line(count: int, wall_ms: int) -> bytes:
    """Return the line that takes the place of lines that the disk was too slow for."""
    head = f"{_time(wall_ms)}user={_SERVER}\t"
    return f"{head}operation=auditLinesDropped\tcount={count}\tresult=failure\n".encode()


class AuditTap:
    """Tap between the apply loop and the commands of one batch; `sink` gets the batch's lines at its end.

    Used only while an audit log is kept: without one, nothing of this is on the path of a command.
    """

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._wall_ms = 0
        self._results: list[tuple[bool, Any]] = []

    def executing(self, machine: Machine) -> Callable[[Command], object]:
        """Execute a command, and remember what its line will need.

        For a session's end these are the znodes that went with it.
        """
        self._wall_ms = machine.wall_time
        execute = machine.execute
        events = machine.events
        results = self._results
        results.clear()

        def remembering(command: Command) -> object:
            before = len(
                events
            )  # a znode that a truncation left to be removed may stand there already (D-20)
            result = execute(command)
            if command.__class__ is tuple and command and command[0] == txn.ONCE:
                results.append(_once(result, machine.last_zxid))
            else:
                results.append(_outcome(command, result, events[before:]))
            return result

        return remembering

    def finish(self, runs: Iterable[Run]) -> None:
        """Hand out the lines of a batch whose commands were all executed."""
        results = iter(self._results)
        lines: list[str] = []
        for session, ids, commands in runs:
            who = _who(session, ids)
            for command in commands:
                succeeded, more = next(results)
                if succeeded or ids:  # a leader's decision that apply found overtaken happened to nobody
                    _add_lines(lines, who, command, succeeded, more)
        self._results.clear()
        if lines:
            time = _time(self._wall_ms)
            self._sink((time + time.join(lines)).encode("utf-8", "backslashreplace"))


def _time(wall_ms: int) -> str:
    """Return the field in front of all others, in UTC; of a clock beyond the calendar the bare milliseconds."""
    try:
        at = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"time={wall_ms}\t"
    return f"time={at.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z\t"


def _outcome(command: Command, result: object, events: Sequence[Event]) -> tuple[bool, Any]:
    """Return (whether it succeeded, what is to be kept of the result), while later commands have not changed it."""
    succeeded = not isinstance(result, int) or result == Code.OK
    if isinstance(result, Result):
        succeeded = result.refusal is None
    # A faulty leader's batch may hold what is no command; it was answered with a code.
    opcode = command[0] if command.__class__ is tuple and command and command[0].__class__ is int else None
    if opcode in _CREATES:
        return succeeded, _created_path(result)
    if opcode == txn.MULTI:
        if not isinstance(result, tuple):
            return False, None
        return True, [_created_path(part) for part in result]
    if opcode == txn.TOPICS:
        return succeeded, _DENIED if result is Code.NO_AUTH else None
    if opcode in _SESSION_ENDS:
        # It has none on failure, either: an EXPIRE that came too late deletes nothing.
        return succeeded, [path for event_type, path, _ in events if event_type == NODE_DELETED]
    return succeeded, None


def _once(result: object, zxid: int) -> tuple[bool, Any]:
    """Return the outcome of a numbered command; `_REPEATED` if it was executed, and told of, before."""
    if not isinstance(result, tuple):
        return False, None
    done_at, _, code, body = result
    if done_at != zxid:
        return False, _REPEATED
    if code == Code.NO_AUTH:
        return False, _DENIED
    if code == Code.OK and isinstance(body, tuple) and body and isinstance(body[0], tuple):
        return True, [_created_path(part) for _, part in body]
    return code == Code.OK, _created_path(body) if body else None


def _created_path(result: object) -> str | None:
    """Return the path that a create, also inside a multi, has made; a Stat has no text in front."""
    return result[0] if isinstance(result, tuple) and isinstance(result[0], str) else None


def _add_lines(lines: list[str], who: str, command: Command, succeeded: bool, more: Any) -> None:
    opcode = command[0]
    if opcode == txn.ONCE:
        inner = command[-1]
        if (
            more is not _REPEATED
            and inner.__class__ is tuple
            and len(inner) > 1
            and inner[0].__class__ is int
        ):
            _add_lines(lines, who, inner, succeeded, more)
        return
    result = "success" if succeeded else "failure"
    if opcode == txn.MULTI:
        if not succeeded:
            lines.append(f"{who}operation=multiOperation\tresult=failure\n")
            return
        for part, path in zip(command[1], more, strict=True):
            if part[0] != txn.CHECK:
                lines.append(_line(who, part, path, result))
    elif opcode in _SESSION_ENDS:
        if opcode == txn.EXPIRE:
            who = f"session=0x{command[1] & (2**64 - 1):x}\tuser={_SERVER}\t"
        lines.extend(
            f"{who}operation=ephemeralZNodeDeleteOnSessionClose\tznode={_shown(path)}\tresult={result}\n"
            for path in more
        )
    elif opcode == txn.TOPICS:
        if more is not _DENIED:
            lines.extend(f"{who}{about}\tresult={result}\n" for about in _about_topics(command))
    elif opcode in _OPERATIONS:
        lines.append(_line(who, command, None if more is _DENIED else more, result))


def _about_topics(command: Command) -> Iterator[str]:
    """Yield the operation of a command for topics, and what it is about; nothing for what servers tell each other."""
    if len(command) != 2 or command[1].__class__ is not bytes:
        return  # a faulty leader's
    try:
        wanted = decode_registry(command[1])
    except ProtocolError:
        return
    if isinstance(wanted, GiveUp):
        yield f"operation=give_up_group\tgroup={wanted.group}"
    elif isinstance(wanted, CreateTopic | AlterTopic | RetainTopic | DeleteTopic):
        yield f"operation={_OF_TOPICS[wanted.__class__]}\ttopic={_shown(wanted.name)}"


def _line(who: str, command: Command, created: str | None, result: str) -> str:
    opcode = command[0]
    path = CONFIG if opcode == txn.MEMBERS else created or command[1]
    line = f"{who}operation={_OPERATIONS[opcode]}\tznode={_shown(path)}\t"
    if opcode in _CREATES:
        line += f"znode_type={_type_of(command)}\t"
    elif opcode == txn.SET_ACL:
        line += f"acl={_acl(command[2])}\t"
    return line + f"result={result}\n"


def _type_of(command: Command) -> str:
    if command[0] == txn.CREATE_CONTAINER:
        return "container"
    flags = command[4]
    sequential = bool(flags & txn.FLAG_SEQUENTIAL) if isinstance(flags, int) else False
    if command[0] == txn.CREATE_TTL:
        return _TYPES[6 if sequential else 5]
    # Flag 4 means a container only in its own operation (trap 4).
    return _TYPES[flags & 3] if isinstance(flags, int) and 0 <= flags <= 3 else _TYPES[0]


def _acl(acl: Any) -> str:
    """Return text like `world:anyone,cdrwa`; a digest without its hash."""
    if not isinstance(acl, tuple):
        return ""
    shown = []
    for bits, scheme, who in acl:
        rights = "".join(letter for bit, letter in _PERMISSIONS if bits & bit)
        user = user_of(scheme, who)
        shown.append(f"{_shown(scheme)}:{_shown(user if user is not None else '')}:{rights}")
    return ",".join(shown)


def _who(session: int, ids: Sequence[tuple[str, str]]) -> str:
    """Return the head of the lines of one run.

    `ip` is an id like the others, and the address at the same time.
    """
    address = ""
    users: list[str] = []
    for scheme, who in ids:
        user = user_of(scheme, who)
        if scheme == "ip":
            address = who
        users.append(scheme if user is None else user)
    head = f"session=0x{session & (2**64 - 1):x}\t" if session else ""
    if not ids:
        return f"{head}user={_SERVER}\t"
    return f"{head}user={_shown(','.join(users))}\tip={_shown(address)}\t"


def _shown(text: Any) -> str:
    """Return a text as one field of one line: what a client names must not be able to begin another."""
    if not isinstance(text, str):
        return ""
    if len(text) > TEXT_CHARS_MAX:
        text = text[:TEXT_CHARS_MAX] + "…"
    plain: str = text if text.isascii() and text.isprintable() else text.translate(_UNPRINTABLE)
    return plain
