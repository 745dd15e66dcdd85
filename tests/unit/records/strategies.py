"""Records and batches for tests, and batches with a wrong header whose checksum is right."""

from __future__ import annotations

from crc32c import crc32c
from hypothesis import strategies as st

from zraft_core.records import BatchRecord
from zraft_core.records.header import CRC_AT, CRC_FROM, HEADER

NOW_MS = 1_780_000_000_000

headers = st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=200)), max_size=3).map(
    tuple
)
records = st.builds(
    BatchRecord,
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=9_000) | st.integers(0, 3).map(lambda n: bytes(10**n)),
    headers,
    st.integers(NOW_MS - 5_000, NOW_MS + 100_000) | st.integers(-1, 2**62),
)
batches = st.lists(records, min_size=1, max_size=70)

FIELDS = [
    *(
        "base_offset",
        "length",
        "leader_epoch",
        "magic",
        "crc",
        "attributes",
        "last_offset_delta",
        "first_timestamp",
    ),
    *("max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count"),
]


def with_field(payload: bytes, **changed: int) -> bytes:
    """The batch with other values in its header, and the checksum that it has then, unless that is one of them."""
    fields = dict(zip(FIELDS, HEADER.unpack_from(payload), strict=True)) | changed
    spoiled = HEADER.pack(*fields.values()) + payload[HEADER.size :]
    return spoiled if "crc" in changed else with_checksum(spoiled)


def with_checksum(payload: bytes) -> bytes:
    """The bytes with the checksum of what they are."""
    crc: int = crc32c(payload[CRC_FROM:])
    return payload[:CRC_AT] + crc.to_bytes(4) + payload[CRC_FROM:]
