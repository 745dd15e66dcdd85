"""How two runs come to know each other's salts, whatever the network does to their hellos (D-6)."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from tests.unit.transport.network import KEY, A, B, Network, joined, links, note, receive, sender
from zraft.raft.messages import ReadIndex
from zraft.transport.handshake import ANSWERS_BURST, CHALLENGE_INTERVAL_MS, RUNS_MAX
from zraft.transport.sealing import HELLO_BYTES, NO_CHALLENGE, HelloDatagram, encode_hello, mac_key_for


def pair(seed: int = 0) -> Network:
    return Network((A, links(A, seed=seed)), (B, links(B, seed=seed)))


def test_three_datagrams_join_two_servers_both_ways() -> None:
    network = pair()
    network.send(A, B, note(1))
    network.run()
    assert [len(datagram) == HELLO_BYTES for _, datagram in network.tape] == [True, True, True, False]
    assert network.messages(B) == [note(1)]
    network.send(B, A, note(2))
    network.run()
    assert len(network.tape) == 5
    assert network.messages(A) == [note(2)]
    assert [who for _, who, _ in network.got] == [sender(A), sender(B)]
    assert network.errors == []


def test_both_may_speak_first_at_once() -> None:
    network = pair()
    network.send(A, B, note(1))
    network.send(B, A, note(2))
    network.run()
    assert network.messages(B) == [note(1)]
    assert network.messages(A) == [note(2)]


FATES = ("deliver", "drop", "double", "hold")


def _liveness(network: Network, rounds: int = 12) -> None:
    """On a network that works again, both ends hear the other's next messages within a few rounds."""
    for attempt in range(rounds):
        network.now_ms += CHALLENGE_INTERVAL_MS
        network.send(A, B, note(1_000 + attempt))
        network.send(B, A, note(1_000 + attempt))
        network.run()
    last = note(1_000 + rounds - 1)
    assert last in network.messages(A), network.errors
    assert last in network.messages(B), network.errors


@pytest.mark.parametrize("first", FATES)
def test_the_handshake_survives_every_fate_of_its_datagrams(first: str) -> None:
    """All 4**5 ways to deliver, drop, double or hold back (reorder) the first five datagrams on the wire."""
    for fates in itertools.product([first], FATES, FATES, FATES, FATES):
        network = pair()
        held: list[tuple[int, bytes]] = []
        network.send(A, B, note(1))
        network.send(B, A, note(2))
        for fate in fates:
            if not network.wire:
                network.now_ms += CHALLENGE_INTERVAL_MS
                network.send(A, B, note(3))
            to, datagram = network.wire.popleft()
            if fate == "hold":
                held.append((to, datagram))
            for _ in range({"deliver": 1, "double": 2}.get(fate, 0)):
                network.deliver(to, datagram)
        network.wire.extend(held)  # type: ignore[arg-type]
        network.run()
        _liveness(network, 3)
        assert max(Counter(network.got).values()) == 1 or _only_our_repeats(network), fates


def _only_our_repeats(network: Network) -> bool:
    """note(3) is sent more than once by the test itself; all else at most once."""
    return all(times == 1 or message == note(3) for (_, _, message), times in Counter(network.got).items())


@pytest.mark.parametrize("seed", range(25))
def test_nothing_recorded_is_ever_delivered_again(seed: int) -> None:
    """An attacker who records everything plays it to everybody at will, while both servers keep restarting.

    Every message has its own number, and is sent once: delivered twice is a replay. The boot numbers repeat,
    as those of a restored directory do. Liveness at the end: the recordings must not wear the servers down.
    """
    rng = random.Random(seed)
    network = pair(seed)
    numbers = itertools.count(1)
    sent: set[ReadIndex] = set()
    replayed = 0
    for step in range(150):
        network.now_ms += rng.choice([0, 1, 30])
        choice = rng.random()
        if choice < 0.5:
            frm, to = rng.choice([(A, B), (B, A)])
            message = note(next(numbers))
            sent.add(message)
            network.send(frm, to, message)
        elif choice < 0.57:
            server = rng.choice([A, B])
            network.runs[server] = links(server, seed=1_000 * seed + step)
        elif network.tape:
            for to, datagram in rng.sample(network.tape, min(len(network.tape), 20)):
                network.deliver(to, datagram)
                network.deliver(A if to == B else B, datagram)
                replayed += 1
        while network.wire and rng.random() < 0.9:
            network.wire.rotate(-rng.choice([0, 0, 1]))
            to, datagram = network.wire.popleft()
            if rng.random() < 0.9:
                network.deliver(to, datagram)
    deliveries = Counter(message for _, _, message in network.got)
    assert set(deliveries) <= sent
    assert max(deliveries.values()) == 1
    assert len(deliveries) > 10, "too little got through to mean anything"
    assert replayed > 300
    network.now_ms += 1_000
    _liveness(network)


def test_a_replayed_hello_does_not_install_an_old_salt() -> None:
    """D-6: after A's restart, all hellos of its earlier run are played to B; B goes on with the new run."""
    network = joined()
    old_hellos = [datagram for to, datagram in network.tape if to == B and len(datagram) == HELLO_BYTES]
    assert old_hellos
    network.runs[A] = links(A, seed=77, boot=2)
    network.send(A, B, note(1))
    network.run()
    assert network.runs[B].peer(A) == sender(A, boot=2)
    installed = network.runs[B].statistics().runs_installed
    for hello in old_hellos * 3:
        network.deliver(B, hello)
        network.run()
    assert network.runs[B].peer(A) == sender(A, boot=2)
    assert network.runs[B].statistics().runs_installed == installed
    network.send(A, B, note(2))
    network.run()
    assert network.messages(B) == [note(1), note(2)]


def test_a_replayed_hello_does_not_install_anything_in_a_restarted_receiver() -> None:
    """D-6: B restarts while A is gone; recordings of A's datagrams give B no peer and no message."""
    network = joined()
    network.send(A, B, note(1))
    network.run()
    tape = [datagram for to, datagram in network.tape if to == B]
    network.got.clear()
    del network.runs[A]
    network.runs[B] = links(B, seed=88, boot=2)
    for datagram in tape * 2:
        network.now_ms += 7
        network.deliver(B, datagram)
    assert network.got == []
    assert network.runs[B].peer(A) is None
    assert network.runs[B].statistics().datagrams_opened == 0


def test_a_restarted_receiver_is_found_by_traffic_alone() -> None:
    """The sender notices nothing by itself; B cannot open its datagrams, and asks."""
    network = joined()
    network.runs[B] = links(B, seed=5, boot=2)
    network.send(A, B, note(1))
    network.run()
    assert network.messages(B) == []
    network.send(A, B, note(2))
    network.run()
    assert network.messages(B) == [note(2)]
    assert network.runs[A].peer(B) == sender(B, boot=2)


def test_installing_the_same_run_again_keeps_its_replay_window() -> None:
    network = joined()
    network.send(A, B, note(1))
    _, datagram = network.wire[-1]
    network.run()
    # A counter not seen before that does not open: B wonders, and asks A again.
    network.deliver(B, datagram[:17] + (999).to_bytes(8) + datagram[25:])
    network.run()
    assert network.runs[B].statistics().hellos_received >= 3
    assert network.runs[B].statistics().runs_installed == 1
    network.deliver(B, datagram)
    assert network.messages(B) == [note(1)]
    assert network.runs[B].statistics().rejected["replayed"] == 1


def test_two_processes_with_one_id_cannot_be_played_against_each_other() -> None:
    """D-1: a clone runs beside the original; when its turn comes back, a run's old datagrams stay used up."""
    network = joined()
    original = network.runs[A]
    network.send(A, B, note(1))
    _, recorded = network.wire[-1]
    network.run()
    network.runs[A] = links(A, seed=42)  # the clone, same boot
    network.send(A, B, note(2))
    network.run()
    network.runs[A] = original
    network.now_ms += 100
    network.send(A, B, note(3))
    network.run()
    network.send(A, B, note(4))
    network.run()
    assert network.runs[B].statistics().runs_installed == 3
    assert network.messages(B) == [note(1), note(2), note(4)]
    network.deliver(B, recorded)
    assert network.messages(B) == [note(1), note(2), note(4)]


def test_garbage_that_claims_to_be_a_peer_causes_few_questions() -> None:
    network = pair()
    genuine = joined(seed=9).tape[-1][1]
    rng = random.Random(1)
    questions = 0
    for now_ms in range(1_000):
        for _ in range(5):
            # Sealed by "A" for another run of B, with a random rest.
            received = receive(network.runs[A], genuine[:9] + rng.randbytes(50), now_ms)
            assert received.error is not None
            questions += len(received.replies)
    assert 1_000 // CHALLENGE_INTERVAL_MS - 1 <= questions <= 1_000 // CHALLENGE_INTERVAL_MS + 1


def test_recorded_hellos_cause_few_answers_and_never_starve_an_honest_one() -> None:
    network = joined()
    question = next(datagram for to, datagram in network.tape if to == B and len(datagram) == HELLO_BYTES)
    network.runs[B] = links(B, seed=3, boot=2)
    answers = 0
    for _ in range(1_000):
        answers += len(receive(network.runs[B], question, 0).replies)
    assert answers == ANSWERS_BURST
    # The honest A now needs B's answer, in the same millisecond: its echo of B's question earns it.
    network.send(A, B, note(1))
    network.run()
    network.send(A, B, note(2))
    network.run()
    assert note(2) in network.messages(B)


def test_the_allowance_for_answers_grows_back() -> None:
    network = pair()
    question = network.runs[A].send(B, [note(1)])[0]
    answers = sum(len(receive(network.runs[B], question, now_ms).replies) for now_ms in range(1_000))
    assert ANSWERS_BURST + 95 <= answers <= ANSWERS_BURST + 101


def test_a_peer_that_keeps_changing_runs_takes_bounded_memory() -> None:
    network = joined()
    for run in range(3 * RUNS_MAX):
        network.now_ms += 100
        network.runs[A] = links(A, seed=100 + run)
        network.send(A, B, note(run))
        network.run()
    assert network.runs[B].statistics().runs_installed == 3 * RUNS_MAX + 1
    peers = network.runs[B]._peers
    assert len(peers[A].handshake._runs) == RUNS_MAX


def test_an_echo_of_zeros_proves_nothing() -> None:
    """Zeros stand for "no challenge"; a server that asks nothing must not take them for the answer."""
    network = pair()
    hello = HelloDatagram(sender(A), b"s" * 32, NO_CHALLENGE, NO_CHALLENGE)
    datagram = encode_hello(hello, receiver=B, key_id=KEY.key_id, mac_key=mac_key_for(KEY))
    received = receive(network.runs[B], datagram, 0)
    assert received.error is None
    assert network.runs[B].peer(A) is None
