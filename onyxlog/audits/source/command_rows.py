"""Rows of `commands` from entries of the coordination group, as tuples in column order. Pure.

Passwords are left out here, so that no table has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

from onyxlog.audits.source.entry_rows import DIGEST_BYTES
from onyxlog.audits.tables.table import signed
from zraft.storage.records import EntryFields
from zraft_core.znodes import txn

OPERATIONS: Final = {
    value: name.lower()
    for name, value in vars(txn).items()
    if name.isupper() and type(value) is int and name != "FORMAT" and not name.startswith("FLAG_")
}
MALFORMED: Final = "malformed"
_CREATES: Final = frozenset({txn.CREATE, txn.CREATE2, txn.CREATE_CONTAINER, txn.CREATE_TTL})

_Said = tuple[Any, Any, Any, Any, Any, Any]
"""path, version, flags, number, target, data."""
_NOTHING: Final[_Said] = (None, None, None, None, None, None)


def command_values(
    head: tuple[Any, ...], fields: EntryFields, *, standing: str, payloads: bool
) -> Iterator[tuple[Any, ...]]:
    """Return the rows of one COMMANDS entry of group 0; `head`: server, instance, file and offset.

    Raises:
        ProtocolError: the payload is of a format that this release does not know.
    """
    _, group, index, term, _, position, _, payload = fields
    log_time, wall_time, batches = txn.unpack_entry(payload)
    at = position
    for server, instance, boot, seq, runs in batches:
        origin = (server, instance.hex() if type(instance) is bytes else "", boot, seq)
        for session, _, commands in runs:
            known = signed(session) if type(session) is int else 0
            for command in commands:
                shown: Any = command
                once: tuple[int | None, int | None] = (None, None)
                if _opcode(command) == txn.ONCE and len(command) == 4:
                    shown, once = command[3], (_int(command[1]), _int(command[2]))
                for part, (opcode, said) in enumerate(_parts(shown)):
                    path, version, flags, number, target, data = said
                    yield (
                        *head, group, index, term, at, part, standing, log_time, wall_time,
                        *origin, known, opcode, OPERATIONS.get(opcode, MALFORMED), *once,
                        path, version, flags, number, target,
                        None if data is None else len(data),
                        None if data is None else blake2b(data, digest_size=DIGEST_BYTES).digest(),
                        data if payloads else None,
                    )  # fmt: skip
                at += 1


def _parts(command: Any) -> Iterator[tuple[int, _Said]]:
    """Yield the command, and after a MULTI those inside it."""
    opcode = _opcode(command)
    yield opcode, _said(opcode, command)
    if opcode == txn.MULTI and len(command) > 1 and type(command[1]) is tuple:
        for part in command[1]:
            inner = _opcode(part)
            yield inner, _said(inner, part)


def _opcode(command: Any) -> int:
    """Return the opcode; 0 for what is no command: a faulty leader's batch may hold anything."""
    if type(command) is tuple and command and type(command[0]) is int:
        return int(command[0])
    return 0


def _said(opcode: int, command: Any) -> _Said:
    """Return what the table shows of a command; nothing of a malformed one."""
    try:
        return _fields(opcode, command)
    except (IndexError, TypeError, ValueError):
        return _NOTHING


def _fields(opcode: int, command: tuple[Any, ...]) -> _Said:
    if opcode in _CREATES:
        ttl = _int(command[5]) if opcode == txn.CREATE_TTL else None
        return _text(command[1]), None, _int(command[4]), ttl, None, _data(command[2])
    match opcode:
        case txn.SET_DATA | txn.PUT:
            return _text(command[1]), _int(command[3]), None, None, None, _data(command[2])
        case txn.DELETE | txn.CHECK:
            return _text(command[1]), _int(command[2]), None, None, None, None
        case txn.SET_ACL:
            return _text(command[1]), _int(command[3]), None, None, None, None
        case txn.DELETE_CONTAINER:
            return _text(command[1]), None, None, None, None, None
        case txn.ADD:
            return _text(command[1]), None, None, _int(command[3]), None, None
        case txn.WILL:
            return _text(command[1]), None, None, None, None, _data(command[3])
        case txn.TRUNCATE:
            return _text(command[1]), None, None, _int(command[2]), None, _data(command[4])
        case txn.CREATE_SESSION:
            return None, None, None, _int(command[1]), None, None
        case txn.ATTACH:
            return None, None, None, _int(command[2]), signed(command[1]), None
        case txn.EXPIRE:
            return None, None, None, _int(command[5]), signed(command[1]), None
        case txn.REAP:
            return _text(command[1]), None, None, None, _int(command[2]), None
        case txn.MEMBERS:
            return None, _int(command[2]), None, None, None, None
        case txn.FEATURE:
            return None, None, None, _int(command[1]), None, None
    return _NOTHING


def _int(value: Any) -> int | None:
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


def _data(value: Any) -> bytes | None:
    return value if type(value) is bytes else None
