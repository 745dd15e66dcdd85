"""Entries from what the servers hold: decoded, in order, none missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from onyxlog.errors import EntryError, OvertakenError
from onyxlog.ids import Position
from onyxlog.peer.log.layout import LogLayout
from onyxlog.replica.codec import decode_record
from onyxlog.replica.commands import Entry


class MissingEntryError(EntryError):
    """An entry is not there; `position` says which."""

    def __init__(self, message: str, position: Position) -> None:
        super().__init__(message)
        self.position = position


def entries_of(
    layout: LogLayout, rows: Iterable[tuple[Position, bytes]], first: Position, following: Position
) -> tuple[Entry, ...]:
    """Return the entries of positions from `first` on, in front of `following`, which must all be there.

    Raises:
        MissingEntryError: peers that had read it before it was removed go on with replicas that nobody can compute again.
        EntryError: one cannot be decoded.
    """
    found = []
    expected = first
    for position, data in rows:
        if position != expected:
            raise missing(layout, expected)
        found.append(Entry(position, decode_record(data, layout.entry(position))))
        expected += 1
    if expected < following:
        raise missing(layout, expected)
    return tuple(found)


def missing(layout: LogLayout, position: Position) -> MissingEntryError:
    """Return the error for an entry that is missing although the log goes on behind it."""
    return MissingEntryError(
        f"{layout.entry(position)}: missing, though the log goes on behind it: somebody removed it. "
        "Entries are removed by garbage collection only; begin another tenancy, or restore the servers' backup",
        position,
    )


def overtaken(layout: LogLayout, position: Position, first: Position) -> OvertakenError:
    """Return the error for an entry that garbage collection has removed."""
    return OvertakenError(
        f"{layout.entry(position)}: gone, the log begins at {first} by now; begin at the origin"
    )
