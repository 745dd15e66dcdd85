"""Owns what every adversary of servers does, and the one of servers without clients, who crash, stop and are cut off."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from tests.simulation.network import Network
from tests.simulation.schedule import Schedule
from tests.simulation.simulated_process import SimulatedProcess
from zraft_core.ids import ServerId

LENGTHS_MS: Final = (60, 150, 300, 600, 1_200)
DOWN_MS: Final = (10, 40, 150, 500)
GAPS_MS: Final = (40, 140, 350, 600)
OF_SERVERS: Final = (
    *("crash", "crash", "power", "stop", "stop", "stop all", "cut", "cut", "one way", "link", "link"),
)

P = TypeVar("P", bound=SimulatedProcess[Any, Any])


class Faults(Generic[P]):
    """Whom to strike, and how it is undone; `heal` undoes everything that lasts.

    Attributes:
        active: False after healing.
        counts: faults by kind.
    """

    def __init__(
        self, schedule: Schedule, network: Network, processes: Sequence[P], rng: random.Random
    ) -> None:
        self._schedule = schedule
        self._network = network
        self._processes = processes
        self._rng = rng
        self.active = True
        self.counts: Counter[str] = Counter()

    def _cut(self, pairs: Sequence[tuple[ServerId, ServerId]], length_ms: int) -> None:
        self._network.cut(pairs)
        self._schedule.after(length_ms, self._network.join, pairs)

    def start_again(self, process: P) -> None:
        """Whoever supervises it starts it."""
        self._schedule.after(self._rng.choice(DOWN_MS), process.boot)

    def heal(self) -> None:
        """Everything works from now on."""
        self.active = False
        self._network.heal()
        for process in self._processes:
            process.calm = True
            self._heal_process(process)

    def _heal_process(self, process: P) -> None:
        process.resume()
        process.boot()


class ServerFaults(Faults[P], ABC):
    """Strikes at rolled moments until `end_ms`, or until it heals."""

    KINDS: ClassVar[Sequence[str]]
    """One of them is chosen for each strike."""

    def __init__(
        self,
        schedule: Schedule,
        network: Network,
        processes: Sequence[P],
        rng: random.Random,
        *,
        end_ms: int,
    ) -> None:
        super().__init__(schedule, network, processes, rng)
        self._end_ms = end_ms

    @abstractmethod
    def _strike_with(self, kind: str, process: P) -> None:
        """A kind of its own, that perhaps strikes this process."""

    def begin(self, at_ms: int) -> None:
        """Nothing works as it should from now on; the first strike comes at a moment that is given."""
        self.active = True
        self._network.calm = False
        for process in self._processes:
            process.calm = False
        self._schedule.at(at_ms, self._strike)

    def _strike(self) -> None:
        if self.active and self._schedule.now_ms < self._end_ms:
            self.fault(self._rng.choice(self.KINDS))
            self._schedule.after(self._rng.choice(GAPS_MS), self._strike)

    def fault(self, kind: str) -> None:
        """One fault of that kind."""
        now_ms, processes, rng = self._schedule.now_ms, self._processes, self._rng
        process = rng.choice(processes)
        length = rng.choice(LENGTHS_MS)
        ids = [one.server for one in processes]
        match kind:
            case "crash":
                self.crash(process, kind)
                return
            case "power":
                if rng.random() < 0.4:
                    for other in processes:
                        self.crash(other, kind)
                return
            case "stop":
                process.stop(now_ms + length)
            case "stop all":
                for other in processes:
                    other.stop(now_ms + length)
            case "cut" | "one way":
                pairs = [(process.server, other) for other in ids if other != process.server]
                back = [(b, a) for a, b in pairs]
                self._cut(pairs + back if kind == "cut" else rng.choice((pairs, back)), length)
            case "link":
                a, b = rng.sample(ids, 2)
                self._cut([(a, b), (b, a)], length)
            case _:
                self._strike_with(kind, process)
        self.counts[kind] += 1

    def crash(self, process: P, kind: str) -> None:
        """A process ends, and is started again."""
        if process.up:
            self.counts[kind] += 1
            process.crash()
            self.start_again(process)
