"""Table `events`: what servers noted beside their logs: leaderships, commits, digests of their state."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.placed import Placed
from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class EventRow(Placed):
    """One line of a server's journal (docs/explanation/storage.md, "Journal").

    Attributes:
        boot: how often the directory was opened: an incarnation of the server.
        seq: order within a boot.
        kind: `opened`, `became_leader`, `stepped_down`, `committed`, `digest`, `snapshot`, `restored` or `closed`.
        index: last log index of `became_leader`, applied index of `digest`, commit index of `committed`, else of the
            snapshot.
        votes: servers whose votes `became_leader` counted, itself among them.
        digest: state of the replica after `index` (128 bits).
    """

    boot: int
    seq: int
    kind: str
    group: int = 0
    term: int = 0
    index: int = 0
    votes: tuple[int, ...] = ()
    digest: bytes | None = None
    wall_time_ms: int = 0


EVENTS: Final = Table(
    "events", EventRow, "what servers noted beside their logs: leaderships, commits, digests"
)
