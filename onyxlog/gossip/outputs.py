"""What a messenger asks of its surroundings, and what it counts."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from attrs import define, field, frozen

from onyxlog.gossip.messages import Send
from onyxlog.ids import Position


class Reason(StrEnum):
    """Why the log is read."""

    GAP = "gap"
    """An entry is known to exist, and no peer gave it."""
    POLL = "poll"
    """Nobody has looked for a while."""
    MISMATCH = "mismatch"
    """What gossip brought does not fit the chain."""
    BEHIND = "behind"
    """More is missing than peers are asked for."""


@frozen
class ReadLog:
    """Read entries first <= position < end, and answer with `log_answered` or `log_failed`; with `begin` if they are gone.

    One read is asked for at a time. `end` may be beyond the log's: then as many as there are.
    """

    first: Position
    end: Position
    reason: Reason


@frozen
class LookAtEnd:
    """Ask the log for its end, and answer with `end_found` or `look_failed`. There is one look at a time."""


@frozen
class Tail:
    """Have the log push its entries from the one after the applied on (True), or no longer (False)."""

    on: bool


@frozen
class BeginAgain:
    """The replica contradicts those of others: begin again at the log's origin, and say so with `begin`."""

    why: str


Output = Send | ReadLog | LookAtEnd | Tail | BeginAgain


@define
class Counters:
    """Since the messenger began. `applied`: by source; `reads`: of entries, by reason; `looks`: a sentinel's at the
    log's end; `offered`: events by what became of them."""

    applied: Counter[str] = field(factory=Counter)
    reads: Counter[str] = field(factory=Counter)
    looks: int = 0
    read_entries: int = 0
    tailed_entries: int = 0
    offered: Counter[str] = field(factory=Counter)
    published: int = 0
    repairs_asked: int = 0
    repairs_given: int = 0
    mismatches: int = 0
    begun_again: int = 0
