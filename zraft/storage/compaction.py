"""Compaction of a write-ahead log: segments that nobody needs, and when to begin another so that they can go.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from zraft.raft.messages import NO_INDEX
from zraft.storage.group_log import NO_BASE, GroupLog
from zraft.storage.segments import SegmentSpan
from zraft_core.ids import GroupId

ROLL_FRACTION: Final = 4
"""A last segment is closed early if it holds compacted entries and is at least this part (a quarter) full."""


def is_worth_rolling(last: SegmentSpan, compacted: Mapping[GroupId, int], segment_bytes_max: int) -> bool:
    """Return whether what compaction cannot remove yet is mostly in the last segment."""
    covered = any(index > (last.bases or {}).get(group, NO_BASE).index for group, index in compacted.items())
    return covered and last.end >= segment_bytes_max // ROLL_FRACTION


def oldest_needed(
    segments: Sequence[SegmentSpan],
    logs: Mapping[GroupId, GroupLog],
    compacted: Mapping[GroupId, int],
    announced: int,
) -> int:
    """Return the number of the newest segment below which everything can be removed.

    All entries written before it was begun are covered, and no truncation in it or after it reaches back to them: it
    would refer to entries that are gone. Dropping a whole log counts as one: what the segment says the log began with
    is then not of the log that there is now. Truncations of groups that were forgotten since count, too: a start reads
    them before it reads that the group is forgotten.

    Args:
        compacted: by group, up to which entry a durable snapshot covers it.
        announced: number of the newest segment whose loss would be noticed.
    """
    truncated: dict[GroupId, int] = {}
    for span in reversed(segments[1:]):
        for group, index in span.truncated.items():
            truncated[group] = min(index, truncated.get(group, index))
        if (
            span.bases is not None
            and span.number <= announced
            and all(
                base.index < truncated.get(group, base.index + 1)
                and (
                    group not in logs
                    or base.index <= max(logs[group].base.index, compacted.get(group, NO_INDEX))
                )
                for group, base in span.bases.items()
            )
        ):
            return span.number
    return segments[0].number


def bytes_from(segments: Sequence[SegmentSpan], group: GroupId, index: int) -> int:
    """Return the length of the log from the segment on in which the group's entry after `index` stands, if any."""
    begin = segments[0]
    for span in reversed(segments[1:]):
        if span.bases is not None and span.bases.get(group, NO_BASE).index <= index:
            begin = span
            break
    return segments[-1].log_bytes + segments[-1].end - begin.log_bytes
