"""Streams between servers without any socket: who is believed, what is refused, and what is never answered (D-6)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.transport.network import KEY, OTHER_KEY, A, B, C, sender
from zraft.transport.bulk import (
    ANSWER_BYTES,
    ANY_SERVER,
    FRAME_BYTES_MAX,
    FRAME_OVERHEAD_BYTES,
    MAGIC,
    NOBODY,
    OPENING_BYTES,
    BulkConnection,
    DialerRole,
)
from zraft.transport.keys import ClusterKey, key_ring
from zraft.transport.messages import Sender
from zraft.transport.packing import UnsendableError
from zraft.transport.sealing import RejectedError, Rejection
from zraft_core.ids import ServerId

ME, IT = sender(A), sender(B)


def ring(*keys: ClusterKey) -> dict[bytes, ClusterKey | None]:
    return key_ring(keys, insecure=False) if keys else key_ring(None, insecure=True)


def dialed(
    keys: Sequence[ClusterKey] = (KEY,),
    *,
    me: Sender | None = ME,
    to: ServerId = B,
    seed: int = 1,
    message_bytes_max: int = 4 * 2**20,
) -> tuple[BulkConnection, bytes]:
    return BulkConnection.dial(
        me=me,
        to=to,
        ring=ring(*keys),
        entropy=random.Random(f"{seed}-dialer").randbytes,
        message_bytes_max=message_bytes_max,
    )


def accepting(
    keys: Sequence[ClusterKey] = (KEY,),
    *,
    me: Sender = IT,
    seed: int = 1,
    message_bytes_max: int = 4 * 2**20,
) -> BulkConnection:
    return BulkConnection.accept(
        me=me,
        peers={A, B, C} - {me.server},
        ring=ring(*keys),
        entropy=random.Random(f"{seed}-acceptor").randbytes,
        message_bytes_max=message_bytes_max,
    )


def joined(**options: object) -> tuple[BulkConnection, BulkConnection]:
    dialer, opening = dialed(**options)  # type: ignore[arg-type]
    acceptor = accepting(
        options.get("keys", (KEY,)),  # type: ignore[arg-type]
        message_bytes_max=options.get("message_bytes_max", 4 * 2**20),  # type: ignore[arg-type]
    )
    answer = acceptor.receive(opening)
    proof = dialer.receive(answer.output)
    assert acceptor.receive(proof.output).output == b""
    assert dialer.established
    assert acceptor.established
    return dialer, acceptor


def frames(connection: BulkConnection, *messages: bytes) -> list[bytes]:
    for message in messages:
        connection.enqueue(message)
    made = []
    while (frame := connection.next_frame()) is not None:
        made.append(frame)
    return made


@pytest.mark.parametrize("keys", [(KEY,), ()], ids=["sealed", "plain"])
@pytest.mark.parametrize(
    "size", [1, FRAME_BYTES_MAX - 1, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 3_000_000, 4 * 2**20]
)
def test_messages_of_every_size_cross_both_ways(keys: tuple[ClusterKey, ...], size: int) -> None:
    dialer, acceptor = joined(keys=keys)
    messages = [random.Random(size).randbytes(size), b"after"]
    for frm, to in ((dialer, acceptor), (acceptor, dialer)):
        wire = frames(frm, *messages)
        assert all(len(frame) <= FRAME_BYTES_MAX + FRAME_OVERHEAD_BYTES for frame in wire)
        assert to.receive(b"".join(wire)).messages == messages
        assert frm.queued_bytes == 0


def test_the_ends_know_each_other() -> None:
    dialer, acceptor = joined()
    assert (dialer.peer, acceptor.peer) == (sender(B), sender(A))
    assert dialer.role is acceptor.role is DialerRole.PEER
    assert dialer.key_id == acceptor.key_id == KEY.key_id


def test_an_operator_is_nobody_and_learns_whom_it_reached() -> None:
    dialer, acceptor = joined(me=None, to=ANY_SERVER)
    assert dialer.peer == sender(B)
    assert acceptor.peer == NOBODY
    assert acceptor.role is DialerRole.OPERATOR


def test_it_works_byte_by_byte() -> None:
    dialer, opening = dialed()
    acceptor = accepting()
    answer = b"".join(acceptor.receive(opening[at : at + 1]).output for at in range(len(opening)))
    proof = b"".join(dialer.receive(answer[at : at + 1]).output for at in range(len(answer)))
    wire = proof + b"".join(frames(dialer, b"first", bytes(1000)))
    got = [message for at in range(len(wire)) for message in acceptor.receive(wire[at : at + 1]).messages]
    assert got == [b"first", bytes(1000)]


@settings(max_examples=300)
@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda rest: MAGIC + rest))
def test_who_does_not_know_the_key_gets_not_one_byte(data: bytes) -> None:
    acceptor = accepting()
    try:
        arrived = acceptor.receive(data)
    except RejectedError:
        return
    assert arrived.output == b""
    assert not acceptor.established
    assert len(data) < OPENING_BYTES, "what is long enough to be judged was refused"


@settings(max_examples=200)
@given(st.integers(0, OPENING_BYTES - 1), st.integers(1, 255))
def test_an_opening_with_any_byte_changed_is_refused_without_an_answer(at: int, flip: int) -> None:
    _, opening = dialed()
    changed = bytearray(opening)
    changed[at] ^= flip
    with pytest.raises(RejectedError):
        accepting().receive(bytes(changed))


@settings(max_examples=200)
@given(st.integers(0, ANSWER_BYTES - 1), st.integers(1, 255))
def test_an_answer_with_any_byte_changed_is_refused(at: int, flip: int) -> None:
    dialer, opening = dialed()
    answer = bytearray(accepting().receive(opening).output)
    answer[at] ^= flip
    with pytest.raises(RejectedError):
        dialer.receive(bytes(answer))
    assert not dialer.established


@pytest.mark.parametrize(
    ("options", "rejection"),
    [
        ({"keys": (OTHER_KEY,)}, Rejection.UNKNOWN_KEY),
        ({"keys": ()}, Rejection.UNKNOWN_KEY),
        ({"to": C}, Rejection.MISADDRESSED),
        ({"me": sender(ServerId(9))}, Rejection.UNKNOWN_SENDER),
        ({"me": sender(B)}, Rejection.UNKNOWN_SENDER),
        ({"me": None, "to": C}, Rejection.MISADDRESSED),
    ],
)
def test_who_is_refused_and_why(options: dict[str, object], rejection: Rejection) -> None:
    _, opening = dialed(**options)  # type: ignore[arg-type]
    with pytest.raises(RejectedError) as caught:
        accepting().receive(opening)
    assert caught.value.rejection is rejection


def test_a_key_with_the_right_id_and_other_bytes_is_refused() -> None:
    """The key id is on the wire for everybody to read."""
    _, opening = dialed((OTHER_KEY,))
    forged = opening.replace(OTHER_KEY.key_id, KEY.key_id)
    with pytest.raises(RejectedError) as caught:
        accepting().receive(forged)
    assert caught.value.rejection is Rejection.UNAUTHENTIC


def test_a_recorded_connection_opens_nothing_again() -> None:
    dialer, opening = dialed()
    acceptor = accepting()
    answer = acceptor.receive(opening).output
    proof = dialer.receive(answer).output
    recorded = frames(dialer, b"secret command")
    again = accepting(seed=2)
    assert len(again.receive(opening).output) == ANSWER_BYTES, "a recording proves that its maker had the key"
    with pytest.raises(RejectedError) as caught:
        again.receive(proof + b"".join(recorded))
    assert caught.value.rejection is Rejection.UNAUTHENTIC
    assert not again.established


def test_a_recorded_answer_convinces_no_dialer() -> None:
    _, opening = dialed(seed=1)
    answer = accepting().receive(opening).output
    dialer, _ = dialed(seed=2)
    with pytest.raises(RejectedError):
        dialer.receive(answer)


def test_an_opening_played_back_to_its_sender_is_no_answer() -> None:
    dialer, opening = dialed()
    with pytest.raises(RejectedError):
        dialer.receive(opening + opening)


def test_another_server_that_answers_is_refused() -> None:
    dialer, opening = dialed(to=B)
    wrong = accepting(me=sender(B), seed=3)
    answer = wrong.receive(opening).output
    dialer_to_c, _ = dialed(to=C)
    with pytest.raises(RejectedError):
        dialer_to_c.receive(answer)
    assert dialer.receive(answer).output


@pytest.mark.parametrize("keys", [(KEY,), ()], ids=["sealed", "plain"])
def test_frames_out_of_order_doubled_or_missing_are_noticed(keys: tuple[ClusterKey, ...]) -> None:
    for pick in ([1, 0], [0, 0], [1], [0, 2]):
        dialer, acceptor = joined(keys=keys)
        wire = [frame for number in range(3) for frame in frames(dialer, bytes([number]) * 50)]
        with pytest.raises(RejectedError) as caught:
            acceptor.receive(b"".join(wire[at] for at in pick))
        assert caught.value.rejection is Rejection.UNAUTHENTIC


def test_a_message_cut_short_is_never_delivered() -> None:
    dialer, acceptor = joined()
    wire = b"".join(frames(dialer, random.Random(1).randbytes(300_000)))
    assert acceptor.receive(wire[:-1]).messages == []


@settings(max_examples=100)
@given(st.integers(0, 2_000_000), st.integers(1, 255))
def test_a_frame_with_any_byte_changed_is_refused(at: int, flip: int) -> None:
    dialer, acceptor = joined()
    wire = bytearray(b"".join(frames(dialer, bytes(500), bytes(500))))
    wire[at % len(wire)] ^= flip
    try:
        messages = acceptor.receive(bytes(wire)).messages
    except RejectedError:
        return
    # A larger length than there is: it waits for the rest.
    assert messages in ([], [bytes(500)])


def test_what_a_stranger_makes_us_hold_is_bounded() -> None:
    with pytest.raises(RejectedError):
        accepting().receive(MAGIC + bytes(OPENING_BYTES))
    _, opening = dialed()
    acceptor = accepting()
    acceptor.receive(opening)
    with pytest.raises(RejectedError, match="did not prove"):
        acceptor.receive(b"\x00\x00\x10\x00")


@pytest.mark.parametrize("size", [0, 15, FRAME_BYTES_MAX + 17, 2**31 - 1])
def test_a_frame_of_an_impossible_size_is_refused_before_it_is_held(size: int) -> None:
    _, acceptor = joined()
    with pytest.raises(RejectedError, match="expected a frame of 16 to"):
        acceptor.receive(size.to_bytes(4))


def test_messages_above_the_bound_are_refused_at_both_ends() -> None:
    dialer, _ = joined(message_bytes_max=300_000)
    with pytest.raises(UnsendableError, match="message_bytes_max"):
        dialer.enqueue(bytes(300_001))
    generous, opening = dialed(message_bytes_max=400_000)
    strict = accepting(message_bytes_max=300_000)
    strict.receive(generous.receive(strict.receive(opening).output).output)
    with pytest.raises(RejectedError, match="at most 300000 bytes"):
        strict.receive(b"".join(frames(generous, bytes(300_001))))


def test_the_keys_of_two_connections_and_of_two_directions_differ() -> None:
    """The same bytes sealed with the same counter are never the same on the wire."""
    one, one_back = joined(seed=1)
    two_dialer, opening = dialed(seed=2)
    two = accepting(seed=2)
    two.receive(two_dialer.receive(two.receive(opening).output).output)
    sealed = [frames(end, bytes(64))[0] for end in (one, two_dialer)]
    assert sealed[0] != sealed[1]
    frames(one_back, b"0")  # the dialer's proof took its counter 0
    assert frames(one_back, bytes(64))[0] != sealed[0]


@pytest.mark.parametrize(
    ("dialer_keys", "acceptor_keys"),
    [((KEY,), (KEY, OTHER_KEY)), ((KEY, OTHER_KEY), (OTHER_KEY, KEY)), ((OTHER_KEY, KEY), (KEY, OTHER_KEY))],
)
def test_neighbouring_steps_of_a_key_change_understand_each_other(
    dialer_keys: tuple[ClusterKey, ...], acceptor_keys: tuple[ClusterKey, ...]
) -> None:
    dialer, opening = dialed(dialer_keys)
    acceptor = accepting(acceptor_keys)
    acceptor.receive(dialer.receive(acceptor.receive(opening).output).output)
    assert acceptor.receive(b"".join(frames(dialer, b"hello"))).messages == [b"hello"]


def test_no_client_protocol_begins_like_a_stream() -> None:
    """TLS begins with 0x16, four-letter words are text, ZooKeeper's frames have a length that can be."""
    assert MAGIC[0] != 0x16
    assert any(byte > 0x7E for byte in MAGIC)
    assert int.from_bytes(MAGIC) > 2**30
