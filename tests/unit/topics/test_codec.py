"""Bytes of commands, messages and snapshots: what goes in comes out; whatever else goes in is a declared error."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.topics.groups import VIEW, A, B, C, P, apply, message, partition, remote, start
from zraft.topics.image import partition_image, read_image, state_digest
from zraft.topics.partition import Partition
from zraft.topics.registry import Registry
from zraft.topics.registry_image import read_registry, registry_image
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId, Instance, ProducerId, ServerId
from zraft_core.topics import codec, forms
from zraft_core.topics.codec import (
    Bundle,
    decode_batch,
    decode_bundle,
    decode_edge,
    decode_message,
    decode_registry,
    encode_batch,
    encode_bundles,
    encode_edge,
    encode_message,
    encode_registry,
)
from zraft_core.topics.commands import (
    Advance,
    Batch,
    PartitionCommand,
    Remote,
    Seek,
    Settled,
    Start,
    ViewChanged,
)
from zraft_core.topics.message import COORDINATOR, After, Condition, as_fields
from zraft_core.topics.messages import (
    Answer,
    FloorReport,
    GroupMessage,
    Need,
    NeedPayload,
    Propose,
    Query,
    Reply,
    Report,
    StartRequest,
    Told,
    ViewUpdate,
)
from zraft_core.topics.registry_commands import (
    AlterTopic,
    Cleared,
    CloseProducer,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    EndOwner,
    Placed,
    PlaceGroup,
    RegisterProducer,
    RegistryCommand,
    RetainTopic,
    TopicChanged,
)
from zraft_core.topics.registry_values import Retention
from zraft_core.topics.stamps import FinalTime, MessageId
from zraft_core.topics.view import ViewDelta

FULL = message(
    3, A, B, after=After(MessageId(P, 1), (A, C)), condition=Condition(B, b"who", 4, 9), depends=77
)
CHANGE = message(1, A, C, producer=COORDINATOR, partitions=(C, A))
DELTA = ViewDelta(20, 30, 1, (ProducerId(22),), (P,), (), (GroupId(24),), (C,), ())
COMMANDS: tuple[PartitionCommand, ...] = (
    *(Start(FULL, 2, 1), Start(CHANGE, 0, 0), remote(FULL, B, 5, void=True), remote(FULL, B, 5, whole=False)),
    *(Advance(9), Settled(B, FinalTime(5, B)), ViewChanged(VIEW), ViewChanged(DELTA)),
    *(Seek(b"who", 4), Seek(b"who", None)),
)
MID = FULL.mid
MESSAGES: tuple[GroupMessage, ...] = (
    *(Propose(MID, B, 5, None, 2, bytes(16), FULL), Propose(MID, B, 5, False, 2, bytes(16))),
    *(NeedPayload(MID, A), Query(MID, A), Told(MID, A), FloorReport(B, FinalTime(5, B), wanted=True)),
    *(Need(7), ViewUpdate(VIEW), ViewUpdate(DELTA)),
)
EDGE: tuple[Report | StartRequest | Reply, ...] = (
    *(Report(A, 30, (P,), (C,)), StartRequest(FULL, 2, 1, relayed=True)),
    *(Reply(MID, A, answer, True, 4, 1, 2) for answer in Answer),
    Reply(MID, A, Answer.RETRY),
)
DISKS = ((ServerId(1), Instance(bytes(16))), (ServerId(2), Instance(b"2" * 16)))
REGISTRY: tuple[RegistryCommand, ...] = (
    *(RegisterProducer(-5), CloseProducer(P), EndOwner(2**64 - 1), CreateTopic("a-b", 3), AlterTopic("a", 4)),
    *(CreateGroup(5, DISKS, ServerId(2)), TopicChanged(2), DeleteTopic("x"), Cleared(A, (P,), (B, C))),
    *(CreateTopic("kept", 1, Retention(2**40)), RetainTopic("kept", Retention(None, 60_000))),
    *(PlaceGroup(A, DISKS, None), Placed(A, DISKS)),
)


def test_a_batch_comes_out_as_it_went_in() -> None:
    batch = Batch(12345, COMMANDS)
    assert decode_batch(encode_batch(batch)) == batch


def test_a_bundle_comes_out_as_it_went_in() -> None:
    (packed,) = encode_bundles(A, MESSAGES)
    assert decode_bundle(packed) == (Bundle(A, MESSAGES), [])


@pytest.mark.parametrize("value", EDGE, ids=repr)
def test_messages_at_the_edge_come_out_as_they_went_in(value: Any) -> None:
    assert decode_edge(encode_edge(value)) == value


@pytest.mark.parametrize("command", REGISTRY, ids=repr)
def test_registry_commands_come_out_as_they_went_in(command: RegistryCommand) -> None:
    assert decode_registry(encode_registry(command)) == command


def test_a_message_alone_comes_out_as_it_went_in() -> None:
    assert decode_message(encode_message(FULL)) == FULL


def test_large_messages_make_more_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "BUNDLE_BYTES_MAX", 100)
    packed = list(encode_bundles(A, [Need(1)] * 100))
    assert len(packed) > 2
    assert all(len(one) < 150 + 100 for one in packed)
    assert sum(len(decode_bundle(one)[0].messages) for one in packed) == 100


def test_a_message_of_a_newer_release_costs_itself_only() -> None:
    newer = msgpack.packb((99, 1, 2))
    bundle, errors = decode_bundle(msgpack.packb((1, A, [newer, msgpack.packb((6, 7)), b"\xc1"])))
    assert bundle.messages == (Need(7),)
    assert len(errors) == 2
    assert "a newer release may know it" in str(errors[0])


def test_an_entry_of_a_newer_format_is_not_guessed() -> None:
    with pytest.raises(ProtocolError, match="format 2, this release knows 1: upgrade"):
        decode_batch(msgpack.packb((2, 0, [], b"new")))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({1: ()}, "1 to 1024 items"),
        ({1: (B, A)}, "ascending"),
        ({1: (A, A)}, "ascending"),
        ({0: (P, 0)}, "an integer from 1"),
        ({2: 5}, "bytes"),
        ({3: 1}, "0 with several"),
        ({5: (C, b"who", 1, 2)}, "one of the destinations"),
        ({5: (A, b"", 1, 2)}, "1 to 255 bytes"),
        ({6: 2**62 + 1}, "an integer from 0"),
        ({7: (A, B)}, "nil, as from every producer but group 0"),
        ({4: (P, 1)}, "array"),
    ],
)
def test_a_message_that_breaks_a_rule_is_refused(change: dict[int, Any], expected: str) -> None:
    fields = list(msgpack.unpackb(encode_message(FULL), use_list=False))
    for at, value in change.items():
        fields[at] = value
    with pytest.raises(ProtocolError, match=expected):
        decode_message(msgpack.packb(fields))


def state_with_everything() -> Partition:
    state = partition(window=2000)
    first = message(1, A, B)
    apply(state, start(first), remote(first, B, 3), log_time_ms=50)
    apply(
        state,
        start(message(2, A, B)),
        start(message(3, A, depends=9)),
        start(message(4, A, C)),
        Seek(b"x", 4),
    )
    apply(state, start(message(5, A, number=2)), Settled(C, FinalTime(2, C)), log_time_ms=60)
    return state


def test_a_partition_comes_out_of_its_snapshot_and_goes_on_as_it_would_have() -> None:
    state = state_with_everything()
    again = read_image(list(partition_image(state)))
    assert state_digest(again) == state_digest(state)
    assert again.involved.of_producer == state.involved.of_producer
    assert again.involved.to_group == state.involved.to_group
    assert again.pending.awaited == state.pending.awaited
    for each in (state, again):
        second, fourth = message(2, A, B), message(4, A, C)
        apply(each, remote(second, B, 12, whole=False), remote(fourth, C, 1, whole=False), Advance(30))
        apply(each, start(message(6, A, number=3)), Settled(B, FinalTime(12, B)))
    assert state_digest(again) == state_digest(state)
    assert again.chain == state.chain
    assert again.next_offset == 6


def test_many_messages_make_many_pieces() -> None:
    state = partition(window=2000)
    apply(state, *[start(message(seq, A, B)) for seq in range(1, 601)])
    pieces = list(partition_image(state))
    assert len(pieces) > 4
    assert state_digest(read_image(pieces)) == state_digest(state)


def test_a_snapshot_with_a_piece_missing_or_out_of_order_is_refused() -> None:
    pieces = list(partition_image(state_with_everything()))
    for at in range(len(pieces)):
        with contextlib.suppress(ProtocolError):
            # A list of items may be missing as a whole, which the digest of the file tells; head and end may not.
            read_image([*pieces[:at], *pieces[at + 1 :]])
            assert at not in (0, 1, len(pieces) - 1)
    with pytest.raises(ProtocolError):
        read_image(reversed(pieces))
    with pytest.raises(ProtocolError):
        read_image([*pieces, pieces[-1]])
    with pytest.raises(ProtocolError):
        read_image([])


def spoil(rng: Random, packed: bytes) -> bytes:
    spoiled = bytearray(packed)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(spoiled))
        match rng.randrange(4):
            case 0:
                spoiled[at] = rng.randrange(256)
            case 1:
                del spoiled[at:]
            case 2:
                spoiled[at:at] = bytes([rng.randrange(256)])
            case _:
                spoiled[at] ^= 1 << rng.randrange(8)
        if not spoiled:
            break
    return bytes(spoiled)


@settings(max_examples=200)
@given(st.randoms(use_true_random=False))
def test_spoiled_bytes_are_a_value_or_a_declared_error(rng: Random) -> None:
    (bundle,) = encode_bundles(A, MESSAGES)
    registry = Registry()
    registry.apply(CreateTopic("t", 1), 5)
    registry.apply(CreateGroup(5, DISKS), 6)
    for packed, decode in (
        (encode_batch(Batch(1, COMMANDS)), decode_batch),
        (bundle, decode_bundle),
        (encode_edge(rng.choice(EDGE)), decode_edge),
        (encode_registry(rng.choice(REGISTRY)), decode_registry),
    ):
        with contextlib.suppress(ProtocolError):
            decode(spoil(rng, packed))
    for pieces, read in (
        (list(partition_image(state_with_everything())), read_image),
        (list(registry_image(registry)), read_registry),
    ):
        at = rng.randrange(len(pieces))
        with contextlib.suppress(ProtocolError):
            read([*pieces[:at], spoil(rng, pieces[at]), *pieces[at + 1 :]])


@settings(max_examples=100)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_declared_error(data: bytes) -> None:
    for decode in (decode_batch, decode_bundle, decode_edge, decode_registry, decode_message):
        with contextlib.suppress(ProtocolError):
            decode(data)
    for read in (read_image, read_registry):
        with contextlib.suppress(ProtocolError):
            read([data])


def test_a_message_with_nothing_special_is_checked_as_strictly_as_any_other() -> None:
    """There is a short way for these; what it does not take goes the long one, which says what is wrong."""
    fields: list[Any] = [(3, 1), (5,), b"x", 1, None, None, 0, None]
    assert forms.message.unpack(tuple(fields), "m").destinations == (5,)
    for at, wrong in (
        *((0, (3, 0)), (0, (-1, 1)), (0, (True, 1)), (0, (3,)), (1, ()), (1, (0,)), (1, (5, 5))),
        *((1, (7, 5)), (1, (5, 6)), (1, (b"5",)), (2, "x"), (3, 0), (3, -1), (3, True), (6, -1)),
        *((6, 2**62 + 1), (6, None), (1, tuple(range(1, 2_000)))),
    ):
        changed = [*fields]
        changed[at] = wrong
        with pytest.raises(ProtocolError):
            forms.message.unpack(tuple(changed), "m")


def test_a_proposal_is_checked_as_strictly_on_the_short_way() -> None:
    """What is not well-formed in the usual way goes by the forms of its fields, which say what is wrong."""
    plain = message(4, A, B)
    usual: list[Any] = [2, (3, 1), 5, 9, None, 0, bytes(16), None]
    quick = forms.plain_proposal(Remote)
    assert quick(tuple(usual)) == Remote(MessageId(ProducerId(3), 1), GroupId(5), 9, None, 0, bytes(16))
    for one in (remote(plain, B, 5, void=True), remote(plain, B, 5, whole=False)):
        batch = Batch(1, (one,))
        assert decode_batch(encode_batch(batch)) == batch
    for at, wrong in (
        *((1, (3, 0)), (1, (-1, 1)), (1, (True, 1)), (1, (3,)), (1, 3), (2, 0), (2, "5"), (2, True)),
        *((3, 0), (3, None), (3, 2**63), (4, 1), (4, 0), (5, -1), (5, None), (6, bytes(15)), (6, "x" * 16)),
        *((7, ()), (7, b""), (7, 0)),
    ):
        changed = [*usual]
        changed[at] = wrong
        assert quick(tuple(changed)) is None, (at, wrong)
    assert quick(tuple(usual[:-1])) is None
    assert quick((*usual, None)) is None
    special = [*usual]
    special[7] = tuple(as_fields(FULL))
    assert quick(tuple(special)) is None, "what has conditions goes the long way"
