"""One seed: consumers, partitions and faults on simulated time; then everything is healed and must get done."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from attrs import frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.claims.checks import Checks
from tests.simulation.claims.partition import SERVERS, Replica, Reply, Server, SimulatedPartition
from tests.simulation.claims.process import CLAIM_INTERVAL_MS, Process
from tests.simulation.claims.profile import FAULTY_MS, HEARTBEAT_MS, GroupProfile, Profile, roll
from tests.simulation.schedule import Schedule
from zraft_client.claims.port import Fetched, Record, Seen
from zraft_client.claims.requests import Effect, Fetch, Look, Submit
from zraft_core.claims.answers import ClaimAnswer
from zraft_core.claims.commands import ClaimCommand, ClaimMessages, ClaimPartition, Pause

RESTART_MS_MAX: Final = 3 * HEARTBEAT_MS
DRAIN_MS_MAX: Final = 120_000
"""How long the end may take to process what is left; far more than it needs, because only progress is promised."""


@frozen
class Report:
    """What one seed saw."""

    seed: int
    partitions: int
    consumers: int
    messages: int
    faults: int
    leader_changes: int
    seen: tuple[tuple[str, int], ...]

    def count(self, name: str) -> int:
        return dict(self.seen).get(name, 0)


class Simulation:
    """All of one run. `run` raises `BrokenPromiseError` with the promise that did not hold."""

    def __init__(self, seed: int, *, partitions: int | None = None, consumers: int | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.profile: Profile = roll(self.rng, partitions, consumers)
        self.schedule = Schedule()
        self.checks = Checks()
        self.faults = 0
        self.healed = False
        profile = self.profile
        rates = (profile.clock_rate, -profile.clock_rate, 0.0)
        self.servers = [
            Server(number, self.rng.randint(0, 10**9), 1 + self.rng.choice(rates))
            for number in range(SERVERS)
        ]
        self.partitions = [
            SimulatedPartition(number, self.servers, self.schedule, self.rng, self.checks)
            for number in range(profile.partitions)
        ]
        self.processes: list[Process] = []
        self._instances = 0
        for group in profile.groups:
            for number in range(group.consumers):
                self._start(group, f"{group.name}-{number}")

    @property
    def moment(self) -> str:
        return f"{self.schedule.now_ms} ms"

    def run(self) -> Report:
        profile = self.profile
        for partition in self.partitions:
            self._every(profile.message_every_ms, partition.add_message)
        self._every(profile.stop_every_ms, self._stop_somebody)
        self._every(profile.kill_every_ms, self._kill_somebody)
        self._every(profile.end_every_ms, self._end_somebody)
        self._every(profile.leader_every_ms / profile.partitions, self._change_a_leader)
        self._every(profile.server_stop_every_ms, self._stop_servers)
        self._every(profile.pause_every_ms, self._pause_a_group)
        if profile.twins:
            self._every(8_000, self._start_a_twin)
        self.schedule.run_until(FAULTY_MS)
        self._heal()
        self._demand_owners()
        self._drain()
        return self._report()

    # Faults -----------------------------------------------------------------------------------------------------

    def _every(self, mean_ms: float, fault: Callable[[], None]) -> None:

        def again() -> None:
            if not self.healed:
                fault()
                self.schedule.after(int(self.rng.expovariate(1 / mean_ms)) + 1, again)

        self.schedule.after(int(self.rng.expovariate(1 / mean_ms)) + 1, again)

    def _alive(self) -> list[Process]:
        self.processes = [process for process in self.processes if process.alive]
        return self.processes

    def _start(self, group: GroupProfile, client: str) -> None:
        self._instances += 1
        rate = 1 + self.rng.uniform(-1, 1) * self.profile.clock_rate
        process = Process(
            group,
            client,
            f"i{self._instances}",
            self.profile.partitions,
            self.profile.process_ms,
            self.rng.randint(0, 10**9),
            rate,
            self.schedule,
            self.rng,
            self.checks,
            self._perform,
        )
        self.processes.append(process)

    def _stop_somebody(self) -> None:
        if self._alive():
            self.faults += 1
            longest = self.rng.choice((HEARTBEAT_MS // 2, 2 * HEARTBEAT_MS, 5 * HEARTBEAT_MS))
            self.rng.choice(self.processes).stop(self.rng.randint(1, longest))

    def _kill_somebody(self) -> None:
        if self._alive():
            self.faults += 1
            process = self.rng.choice(self.processes)
            process.kill()
            # The same program again, at once or after its claims have expired.
            self.schedule.after(
                self.rng.randint(0, RESTART_MS_MAX), self._start_again, process.group, process.client
            )

    def _end_somebody(self) -> None:
        if self._alive():
            self.faults += 1
            process = self.rng.choice(self.processes)
            process.end(release=self.rng.random() < 0.5)
            self.schedule.after(
                HEARTBEAT_MS + self.rng.randint(0, RESTART_MS_MAX),
                self._start_again,
                process.group,
                process.client,
            )

    def _start_again(self, group: GroupProfile, client: str) -> None:
        # One at a time: a second process with the same id is a fault of its own (`_start_a_twin`).
        same = [process for process in self._alive() if process.client == client]
        if not same:
            self._start(group, client)
        elif all(process.is_ending for process in same):
            # It was stopped while it was to end, so it is not gone yet.
            self.schedule.after(HEARTBEAT_MS // 2, self._start_again, group, client)

    def _start_a_twin(self) -> None:
        if self._alive():
            self.faults += 1
            process = self.rng.choice(self.processes)
            self._start(process.group, process.client)

    def _change_a_leader(self) -> None:
        self.faults += 1
        self.rng.choice(self.partitions).depose()

    def _stop_servers(self) -> None:
        """One server, or all of them, as when the machine they are on sleeps."""
        self.faults += 1
        now = self.schedule.now_ms
        until = now + self.rng.randint(50, self.rng.choice((500, 4 * HEARTBEAT_MS)))
        all_of_them = self.rng.random() < 0.3
        stopped = self.servers if all_of_them else [self.rng.choice(self.servers)]
        for server in stopped:
            server.stopped_until = max(server.stopped_until, until)
        if all_of_them:
            return
        for partition in self.partitions:
            leader = partition.leader
            if leader is not None and leader.server in stopped and until - now > 400:
                self.schedule.after(self.rng.randint(200, 400), self._depose_stopped, partition, leader)

    def _depose_stopped(self, partition: SimulatedPartition, leader: Replica) -> None:
        if partition.leader is leader and leader.server.is_stopped(self.schedule.now_ms):
            partition.depose()

    def _pause_a_group(self) -> None:
        self.faults += 1
        group = self.rng.choice(self.profile.groups).name
        for partition in self.partitions:
            view = partition.view(group)
            if view is not None:
                until_ms = view.log_time_ms + self.rng.randint(100, 2 * HEARTBEAT_MS)
                self._to_leader(partition, Pause(group, until_ms, view.paused_at), lambda _answer: None)

    # The network ------------------------------------------------------------------------------------------------

    def _delays(self) -> list[int]:
        """When copies of a message arrive: none, one, or two."""
        profile, rng = self.profile, self.rng
        if self.healed:
            return [rng.randint(1, 5)]
        if rng.random() < profile.loss:
            return []
        delays = [rng.randint(1, 10)]
        if rng.random() < profile.delayed:
            delays = [rng.randint(10, 3 * HEARTBEAT_MS)]
        if rng.random() < profile.duplicates:
            delays.append(rng.randint(1, 3 * HEARTBEAT_MS))
        return delays

    def _to_leader(self, partition: SimulatedPartition, command: ClaimCommand, reply: Reply) -> None:
        delays = self._delays()
        is_claim = isinstance(command, ClaimPartition | ClaimMessages) and not self.healed
        # They are few beside heartbeats, and late copies of them are what epochs are for.
        if is_claim and delays and self.rng.random() < 10 * self.profile.duplicates:
            delays.append(self.rng.randint(1, 3 * HEARTBEAT_MS))
        for delay in delays:
            self.schedule.after(delay, partition.submit, command, reply)

    def _perform(self, process: Process, effect: Effect) -> None:
        partition = self.partitions[effect.partition]
        match effect:
            case Submit(number, _, _, command):

                def reply(answer: ClaimAnswer) -> None:
                    for delay in self._delays():
                        self.schedule.after(delay, process.on_reply, number, answer, effect)

                self._to_leader(partition, command, reply)
            case Look() | Fetch():
                for delay in self._delays()[:1]:
                    self.schedule.after(delay, self._read, process, effect, partition)

    def _read(self, process: Process, effect: Look | Fetch, partition: SimulatedPartition) -> None:
        reply: Seen | Fetched
        if isinstance(effect, Look):
            view = partition.view(effect.group)
            if view is None:
                return
            reply = Seen(view, 0, partition.end, self.profile.plain)
        else:
            upto = min(partition.end, effect.first + effect.count)
            records = tuple(Record(offset, b"") for offset in range(effect.first, upto))
            reply = Fetched(records, 0, partition.end)
        for delay in self._delays()[:1]:
            self.schedule.after(delay, process.on_reply, effect.number, reply, effect)

    # The end ----------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """No faults any more; a few owners die just now, and do not come back."""
        self.healed = True
        for server in self.servers:
            server.stopped_until = min(server.stopped_until, self.schedule.now_ms)
        for process in self._alive():
            process.go_on()
        for group in self.profile.groups:
            alive = [process for process in self._alive() if process.group is group]
            if not alive:
                self._start(group, f"{group.name}-0")
            for process in alive[: len(alive) // 2]:
                if self.rng.random() < 0.5:
                    process.kill()
                    self.faults += 1

    def _demand_owners(self) -> None:
        """Every partition is claimed by somebody who lives, within the bound.

        Source: docs/explanation/claims.md, "How long it takes".
        """
        profile = self.profile
        slow = 1 / (1 - profile.clock_rate)
        fewest = min(sum(p.group is group for p in self._alive()) for group in profile.groups)
        rounds = profile.partitions // max(1, fewest) + 3
        # A leader that was just elected, late messages of phase one, two intervals of silence, one in which those
        # who released leave it alone, and rounds of claiming.
        bound = 1_500 + (3 + 2 + 2 + 1) * HEARTBEAT_MS * slow + rounds * (CLAIM_INTERVAL_MS + 500) * slow
        self.schedule.run_until(FAULTY_MS + int(bound))
        for group in profile.groups:
            if group.range_messages:
                continue
            living = {process.core.identity for process in self._alive() if process.group is group}
            for partition in self.partitions:
                held = self.checks.live(group.name, partition.number)
                if not any(one.owner in living for one in held):
                    raise BrokenPromiseError(
                        "liveness",
                        f"partition {partition.number}, group {group.name}: owned by nobody who lives, {bound:.0f} ms "
                        f"after all was healed: {held}",
                    )

    def _drain(self) -> None:
        began = self.schedule.now_ms
        while not self._is_drained():
            if self.schedule.now_ms > began + DRAIN_MS_MAX:
                break
            self.schedule.run_until(self.schedule.now_ms + HEARTBEAT_MS)
        for partition in self.partitions:
            partition.compare_all()
            for group in self.profile.groups:
                self.checks.at_end(group.name, partition.number, group.mode, partition.end)

    def _is_drained(self) -> bool:
        return all(
            self.checks.is_done(group.name, partition.number, group.mode, partition.end)
            for partition in self.partitions
            for group in self.profile.groups
        )

    def _report(self) -> Report:
        seen = self.checks.seen
        return Report(
            seed=self.seed,
            partitions=self.profile.partitions,
            consumers=sum(group.consumers for group in self.profile.groups),
            messages=sum(partition.end for partition in self.partitions),
            faults=self.faults,
            leader_changes=sum(partition.leader_changes for partition in self.partitions),
            seen=tuple(sorted(seen.items())),
        )
