"""Triggers: when what a window holds is told to others. What fires is decided in `onyxlog.jobs.state`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final, NamedTuple

from attrs import field, frozen

from onyxlog.jobs.predicates import Predicate
from onyxlog.jobs.windows import Extent

RESULT: Final = "result"
"""The name that stands for the `emit` function that makes {"group", "start", "end", "result"} of a firing."""


@frozen
class Segments:
    """Trigger that fires as soon as an extent has `count` new segments since it fired for it."""

    TYPE: ClassVar = "segments"
    count: int


@frozen
class Timer:
    """Trigger that fires every `period_ms`, for all extents that changed since."""

    TYPE: ClassVar = "timer"
    period_ms: int


@frozen
class Punctuation:
    """Trigger that fires when a segment comes for which the predicate holds.

    The segment is in the window already.
    """

    TYPE: ClassVar = "punctuation"
    predicate: Predicate


@frozen
class Watermark:
    """Trigger that fires once time has passed an extent's end, and for every segment that comes later.

    The time is the latest time of any segment that came to this worker. `delay_ms`: how much later it fires,
    for segments that are out of order. `percent` below 100: it fires once time has passed that much of the
    extent, beginning at its start.
    """

    TYPE: ClassVar = "watermark"
    percent: int = 100
    delay_ms: int = 0

    def due(self, extent: Extent) -> int:
        """Return the time at which it fires, if nothing is out of order."""
        return extent.start + (extent.end - extent.start) * self.percent // 100


@frozen
class Complete:
    """Trigger that fires once all inputs are exhausted and all their segments have come, for all extents."""

    TYPE: ClassVar = "complete"


TriggerType = Segments | Timer | Punctuation | Watermark | Complete


class Evict(StrEnum):
    """Choices of what an extent holds after it fired."""

    NONE = "none"
    """The extent keeps all that it held: the next firing tells the total."""
    ALL = "all"
    """The extent keeps nothing: the next firing tells what came since."""


class Cause(StrEnum):
    """Reasons for which a trigger fired."""

    SEGMENTS = "segments"
    TIMER = "timer"
    PUNCTUATION = "punctuation"
    WATERMARK = "watermark"
    COMPLETE = "complete"


@frozen
class Trigger:
    """Rule of when a window fires, and what then happens.

    `emit`: a function from a `Firing` to a segment, several, or None, which flow on to the next tasks;
    "result" stands for {"group", "start", "end", "result"}. `sync`: a function that does something in the
    world with a `Firing`; it may be called again for one that was told before a failure. A trigger has at
    least one of them.

    `on_complete`: fire also once there will be no more segments, for extents that changed since they were
    told. `fire_all_extents`: when one extent fires, so do all others of its group.
    """

    id: str
    window: str
    on: TriggerType
    emit: str | None = None
    sync: str | None = None
    params: Mapping[str, Any] = field(factory=dict, hash=False)
    evict: Evict = Evict.NONE
    fire_all_extents: bool = False
    on_complete: bool = True
    doc: str = ""


class Firing(NamedTuple):
    """Message of a trigger about one extent of one group. `group` is None where the task is not grouped."""

    window: str
    trigger: str
    group: Any
    extent: Extent
    result: Any
    cause: Cause


def as_segment(firing: Firing) -> dict[str, Any]:
    """Return the segment that "result" emits."""
    return {
        "group": firing.group,
        "start": firing.extent.start,
        "end": firing.extent.end,
        "result": firing.result,
    }
