"""Rounds wait a moment for those who were just answered, if these usually ask again at once, and for nobody else."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.unit.server.calls import DISKS, HOP_MS, DrivenClient, ThreeDrivers
from zraft.server.coordination.anticipation import WAIT_MS_MAX, WAIT_MS_MIN, Anticipation
from zraft_core.ids import ServerId
from zraft_core.znodes.txn import SET_DATA

ROUND_MS = 5
CYCLE_MS = 20
"""The ms from one answer to the next one."""

ROUNDS = 40
EVERYBODY = "abcdefgh"


def _after(rounds: Iterable[tuple[str, int]], *, round_ms: int = ROUND_MS) -> tuple[Anticipation, int]:
    """Let rounds pass in which everybody is answered; `rounds` says who asks again, and after how many ms.

    Returns:
        What came of it, and when everybody was answered once more.
    """
    anticipation, now = Anticipation(0.75), 0
    for who, after_ms in rounds:
        anticipation.answered(EVERYBODY, now, round_ms)
        anticipation.waits(who, now + after_ms)
        now += CYCLE_MS
    anticipation.answered(EVERYBODY, now, round_ms)
    return anticipation, now


def test_those_who_usually_ask_again_at_once_are_waited_for() -> None:
    anticipation, now = _after([(EVERYBODY, 1)] * ROUNDS)
    assert anticipation.waits("", now)
    assert anticipation.waits("abcdefg", now + 1)
    assert not anticipation.waits("h", now + 1), "all have asked"


def test_nobody_is_waited_for_before_it_was_seen_that_they_ask_again() -> None:
    anticipation, now = _after([])
    assert not anticipation.waits("", now)


def test_nobody_is_waited_for_who_asks_again_after_the_wait_would_end() -> None:
    anticipation, now = _after([(EVERYBODY, 2 * ROUND_MS + 1)] * ROUNDS)
    assert not anticipation.waits("", now)


def test_a_wait_ends_when_as_many_have_asked_as_usually_do() -> None:
    anticipation, now = _after([("abcdefg", 1)] * ROUNDS)
    assert anticipation.waits("abcdef", now)
    assert not anticipation.waits("h", now), "whoever stays away"


@pytest.mark.parametrize(
    ("round_ms", "wait_ms"), [(0, WAIT_MS_MIN), (ROUND_MS, 2 * ROUND_MS), (1_000, WAIT_MS_MAX)]
)
def test_a_wait_is_as_long_as_two_rounds_within_bounds(round_ms: int, wait_ms: int) -> None:
    anticipation, now = _after([(EVERYBODY, 1)] * ROUNDS, round_ms=round_ms)
    assert anticipation.waits("", now + wait_ms)
    assert not anticipation.waits("", now + wait_ms + 1)
    assert anticipation.until == now + wait_ms + 1


def test_who_has_left_is_not_waited_for_nor_counted_nor_kept() -> None:
    anticipation, now = _after([(EVERYBODY, 1)] * ROUNDS)
    for one in EVERYBODY[1:]:
        anticipation.forget(one)
    assert anticipation.waits("", now)
    anticipation.forget(EVERYBODY[0])
    assert not anticipation.waits("", now)
    assert anticipation._last is not None
    assert not anticipation._last.missing
    for round_number in range(1, ROUNDS):
        anticipation.answered(EVERYBODY, now + round_number * CYCLE_MS, ROUND_MS)
        for one in EVERYBODY:
            anticipation.forget(one)
    anticipation.answered(EVERYBODY, now + ROUNDS * CYCLE_MS, ROUND_MS)
    assert anticipation.waits("", now + ROUNDS * CYCLE_MS), "whoever left says nothing of those who stay"


def test_each_of_the_last_two_rounds_sees_who_comes() -> None:
    anticipation = Anticipation(0.75)
    anticipation.answered("ab", 0, ROUND_MS)
    anticipation.answered("ac", 1, ROUND_MS)
    anticipation.waits(iter("abc"), 2)
    assert anticipation._last is not None
    assert anticipation._before is not None
    assert anticipation._last.share == anticipation._before.share == 1


def test_those_who_come_after_the_next_round_began_were_in_time_nevertheless() -> None:
    """Else nobody would ever wait where two groups alternate, because each comes while the other's round is under way."""
    anticipation, now = Anticipation(0.75), 0
    for round_number in range(ROUNDS):
        anticipation.answered("ab" if round_number % 2 else "cd", now, ROUND_MS)
        now += 2
        anticipation.waits("cd" if round_number % 2 else "ab", now)
    anticipation.answered("ab", now, ROUND_MS)
    assert anticipation.waits("cd", now)


class _Loop:
    """Clients of three servers, each of which asks for the next write a hop after it was answered."""

    def __init__(self, servers: ThreeDrivers, at: Iterable[ServerId]) -> None:
        self._servers = servers
        self.clients: list[tuple[ServerId, DrivenClient]] = [
            (server, servers.client(server)) for server in at
        ]
        self._answered = [0] * len(self.clients)

    def run(self, rounds: int) -> None:
        """Go on until each client was answered so many times more."""
        for number, (server, client) in enumerate(self.clients):
            client.will_write((SET_DATA, "/a", bytes([number]), -1))
            self._ask(number, server, client)
        ends = [client.answers + rounds for _, client in self.clients]
        while any(client.answers < end for (_, client), end in zip(self.clients, ends, strict=True)):
            self._servers.step()
            for number, (server, client) in enumerate(self.clients):
                if self._answered[number] <= client.answers < ends[number]:
                    self._ask(number, server, client)

    def _ask(self, number: int, server: ServerId, client: DrivenClient) -> None:
        self._answered[number] = client.answers + 1
        self._servers.at(HOP_MS, server, client.send)


def test_clients_of_all_servers_that_ask_again_at_once_come_to_share_their_rounds() -> None:
    servers = ThreeDrivers()
    loop = _Loop(servers, [*DISKS, *DISKS])
    loop.run(ROUNDS)
    raft = servers.drivers[servers.leader].raft
    assert raft is not None
    before = raft.log.last_index
    loop.run(ROUNDS)
    assert raft.log.last_index - before <= ROUNDS + 4, "few before all stand together"


def test_a_client_alone_waits_for_nobody() -> None:
    servers = ThreeDrivers()
    loop = _Loop(servers, [servers.leader])
    loop.run(ROUNDS)
    began = servers.now
    loop.run(ROUNDS)
    assert servers.now - began <= ROUNDS * 5 * HOP_MS


def test_a_wait_for_clients_that_have_gone_ends() -> None:
    """Whoever asks while others are waited for in vain is answered a little later, and not at the next alarm."""
    servers = ThreeDrivers()
    loop = _Loop(servers, [*DISKS, *DISKS])
    loop.run(ROUNDS)
    server, client = loop.clients[0]
    longest = max(servers.ask(server, client, (SET_DATA, "/a", b"", -1)) for _ in range(4))
    assert longest <= 6 * HOP_MS + 2 * (WAIT_MS_MAX + 1)


def test_a_connection_that_ends_is_forgotten() -> None:
    servers = ThreeDrivers()
    loop = _Loop(servers, [servers.leader] * 3)
    loop.run(ROUNDS)
    last = servers.drivers[servers.leader].origin.anticipation._last
    assert last is not None
    connections = [client._connection for _, client in loop.clients]
    assert last.missing, "they were answered, and do not ask again"
    assert last.missing <= set(connections)
    for connection in connections:
        connection.connection_lost()
    assert not last.missing
