"""Consuming topics together: Marshal's library, on claims that the partitions themselves decide.

Source: docs/explanation/claims.md.

`Marshaler` looks and administers, `Consumer` consumes. Both reach the service through a `ClaimsPort`.
"""

from zraft_client.claims.consumer import Committing, Consumer
from zraft_client.claims.errors import ClaimLostError, CommitsScatteredError, PortError
from zraft_client.claims.marshaler import Marshaler
from zraft_client.claims.messages import CommitToken, Message, PartitionOffsets
from zraft_client.claims.options import ConsumerOptions
from zraft_client.claims.port import ClaimsPort, Fetched, Record, Seen
from zraft_core.claims.values import Mode

__all__ = [
    "ClaimLostError",
    "ClaimsPort",
    "CommitToken",
    "CommitsScatteredError",
    "Committing",
    "Consumer",
    "ConsumerOptions",
    "Fetched",
    "Marshaler",
    "Message",
    "Mode",
    "PartitionOffsets",
    "PortError",
    "Record",
    "Seen",
]
