"""Outcomes of commands, as plain values that MessagePack can carry: clients are told them, sessions keep them."""

from __future__ import annotations

from typing import Any, Final

from zraft.tree.commands.multi import MultiFailed
from zraft.tree.node import Znode
from zraft_core.errors import Code
from zraft_core.topics.registry_values import Refusal, Result
from zraft_core.znodes.outcome import Outcome
from zraft_core.znodes.txn import MULTI, ONCE, Command

_OK: Final = 0
_CODES: Final = {
    Refusal.EXISTS: Code.NODE_EXISTS,
    Refusal.NO_TOPIC: Code.NO_NODE,
    Refusal.NO_PRODUCER: Code.NO_NODE,
    Refusal.BAD_NAME: Code.BAD_ARGUMENTS,
    Refusal.BAD_COUNT: Code.BAD_ARGUMENTS,
    Refusal.SHRINKING: Code.BAD_ARGUMENTS,
    Refusal.CHANGING: Code.RECONFIG_IN_PROGRESS,
    Refusal.COMPLETE: Code.NODE_EXISTS,
    Refusal.TOO_MANY: Code.QUOTA_EXCEEDED,
    Refusal.NO_GROUP: Code.NO_NODE,
    Refusal.BAD_PLACEMENT: Code.BAD_ARGUMENTS,
    Refusal.NOT_WANTED: Code.BAD_VERSION,
}
assert set(_CODES) == set(Refusal)


def outcome_of(command: Command, result: object, zxid: int, position: int) -> Outcome:
    """Return the outcome of what `Machine.execute` returned for `command`.

    It must be called before the next command is executed.

    `zxid` and `position` are the command's own; the Outcome of a ONCE that is repeated has those of the first time.
    """
    if result.__class__ is Code:
        return zxid, position, int(result), None
    if isinstance(result, Znode):
        return zxid, position, _OK, tuple(result.stat())
    if isinstance(result, MultiFailed):
        return zxid, position, int(result.code), tuple((int(code), None) for code in result.results)
    if isinstance(result, Result):
        if result.refusal is None:
            return zxid, position, _OK, (result.created,)
        return zxid, position, int(_CODES[result.refusal]), (result.refusal.name.lower(),)
    if result.__class__ is not tuple:  # a session: only its origin is told of it
        return zxid, position, _OK, None
    assert isinstance(result, tuple)
    if command[0] == ONCE:
        return result
    if command[0] == MULTI:
        return zxid, position, _OK, tuple(map(_part, result))
    first, node = result
    return zxid, position, _OK, (first, tuple(node.stat()))


def _part(result: Any) -> tuple[int, Any]:
    """Return the outcome of one part of a multi that succeeded: OK, a Stat, or (path or value, Stat)."""
    if result.__class__ is Code:
        return _OK, None
    if result.__class__ is tuple:
        return _OK, (result[0], tuple(result[1]))
    return _OK, tuple(result)
