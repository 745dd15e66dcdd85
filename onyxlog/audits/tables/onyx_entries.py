"""Table `onyx_entries`: entries of tenancies' logs, as peers applied them."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class OnyxEntryRow:
    """One entry that a peer group applied, or the origin that it began from.

    Attributes:
        peer: the group that recorded it.
        seq: order within one recording; an origin may make `position` jump.
        kind: as `onyxlog.replica.codec.NAMES` has it, or `origin`: then `entry` is the origin as encoded, and `chain`
            what it says.
        author, cause, written_ms: of the entry.
        source: who brought it: `log`, `gossip`, `peer`; empty for an origin.
        chain, digest: after it, as the peer computed them.
        entry: the bytes that stand in the log.
    """

    tenancy: str
    peer: str
    seq: int
    position: int
    kind: str
    author: str = ""
    cause: int | None = None
    written_ms: int = 0
    applied_ms: int = 0
    source: str = ""
    chain: bytes
    digest: bytes
    entry: bytes
    file: str = ""
    file_offset: int = 0


ONYX_ENTRIES: Final = Table(
    "onyx_entries",
    OnyxEntryRow,
    "entries of tenancies' logs, as peers applied them",
    comes_from="recordings of peers (`onyxlog peer --record DIRECTORY`)",
)
