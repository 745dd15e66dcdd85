"""Bytes of entries and origins: the same for the same values, back again, and errors that say where."""

from __future__ import annotations

from typing import Any

import attrs
import msgpack
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from onyxlog.errors import EntryError
from onyxlog.replica import commands
from onyxlog.replica.canonical import pack, plain
from onyxlog.replica.codec import (
    FORMAT,
    NAMES,
    decode_origin,
    decode_record,
    encode_origin,
    encode_record,
    name_of,
)
from onyxlog.replica.commands import KillJob, PrepareJoin, Record
from onyxlog.replica.digests import CHAIN_START, digest
from onyxlog.replica.forms import read
from onyxlog.replica.kinds import KINDS
from onyxlog.replica.replica import VERSION, Parameters, Replica
from onyxlog.replica.table import Table
from onyxlog.scheduling.requirements import FluxPolicy, JobRequirements, TaskRequirements, TaskScheduler
from tests.onyxlog.replica.scripts import job
from tests.onyxlog.replica.test_jobs_in_the_log import fleet

text = st.text(max_size=8)
positions = st.integers(-1, 2**40)
tasks = st.builds(
    TaskRequirements,
    name=text,
    min_peers=st.integers(0, 99),
    max_peers=st.none() | st.integers(1, 99),
    percentage=st.none() | st.integers(0, 100),
    grouped=st.booleans(),
    flux_policy=st.sampled_from(FluxPolicy),
    required_tags=st.lists(text, max_size=2).map(tuple),
    input=st.booleans(),
    output=st.booleans(),
)
jobs = st.builds(
    JobRequirements,
    id=text,
    hash=st.binary(max_size=8),
    tasks=st.lists(tasks, max_size=3).map(tuple),
    edges=st.lists(st.tuples(text, text), max_size=2).map(tuple),
    task_scheduler=st.sampled_from(TaskScheduler),
    percentage=st.none() | st.integers(0, 100),
)
for each in NAMES.values():
    attrs.resolve_types(each)
any_command = st.one_of(
    *(st.builds(kind) for kind in NAMES.values() if kind not in (commands.SubmitJob, commands.SignalReady)),
    st.builds(commands.SubmitJob, jobs),
    st.builds(commands.SignalReady, text, positions),
)
records = st.builds(Record, any_command, text, st.none() | positions, st.integers(0, 2**50))


def test_every_kind_of_command_has_a_name_and_a_meaning() -> None:
    kinds = set(commands.Command.__args__)
    assert set(NAMES.values()) == kinds
    assert set(KINDS) == kinds


@given(records)
def test_a_record_comes_back_from_its_bytes(record: Record) -> None:
    data = encode_record(record)
    assert decode_record(data, "entry") == record
    assert encode_record(decode_record(data, "entry")) == data


def test_the_bytes_of_an_entry_are_these() -> None:
    """Whoever changes them changes every chain, and needs another format."""
    record = Record(KillJob("count", 0, "bad"), "client", 7, 1_700_000_000_000)
    expected = [FORMAT, "kill-job", ["count", 0, "bad"], "client", 7, 1_700_000_000_000]
    assert msgpack.unpackb(encode_record(record)) == expected
    assert encode_record(record) == msgpack.packb(expected)
    assert name_of(record.command) == "kill-job"


@given(
    st.binary(max_size=40)
    | st.recursive(st.none() | st.integers(-9, 9) | text, st.lists, max_leaves=8).map(msgpack.packb)
)
def test_arbitrary_bytes_are_an_entry_error_or_a_record(data: bytes) -> None:
    for decode in (decode_record, decode_origin):
        try:
            decode(data, "entry-0000000007")
        except EntryError as error:
            assert "entry-0000000007" in str(error)  # noqa: PT017


def entry(*changes: tuple[int, Any]) -> bytes:
    fields: list[Any] = [FORMAT, "kill-job", ["count", 3, ""], "client", None, 0]
    for index, value in changes:
        fields[index] = value
    return msgpack.packb(fields)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (entry((0, 1)), "entry-3: found format 1, expected 2"),
        (entry((1, "dance")), "entry-3: found an entry of kind 'dance', which this version does not know"),
        (entry((2, [7, 3, ""])), "entry-3: kill-job.job: expected a text of 0 to"),
        (
            entry((2, [])),
            "entry-3: kill-job: expected an array of 2 to 3 fields of KillJob: job, submitted, reason, "
            "found tuple of length 0",
        ),
        (
            entry((2, ["a", 3, "b", "c"])),
            "expected an array of 2 to 3 fields of KillJob: job, submitted, reason, found tuple of length 4",
        ),
        (
            entry((4, True)),
            "entry-3.cause: expected an integer from -9223372036854775808 to 18446744073709551615 or nil, "
            "found bool True",
        ),
        (b"\xc1", "entry-3: found 1 bytes that are no MessagePack"),
        (
            msgpack.packb("no"),
            "entry-3: expected an entry: [format, kind, fields, author, cause, at_ms], found str 'no'",
        ),
    ],
    ids=["format", "kind", "type", "few", "many", "boolean", "bytes", "shape"],
)
def test_what_is_wrong_with_an_entry_is_said_with_its_place(data: bytes, complaint: str) -> None:
    with pytest.raises(EntryError) as caught:
        decode_record(data, "entry-3")
    assert complaint in str(caught.value)


def test_a_field_that_an_older_writer_did_not_know_has_its_default() -> None:
    assert decode_record(entry((2, ["count", 3])), "entry").command == KillJob("count", 3, "")


def test_an_origin_comes_back_from_its_bytes() -> None:
    log = fleet("abc", workers=2)
    log.write(commands.SubmitJob(job()), "client")
    log.write(commands.GroupLeave("c"), "c")
    data = encode_origin(log.replica, log.chain)
    replica, chain = decode_origin(data, "origin")
    assert (replica, chain) == (log.replica, log.chain)
    assert digest(replica) == digest(log.replica)
    assert encode_origin(replica, chain) == data


def test_a_damaged_origin_is_not_begun_with() -> None:
    log = fleet("abc")
    fields = msgpack.unpackb(encode_origin(log.replica, log.chain))
    fields[1][1] += 1  # the version
    with pytest.raises(EntryError, match="origin: found a replica of digest"):
        decode_origin(msgpack.packb(fields), "origin")
    fields = msgpack.unpackb(encode_origin(log.replica, b"short" + bytes(11)))
    fields[2] = b"short"
    with pytest.raises(EntryError, match="origin: chain: expected 16 bytes, found bytes of length 5"):
        decode_origin(msgpack.packb(fields), "origin")


def test_a_log_whose_entries_mean_something_else_is_not_played() -> None:
    """Also not by a client, which tells nobody with which parameters the log is to be begun."""
    later = Replica(Parameters(version=VERSION + 1))
    with pytest.raises(EntryError, match=f"origin: found a log of version {VERSION + 1}, expected {VERSION}"):
        decode_origin(encode_origin(later, CHAIN_START), "origin")


def test_a_table_out_of_order_is_refused() -> None:
    with pytest.raises(EntryError, match="a key after 'b': each once, in order"):
        read(Table[str, int], (("b", 1), ("a", 2)), "origin")
    with pytest.raises(EntryError, match="each once"):
        read(Table[str, int], (("a", 1), ("a", 2)), "origin")


def test_what_has_no_order_or_no_exact_value_has_no_canonical_form() -> None:
    for value in ({"a"}, {"a": 1}, 0.5, ["list"], object()):
        with pytest.raises(TypeError, match="has no canonical form"):
            plain(value)

    @frozen
    class Half:
        share: float

    with pytest.raises(TypeError, match="no canonical form"):
        read(Half, (1,), "here")


def test_an_integer_beyond_64_bits_is_refused_where_it_is_written() -> None:
    with pytest.raises(OverflowError):
        encode_record(Record(commands.SignalReady("a", 2**64), "a"))


def test_the_form_of_a_value_is_that_of_its_fields_in_order() -> None:
    assert plain(PrepareJoin("a")) == ["a"]
    assert plain(Table({"b": 1, "a": (2, FluxPolicy.KILL)})) == [["a", [2, "kill"]], ["b", 1]]
    assert pack(()) == msgpack.packb([])


def test_an_empty_replica_comes_back_too() -> None:
    assert decode_origin(encode_origin(Replica(), CHAIN_START), "origin") == (Replica(), CHAIN_START)
