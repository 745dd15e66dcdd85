"""Owns one scripted life of a cluster in which the power of one server is cut at one chosen step of its disk.

The script founds three servers, adds a fourth, replaces a lost disk, puts a condemned directory aside and removes a
server, while clients write: identities are made, adopted, joined, replaced and forgotten, snapshots taken and
installed, logs cut. Without a cut it is one deterministic run, whose steps can be counted; with a cut it is the same run
up to that step. Afterwards the server starts again, the script goes on, and every checker of the simulation holds
throughout: what was acknowledged is there, and the cluster ends as the operators wanted it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from attrs import evolve, frozen

from tests.simulation.configurations import VOTER, Configuration
from tests.simulation.disk import SimulatedDisk, Trouble
from tests.simulation.process import Process
from tests.simulation.profile import RUN_MS, Mode, roll
from tests.simulation.server_disk import PATH
from tests.simulation.simulation import Simulation, scaled
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.storage.aside import ASIDE_PREFIX
from zraft.storage.snapshot_format import SnapshotInfo
from zraft_core.errors import StorageError
from zraft_core.ids import Instance, ServerId
from zraft_core.znodes import txn
from zraft_core.znodes.member_roles import PARTICIPANT, REMOVE

TROUBLES: Final = (Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER)

ADDED: Final = ServerId(4)
LOST: Final = ServerId(2)
CONDEMNED: Final = ServerId(3)
REMOVED: Final = ServerId(1)

DOWN_MS: Final = 60
"""From a cut to the next start."""

LOOK_MS: Final = 5
ASK_AGAIN_MS: Final = 400
"""What the operator asked of a server that lost its power may be lost with it."""

SCRIPT_MS: Final = RUN_MS
"""Far more than the script takes with any cut; a cluster that is not through by then is stuck."""

WRITES_FIRST: Final = 12

SETTLE_MS: Final = 300


@frozen
class Cut:
    """At the `step`-th changing call of a server's `disk`-th disk (0: its first)."""

    server: ServerId
    disk: int
    step: int
    trouble: Trouble

    def __str__(self) -> str:
        return f"S{self.server} disk {self.disk} step {self.step} {self.trouble.name}"


@frozen
class Outcome:
    """What a life came to. `steps`: by server and disk, how many changing calls it saw."""

    steps: tuple[tuple[tuple[ServerId, int], int], ...]
    was_cut: bool
    writes: int
    """Acknowledged, in all."""
    writes_after: int
    """Acknowledged after the cut."""
    snapshots_taken: int
    snapshots_installed: int
    """From another server."""
    put_aside: int
    configurations: int
    joint: int
    """Configurations in which two majorities decided."""
    simulated_ms: int


class CutProcess(Process):
    """A server whose power fails when its disk comes to a planned step, and which then starts again."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.cut: Cut | None = None
        self.disks: list[SimulatedDisk] = [self.image.disk]

    def boot(self) -> None:
        cut = self.cut
        if cut is not None and cut.disk == len(self.disks) - 1:
            # Every crash makes a disk forget what was planned for it.
            ahead = cut.step - self.image.disk.statistics().steps
            if ahead >= 1:
                self.image.disk.fail_at(ahead, cut.trouble, random.Random(str(cut)))
        super().boot()

    def wipe(self) -> None:
        super().wipe()
        self.disks.append(self.image.disk)

    def condemn(self) -> None:
        """It finds that its state is not the majority's: it ends, and what starts next puts its directory aside."""
        directory = self.image.directory
        if directory is None:
            return
        # What was on its way to the log stays on its way: nothing of it is in the directory that is put aside.
        self._frame = None

        def end() -> None:
            directory.condemn("planned", self._schedule.now_ms)
            self.crash()
            self._schedule.after(1, self.boot)

        self._until_death(end)


class CutSimulation(Simulation):
    """One run of the script. `live` raises `BrokenPromiseError`, or whatever error the product raised."""

    process_type = CutProcess

    def __init__(self, cut: Cut | None = None, *, seed: int = 1, trace: bool = False) -> None:
        profile = evolve(
            roll(seed, Mode.ALL),
            servers=3,
            clients=2,
            loss=0.0,
            duplicate=0.0,
            late=0.0,
            reorder=0.0,
            delay_ms_max=3,
            fsync_ms_max=2,
            slow_fsync=0.0,
            snipe=0.0,
            think_ms_max=500,
            burst_max=2,
            wipes=False,
            fragment=False,
            read_only_mode=False,
            operators=False,
            disk_faults=False,
            features=(FEATURE_LEVEL_MAX,) * 5,
            snapshot_bytes=3_000,
            snapshot_commands=10,
            snapshot_keep=1,
            retain_bytes=0,
            retain_bytes_max=0,
        )
        super().__init__(seed, profile=profile, trace=trace)
        self.adversary.active = False
        self.cut = cut
        self._was_cut = False
        self._writes_before = 0
        self._installed = 0
        for server, process in self._servers():
            if cut is not None and server == cut.server:
                process.cut = cut
                process.on_death = self._on_cut

    def _servers(self) -> Iterator[tuple[ServerId, CutProcess]]:
        for process in self.processes:
            assert isinstance(process, CutProcess)
            yield process.server, process

    def _process(self, server: ServerId) -> CutProcess:
        return dict(self._servers())[server]

    def _on_cut(self) -> None:
        self._was_cut = True
        self._writes_before = self.client_checks.writes
        self.say("CUT", self.cut)
        assert self.cut is not None
        self.schedule.after(DOWN_MS, self._process(self.cut.server).boot)

    # -- the script

    def live(self) -> Outcome:
        """The script from the foundation to its end, and the final checks."""
        with scaled():
            schedule = self.schedule
            for process in self.processes[: len(self._founders)]:
                schedule.at(10 * process.server, process.boot)
            self._until("the founders to be written down", lambda: bool(self.history.wanted))
            # So that there is more to be caught up with than what a log keeps.
            self._until("some writes", lambda: self.client_checks.writes >= WRITES_FIRST)
            self._add()
            self._lose()
            self._condemn()
            self._remove()
            self._write()
            # Longer than those that were told of the end of a change need, so that the last one is in force everywhere.
            schedule.run_until(schedule.now_ms + SETTLE_MS)
            if self._was_cut and self.client_checks.writes == self._writes_before:
                self._write()  # the power failed after the last write
            self._until("all members to have applied the same", self._are_equal)
            self._final(silent_since=0, silent_since_ms=0)
            return self._outcome()

    def _add(self) -> None:
        process = self._process(ADDED)
        process.in_service = True

        def ask() -> None:
            self._submit((ADDED, PARTICIPANT, f"s{ADDED}:2181"))
            process.boot()

        self._until("server 4 to vote", lambda: self._vote({1, 2, 3, 4}), ask)

    def _lose(self) -> None:
        process, before = self._process(LOST), self._instance(LOST)
        process.crash()
        process.wipe()
        self.schedule.after(DOWN_MS, process.boot)
        self._until("the lost disk to be replaced", lambda: self._vote({1, 2, 3, 4}, LOST, before))

    def _condemn(self) -> None:
        process, before = self._process(CONDEMNED), self._instance(CONDEMNED)

        def condemn() -> None:
            # It may have been decided before the power failed.
            if self._instance(CONDEMNED) == before:
                process.condemn()

        self._until(
            "the condemned disk to be replaced", lambda: self._vote({1, 2, 3, 4}, CONDEMNED, before), condemn
        )

    def _remove(self) -> None:
        self._until(
            "server 1 to be removed",
            lambda: self._vote({2, 3, 4}),
            lambda: self._submit((REMOVED, REMOVE, "")),
        )
        # It knows: what it would do otherwise is another run's question.
        self._until("server 1 to know it", lambda: self._says_it_is_out(REMOVED))

    def _write(self) -> None:
        for client in self.clients:
            client.finale, client.finale_done = True, False
        self._until("every client to write and sync", lambda: all(c.finale_done for c in self.clients))
        self._until("all members to have applied the same", self._are_equal)

    def _says_it_is_out(self, server: ServerId) -> bool:
        driver = self._process(server).driver
        return driver is not None and (driver.coordination.problem or driver.coordination.waiting) is not None

    def _submit(self, *changes: tuple[int, int, str]) -> None:
        running = [
            p for p in self.processes if p.driver is not None and p.driver.raft is not None and p.in_service
        ]
        leaders = [process for process in running if process.leads]
        for process in (leaders or running)[-1:]:
            assert process.driver is not None
            process.driver.submit((txn.MEMBERS, False, -1, changes), lambda result: None)
            process.wake()

    def _instance(self, server: ServerId) -> Instance:
        return self.raft_checks.shadows[server].instance

    def _vote(
        self, servers: set[int], replaced: ServerId | None = None, before: Instance | None = None
    ) -> bool:
        """Whether exactly these are members, and voters, in the newest committed configuration; one with another disk."""
        configuration: Configuration | None = self.raft_checks.newest_configuration()
        if configuration is None or configuration.joint or set(configuration.members) != servers:
            return False
        if any(role != VOTER for _, role in configuration.members.values()):
            return False
        return replaced is None or configuration.members[replaced][0] != before

    def _are_equal(self) -> bool:
        """Return whether all members have applied the same entries, the last command's among them.

        A NOOP may follow it: a leader whose snapshot covers its whole log appends one.
        """
        drivers = [process.driver for server, process in self._servers() if server in self.history.wanted]
        applied = {d.applied_index if d is not None and d.raft is not None else None for d in drivers}
        index = applied.pop()
        return not applied and index is not None and index >= self.history.index

    def _until(self, what: str, holds: Callable[[], bool], act: Callable[[], None] | None = None) -> None:
        """Let time pass until `holds`; `act` at once, and again while nothing comes of it."""
        schedule = self.schedule
        deadline, next_at = schedule.now_ms + SCRIPT_MS, schedule.now_ms
        while not holds():
            if act is not None and schedule.now_ms >= next_at:
                next_at = schedule.now_ms + ASK_AGAIN_MS
                act()
            if schedule.now_ms >= deadline:
                self.raft_checks.fail("progress", f"{self.cut}: waited {SCRIPT_MS} ms for {what}")
            schedule.run_until(schedule.now_ms + LOOK_MS)
        self.say("->", what)

    def snapshot(self, process: Process, info: SnapshotInfo, *, received: bool) -> None:
        super().snapshot(process, info, received=received)
        self._installed += received

    def ended(self, process: Process, why: StorageError) -> None:
        """No disk fails here but by a cut."""
        raise why

    def _outcome(self) -> Outcome:
        checks = self.client_checks
        return Outcome(
            steps=tuple(
                ((server, number), disk.statistics().steps)
                for server, process in self._servers()
                for number, disk in enumerate(process.disks)
                if disk.statistics().steps
            ),
            was_cut=self._was_cut,
            writes=checks.writes,
            writes_after=checks.writes - self._writes_before,
            snapshots_taken=self.raft_checks.snapshots_taken,
            snapshots_installed=self._installed,
            put_aside=sum(
                name.startswith(ASIDE_PREFIX)
                for _, process in self._servers()
                if process.opened
                for name in process.image.disk.listdir(PATH)
            ),
            configurations=len(self.raft_checks.configurations),
            joint=sum(configuration.joint for _, configuration in self.raft_checks.configurations),
            simulated_ms=self.schedule.now_ms,
        )


def cuts(outcome: Outcome) -> Iterator[Cut]:
    """Every cut of the life that `outcome` is of: before, during and after each step of every disk."""
    for (server, disk), steps in outcome.steps:
        for step in range(1, steps + 1):
            for trouble in TROUBLES:
                yield Cut(server, disk, step, trouble)
