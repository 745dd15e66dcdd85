"""Connections between servers that end: with the process at the other end, and for no reason at all.

A server is told within milliseconds that another one's process has ended, if the network lets it. It is told so of
processes that live, too, as when a firewall forgets a connection: this may cost an election and no promise.
"""

from __future__ import annotations

import random
from typing import Any, Final

from tests.simulation.process import Process
from tests.simulation.profile import RUN_MS
from tests.simulation.simulation import Simulation
from zraft_core.ids import ServerId

TOLD: Final = 0.9
"""The share of ends that another server is told of."""

TOLD_MS_MAX: Final = 5
FALSE_GAP_MS: Final = (20, 1_500)
"""Between two ends without a reason at one server."""


class ConnectedProcess(Process):
    """A server that has connections to the others.

    Attributes:
        others: the processes at the other ends.
        losses: how often this server was told of an end.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.others: list[ConnectedProcess] = []
        self.losses = 0
        self._connections = random.Random(f"{self._seed}/connections/{self.server}")
        self._lost: list[ServerId] = []

    def crash(self, *, sockets_silent: bool = False, power: bool | None = None) -> None:
        was_up = self.up
        super().crash(sockets_silent=sockets_silent, power=power)
        for other in self.others:
            if was_up and self._connections.random() < TOLD:
                self._schedule.after(self._connections.randint(0, TOLD_MS_MAX), other.lose, self.server)

    def lose(self, server: ServerId) -> None:
        """The connection to that server ends."""
        if self.driver is not None:
            self.losses += 1
            self._lost.append(server)
            self._request_turn(self._schedule.now_ms)

    def lose_somebody(self) -> None:
        """The connection to one of the others ends, and so does another one later."""
        if self._schedule.now_ms < RUN_MS:
            self.lose(self._connections.choice(self.others).server)
            self._schedule.after(self._connections.randint(*FALSE_GAP_MS), self.lose_somebody)

    def _take_turn(self) -> None:
        lost, self._lost = self._lost, []
        if lost:
            self._running.pass_time(self.clock_ms)
            for server in lost:
                self._running.note_lost(server)
        super()._take_turn()

    def _lose_memory(self) -> None:
        super()._lose_memory()
        self._lost.clear()


class ConnectedSimulation(Simulation):
    """The same run with connections between servers."""

    process_type = ConnectedProcess

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        for process in self.processes:
            assert isinstance(process, ConnectedProcess)
            process.others = [
                other
                for other in self.processes
                if other is not process and isinstance(other, ConnectedProcess)
            ]
            self.schedule.after(FALSE_GAP_MS[0], process.lose_somebody)
