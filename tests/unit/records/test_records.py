"""Record batches: bytes of Kafka's brokers, another implementation's, round trips, and everything that is not one."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from functools import partial
from random import Random

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.mutation import mutate_bytes
from tests.unit.records.strategies import NOW_MS, batches, with_checksum, with_field
from zraft_core.errors import ProtocolError
from zraft_core.records import (
    BatchBuilder,
    BatchRecord,
    Codec,
    MissingPackageError,
    check_batch,
    compression,
    decode_batch,
    encode_batch,
    read_batch,
    read_header,
    with_base_offset,
)
from zraft_core.records.header import HEADER_BYTES
from zraft_core.records.varints import BYTES_MAX, TABLE_SIZE, decode, encode, varint
from zraft_core.topics.forms import RECORDS_MAX

LIMIT = 1 << 24
CODECS = list(Codec)

OF_A_BROKER = [
    bytes.fromhex(
        "0000000000000000 0000003b 00000001 02 0318a270 0000 00000000 0000015dff7b063c 0000015dff7b063c"
        "ffffffffffffffff ffff ffffffff 00000001 12 00 00 00 01 06 313233 00"
    ),
    bytes.fromhex(
        "0000000000000001 00000040 00000002 02 c85cbd23 0000 00000001 0000015dff7cdd6c 0000015dff7cde14"
        "ffffffffffffffff ffff ffffffff 00000002 0c 00 00 00 01 00 00 0e 00 d002 02 01 00 00"
    ),
]
"""Batches of a broker of Kafka 0.11, as kafka-python keeps them for its tests: one record, and two behind it."""


def batch_of(count: int, size: int = 100, codec: Codec = Codec.NONE) -> bytes:
    return encode_batch(
        [BatchRecord(None, bytes([n % 256]) * size, (), NOW_MS + n) for n in range(count)], codec
    )


# -- what others made, and what others make of ours


def test_batches_of_a_broker_are_read_and_made_alike_but_for_where_they_stood() -> None:
    first = [BatchRecord(None, b"123", (), 0x15DFF7B063C)]
    second = [BatchRecord(None, b"", (), 0x15DFF7CDD6C), BatchRecord(None, b"", (), 0x15DFF7CDE14)]
    for payload, records, offset, epoch in zip(OF_A_BROKER, (first, second), (0, 1), (1, 2), strict=True):
        assert decode_batch(payload, LIMIT) == records
        assert with_base_offset(encode_batch(records), offset, epoch) == payload


@pytest.mark.parametrize("codec", CODECS)
@given(records=batches)
@settings(max_examples=30)
def test_another_implementation_reads_what_is_made_here(codec: Codec, records: list[BatchRecord]) -> None:
    from aiokafka.record.default_records import _DefaultRecordBatchPy

    theirs = _DefaultRecordBatchPy(encode_batch(records, codec))
    assert theirs.validate_crc()
    assert theirs.magic == 2
    assert [(one.key, one.value, tuple(one.headers), one.timestamp) for one in theirs] == [
        (one.key, one.value, one.headers, one.timestamp) for one in records
    ]


@pytest.mark.parametrize("codec", CODECS)
@given(records=batches)
@settings(max_examples=30)
def test_what_another_implementation_makes_is_read_here(codec: Codec, records: list[BatchRecord]) -> None:
    from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

    theirs = _DefaultRecordBatchBuilderPy(2, int(codec), 0, -1, -1, -1, 1 << 30)
    for place, one in enumerate(records):
        # 0 is taken for no timestamp there.
        theirs.append(place, one.timestamp or 1, one.key, one.value, list(one.headers))
    payload = bytes(theirs.build())
    assert check_batch(payload).count == len(records)
    assert [(one.key, one.value, one.headers) for one in decode_batch(payload, 1 << 26)] == [
        (one.key, one.value, one.headers) for one in records
    ]


# -- round trips


@pytest.mark.parametrize("codec", CODECS)
@given(records=batches)
@settings(max_examples=50)
def test_records_come_out_as_they_went_in(codec: Codec, records: list[BatchRecord]) -> None:
    payload = encode_batch(records, codec)
    header = check_batch(payload)
    assert header.count == len(records)
    assert header.first_timestamp == records[0].timestamp
    assert header.max_timestamp == max(one.timestamp for one in records)
    assert header.codec in (codec, Codec.NONE)
    assert decode_batch(payload, LIMIT) == records
    for skip in (1, len(records) // 2, len(records)):
        assert list(read_batch(payload, LIMIT, skip)) == records[skip:]


def test_a_batch_of_many_records_has_offset_deltas_beyond_the_table() -> None:
    payload = batch_of(TABLE_SIZE + 50, 1)
    found = decode_batch(payload, LIMIT)
    assert [one.timestamp - NOW_MS for one in found] == list(range(TABLE_SIZE + 50))


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_of_64_bits_come_out_as_they_went_in(number: int) -> None:
    assert decode(b"\xff" + varint(number) + b"\xff", 1) == (number, 1 + len(encode(number)))
    assert varint(number) == encode(number)


def test_the_size_of_a_batch_that_is_being_made_is_that_of_its_bytes() -> None:
    builder = BatchBuilder()
    assert builder.size == HEADER_BYTES
    for place in range(3):
        assert builder.append(b"k", b"v" * 100, (("h", None),), NOW_MS) == place
    assert builder.size == len(builder.finish())
    assert builder.count == 3


def test_what_would_not_shrink_is_not_compressed() -> None:
    noise = [BatchRecord(None, Random(1).randbytes(100), (), NOW_MS)]
    assert read_header(encode_batch(noise, Codec.ZSTD)).codec is Codec.NONE
    assert read_header(batch_of(100, codec=Codec.ZSTD)).codec is Codec.ZSTD


def test_a_base_offset_and_an_epoch_are_put_in_without_another_checksum() -> None:
    payload = batch_of(3)
    placed = with_base_offset(payload, 1 << 40, 7)
    header = read_header(placed)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 7)
    assert placed[16:] == payload[16:]
    assert decode_batch(placed, LIMIT) == decode_batch(payload, LIMIT)
    assert with_base_offset(placed, 0, -1) == payload


# -- what a server checks


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"magic": 1}, "the magic byte: expected 2, found 1"),
        ({"magic": 3}, "the magic byte: expected 2, found 3"),
        ({"base_offset": 5}, "the base offset: expected 0, as a producer sends it, found 5"),
        ({"base_offset": -1}, "the base offset: expected 0"),
        ({"length": 1 << 30}, "the length field: expected"),
        ({"length": -1}, "the length field: expected"),
        ({"last_offset_delta": 3}, "the last offset delta: expected 2, as of 3 records, found 3"),
        ({"last_offset_delta": -1}, "the last offset delta: expected 2"),
        ({"count": 4}, "the last offset delta: expected 3, as of 4 records, found 2"),
        ({"count": 0, "last_offset_delta": -1}, "the number of records: expected 1 to"),
        ({"count": -5, "last_offset_delta": -6}, "the number of records: expected 1 to"),
        (
            {"count": RECORDS_MAX + 1, "last_offset_delta": RECORDS_MAX},
            "the number of records: expected 1 to",
        ),
        ({"attributes": 0x20}, "no control bit, found 0x20"),
        ({"attributes": 0x08}, "no bit for times of appending, found 0x8"),
        ({"attributes": 0x10}, "a producer id and epoch of 0 or more, found -1 and -1"),
        ({"attributes": 0x10, "producer_id": 7}, "a producer id and epoch of 0 or more, found 7 and -1"),
        ({"attributes": 5}, "the compression: expected 0 to 4, found 5"),
        ({"attributes": 7}, "the compression: expected 0 to 4, found 7"),
        ({"crc": 0}, "the CRC-32C: expected 0x00000000, as it says, found 0x"),
    ],
)
def test_a_header_with_something_wrong_in_it_is_refused_and_says_what(
    changed: dict[str, int], said: str
) -> None:
    with pytest.raises(ProtocolError, match=f"^a record batch: .*{said}"):
        check_batch(with_field(batch_of(3), **changed))


def test_a_batch_of_a_transaction_or_with_unknown_bits_is_taken() -> None:
    payload = with_field(batch_of(3), attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=3)
    header = check_batch(payload)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 3)
    assert not check_batch(batch_of(3)).is_transactional
    assert check_batch(with_field(batch_of(3), attributes=0x4000)).codec is Codec.NONE


@pytest.mark.parametrize("payload", [b"", b"x" * 60, batch_of(2)[:-1], batch_of(2) + b"x", batch_of(2) * 2])
def test_bytes_that_are_not_exactly_one_batch_are_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        check_batch(payload)


def test_every_byte_that_the_checksum_covers_is_checked_without_decoding_a_record() -> None:
    payload = batch_of(3)
    for at in range(21, len(payload)):
        spoiled = payload[:at] + bytes([payload[at] ^ 0x10]) + payload[at + 1 :]
        with pytest.raises(ProtocolError):
            check_batch(spoiled)
    nonsense = with_checksum(payload[:HEADER_BYTES] + b"\xff" * (len(payload) - HEADER_BYTES))
    assert check_batch(nonsense).count == 3, "records are for who reads them"
    with pytest.raises(ProtocolError):
        decode_batch(nonsense, LIMIT)


# -- records that are not well-formed


def spoiled(body: bytes, *, count: int = 1) -> bytes:
    """A batch whose records are these bytes."""
    payload = batch_of(count)[:HEADER_BYTES] + body
    return with_field(payload, length=len(payload) - 12)


GOOD = b"\x12\0\0\0\x01\x06abc\0"


def test_a_record_as_it_should_be_is_the_measure() -> None:
    assert decode_batch(spoiled(GOOD), LIMIT) == [BatchRecord(None, b"abc", (), NOW_MS)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\0",
        GOOD + GOOD,
        b"\x10" + GOOD[1:],
        b"\x14" + GOOD[1:],
        b"\x14" + GOOD[1:] + b"\0",
        b"\x11" + GOOD[1:],
        b"\0",
        b"\x02\0",
        b"\x12\0\0\x02\x01\x06abc\0",  # another offset delta
        b"\x12\0\0\x01\x01\x06abc\0",  # a negative one
        b"\x12\0\0\0\x03\x06abc\0",  # a key of -2 bytes
        b"\x12\0\0\0\x01\x05abc\0",  # a value of -3 bytes
        b"\x12\0\0\0\x01\x08abc\0",  # a value beyond the record
        b"\x12\0\0\0\x08\x06abc\0",  # a key beyond the record
        b"\x12\0\0\0\x01\x06abc\x01",  # -1 headers
        b"\x12\0\0\0\x01\x06abc\x02",  # a header without a name
        b"\x16\0\0\0\x01\x06abc\x02\x01\x00",  # a header whose name is null
        b"\x16\0\0\0\x01\x06abc\x02\x02a",  # a header without a value
        b"\x18\0\0\0\x01\x06abc\x02\x02a\x03",  # a value of -2 bytes
        b"\x1a\0\0\0\x01\x06abc\xfe\xff\x03\0",  # more headers than bytes
        b"\xff" * 30,
        b"\x2a\0" + b"\xff" * BYTES_MAX + b"\x01\0\0\0",
    ],
    ids=bytes.hex,
)
def test_a_record_with_something_wrong_in_it_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_batch(spoiled(body), LIMIT)


def test_names_of_headers_that_are_no_text_are_shown_as_javas_client_shows_them() -> None:
    body = b"\x1a\0\0\0\x01\x06abc\x02\x02\xff\x02v"
    (record,) = decode_batch(spoiled(body), LIMIT)
    assert record.headers == (("\N{REPLACEMENT CHARACTER}", b"v"),)


def test_records_are_read_one_by_one_up_to_the_one_that_is_wrong() -> None:
    reading = read_batch(spoiled(GOOD + b"\x12\0\0\x02\x01\x06def\0" + GOOD, count=3), LIMIT)
    assert [next(reading).value, next(reading).value] == [b"abc", b"def"]
    with pytest.raises(ProtocolError, match=r"record 2, at byte 81: expected offset delta 2, found 0"):
        next(reading)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), st.sampled_from(CODECS), st.integers())
def test_spoiled_batches_are_records_or_a_declared_error(
    values: list[bytes], codec: Codec, seed: int
) -> None:
    rng = Random(seed)
    payload = encode_batch([BatchRecord(b"k", value, (("h", value[:5]),), NOW_MS) for value in values], codec)
    header, body = payload[:HEADER_BYTES], mutate_bytes(payload[HEADER_BYTES:], rng)
    bad = with_field(header + body, length=len(header + body) - 12)
    try:
        found = decode_batch(bad, 1 << 16)
    except ProtocolError:
        return
    assert len(found) == len(values)
    assert sum(len(one.value or b"") for one in found) <= 1 << 16


# -- compression


def compressed(data: bytes, codec: Codec, count: int = 1) -> bytes:
    """A batch of these compressed bytes."""
    payload = batch_of(count)[:HEADER_BYTES] + data
    return with_field(payload, length=len(payload) - 12, attributes=int(codec))


def _linked_lz4(data: bytes) -> bytes:
    linked = cramjam.lz4.Compressor(block_linked=True, content_checksum=True)
    linked.compress(data)
    return bytes(linked.finish())


FORMS: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "gzip": (Codec.GZIP, partial(compression.compress, codec=Codec.GZIP)),
    "snappy of Java": (Codec.SNAPPY, partial(compression.compress, codec=Codec.SNAPPY)),
    "snappy in one block": (Codec.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (Codec.LZ4, partial(compression.compress, codec=Codec.LZ4)),
    "lz4 in linked blocks": (Codec.LZ4, _linked_lz4),
    "zstd": (Codec.ZSTD, partial(compression.compress, codec=Codec.ZSTD)),
    "zstd of an unknown size": (
        Codec.ZSTD,
        zstandard.ZstdCompressor(write_content_size=False).compress,
    ),
}
"""Every form in which producers compress records."""

LONG = encode_batch([BatchRecord(None, b"%d" % n * 40, (), NOW_MS) for n in range(2_000)])[HEADER_BYTES:]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_compression_is_read(form: str) -> None:
    codec, compress = FORMS[form]
    data = compress(LONG)
    assert compression.decompress(data, codec, len(LONG)) == LONG
    assert len(decode_batch(compressed(data, codec, 2_000), LIMIT)) == 2_000


@pytest.mark.parametrize("form", FORMS)
def test_what_is_cut_off_or_followed_by_something_is_damaged(form: str) -> None:
    codec, compress = FORMS[form]
    data = compress(LONG)
    for bad in (data[:-1], data[: len(data) // 2], data[:3], b"", data + b"\0\0\0\0\0", b"nonsense"):
        with pytest.raises(ProtocolError):
            compression.decompress(bad, codec, len(LONG))


@pytest.mark.parametrize("form", FORMS)
def test_what_comes_out_is_bounded_and_so_is_what_is_held_meanwhile(form: str) -> None:
    codec, compress = FORMS[form]
    data = compress(bytes(16_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            compression.decompress(data, codec, 100_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000


def test_javas_snappy_is_framed_as_its_reader_takes_it() -> None:
    data = compression.compress(bytes(70_000), Codec.SNAPPY)
    assert data.startswith(b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01")
    at, sizes = 16, []
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        sizes.append(cramjam.snappy.decompress_raw_len(data[at + 4 : at + 4 + length]))
        at += 4 + length
    assert sizes == [32_768, 32_768, 70_000 - 2 * 32_768]


def test_lz4_has_independent_blocks_without_which_kafka_reads_nothing() -> None:
    data = compression.compress(bytes(200_000), Codec.LZ4)
    assert data[:4] == b"\x04\x22\x4d\x18"
    assert data[4] >> 5 == 0b011, "version 1, independent blocks"


def test_gzip_is_what_everybody_reads() -> None:
    assert zlib.decompress(compression.compress(b"abc", Codec.GZIP), wbits=31) == b"abc"


def test_a_missing_package_is_said_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = [batch_of(50, codec=codec) for codec in (Codec.SNAPPY, Codec.LZ4)]
    monkeypatch.setattr(compression, "HAS_CRAMJAM", False)
    for codec in (Codec.SNAPPY, Codec.LZ4):
        with pytest.raises(MissingPackageError, match=r"cramjam.*pip install 'zraft-client\[compression\]'"):
            batch_of(50, codec=codec)
    for payload in payloads:
        assert check_batch(payload).count == 50, "a server needs no codec"
        with pytest.raises(MissingPackageError, match="cramjam"):
            decode_batch(payload, LIMIT)
    assert len(decode_batch(batch_of(50, codec=Codec.ZSTD), LIMIT)) == 50
