"""Records of the write-ahead log, and their bytes.

A record is a MessagePack array that starts with its kind and its group. A kind's layout never changes;
a new layout is a new kind, so the number is the record's format version (D-5).
See docs/explanation/storage.md, "Records".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import msgpack
from attrs import fields, frozen

from zraft.raft.messages import NO_INDEX, Entry, EntryKind, HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft_core import layout
from zraft_core.errors import ProtocolError
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN, GroupId, Instance, ServerId

FRAME_KIND: Final = 1  # the frame's own head, see frames.py
ENTRY_KIND: Final = 2
HARD_STATE_KIND: Final = 3
TRUNCATE_KIND: Final = 4
ROSTER_KIND: Final = 5
BASE_KIND: Final = 6
RESTORE_KIND: Final = 7
FORGET_KIND: Final = 8

RECORD_BYTES_MAX: Final = 256 << 20
"""Largest record and frame body: what recovery may have to hold in memory at once; batches are far smaller."""
ARRAY_ITEMS_MAX: Final = 1 << 10
"""No array of ours is longer (a roster has at most 254 rows); keeps damaged lengths from allocating memory."""

_ENTRY_KINDS: Final = tuple(EntryKind)  # calling the Enum costs more than the rest of an entry
assert all(kind == at for at, kind in enumerate(_ENTRY_KINDS))

Roster = tuple[tuple[ServerId, Instance], ...]
EntryFields = tuple[int, GroupId, int, int, int, int, int, bytes]
"""An ENTRY record as unpacked: kind, group, index, term, entry kind, position, count, payload."""


@final
@frozen
class EntryRecord:
    """`entry` is appended to the group's log: its index is one above the last."""

    group: GroupId
    entry: Entry


@frozen
class HardStateRecord:
    """Record that replaces the group's term and vote, both at once."""

    group: GroupId
    hard_state: HardState


@frozen
class TruncateRecord:
    """The entries `from_index` and above are no longer in the group's log. Their bytes stay (D-10)."""

    group: GroupId
    from_index: int


@frozen
class RosterRecord:
    """The instances this server has agreed to bootstrap the group with (D-1)."""

    group: GroupId
    roster: Roster


@frozen
class RestoreRecord:
    """The group's whole log is dropped; it begins after the snapshot that `meta` describes, which is durable here."""

    group: GroupId
    meta: SnapshotMeta


@frozen
class ForgetRecord:
    """The group is gone for good: nothing of it is needed or restated any more. Its id never comes back (D-18)."""

    group: GroupId


@frozen
class BaseRecord:
    """State of a group when a segment was begun: with it, no older segment is needed to know the rest.

    `log` is the end of the log at that moment, index 0 while it is empty. The WAL itself writes these, one per
    group, as the first frame of a segment.
    """

    group: GroupId
    hard_state: HardState
    roster: Roster | None
    log: SnapshotMeta


OtherRecord = HardStateRecord | TruncateRecord | RosterRecord | RestoreRecord | ForgetRecord
Record = EntryRecord | OtherRecord
"""The records that callers of `Wal.append` write. Nearly all of them are entries."""


_END: Final = b"\0"
"""Fed after each body. Unpacker tells "nothing left" and "half an object left" apart only by what comes next:
a whole body is followed by this zero, an incomplete record swallows it."""


class RecordFormatError(ValueError):
    """A frame's body is not a sequence of records; the caller knows the file and offset and says so."""


def _base(
    group: GroupId, term: int, voted_for: ServerId | None, roster: Roster | None, *log: Any
) -> BaseRecord:
    meta = SnapshotMeta(*log)
    if (meta.index > NO_INDEX) != (meta.term > 0):
        raise layout.wrong("BaseRecord.log.term", "0 in an empty log, and 1 or more in any other", meta.term)
    return BaseRecord(group, HardState(term, voted_for), roster, meta)


def _names(place: str, of: type[Any]) -> Iterator[str]:
    """Return the fields of a value that stands in this field of a record, each by itself."""
    return (f"{place}.{field.name}" for field in fields(of))


_index: Final = layout.integer(NO_INDEX, layout.NUMBER_MAX)
_server: Final = layout.integer(SERVER_ID_MIN, SERVER_ID_MAX)
_membership: Final = layout.binary(0, RECORD_BYTES_MAX)
_roster: Final = layout.listed(
    layout.row(server=_server, instance=layout.binary(INSTANCE_BYTES, INSTANCE_BYTES)), ARRAY_ITEMS_MAX
)
_hard_state: Final = (layout.number, layout.optional(_server))

_RECORDS: Final = layout.Kinds[Record | BaseRecord](
    "record",
    {
        ENTRY_KIND: layout.Record(
            EntryRecord,
            layout.number,
            *(_index, layout.number, layout.integer(0, len(_ENTRY_KINDS) - 1), layout.number, layout.number),
            layout.binary(0, RECORD_BYTES_MAX),
            names=("group", *_names("entry", Entry)),
            made=lambda group, index, term, kind, *rest: EntryRecord(
                group, Entry(index, term, _ENTRY_KINDS[kind], *rest)
            ),
        ),
        HARD_STATE_KIND: layout.Record(
            HardStateRecord,
            *(layout.number, *_hard_state),
            names=("group", *_names("hard_state", HardState)),
            made=lambda group, *state: HardStateRecord(group, HardState(*state)),
        ),
        TRUNCATE_KIND: layout.Record(TruncateRecord, layout.number, layout.number),
        ROSTER_KIND: layout.Record(RosterRecord, layout.number, _roster),
        BASE_KIND: layout.Record(
            BaseRecord,
            *(layout.number, *_hard_state, layout.optional(_roster)),
            *(_index, layout.number, layout.from_one, _membership),
            names=("group", *_names("hard_state", HardState), "roster", *_names("log", SnapshotMeta)),
            made=_base,
        ),
        RESTORE_KIND: layout.Record(
            RestoreRecord,
            *(layout.number, layout.from_one, layout.from_one, layout.from_one, _membership),
            names=("group", *_names("meta", SnapshotMeta)),
            made=lambda group, *meta: RestoreRecord(group, SnapshotMeta(*meta)),
        ),
        FORGET_KIND: layout.Record(ForgetRecord, layout.from_one),
    },
)
"""Entries are packed and nearly always read in a shorter way, see `encode_records` and `is_entry`."""


def encode_records(records: Sequence[Record | BaseRecord]) -> bytes:
    """Return the records as concatenated MessagePack arrays."""
    packer = msgpack.Packer(autoreset=False)
    for record in records:
        if type(record) is EntryRecord:
            entry = record.entry
            packer.pack(
                (
                    ENTRY_KIND,
                    record.group,
                    entry.index,
                    entry.term,
                    entry.kind,
                    entry.position,
                    entry.count,
                    entry.payload,
                )
            )
        else:
            packer.pack(_RECORDS.pack(record))
    return bytes(packer.bytes())


class RecordReader:
    """Reader that turns frame bodies into records.

    One reader serves many bodies: making an Unpacker costs more than using it.
    """

    __slots__ = ("_fed", "_unpacker")

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(
            use_list=False,
            max_buffer_size=RECORD_BYTES_MAX,
            max_str_len=0,
            max_bin_len=RECORD_BYTES_MAX,
            max_array_len=ARRAY_ITEMS_MAX,
            max_map_len=0,
            max_ext_len=0,
        )
        self._fed = 0

    def arrays(self, body: bytes | memoryview) -> Iterator[Any]:
        """Yield the body's top-level objects, unchecked; give each to `entry_fields` or `decode_record`.

        Raises:
            RecordFormatError: the body is not whole MessagePack. The reader is of no use afterwards.
        """
        unpacker = self._unpacker
        self._fed += len(body) + len(_END)
        try:
            unpacker.feed(body)
            unpacker.feed(_END)
            for fields in unpacker:
                if fields == 0 and unpacker.tell() == self._fed:
                    return
                yield fields
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise RecordFormatError(
                f"not MessagePack as we write it ({type(error).__name__}: {error})"
            ) from error
        raise RecordFormatError("the last record is incomplete")


def is_entry(fields: Any) -> bool:
    """Return whether an unpacked object is an ENTRY record of the right shape (checked, it comes from a disk)."""
    if type(fields) is not tuple or len(fields) != 8 or fields[0] != ENTRY_KIND:
        return False
    _, group, index, term, kind, position, count, payload = fields
    return (
        type(group) is int
        and type(index) is int
        and type(term) is int
        and type(kind) is int
        and 0 <= kind < len(_ENTRY_KINDS)
        and type(position) is int
        and type(count) is int
        and type(payload) is bytes
        and group >= 0
        and term >= 0
        and count >= 0
    )


def entry_of(fields: EntryFields) -> Entry:
    """Return the entry of fields that `is_entry` accepted."""
    _, _, index, term, kind, position, count, payload = fields
    return Entry(index, term, _ENTRY_KINDS[kind], position, count, payload)


def decode_record(fields: Any) -> Record | BaseRecord:
    """Return one unpacked object as a record.

    Raises:
        RecordFormatError: an unknown kind (a newer release wrote it) or a wrong shape.
    """
    if is_entry(fields):
        return EntryRecord(fields[1], entry_of(fields))
    if type(fields) is tuple and fields and type(fields[0]) is int and fields[0] not in _RECORDS.records:
        raise RecordFormatError(f"record of kind {fields[0]}, this release knows {sorted(_RECORDS.records)}")
    try:
        return _RECORDS.unpack(fields)
    except ProtocolError as error:
        raise RecordFormatError(f"not a record: {error}") from error
