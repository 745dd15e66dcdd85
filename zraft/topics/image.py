"""The state of a partition as bytes: pieces of a snapshot, and the digest of a state. Pure.

Everything stands in one order, so that equal states have equal bytes. What follows from the rest is not in it. The size is
bounded by what leaders admit as pending and by the producers' windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

from zraft.topics.partition import Partition
from zraft.topics.pending import PendingMessage
from zraft.topics.rows import ProducerRow
from zraft_core.errors import ProtocolError
from zraft_core.layout import (
    NUMBER_MAX,
    Record,
    array,
    boolean,
    formatted,
    from_bytes,
    from_one,
    integer,
    listed,
    number,
    optional,
    row,
    to_bytes,
    wrong,
)
from zraft_core.topics import forms
from zraft_core.topics.message import DIGEST_BYTES, as_fields
from zraft_core.topics.registry_values import PartitionSettings

FORMAT: Final = 1
ITEMS_PER_PIECE: Final = 256
_HEAD, _PENDING, _SETTLED, _ROWS, _FLOORS, _OFFSETS, _END = range(1, 8)
_KIND: Final = integer(_HEAD, _END)
_HEAD_FORM: Final = row(
    group=forms.group,
    settings=Record(PartitionSettings, from_one, number).form,
    view=forms.whole_view,
    born=boolean,
    clock=number,
    floor=forms.final_time,
    sub=number,
    next_offset=number,
    chain=forms.digest,
    conflicts=number,
    log_time_ms=number,
    pending=number,
)
_ENTRY_FIELDS: Final = 8
"""The number of a message's fields; one about which others have testified has one more."""
_ENTRY: Final = row(
    message=forms.message,
    digest=forms.digest,
    time=from_one,
    proposals=listed(row(group=forms.group, time=from_one), forms.DESTINATIONS_MAX),
    void=optional(boolean),
    final=optional(forms.final_time),
    waiting=forms.groups,
    began_ms=number,
)
_TESTIFIED: Final = listed(row(group=forms.group, epoch=number), forms.DESTINATIONS_MAX)
_ROW: Final = row(
    producer=forms.producer,
    floor=number,
    last=number,
    outcomes=listed(row(seq=from_one, offset=integer(-1, NUMBER_MAX)), forms.LISTED_MAX),
)
_STAGED: Final = listed(row(message=forms.staged, digest=forms.digest, began_ms=number), forms.LISTED_MAX)
_FLOOR: Final = row(group=forms.group, floor=forms.final_time)
_OFFSET: Final = row(consumer=forms.consumer, offset=number)


def partition_image(partition: Partition) -> Iterator[bytes]:
    """Yield the pieces of a snapshot. The partition must not change until the last one is taken."""
    settings = partition.settings
    yield to_bytes(
        (
            FORMAT,
            _HEAD,
            (
                partition.group,
                (settings.window, settings.consumers_max),
                forms.pack_view(partition.view.whole()),
                partition.born,
                partition.clock,
                partition.floor,
                partition.sub,
                partition.next_offset,
                partition.chain,
                partition.conflicts,
                partition.log_time_ms,
                len(partition.pending),
            ),
        )
    )
    pending = sorted(partition.pending.entries.values(), key=_by_time)
    settled = sorted(partition.settled.entries.values(), key=_by_final)
    yield from _pieces(_PENDING, (_pack_entry(entry) for entry in pending))
    yield from _pieces(_SETTLED, (_pack_entry(entry) for entry in settled))
    yield from _pieces(_ROWS, (_pack_row(p, partition.rows[p]) for p in sorted(partition.rows)))
    yield from _pieces(_FLOORS, sorted(partition.floors.items()))
    yield from _pieces(_OFFSETS, sorted(partition.offsets.items()))
    yield to_bytes((FORMAT, _END, ()))


def state_digest(partition: Partition) -> bytes:
    """Return the digest of the state, equal on all replicas that applied the same entries (D-26)."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for piece in partition_image(partition):
        digest.update(piece)
    return digest.digest()


def _by_time(entry: PendingMessage) -> int:
    return entry.time


def _by_final(entry: PendingMessage) -> tuple[int, int]:
    assert entry.final is not None
    return entry.final


def _pieces(kind: int, items: Iterable[Any]) -> Iterator[bytes]:
    remaining = iter(items)
    while some := list(islice(remaining, ITEMS_PER_PIECE)):
        yield to_bytes((FORMAT, kind, some))


def _pack_entry(entry: PendingMessage) -> tuple[Any, ...]:
    fields = (
        as_fields(entry.message),
        entry.digest,
        entry.time,
        sorted(entry.proposals.items()),
        entry.void,
        entry.final,
        sorted(entry.waiting),
        entry.began_ms,
    )
    return fields if entry.testified is None else (*fields, sorted(entry.testified.items()))


def _pack_row(producer: int, row: ProducerRow) -> tuple[Any, ...]:
    fields = producer, row.floor, row.last, sorted(row.outcomes.items())
    if not row.staged:
        return fields
    staged = [row.staged[seq] for seq in sorted(row.staged)]
    return (*fields, [(as_fields(entry.message), entry.digest, entry.began_ms) for entry in staged])


def read_image(pieces: Iterable[bytes]) -> Partition:
    """Return the partition of a snapshot's pieces.

    Raises:
        ProtocolError: they are not all pieces of one snapshot, in order, of a format that is known.
    """
    remaining = iter(pieces)
    kind, items = _piece(next(remaining, b""))
    if kind != _HEAD:
        raise wrong("snapshot of a group", "its head first", kind)
    partition, expected = _read_head(items)
    last = _HEAD
    for piece in remaining:
        if last == _END:
            raise ProtocolError("snapshot of a group: expected nothing after its end")
        kind, items = _piece(piece)
        if kind < last or kind == _HEAD:
            raise wrong("snapshot of a group", f"a piece of kind {last} or more", kind)
        last = kind
        _read_items(partition, kind, items)
    if last != _END:
        raise ProtocolError("snapshot of a group: expected more pieces, found its end missing")
    if len(partition.pending) != expected:
        raise wrong("snapshot of a group", f"{expected} pending messages", len(partition.pending))
    return partition


def _piece(piece: bytes) -> tuple[int, tuple[Any, ...]]:
    _, kind, items = formatted(from_bytes(piece), "piece of a group's snapshot", FORMAT, 3)
    found: int = _KIND.unpack(kind, "kind of a piece")
    return found, array(items, "piece of a group's snapshot")


def _read_head(items: tuple[Any, ...]) -> tuple[Partition, int]:
    head = _HEAD_FORM.unpack(items, "head of a snapshot")
    group, settings, view, born, clock, floor, sub, next_offset, chain, conflicts, log_time_ms, count = head
    partition = Partition(group, view, born=born, settings=settings)
    partition.clock = clock
    partition.floor = floor
    partition.sub = sub
    partition.next_offset = next_offset
    partition.chain = chain
    partition.conflicts = conflicts
    partition.restore_log_time(log_time_ms)
    return partition, count


def _read_items(partition: Partition, kind: int, items: tuple[Any, ...]) -> None:
    for item in items:
        match kind:
            case 2:
                partition.restore_pending(_read_entry(item))
            case 3:
                partition.restore_settled(_read_entry(item))
            case 4:
                _read_row(partition, item)
            case 5:
                group, floor = _FLOOR.unpack(item, "floor of a group")
                partition.floors[group] = floor
            case 6:
                consumer, offset = _OFFSET.unpack(item, "offset of a consumer")
                partition.offsets[consumer] = offset
            case _:
                raise wrong("snapshot of a group", "nothing in its last piece", item)


def _read_entry(item: Any) -> PendingMessage:
    fields = array(item, "message of a snapshot")
    if len(fields) not in (_ENTRY_FIELDS, _ENTRY_FIELDS + 1):
        raise wrong("message of a snapshot", f"an array of {_ENTRY_FIELDS} or {_ENTRY_FIELDS + 1}", item)
    message, digest, time, proposals, void, final, waiting, began_ms = _ENTRY.unpack(
        fields[:_ENTRY_FIELDS], "message of a snapshot"
    )
    entry = PendingMessage(message, digest, time, void, began_ms)
    if len(fields) > _ENTRY_FIELDS:
        entry.testified = dict(_TESTIFIED.unpack(fields[_ENTRY_FIELDS], "testimonies of a message"))
    for group, proposed in proposals:
        if group not in message.destinations:
            raise wrong("proposal", "one of a destination", group)
        entry.proposals[group] = proposed
    entry.final = final
    entry.waiting = set(waiting)
    return entry


def _read_row(partition: Partition, item: Any) -> None:
    fields = array(item, "row of a producer")
    if len(fields) not in (4, 5):
        raise wrong("row of a producer", "an array of 4 or 5", item)
    producer, floor, last, outcomes = _ROW.unpack(fields[:4], "row of a producer")
    row = partition.restore_row(producer)
    row.floor = floor
    row.last = last
    row.outcomes.update(outcomes)
    for message, digest, began_ms in _STAGED.unpack(fields[4], "staged messages") if len(fields) > 4 else ():
        if message.mid.producer != producer:
            raise wrong("staged message", f"one of producer {producer}", message.mid)
        partition.restore_staged(PendingMessage(message, digest, 0, False, began_ms))
