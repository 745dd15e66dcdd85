"""Configurations of groups from before members had roles: rows of (server, disk instance, whether it votes), format 1.

Written by the releases before feature level 2. The log of a cluster that one of them founded begins with such a
configuration, and a snapshot of it names one until the first change of the members. Their leaders' successors write one in
today's form as soon as they learn an address. With the release that no longer takes level 1 this reader goes; its notes must
ask for a snapshot on every server first, because a log that was never cut still begins in the old form.
"""

from __future__ import annotations

from typing import Final

from zraft_core.errors import ProtocolError
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN

LEVEL_MIN_WITHOUT: Final = 2
FORMAT: Final = 1
_NO_ADDRESS: Final = ""


def with_role(row: object, voter: int, learner: int) -> tuple[int, bytes, int, str]:
    """Return a row in today's form: (server, disk instance, role, address).

    `voter` and `learner` are the numbers of these roles.

    Raises:
        ProtocolError: it is no row of the old form.
    """
    match row:
        case (int(server), bytes(instance), bool(votes)) if (
            type(server) is int
            and SERVER_ID_MIN <= server <= SERVER_ID_MAX
            and len(instance) == INSTANCE_BYTES
        ):
            return server, instance, int(voter if votes else learner), _NO_ADDRESS
        case _:
            raise ProtocolError(
                f"MEMBERSHIP row {row!r}, expected (server {SERVER_ID_MIN}..{SERVER_ID_MAX}, "
                f"instance of {INSTANCE_BYTES} bytes, voter)"
            )
