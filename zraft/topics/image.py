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
from zraft.topics.pending import Entry
from zraft.topics.rows import Row
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId
from zraft_core.topics import layouts
from zraft_core.topics.layouts import array, formatted, from_bytes, number, pack_view, to_bytes, wrong
from zraft_core.topics.message import DIGEST_BYTES, as_fields
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.view import View

FORMAT: Final = 1
ITEMS_PER_PIECE: Final = 256
_HEAD, _PENDING, _SETTLED, _ROWS, _FLOORS, _OFFSETS, _END = range(1, 8)
_HEAD_FIELDS: Final = 12
_SIGNED: Final = layouts.integer(-1, layouts.NUMBER_MAX)


def partition_image(partition: Partition) -> Iterator[bytes]:
    """The pieces of a snapshot. The partition must not change until the last one is taken."""
    settings = partition.settings
    yield to_bytes(
        (
            FORMAT,
            _HEAD,
            (
                partition.group,
                (settings.window, settings.consumers_max),
                pack_view(partition.view.whole()),
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
    """Equal on all replicas that applied the same entries (D-26)."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for piece in partition_image(partition):
        digest.update(piece)
    return digest.digest()


def _by_time(entry: Entry) -> int:
    return entry.time


def _by_final(entry: Entry) -> tuple[int, int]:
    assert entry.final is not None
    return entry.final


def _pieces(kind: int, items: Iterable[Any]) -> Iterator[bytes]:
    remaining = iter(items)
    while some := list(islice(remaining, ITEMS_PER_PIECE)):
        yield to_bytes((FORMAT, kind, some))


def _pack_entry(entry: Entry) -> tuple[Any, ...]:
    return (
        as_fields(entry.message),
        entry.digest,
        entry.time,
        sorted(entry.proposals.items()),
        entry.void,
        entry.final,
        sorted(entry.waiting),
        entry.began_ms,
    )


def _pack_row(producer: int, row: Row) -> tuple[Any, ...]:
    fields = producer, row.floor, row.last, sorted(row.outcomes.items())
    if not row.staged:
        return fields
    staged = [row.staged[seq] for seq in sorted(row.staged)]
    return (*fields, [(as_fields(entry.message), entry.digest, entry.began_ms) for entry in staged])


def read_image(pieces: Iterable[bytes]) -> Partition:
    """The partition of a snapshot's pieces.

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
    found: int = layouts.integer(_HEAD, _END).unpack(kind, "kind of a piece")
    return found, array(items, "piece of a group's snapshot")


def _read_head(items: tuple[Any, ...]) -> tuple[Partition, int]:
    head = array(items, "head of a snapshot", _HEAD_FIELDS)
    group, settings, view, born, clock, floor, sub, next_offset, chain, conflicts, log_time_ms, count = head
    window, consumers_max = array(settings, "settings of a group", 2)
    whole = layouts.view.unpack(view, "view of a group")
    if not isinstance(whole, View):
        raise wrong("view of a group", "a whole one", view)
    partition = Partition(
        GroupId(layouts.group.unpack(group, "group")),
        whole,
        born=layouts.boolean.unpack(born, "born"),
        settings=PartitionSettings(
            layouts.from_one.unpack(window, "window"), number.unpack(consumers_max, "consumers_max")
        ),
    )
    partition.clock = number.unpack(clock, "clock")
    partition.floor = layouts.final_time.unpack(floor, "floor")
    partition.sub = number.unpack(sub, "sub")
    partition.next_offset = number.unpack(next_offset, "next offset")
    partition.chain = layouts.digest.unpack(chain, "chain of digests")
    partition.conflicts = number.unpack(conflicts, "conflicts")
    partition.restore_log_time(number.unpack(log_time_ms, "log time"))
    return partition, number.unpack(count, "number of pending messages")


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
                group, floor = array(item, "floor of a group", 2)
                at = layouts.final_time.unpack(floor, "floor of a group")
                partition.floors[GroupId(layouts.group.unpack(group, "group"))] = at
            case 6:
                consumer, offset = array(item, "offset of a consumer", 2)
                partition.offsets[layouts.consumer.unpack(consumer, "consumer")] = number.unpack(
                    offset, "offset of a consumer"
                )
            case _:
                raise wrong("snapshot of a group", "nothing in its last piece", item)


def _read_entry(item: Any) -> Entry:
    packed, digest, time, proposals, void, final, waiting, began_ms = array(item, "message of a snapshot", 8)
    message = layouts.message.unpack(packed, "message of a snapshot")
    entry = Entry(
        message,
        layouts.digest.unpack(digest, "digest of a message"),
        layouts.from_one.unpack(time, "proposal"),
        layouts.optional(layouts.boolean).unpack(void, "void"),
        number.unpack(began_ms, "log time of a message"),
    )
    for proposal in array(proposals, "proposals of a message"):
        group, proposed = array(proposal, "proposal", 2)
        if group not in message.destinations:
            raise wrong("proposal", "one of a destination", group)
        entry.proposals[group] = layouts.from_one.unpack(proposed, "proposal")
    entry.final = layouts.optional(layouts.final_time).unpack(final, "final time")
    entry.waiting = set(layouts.groups.unpack(waiting, "destinations that are waited for"))
    return entry


def _read_row(partition: Partition, item: Any) -> None:
    fields = array(item, "row of a producer")
    if len(fields) not in (4, 5):
        raise wrong("row of a producer", "an array of 4 or 5", item)
    producer, floor, last, outcomes = fields[:4]
    row = partition.restore_row(layouts.producer.unpack(producer, "producer"))
    row.floor = number.unpack(floor, "floor of a producer")
    row.last = number.unpack(last, "last number of a producer")
    for pair in array(outcomes, "outcomes of a producer"):
        seq, offset = array(pair, "outcome", 2)
        row.outcomes[layouts.from_one.unpack(seq, "number")] = _SIGNED.unpack(offset, "outcome")
    for staged in array(fields[4], "staged messages of a producer") if len(fields) > 4 else ():
        packed, digest, began_ms = array(staged, "staged message", 3)
        message = layouts.staged.unpack(packed, "staged message")
        if message.mid.producer != producer:
            raise wrong("staged message", f"one of producer {producer}", packed)
        its_digest = layouts.digest.unpack(digest, "digest of a message")
        partition.restore_staged(
            Entry(message, its_digest, 0, False, number.unpack(began_ms, "log time of a message"))
        )
