"""Records: their bytes round-trip, and nothing else is taken for one."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zraft.raft.messages import Entry, EntryKind, HardState
from zraft.storage.records import (
    BaseRecord,
    EntryRecord,
    HardStateRecord,
    Record,
    RecordFormatError,
    RecordReader,
    RosterRecord,
    TruncateRecord,
    decode_record,
    encode_records,
)
from zraft_core.ids import GroupId, Instance, ServerId

u63 = st.integers(0, (1 << 63) - 1)
groups = u63.map(GroupId)
servers = st.integers(1, 254).map(ServerId)
instances = st.binary(min_size=16, max_size=16).map(Instance)
records = st.one_of(
    st.builds(
        EntryRecord,
        groups,
        st.builds(Entry, u63, u63, st.sampled_from(EntryKind), u63, u63, st.binary(max_size=300)),
    ),
    st.builds(HardStateRecord, groups, st.builds(HardState, u63, st.none() | servers)),
    st.builds(TruncateRecord, groups, u63),
    st.builds(RosterRecord, groups, st.lists(st.tuples(servers, instances), max_size=5).map(tuple)),
)


def decode(body: bytes) -> list[Record | BaseRecord]:
    return [decode_record(fields) for fields in RecordReader().arrays(body)]


@given(st.lists(records, min_size=1, max_size=8))
def test_records_round_trip(written: list[Record]) -> None:
    decoded = decode(encode_records(written))
    assert decoded == written
    assert all(type(r.entry.kind) is EntryKind for r in decoded if isinstance(r, EntryRecord))


def test_one_reader_reads_many_bodies() -> None:
    reader = RecordReader()
    for index in range(1, 50):
        written = [TruncateRecord(GroupId(0), index)] * index
        assert [decode_record(fields) for fields in reader.arrays(encode_records(written))] == written


objects = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 300)
    | st.binary(max_size=20)
    | st.text(max_size=5)
    | st.floats(),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=12,
)


@settings(max_examples=400)
@given(objects | st.lists(st.integers(0, 6) | st.binary(max_size=2) | st.booleans(), min_size=3, max_size=8))
def test_other_objects_are_refused_or_mean_what_they_say(thing: object) -> None:
    try:
        (record,) = decode(msgpack.packb(thing))
    except RecordFormatError:
        return
    assert encode_records([record]) == msgpack.packb(thing)


@settings(max_examples=400)
@given(st.binary(max_size=60), st.integers(0, 60))
def test_random_and_cut_bodies_raise_only_the_declared_error(noise: bytes, cut: int) -> None:
    good = encode_records([EntryRecord(GroupId(1), Entry(1, 1, EntryKind.NOOP, 1, 0, b"payload" * 5))])
    for body in (noise, good[:cut] + noise, good[: min(cut, len(good) - 1)]):
        if body:
            try:
                decode(body)
            except RecordFormatError:
                continue
            assert not good.startswith(body) or body == good


def test_unknown_kind_is_named() -> None:
    with pytest.raises(RecordFormatError, match="record of kind 9, this release knows"):
        decode(msgpack.packb((9, 0, 1)))


@pytest.mark.parametrize(
    "fields",
    [
        (2, 0, 1, 1, 3, 1, 0, b""),  # unknown entry kind
        (2, -1, 1, 1, 0, 1, 0, b""),
        (2, 0, 1, True, 0, 1, 0, b""),
        (3, 0, 1, 0),  # server 0
        (3, 0, 1, 255),
        (3, 0, -1, None),
        (5, 0, ((1, b"short"),)),
        (4, 0),
        (0,),
        (),
    ],
)
def test_values_out_of_range_are_refused(fields: tuple[Any, ...]) -> None:
    with pytest.raises(RecordFormatError):
        decode(msgpack.packb(fields))
