"""The digest of a replica, and the chain over all entries: what peers compare to know that they agree.

Chain: H(i) = BLAKE2b(H(i-1) | bytes of entry i | digest of the replica after it). So two peers whose chains
are equal at a position have applied the same entries, in the same order, with the same result each time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import attrs

from onyxlog.replica.canonical import pack
from onyxlog.replica.replica import Replica
from onyxlog.replica.table import Table

DIGEST_BYTES: Final = 16
CHAIN_BYTES: Final = 16
CHAIN_START: Final = bytes(CHAIN_BYTES)
"""The chain's value at the first origin."""

_FIELDS: Final = tuple(each.name for each in attrs.fields(Replica))


def digest(replica: Replica) -> bytes:
    """Return the replica's digest. Different replicas have equal ones with probability 2^-64 only.

    It costs what changed since the replica it was made from.
    """
    shares = []
    for name in _FIELDS:
        value = getattr(replica, name)
        # the name is included, so that no two fields can be taken for one another
        shares.append((name, value.sum.to_bytes(16, "big") if isinstance(value, Table) else value))
    return blake2b(pack(tuple(shares)), digest_size=DIGEST_BYTES).digest()


def extended(chain: bytes, entry: bytes, replica: Replica) -> bytes:
    """Return the chain's value after an entry of these bytes that led to `replica`."""
    assert len(chain) == CHAIN_BYTES, f"{len(chain)=}"
    hashed = blake2b(chain, digest_size=CHAIN_BYTES)
    hashed.update(len(entry).to_bytes(4, "big"))
    hashed.update(entry)
    hashed.update(digest(replica))
    return hashed.digest()
