"""Outputs of a messenger: its requests to its surroundings, and its counts."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from attrs import define, field, frozen

from onyxlog.gossip.messages import Send
from onyxlog.ids import Position


class Reason(StrEnum):
    """Reasons to read the log."""

    GAP = "gap"
    """An entry is known to exist, and no peer gave it."""
    POLL = "poll"
    """Nobody has looked at the log for a while."""
    MISMATCH = "mismatch"
    """The entries that gossip brought do not fit the chain."""
    BEHIND = "behind"
    """More is missing than peers are asked for."""


@frozen
class ReadLog:
    """Read entries first <= position < end, and answer with `log_answered` or `log_failed`.

    If the entries are gone, answer with `begin`. The messenger asks for one read at a time. `end` may be
    beyond the log's end: then read as many as there are.
    """

    first: Position
    end: Position
    reason: Reason


@frozen
class LookAtEnd:
    """Ask the log for its end, and answer with `end_found` or `look_failed`.

    The messenger asks for one look at a time.
    """


@frozen
class Tail:
    """Request that the log pushes its entries from the next one on (True), or no longer (False)."""

    on: bool


@frozen
class BeginAgain:
    """Begin again at the log's origin, as the replica contradicts those of others, and answer with `begin`."""

    why: str


Output = Send | ReadLog | LookAtEnd | Tail | BeginAgain


@define
class GossipCounters:
    """Counts since the messenger began.

    `applied`: entries by source; `reads`: reads of entries by reason; `looks`: looks of a sentinel at the
    log's end; `offered`: events by what became of them; bytes: of all datagrams that fit this tenancy.
    """

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
    received_bytes: int = 0
    sent_bytes: int = 0
