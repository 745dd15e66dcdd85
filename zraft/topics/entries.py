"""Entries in the log of a partition's group: its birth first, then batches of topics' and claims' commands.

Pure.

docs/explanation/topics.md, "Formats".
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft_core.claims.codec import decode_command, encode_command
from zraft_core.claims.commands import ClaimCommand
from zraft_core.errors import ProtocolError
from zraft_core.layout import (
    Record,
    array,
    binary,
    boolean,
    found,
    from_bytes,
    listed,
    number,
    row,
    to_bytes,
    wrong,
)
from zraft_core.topics import forms
from zraft_core.topics.codec import decode_batch, encode_batch
from zraft_core.topics.commands import Batch
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.view import View

FORMAT: Final = 1
_BATCH, _BIRTH = 1, 2


@frozen
class BatchEntry:
    """One turn's commands. Those of topics come first, in positions as well; all have the batch's log time.

    `wall_ms`: for people and for retention.
    """

    wall_ms: int
    batch: Batch
    claims: tuple[ClaimCommand, ...] = ()

    @property
    def count(self) -> int:
        """The number of positions of the log that the entry takes (D-16)."""
        return len(self.batch.commands) + len(self.claims)


@frozen
class BirthEntry:
    """Birth of a partition: what its leader found in group 0's state.

    Only the first one of a log counts.

    `born`, `first_offset` and `first_time` as in `Partition`; `heartbeat_ms` is that of claims until somebody configures
    another one.
    """

    wall_ms: int
    log_time_ms: int
    view: View
    settings: PartitionSettings
    born: bool
    heartbeat_ms: int
    first_offset: int = 0
    first_time: int = 0
    count: int = 1


PartitionEntry = BatchEntry | BirthEntry


_BATCH_FIELDS: Final = row(
    format=number,
    kind=number,
    wall_ms=number,
    batch=binary(1, 1 << 30),
    claims=listed(binary(1, 1 << 20), forms.VALUES_MAX),
)
_LEAST_OF_BIRTH: Final = 6
_BIRTH_FIELDS: Final = Record(
    BirthEntry,
    *(number, number, forms.whole_view, forms.partition_settings, boolean, number),
    *(number, number),
    least=_LEAST_OF_BIRTH,
)


def encode_entry(entry: PartitionEntry) -> bytes:
    """Return the payload of one entry of a partition's log."""
    if isinstance(entry, BatchEntry):
        claims = [encode_command(command) for command in entry.claims]
        return to_bytes((FORMAT, _BATCH, entry.wall_ms, encode_batch(entry.batch), claims))
    fields = _BIRTH_FIELDS.pack(entry)
    return to_bytes((FORMAT, _BIRTH, *(fields if entry.first_offset else fields[:_LEAST_OF_BIRTH])))


def decode_entry(payload: bytes | memoryview) -> PartitionEntry:
    """Return the entry of exactly these bytes.

    Raises:
        ProtocolError: they are not one; the group must stop, because all its replicas would have to guess alike (D-5).
    """
    items = array(from_bytes(payload), "entry of a partition's log")
    if len(items) < 3 or items[0] != FORMAT:
        raise ProtocolError(
            f"entry of a partition's log: expected an array of format {FORMAT}, found {found(items[:1])}: a newer "
            "release wrote it; upgrade this server"
        )
    if items[1] == _BATCH:
        _, _, wall_ms, batch, claims = _BATCH_FIELDS.unpack(items, "entry of a partition's log")
        return BatchEntry(wall_ms, decode_batch(batch), tuple([decode_command(one) for one in claims]))
    if items[1] == _BIRTH:
        birth: BirthEntry = _BIRTH_FIELDS.form.unpack(items[2:], "birth of a partition")
        return birth
    raise wrong("kind of a partition's entry", f"{_BATCH} or {_BIRTH}; a newer release may know it", items[1])
