"""Table `snapshots`: snapshot files, verified whole."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.placed import Placed
from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class SnapshotRow(Placed):
    """One snapshot file of a group.

    Attributes:
        index, term: of the last entry in it.
        maker_server, maker_instance: who made it; it may have been sent here.
        digest: of the state (128 bits), as its footer says; state digests of replicas at the same index must equal it.
        damage: what is wrong with the file, None if nothing is. Then the columns from `term` on may be 0 or empty.
    """

    group: int
    index: int
    term: int = 0
    next_position: int = 0
    zxid: int = 0
    items: int = 0
    size: int = 0
    digest: bytes = b""
    maker_server: int = 0
    maker_instance: str = ""
    wall_time_ms: int = 0
    feature_level: int = 0
    damage: str | None = None


SNAPSHOTS: Final = Table("snapshots", SnapshotRow, "snapshot files, verified whole", streams=False)
