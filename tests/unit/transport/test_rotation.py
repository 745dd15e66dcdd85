"""Peers and keys that change while a server runs: nothing lost beyond a round trip, no nonce twice (D-6)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

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
)
from zraft.transport.keys import ClusterKey
from zraft.transport.sealing import DATA, HELLO, HELLO_BYTES, SEAL_BYTES, Rejection, read_prefix
from zraft_core.errors import ConfigError
from zraft_core.ids import ServerId

THIRD_KEY = ClusterKey(bytes(range(2, 34)))
STEPS: tuple[tuple[ClusterKey, ...], ...] = ((KEY,), (KEY, OTHER_KEY), (OTHER_KEY, KEY), (OTHER_KEY,))
"""The procedure: add the new key as the second, swap, drop the old one."""


def is_procedure(order: Sequence[str]) -> bool:
    """Each step on every server before the next: nobody is two steps ahead."""
    return all(abs(order[:n].count("A") - order[:n].count("B")) <= 1 for n in range(len(order)))


ORDERS = sorted(filter(is_procedure, set(itertools.permutations("AAABBB"))))
"""Whoever is first in each of the three steps."""


def set_keys(network: Network, server: ServerId, keys: Sequence[ClusterKey]) -> None:
    for to, hello in network.runs[server].set_keys(keys):
        network.put(to, hello)
    network.run()


def counters_by_key(network: Network) -> dict[tuple[bytes, int, int], list[int]]:
    """Nonces of all data on the tape, by (key id, sender, receiver)."""
    found: dict[tuple[bytes, int, int], list[int]] = {}
    for _, datagram in network.tape:
        kind, sender, receiver, key_id = read_prefix(datagram)
        if kind == DATA:
            found.setdefault((key_id, sender, receiver), []).append(int.from_bytes(datagram[17:25]))
    return found


@pytest.mark.parametrize("order", ORDERS, ids="".join)
def test_no_message_is_lost_through_a_key_change_in_any_order_of_servers(order: tuple[str, ...]) -> None:
    """All messages arrive, both ways, at every moment. Servers that are two steps apart: see the next test."""
    network = joined()
    at = {A: 0, B: 0}
    number = 0
    lost: list[int] = []
    for name in order:
        server = A if name == "A" else B
        at[server] += 1
        set_keys(network, server, STEPS[at[server]])
        for _ in range(3):
            number += 1
            network.got.clear()
            network.send(A, B, note(number))
            network.send(B, A, note(number))
            network.run()
            if network.messages(A) != [note(number)] or network.messages(B) != [note(number)]:
                lost.append(number)
    assert lost == []
    assert at == {A: 3, B: 3}
    assert len(ORDERS) == 8
    for counters in counters_by_key(network).values():
        assert len(counters) == len(set(counters)), "a nonce was used twice"


@pytest.mark.parametrize("seed", range(20))
def test_servers_that_skip_steps_find_together_again_in_a_round_trip(seed: int) -> None:
    """Whatever was done in whatever order: once they have a common key that both seal with, all is well at once."""
    rng = random.Random(seed)
    network = joined(seed)
    for step in range(12):
        set_keys(network, rng.choice([A, B]), rng.choice([*STEPS, (THIRD_KEY, KEY)]))
        network.send(A, B, note(step))
        network.send(B, A, note(step))
        network.run()
        network.now_ms += 50
    for server in (A, B):
        set_keys(network, server, (OTHER_KEY, KEY))
    network.got.clear()
    network.errors.clear()
    for number in range(100, 103):
        network.now_ms += 50
        network.send(A, B, note(number))
        network.send(B, A, note(number))
        network.run()
    assert network.messages(A)[-2:] == network.messages(B)[-2:] == [note(101), note(102)], network.errors
    for counters in counters_by_key(network).values():
        assert len(counters) == len(set(counters)), "a nonce was used twice"


def test_a_dropped_key_opens_nothing_any_more() -> None:
    """A thief of the old key is shut out as soon as it is dropped."""
    network = joined()
    thief = joined(seed=0)  # has what A has, and KEY
    thief.send(A, B, note(66))
    _, stolen = thief.wire.popleft()
    for step in STEPS[1:3]:
        for server in (A, B):
            set_keys(network, server, step)
    set_keys(network, B, STEPS[3])
    rejected = receive(network.runs[B], stolen)
    assert rejected.messages == []
    assert rejected.rejection is Rejection.UNKNOWN_KEY


def test_a_run_proved_only_by_a_key_that_goes_is_proved_again() -> None:
    network = joined()
    set_keys(network, B, (KEY, OTHER_KEY))
    installed = network.runs[B].statistics().runs_installed
    # A never sealed with the new key: what B knows of it rests on the old one.
    hellos = network.runs[B].set_keys((OTHER_KEY,))
    assert [(to, len(hello)) for to, hello in hellos] == [(A, HELLO_BYTES)]
    assert network.runs[B].peer(A) is None
    network.runs[A].set_keys((OTHER_KEY, KEY))
    for to, hello in hellos:
        network.put(to, hello)
    network.run()
    assert network.runs[B].peer(A) is not None
    assert network.runs[B].statistics().runs_installed == installed + 1


def test_a_run_that_sealed_with_the_key_that_stays_goes_on_without_a_hello() -> None:
    network = joined()
    for step in STEPS[1:3]:
        for server in (A, B):
            set_keys(network, server, step)
    network.send(A, B, note(1))
    network.send(B, A, note(1))
    network.run()
    assert network.runs[A].set_keys((OTHER_KEY,)) == []
    assert network.runs[B].set_keys((OTHER_KEY,)) == []


def test_messages_wait_while_a_run_is_proved_again() -> None:
    network = joined()
    for server in (A, B):
        network.runs[server].set_keys(
            (OTHER_KEY,)
        )  # at once and without the procedure: both runs are worth nothing
    network.send(A, B, note(1), note(2))
    network.run()
    assert network.messages(B) == [note(1), note(2)]


def test_a_recording_from_before_a_key_came_back_is_a_repetition() -> None:
    """Old key, new key, old key again: the counter went on, and the window was kept."""
    network = joined()
    network.send(A, B, note(1))
    to, recorded = network.wire[0]
    network.run()
    for keys in ((KEY, OTHER_KEY), (OTHER_KEY,), (OTHER_KEY, KEY), (KEY, OTHER_KEY)):
        for server in (A, B):
            set_keys(network, server, keys)
    network.got.clear()
    assert network.deliver(to, recorded).messages == []
    network.send(A, B, note(2))
    network.run()
    assert network.messages(B) == [note(2)]


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ((), "expected 1 to 2, found 0"),
        ((KEY, OTHER_KEY, THIRD_KEY), "found 3"),
        ((KEY, KEY), "different ids"),
    ],
)
def test_keys_that_cannot_be_taken_change_nothing(keys: tuple[ClusterKey, ...], complaint: str) -> None:
    network = joined()
    with pytest.raises(ConfigError, match=complaint):
        network.runs[A].set_keys(keys)
    network.send(A, B, note(1))
    network.run()
    assert network.messages(B) == [note(1)]


def test_a_server_in_plain_mode_takes_no_key_while_it_runs() -> None:
    """Its neighbours would not understand it, and half a cluster in plain text is worse than one that says so."""
    with pytest.raises(ConfigError, match="insecure mode"):
        joined(keys=None).runs[A].set_keys((KEY,))


# -- peers


def test_a_server_that_is_added_is_talked_to_and_the_others_keep_their_runs() -> None:
    network = joined()
    network.runs[C] = links(C, seed=0, peers=(A, B, C))
    for server in (A, B):
        before = network.runs[server].statistics().runs_installed
        network.runs[server].set_peers({peer: 1_400 for peer in (A, B, C) if peer != server})
        assert network.runs[server].statistics().runs_installed == before
    network.send(A, B, note(1))
    network.send(A, C, note(2))
    network.send(C, B, note(3))
    network.run()
    assert network.messages(B) == [note(1), note(3)]
    assert network.messages(C) == [note(2)]


def test_a_server_that_is_removed_is_a_stranger() -> None:
    network = joined()
    network.send(B, A, note(1))
    network.runs[A].set_peers({})
    network.run()
    assert network.messages(A) == []
    assert network.runs[A].statistics().rejected["unknown_sender"] == 1
    with pytest.raises(KeyError):
        network.runs[A].send(B, [note(2)])


def test_a_server_that_is_added_again_meets_no_nonce_twice_and_no_recording_opens() -> None:
    network = joined()
    network.send(B, A, note(1))
    _, recorded = network.wire[0]
    network.send(A, B, note(1))
    network.run()
    network.runs[A].set_peers({})
    network.runs[A].set_peers({B: 1_400})
    network.send(A, B, note(2))
    network.run()
    network.send(B, A, note(2))
    network.run()
    network.got.clear()
    assert network.deliver(A, recorded).messages == []
    for counters in counters_by_key(network).values():
        assert len(counters) == len(set(counters))


def test_datagrams_of_another_size_keep_the_count_of_messages() -> None:
    """Fragments of the message before may still be on their way."""
    network = joined()
    first = append(random.Random(1).randbytes(5_000))
    network.send(A, B, first)
    late = network.wire.pop()
    network.run()
    network.runs[A].set_peers({B: 600})
    second = append(random.Random(2).randbytes(5_000))
    network.send(A, B, second)
    assert all(len(datagram) <= 600 for _, datagram in network.wire)
    network.run()
    network.wire.append(late)
    network.run()
    assert network.messages(B) == [second, first]


def test_peers_that_cannot_be_talked_to_change_nothing() -> None:
    network = joined()
    for wrong in ({A: 1_400}, {B: 100}, {ServerId(255): 1_400}):
        with pytest.raises(ConfigError):
            network.runs[A].set_peers(wrong)
    network.send(A, B, note(1))
    network.run()
    assert network.messages(B) == [note(1)]


# -- strangers


@pytest.mark.parametrize("seed", range(5))
def test_a_stranger_is_never_answered_and_makes_us_say_little(seed: int) -> None:
    """Ten thousand forged datagrams in a second: nothing goes to where they came from, and to peers only a few hellos.

    `receive` is not even told where a datagram came from; what it has to say goes to the configured address.
    """
    rng = random.Random(seed)
    network = joined(seed)
    victim = network.runs[B]
    recorded = [datagram for to, datagram in network.tape if to == B]
    said: list[tuple[ServerId, bytes]] = []
    for number in range(10_000):
        kind = rng.choice([HELLO, DATA])
        forged = bytearray(
            rng.choice(recorded)
            if rng.random() < 0.3
            else bytes([0x7A, 1, kind, A, B]) + KEY.key_id + rng.randbytes(rng.choice([0, 20, 120, 1_300]))
        )
        if forged[2] == DATA and rng.random() < 0.5:
            forged[rng.randrange(9, len(forged)) if len(forged) > 9 else 0] ^= 1
        received = receive(victim, bytes(forged), number // 10)
        assert received.messages == []
        said += received.replies
    assert {to for to, _ in said} <= {A}, "only ever to the configured peer"
    assert all(len(datagram) == HELLO_BYTES for _, datagram in said)
    # 50 questions and 100 answers to recorded hellos a second, and the burst.
    assert len(said) <= 1_000 // 20 + 1_000 // 10 + 16 + 2
    assert sum(victim.statistics().rejected.values()) > 5_000


def test_a_few_forged_bytes_do_not_make_us_ask() -> None:
    """A hello has 129 bytes: it must not be had for nine."""
    alone = links(B, seed=1)
    for size in range(9, SEAL_BYTES):
        received = receive(alone, (bytes([0x7A, 1, DATA, A, B]) + KEY.key_id).ljust(size, b"\0"), size * 100)
        assert received.replies == []
        assert received.rejection is Rejection.MALFORMED
