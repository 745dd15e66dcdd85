"""Decision which segments of a partition have been kept long enough. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from zraft.storage.delivery.manifest import Segment
from zraft.storage.delivery.settings import DeliveryRetention


def expired_until(
    segments: Sequence[Segment], retention: DeliveryRetention, now_ms: int, *, keep_from: int | None = None
) -> int | None:
    """Return the offset up to which whole segments can go; None if none can.

    Args:
        segments: all of them, oldest first.
        now_ms: wall time, as in the deliveries.
        keep_from: deliveries from this offset on stay, whatever the retention says: what others have not taken yet.
    """
    until: int | None = None
    kept = sum(segment.size for segment in segments)
    for segment in segments:
        if keep_from is not None and segment.end.offset > keep_from:
            break
        kept -= segment.size
        too_large = retention.bytes_min is not None and kept >= retention.bytes_min
        too_old = retention.age_ms_max is not None and segment.time < now_ms - retention.age_ms_max
        if not too_large and not too_old:
            break
        until = segment.end.offset
    return until
