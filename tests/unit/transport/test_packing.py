"""Bodies: many messages in one, one message over many; docs/reference/protocol-peers.md, "Bodies"."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zraft.transport import codec
from zraft.transport.packing import (
    FRAGMENT,
    FRAGMENTS_MAX,
    PARTIALS_PER_PEER_MAX,
    WHOLE,
    Fragment,
    Packer,
    Reassembly,
    UnsendableError,
    unpack_fragment,
)
from zraft_core.errors import ProtocolError
from zraft_core.ids import ServerId
from zraft_core.layout import from_bytes, to_bytes

PEER, OTHER = ServerId(2), ServerId(3)


def reassembly(
    *,
    message_bytes_max: int = 10_000,
    bytes_per_peer_max: int = 40_000,
    bytes_total_max: int = 60_000,
    timeout_ms: int = 1_000,
) -> Reassembly:
    return Reassembly(
        message_bytes_max=message_bytes_max,
        bytes_per_peer_max=bytes_per_peer_max,
        bytes_total_max=bytes_total_max,
        timeout_ms=timeout_ms,
    )


def binary(size: int, seed: int = 0) -> bytes:
    """An encoded value of about this size; packing does not care that it is no message."""
    body: bytes = to_bytes(random.Random(seed).randbytes(size))
    return body


def unpack(bodies: list[bytes], table: Reassembly | None = None) -> list[bytes]:
    """The encoded messages that a receiver gets out of these bodies, in order of completion."""
    table = table or reassembly()
    out = []
    for body in bodies:
        if body[0] == WHOLE:
            out += [to_bytes(value) for value in from_bytes(body[1:])]
        elif (whole := table.add(PEER, unpack_fragment(body), 0)) is not None:
            out.append(whole)
    return out


@settings(max_examples=150)
@given(st.lists(st.integers(0, 3_000), max_size=12), st.integers(64, 1_400))
def test_all_messages_arrive_in_order_and_no_body_is_too_large(sizes: list[int], body_bytes_max: int) -> None:
    encoded = [binary(size, seed) for seed, size in enumerate(sizes)]
    bodies = Packer(body_bytes_max=body_bytes_max, message_bytes_max=10_000).pack(encoded)
    assert all(len(body) <= body_bytes_max for body in bodies)
    assert unpack(bodies) == encoded


def test_small_messages_share_one_body() -> None:
    encoded = [binary(10, seed) for seed in range(50)]
    assert len(Packer(body_bytes_max=1_000, message_bytes_max=10_000).pack(encoded)) == 1


def test_a_message_that_just_fits_is_not_fragmented() -> None:
    packer = Packer(body_bytes_max=200, message_bytes_max=10_000)
    fits = bytes(200 - 1 - codec.SEQUENCE_BYTES)
    assert [body[0] for body in packer.pack([fits])] == [WHOLE]
    assert [body[0] for body in packer.pack([fits + b"\x00"])] == [FRAGMENT, FRAGMENT]


def test_a_message_above_the_bound_is_refused_and_nothing_is_packed() -> None:
    packer = Packer(body_bytes_max=200, message_bytes_max=1_000)
    assert packer.pack([bytes(1_000)])
    with pytest.raises(UnsendableError, match=r"at most 1000 bytes \(message_bytes_max\), found 1001"):
        packer.pack([b"\x00", bytes(1_001)])


@pytest.mark.parametrize("seed", range(20))
def test_fragments_in_any_order_with_repetitions_give_the_message_once(seed: int) -> None:
    rng = random.Random(seed)
    encoded = [binary(rng.randint(300, 5_000), at) for at in range(4)]
    bodies = Packer(body_bytes_max=128, message_bytes_max=10_000).pack(encoded)
    rng.shuffle(bodies)
    out = []
    table = reassembly()
    complete: set[bytes] = set()
    for body in bodies:
        for _ in range(rng.choice([1, 1, 2])):
            whole = table.add(PEER, unpack_fragment(body), 0)
            if whole is not None:
                out.append(whole)
                complete.add(body[:5])
                break  # a repetition after the end starts a remainder that times out: next test
    assert sorted(out) == sorted(encoded)
    assert table.held_bytes == 0
    assert table.dropped == 0


def test_a_late_repetition_times_out() -> None:
    table = reassembly(timeout_ms=100)
    first, second = (unpack_fragment(body) for body in _two_fragments())
    assert table.add(PEER, first, 0) is None
    assert table.add(PEER, second, 0) is not None
    assert table.add(PEER, first, 5) is None
    assert table.held_bytes > 0
    table.expire(104)
    assert table.held_bytes > 0
    table.expire(105)
    assert table.held_bytes == 0
    assert table.dropped == 1


def _two_fragments(number_after: int = 0) -> list[bytes]:
    packer = Packer(body_bytes_max=100, message_bytes_max=10_000)
    for _ in range(number_after):
        packer.pack([bytes(150)])
    bodies = packer.pack([bytes(150)])
    assert len(bodies) == 2
    return bodies


def test_a_message_that_lost_a_fragment_never_appears_and_others_do() -> None:
    packer = Packer(body_bytes_max=100, message_bytes_max=10_000)
    encoded = [binary(500, at) for at in range(3)]
    bodies = packer.pack(encoded)
    per_message = len(bodies) // 3
    del bodies[per_message + 2]
    table = reassembly()
    assert unpack(bodies, table) == [encoded[0], encoded[2]]
    table.expire(1_000)
    assert (table.held_bytes, table.dropped) == (0, 1)


def test_a_contradicting_count_drops_the_message() -> None:
    table = reassembly()
    table.add(PEER, Fragment(1, 0, 3, b"x"), 0)
    with pytest.raises(ProtocolError, match="expected a count of 3 as before, found 4"):
        table.add(PEER, Fragment(1, 1, 4, b"y"), 0)
    assert table.held_bytes == 0


def test_a_message_growing_above_the_bound_is_dropped() -> None:
    table = reassembly(message_bytes_max=1_000)
    table.add(PEER, Fragment(1, 0, 3, bytes(600)), 0)
    with pytest.raises(ProtocolError, match=r"at most 1000 bytes together"):
        table.add(PEER, Fragment(1, 1, 3, bytes(600)), 0)
    assert (table.held_bytes, table.dropped) == (0, 1)


def test_fragments_of_different_peers_do_not_mix() -> None:
    table = reassembly()
    first, second = (unpack_fragment(body) for body in _two_fragments())
    assert table.add(PEER, first, 0) is None
    assert table.add(OTHER, second, 0) is None
    assert table.add(PEER, second, 0) is not None


@pytest.mark.parametrize("seed", range(3))
def test_memory_stays_bounded_under_a_flood_of_fragments(seed: int) -> None:
    """No peer can hold more than its share, nor all of them more than the total, whatever they send."""
    rng = random.Random(seed)
    table = reassembly(message_bytes_max=5_000, bytes_per_peer_max=10_000, bytes_total_max=15_000)
    peak = 0
    for step in range(3_000):
        count = rng.choice([2, 3, 20, FRAGMENTS_MAX])
        fragment = Fragment(
            rng.randrange(200), rng.randrange(count), count, bytes(rng.choice([1, 50, 1_400]))
        )
        try:
            table.add(ServerId(rng.randint(1, 3)), fragment, step // 50)
        except ProtocolError:
            pass
        peak = max(peak, table.held_bytes)
        assert table.held_bytes <= 15_000
    assert peak > 13_000, "the flood was too weak to test the bound"
    assert table.dropped > 100
    table.expire(10**9)
    assert table.held_bytes == 0


def test_a_flooding_peer_does_not_push_out_another() -> None:
    table = reassembly(message_bytes_max=5_000, bytes_per_peer_max=10_000, bytes_total_max=60_000)
    table.add(OTHER, Fragment(7, 0, 2, b"first "), 0)
    for number in range(1_000):
        table.add(PEER, Fragment(number, 0, 2, bytes(1_400)), 0)
    assert table.add(OTHER, Fragment(7, 1, 2, b"second"), 0) == b"first second"


def test_tiny_fragments_count_with_their_overhead() -> None:
    table = reassembly(bytes_per_peer_max=10_000)
    for number in range(1_000):
        table.add(PEER, Fragment(number, 0, 2, b"x"), 0)
    assert table.held_bytes <= 10_000
    assert table.held_bytes <= PARTIALS_PER_PEER_MAX * 129


@pytest.mark.parametrize(
    "body",
    [
        bytes([FRAGMENT]),
        bytes([FRAGMENT]) + bytes(8),
        bytes([FRAGMENT]) + (1).to_bytes(4) + (0).to_bytes(2) + (1).to_bytes(2) + b"x",
        bytes([FRAGMENT]) + (1).to_bytes(4) + (5).to_bytes(2) + (5).to_bytes(2) + b"x",
        bytes([FRAGMENT]) + (1).to_bytes(4) + (0).to_bytes(2) + (FRAGMENTS_MAX + 1).to_bytes(2) + b"x",
    ],
    ids=["kind only", "empty part", "count of one", "number beyond count", "too many"],
)
def test_impossible_fragments_are_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="fragment: expected"):
        unpack_fragment(body)
