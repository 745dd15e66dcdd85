"""Owns the adversary of many groups: crashes, pauses, cuts, lost disks, and operators who create, move and remove groups."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.groups.process import GroupsProcess

if TYPE_CHECKING:
    from tests.simulation.groups.simulation import HostsSimulation

LENGTHS_MS: Final = (60, 150, 300, 600, 1_200)
DOWN_MS: Final = (10, 40, 150, 500)
GAPS_MS: Final = (40, 140, 350, 600)
KINDS: Final = (
    *("crash", "crash", "power", "stop", "stop", "stop all", "cut", "cut", "one way", "link", "link"),
    *("transfer", "transfer", "create", "create", "remove", "move", "move", "balance"),
)
WIPES: Final = 0.3
"""Share of the seeds in which one disk is lost. A second one could be one too many for a group."""


class GroupFaults:
    """Strikes at rolled moments until `end_ms`; `heal` undoes everything that lasts."""

    def __init__(self, simulation: HostsSimulation[Any], rng: random.Random, *, end_ms: int) -> None:
        self._simulation = simulation
        self._rng = rng
        self._end_ms = end_ms
        self.active = True
        self.counts: Counter[str] = Counter()
        self._wipes_left = int(rng.random() < WIPES)

    def begin(self, at_ms: int) -> None:
        schedule = self._simulation.schedule
        schedule.at(at_ms, self._strike)
        if self._wipes_left:
            schedule.at(self._rng.randint(at_ms, self._end_ms - 1_000), self._wipe)

    def writing(self, process: GroupsProcess) -> None:
        """A frame goes to the disk: perhaps the power fails before its fsync returns."""
        if self.active and self._rng.random() < 0.003 and self._simulation.schedule.now_ms > 1_000:
            self._simulation.schedule.after(self._rng.randint(0, 2), self._torn, process, process.boots)

    def _torn(self, process: GroupsProcess, boot: int) -> None:
        if self.active and process.boots == boot and process.frame_in_flight is not None:
            self._crash(process, "torn")

    def _strike(self) -> None:
        schedule = self._simulation.schedule
        if self.active and schedule.now_ms < self._end_ms:
            self.fault(self._rng.choice(KINDS))
            schedule.after(self._rng.choice(GAPS_MS), self._strike)

    def fault(self, kind: str) -> None:
        simulation, rng = self._simulation, self._rng
        schedule, processes = simulation.schedule, simulation.processes
        process = rng.choice(list(processes.values()))
        length = rng.choice(LENGTHS_MS)
        ids = list(processes)
        match kind:
            case "crash":
                self._crash(process, kind)
                return
            case "power":
                if rng.random() < 0.4:
                    for other in processes.values():
                        self._crash(other, kind)
                return
            case "stop":
                process.stop(schedule.now_ms + length)
            case "stop all":
                for other in processes.values():
                    other.stop(schedule.now_ms + length)
            case "cut" | "one way":
                pairs = [(process.server, other) for other in ids if other != process.server]
                back = [(b, a) for a, b in pairs]
                chosen = pairs + back if kind == "cut" else rng.choice((pairs, back))
                simulation.network.cut(chosen)
                schedule.after(length, simulation.network.join, chosen)
            case "link":
                a, b = rng.sample(ids, 2)
                simulation.network.cut([(a, b), (b, a)])
                schedule.after(length, simulation.network.join, [(a, b), (b, a)])
            case "transfer":
                self._transfer(process)
            case "create":
                for _ in range(rng.choice((1, 5))):
                    simulation.create_group()
            case "remove":
                for _ in range(rng.choice((1, 5))):
                    simulation.remove_group()
            case "move":
                for _ in range(rng.choice((1, 5))):
                    simulation.move_replica()
            case "balance":
                simulation.balance()
        self.counts[kind] += 1

    def _transfer(self, process: GroupsProcess) -> None:
        """Somebody else is asked to lead some of the groups of a server."""
        host = process.host
        if host is None or process.stopped:
            return
        led = [group for group, replica in host.groups.items() if replica.raft.leader == process.server]
        for group in self._rng.sample(led, min(len(led), 5)):
            host.transfer(group, self._rng.choice(host.groups[group].raft.membership.voters))
        process.wake()

    def _crash(self, process: GroupsProcess, kind: str) -> None:
        if process.up:
            self.counts[kind] += 1
            process.crash()
            self._simulation.schedule.after(self._rng.choice(DOWN_MS), process.boot)

    def _wipe(self) -> None:
        """A disk is lost, and its server starts with an empty one: everybody else has all that was committed."""
        simulation = self._simulation
        process = self._rng.choice(list(simulation.processes.values()))
        if not self.active or not process.up:
            return
        self.counts["wipe"] += 1
        process.crash()
        process.wipe()
        simulation.schedule.after(self._rng.choice(DOWN_MS), self._boot_wiped, process)

    def _boot_wiped(self, process: GroupsProcess) -> None:
        process.boot()
        self._simulation.replace_disk(process.server)

    def heal(self) -> None:
        """Everything works from now on."""
        self.active = False
        self._simulation.network.heal()
        for process in self._simulation.processes.values():
            process.calm = True
            process.resume()
            process.boot()
