"""What feature level 3 means in the reference history: ONCE, PUT, ADD, WILL, TRUNCATE, written for clarity only.

The product hides what was truncated and takes it out of memory later. Here it goes at once, and only what watchers are
told of it waits: `Hidden` are the paths whose NODE_DELETED is still to come, in the product's order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgpack
from attrs import evolve

from tests.simulation import rights
from zraft_core.errors import Code
from zraft_core.znodes import txn

if TYPE_CHECKING:
    from tests.simulation.model import History

OPCODES: Final = frozenset({txn.ONCE, txn.PUT, txn.ADD, txn.WILL, txn.TRUNCATE})
LEVEL: Final = 3
REMOVED_PER_ENTRY: Final = 3
"""What simulated servers take out of memory per entry: few, so that hidden znodes are there for a while."""

Hidden = list[tuple[str, rights.Acl, int]]
"""(path, ACL, session of an ephemeral) of each, in order."""
Answer = tuple[int, int, int, Any]
"""(zxid, position, code, what names the result: a path, a number, or None)."""


def answer_to(history: History, session: int, command: txn.Command) -> Answer:
    """[ONCE, seq, floor, command]"""
    from tests.simulation.model import RefusedError

    _, seq, floor, inner = command
    state = history.sessions[session]
    if seq <= max(floor, state.floor):
        return history.zxid, history.position, int(Code.BAD_ARGUMENTS), None
    state.floor = max(floor, state.floor)
    state.kept = {one: kept for one, kept in state.kept.items() if one > state.floor}
    if seq in state.kept:
        return state.kept[seq]
    code, named = 0, None
    try:
        if inner[0] == txn.MULTI:
            done, results = history.multi(session, inner[1])
            failed = [int(one) for one in results if isinstance(results, tuple) and one is not Code.OK]
            code = failed[0] if failed else int(done)
        else:
            named = named_by(inner, history.operation(session, inner))
    except RefusedError as error:
        code = int(error.code)
    state.kept[seq] = answer = (history.zxid, history.position, code, named)
    return answer


def named_by(command: txn.Command, result: Any) -> Any:
    """The path of a create, the number of an ADD, the id of a topic or producer."""
    return result[0] if command[0] in (txn.CREATE, txn.CREATE2, txn.ADD, txn.TOPICS) else None


def operation(history: History, session: int, command: txn.Command) -> Any:
    """All but ONCE."""
    opcode = command[0]
    if opcode == txn.PUT:
        return put(history, *command[1:])
    if opcode == txn.ADD:
        return _add(history, *command[1:])
    if opcode == txn.WILL:
        history.sessions[session].will = (command[1:], history.ids) if command[1] is not None else None
        return None
    return _truncate(history, *command[1:])


def put(history: History, path: str, data: bytes | None, version: int | None) -> Any:
    from tests.simulation.model import RefusedError

    if path in history.nodes:
        if version == -1:
            raise RefusedError(Code.NODE_EXISTS)
        return history.operation(0, (txn.SET_DATA, path, data, -1 if version is None else version))
    if version is not None and version != -1:
        raise RefusedError(Code.NO_NODE)
    # Clients of the simulation put only below what everybody may change, so none of these fails half-way.
    for end in [nth for nth, char in enumerate(path) if char == "/" and nth] + [len(path)]:
        if path[:end] not in history.nodes:
            history.operation(0, (txn.CREATE, path[:end], data if end == len(path) else b"", None, 0, 0))
    return history.nodes[path]


def _add(history: History, path: str, prefix: bytes, amount: int) -> Any:
    from tests.simulation.model import RefusedError

    node = history.nodes.get(path)
    value: Any = 0
    if node is not None:
        data = node.data or b""
        try:
            value = msgpack.unpackb(data.removeprefix(prefix)) if data.startswith(prefix) else None
        except ValueError:
            value = None
        if value.__class__ is not int:
            raise RefusedError(Code.BAD_ARGUMENTS)
    value += amount
    return value, put(history, path, prefix + msgpack.packb(value), None)


def _truncate(history: History, path: str, first: int, origin: str | None, data: bytes | None) -> None:
    from tests.simulation.model import EVENT_CHILDREN, RefusedError

    node = history.nodes.get(path)
    if node is None:
        raise RefusedError(Code.NO_NODE)
    if not history.firsts.get(path, 0) <= first <= node.creates:
        raise RefusedError(Code.BAD_ARGUMENTS)
    if origin is not None:
        put(history, origin, data, None)
        node = history.nodes[path]
    history.firsts[path] = first
    names = sorted(
        (int(name[-10:]), name) for name in node.children if name[-10:].isdigit() and len(name) >= 10
    )
    gone = [name for number, name in names if number < first]
    hidden = history.hidden.setdefault(path, [])
    for name in gone:
        below = f"{path}/{name}"
        hidden.append((below, history.nodes[below].acl, history.nodes[below].owner))
        history.forget(below)
    if not hidden:
        del history.hidden[path]
    if gone:
        history.store(path, evolve(node, pzxid=history.zxid, children=node.children - set(gone)))
        history.event(EVENT_CHILDREN, path, node.acl)


def drain(history: History) -> None:
    """An entry begins: with its first command, watchers are told of some of what went."""
    left = REMOVED_PER_ENTRY
    for directory in sorted(history.hidden):
        hidden = history.hidden[directory]
        told, hidden[:] = hidden[:left], hidden[left:]
        history.to_tell += [(path, acl) for path, acl, _ in told]
        left -= len(told)
        if not hidden:
            del history.hidden[directory]


def hidden_ephemerals(history: History, session: int) -> dict[str, rights.Acl]:
    """What the session had of what is hidden: it is out of memory from now on."""
    found: dict[str, rights.Acl] = {}
    for directory, hidden in list(history.hidden.items()):
        found |= {path: acl for path, acl, owner in hidden if owner == session}
        hidden[:] = [one for one in hidden if one[2] != session]
        if not hidden:
            del history.hidden[directory]
    return found


def carry_out(history: History, will: Any) -> bool:
    """Whether it could be."""
    from tests.simulation.model import RefusedError

    (parent, prefix, data), ids = will
    before, history.ids = history.ids, ids
    try:
        history.operation(0, (txn.CREATE, f"{parent}/{prefix}", data, None, 2, 0))
    except RefusedError:
        return False
    finally:
        history.ids = before
    return True
