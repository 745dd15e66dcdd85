"""Claims: an owner's right to consume a partition, or a range of it, for one consumer group.

Offsets are dense, from 0; an end (`upto`) is exclusive. Times are milliseconds of log time (D-12), never of a
reader's clock. An epoch is the log position of the command that was granted the claim (D-16).
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

from attrs import frozen

HEARTBEAT_MS_DEFAULT: Final = 3_000
"""A dead owner is replaced after two of them and the time that claiming takes: well within ten seconds."""
HEARTBEAT_MS_MIN: Final = 100
HEARTBEAT_MS_MAX: Final = 3_600_000

NAME_BYTES_MAX: Final = 255
"""The most bytes of names of groups and clients, and of instances."""
GROUPS_MAX: Final = 1_024
"""Consumer groups that one partition knows; `Forget` makes room."""
RANGES_MAX: Final = 256
"""Live claims, and finished ranges above the first unfinished message, of one group: what its record may grow to."""
PARTITION_RANGES_MAX: Final = 8_192
"""The same of all groups of a partition together: a few megabytes, and as much in its snapshot."""
RANGE_MESSAGES_MAX: Final = 1_000_000
FUTURE_MESSAGES_MAX: Final = 1_000_000
"""The distance beyond the partition's end to which a range may reach that is claimed in advance."""
PAUSE_MS_MAX: Final = 7 * 86_400_000
"""A longer pause is somebody's mistake, and nobody would remember who made it."""


@unique
class Mode(IntEnum):
    """Moments at which a message counts as consumed."""

    AT_LEAST_ONCE = 0
    """A message counts after it was processed: `Commit` and `Heartbeat` tell how far."""
    AT_MOST_ONCE = 1
    """A message counts before it is processed: `CommitBatch` must have been accepted."""


@unique
class Freshness(IntEnum):
    """Grades of how long ago an owner was heard (M-4)."""

    FRESH = 0
    UNKNOWN = 1
    """Its owner has stopped, unless a heartbeat of it is on its way; nobody else may claim yet."""
    STALE = 2


def freshness(heard_ms: int, log_time_ms: int, heartbeat_ms: int) -> Freshness:
    """Return how long ago an owner was heard, by log time alone.

    So every replica and every replay gets the same result.

    Log time never goes back, so an owner heard "in the future" does not exist; if it did it would be fresh.
    """
    silent_ms = log_time_ms - heard_ms
    if silent_ms < heartbeat_ms:
        return Freshness.FRESH
    # The owner stops one interval after it sent what was heard last. The second one is what the clocks of owner
    # and leader may differ by meanwhile.
    return Freshness.UNKNOWN if silent_ms < 2 * heartbeat_ms else Freshness.STALE


@frozen
class Owner:
    """A process: `client` is its stable id, `instance` is drawn anew at every start (M-2)."""

    client: str
    instance: str


@frozen
class Claim:
    """One claim as it stands in the state.

    It covers [`first`, `upto`), or everything from `first` on if `upto` is None. `committed` is the first offset not
    known to be processed, `claimed` (at most once) the first that was not given out for processing. `attempt` tells a
    repeated claim from another one of the same process; `beat` is the number of the last heartbeat.
    """

    epoch: int
    owner: Owner
    attempt: int
    mode: Mode
    first: int
    upto: int | None
    entire_topic: bool
    heartbeat_ms: int
    claimed_ms: int
    heard_ms: int
    beat: int
    committed: int
    claimed: int

    @property
    def position(self) -> int:
        """The offset at which a successor starts."""
        return max(self.committed, self.claimed)

    @property
    def is_complete(self) -> bool:
        """Everything in its range is processed."""
        return self.upto is not None and self.committed >= self.upto

    def covers(self, first: int, upto: int | None) -> bool:
        """Return whether the claim has an offset in common with [first, upto)."""
        return (self.upto is None or first < self.upto) and (upto is None or self.first < upto)

    def freshness(self, log_time_ms: int) -> Freshness:
        """Return how long ago the owner was heard, at this log time."""
        return freshness(self.heard_ms, log_time_ms, self.heartbeat_ms)


def is_name(name: str) -> bool:
    """Return whether the name of a group or a client has a permitted length in bytes."""
    return 0 < len(name.encode(errors="surrogatepass")) <= NAME_BYTES_MAX
