"""Bytes that anybody can put into the znodes of a log: a declared error, at once, however they are made."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from onyxlog.errors import OnyxlogError
from onyxlog.gossip import codec as gossip
from onyxlog.gossip.codec import tenancy_tag
from onyxlog.jobs.checkpoints import decode_checkpoint
from onyxlog.jobs.segments import decoded
from onyxlog.jobs.specification import decode_job
from onyxlog.peer.log.layout import decode_parameters
from onyxlog.peer.log.parts import decode_head
from onyxlog.peer.publishing import decode as decode_published
from onyxlog.plugins.znodes import READERS
from onyxlog.replica.codec import decode_origin, decode_record
from onyxlog.tasks.items import decode as decode_item
from tests.fuzz.costly import crowding, packed_map

SECONDS_MAX = 5.0
"""Generous: each of these takes milliseconds."""

DEEP = b"\x91" * 1_020 + b"\xc0"
PROMISES = b"\xdd\x00\x00\x27\x10" * 1_000 + b"\xc0" * 9_000
CROWDED = packed_map(crowding(15))
HOSTILE = {
    "deep": DEEP,
    "deep in a pair": b"\x92\x01" + DEEP[1:],
    "deep in three": b"\x93\x01\x02" + DEEP[1:],
    "promises": PROMISES,
}
KEYED = {
    "crowded": CROWDED,
    "crowded in a pair": b"\x92\x01" + CROWDED,
}
DECODERS: dict[str, Callable[[bytes], Any]] = {
    "record": lambda data: decode_record(data, "entry-1"),
    "origin": lambda data: decode_origin(data, "origin"),
    "job": lambda data: decode_job(data, "jobs/1"),
    "checkpoint": lambda data: decode_checkpoint(data, "latest"),
    "head": lambda data: decode_head(data, "head"),
    "published": lambda data: decode_published(data, "digests/a"),
    "segments": decoded,
    "znodes": READERS["msgpack"],
}


def decode_datagram(data: bytes) -> Any:
    """A datagram of gossip with a right checksum."""
    tag = tenancy_tag("t")
    body = bytes([1, 0]) + tag + data
    return gossip.decode(body + crc32c(body).to_bytes(4, "big"), tag)


FROM_PEERS: dict[str, Callable[[bytes], Any]] = {"item": decode_item, "datagram": decode_datagram}
"""What peers prove to be theirs, and anybody can send where no key is set."""


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("decode", (DECODERS | FROM_PEERS).values(), ids=DECODERS | FROM_PEERS)
def test_bytes_that_are_deep_or_promise_much_are_a_declared_error(
    decode: Callable[[bytes], Any], data: bytes
) -> None:
    with pytest.raises((OnyxlogError, ValueError)):
        decode(data)


@pytest.mark.parametrize("data", KEYED.values(), ids=KEYED)
@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
def test_keys_that_hash_alike_are_a_declared_error_at_once(
    decode: Callable[[bytes], Any], data: bytes
) -> None:
    began = time.monotonic()
    with pytest.raises((OnyxlogError, ValueError)):
        decode(data)
    assert time.monotonic() - began < SECONDS_MAX


def test_parameters_nested_too_deeply_are_a_declared_error() -> None:
    with pytest.raises(OnyxlogError):
        decode_parameters(b"[" * 100_000, "parameters")
