"""Bytes of batches and entries: round trips, and what is done with those that are none."""

from __future__ import annotations

import msgpack
import pytest

from tests.unit.tree.scenario import ONE, create
from zraft_core.errors import ProtocolError
from zraft_core.znodes.txn import (
    FORMAT,
    SETTINGS,
    command_count,
    pack_batch,
    pack_entry,
    unpack_batch,
    unpack_entry,
)

RUNS = [(5, (("ip", "::1"),), [create("/a", None), create("/é")]), (0, (), [(SETTINGS, {"x": 1})])]
BLOB = pack_batch(*ONE, 1, 2, RUNS)
BATCH = (
    *ONE,
    1,
    2,
    ((5, (("ip", "::1"),), (create("/a", None), create("/é"))), (0, (), ((SETTINGS, {"x": 1}),))),
)

NO_BATCHES = [
    5, None, "x", (), (1,), (1, b"i", 1, 1, None), (1, b"i", 1, 1, 5), (1, b"i", 1, 1, (5,)),
    (1, b"i", 1, 1, ((0, ()),)),
    (1, b"i", 1, 1, ((0, None, ()),)), (1, b"i", 1, 1, ((0, (), None),)), (1, b"i", 1, 1, (), ()),
]  # fmt: skip


def test_batch_and_entry_round_trip() -> None:
    assert unpack_batch(BLOB) == BATCH
    assert unpack_entry(pack_entry(10, 20, [BLOB, BLOB])) == (10, 20, (BATCH, BATCH))
    assert unpack_entry(pack_entry(10, 20, [])) == (10, 20, ())
    assert command_count(BATCH[4]) == 3


def test_entry_embeds_the_bytes_of_batches_unchanged() -> None:
    """D-2: the bytes of a numbered batch never change."""
    assert BLOB in pack_entry(1, 2, [BLOB])


@pytest.mark.parametrize("value", NO_BATCHES, ids=repr)
def test_batch_of_the_wrong_shape_is_refused_by_the_leader_and_passed_over_in_the_log(value: object) -> None:
    """Flaw 23."""
    blob = msgpack.packb(value)
    with pytest.raises(ProtocolError, match="a batch must be"):
        unpack_batch(blob)
    assert unpack_entry(pack_entry(1, 2, [blob, BLOB])) == (1, 2, (BATCH,))


@pytest.mark.parametrize(
    "blob", [b"", BLOB[:-1], BLOB + b"\x00", BLOB + BLOB, b"\xc1", b"\x81\x80\x80", b"\xa1\xff"]
)
def test_bytes_that_are_not_one_value_are_refused_by_the_leader(blob: bytes) -> None:
    """One such batch would make its whole entry unreadable."""
    with pytest.raises(ProtocolError, match="not one MessagePack value"):
        unpack_batch(blob)


@pytest.mark.parametrize("length", range(0, len(BLOB), 3))
def test_no_prefix_or_damage_of_a_batch_raises_anything_but_a_protocol_error(length: int) -> None:
    for blob in (BLOB[:length], BLOB[:length] + bytes([BLOB[length] ^ 0xFF]) + BLOB[length + 1 :]):
        try:
            unpack_batch(blob)
        except ProtocolError:
            continue


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        msgpack.packb(5),
        msgpack.packb([]),
        msgpack.packb([1, 2]),
        msgpack.packb([FORMAT + 1, 1, 2]),
        b"\x81\x80\x80",
    ],
)
def test_entry_of_an_unknown_format_is_a_value_error(payload: bytes) -> None:
    """D-5: stop rather than guess."""
    with pytest.raises(ValueError, match=r"log entry|Unpack|incomplete"):
        unpack_entry(payload)
