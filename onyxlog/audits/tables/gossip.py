"""Tables `gossip` and `log_reads`: how entries reached peers, by gossip or by reading the log."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class GossipRow:
    """One event (an entry's bytes) that a peer group received, published or passed on.

    Attributes:
        what: `received`, or `sent` for one publication or passing on, whose `copies` went to that many groups.
        other: of a reception the sender, empty for what was sent.
        publisher: who brought the entry from the log.
        first: of a reception: it was the first of this position here.
        stream, root: of the pool; None in other ways of spreading.
        hops: how often it had been passed on.
    """

    tenancy: str
    peer: str
    seq: int
    at_ms: int
    what: str
    position: int
    other: str = ""
    publisher: str = ""
    first: bool = False
    stream: int | None = None
    root: int | None = None
    hops: int = 0
    copies: int = 0
    file: str = ""
    file_offset: int = 0


@frozen(kw_only=True)
class LogReadRow:
    """One time that a peer group read the log instead of relying on gossip.

    Attributes:
        reason: `gap`, `poll`, `mismatch`, `behind`, `look` (at the log's end) or `tail` (entries that the
            log pushed).
        first, count: which entries it got.
    """

    tenancy: str
    peer: str
    seq: int
    at_ms: int
    reason: str
    first: int
    count: int
    file: str = ""
    file_offset: int = 0


OF_GOSSIP: Final = "recordings of peers that gossip (`onyxlog peer --gossip MODE --record DIRECTORY`)"
GOSSIP: Final = Table("gossip", GossipRow, "events that peers received and sent", comes_from=OF_GOSSIP)
LOG_READS: Final = Table(
    "log_reads", LogReadRow, "times that gossiping peers had recourse to the log", comes_from=OF_GOSSIP
)
