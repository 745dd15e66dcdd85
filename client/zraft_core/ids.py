"""The small identifying values that every layer shares. Knows nothing else."""

from __future__ import annotations

from typing import Final, NewType

ServerId = NewType("ServerId", int)
"""Number of a server in the cluster's configuration, 1 to 254 (it is the top byte of session ids)."""

Instance = NewType("Instance", bytes)
"""Random 128-bit identity of one formatted data directory; a wiped or replaced disk is another instance (D-1)."""

GroupId = NewType("GroupId", int)
"""A Raft group. Group 0 is the coordination group; topic partitions get zxids of group 0 as ids."""

ProducerId = NewType("ProducerId", int)
"""A program that multicasts, by the zxid of group 0 that registered it, so never reused; 0 is group 0 itself.
"""

COORDINATION_GROUP: Final = GroupId(0)
SERVER_ID_MIN: Final = 1
SERVER_ID_MAX: Final = 254
INSTANCE_BYTES: Final = 16


def zxid_after(last_zxid: int, term: int) -> int:
    """Return the zxid of the next command (D-15).

    It is one more than the last, or the first of the term if that is greater.

    The high 32 bits follow the Raft term as ZooKeeper's follow its epoch, so that tools which print
    `epoch:counter` keep making sense; a counter that overflows simply carries into the next epoch.
    """
    floor = term << 32
    return last_zxid + 1 if last_zxid >= floor else floor


EPOCHS_SKIPPED: Final = 1 << 20
"""The number of epochs by which a cluster that is made of another one's data begins above it."""

_ZXID_MAX: Final = 2**63 - 1


def zxid_anew(last_zxid: int) -> int | None:
    """Return the last zxid of a cluster that begins with the data of one whose last known zxid this is (D-15).

    So far above that nobody has seen a higher one of the old cluster, however much of it was lost; None once 2^63 is
    reached, after two thousand times.
    """
    zxid = ((last_zxid >> 32) + EPOCHS_SKIPPED) << 32
    return zxid if zxid <= _ZXID_MAX else None
