"""A peer's recording played again: what the log's bytes make of the replica, entry by entry. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from onyxlog.audits.tables.onyx_entries import OnyxEntryRow
from onyxlog.errors import EntryError
from onyxlog.replica.codec import decode_origin, decode_record
from onyxlog.replica.commands import Entry
from onyxlog.replica.digests import CHAIN_START
from onyxlog.replica.playing import play
from onyxlog.replica.replica import Replica

ORIGIN = "origin"


@frozen
class Played:
    """One row and its outcome.

    Attributes:
        before, replica: None where the bytes cannot be played: `problem` says why, and nothing after it
            is until the next origin.
        chain: after it, recomputed; None if the recording began in the middle, without an origin.
    """

    row: OnyxEntryRow
    before: Replica | None
    replica: Replica | None
    chain: bytes | None
    problem: str = ""


def played(rows: Iterator[OnyxEntryRow]) -> Iterator[Played]:
    """Yield the recording of one peer, in order, from each origin on. What comes before the first origin is left out."""
    replica: Replica | None = None
    chain = CHAIN_START
    for row in rows:
        where = f"{row.file}:{row.file_offset}"
        if row.kind == ORIGIN:
            try:
                replica, chain = decode_origin(row.entry, where)
            except EntryError as error:
                replica = None
                yield Played(row, None, None, None, str(error))
            else:
                yield Played(row, None, replica, chain)
            continue
        if replica is None:
            continue
        if row.position != replica.version + 1:
            yield Played(row, replica, None, None, f"position {row.position} after {replica.version}")
            replica = None
            continue
        try:
            record = decode_record(row.entry, where)
        except EntryError as error:
            yield Played(row, replica, None, None, str(error))
            replica = None
            continue
        step = play(replica, Entry(row.position, record), chain)
        yield Played(row, replica, step.replica, step.chain)
        replica, chain = step.replica, step.chain
