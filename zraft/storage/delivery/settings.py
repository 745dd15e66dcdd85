"""Settings of delivery segments."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft_core.errors import ConfigError

SEGMENT_BYTES_MIN: Final = 4096
FRAME_BYTES_MIN: Final = 256
FRAME_BYTES_LARGEST: Final = 16 << 20


@frozen
class DeliverySettings:
    """Sizes in bytes.

    `segment_bytes_max`: a segment is closed before it grows beyond; retention removes whole segments.
    `frame_bytes_max`: of records before compression that are written, checked and compressed together; a delivery
    that is larger has a frame of its own. `compression_level`: of zstd; 0 stores as it is. A frame that does not
    become smaller is stored as it is anyway. `sync_bytes_max`: per group, how much may be written before it is made
    durable without being asked. `checkpoint_bytes`: how much of the segment that is being written a start after a
    crash reads at most, about. `index_stride_bytes`: a point to start reading from every so many bytes of a segment.
    `indices_max`: of how many segments the points are in memory at once, over all groups. `files_max`: how many files
    are open at once, over all groups; half of them may have bytes that are not durable yet.
    """

    segment_bytes_max: int = 64 << 20
    frame_bytes_max: int = 256 << 10
    compression_level: int = 1
    sync_bytes_max: int = 8 << 20
    checkpoint_bytes: int = 8 << 20
    index_stride_bytes: int = 64 << 10
    indices_max: int = 256
    files_max: int = 256

    def __attrs_post_init__(self) -> None:
        for name, found, least, most in (
            ("segment_bytes_max", self.segment_bytes_max, SEGMENT_BYTES_MIN, 1 << 40),
            ("frame_bytes_max", self.frame_bytes_max, FRAME_BYTES_MIN, FRAME_BYTES_LARGEST),
            ("compression_level", self.compression_level, 0, 19),
            ("sync_bytes_max", self.sync_bytes_max, 1, 1 << 40),
            ("checkpoint_bytes", self.checkpoint_bytes, 1, 1 << 40),
            ("index_stride_bytes", self.index_stride_bytes, 1, 1 << 40),
            ("indices_max", self.indices_max, 1, 1 << 20),
            ("files_max", self.files_max, 4, 1 << 20),
        ):
            if not least <= found <= most:
                raise ConfigError(f"deliveries.{name} is {found}, expected {least} to {most}")


@frozen
class DeliveryRetention:
    """Bounds of how much of a partition is kept; None is no bound.

    `bytes_min`: a segment is removed once the ones after it hold as much. `age_ms_max`: a segment is removed
    once its newest delivery is older. Either is enough. Whole segments only.
    """

    bytes_min: int | None = None
    age_ms_max: int | None = None

    def __attrs_post_init__(self) -> None:
        for name, found in (("retention_bytes", self.bytes_min), ("retention_ms", self.age_ms_max)):
            if found is not None and found < 0:
                raise ConfigError(f"{name} is {found}, 0 or more is needed, or none to keep everything")
