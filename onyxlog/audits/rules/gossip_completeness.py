"""S15: every entry reached every peer in a recorded way, and gossip's figures are those of the records. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from attrs import frozen

from onyxlog.audits.rules.check import Check, Input, Row, Rule
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.gossip import GossipRow, LogReadRow
from onyxlog.audits.tables.onyx_entries import OnyxEntryRow

RULE: Final = "S15"
FIRST: Final = "one reception is the first"
WAYS: Final = "an applied entry came by a recorded way"


def _first(rows: Iterator[GossipRow]) -> Iterator[Violation]:
    first: GossipRow | None = None
    for row in rows:
        if not row.first:
            continue
        if first is not None:
            yield violation_at(
                row,
                rule=RULE,
                promise=FIRST,
                subject=f"entry {row.position} of {row.tenancy} at {row.peer}",
                index=row.position,
                expected=f"a repeat: it came first from {first.other} at {first.at_ms} ms",
                found=f"counted as first again, from {row.other} at {row.at_ms} ms",
            )
        first = first or row


def _ways(rows: Iterator[Row]) -> Iterator[Violation]:
    """Judge what one peer received, then what it read, then what it applied; ranges and positions ascend."""
    received: set[int] = set()
    reads: list[tuple[int, int]] = []
    for row in rows:
        if isinstance(row, GossipRow):
            received.add(row.position)
        elif isinstance(row, LogReadRow):
            reads.append((row.first, row.first + row.count))
        elif row.source == "gossip" and received and row.position not in received:
            yield _without(row, "a reception of it")
        elif row.source == "log" and reads and not _in(row.position, reads):
            yield _without(row, "a read of the log that has it")


def _in(position: int, reads: list[tuple[int, int]]) -> bool:
    while len(reads) > 1 and reads[0][1] <= position:
        reads.pop(0)
    return any(first <= position < end for first, end in reads)


def _without(row: OnyxEntryRow, expected: str) -> Violation:
    return violation_at(
        row,
        rule=RULE,
        promise=WAYS,
        subject=f"entry {row.position} of {row.tenancy}, which {row.peer} applied",
        index=row.position,
        expected=expected,
        found=f"none, though it came by {row.source}",
    )


@frozen
class GossipFigures:
    """Figures of one tenancy.

    Redundancy has both definitions: the mean of peers' own shares, and the share of all receptions.

    Attributes:
        receptions: how often events were received.
        first: how often for the first time.
        redundancy_of_peers, redundancy: superfluous shares, 0 to 1.
        sent_per_event: publications for one event; `copies_per_event`: datagrams.
        hops: mean number of hops of first receptions.
        read_entries: entries that came from the log.
        saved: share of one reading of each entry by each peer that was not needed.
    """

    tenancy: str
    peers: int
    events: int
    receptions: int
    first: int
    redundancy_of_peers: float
    redundancy: float
    sent_per_event: float
    copies_per_event: float
    hops: float
    read_entries: int
    saved: float


@frozen
class PeerCounts:
    """Counts of what one peer group recorded of a tenancy: receptions, first ones and their hops, what it sent and read."""

    peer: str
    receptions: int
    first: int
    hops: int
    sent: int
    copies: int
    read: int


def figures(tenancy: str, events: int, peers: Sequence[PeerCounts]) -> GossipFigures:
    """Return the figures that the thesis gives of dissemination, from what was recorded of so many events."""
    receptions, first = sum(peer.receptions for peer in peers), sum(peer.first for peer in peers)
    shares = [1 - peer.first / peer.receptions for peer in peers if peer.receptions]
    read_entries, all_reads = sum(peer.read for peer in peers), len(peers) * events
    return GossipFigures(
        tenancy=tenancy,
        peers=len(peers),
        events=events,
        receptions=receptions,
        first=first,
        redundancy_of_peers=sum(shares) / len(shares) if shares else 0.0,
        redundancy=1 - first / receptions if receptions else 0.0,
        sent_per_event=sum(peer.sent for peer in peers) / events if events else 0.0,
        copies_per_event=sum(peer.copies for peer in peers) / events if events else 0.0,
        hops=sum(peer.hops for peer in peers) / first if first else 0.0,
        read_entries=read_entries,
        saved=max(0.0, 1 - read_entries / all_reads) if all_reads else 0.0,
    )


GOSSIP_COMPLETENESS: Final = Rule(
    id=RULE,
    title="Gossip",
    claim="what peers applied came by gossip or by reads that were recorded, and each reception counts once as the first",
    checks=(
        Check(
            FIRST,
            (Input("gossip", ("tenancy", "peer", "position"), ("at_ms", "seq"), {"what": ("received",)}),),
            _first,
            suspects="SELECT tenancy, peer, position FROM gossip WHERE what = 'received' AND first "
            "GROUP BY ALL HAVING count(*) > 1",
        ),
        Check(
            WAYS,
            (
                Input("gossip", ("tenancy", "peer"), (0, "position"), {"what": ("received",)}),
                Input("log_reads", ("tenancy", "peer"), (1, "first")),
                Input("onyx_entries", ("tenancy", "peer"), (2, "position")),
            ),
            _ways,
            needed=("onyx_entries",),
        ),
    ),
)
