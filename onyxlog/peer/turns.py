"""Decisions of a group's core, as values: appends to the log, and acts in the world."""

from __future__ import annotations

from attrs import frozen

from onyxlog.ids import GroupId, Position
from onyxlog.peer.log.port import Origin
from onyxlog.replica.commands import Record
from onyxlog.replica.effects import Effect


@frozen
class Append:
    """An append. `number` counts this incarnation's appends from 0."""

    number: int
    record: Record


@frozen
class Truncate:
    """Store this origin and forget the log up to it; `forgotten`: groups whose digests nobody looks at any more."""

    origin: Origin
    forgotten: tuple[GroupId, ...]


@frozen
class Act:
    """Act to do because of the entry at `position`."""

    position: Position
    what: Effect | Truncate


@frozen
class Turn:
    """Things to do, in order.

    Acts come before appends: what an append promises to others is already under way.
    """

    appends: tuple[Append, ...] = ()
    acts: tuple[Act, ...] = ()

    def __add__(self, other: Turn) -> Turn:
        return Turn(self.appends + other.appends, self.acts + other.acts)
