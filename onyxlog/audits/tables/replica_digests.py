"""Table `replica_digests`: digests of peers' replicas at positions of the tenancy's log."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class ReplicaDigestRow:
    """The digest chain of one peer group after the entry at `position`.

    Attributes:
        source: `recorded` by the peer beside each entry it applied, or `published` by it in the service.
        chain: after the entry; equal for equal histories.
        digest: of the replica itself, if it was recorded.
        server, instance: whose log shows what was published; 0 and empty if it was recorded.
    """

    tenancy: str
    peer: str
    position: int
    source: str
    chain: bytes
    digest: bytes | None = None
    at_ms: int = 0
    server: int = 0
    instance: str = ""
    file: str = ""
    file_offset: int = 0


REPLICA_DIGESTS: Final = Table(
    "replica_digests",
    ReplicaDigestRow,
    "digest chains of peers, by position of the tenancy's log",
    comes_from="recordings of peers (`onyxlog peer --record DIRECTORY`), and servers of running peers",
)
