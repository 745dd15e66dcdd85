"""PeerLinks as the server uses it: messages in, datagrams out, and nothing on the wire can raise."""

from __future__ import annotations

import random
from functools import cache

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.transport.network import (
    KEY,
    OTHER_KEY,
    A,
    B,
    C,
    Network,
    append,
    joined,
    links,
    note,
    receive,
    sender,
)
from zraft.raft.messages import Heartbeat
from zraft.transport import codec, link, packing
from zraft.transport.keys import ClusterKey
from zraft.transport.link import (
    DATAGRAM_BYTES_LOOPBACK,
    DATAGRAM_BYTES_MIN,
    QUEUED_BYTES_MAX,
    QUEUED_MESSAGES_MAX,
    PeerLinks,
    TransportSettings,
)
from zraft.transport.loss import REPORT_EVERY, REPORT_INTERVAL_MS
from zraft.transport.messages import PeerMessage
from zraft.transport.packing import UnsendableError
from zraft.transport.sealing import HELLO_BYTES, Rejection
from zraft_core.errors import ConfigError
from zraft_core.ids import COORDINATION_GROUP, ServerId

THIRD_KEY = ClusterKey(bytes(range(2, 34)))


def payload(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("datagram_bytes_max", [DATAGRAM_BYTES_MIN, 1_400, DATAGRAM_BYTES_LOOPBACK])
@pytest.mark.parametrize("size", [0, 300, 1_330, 1_400, 60_000, 2_000_000])
def test_messages_of_every_size_cross_in_datagrams_of_every_size(datagram_bytes_max: int, size: int) -> None:
    network = joined(datagram_bytes_max=datagram_bytes_max)
    before = len(network.tape)
    messages: list[PeerMessage] = [note(1), append(payload(size)), note(2)]
    network.send(A, B, *messages)
    network.run()
    assert network.messages(B) == messages
    assert all(len(datagram) <= datagram_bytes_max for _, datagram in network.tape[before:])
    assert len(network.tape) - before >= size / datagram_bytes_max


def test_many_small_messages_share_a_datagram() -> None:
    network = joined()
    before = len(network.tape)
    messages = [note(number) for number in range(60)]
    network.send(A, B, *messages)
    network.run()
    assert network.messages(B) == messages
    assert len(network.tape) - before == 1


@pytest.mark.parametrize("seed", range(15))
def test_fragments_lost_doubled_and_reordered_give_whole_messages_or_none(seed: int) -> None:
    rng = random.Random(seed)
    network = joined(seed)
    sent = [append(payload(rng.randint(2_000, 60_000))) for _ in range(6)]
    for message in sent:
        network.send(A, B, message)
    wire = list(network.wire)
    network.wire.clear()
    lost = {rng.randrange(len(wire)) for _ in range(rng.choice([0, 1, 3]))}
    wire = [each for at, each in enumerate(wire) if at not in lost for _ in range(rng.choice([1, 1, 2]))]
    rng.shuffle(wire)
    network.wire.extend(wire)
    network.run()
    got = network.messages(B)
    assert len(sent) - len(lost) <= len(got) <= len(sent)
    assert all(got.count(message) == 1 for message in got)
    assert all(message in sent for message in got)
    assert len(got) == len(sent) or lost


def test_fragments_of_a_lost_message_are_dropped_in_time() -> None:
    network = joined()
    network.send(A, B, append(payload(30_000)))
    network.wire.popleft()
    network.run()
    assert network.runs[B].statistics().reassembly_held_bytes > 29_000 - 1_400
    network.now_ms += TransportSettings().reassembly_timeout_ms
    network.send(A, B, append(payload(5_000)))
    network.run()
    assert network.runs[B].statistics().reassembly_held_bytes == 0
    assert network.runs[B].statistics().reassembly_dropped == 1
    assert network.messages(B) == [append(payload(5_000))]


def test_fragments_of_a_peers_earlier_run_do_not_mix_with_those_of_the_next() -> None:
    """Message numbers start again with each run."""
    network = joined()
    network.send(A, B, append(payload(5_000)))
    network.wire.pop()
    network.run()
    network.runs[A] = links(A, seed=6, boot=2)
    network.send(A, B, append(payload(5_001)))
    network.run()
    assert network.messages(B) == [append(payload(5_001))]


def test_a_message_above_the_bound_is_refused_at_the_sender_known_peer_or_not() -> None:
    small = TransportSettings(message_bytes_max=10_000)
    for network in (
        joined(),
        Network((A, links(A, seed=0, settings=small)), (B, links(B, seed=0))),
    ):
        with pytest.raises(UnsendableError, match="message_bytes_max"):
            network.runs[A].send(B, [note(1), append(bytes(packing.MESSAGE_BYTES_MAX))])
        network.run()
        assert network.got == []


def test_nothing_to_send_is_no_datagram() -> None:
    assert joined().runs[A].send(B, []) == []
    assert links(A, seed=0).send(B, []) == []


@pytest.mark.parametrize("keys", [(KEY,), None], ids=["sealed", "plain"])
def test_no_changed_byte_and_no_cut_gets_through(keys: tuple[ClusterKey, ...] | None) -> None:
    """Also in the five bytes of addressing that test_sealing leaves to PeerLinks."""
    network = joined(keys=keys)
    run = network.runs[B]
    for datagram in (
        network.runs[A].send(B, [note(1)])[0],
        links(A, seed=1, keys=keys).send(B, [note(1)])[0],
    ):
        wrong = [datagram[:size] for size in range(len(datagram))]
        for at in range(len(datagram)):
            wrong += [
                datagram[:at] + bytes([datagram[at] ^ 1 << bit]) + datagram[at + 1 :] for bit in (0, 3, 7)
            ]
        for each in wrong:
            received = receive(run, each)
            assert received.error is not None
            assert received.sender is None
            assert received.messages == []
    rejected = run.statistics().rejected
    assert set(rejected) == {rejection.value for rejection in Rejection}
    assert all(rejected[each.value] for each in Rejection if each is not Rejection.REPLAYED), rejected
    assert run.peer(A) == sender(A)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.booleans(), st.booleans())
def test_arbitrary_bytes_never_raise(noise: bytes, plausible: bool, plain: bool) -> None:
    run = _listener(plain)
    if plausible:
        kind = noise[0] % 4 if noise else 0
        noise = bytes([0x7A, 1, kind, A, B]) + (bytes(4) if plain else KEY.key_id) + noise
    received = receive(run, noise)
    assert received.error is not None
    assert received.messages == []


@cache
def _listener(plain: bool) -> PeerLinks:
    return joined(keys=None if plain else (KEY,)).runs[B]


@pytest.mark.parametrize("seed", range(5))
def test_a_peer_sending_nonsense_bodies_is_reported_and_nothing_raises(seed: int) -> None:
    """Sealed by the right key: a newer release, or a peer with a fault."""
    rng = random.Random(seed)
    network = joined()
    peer = network.runs[A]._peers[B]
    assert peer.handshake.incoming is not None
    for _ in range(300):
        body = bytes([rng.choice([0, packing.WHOLE, packing.FRAGMENT, 9])]) + rng.randbytes(
            rng.randint(0, 40)
        )
        body = body[: rng.choice([0, 1, 100, 100, 100])]
        network.deliver(B, peer.outgoing.seal(body, peer.handshake.incoming.salt))
    assert network.messages(B) == []
    assert len(network.errors) > 150
    assert network.runs[B].statistics().messages_not_understood == len(network.errors)
    network.send(A, B, note(1))
    network.run()
    assert network.messages(B) == [note(1)]


def test_memory_stays_bounded_under_garbage_in_plain_mode() -> None:
    """In plain mode anybody can write a well-formed fragment."""
    bound = TransportSettings(
        message_bytes_max=20_000, reassembly_bytes_per_peer_max=40_000, reassembly_bytes_total_max=40_000
    )
    network = Network(
        (A, links(A, seed=0, keys=None, settings=bound)), (B, links(B, seed=0, keys=None, settings=bound))
    )
    peak = 0
    for _ in range(150):
        network.send(A, B, append(bytes(15_000)))
        if len(network.wire) > 1:
            network.wire.pop()
        network.run()
        peak = max(peak, network.runs[B].statistics().reassembly_held_bytes)
    assert 30_000 < peak <= 40_000
    assert network.runs[B].statistics().reassembly_dropped > 100


def test_datagrams_of_servers_that_are_not_configured_are_dropped_before_any_cryptography() -> None:
    network = joined()
    stranger = links(C, seed=0, peers=[B])
    received = receive(network.runs[B], stranger.send(B, [note(1)])[0], 0)
    assert received.error == "datagram from server 3: expected one of the configured peers [1]"
    assert received.replies == []
    assert network.runs[B].statistics().rejected["unknown_sender"] == 1


def test_a_datagram_for_another_server_says_to_check_the_addresses() -> None:
    network = joined()
    datagram = links(C, seed=0, peers=[A]).send(A, [note(1)])[0]
    received = receive(network.runs[B], datagram, 0)
    assert received.error is not None
    assert "for server 1, but this is server 2; do the configured addresses agree?" in received.error


def test_a_datagram_reflected_to_its_sender_is_dropped() -> None:
    network = joined()
    for datagram in network.runs[A].send(B, [note(1)]) + links(A, seed=1).send(B, [note(1)]):
        assert receive(network.runs[A], datagram, 0).error is not None


STEPS = [(KEY,), (KEY, OTHER_KEY), (OTHER_KEY, KEY), (OTHER_KEY,)]


@pytest.mark.parametrize("step", range(3))
@pytest.mark.parametrize("swap", [False, True])
def test_servers_one_step_apart_in_a_key_rotation_understand_each_other(step: int, swap: bool) -> None:
    """docs/reference/protocol-peers.md, "Changing the key": restart one server after the other, three times over."""
    old, new = STEPS[step], STEPS[step + 1]
    if swap:
        old, new = new, old
    network = Network((A, links(A, seed=0, keys=old)), (B, links(B, seed=0, keys=new)))
    network.send(A, B, note(1))
    network.run()
    network.send(B, A, note(2))
    network.run()
    assert network.messages(B) == [note(1)]
    assert network.messages(A) == [note(2)]
    assert network.errors == []


def test_another_cluster_key_is_named_and_counted() -> None:
    network = Network((A, links(A, seed=0, keys=(KEY,))), (B, links(B, seed=0, keys=(OTHER_KEY, THIRD_KEY))))
    network.send(A, B, note(1))
    network.run()
    assert network.errors == [
        f"datagram from server 1: cluster key {KEY.key_id.hex()}; this server has "
        f"cluster key {OTHER_KEY.key_id.hex()} and cluster key {THIRD_KEY.key_id.hex()}"
    ]
    assert network.runs[B].statistics().rejected["unknown_key"] == 1
    assert network.got == []


@pytest.mark.parametrize(("ours", "theirs"), [((KEY,), None), (None, (KEY,))])
def test_plain_and_sealed_servers_do_not_talk(
    ours: tuple[ClusterKey, ...] | None, theirs: tuple[ClusterKey, ...] | None
) -> None:
    network = Network((A, links(A, seed=0, keys=theirs)), (B, links(B, seed=0, keys=ours)))
    network.send(A, B, note(1))
    network.run()
    assert network.got == []
    assert "no key (insecure mode)" in network.errors[0]


def make(**changed: object) -> PeerLinks:
    arguments: dict[str, object] = {
        "me": sender(A),
        "peers": {B: 1_400},
        "keys": [KEY],
        "entropy": random.Random(0).randbytes,
    }
    return PeerLinks(**(arguments | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"keys": None}, "or say `insecure`"),
        ({"keys": []}, "or say `insecure`"),
        ({"keys": [KEY], "insecure": True}, "expected no cluster keys"),
        ({"keys": [], "insecure": True}, "expected no cluster keys"),
        ({"keys": [KEY, OTHER_KEY, THIRD_KEY]}, "expected 1 to 2, found 3"),
        ({"keys": [KEY, KEY]}, "expected different ids"),
        ({"peers": {A: 1_400}}, "other than this one"),
        ({"peers": {ServerId(0): 1_400}}, "expected servers 1 to 254"),
        ({"peers": {ServerId(255): 1_400}}, "expected servers 1 to 254"),
        ({"peers": {B: 511}}, "datagram_bytes_max of server 2: expected 512 to 65507, found 511"),
        ({"peers": {B: 65_508}}, "found 65508"),
        (
            {
                "peers": {B: 512},
                "settings": TransportSettings(
                    message_bytes_max=8 * 2**20,
                    reassembly_bytes_per_peer_max=2**24,
                    reassembly_bytes_total_max=2**24,
                ),
            },
            "message_bytes_max: expected at most .* with datagrams of 512 bytes",
        ),
    ],
)
def test_wrong_arguments_are_refused_and_plain_mode_must_be_asked_for(
    changed: dict[str, object], complaint: str
) -> None:
    assert make()
    with pytest.raises(ConfigError, match=complaint):
        make(**changed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"message_bytes_max": 0},
        {"reassembly_bytes_per_peer_max": packing.MESSAGE_BYTES_MAX},
        {"reassembly_bytes_total_max": packing.MESSAGE_BYTES_MAX},
        {"reassembly_timeout_ms": 0},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        TransportSettings(**wrong)


def test_messages_wait_for_the_handshake_in_order() -> None:
    network = Network((A, links(A, seed=0)), (B, links(B, seed=0)))
    for number in range(5):
        network.send(A, B, note(number))
    assert all(len(datagram) == HELLO_BYTES for _, datagram in network.tape)
    network.run()
    assert network.messages(B) == [note(number) for number in range(5)]


def test_a_peer_that_is_down_takes_bounded_memory_and_gets_the_newest_messages() -> None:
    network = Network((A, links(A, seed=0)), (B, links(B, seed=0)))
    for number in range(1_000):
        network.send(A, B, note(number))
        network.wire.clear()
    network.send(A, B, note(1_000))
    network.run()
    assert network.messages(B) == [note(number) for number in range(1_001 - QUEUED_MESSAGES_MAX, 1_001)]
    assert network.runs[A].statistics().queued_messages_dropped == 1_001 - QUEUED_MESSAGES_MAX
    assert network.runs[A].statistics().messages_sent == QUEUED_MESSAGES_MAX


def test_large_messages_to_a_peer_that_is_down_are_bounded_in_bytes() -> None:
    run = links(A, seed=0)
    for _ in range(20):
        run.send(B, [append(bytes(200_000))])
        assert run._peers[B].queued_bytes <= QUEUED_BYTES_MAX
    assert run.statistics().queued_messages_dropped == 15
    run.send(B, [append(bytes(2_000_000))])
    assert len(run._peers[B].queue) == 1, "one message above the bound still goes, alone"


def test_statistics_add_up() -> None:
    network = joined()
    network.send(A, B, note(1), note(2), append(payload(5_000)))
    network.run()
    sent, received = network.runs[A].statistics(), network.runs[B].statistics()
    assert sent.messages_sent == received.messages_received == 4
    assert sent.datagrams_sent == received.datagrams_opened
    assert sent.hellos_sent == received.hellos_received == 2
    assert sum(received.rejected.values()) == 0
    assert received.runs_installed == 1


def test_sealing_a_60_kb_append_costs_one_datagram_of_little_more_than_its_payload() -> None:
    """The overhead on the wire, and with it that nothing is copied into a second encoding."""
    network = joined(datagram_bytes_max=DATAGRAM_BYTES_LOOPBACK)
    (datagram,) = network.runs[A].send(B, [append(payload(59_000)), Heartbeat(COORDINATION_GROUP, 5, 1, 6)])
    assert len(datagram) - 59_000 < 80


SAYINGS = {
    "a message": [codec.encode(note(1))],
    "two": [codec.encode(note(2)), codec.encode(note(3))],
    "entries": [codec.encode(append(payload(1_000)))],
    "fragments": [codec.encode(append(payload(3_000)))],
    "of a newer release": [msgpack.packb([99, 1])],
    "an answer and one of a newer release": [codec.encode(note(4)), msgpack.packb([99, 1])],
    "no record": [b"\x01"],
    "more than one value": [b"\x01\x01"],
    "no MessagePack": [b"\xc1"],
    "nothing": [b""],
}


@pytest.mark.parametrize("keys", [(KEY,), None], ids=["sealed", "plain"])
@given(said=st.lists(st.sampled_from([*SAYINGS, "a report", "a while", *["a message"] * 8]), max_size=60))
def test_the_short_way_of_a_datagram_brings_what_the_long_one_brings(
    keys: list[ClusterKey] | None, said: list[str]
) -> None:
    short, long = (joined(keys=keys).runs[B] for _ in range(2))
    voice, now_ms = joined(keys=keys).runs[A], 0
    for what in said:
        datagrams: list[bytes] = []
        if what == "a while":
            now_ms += REPORT_INTERVAL_MS // 2
        elif what == "a report":
            peer = voice._peers[B]
            assert peer.handshake.incoming is not None
            datagrams.append(voice._report(peer, peer.handshake.incoming))
        else:
            for _ in range(REPORT_EVERY // 8):
                datagrams += voice.send_encoded(B, SAYINGS[what])
        for datagram in datagrams:
            brought = short.receive(datagram, now_ms)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(link, "ONE", b"no body begins so")
                assert long.receive(datagram, now_ms) == brought
    assert short.statistics() == long.statistics()


@pytest.mark.parametrize("keys", [(KEY,), None], ids=["sealed", "plain"])
@pytest.mark.parametrize("size", [0, 1_000, *range(1_300, 1_400, 3), 5_000])
def test_one_message_is_sent_as_several_are_or_not_at_all(keys: list[ClusterKey] | None, size: int) -> None:
    encoded = codec.encode(append(payload(size)))
    one, several = (joined(keys=keys).runs[A] for _ in range(2))
    before = one.statistics()
    datagram, datagrams = one.send_one(B, encoded), several.send_encoded(B, [encoded])
    if datagram is not None:
        assert [datagram] == datagrams
        assert one.statistics() == several.statistics()
    else:
        assert len(datagrams) > 1
        assert one.statistics() == before


def test_one_message_waits_for_the_handshake_like_several() -> None:
    run = links(A, seed=1)
    before = run.statistics()
    assert run.send_one(B, codec.encode(note(1))) is None
    assert run.statistics() == before
