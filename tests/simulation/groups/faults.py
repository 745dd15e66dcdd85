"""Owns the adversary of many groups: what strikes servers, lost disks, and operators who create, move and remove groups."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.groups.process import GroupsProcess
from tests.simulation.server_faults import DOWN_MS, OF_SERVERS, ServerFaults

if TYPE_CHECKING:
    from tests.simulation.groups.simulation import HostsSimulation

WIPES: Final = 0.3
"""Share of the seeds in which one disk is lost. A second one could be one too many for a group."""


class GroupFaults(ServerFaults[GroupsProcess]):
    """Strikes servers and groups."""

    KINDS = (
        *OF_SERVERS,
        *("transfer", "transfer", "create", "create", "remove", "move", "move", "balance"),
    )

    def __init__(self, simulation: HostsSimulation[Any], rng: random.Random, *, end_ms: int) -> None:
        processes = list(simulation.processes.values())
        super().__init__(simulation.schedule, simulation.network, processes, rng, end_ms=end_ms)
        self._simulation = simulation
        self._wipes_left = int(rng.random() < WIPES)

    def begin(self, at_ms: int) -> None:
        super().begin(at_ms)
        if self._wipes_left:
            self._schedule.at(self._rng.randint(at_ms, self._end_ms - 1_000), self._wipe)

    def writing(self, process: GroupsProcess) -> None:
        """A frame goes to the disk: perhaps the power fails before its fsync returns."""
        if self.active and self._rng.random() < 0.003 and self._schedule.now_ms > 1_000:
            self._schedule.after(self._rng.randint(0, 2), self._torn, process, process.boots)

    def _torn(self, process: GroupsProcess, boot: int) -> None:
        if self.active and process.boots == boot and process.frame_in_flight is not None:
            self.crash(process, "torn")

    def _strike_with(self, kind: str, process: GroupsProcess) -> None:
        simulation, rng = self._simulation, self._rng
        match kind:
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

    def _transfer(self, process: GroupsProcess) -> None:
        """Somebody else is asked to lead some of the groups of a server."""
        host = process.host
        if host is None or process.stopped:
            return
        led = [group for group, replica in host.groups.items() if replica.raft.leader == process.server]
        for group in self._rng.sample(led, min(len(led), 5)):
            host.transfer(group, self._rng.choice(host.groups[group].raft.membership.voters))
        process.wake()

    def _wipe(self) -> None:
        """A disk is lost, and its server starts with an empty one: everybody else has all that was committed."""
        process = self._rng.choice(self._processes)
        if not self.active or not process.up:
            return
        self.counts["wipe"] += 1
        process.crash()
        process.wipe()
        self._schedule.after(self._rng.choice(DOWN_MS), self._boot_wiped, process)

    def _boot_wiped(self, process: GroupsProcess) -> None:
        process.boot()
        self._simulation.replace_disk(process.server)
