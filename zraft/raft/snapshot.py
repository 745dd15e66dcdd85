"""Position of a snapshot in its group's log."""

from __future__ import annotations

from attrs import frozen


@frozen
class SnapshotMeta:
    """A point between two entries: all up to `index` is in the snapshot, the log goes on after it.

    `term` is that of the entry `index`, `next_position` the position of the first command after it (D-16), and
    `membership` the payload of the newest MEMBERSHIP entry at or before it.
    """

    index: int
    term: int
    next_position: int
    membership: bytes
