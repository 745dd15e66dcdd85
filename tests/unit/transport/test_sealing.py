"""Rule D-6 on single datagrams: keys, nonces, associated data, replay window."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.transport.network import KEY, OTHER_KEY, A, B, C, sender
from zraft.transport import sealing
from zraft.transport.keys import ClusterKey
from zraft.transport.messages import Sender
from zraft.transport.sealing import (
    HELLO_BYTES,
    NO_CHALLENGE,
    SEAL_BYTES,
    WINDOW,
    HelloDatagram,
    Incoming,
    Outgoing,
    RejectedError,
    Rejection,
    ReplayWindow,
    decode_hello,
    encode_hello,
    mac_key_for,
)

SALT_A, SALT_B = b"a" * 32, b"b" * 32
BODY = b"\x01\xdc\x00\x01" + bytes(60)
KEYS = pytest.mark.parametrize("key", [KEY, None], ids=["sealed", "plain"])


def outgoing(
    key: ClusterKey | None = KEY, *, me: Sender | None = None, to: int = B, salt: bytes = SALT_A
) -> Outgoing:
    return Outgoing(key, me=me or sender(A), receiver=to, salt=salt)  # type: ignore[arg-type]


def incoming(*, of: Sender | None = None, salt: bytes = SALT_A) -> Incoming:
    return Incoming(sender=of or sender(A), receiver=B, salt=salt)


def open_at(
    ear: Incoming, datagram: bytes, *, key: ClusterKey | None = KEY, my_salt: bytes = SALT_B
) -> bytes:
    return ear.open(datagram, b"id" if key is None else key.key_id, key, my_salt)


@KEYS
def test_a_sealed_body_opens_once(key: ClusterKey | None) -> None:
    datagram = outgoing(key).seal(BODY, SALT_B)
    assert len(datagram) == len(BODY) + SEAL_BYTES
    ear = incoming()
    assert open_at(ear, datagram, key=key) == BODY
    with pytest.raises(RejectedError) as caught:
        open_at(ear, datagram, key=key)
    assert caught.value.rejection is Rejection.REPLAYED


def test_a_sealed_body_cannot_be_read_on_the_wire() -> None:
    body = b"the secret of the cluster" * 4
    assert body[:25] not in outgoing(KEY).seal(body, SALT_B)
    assert body[:25] in outgoing(None).seal(body, SALT_B), "plain mode is readable, for debugging"


@KEYS
def test_no_changed_byte_goes_unnoticed_and_none_spoils_the_original(key: ClusterKey | None) -> None:
    datagram = outgoing(key).seal(BODY, SALT_B)
    ear = incoming()
    for at in range(5, len(datagram)):  # the five bytes before are the addressing, judged by PeerLinks
        for flip in (0x01, 0x80):
            if key is None and 5 <= at < 9:
                continue  # the key id chooses the cipher; PeerLinks refuses unknown ones
            wrong = datagram[:at] + bytes([datagram[at] ^ flip]) + datagram[at + 1 :]
            with pytest.raises(RejectedError):
                open_at(ear, wrong, key=key)
    assert open_at(ear, datagram, key=key) == BODY


@KEYS
def test_no_cut_datagram_opens(key: ClusterKey | None) -> None:
    datagram = outgoing(key).seal(BODY, SALT_B)
    for size in range(len(datagram)):
        with pytest.raises(RejectedError):
            open_at(incoming(), datagram[:size], key=key)


def _keystream(datagram: bytes, body: bytes) -> bytes:
    sealed = datagram[SEAL_BYTES - 16 : -16]
    return bytes(x ^ y for x, y in zip(sealed, body, strict=True))


def test_a_cloned_directory_repeats_no_key_with_its_nonce() -> None:
    """D-6: three runs with the same server id, instance and boot, as after restoring a backup twice.

    With AES-GCM the pair (key, nonce) fixes the keystream, which a known body lays bare.
    """
    body = bytes(64)
    keystreams = []
    for run in range(3):
        salt = random.Random(run).randbytes(32)
        for receiver in (B, C):
            mouth = outgoing(me=sender(A, boot=4), to=receiver, salt=salt)
            keystreams += [_keystream(mouth.seal(body, SALT_B), body) for _ in range(20)]
    assert len(set(keystreams)) == 3 * 2 * 20


def test_the_same_salt_would_repeat_them() -> None:
    """The control of the test above: it is the salt, and nothing else, that prevents the repetition."""
    body = bytes(64)
    first, second = (_keystream(outgoing(me=sender(A, boot=4)).seal(body, SALT_B), body) for _ in range(2))
    assert first == second


def test_a_new_salt_of_the_receiver_repeats_no_nonce() -> None:
    """When the receiver restarts, the sender goes on with its own key: the counter must go on too."""
    mouth, body = outgoing(), bytes(64)
    keystreams = {_keystream(mouth.seal(body, salt), body) for salt in (SALT_B, b"c" * 32, SALT_B)}
    assert len(keystreams) == 3


def test_a_datagram_opens_only_for_the_run_it_was_sealed_for() -> None:
    """D-6: the receiver's salt is in the associated data. With equal salt tags, only crypto can tell."""
    datagram = outgoing().seal(BODY, SALT_B)
    with pytest.raises(RejectedError) as caught:
        open_at(incoming(), datagram, my_salt=SALT_B[:-1] + b"x")
    assert caught.value.rejection is Rejection.UNAUTHENTIC
    with pytest.raises(RejectedError) as caught:
        open_at(incoming(), datagram, my_salt=b"x" * 32)
    assert caught.value.rejection is Rejection.STALE


@pytest.mark.parametrize(
    "other",
    [
        incoming(of=sender(A, boot=2)),
        incoming(of=sender(A, disk=9)),
        incoming(of=sender(C)),
        incoming(salt=SALT_A[:-1] + b"x"),
        Incoming(sender=sender(A), receiver=C, salt=SALT_A),
    ],
    ids=["boot", "instance", "server", "salt", "receiver"],
)
def test_what_opens_proves_server_instance_boot_salt_and_receiver(other: Incoming) -> None:
    """D-1, D-6: all of them are in the derivation of the key."""
    with pytest.raises(RejectedError) as caught:
        open_at(other, outgoing().seal(BODY, SALT_B))
    assert caught.value.rejection is Rejection.UNAUTHENTIC


def test_a_datagram_of_another_cluster_key_does_not_open() -> None:
    with pytest.raises(RejectedError) as caught:
        open_at(incoming(), outgoing(OTHER_KEY).seal(BODY, SALT_B), key=KEY)
    assert caught.value.rejection is Rejection.UNAUTHENTIC


@KEYS
def test_hellos_survive_the_wire_and_no_changed_byte_goes_unnoticed(key: ClusterKey | None) -> None:
    hello = HelloDatagram(sender(A, boot=2**40), SALT_A, b"c" * 16, NO_CHALLENGE)
    mac_key = mac_key_for(key)
    datagram = encode_hello(hello, receiver=B, key_id=b"keys", mac_key=mac_key)
    assert len(datagram) == HELLO_BYTES
    assert decode_hello(datagram, mac_key=mac_key) == hello
    for at in range(len(datagram)):
        wrong = datagram[:at] + bytes([datagram[at] ^ 0x10]) + datagram[at + 1 :]
        with pytest.raises(RejectedError):
            decode_hello(wrong, mac_key=mac_key)
    for wrong in (datagram[:-1], datagram + b"\x00", b""):
        with pytest.raises(RejectedError, match="hello: expected"):
            decode_hello(wrong, mac_key=mac_key)
    with pytest.raises(RejectedError):
        decode_hello(datagram, mac_key=mac_key_for(OTHER_KEY))


@pytest.mark.parametrize("seed", range(10))
def test_the_replay_window_takes_each_counter_at_most_once(seed: int) -> None:
    """Against a set, over jumps, repetitions and stragglers around the edge of the window."""
    rng = random.Random(seed)
    window, seen, highest = ReplayWindow(), set(), -1
    taken = refused_new = 0
    for _ in range(3_000):
        counter = max(
            0, highest + rng.choice([1, 1, 2, 0, -1, -5, -WINDOW, 1 - WINDOW, rng.randint(-WINDOW - 9, 40)])
        )
        if rng.random() < 0.002:
            counter = highest + rng.choice([WINDOW - 1, WINDOW, WINDOW + 1, 10**12])
        expected = counter not in seen and (counter > highest - WINDOW or highest < 0)
        assert window.is_new(counter) == expected, f"{counter=} {highest=}"
        refused_new += counter not in seen and not expected
        if expected:
            window.mark(counter)
            seen.add(counter)
            highest = max(highest, counter)
            taken += 1
    assert taken > 500
    assert refused_new > 10


def test_a_forged_counter_does_not_move_the_window() -> None:
    """Only what opens is marked: else one forged datagram would shut out all the honest ones below it."""
    mouth, ear = outgoing(), incoming()
    first, second = mouth.seal(BODY, SALT_B), mouth.seal(BODY, SALT_B)
    forged = first[:17] + (2**63).to_bytes(8) + first[25:]
    with pytest.raises(RejectedError):
        open_at(ear, forged)
    assert open_at(ear, first) == open_at(ear, second) == BODY


@KEYS
@pytest.mark.parametrize("way", [Incoming.open_next, None], ids=["short", "general"])
def test_no_counter_is_too_large_to_be_opened_and_the_largest_is_followed_by_none(
    key: ClusterKey | None, way: Callable[[Incoming, bytes], bytes | None] | None
) -> None:
    """In plain mode anybody can send them."""
    mouth, ear = outgoing(key), incoming()
    first = mouth.seal(BODY, SALT_B)
    mouth._counter = 2**64 - 2
    wire = [mouth.seal(BODY, SALT_B)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "_COUNTER_MAX", 2**64)  # our own runs stop before the last one
        wire.append(mouth.seal(BODY, SALT_B))
    assert open_at(ear, wire[0], key=key) == BODY
    assert (way(ear, wire[1]) if way is not None else open_at(ear, wire[1], key=key)) == BODY
    for datagram in (first, *wire):
        assert ear.open_next(datagram) is None
        with pytest.raises(RejectedError):
            open_at(ear, datagram, key=key)


class Arrivals(Enum):
    """What the network does with the next datagram."""

    NEXT = "it arrives"
    LATE = "it arrives after the one behind it"
    TWICE = "it arrives twice"
    LOST = "it is lost"
    CHANGED = "one bit of it is changed"
    CUT = "its end is missing"
    OTHER_RUN = "it is sealed for another run"
    OTHER_KEY = "it is sealed under the other key"


@KEYS
@given(fates=st.lists(st.sampled_from(Arrivals), max_size=40), draw=st.randoms(use_true_random=False))
def test_the_short_path_opens_exactly_what_the_general_path_opens(
    key: ClusterKey | None, fates: list[Arrivals], draw: random.Random
) -> None:
    mouth, other_mouth = outgoing(key), outgoing(OTHER_KEY)
    wire: list[tuple[bytes, ClusterKey | None]] = []
    for number, fate in enumerate(fates):
        body = BODY + bytes([number])
        datagram = mouth.seal(body, bytes(32) if fate is Arrivals.OTHER_RUN else SALT_B)
        match fate:
            case Arrivals.LATE:
                wire += [(mouth.seal(BODY, SALT_B), key), (datagram, key)]
            case Arrivals.TWICE:
                wire += [(datagram, key)] * 2
            case Arrivals.LOST:
                pass
            case Arrivals.CHANGED:
                at = draw.randrange(len(datagram))
                wire.append((datagram[:at] + bytes([datagram[at] ^ 1]) + datagram[at + 1 :], key))
            case Arrivals.CUT:
                wire.append((datagram[: draw.randrange(len(datagram))], key))
            case Arrivals.OTHER_KEY if key is not None:
                wire.append((other_mouth.seal(body, SALT_B), OTHER_KEY))
            case _:
                wire.append((datagram, key))
    short, general, shorter = incoming(), incoming(), 0
    for datagram, sealed_under in wire:
        opened = short.open_next(datagram)
        shorter += opened is not None
        if opened is None:
            opened = opened_or_not(short, datagram, sealed_under)
        assert opened == opened_or_not(general, datagram, sealed_under)
        assert (short.opened, short.next_counter) == (general.opened, general.next_counter)
    if set(fates) == {Arrivals.NEXT}:
        assert shorter == len(fates) - 1, "all but the first"


def opened_or_not(ear: Incoming, datagram: bytes, key: ClusterKey | None) -> bytes | None:
    try:
        return open_at(ear, datagram, key=key)
    except RejectedError:
        return None


def test_the_short_path_forgets_a_key_that_is_worth_nothing_any_more() -> None:
    mouth, ear = outgoing(), incoming()
    open_at(ear, mouth.seal(BODY, SALT_B))
    assert ear.open_next(mouth.seal(BODY, SALT_B)) == BODY
    ear.forget_key(KEY.key_id)
    assert ear.open_next(mouth.seal(BODY, SALT_B)) is None
