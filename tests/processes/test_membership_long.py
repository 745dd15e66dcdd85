"""Every server replaced, 3 to 5 to 3, under clients; also while the network loses datagrams (D-1, D-18, D-22)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster
from tests.processes.members import GrowingCluster, Load

pytestmark = [pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(600)]

StartCluster = Callable[..., GrowingCluster]
OpenSessions = Callable[[Cluster], Sessions]

PATIENT = {"ZRAFT_RAFT__ELECTION_TIMEOUT_TICKS": "1000"}
"""A machine that is busy with other tests must not cost elections: each closes its clients' connections (D-14)."""

LOSS_PERCENT = 3
MEASURED_S = 5.0


def _replace_everybody(growing: GrowingCluster, load: Load) -> None:
    """3 -> 5 -> 3 servers, of which none is one of the first; the leader goes when its turn comes."""
    founders = sorted(growing.servers)
    for number in (4, 5):
        _add(growing, number, load)
    for number in founders:
        if number == founders[-1]:
            _add(growing, 6, load)
        growing.remove(number)
        gone = growing.retire(number)
        load.follow()
        growing.wait_roles(voters=sorted(growing.servers))
        growing.end(gone)
        load.wait_progress()
    assert sorted(growing.servers) == [4, 5, 6]


def _add(growing: GrowingCluster, number: int, load: Load) -> None:
    growing.place(number)
    growing.start(number)
    growing.add(number)
    growing.wait_roles(voters=sorted(growing.servers))
    load.follow()
    load.wait_progress()


def test_every_server_is_replaced_under_load_and_nothing_is_lost(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    """No acknowledged write is lost, and no request fails beyond a retry: a client whose connection is lost does not
    know what became of its request, asks once more, on its next connection, and is answered."""
    growing = start_cluster(kind=GrowingCluster, **PATIENT)
    load = Load(growing, open_sessions(growing), sequencers=4)
    began = time.monotonic()
    _replace_everybody(growing, load)
    load.stop_and_check()
    assert not load.failed_twice, "requests failed beyond a retry"
    print(
        f"three servers replaced, by way of five, in {time.monotonic() - began:.0f} s: {load.acknowledged} writes "
        f"acknowledged, {load.uncertain} uncertain"
    )


class LossyCluster(GrowingCluster):
    """Its servers lose a share of the datagrams that they send to each other, from `lose` on."""

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        command = super().command(number, data=data)
        place = command.index("zraft")
        return [
            *command[:place],
            *("tests.processes.lossy_server", str(LOSS_PERCENT), str(self._switch)),
            *command[place + 1 :],
        ]

    @property
    def _switch(self) -> Path:
        return self.directory / "lossy"

    def lose(self) -> None:
        self._switch.touch()


def _per_second(load: Load) -> float:
    before, began = load.acknowledged, time.monotonic()
    threading.Event().wait(MEASURED_S)
    return (load.acknowledged - before) / (time.monotonic() - began)


def test_every_server_is_replaced_while_the_network_loses_datagrams(
    start_cluster: Callable[..., LossyCluster], open_sessions: OpenSessions
) -> None:
    """The same with datagrams as small as the Internet carries. What remains of the throughput is printed (D-22)."""
    growing = start_cluster(kind=LossyCluster, ZRAFT_PEER__DATAGRAM_BYTES="1400", **PATIENT)
    load = Load(growing, open_sessions(growing), sequencers=8)
    clear = _per_second(load)
    growing.lose()
    lossy = _per_second(load)
    _replace_everybody(growing, load)
    load.stop_and_check()
    assert not load.failed_twice, "requests failed beyond a retry"
    print(
        f"{clear:.0f} steps a second of 10 clients that wait for each answer, {lossy:.0f} with {LOSS_PERCENT} % of the "
        f"datagrams lost; {load.acknowledged} acknowledged in all, {load.uncertain} uncertain"
    )
    assert lossy > clear / 20, "hardly anything remains"
