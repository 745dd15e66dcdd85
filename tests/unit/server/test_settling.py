"""What other servers say is settled without a turn where a turn would do no more, and what comes of it is the same."""

from __future__ import annotations

import random
from typing import Final

import pytest
from attrs import evolve, frozen

from tests.put_off import noted_put_off
from tests.unit.server.calls import DEFAULTS, DISKS, DrivenClient, ThreeDrivers
from zraft.raft.settings import RaftSettings
from zraft.server.engine import driver as driver_module
from zraft_core.ids import ServerId
from zraft_core.znodes.txn import CREATE, DELETE, SET_DATA, Command

ROUNDS = 40
WRITE_MS = 5
"""What a write of a client of the leader takes: five hops of a ms."""


@frozen
class Outcome:
    """What clients were told in the course of a run, and what the servers held in the end."""

    told: tuple[bytes, ...]
    digests: tuple[int, ...]
    last_zxids: tuple[int, ...]
    settled: int
    turns: int


def _command(rng: random.Random) -> Command:
    path = f"/{rng.choice('abc')}"
    match rng.randrange(4):
        case 0:
            return (CREATE, path, bytes(rng.randrange(50)), None, 0, -1)
        case 1:
            return (DELETE, path, -1)
        case _:
            return (SET_DATA, path, bytes(rng.randrange(50)), rng.choice((-1, -1, 3)))


SLOW: Final = RaftSettings(
    commit_told_ticks=3 * WRITE_MS, put_off_ticks=3 * WRITE_MS, put_off_ticks_max=3 * WRITE_MS
)
"""A write takes so long here that by default the next one would never come fast enough to be put off."""


def _run(seed: int, raft: RaftSettings = DEFAULTS, attended: int = len(DISKS)) -> Outcome:
    """Let clients of the leader and other servers write, one alone or two at a time; some of what they ask for fails.

    Args:
        attended: how many servers have clients.
    """
    rng = random.Random(seed)
    servers = ThreeDrivers(raft)
    hosts = [servers.leader, *(server for server in DISKS if server != servers.leader)][:attended]
    clients: list[tuple[ServerId, DrivenClient]] = [
        (server, servers.client(server)) for server in sorted(hosts) for _ in range(2)
    ]
    servers.forget()
    for _ in range(ROUNDS):
        server, client = rng.choice(clients)
        others = [one for at, one in clients if at == server and one is not client]
        servers.ask(server, client, _command(rng), behind=rng.choice((None, *others)))
    settled, turns = servers.settled.total(), servers.turns.total()
    servers.rest()
    machines = [driver.machine for driver in servers.drivers.values()]
    return Outcome(
        tuple(client.told for _, client in clients),
        tuple(machine.digest() for machine in machines),
        tuple(machine.last_zxid for machine in machines),
        settled,
        turns,
    )


def _assert_alike(one: Outcome, other: Outcome) -> None:
    """Clients were told the same, byte by byte, and all servers hold the same."""
    assert one.told == other.told
    assert one.digests == other.digests
    assert one.last_zxids == other.last_zxids
    assert len(set(one.digests)) == 1


@pytest.mark.parametrize("seed", range(4))
def test_what_is_settled_without_a_turn_is_what_a_turn_makes_of_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settling = _run(seed)
    monkeypatch.setattr(driver_module, "SETTLES", False)
    turning = _run(seed)
    assert turning.settled == 0 < settling.settled
    assert settling.turns < turning.turns
    _assert_alike(settling, turning)


@pytest.fixture
def put_off(monkeypatch: pytest.MonkeyPatch) -> list[ServerId]:
    return noted_put_off(monkeypatch)


@pytest.mark.parametrize("attended", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_entries_that_are_put_off_make_no_difference_to_clients(
    seed: int, attended: int, put_off: list[ServerId]
) -> None:
    putting_off = _run(seed, SLOW, attended)
    assert put_off, "nothing was put off"
    put_off.clear()
    _assert_alike(putting_off, _run(seed, evolve(SLOW, at_once_bytes_min=1), attended))
    assert not put_off


def test_nothing_is_put_off_for_servers_that_have_clients(put_off: list[ServerId]) -> None:
    """There a client would read an older state than another one has told it of, for longer than with ZooKeeper."""
    servers = ThreeDrivers(SLOW)
    one, other = (server for server in DISKS if server != servers.leader)
    servers.client(one)
    put_off.clear()
    for _ in range(ROUNDS):
        servers.write(b"")
    assert set(put_off) == {other}
    servers.client(other)
    put_off.clear()
    for _ in range(ROUNDS):
        servers.write(b"")
    assert not put_off


def test_only_the_append_of_a_write_takes_a_turn() -> None:
    """Followers write it, the leader applies it, and both look at everything else twenty times a second."""
    servers = ThreeDrivers()
    servers.write(b"")
    servers.forget()
    for _ in range(ROUNDS):
        servers.write(b"")
    looks = len(DISKS) * (ROUNDS * WRITE_MS // driver_module.LOOK_INTERVAL_MS + 1)
    assert servers.turns.total() <= ROUNDS + looks, servers.turns
    assert servers.settled.total() >= 2 * ROUNDS, servers.settled


def test_what_clients_ask_meanwhile_takes_a_turn() -> None:
    """A request that waits for the batch under way is no reason to answer alone: the next batch leaves with the answer."""
    servers = ThreeDrivers()
    driver = servers.drivers[servers.leader]
    first, second = servers.client(servers.leader), servers.client(servers.leader)
    servers.forget()
    servers.ask(servers.leader, second, (SET_DATA, "/a", b"", -1), behind=first)
    assert not driver.origin.collected
    assert servers.turns[servers.leader] >= 2
