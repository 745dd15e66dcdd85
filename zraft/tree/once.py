"""Exactly once: a session's numbered commands, of which each is executed once, however often it is sent.

Retrying is the client's business: it repeats a command, over any connection to any server, under the number that it
gave it first, until it is answered. What the command came to is kept in the session until the client says, by its
floor, that it has received it. A repeat changes nothing and is answered with what was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack

from zraft.errors import Code
from zraft.tree.digest import Digest
from zraft.tree.outcomes import Outcome, outcome_of
from zraft.tree.sessions import Session
from zraft.tree.txn import CLOSE_SESSION, MEMBERS, ONCE, Command

WINDOW: Final = 1_024
"""Numbers above the floor that a client may use: so many commands it may have under way."""
KEPT_BYTES_MAX: Final = 2**20
"""Of one session; beyond it nothing new is executed until the client's floor rises."""

_INT64_MAX: Final = 2**63 - 1
_REFUSED: Final = frozenset({CLOSE_SESSION, MEMBERS, ONCE})
_pack = msgpack.Packer(use_bin_type=True).pack


class Kept:
    """What is kept of one session: the floor, and packed Outcomes by their numbers, all of them above it."""

    __slots__ = ("floor", "outcomes", "size")

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self.outcomes: dict[int, bytes] = {}
        self.size = 0

    def keep(self, seq: int, packed: bytes) -> None:
        self.outcomes[seq] = packed
        self.size += len(packed)

    def raise_floor(self, floor: int) -> None:
        """Everything up to `floor` was received: it costs no more than what is dropped."""
        outcomes = self.outcomes
        if floor - self.floor <= WINDOW:
            dropped = range(self.floor + 1, floor + 1)
            gone = [outcomes.pop(seq, b"") for seq in dropped] if outcomes else []
        else:
            gone = list(outcomes.values())
            outcomes.clear()
        self.size -= sum(map(len, gone))
        self.floor = floor

    def plain(self) -> tuple[int, tuple[tuple[int, bytes], ...]]:
        return self.floor, tuple(sorted(self.outcomes.items()))

    @staticmethod
    def read(plain: Any) -> Kept | None:
        """What `plain` made these values of; None if it made none such."""
        if plain.__class__ is not tuple or tuple(map(type, plain)) != (int, tuple):
            return None
        floor, items = plain
        if not 0 <= floor <= _INT64_MAX:
            return None
        kept = Kept(floor)
        for item in items:
            if item.__class__ is not tuple or tuple(map(type, item)) != (int, bytes):
                return None
            seq, packed = item
            if seq in kept.outcomes or not floor < seq <= floor + WINDOW or not _is_outcome(packed):
                return None
            kept.keep(seq, packed)
        return kept


def _is_outcome(packed: bytes) -> bool:
    try:
        outcome = msgpack.unpackb(packed, use_list=False)
    except (ValueError, TypeError):
        return False
    return (
        outcome.__class__ is tuple and len(outcome) == 4 and tuple(map(type, outcome[:3])) == (int, int, int)
    )


def execute_once(
    session: Session,
    digest: Digest,
    handlers: Mapping[int, Callable[[Command, int], Any]],
    command: Command,
    zxid: int,
    position: int,
) -> Outcome | Code:
    """[ONCE, seq, floor, command]: what `command` came to, now or the first time.

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
    """Of the command inside; as of any other it is no exception, whatever it holds."""
    if inner.__class__ is not tuple or not inner or inner[0].__class__ is not int:
        return Code.MARSHALLING_ERROR
    if inner[0] in _REFUSED:
        return Code.BAD_ARGUMENTS
    handler = handlers.get(inner[0])
    return Code.UNIMPLEMENTED if handler is None else handler(inner, zxid)
