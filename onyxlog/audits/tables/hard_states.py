"""Table `hard_states`: terms and votes as servers made them durable."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.placed import Placed
from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class HardStateRow(Placed):
    """One durable (term, vote) of a server in a group.

    Attributes:
        frame, record: number of the write, and its own in that: order within one server's log.
        voted_for: the server voted for in `term`, None if none yet.
        restated: it stands in a base frame, which repeats what was durable before.
        last_index, last_term: where this server's log ended at that moment.
    """

    group: int
    frame: int
    record: int = 0
    term: int
    voted_for: int | None = None
    restated: bool = False
    last_index: int = 0
    last_term: int = 0


HARD_STATES: Final = Table("hard_states", HardStateRow, "terms and votes, as each server made them durable")
