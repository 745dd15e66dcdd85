"""Datagrams: what goes in comes out, and nothing else comes in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyxlog.gossip import messages as m
from onyxlog.gossip.codec import DatagramError, decode, encode, tenancy_tag

TAG = tenancy_tag("tests")
positions = st.integers(-1, 2**62)
groups = st.text(max_size=20)
streams = st.integers(0, 9)
counts = st.integers(0, 50)
events = st.builds(
    m.Event,
    position=positions,
    payload=st.binary(max_size=200),
    previous=st.binary(max_size=16),
    origin=positions,
    publisher=groups,
)
messages = st.one_of(
    st.builds(m.PoolEvent, events, positions, streams, streams, counts),
    st.builds(m.Seen, streams, st.lists(positions).map(tuple)),
    st.builds(m.RumourEvent, events, streams, counts, st.lists(streams).map(tuple), counts),
    st.builds(m.Known, positions),
    st.builds(m.TreeEvent, events, counts),
    st.builds(m.IHave, st.lists(st.tuples(positions, counts)).map(tuple)),
    st.builds(m.Graft, positions, counts),
    st.just(m.Prune()),
    st.just(m.Join()),
    st.builds(m.ForwardJoin, groups, counts),
    st.builds(m.Neighbour, st.booleans()),
    st.builds(m.NeighbourReply, st.booleans()),
    st.just(m.Disconnect()),
    st.just(m.Alive()),
    st.builds(m.Shuffle, groups, st.lists(groups).map(tuple), counts),
    st.builds(m.ShuffleReply, st.lists(groups).map(tuple)),
    st.builds(m.Heartbeat, positions, st.binary(max_size=16), counts, st.booleans()),
    st.builds(m.Want, positions, positions),
    st.builds(m.Found, st.lists(events, max_size=4).map(tuple), positions),
)


@given(messages)
def test_every_message_comes_back_as_it_was(message: m.Message) -> None:
    assert decode(encode(message, TAG), TAG) == message


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_with_the_declared_error(junk: bytes) -> None:
    with pytest.raises(DatagramError):
        decode(junk, TAG)


@given(messages, st.data())
def test_a_flipped_bit_is_noticed(message: m.Message, data: st.DataObject) -> None:
    datagram = bytearray(encode(message, TAG))
    bit = data.draw(st.integers(0, 8 * len(datagram) - 1))
    datagram[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DatagramError, match="checksum"):
        decode(bytes(datagram), TAG)


@given(st.recursive(st.none() | st.integers(-5, 5) | st.binary(max_size=3) | st.text(max_size=3), st.lists))
def test_fields_of_another_shape_are_refused_with_the_declared_error(fields: object) -> None:
    import msgpack
    from crc32c import crc32c

    for kind in range(19):
        body = bytes((1, kind)) + TAG + msgpack.packb(fields)
        datagram = body + crc32c(body).to_bytes(4, "big")
        try:
            message = decode(datagram, TAG)
        except DatagramError:
            continue
        assert encode(message, TAG) == datagram


def test_datagrams_of_another_tenancy_version_or_kind_are_refused_by_name() -> None:
    datagram = encode(m.Prune(), TAG)
    with pytest.raises(DatagramError, match="another tenancy"):
        decode(datagram, tenancy_tag("other"))
    from crc32c import crc32c

    for changed in (bytes((2,)) + datagram[1:-4], datagram[:1] + bytes((99,)) + datagram[2:-4]):
        with pytest.raises(DatagramError, match="knows format 1"):
            decode(changed + crc32c(changed).to_bytes(4, "big"), TAG)


def test_the_bytes_of_a_message_stay_what_they_are() -> None:
    """Groups of two versions are to understand each other: a change here is a change of the format."""
    event = m.Event(7, b"entry", b"\x01" * 4, 3, "a")
    assert encode(m.PoolEvent(event, 2, 1, 0, 1), TAG).hex() == GOLDEN_EVENT
    assert encode(m.Heartbeat(7, b"\x01" * 4, 250, False), TAG).hex() == GOLDEN_HEARTBEAT


GOLDEN_EVENT = "0100d0910c86e7d53ef7959507c405656e747279c4040101010103a161020100018eb817d8"
GOLDEN_HEARTBEAT = "0110d0910c86e7d53ef79407c40401010101ccfac2becbf51b"
