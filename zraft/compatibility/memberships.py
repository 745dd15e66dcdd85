"""Configurations of groups from before members had roles: rows of (server, disk instance, whether it votes), format 1.

Written by the releases before feature level 2. The log of a cluster that one of them founded begins with such a
configuration, and a snapshot of it names one until the first change of the members. Their leaders' successors write one in
today's form as soon as they learn an address. With the release that no longer takes level 1 this reader goes; its notes must
ask for a snapshot on every server first, because a log that was never cut still begins in the old form.
"""

from __future__ import annotations

from typing import Any, Final

from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN
from zraft_core.layout import binary, boolean, integer, listed, row

LEVEL_MIN_WITHOUT: Final = 2
FORMAT: Final = 1
_ROWS: Final = listed(
    row(
        server=integer(SERVER_ID_MIN, SERVER_ID_MAX),
        instance=binary(INSTANCE_BYTES, INSTANCE_BYTES),
        voter=boolean,
    ),
    SERVER_ID_MAX,
)


def rows_with_roles(rows: object, voter: int, learner: int) -> tuple[tuple[Any, ...], ...]:
    """Return the rows in today's form: (server, disk instance, role, address).

    Args:
        rows: as that release wrote them.
        voter: the number of this role today.
        learner: the number of this one.

    Raises:
        ProtocolError: they are no rows of the old form.
    """
    return tuple(
        (server, instance, voter if votes else learner, "")
        for server, instance, votes in _ROWS.unpack(rows, "MEMBERSHIP rows")
    )
