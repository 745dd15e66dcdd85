"""Exactly once: a session's numbered commands, of which each is executed once, however often it is sent.

Retrying is the client's business: it repeats a command, over any connection to any server, under the number that it
gave it first, until it is answered. What the command came to is kept in the session until the client says, by its
floor, that it has received it. A repeat changes nothing and is answered with what was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack

from zraft.tree.commands.outcomes import outcome_of
from zraft.tree.digest import TreeDigest
from zraft.tree.sessions.kept import WINDOW, Kept
from zraft.tree.sessions.session import Session
from zraft_core.errors import Code
from zraft_core.znodes.outcome import Outcome
from zraft_core.znodes.txn import CLOSE_SESSION, MEMBERS, ONCE, Command

KEPT_BYTES_MAX: Final = 2**20
"""The bytes that are kept of one session; beyond, nothing new is executed until the client's floor rises."""

_INT64_MAX: Final = 2**63 - 1
_REFUSED: Final = frozenset({CLOSE_SESSION, MEMBERS, ONCE})
_pack = msgpack.Packer(use_bin_type=True).pack


def execute_once(
    session: Session,
    digest: TreeDigest,
    handlers: Mapping[int, Callable[[Command, int], Any]],
    command: Command,
    zxid: int,
    position: int,
) -> Outcome | Code:
    """Execute [ONCE, seq, floor, command]; return the outcome, from now or from the first time.

    BAD_ARGUMENTS if the client has received the answer already, or says that it received what it is asking for;
    THROTTLED_OP, and nothing was executed, if too much is kept: both are kept nowhere.
    """
    if len(command) != 4:
        return Code.MARSHALLING_ERROR
    _, seq, floor, inner = command
    if seq.__class__ is not int or floor.__class__ is not int:
        return Code.MARSHALLING_ERROR
    digest.dirty_sessions.add(session.id)
    kept = session.kept
    if kept is None:
        kept = Kept()
    if not max(floor, kept.floor) < seq <= _INT64_MAX or floor < 0:
        return zxid, position, int(Code.BAD_ARGUMENTS), None
    session.kept = kept
    if floor > kept.floor:
        kept.raise_floor(floor)
    packed = kept.outcomes.get(seq)
    if packed is not None:
        return msgpack.unpackb(packed, use_list=False)  # type: ignore[no-any-return]
    if seq > kept.floor + WINDOW or kept.size >= KEPT_BYTES_MAX:
        return zxid, position, int(Code.THROTTLED_OP), None
    outcome = outcome_of(inner, _result(handlers, inner, zxid), zxid, position)
    kept.keep(seq, _pack(outcome))
    return outcome


def _result(handlers: Mapping[int, Callable[[Command, int], Any]], inner: Any, zxid: int) -> Any:
    """Return the result of the command inside; as of any other it is no exception, whatever it holds."""
    if inner.__class__ is not tuple or not inner or inner[0].__class__ is not int:
        return Code.MARSHALLING_ERROR
    if inner[0] in _REFUSED:
        return Code.BAD_ARGUMENTS
    handler = handlers.get(inner[0])
    return Code.UNIMPLEMENTED if handler is None else handler(inner, zxid)
