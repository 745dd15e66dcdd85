"""Entry gc: what is over is forgotten by all.

The caller makes the replica the origin and truncates the log.
"""

from __future__ import annotations

from typing import Final

from onyxlog.replica.collection import Collected, collected, difference
from onyxlog.replica.commands import Entry, Gc
from onyxlog.replica.effects import Effect, ForgetJob, StoreOrigin
from onyxlog.replica.kind import Kind, Viewer
from onyxlog.replica.kinds.silence import no_reactions
from onyxlog.replica.replica import Replica


def apply(replica: Replica, entry: Entry, command: Gc) -> Replica:
    """Return the replica without what is over."""
    return collected(replica, command, entry.position)


def diff(old: Replica, new: Replica, command: Gc) -> Collected:
    """Return what was forgotten."""
    return difference(old, new)


def effects(
    old: Replica, new: Replica, entry: Entry, diff: Collected | None, viewer: Viewer
) -> tuple[Effect, ...]:
    """Let the caller store the origin and forget the descriptions of jobs."""
    caller: str = entry.command.caller  # type: ignore[union-attr]
    if caller not in (viewer.group, viewer.client) or diff is None:
        return ()
    return (StoreOrigin(entry.position), *(ForgetJob(job) for job in diff.jobs))


KIND: Final = Kind[Gc, Collected](apply, diff, no_reactions, effects)
