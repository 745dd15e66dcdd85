"""Entries of a ZooKeeper connection's queue: one class for each way to be answered.

All are values that do not change. What is made for each request of a pipeline, `Write` and `Read`, is of a type that costs
nothing; see there.
"""

from __future__ import annotations

from typing import Final

from zraft_core.errors import Code
from zraft_core.znodes.acl import Ids
from zraft_core.znodes.txn import Command

Write = tuple[int, int, Command]
"""(opcode, xid, command) of a write, or of a reconfig, on its way through the log; it is answered when its command was
applied. One is made for each write: a class of its own would cost about six percent of all that this server does for a
write among many that come at once."""

Read = bytes
"""The frame, as it came, of a request behind a write; it is answered from applied state as soon as nothing stands before it.
One is kept for each such read, and nothing is made for it."""


class Listing:
    """A read of a few bytes whose answer may take milliseconds; it is answered in a turn that has time for it."""

    __slots__ = ("frame",)

    def __init__(self, frame: bytes) -> None:
        self.frame: Final = frame


class Sync:
    """Sync that is answered when all that was committed before it came is applied here.

    Only the last one of a queue may wait for the leader; the others wait for the writes before them.
    """

    __slots__ = ("frame", "path", "xid")

    def __init__(self, xid: int, path: str, frame: bytes) -> None:
        self.xid: Final = xid
        self.path: Final = path
        self.frame: Final = frame


class Count:
    """A question for the number of a znode's descendants, which are counted over several turns."""

    __slots__ = ("path", "xid")

    def __init__(self, xid: int, path: str) -> None:
        self.xid: Final = xid
        self.path: Final = path


class Restore:
    """Watches of a client that reconnected, which are looked at over several turns."""

    __slots__ = ("xid",)

    def __init__(self, xid: int) -> None:
        self.xid: Final = xid


class Unknown:
    """A request that this server does not know; it ends the connection in its turn."""

    __slots__ = ("frame", "xid")

    def __init__(self, xid: int, frame: bytes) -> None:
        self.xid: Final = xid
        self.frame: Final = frame


class Failed:
    """A request that is answered with an error, at the zxid of its turn."""

    __slots__ = ("code", "xid")

    def __init__(self, xid: int, code: Code) -> None:
        self.xid: Final = xid
        self.code: Final = code


class Proved:
    """The connection has these ids from its turn on, and the reply is made already."""

    __slots__ = ("ids", "reply")

    def __init__(self, ids: Ids, reply: bytes) -> None:
        self.ids: Final = ids
        self.reply: Final = reply


class Last:
    """The reply is made already, leaves in its turn, and the connection ends with it."""

    __slots__ = ("reply",)

    def __init__(self, reply: bytes) -> None:
        self.reply: Final = reply


Held = Sync | Count | Listing | Restore
"""Requests that take more than one turn when something stands before them: nothing behind them is looked at before they
are answered."""

HELD: Final = (Sync, Count, Listing, Restore)
"""The classes of `Held`."""

Waiting = Write | Read | Unknown | Failed | Proved | Last | Held
