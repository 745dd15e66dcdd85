"""Settings of the write-ahead log."""

from __future__ import annotations

from attrs import frozen

from zraft_core.errors import ConfigError
from zraft_core.ids import COORDINATION_GROUP, GroupId

SEGMENT_BYTES_MIN = 4096
"""Below a page, preallocation gains nothing and a segment is mostly its header."""


@frozen
class WalSettings:
    """Sizes in bytes.

    `segment_bytes_max`: length of a segment file; larger ones make fewer files, and purge later.
    `tail_bytes_max`: how much of the coordination group's log is in memory after a start, from its end back;
    `group_tail_bytes_max`: the same for each other group, of which there may be hundreds.
    `index_stride_bytes` and `index_points_max`: per group, a point to start reading from every so many bytes of
    log, and how many of them at most; then every second one is dropped.
    """

    segment_bytes_max: int = 64 << 20
    tail_bytes_max: int = 64 << 20
    group_tail_bytes_max: int = 64 << 10
    index_stride_bytes: int = 64 << 10
    index_points_max: int = 4096

    def __attrs_post_init__(self) -> None:
        if self.segment_bytes_max < SEGMENT_BYTES_MIN:
            raise ConfigError(
                f"wal.segment_bytes_max is {self.segment_bytes_max}, at least {SEGMENT_BYTES_MIN} is needed"
            )
        if self.tail_bytes_max < 0:
            raise ConfigError(f"wal.tail_bytes_max is {self.tail_bytes_max}, 0 or more is needed")
        if self.group_tail_bytes_max < 0:
            raise ConfigError(f"wal.group_tail_bytes_max is {self.group_tail_bytes_max}, 0 or more is needed")
        if self.index_stride_bytes < 0:
            raise ConfigError(f"wal.index_stride_bytes is {self.index_stride_bytes}, 0 or more is needed")
        if self.index_points_max < 1:
            raise ConfigError(f"wal.index_points_max is {self.index_points_max}, 1 or more is needed")

    def tail_bytes_max_of(self, group: GroupId) -> int:
        """Return how much of that group's log is in memory after a start, in bytes."""
        return self.tail_bytes_max if group == COORDINATION_GROUP else self.group_tail_bytes_max
