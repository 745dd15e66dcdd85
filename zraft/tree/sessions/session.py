"""Sessions: who owns each, since when, and which ephemerals end with it (D-3, D-11)."""

from __future__ import annotations

from typing import Any, Final

from zraft.tree.sessions.kept import Kept
from zraft.tree.sessions.will import Will
from zraft_core.ids import Instance, ServerId

PASSWORD_BYTES: Final = 16

Owner = tuple[ServerId, Instance, int]
"""(server, instance, boot): the process that the client is connected to. An older boot is somebody else."""


class Session:
    """One session. Positions are positions of commands in the group's log (D-16).

    `attach_position` is that of its creation or last resume, `write_position` that of its last write, failed
    ones included, and never lower. Both must be what the proposer of an EXPIRE saw, or it is void (D-11).
    `kept` is what its numbered commands came to, None until the first one; `will` is done when it ends.
    """

    __slots__ = (
        "attach_position",
        "ephemerals",
        "folded",
        "id",
        "kept",
        "owner",
        "password",
        "timeout_ms",
        "will",
        "write_position",
    )

    def __init__(
        self, session_id: int, password: bytes, timeout_ms: int, owner: Owner, position: int
    ) -> None:
        self.id = session_id
        self.password = password
        self.timeout_ms = timeout_ms
        self.owner = owner
        self.attach_position = position
        self.write_position = position
        self.ephemerals: set[str] = set()
        self.folded = 0
        self.kept: Kept | None = None
        self.will: Will | None = None

    def memory(self) -> tuple[Any, ...]:
        """Return (kept, will) as plain values, nil for what there is not.

        () if there is neither, as before feature level 3.
        """
        kept, will = self.kept, self.will
        if kept is None and will is None:
            return ()
        return None if kept is None else kept.plain(), None if will is None else will.plain()


def session_id_for(server: ServerId, zxid: int) -> int:
    """Return the id of the session that a server's command creates at `zxid`, as a signed 64-bit number.

    The top byte is the server's as in ZooKeeper; the rest is unique because a zxid is never used twice. It is
    decided at apply, so nobody needs to remember which ids were promised.
    """
    number = server << 56 | zxid & 2**56 - 1
    return number - 2**64 if number >= 2**63 else number
