"""Servers whose Python hashes strings differently come to the same state (D-5, D-26)."""

from __future__ import annotations

import random

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

OPERATIONS = 400
NAMES = [f"/mixed/{letter}" for letter in "abcdefgh"]


def _operate(client: KazooClient, rng: random.Random) -> None:
    """One operation drawn at random; many fail, which is part of the mix."""
    path = rng.choice(NAMES)
    child = f"{path}/{rng.choice('xyz')}"
    match rng.randrange(8):
        case 0:
            client.create(path, rng.randbytes(rng.randrange(64)))
        case 1:
            client.create(child, b"", ephemeral=True)
        case 2:
            client.create(f"{path}/s-", b"", sequence=True, ephemeral=rng.random() < 0.5)
        case 3:
            client.set(path, rng.randbytes(8), rng.choice((-1, 0, 1)))
        case 4:
            client.delete(child)
        case 5:
            client.delete(path, recursive=True)
        case 6:
            batch = client.transaction()
            batch.create(child, b"1")
            batch.set_data(path, b"2")
            batch.delete(rng.choice(NAMES))
            batch.commit()
        case 7:
            batch = client.transaction()
            batch.check(path, 0)
            batch.create(f"{path}/t-", b"", sequence=True)
            batch.commit()


def test_servers_with_different_hash_seeds_have_equal_states(
    cluster: Cluster, sessions: Sessions, seed: int
) -> None:
    rng = random.Random(seed)
    clients = [sessions.open(first=n, name=f"client {n}") for n in (1, 2, 3, 1, 2, 3)]
    clients[0].create("/mixed")
    failed = 0
    for n in range(OPERATIONS):
        place = n % len(clients)
        try:
            _operate(clients[place], rng)
        except KazooException:
            failed += 1
        if n % 100 == 99:
            # A session ends with all its ephemerals, in an order that everybody must share.
            sessions.close_one(clients[place])
            clients[place] = sessions.open(first=rng.randrange(1, 4), name=f"client {n}")
    assert 0 < failed < OPERATIONS, f"{failed} of {OPERATIONS} operations failed: not much of a mix"
    cluster.wait_equal_digests()
    assert sessions.lost == []
