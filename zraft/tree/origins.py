"""Origin rows: which batch of each server's clients is the next to be applied (D-1, D-2, D-3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zraft_core.ids import Instance, ServerId

Origin = tuple[ServerId, Instance]

BOOT_ID_BYTES_MAX: Final = 64

BOOT_MAX: Final = 2**63 - 1
"""The most that messages and images carry. A correct leader takes no batch of a later boot, so no log has one."""


class OriginRow:
    """The last batch applied of one origin, and the random id that its boot registered (b"" before)."""

    __slots__ = ("boot", "boot_id", "seq")

    def __init__(self) -> None:
        self.boot = 0
        self.seq = 0
        self.boot_id = b""


class Origins:
    """One row per member of the configuration; a disk that is replaced takes its row along (D-3b).

    `faults` counts gaps: a correct leader never appends one, so each is worth an alarm.
    """

    __slots__ = ("faults", "rows")

    def __init__(self) -> None:
        self.rows: dict[Origin, OriginRow] = {}
        self.faults = 0

    def set_members(self, members: Iterable[Origin]) -> None:
        """Keep rows for exactly `members` from now on."""
        old = self.rows
        self.rows = {member: old.get(member) or OriginRow() for member in members}

    def accept(self, origin: Origin, boot: int, seq: int) -> bool:
        """Take (boot, seq) if it is the next batch of a member (D-2); else nothing changes but `faults`."""
        if origin not in self.rows:
            return False
        row = self.rows[origin]
        if boot == row.boot:
            if seq == row.seq + 1:
                row.seq = seq
                return True
            self.faults += seq > row.seq
            return False
        if boot < row.boot:
            return False
        if seq != 1 or boot > BOOT_MAX:
            self.faults += 1
            return False
        row.boot, row.seq, row.boot_id = boot, 1, b""
        return True
